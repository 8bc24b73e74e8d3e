//! The table of routes. Each line has the right that a caller needs, the place of the request's namespace, and the
//! handler (`docs/design/http-api.md`).
//!
//! Requests are dispatched only through this table, so no route is served without a line here.

use super::line::{Found, Line, Need, On, find, line};
use crate::dispatch::{OfJob, OfVolume, To};
use caravan_server::{Level, NsCap, PoolCap, VarCap};
use http::{Method, StatusCode};

use Need::{
    Action, Agent, Alloc, AnyPool, Body, Deployment, Deregister, Eval, Exec, Held, HiddenAlloc, HostClaim,
    HostVolume, Job, Management, Namespace, Node, Open, Operator, OperatorCap, Plugin, Pool, PoolBody, Quota,
    Refused, Rows, Shown, Variable,
};
use NsCap as N;
use On::{Any, Delete, Get, Put};

/// The capabilities to see jobs and their allocations; one of them is enough.
const READ: &[NsCap] = &[N::ReadJob];

const NO_RESOURCE: Need = Refused(StatusCode::NOT_FOUND, "resource not found");
const NO_METHOD: Need = Refused(StatusCode::NOT_FOUND, "Invalid method");

/// The first line whose path matches decides.
static TABLE: &[Line] = &[
    line(Any, "/", Open, To::Root),
    line(Any, "/ui", Open, To::Page),
    line(Any, "/ui/**", Open, To::Page),
    line(Any, "/.well-known/*", Open, To::WellKnown),
    line(Get, "jobs", Namespace(&[N::ListJobs]), To::Jobs),
    line(Put, "jobs", Job(&[N::SubmitJob, N::RegisterJob]), To::Jobs),
    line(Put, "jobs/parse", Namespace(&[N::ParseJob, N::SubmitJob]), To::ParseJob),
    line(Get, "jobs/statuses", Namespace(READ), To::Statuses),
    line(Put, "jobs/statuses", Namespace(READ), To::Statuses),
    line(Put, "validate/job", Job(READ), To::Validate),
    line(Any, "job/**/action", Action, To::Exec),
    line(Put, "job/**/plan", Job(&[N::SubmitJob, N::PlanJob]), To::Job(OfJob::Plan)),
    line(Put, "job/**/evaluate", Namespace(&[N::SubmitJob, N::EvaluateJob]), To::Job(OfJob::Evaluate)),
    line(Put, "job/*/versions/*/tag", Namespace(&[N::SubmitJob, N::TagJobVersion]), To::Job(OfJob::Tag)),
    line(Delete, "job/*/versions/*/tag", Namespace(&[N::SubmitJob, N::TagJobVersion]), To::Job(OfJob::Tag)),
    line(Put, "job/**/revert", Namespace(&[N::SubmitJob, N::RevertJob]), To::Job(OfJob::Revert)),
    line(Put, "job/**/stable", Namespace(&[N::SubmitJob, N::StableJob]), To::Job(OfJob::Stable)),
    line(Put, "job/**/dispatch", Namespace(&[N::DispatchJob]), To::Job(OfJob::Dispatch)),
    line(Put, "job/**/dispatch/payload", Namespace(&[N::DispatchJob]), To::Job(OfJob::DispatchPayload)),
    line(
        Put,
        "job/**/periodic/force",
        Namespace(&[N::SubmitJob, N::ForcePeriodicJob]),
        To::Job(OfJob::Force),
    ),
    line(Get, "job/**/scale", Namespace(&[N::ReadJob, N::ReadJobScaling]), To::Job(OfJob::Scale)),
    line(Put, "job/**/scale", Namespace(&[N::SubmitJob, N::ScaleJob]), To::Job(OfJob::Scale)),
    line(Get, "job/**/allocations", Namespace(READ), To::Job(OfJob::Allocations)),
    line(Get, "job/**/evaluations", Namespace(READ), To::Job(OfJob::Evaluations)),
    line(Get, "job/**/deployments", Namespace(READ), To::Job(OfJob::Deployments)),
    line(Get, "job/**/deployment", Namespace(READ), To::Job(OfJob::Deployment)),
    line(Get, "job/**/summary", Namespace(READ), To::Job(OfJob::Summary)),
    line(Get, "job/**/versions", Namespace(READ), To::Job(OfJob::Versions)),
    line(Get, "job/**/submission", Namespace(READ), To::Job(OfJob::Submission)),
    line(Get, "job/**/actions", Namespace(READ), To::Job(OfJob::Actions)),
    line(Get, "job/**/services", Namespace(READ), To::Job(OfJob::Services)),
    line(Get, "job/**", Namespace(READ), To::Job(OfJob::Itself)),
    line(Put, "job/**", Job(&[N::SubmitJob, N::RegisterJob]), To::Job(OfJob::Itself)),
    line(Delete, "job/**", Deregister, To::Job(OfJob::Itself)),
    line(Get, "allocations", Namespace(READ), To::Allocs),
    line(Put, "allocation/*/stop", Alloc(1, &[N::AllocLifecycle]), To::Alloc),
    line(Get, "allocation/*/services", Alloc(1, READ), To::AllocServices),
    line(Any, "allocation/*/checks", Held(1, READ), To::Client),
    line(Get, "allocation/*", HiddenAlloc(1, READ), To::Alloc),
    line(Any, "allocation/*/**", NO_RESOURCE, To::Nowhere),
    line(Get, "evaluations", Namespace(READ), To::Evals),
    line(Get, "evaluations/count", Namespace(READ), To::EvalCount),
    line(Delete, "evaluations", Management, To::Evals),
    line(Get, "evaluation/**/allocations", Eval(1, READ), To::Eval),
    line(Get, "evaluation/**/explain", Eval(1, READ), To::Eval),
    line(Get, "evaluation/**", Eval(1, READ), To::Eval),
    line(Get, "deployments", Namespace(READ), To::Deployments),
    line(Get, "deployment/allocations/**", Deployment(2, READ), To::Deployment),
    line(Put, "deployment/fail/**", Deployment(2, &[N::SubmitJob, N::FailDeployment]), To::Deployment),
    line(Put, "deployment/pause/**", Deployment(2, &[N::SubmitJob, N::PauseDeployment]), To::Deployment),
    line(Put, "deployment/promote/**", Deployment(2, &[N::SubmitJob, N::PromoteDeployment]), To::Deployment),
    line(Put, "deployment/unblock/**", Deployment(2, &[N::SubmitJob, N::UnblockDeployment]), To::Deployment),
    line(
        Put,
        "deployment/allocation-health/**",
        Deployment(2, &[N::SubmitJob, N::SetAllocHealthDeployment]),
        To::Deployment,
    ),
    line(Get, "deployment/**", Deployment(1, READ), To::Deployment),
    line(Get, "nodes", Node(Level::Read), To::Nodes),
    line(Get, "node/pools", Shown, To::Node),
    line(Put, "node/pools", PoolBody(PoolCap::Write), To::Node),
    line(Get, "node/pool/**/nodes", Node(Level::Read), To::Node),
    line(Get, "node/pool/**/jobs", AnyPool(PoolCap::Read), To::Node),
    line(Get, "node/pool/**", Pool(2, PoolCap::Read), To::Node),
    line(Put, "node/pool/**", Pool(2, PoolCap::Write), To::Node),
    line(Delete, "node/pool/**", Pool(2, PoolCap::Delete), To::Node),
    line(Put, "node/**/drain", Node(Level::Write), To::Node),
    line(Put, "node/**/eligibility", Node(Level::Write), To::Node),
    line(Put, "node/**/fence", Node(Level::Write), To::Node),
    line(Put, "node/**/evaluate", Node(Level::Write), To::Node),
    line(Put, "node/**/purge", Node(Level::Write), To::Node),
    line(Get, "node/**/allocations", Node(Level::Read), To::Node),
    line(Get, "node/**", Node(Level::Read), To::Node),
    line(Any, "client/fs/logs/**", Held(3, &[N::ReadLogs, N::ReadFs]), To::Client),
    line(Any, "client/fs/ls/**", Held(3, &[N::ReadFs]), To::Client),
    line(Any, "client/fs/stat/**", Held(3, &[N::ReadFs]), To::Client),
    line(Any, "client/fs/cat/**", Held(3, &[N::ReadFs]), To::Client),
    line(Any, "client/fs/readat/**", Held(3, &[N::ReadFs]), To::Client),
    line(Any, "client/fs/stream/**", Held(3, &[N::ReadFs]), To::Client),
    line(Any, "client/fs/logs", NO_ALLOC, To::Nowhere),
    line(Any, "client/fs/ls", NO_ALLOC, To::Nowhere),
    line(Any, "client/fs/stat", NO_ALLOC, To::Nowhere),
    line(Any, "client/fs/cat", NO_ALLOC, To::Nowhere),
    line(Any, "client/fs/readat", NO_ALLOC, To::Nowhere),
    line(Any, "client/fs/stream", NO_ALLOC, To::Nowhere),
    line(Any, "client/fs/**", NO_METHOD, To::Nowhere),
    line(Any, "client/stats", Node(Level::Read), To::Client),
    line(Any, "client/gc", Node(Level::Write), To::Client),
    line(Get, "client/metadata", Node(Level::Read), To::Client),
    line(Any, "client/metadata", Node(Level::Write), To::Client),
    line(Get, "client/identity", Node(Level::Read), To::Client),
    line(Any, "client/identity/renew", Node(Level::Write), To::Client),
    line(Any, "client/allocation/*/stats", Held(2, READ), To::Client),
    line(Any, "client/allocation/*/checks", Held(2, READ), To::Client),
    line(Any, "client/allocation/*/exec", Exec(2), To::Exec),
    line(Any, "client/allocation/*/snapshot", Held(2, &[N::ReadFs]), To::Client),
    line(Any, "client/allocation/*/restart", Held(2, &[N::AllocLifecycle]), To::Client),
    line(Any, "client/allocation/*/signal", Held(2, &[N::AllocLifecycle]), To::Client),
    line(Get, "client/allocation/*/pause", Held(2, READ), To::Client),
    line(Any, "client/allocation/*/pause", Held(2, &[N::SubmitJob, N::PauseAllocation]), To::Client),
    line(Any, "client/allocation/*/gc", Held(2, &[N::SubmitJob, N::GcAllocation]), To::Client),
    line(Any, "client/allocation/**", NO_RESOURCE, To::Nowhere),
    // Lists of volumes of both kinds: the handler checks the right for each kind.
    line(Get, "volumes", Shown, To::Volumes),
    line(Put, "volumes", Body(&[N::CsiWriteVolume]), To::Volumes),
    line(Get, "volumes/external", Namespace(&[N::CsiListVolume]), To::ExternalVolumes),
    line(Get, "volumes/snapshot", Namespace(&[N::CsiListVolume]), To::Snapshots),
    line(Put, "volumes/snapshot", Body(&[N::CsiWriteVolume]), To::Snapshots),
    line(Delete, "volumes/snapshot", Namespace(&[N::CsiWriteVolume]), To::Snapshots),
    line(Get, "volumes/claims", Namespace(&[N::HostVolumeRead]), To::HostClaims),
    line(Delete, "volumes/claim/**", HostClaim(2, &[N::HostVolumeDelete]), To::HostClaim),
    line(Put, "volume/host/create", Body(&[N::HostVolumeCreate, N::HostVolumeWrite]), To::HostVolume),
    line(Put, "volume/host/register", Body(&[N::HostVolumeRegister, N::HostVolumeWrite]), To::HostVolume),
    line(Get, "volume/host/*", HostVolume(2, &[N::HostVolumeRead]), To::HostVolume),
    line(Delete, "volume/host/*", HostVolume(2, &[N::HostVolumeDelete, N::HostVolumeWrite]), To::HostVolume),
    line(Any, "volume/host/*", NO_RESOURCE, To::Nowhere),
    line(Any, "volume/host/*/**", NO_RESOURCE, To::Nowhere),
    line(Put, "volume/csi/**/create", Body(&[N::CsiWriteVolume]), To::Volume(OfVolume::Create)),
    line(Delete, "volume/csi/**/delete", Namespace(&[N::CsiWriteVolume]), To::Volume(OfVolume::Delete)),
    line(Delete, "volume/csi/**/detach", Namespace(&[N::CsiWriteVolume]), To::Volume(OfVolume::Detach)),
    line(Get, "volume/csi/**/explain", Namespace(&[N::CsiReadVolume]), To::Volume(OfVolume::Explain)),
    line(Get, "volume/csi/**", Namespace(&[N::CsiReadVolume]), To::Volume(OfVolume::Itself)),
    line(Put, "volume/csi/**", Body(&[N::CsiWriteVolume]), To::Volume(OfVolume::Itself)),
    line(Delete, "volume/csi/**", Namespace(&[N::CsiWriteVolume]), To::Volume(OfVolume::Itself)),
    line(Get, "plugins", Shown, To::Plugins),
    line(Get, "plugin/csi/**", Plugin(Level::Read), To::Plugin),
    line(Get, "vars", Shown, To::Vars),
    line(Get, "var/**", Variable(VarCap::Read), To::Var),
    line(Put, "var/**", Variable(VarCap::Write), To::Var),
    line(Delete, "var/**", Variable(VarCap::Destroy), To::Var),
    line(Any, "var/**", Refused(StatusCode::BAD_REQUEST, "Invalid method"), To::Nowhere),
    line(Any, "var", Refused(StatusCode::BAD_REQUEST, "missing variable path"), To::Nowhere),
    line(Get, "services", Rows(READ), To::Services),
    line(Get, "service/*", Namespace(READ), To::Service),
    line(Delete, "service/*/*", Namespace(&[N::SubmitJob, N::DeleteServiceRegistration]), To::Registration),
    line(Any, "service/*/*/**", Refused(StatusCode::BAD_REQUEST, "invalid URI"), To::Nowhere),
    line(Get, "scaling/policies", Rows(&[N::ListScalingPolicies, N::ReadJob]), To::Scaling),
    line(Get, "scaling/policy/**", Namespace(&[N::ReadScalingPolicy, N::ReadJob]), To::Scaling),
    line(Put, "search", Shown, To::Search),
    line(Put, "search/fuzzy", Shown, To::FuzzySearch),
    // The handler checks the right for each topic. A caller without the right gets an empty stream.
    line(Get, "event/stream", Open, To::Events),
    line(Get, "namespaces", Shown, To::System),
    line(Get, "namespace/**", Shown, To::System),
    line(Put, "namespace", Management, To::System),
    line(Put, "namespace/**", Management, To::System),
    line(Delete, "namespace/**", Management, To::System),
    line(Put, "acl/bootstrap", Open, To::Acl),
    line(Put, "acl/login", Open, To::Acl),
    line(Put, "acl/oidc/auth-url", Open, To::Acl),
    line(Put, "acl/oidc/complete-auth", Open, To::Acl),
    line(Put, "acl/token/onetime/exchange", Open, To::Acl),
    line(Put, "acl/token/onetime", Shown, To::Acl),
    line(Get, "acl/token/self", Shown, To::Acl),
    line(Get, "acl/tokens", Management, To::Acl),
    line(Put, "acl/token", Management, To::Acl),
    line(Get, "acl/token/**", Shown, To::Acl),
    line(Put, "acl/token/**", Management, To::Acl),
    line(Delete, "acl/token/**", Management, To::Acl),
    line(Get, "acl/auth-methods", Open, To::Acl),
    line(Put, "acl/auth-method", Management, To::Acl),
    line(Any, "acl/auth-method/**", Management, To::Acl),
    line(Get, "acl/binding-rules", Management, To::Acl),
    line(Put, "acl/binding-rule", Management, To::Acl),
    line(Any, "acl/binding-rule/**", Management, To::Acl),
    line(Get, "acl/policies", Shown, To::Acl),
    line(Get, "acl/policy/self", Shown, To::Acl),
    line(Get, "acl/policy/**", Shown, To::Acl),
    line(Put, "acl/policy/**", Management, To::Acl),
    line(Delete, "acl/policy/**", Management, To::Acl),
    line(Get, "acl/roles", Shown, To::Acl),
    line(Get, "acl/role/name/**", Shown, To::Acl),
    line(Put, "acl/role", Management, To::Acl),
    line(Get, "acl/role/**", Shown, To::Acl),
    line(Put, "acl/role/**", Management, To::Acl),
    line(Delete, "acl/role/**", Management, To::Acl),
    line(Put, "acl/identity/client-introduction-token", Node(Level::Write), To::Acl),
    line(Get, "agent/health", Open, To::Agent),
    line(Get, "agent/self", Agent(Level::Read), To::Agent),
    line(Get, "agent/members", Node(Level::Read), To::Agent),
    line(Get, "agent/servers", Agent(Level::Read), To::Agent),
    line(Put, "agent/servers", Agent(Level::Write), To::Agent),
    line(Put, "agent/join", Agent(Level::Write), To::Agent),
    line(Put, "agent/force-leave", Agent(Level::Write), To::Agent),
    line(Get, "agent/keyring/list", Agent(Level::Read), To::Agent),
    line(Any, "agent/keyring/list", Agent(Level::Write), To::Agent),
    line(Any, "agent/keyring/install", Agent(Level::Write), To::Agent),
    line(Any, "agent/keyring/use", Agent(Level::Write), To::Agent),
    line(Any, "agent/keyring/remove", Agent(Level::Write), To::Agent),
    line(Get, "agent/monitor", Agent(Level::Read), To::Monitor),
    line(Get, "agent/monitor/export", Agent(Level::Read), To::Monitor),
    line(Get, "agent/pprof", Agent(Level::Write), To::Monitor),
    line(Get, "agent/pprof/**", Agent(Level::Write), To::Monitor),
    line(Get, "agent/host", Agent(Level::Read), To::Monitor),
    line(Get, "agent/schedulers", Agent(Level::Read), To::Agent),
    line(Get, "agent/schedulers/config", Agent(Level::Read), To::Agent),
    line(Put, "agent/schedulers/config", Agent(Level::Write), To::Agent),
    line(Put, "agent/reload", Agent(Level::Write), To::Agent),
    line(Get, "status/leader", Open, To::System),
    line(Get, "status/peers", Open, To::System),
    line(Get, "regions", Open, To::System),
    line(Get, "metrics", Open, To::Metrics),
    line(Get, "operator/raft/configuration", Operator(Level::Read), To::System),
    // This route is refused with an empty body.
    line(Any, "operator/raft/configuration", Refused(StatusCode::METHOD_NOT_ALLOWED, ""), To::Nowhere),
    line(Delete, "operator/raft/peer", Operator(Level::Write), To::System),
    line(Any, "operator/raft/peer", Refused(StatusCode::NOT_FOUND, ""), To::Nowhere),
    line(Put, "operator/raft/transfer-leadership", Operator(Level::Write), To::System),
    line(Any, "operator/raft/**", NO_METHOD, To::Nowhere),
    line(Get, "operator/autopilot/configuration", Operator(Level::Read), To::System),
    line(Any, "operator/autopilot/configuration", Operator(Level::Write), To::System),
    line(Get, "operator/autopilot/health", Operator(Level::Read), To::System),
    line(Get, "operator/scheduler/configuration", Operator(Level::Read), To::System),
    line(Any, "operator/scheduler/configuration", Operator(Level::Write), To::System),
    line(Get, "operator/keyring/keys", OperatorCap("keyring-read", Level::Read), To::System),
    line(Put, "operator/keyring/rotate", OperatorCap("keyring-rotate", Level::Write), To::System),
    line(Delete, "operator/keyring/key/*", OperatorCap("keyring-delete", Level::Write), To::System),
    line(Any, "operator/keyring/**", Refused(StatusCode::METHOD_NOT_ALLOWED, "Invalid method"), To::Nowhere),
    line(Get, "operator/snapshot", OperatorCap("snapshot-save", Level::Write), To::System),
    line(Put, "operator/snapshot", Management, To::System),
    line(Get, "operator/license", OperatorCap("license-read", Level::Read), To::System),
    line(Put, "operator/license", Operator(Level::Write), To::System),
    line(Get, "operator/upgrade-check/vault-workload-identity", Operator(Level::Read), To::System),
    line(Any, "operator/utilization", Operator(Level::Write), To::System),
    line(Any, "system/gc", Management, To::System),
    line(Any, "system/reconcile/summaries", Management, To::System),
    line(Get, "quotas", Quota(Level::Read), To::Enterprise),
    line(Get, "quota/**", Quota(Level::Read), To::Enterprise),
    line(Any, "quotas", Quota(Level::Write), To::Enterprise),
    line(Any, "quota", Quota(Level::Write), To::Enterprise),
    line(Any, "quota/**", Quota(Level::Write), To::Enterprise),
    line(Any, "quota-usages", Management, To::Enterprise),
    line(Any, "quota-usages/**", Management, To::Enterprise),
    line(Any, "recommendations", Management, To::Enterprise),
    line(Any, "recommendations/**", Management, To::Enterprise),
    line(Any, "recommendation", Management, To::Enterprise),
    line(Any, "recommendation/**", Management, To::Enterprise),
    line(Any, "sentinel", Management, To::Enterprise),
    line(Any, "sentinel/**", Management, To::Enterprise),
];

