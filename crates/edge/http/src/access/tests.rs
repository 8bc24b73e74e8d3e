//! Tests of the route table.

use super::line::{Asks, BodyLimit, Line, Names, Need, Object, On, Place, To, line, session, slash};
use super::table::{TABLE, find_method, find_path};
use Need::{Body, Eval, Held, Job, Management, Namespace, Node, Open, Refused, Shown, Variable};
use NsCap as N;
use On::{Any, Delete, Get, Put};
use caravan_server::{Level, NsCap, VarCap};
use http::{Method, StatusCode};

const READ: &[NsCap] = &[N::ReadJob];

fn first(path: &str) -> Option<&'static Line> {
    find_path(&path.split('/').collect::<Vec<_>>())
}

fn found(method: &Method, path: &str) -> Option<&'static Line> {
    find_method(first(path)?, method)
}

fn needed(method: &Method, path: &str) -> Option<Need> {
    found(method, path).map(|line| line.need)
}

#[test]
fn the_first_line_that_fits_decides() {
    for (method, path, want) in [
        (Method::GET, "v1/jobs", Namespace(&[N::ListJobs])),
        (Method::POST, "v1/jobs", Job(&[N::SubmitJob, N::RegisterJob])),
        (Method::GET, "v1/job/a/b/c", Namespace(READ)),
        (Method::GET, "v1/job/a/b/scale", Namespace(&[N::ReadJob, N::ReadJobScaling])),
        (Method::PUT, "v1/job/dispatch", Job(&[N::SubmitJob, N::RegisterJob])),
        (Method::PUT, "v1/job/x/dispatch", Namespace(&[N::DispatchJob])),
        (Method::GET, "v1/node/pools", Shown),
        (Method::GET, "v1/node/some-id", Node(Level::Read)),
        (Method::PUT, "v1/node/some-id/drain", Node(Level::Write)),
        (Method::GET, "v1/client/fs/logs/x", Held(3, &[N::ReadLogs, N::ReadFs])),
        (Method::GET, "v1/client/fs/cat/x", Held(3, &[N::ReadFs])),
        (Method::DELETE, "v1/var/a/b", Variable(VarCap::Destroy)),
        (Method::PUT, "v1/acl/token", Management),
        (Method::GET, "v1/evaluation/x/explain", Eval(1, READ)),
    ] {
        assert_eq!(needed(&method, path), Some(want), "{method} {path}");
    }
    for (method, path) in [(Method::PATCH, "v1/jobs"), (Method::GET, "v1/job/x/plan")] {
        assert!(first(path).is_some() && found(&method, path).is_none(), "{method} {path}");
    }
    for path in ["v1/nothing/like/this", "v1/agent/unheard-of", "v1/operator/unheard-of", "v2/jobs"] {
        assert!(first(path).is_none(), "{path}");
    }
}

#[test]
fn no_line_is_hidden_behind_an_earlier_one() {
    for (at, line) in TABLE.iter().enumerate() {
        let method = match line.on {
            Get => Method::GET,
            Put => Method::PUT,
            Delete => Method::DELETE,
            Any => Method::PATCH,
        };
        let path = line.path.replace("**", "x").replace('*', "x");
        let path = match path.strip_prefix('/') {
            Some(path) => path.to_owned(),
            None => format!("v1/{path}"),
        };
        let Some(first) = found(&method, &path) else { panic!("{path} is not found") };
        assert!(std::ptr::eq(first, &raw const TABLE[at]), "{path}: {first:?}");
    }
}

/// Returns the segment of the path, after `v1`, whose star a need reads.
fn star_of(need: Need) -> Option<usize> {
    match need {
        Need::Alloc(at, _)
        | Need::HiddenAlloc(at, _)
        | Held(at, _)
        | Need::Exec(at)
        | Eval(at, _)
        | Need::Deployment(at, _)
        | Need::HostVolume(at, _)
        | Need::HostClaim(at, _)
        | Need::Pool(at, _) => Some(at),
        Variable(_) => Some(1),
        _ => None,
    }
}

