//! The table of routes for readers: tests, and the page docs/http-routes.md.

use super::SNAPSHOT_SAVE;
use super::line::{Line, Names, Need, On, Place, Scope, To};
use super::table::TABLE;
use caravan_server::{Level, NsCap, VarCap};
use std::fmt::Write as _;

/// A route, as tests read the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// `GET`, `PUT`, `DELETE`, or `*` for all methods.
    pub method: &'static str,
    /// The path, with `*` for one segment and `**` for one or more.
    pub path: String,
    /// The right that a caller needs.
    pub need: String,
    /// The keys by which the list of the route can be sorted; empty for routes without pages.
    pub sorts: &'static [&'static str],
    /// The places where a request may name its namespace.
    pub names: String,
    /// Whether no request is allowed; the line then only defines the refusal.
    pub refused: bool,
    /// Whether requests are redirected to the same path with a slash at its end.
    pub redirected: bool,
}

/// Returns all served routes, in lookup order.
pub fn routes() -> Vec<Route> {
    let route = |line: &Line| Route {
        method: method(line.on),
        path: path(line),
        need: format!("{:?}", line.need),
        sorts: line.sorts,
        names: format!("{:?}", line.need.names()),
        refused: matches!(line.need, Need::Refused(..)),
        redirected: matches!(line.to, To::Slash),
    };
    TABLE.iter().map(route).collect()
}

fn method(on: On) -> &'static str {
    match on {
        On::Get => "GET",
        On::Put => "PUT",
        On::Delete => "DELETE",
        On::Any => "*",
    }
}

fn path(line: &Line) -> String {
    match line.path.starts_with('/') {
        true => line.path.to_owned(),
        false => format!("/v1/{}", line.path),
    }
}

const HEAD: &str = "\
# Routes of the HTTP API

<!-- Made from `TABLE` in crates/edge/http/src/access/table.rs by `cargo xtask docs`. Changes belong there. -->

The lines are in lookup order: the first path that matches a request decides, and among its lines the first one with the
method. [HTTP API](design/http-api.md) explains how an agent answers a request.

- **Method**: `GET` includes HEAD, `PUT` includes POST, `*` means all methods; a handler may refuse some.
- **Path**: `*` stands for one segment, `**` for one or more.
- **Right**: one of several capabilities is enough. A management token has all rights.
- **Namespace**: the places where a request names its namespace; the first one present decides.
- **Answered by**: the agent that answers. An agent that is not that agent forwards the request. A follower answers reads of
  the replicated state itself, once it has applied what the leader had applied when the request arrived; it forwards reads
  with `index`, `wait` or `consistent`.
- **Region**: the region that answers; an agent passes the request on to a server there. `query`: the region that `region`
  names. `authoritative`: for writes, the authoritative region, also if the request names another one.
- **Body**: the maximum length of the request body.
- `event/stream` checks the right of each event. It takes `caravan=true`, and `coalesce` for a stream that no reader falls
  behind ([events](design/http-api.md#events)).
- **Cached**: a read without `index` may be answered from memory for up to a second, while the state is unchanged.
- **Other origins**: the methods with which web pages of other origins may call the route (CORS).
- **Sorted by**: the keys of `sort` on a list with pages ([lists](design/http-api.md#lists)). `count=true` returns the number of
  all elements there.

| Method | Path | Right | Namespace | Answered by | Region | Body | Cached | Other origins | Sorted by |
|---|---|---|---|---|---|---|---|---|---|
";

/// Returns the page docs/http-routes.md.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for line in TABLE {
        let (right, place) = match (line.need, line.to) {
            (_, To::Slash) => ("redirect to the same path with a slash at its end".to_owned(), "any agent"),
            (Need::Refused(status, ""), _) => (format!("refused: {}", status.as_u16()), "any agent"),
            (Need::Refused(status, text), _) => (format!("refused: {} {text}", status.as_u16()), "any agent"),
            (need, _) if line.follows => (right(need), "leader, or a follower with its state"),
            (need, _) => (right(need), place(line.place)),
        };
        let cells = [
            method(line.on).replace('*', "`*`"),
            format!("`{}`", path(line)),
            right,
            namespace(line.need).to_owned(),
            place.to_owned(),
            region(line.scope).to_owned(),
            size(line.body.bytes()),
            if line.cached { "yes" } else { "" }.to_owned(),
            line.shared.join(", "),
            line.sorts.join(", "),
        ];
        // Writing to a string cannot fail.
        let _ = writeln!(page, "| {} |", cells.join(" | "));
    }
    page
}

fn size(bytes: usize) -> String {
    match bytes >> 20 {
        mib if mib % 1024 == 0 => format!("{} GiB", mib / 1024),
        mib => format!("{mib} MiB"),
    }
}

fn place(place: Place) -> &'static str {
    match place {
        Place::Server => "leader",
        Place::AnyServer => "any server",
        Place::Agent | Place::Page => "any agent",
        Place::ServerList => "agent with a list of servers, else server",
        Place::Node(_) => "node",
        Place::Named(_) => "agent that the query names",
        Place::Websocket => "node, over a websocket",
    }
}

fn region(scope: Scope) -> &'static str {
    match scope {
        Scope::Query => "query",
        Scope::Own => "own",
        Scope::Job => "body, query, job in the body",
        Scope::Authoritative => "authoritative",
        Scope::Token => "authoritative for global tokens, else query",
        Scope::Login => "authoritative for methods with global tokens, else query",
    }
}

