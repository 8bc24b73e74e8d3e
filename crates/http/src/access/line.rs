//! A line of the route table: the requests that it is about, the right that they need, the handler that answers.

use crate::dispatch::To;
use caravan_server::{Level, NsCap, PoolCap, VarCap};
use http::{Method, StatusCode};

/// The methods of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// Reading.
    Get,
    /// Writing: PUT and POST are the same.
    Put,
    /// Deleting.
    Delete,
    /// All of them; the handler may refuse some.
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
    /// Nothing, not even a token that is known.
    Open,
    /// A token that is known, or none: the route shows only what the caller may see.
    Shown,
    /// Everything.
    Management,
    /// No request is allowed: the path is not served, and this is the answer.
    Refused(StatusCode, &'static str),
    /// In the namespace of the query; `*` in any.
    Namespace(&'static [NsCap]),
    /// As [`Need::Namespace`], for lists: a list of all namespaces has the rows that the caller may see.
    Rows(&'static [NsCap]),
    /// In the namespace of the job in the body.
    Job(&'static [NsCap]),
    /// To stop a job, or to purge it where the query says so.
    Deregister,
    /// In the namespace of the query, else of the body. Objects of the body may name others: the handler asks
    /// [`crate::call::Call::permit`] for each.
    Body(&'static [NsCap]),
    /// In the namespace of the allocation that the segment names.
    Alloc(usize, &'static [NsCap]),
    /// As [`Need::Alloc`]; an allocation that the caller may not see is answered as if it were not there.
    HiddenAlloc(usize, &'static [NsCap]),
    /// As [`Need::Alloc`], for what a node keeps: an allocation that the servers do not know is nobody's, and its
    /// files are for management.
    Held(usize, &'static [NsCap]),
    /// To run a command in the allocation that the segment names.
    Exec(usize),
    /// To run an action of a job in the allocation that the query names.
    Action,
    /// In the namespace of the evaluation that the segment names.
    Eval(usize, &'static [NsCap]),
    /// In the namespace of the deployment that the segment names.
    Deployment(usize, &'static [NsCap]),
    /// In the namespace of the host volume that the segment names.
    HostVolume(usize, &'static [NsCap]),
    /// In the namespace of the claim on a host volume that the segment names.
    HostClaim(usize, &'static [NsCap]),
    /// Nodes.
    Node(Level),
    /// Agents.
    Agent(Level),
    /// Settings of the region.
    Operator(Level),
    /// Settings of the region, or the one thing by its name.
    OperatorCap(&'static str, Level),
    /// Quotas.
    Quota(Level),
    /// Storage plugins.
    Plugin(Level),
    /// The node pool that the segment names.
    Pool(usize, PoolCap),
    /// The node pool that the body names.
    PoolBody(PoolCap),
    /// Any node pool.
    AnyPool(PoolCap),
    /// The variable that the path names.
    Variable(VarCap),
}

/// Where a request names its namespace: the first place that names one decides.
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
    /// Returns where requests of this need name their namespace.
    pub(crate) fn names(self) -> Names {
        match self {
            Self::Job(_) => Names::Job,
            Self::Body(_) => Names::QueryThenBody,
            Self::Variable(VarCap::Write) => Names::BodyThenQuery,
            _ => Names::Query,
        }
    }

    /// Returns the capabilities of a namespace that are asked for.
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

/// A line of the route table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// Methods.
    pub(crate) on: On,
    /// Path below `/v1/`, or with a leading slash from the root. `*` is one segment, `**` one or more.
    pub(crate) path: &'static str,
    /// The right that is needed.
    pub(crate) need: Need,
    /// The handler.
    pub(crate) to: To,
}

/// Makes a line.
pub(super) const fn line(on: On, path: &'static str, need: Need, to: To) -> Line {
    Line { on, path, need, to }
}

/// The outcome of looking a request up in a table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// This line is about the request.
    Line(&'static Line),
    /// The path is served, but not with this method.
    Method,
    /// The path is not served.
    Nothing,
}

/// Looks a request up: the first path that fits decides, and of its lines the first one with the method. `segments`
/// are those of the whole path.
pub(super) fn find(table: &'static [Line], method: &Method, segments: &[&str]) -> Found {
    let Some(first) = table.iter().find(|line| line.is_about(segments)) else { return Found::Nothing };
    let mut same = table.iter().filter(|line| line.path == first.path);
    same.find(|line| line.on.fits(method)).map_or(Found::Method, Found::Line)
}

impl Line {
    /// Whether the path of a request is the line's.
    pub(super) fn is_about(&self, segments: &[&str]) -> bool {
        match (self.path.strip_prefix('/'), segments) {
            (Some(path), segments) => fits(path, segments),
            (None, ["v1", segments @ ..]) => fits(self.path, segments),
            (None, _) => false,
        }
    }

    /// Returns the segments that the stars of the path stand for; those of `**` joined.
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

/// Whether a path fits a pattern with at most one `**`.
fn fits(pattern: &str, segments: &[&str]) -> bool {
    let parts: Vec<&str> = pattern.split('/').collect();
    let one = |(part, segment): (&&str, &&str)| *part == "*" || part == segment;
    match parts.iter().position(|part| *part == "**") {
        None => parts.len() == segments.len() && parts.iter().zip(segments).all(one),
        Some(at) => {
            let tail = parts.len() - at - 1;
            segments.len() >= parts.len()
                && parts[..at].iter().zip(segments).all(one)
                && parts[at + 1..].iter().zip(&segments[segments.len() - tail..]).all(one)
        }
    }
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
        ] {
            let line = line(On::Get, pattern, Need::Open, To::Nowhere);
            assert_eq!(line.is_about(&segments(path)), fit, "{pattern} {path}");
            if fit {
                assert_eq!(line.stars(&segments(path)), stars, "{pattern} {path}");
            }
        }
    }
}