/// Returns the faults of a line of a table.
fn faults(table: &[Line], line: &Line) -> Vec<&'static str> {
    let path = line.path;
    let has_star = path.split('/').any(|part| part.starts_with('*'));
    let writes = matches!(line.on, Put | Any | Delete);
    let star = star_of(line.need).map(|at| path.split('/').nth(at).unwrap_or_default());
    let below = format!("{path}/");
    let rules = [
        (
            matches!(line.need, Refused(..)) == matches!(line.to, To::Nowhere),
            "a line has either a refusal or a handler",
        ),
        (
            matches!(line.to, To::Session(_)) == (line.place == Place::Websocket),
            "sessions, and only sessions, are websockets",
        ),
        (!matches!(line.to, To::Slash) || line.place == Place::Page, "every agent redirects"),
        (
            !line.cached || (line.on == Get && line.place == Place::Server),
            "only reads of the state are cached",
        ),
        (
            !line.follows || (line.on == Get && line.place == Place::Server),
            "only reads of the state stay with a follower",
        ),
        (line.body == BodyLimit::Usual || writes, "only writes have large bodies"),
        (
            !line.registers || (line.on == Put && matches!(line.need, Job(_) | Namespace(_))),
            "only writes of jobs register",
        ),
        (
            match line.place {
                Place::Node(Object::Alloc | Object::Garbage | Object::Files(_)) => has_star,
                Place::Node(Object::Node | Object::NodeOfBody) => !has_star,
                _ => true,
            },
            "the path names an allocation, or the query a node",
        ),
        (star.is_none_or(|part| part.starts_with('*')), "the need reads a segment that is no star"),
        (
            !matches!(line.to, To::Slash) || table.iter().any(|other| other.path.starts_with(&below)),
            "nothing is served below the redirect",
        ),
        (
            table.iter().filter(|other| other.path == path).all(|other| other.shared == line.shared),
            "a preflight request does not select among the methods of a path",
        ),
    ];
    rules.into_iter().filter(|(holds, _)| !holds).map(|(_, fault)| fault).collect()
}

#[test]
fn each_line_is_complete() {
    for line in TABLE {
        assert_eq!(faults(TABLE, line), Vec::<&str>::new(), "{line:?}");
    }
}

#[test]
fn an_incomplete_line_is_found() {
    const LARGE: BodyLimit = BodyLimit::Snapshot;
    let handler = To::Handler(|_| Box::pin(async { Err(crate::ApiError::method()) }));
    let refused = Refused(StatusCode::NOT_FOUND, "");
    let plain = line(Get, "x", Open, handler);
    for (line, fault) in [
        (line(Get, "x", refused, handler), "a line has either"),
        (line(Get, "x", Open, To::Nowhere), "a line has either"),
        (plain.at(Place::Websocket), "sessions"),
        (session("x", Open, crate::routes::exec::command).at(Place::Server), "sessions"),
        (slash("x").at(Place::Server), "every agent redirects"),
        (line(Put, "x", Open, handler).cached(), "only reads"),
        (line(Put, "x", Open, handler).follows(), "only reads"),
        (plain.at(Place::Agent).cached(), "only reads"),
        (plain.body(LARGE), "only writes have"),
        (line(Get, "x", Job(READ), handler).registers(), "only writes of jobs"),
        (line(Put, "x", Open, handler).registers(), "only writes of jobs"),
        (plain.at(Place::Node(Object::Files(Asks::Log))), "the path names"),
        (line(Get, "x/*", Open, handler).at(Place::Node(Object::Node)), "the path names"),
        (line(Get, "x/*/y", Eval(2, READ), handler), "the need reads"),
        (slash("x"), "nothing is served"),
    ] {
        let found = faults(&[line], &line);
        assert!(found.iter().any(|text| text.starts_with(fault)), "{fault}: {found:?} of {line:?}");
    }
    let shared = [plain, line(Put, "x", Open, handler).shared(&["PUT"])];
    assert!(faults(&shared, &shared[0]).iter().any(|text| text.starts_with("a preflight")));
    assert!(faults(&[plain], &plain).is_empty());
}

/// Returns the methods and paths of the lines with a property.
fn with(property: impl Fn(&Line) -> bool) -> Vec<(On, &'static str)> {
    TABLE.iter().filter(|line| property(line)).map(|line| (line.on, line.path)).collect()
}

#[test]
fn lists_of_the_state_are_cached() {
    let paths = [
        "caravan/overview",
        "caravan/storage",
        "caravan/host-volumes",
        "caravan/claims",
        "caravan/nodes/usage",
        "jobs",
        "jobs/statuses",
        "allocations",
        "evaluations",
        "deployments",
        "nodes",
        "volumes",
        "services",
    ];
    assert_eq!(with(|line| line.cached), paths.map(|path| (Get, path)));
}

#[test]
fn only_a_restored_snapshot_is_a_large_body() {
    assert_eq!(with(|line| line.body != BodyLimit::Usual), [(Put, "operator/snapshot")]);
}

#[test]
fn operators_can_restrict_registration_dispatch_and_scaling() {
    let paths = ["jobs", "job/**/dispatch", "job/**/dispatch/payload", "job/**/scale", "job/**"];
    assert_eq!(with(|line| line.registers), paths.map(|path| (Put, path)));
}

