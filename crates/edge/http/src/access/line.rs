//! A line of the route table. It has the requests that it matches, the right that they need, the agent that answers,
//! the limit of the body, and the handler.

use crate::body_read::{MAX_BODY, MAX_SNAPSHOT};
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;
use caravan_messages::ExecOpen;
use caravan_server::{Level, NsCap, PoolCap, VarCap};
use http::{Method, StatusCode};
use std::pin::Pin;

/// The methods of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// Reading.
    Get,
    /// Writing: PUT and POST are equivalent.
    Put,
    /// Deleting.
    Delete,
    /// All methods; the handler may refuse some.
    Any,
}

impl On {
    pub(super) fn fits(self, method: &Method) -> bool {
        match self {
            Self::Get => method == Method::GET || method == Method::HEAD,
            Self::Put => method == Method::PUT || method == Method::POST,
            Self::Delete => method == Method::DELETE,
            Self::Any => true,
        }
    }
}

/// The right that a route needs. Capabilities are alternatives: one of them is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// No right; even an unknown token is accepted.
    Open,
    /// A known token or none. The route shows only the objects that the caller may see.
    Shown,
    /// A management token.
    Management,
    /// No right suffices: the path is refused with this status and this text.
    Refused(StatusCode, &'static str),
    /// A capability in the namespace of the query; `*` means in any namespace.
    Namespace(&'static [NsCap]),
    /// As [`Need::Namespace`], for lists: a list of all namespaces has only the rows that the caller may see.
    Rows(&'static [NsCap]),
    /// A capability in the namespace of the job in the body.
    Job(&'static [NsCap]),
    /// The right to stop a job, or to purge it if the query requests that.
    Deregister,
    /// A capability in the namespace of the query, or of the body if the query has none. Objects in the body may name
    /// other namespaces: the handler calls [`crate::call::Call::permit`] for each object.
    Body(&'static [NsCap]),
    /// A capability in the namespace of the allocation whose id is in this segment.
    Alloc(usize, &'static [NsCap]),
    /// As [`Need::Alloc`], but a caller without the right receives the error for a missing allocation.
    HiddenAlloc(usize, &'static [NsCap]),
    /// As [`Need::Alloc`], for files on a node. The namespace of an allocation without a row is unknown, so its
    /// files need a management token.
    Held(usize, &'static [NsCap]),
    /// The right to run a command in the allocation whose id is in this segment.
    Exec(usize),
    /// The right to run an action of a job in the allocation that the query names.
    Action,
    /// A capability in the namespace of the evaluation whose id is in this segment.
    Eval(usize, &'static [NsCap]),
    /// A capability in the namespace of the deployment whose id is in this segment.
    Deployment(usize, &'static [NsCap]),
    /// A capability in the namespace of the host volume whose id is in this segment.
    HostVolume(usize, &'static [NsCap]),
    /// A capability in the namespace of the host volume claim whose id is in this segment.
    HostClaim(usize, &'static [NsCap]),
    /// The right to nodes.
    Node(Level),
    /// The right to agents.
    Agent(Level),
    /// The right to the region's settings.
    Operator(Level),
    /// The right to the region's settings, or the named operator capability.
    OperatorCap(&'static str, Level),
    /// The right to save snapshots; with the key of the cluster, if the query requests that, a management token.
    SaveSnapshot,
    /// The right to quotas.
    Quota(Level),
    /// The right to storage plugins.
    Plugin(Level),
    /// A capability of the node pool whose name is in this segment.
    Pool(usize, PoolCap),
    /// A capability of the node pool that the body names.
    PoolBody(PoolCap),
    /// A capability of any node pool.
    AnyPool(PoolCap),
    /// A capability of the variable that the path names.
    Variable(VarCap),
}

/// The places where a request may name its namespace, in order; the first one present decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// The query. A namespace in the body is ignored.
    Query,
    /// The query, then the body.
    QueryThenBody,
    /// The body, then the query.
    BodyThenQuery,
    /// The query, then the body, then the job in the body.
    Job,
}

impl Need {
    /// Returns the places where requests of this need name their namespace.
    pub(crate) fn names(self) -> Names {
        match self {
            Self::Job(_) => Names::Job,
            Self::Body(_) => Names::QueryThenBody,
            Self::Variable(VarCap::Write) => Names::BodyThenQuery,
            _ => Names::Query,
        }
    }

    /// Returns the namespace capabilities of this need; empty for needs without a namespace.
    pub(crate) fn caps(self) -> &'static [NsCap] {
        match self {
            Self::Namespace(caps)
            | Self::Rows(caps)
            | Self::Job(caps)
            | Self::Body(caps)
            | Self::Alloc(_, caps)
            | Self::HiddenAlloc(_, caps)
            | Self::Held(_, caps)
            | Self::Eval(_, caps)
            | Self::Deployment(_, caps)
            | Self::HostVolume(_, caps)
            | Self::HostClaim(_, caps) => caps,
            _ => &[],
        }
    }
}

/// The agent that answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The leader of the servers, or any server for a read with `stale`; other agents forward the request.
    Server,
    /// Any server; an agent without a server forwards the request.
    AnyServer,
    /// The agent that receives the request. An agent without a server asks a server for the right of the caller.
    Agent,
    /// The agent that receives the request, without a check of rights.
    Page,
    /// The agent that receives the request if it keeps a list of servers, otherwise a server.
    ServerList,
    /// The node of an object.
    Node(Object),
    /// The agent that the query names: a node or a server. An unknown server is refused with the status.
    Named(StatusCode),
    /// The agent that receives the request, over a websocket, with a session at the node that holds the allocation.
    Websocket,
}

/// The region that answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The region that the query names.
    Query,
    /// The region of the agent; a region in the query is ignored.
    Own,
    /// The region that the body, the query or the job in the body names.
    Job,
    /// The authoritative region for writes, otherwise as [`Scope::Query`].
    Authoritative,
    /// The authoritative region for writes of tokens that are valid in all regions, otherwise as [`Scope::Query`].
    Token,
    /// The authoritative region for logins whose tokens are valid in all regions, otherwise as [`Scope::Query`].
    Login,
}

/// The object whose node answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// The allocation whose id is the first star of the path.
    Alloc,
    /// As [`Object::Alloc`], for the removal of the files of an ended allocation.
    Garbage,
    /// As [`Object::Alloc`]. The parameters of the request are checked before the allocation is located.
    Files(Asks),
    /// The node that the query names; otherwise the agent that receives the request.
    Node,
    /// As [`Object::Node`]. The body may name the node if the query does not.
    NodeOfBody,
}

/// The parameters that a request for a file must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// The path of the file.
    Path,
    /// The path of the file; the refusal is sent as content.
    PathAsContent,
    /// The task, and the kind of its log.
    Log,
}

/// The future of a handler.
pub(crate) type Answer<'c> = Pin<Box<dyn Future<Output = Result<Reply, ApiError>> + Send + 'c>>;

/// The function that answers the requests of a line.
pub(crate) type Handler = for<'c> fn(&'c Call) -> Answer<'c>;

/// The function that parses the parameters of a session. The error is sent over the websocket.
pub(crate) type Parse = fn(&Call) -> Result<ExecOpen, ApiError>;

/// The answer to the requests of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To {
    /// No handler, for lines that refuse.
    Nowhere,
    /// A redirect to the same path with a slash at its end.
    Slash,
    /// A function of `routes`.
    Handler(Handler),
    /// A session over a websocket.
    Session(Parse),
}

/// The limit of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyLimit {
    /// The limit of JSON bodies and job files.
    Usual,
    /// The limit of snapshot archives.
    Snapshot,
}

impl BodyLimit {
    /// Returns the maximum length of the body, in bytes.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Usual => MAX_BODY,
            Self::Snapshot => MAX_SNAPSHOT,
        }
    }
}

/// A line of the route table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// The methods that the line matches.
    pub(crate) on: On,
    /// The path below `/v1/`; a leading slash makes it absolute. `*` is one segment, `**` one or more.
    pub(crate) path: &'static str,
    /// The right that a caller needs.
    pub(crate) need: Need,
    /// The handler that answers.
    pub(crate) to: To,
    /// The agent that answers.
    pub(crate) place: Place,
    /// The region that answers.
    pub(crate) scope: Scope,
    /// The limit of the body.
    pub(crate) body: BodyLimit,
    /// Whether the answer to a read without `index` may come from memory.
    pub(crate) cached: bool,
    /// Whether a follower with a current state may answer a read.
    pub(crate) follows: bool,
    /// The methods with which pages of other origins may call the route; empty forbids it
    /// (docs/reference/http-api.md, section 1.9).
    pub(crate) shared: &'static [&'static str],
    /// The keys by which `sort` orders the list of the route; empty for routes that answer with no pages.
    pub(crate) sorts: &'static [&'static str],
    /// Whether the route registers, dispatches or scales jobs, which the scheduler configuration may restrict.
    pub(crate) registers: bool,
}