const NO_ALLOC: Need = Refused(StatusCode::BAD_REQUEST, "must provide a valid alloc id");

/// Returns the line for a request; `segments` are the segments of the whole path.
pub(crate) fn find_line(method: &Method, segments: &[&str]) -> Found {
    find(TABLE, method, segments)
}

/// A route, as tests and documents read the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// `GET`, `PUT`, `DELETE`, or `*` for all methods.
    pub method: &'static str,
    /// The path, with `*` for one segment and `**` for one or more.
    pub path: String,
    /// The right that a caller needs.
    pub need: String,
    /// The places where a request may name its namespace.
    pub names: String,
    /// Whether no request is allowed; the line then only defines the refusal.
    pub refused: bool,
}

/// Returns all served routes, in lookup order.
pub fn routes() -> Vec<Route> {
    let route = |line: &Line| Route {
        method: match line.on {
            Get => "GET",
            Put => "PUT",
            Delete => "DELETE",
            Any => "*",
        },
        path: match line.path.starts_with('/') {
            true => line.path.to_owned(),
            false => format!("/v1/{}", line.path),
        },
        need: format!("{:?}", line.need),
        names: format!("{:?}", line.need.names()),
        refused: matches!(line.need, Refused(..)),
    };
    TABLE.iter().map(route).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::line::Names;

    fn found(method: &Method, path: &str) -> Found {
        find_line(method, &path.split('/').collect::<Vec<_>>())
    }

    fn needed(method: &Method, path: &str) -> Option<Need> {
        match found(method, path) {
            Found::Line(line) => Some(line.need),
            Found::Method | Found::Nothing => None,
        }
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
            assert!(matches!(found(&method, path), Found::Method), "{method} {path}");
        }
        for path in ["v1/nothing/like/this", "v1/agent/unheard-of", "v1/operator/unheard-of", "v2/jobs"] {
            assert!(matches!(found(&Method::GET, path), Found::Nothing), "{path}");
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
            let Found::Line(first) = found(&method, &path) else { panic!("{path} is not found") };
            assert!(std::ptr::eq(first, &raw const TABLE[at]), "{path}: {first:?}");
        }
    }

    #[test]
    fn a_need_of_the_body_says_where_the_namespace_is() {
        for line in TABLE {
            let by_body = matches!(line.need, Job(_) | Body(_) | Variable(VarCap::Write));
            assert_eq!(line.need.names() != Names::Query, by_body, "{}", line.path);
        }
    }
}