#[test]
fn each_request_has_its_place() {
    for (method, path, place) in [
        (Method::GET, "", Place::Page),
        (Method::GET, "ui/", Place::Page),
        (Method::GET, ".well-known/jwks.json", Place::Server),
        (Method::GET, "v1/jobs", Place::Server),
        (Method::PUT, "v1/jobs/parse", Place::Agent),
        (Method::GET, "v1/metrics", Place::Agent),
        (Method::GET, "v1/agent/self", Place::Agent),
        (Method::PUT, "v1/agent/keyring/use", Place::Agent),
        (Method::GET, "v1/agent/members", Place::AnyServer),
        (Method::GET, "v1/caravan/servers", Place::AnyServer),
        (Method::GET, "v1/agent/servers", Place::ServerList),
        (Method::PUT, "v1/agent/servers", Place::ServerList),
        (Method::GET, "v1/agent/monitor", Place::Named(StatusCode::BAD_REQUEST)),
        (Method::GET, "v1/agent/pprof/heap", Place::Named(StatusCode::INTERNAL_SERVER_ERROR)),
        (Method::GET, "v1/allocation/x", Place::Server),
        (Method::GET, "v1/allocation/x/checks", Place::Node(Object::Alloc)),
        (Method::GET, "v1/client/fs/ls/x", Place::Node(Object::Alloc)),
        (Method::GET, "v1/client/fs/cat/x", Place::Node(Object::Files(Asks::PathAsContent))),
        (Method::GET, "v1/client/allocation/x/gc", Place::Node(Object::Garbage)),
        (Method::GET, "v1/client/stats", Place::Node(Object::Node)),
        (Method::PUT, "v1/client/metadata", Place::Node(Object::NodeOfBody)),
        (Method::GET, "v1/client/allocation/x/exec", Place::Websocket),
        (Method::GET, "v1/job/x/action", Place::Websocket),
    ] {
        assert_eq!(found(&method, path).map(|line| line.place), Some(place), "{method} {path}");
    }
    let own = ["caravan/ui", "caravan/errors/*", "jobs/parse", "metrics"];
    for line in TABLE.iter().filter(|line| line.place == Place::Agent) {
        assert!(own.contains(&line.path) || line.path.starts_with("agent/"), "{}", line.path);
    }
}

#[test]
fn a_path_without_its_name_is_redirected() {
    let redirected: Vec<&str> =
        TABLE.iter().filter(|line| matches!(line.to, To::Slash)).map(|line| line.path).collect();
    assert_eq!(redirected.len(), 21);
    for path in ["v1/job", "v1/node/pool", "v1/client/fs", "v1/operator/keyring", "ui"] {
        assert!(first(path).is_some_and(|line| matches!(line.to, To::Slash)), "{path}");
    }
    for path in ["v1/jobs", "v1/namespace", "v1/acl/token", "v1/job/", "ui/"] {
        assert!(first(path).is_some_and(|line| !matches!(line.to, To::Slash)), "{path}");
    }
}

#[test]
fn pages_of_other_origins_may_call_logs_and_variables() {
    for path in ["v1/client/fs/logs/x", "v1/client/metadata", "v1/vars", "v1/var/a/b"] {
        assert!(first(path).is_some_and(|line| !line.shared.is_empty()), "{path}");
    }
    for path in ["v1/client/gc", "v1/jobs", "v1/varsity", "v1/client/statsx", "v1/client/fs", "v1/var"] {
        assert!(first(path).is_none_or(|line| line.shared.is_empty()), "{path}");
    }
}

#[test]
fn a_need_of_the_body_says_where_the_namespace_is() {
    for line in TABLE {
        let by_body = matches!(line.need, Job(_) | Body(_) | Variable(VarCap::Write));
        assert_eq!(line.need.names() != Names::Query, by_body, "{}", line.path);
    }
}

#[test]
fn the_index_finds_the_line_that_a_search_of_the_table_finds() {
    for line in TABLE {
        let root = if line.path.starts_with('/') { "" } else { "v1/" };
        let path =
            format!("{root}{}", line.path.trim_start_matches('/')).replace("**", "a/b").replace('*', "c");
        let segments: Vec<&str> = path.split('/').collect();
        let searched = TABLE.iter().find(|line| line.is_about(&segments)).map(|line| line.path);
        assert_eq!(find_path(&segments).map(|line| line.path), searched, "{path}");
        // The key of a line is no pattern, otherwise the index would miss the line.
        assert!(!line.key().1.contains('*'), "{}", line.path);
    }
}