/// Creates the line of a route that a server answers.
pub(super) const fn line(on: On, path: &'static str, need: Need, to: To) -> Line {
    Line {
        on,
        path,
        need,
        to,
        place: Place::Server,
        scope: Scope::Query,
        body: BodyLimit::Usual,
        cached: false,
        follows: false,
        shared: &[],
        sorts: &[],
        registers: false,
    }
}

/// Creates the line of a session over a websocket.
pub(super) const fn session(path: &'static str, need: Need, parse: Parse) -> Line {
    line(On::Any, path, need, To::Session(parse)).at(Place::Websocket)
}

/// Creates the line of a path that lacks the slash and the name of an object.
pub(super) const fn slash(path: &'static str) -> Line {
    line(On::Any, path, Need::Open, To::Slash).at(Place::Page)
}

impl Line {
    /// Sets the agent that answers. A request that the receiving agent answers is never for another region.
    pub(super) const fn at(self, place: Place) -> Self {
        let scope = match place {
            Place::Agent | Place::Page | Place::ServerList => Scope::Own,
            _ => self.scope,
        };
        Self { place, scope, ..self }
    }

    /// Sets the region that answers.
    pub(super) const fn with_scope(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    /// Sets the limit of the body.
    pub(super) const fn body(self, body: BodyLimit) -> Self {
        Self { body, ..self }
    }

    /// Permits answers from memory to reads without `index`.
    pub(super) const fn cached(self) -> Self {
        Self { cached: true, ..self }
    }

    /// Permits a follower with a current state to answer reads. The answer depends on the replicated state alone,
    /// on nothing in the leader's memory.
    pub(super) const fn follows(self) -> Self {
        Self { follows: true, ..self }
    }

    /// Permits pages of other origins to call the route.
    pub(super) const fn shared(self, methods: &'static [&'static str]) -> Self {
        Self { shared: methods, ..self }
    }