/// Returns the place where a request names its namespace; empty for needs without a namespace.
fn namespace(need: Need) -> &'static str {
    match need {
        Need::Alloc(..)
        | Need::HiddenAlloc(..)
        | Need::Held(..)
        | Need::Exec(_)
        | Need::Action
        | Need::Eval(..)
        | Need::Deployment(..)
        | Need::HostVolume(..)
        | Need::HostClaim(..) => "that of the object",
        Need::Deregister | Need::Variable(_) => names(need.names()),
        need if !need.caps().is_empty() => names(need.names()),
        _ => "",
    }
}

fn names(names: Names) -> &'static str {
    match names {
        Names::Query => "query",
        Names::QueryThenBody => "query, body",
        Names::BodyThenQuery => "body, query",
        Names::Job => "query, body, job in the body",
    }
}

fn level(class: &str, level: Level) -> String {
    format!("`{class}:{}`", format!("{level:?}").to_lowercase())
}

fn any(caps: &[NsCap]) -> String {
    let names: Vec<String> = caps.iter().map(|cap| format!("`{}`", cap.as_str())).collect();
    names.join(" or ")
}

/// Returns the right of a need in words.
fn right(need: Need) -> String {
    match need {
        Need::Open => "none".to_owned(),
        Need::Shown => "none; shows the objects that the caller may see".to_owned(),
        Need::Management => "management token".to_owned(),
        Need::Refused(..) => String::new(),
        Need::Namespace(caps) | Need::Job(caps) | Need::Body(caps) | Need::Rows(caps) => any(caps),
        Need::Deregister => {
            let may = |cap| any(&[NsCap::SubmitJob, cap]);
            format!("{}; with `purge`: {}", may(NsCap::DeregisterJob), may(NsCap::PurgeJob))
        }
        Need::Alloc(_, caps)
        | Need::Eval(_, caps)
        | Need::Deployment(_, caps)
        | Need::HostVolume(_, caps)
        | Need::HostClaim(_, caps) => any(caps),
        Need::HiddenAlloc(_, caps) => format!("{}; otherwise the allocation is unknown", any(caps)),
        Need::Held(_, caps) => {
            format!("{}; management token if servers do not know the allocation", any(caps))
        }
        Need::Exec(_) | Need::Action => {
            format!("{}; without isolation also {}", any(&[NsCap::AllocExec]), any(&[NsCap::AllocNodeExec]))
        }
        Need::Node(at) => level("node", at),
        Need::Agent(at) => level("agent", at),
        Need::Operator(at) => level("operator", at),
        Need::OperatorCap(cap, at) => format!("{} or operator capability `{cap}`", level("operator", at)),
        Need::SaveSnapshot => {
            format!(
                "{} or operator capability `{SNAPSHOT_SAVE}`; with `key`: management token",
                level("operator", Level::Write)
            )
        }
        Need::Quota(at) => level("quota", at),
        Need::Plugin(at) => level("plugin", at),
        Need::Pool(_, cap) => format!("`{}` on the node pool", cap.as_str()),
        Need::PoolBody(cap) => format!("`{}` on the node pool of the body", cap.as_str()),
        Need::AnyPool(cap) => format!("`{}` on any node pool", cap.as_str()),
        Need::Variable(VarCap::Write) => "`write` on the variable".to_owned(),
        Need::Variable(cap) => format!("`{}` on the variable", cap.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cargo xtask docs` sets the variable: the page is then written first.
    const WRITE: &str = "CARAVAN_WRITE_DOCS";

    #[test]
    fn the_page_is_current() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/http-routes.md");
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(file, page()).unwrap();
        }
        let kept = std::fs::read_to_string(file).unwrap();
        assert!(kept == page(), "docs/http-routes.md differs from the route table: run `cargo xtask docs`");
    }

    #[test]
    fn each_line_has_a_complete_row() {
        let page = page();
        let rows: Vec<&str> = page.lines().filter(|row| row.contains("| `/")).collect();
        assert_eq!(rows.len(), TABLE.len());
        for (row, line) in rows.iter().zip(TABLE) {
            let cells: Vec<&str> = row.split(" | ").collect();
            assert!(cells.len() == 10 && cells[1] == format!("`{}`", path(line)), "{row}");
            assert!(!cells[2].is_empty() && !cells[4].is_empty() && !cells[6].is_empty(), "{row}");
        }
    }

    #[test]
    fn a_row_describes_its_line() {
        let page = page();
        for row in [
            "| PUT | `/v1/node/**/evaluate` | `node:write` |  | leader | query | 16 MiB |  |  |  |",
            "| GET | `/v1/node/pools` | none; shows the objects that the caller may see |  | leader, or a follower with its state | query | 16 MiB |  |  | name, description, create, modify |",
            "| PUT | `/v1/operator/snapshot` | management token |  | leader | query | 1 GiB |  |  |  |",
            "| GET | `/v1/vars` | none; shows the objects that the caller may see |  | leader, or a follower with its state | query | 16 MiB |  | HEAD, GET | path, namespace, create, modify |",
            "| GET | `/v1/agent/health` | none |  | any agent | own | 16 MiB |  |  |  |",
            "| PUT | `/v1/node/**/drain` | `node:write` |  | leader | query | 16 MiB |  |  |  |",
        ] {
            assert!(page.lines().any(|line| line == row), "{row}");
        }
    }
}