    /// Sets the keys by which `sort` orders the list.
    pub(super) const fn sorted_by(self, keys: &'static [&'static str]) -> Self {
        Self { sorts: keys, ..self }
    }

    /// Marks a route that registers, dispatches or scales jobs.
    pub(super) const fn registers(self) -> Self {
        Self { registers: true, ..self }
    }

    /// Returns the segment of a request's path that this line has in common with few others, and its place in the
    /// path.
    pub(super) fn key(&self) -> (usize, &'static str) {
        let (at, path) = self.path.strip_prefix('/').map_or((1, self.path), |path| (0, path));
        (at, path.split('/').next().unwrap_or_default())
    }

    /// Returns whether the path of a request matches this line.
    pub(super) fn is_about(&self, segments: &[&str]) -> bool {
        match (self.path.strip_prefix('/'), segments) {
            (Some(path), segments) => fits(path, segments),
            (None, ["v1", segments @ ..]) => fits(self.path, segments),
            (None, _) => false,
        }
    }

    /// Returns the parts of the path that match the stars; the segments of `**` are joined.
    pub(crate) fn stars(&self, segments: &[&str]) -> Vec<String> {
        let (path, skipped) = match self.path.strip_prefix('/') {
            Some(path) => (path, 0),
            None => (self.path, 1),
        };
        let segments = segments.get(skipped..).unwrap_or_default();
        let parts: Vec<&str> = path.split('/').collect();
        let several = (segments.len() + 1).saturating_sub(parts.len());
        let (mut out, mut at) = (Vec::new(), 0);
        for part in parts {
            let width = if part == "**" { several } else { 1 };
            if part.starts_with('*') {
                out.push(segments.get(at..at + width).unwrap_or_default().join("/"));
            }
            at += width;
        }
        out
    }
}

/// Returns whether a path matches a pattern with at most one `**`, which stands for one segment or more.
fn fits(pattern: &str, segments: &[&str]) -> bool {
    let one = |(part, segment): (&str, &&str)| part == "*" || part == *segment;
    let Some((head, tail)) = pattern.split_once("**") else {
        return pattern.split('/').count() == segments.len() && pattern.split('/').zip(segments).all(one);
    };
    let (head, tail) = (head.split_terminator('/'), tail.rsplit('/').filter(|part| !part.is_empty()));
    segments.len() > head.clone().count() + tail.clone().count()
        && head.zip(segments).all(one)
        && tail.zip(segments.iter().rev()).all(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(path: &str) -> Vec<&str> {
        path.split('/').collect()
    }

    #[test]
    fn stars_stand_for_segments() {
        for (pattern, path, fit, stars) in [
            ("job/**/plan", "v1/job/a/b/plan", true, vec!["a/b"]),
            ("job/**/plan", "v1/job/plan", false, vec![]),
            ("job/*/versions/*/tag", "v1/job/a/versions/x/tag", true, vec!["a", "x"]),
            ("job/**", "v1/job/", true, vec![""]),
            ("jobs", "v1/jobs", true, vec![]),
            ("jobs", "jobs", false, vec![]),
            ("/.well-known/*", ".well-known/jwks.json", true, vec!["jwks.json"]),
            ("client/fs/logs/**", "v1/client/fs/logs/a/b", true, vec!["a/b"]),
            ("client/fs/logs/**", "v1/client/fs/logs", false, vec![]),
            ("a/**/b/c", "v1/a/x/y/b/c", true, vec!["x/y"]),
            ("a/**/b/c", "v1/a/b/c", false, vec![]),
            ("a/**/b/c", "v1/a/x/c/b", false, vec![]),
            ("a/*", "v1/a/x/y", false, vec![]),
        ] {
            let line = line(On::Get, pattern, Need::Open, To::Nowhere);
            assert_eq!(line.is_about(&segments(path)), fit, "{pattern} {path}");
            if fit {
                assert_eq!(line.stars(&segments(path)), stars, "{pattern} {path}");
            }
        }
    }
}
