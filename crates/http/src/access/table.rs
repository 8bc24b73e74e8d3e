//! The table of routes. Each line has the right that a caller needs, the place of the request's namespace, and the
//! handler (`docs/design/http-api.md`).
//!
//! Requests are dispatched only through this table, so no route is served without a line here.

use super::line::{BodyLimit, Line, Need, On, Place, line, slash};
use crate::dispatch::{OfClient, OfExec, OfJob, OfMonitor, OfVolume, To};
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

/// The methods of pages of other origins on the routes of a node.
const SHARED_NODE: &[&str] = &["HEAD", "GET", "PUT", "POST"];
/// The same for lists of variables.
const SHARED_READ: &[&str] = &["HEAD", "GET"];
/// The same for single variables.
const SHARED_WRITE: &[&str] = &["HEAD", "GET", "PUT", "DELETE"];

/// The first line whose path matches decides.
static TABLE: &[Line] = &[
    line(Any, "/", Open, To::Root).at(Place::Page),
    slash("/ui"),
    line(Any, "/ui/**", Open, To::Page).at(Place::Page),
    line(Any, "/.well-known/*", Open, To::WellKnown),
    line(Get, "jobs", Namespace(&[N::ListJobs]), To::Jobs).cached(),
    line(Put, "jobs", Job(&[N::SubmitJob, N::RegisterJob]), To::Jobs).registers(),
    line(Put, "jobs/parse", Namespace(&[N::ParseJob, N::SubmitJob]), To::ParseJob).at(Place::Agent),
    line(Get, "jobs/statuses", Namespace(READ), To::Statuses).cached(),
    line(Put, "jobs/statuses", Namespace(READ), To::Statuses),
    line(Put, "validate/job", Job(READ), To::Validate),
    slash("job"),
    line(Any, "job/**/action", Action, To::Exec(OfExec::Action)),
    line(Put, "job/**/plan", Job(&[N::SubmitJob, N::PlanJob]), To::Job(OfJob::Plan)),
    line(Put, "job/**/evaluate", Namespace(&[N::SubmitJob, N::EvaluateJob]), To::Job(OfJob::Evaluate)),
    line(Put, "job/*/versions/*/tag", Namespace(&[N::SubmitJob, N::TagJobVersion]), To::Job(OfJob::Tag)),
    line(Delete, "job/*/versions/*/tag", Namespace(&[N::SubmitJob, N::TagJobVersion]), To::Job(OfJob::Tag)),
    line(Put, "job/**/revert", Namespace(&[N::SubmitJob, N::RevertJob]), To::Job(OfJob::Revert)),
    line(Put, "job/**/stable", Namespace(&[N::SubmitJob, N::StableJob]), To::Job(OfJob::Stable)),
    line(Put, "job/**/dispatch", Namespace(&[N::DispatchJob]), To::Job(OfJob::Dispatch)).registers(),
    line(Put, "job/**/dispatch/payload", Namespace(&[N::DispatchJob]), To::Job(OfJob::DispatchPayload))
        .registers(),
    line(
        Put,
        "job/**/periodic/force",
        Namespace(&[N::SubmitJob, N::ForcePeriodicJob]),
        To::Job(OfJob::Force),
    ),
    line(Get, "job/**/scale", Namespace(&[N::ReadJob, N::ReadJobScaling]), To::Job(OfJob::Scale)),
    line(Put, "job/**/scale", Namespace(&[N::SubmitJob, N::ScaleJob]), To::Job(OfJob::Scale)).registers(),
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
    line(Put, "job/**", Job(&[N::SubmitJob, N::RegisterJob]), To::Job(OfJob::Itself)).registers(),
    line(Delete, "job/**", Deregister, To::Job(OfJob::Itself)),
    line(Get, "allocations", Namespace(READ), To::Allocs).cached(),
    slash("allocation"),
    line(Put, "allocation/*/stop", Alloc(1, &[N::AllocLifecycle]), To::Alloc),
    line(Get, "allocation/*/services", Alloc(1, READ), To::AllocServices),
    line(Any, "allocation/*/checks", Held(1, READ), To::Client(OfClient::Checks)),
    line(Get, "allocation/*", HiddenAlloc(1, READ), To::Alloc),
    line(Any, "allocation/*/**", NO_RESOURCE, To::Nowhere),
    line(Get, "evaluations", Namespace(READ), To::Evals).cached(),
    line(Get, "evaluations/count", Namespace(READ), To::EvalCount),
    line(Delete, "evaluations", Management, To::Evals),
    slash("evaluation"),
    line(Get, "evaluation/**/allocations", Eval(1, READ), To::Eval),
    line(Get, "evaluation/**/explain", Eval(1, READ), To::Eval),
    line(Get, "evaluation/**", Eval(1, READ), To::Eval),
    line(Get, "deployments", Namespace(READ), To::Deployments).cached(),
    slash("deployment"),
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
    line(Get, "nodes", Node(Level::Read), To::Nodes).cached(),
    slash("node"),
    line(Get, "node/pools", Shown, To::Node),
    line(Put, "node/pools", PoolBody(PoolCap::Write), To::Node),
    slash("node/pool"),
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
    slash("client/fs"),
    line(Any, "client/fs/logs/**", Held(3, &[N::ReadLogs, N::ReadFs]), To::Client(OfClient::Logs))
        .shared(SHARED_NODE),
    line(Any, "client/fs/ls/**", Held(3, &[N::ReadFs]), To::Client(OfClient::List)).shared(SHARED_NODE),
    line(Any, "client/fs/stat/**", Held(3, &[N::ReadFs]), To::Client(OfClient::Stat)).shared(SHARED_NODE),
    line(Any, "client/fs/cat/**", Held(3, &[N::ReadFs]), To::Client(OfClient::Cat)).shared(SHARED_NODE),
    line(Any, "client/fs/readat/**", Held(3, &[N::ReadFs]), To::Client(OfClient::ReadAt)).shared(SHARED_NODE),
    line(Any, "client/fs/stream/**", Held(3, &[N::ReadFs]), To::Client(OfClient::Stream)).shared(SHARED_NODE),
    line(Any, "client/fs/logs", NO_ALLOC, To::Nowhere).shared(SHARED_NODE),
    line(Any, "client/fs/ls", NO_ALLOC, To::Nowhere).shared(SHARED_NODE),
    line(Any, "client/fs/stat", NO_ALLOC, To::Nowhere).shared(SHARED_NODE),
    line(Any, "client/fs/cat", NO_ALLOC, To::Nowhere).shared(SHARED_NODE),
    line(Any, "client/fs/readat", NO_ALLOC, To::Nowhere).shared(SHARED_NODE),
    line(Any, "client/fs/stream", NO_ALLOC, To::Nowhere).shared(SHARED_NODE),
    line(Any, "client/fs/**", NO_METHOD, To::Nowhere).shared(SHARED_NODE),
    line(Any, "client/stats", Node(Level::Read), To::Client(OfClient::HostStats)).shared(SHARED_NODE),
    line(Any, "client/gc", Node(Level::Write), To::Client(OfClient::CollectAll)),
    line(Get, "client/metadata", Node(Level::Read), To::Client(OfClient::Metadata)).shared(SHARED_NODE),
    line(Any, "client/metadata", Node(Level::Write), To::Client(OfClient::Metadata)).shared(SHARED_NODE),
    line(Get, "client/identity", Node(Level::Read), To::Client(OfClient::Identity)).shared(SHARED_NODE),
    line(Any, "client/identity/renew", Node(Level::Write), To::Client(OfClient::RenewIdentity))
        .shared(SHARED_NODE),
    slash("client/allocation"),
    line(Any, "client/allocation/*/stats", Held(2, READ), To::Client(OfClient::Stats)).shared(SHARED_NODE),
    line(Any, "client/allocation/*/checks", Held(2, READ), To::Client(OfClient::Checks)).shared(SHARED_NODE),
    line(Any, "client/allocation/*/exec", Exec(2), To::Exec(OfExec::Command)).shared(SHARED_NODE),
    line(Any, "client/allocation/*/snapshot", Held(2, &[N::ReadFs]), To::Client(OfClient::Snapshot))
        .shared(SHARED_NODE),
    line(Any, "client/allocation/*/restart", Held(2, &[N::AllocLifecycle]), To::Client(OfClient::Restart))
        .shared(SHARED_NODE),
    line(Any, "client/allocation/*/signal", Held(2, &[N::AllocLifecycle]), To::Client(OfClient::Signal))
        .shared(SHARED_NODE),
    line(Get, "client/allocation/*/pause", Held(2, READ), To::Client(OfClient::Pause)).shared(SHARED_NODE),
    line(
        Any,
        "client/allocation/*/pause",
        Held(2, &[N::SubmitJob, N::PauseAllocation]),
        To::Client(OfClient::Pause),
    )
    .shared(SHARED_NODE),
    line(
        Any,
        "client/allocation/*/gc",
        Held(2, &[N::SubmitJob, N::GcAllocation]),
        To::Client(OfClient::Collect),
    )
    .shared(SHARED_NODE),
    line(Any, "client/allocation/**", NO_RESOURCE, To::Nowhere).shared(SHARED_NODE),
    // Lists of volumes of both kinds: the handler checks the right for each kind.
    line(Get, "volumes", Shown, To::Volumes).cached(),
    line(Put, "volumes", Body(&[N::CsiWriteVolume]), To::Volumes),
    line(Get, "volumes/external", Namespace(&[N::CsiListVolume]), To::ExternalVolumes),
    line(Get, "volumes/snapshot", Namespace(&[N::CsiListVolume]), To::Snapshots),
    line(Put, "volumes/snapshot", Body(&[N::CsiWriteVolume]), To::Snapshots),
    line(Delete, "volumes/snapshot", Namespace(&[N::CsiWriteVolume]), To::Snapshots),
    line(Get, "volumes/claims", Namespace(&[N::HostVolumeRead]), To::HostClaims),
    slash("volumes/claim"),
    line(Delete, "volumes/claim/**", HostClaim(2, &[N::HostVolumeDelete]), To::HostClaim),
    slash("volume/host"),
    line(Put, "volume/host/create", Body(&[N::HostVolumeCreate, N::HostVolumeWrite]), To::HostVolume),
    line(Put, "volume/host/register", Body(&[N::HostVolumeRegister, N::HostVolumeWrite]), To::HostVolume),
    line(Get, "volume/host/*", HostVolume(2, &[N::HostVolumeRead]), To::HostVolume),
    line(Delete, "volume/host/*", HostVolume(2, &[N::HostVolumeDelete, N::HostVolumeWrite]), To::HostVolume),
    line(Any, "volume/host/*", NO_RESOURCE, To::Nowhere),
    line(Any, "volume/host/*/**", NO_RESOURCE, To::Nowhere),
    slash("volume/csi"),
    line(Put, "volume/csi/**/create", Body(&[N::CsiWriteVolume]), To::Volume(OfVolume::Create)),
    line(Delete, "volume/csi/**/delete", Namespace(&[N::CsiWriteVolume]), To::Volume(OfVolume::Delete)),
    line(Delete, "volume/csi/**/detach", Namespace(&[N::CsiWriteVolume]), To::Volume(OfVolume::Detach)),
    line(Get, "volume/csi/**/explain", Namespace(&[N::CsiReadVolume]), To::Volume(OfVolume::Explain)),
    line(Get, "volume/csi/**", Namespace(&[N::CsiReadVolume]), To::Volume(OfVolume::Itself)),
    line(Put, "volume/csi/**", Body(&[N::CsiWriteVolume]), To::Volume(OfVolume::Itself)),
    line(Delete, "volume/csi/**", Namespace(&[N::CsiWriteVolume]), To::Volume(OfVolume::Itself)),
    line(Get, "plugins", Shown, To::Plugins),
    slash("plugin/csi"),
    line(Get, "plugin/csi/**", Plugin(Level::Read), To::Plugin),
    line(Get, "vars", Shown, To::Vars).shared(SHARED_READ),
    slash("var"),
    line(Get, "var/**", Variable(VarCap::Read), To::Var).shared(SHARED_WRITE),
    line(Put, "var/**", Variable(VarCap::Write), To::Var).shared(SHARED_WRITE),
    line(Delete, "var/**", Variable(VarCap::Destroy), To::Var).shared(SHARED_WRITE),
    line(Any, "var/**", Refused(StatusCode::BAD_REQUEST, "Invalid method"), To::Nowhere).shared(SHARED_WRITE),
    line(Get, "services", Rows(READ), To::Services).cached(),
    slash("service"),
    line(Get, "service/*", Namespace(READ), To::Service),
    line(Delete, "service/*/*", Namespace(&[N::SubmitJob, N::DeleteServiceRegistration]), To::Registration),
    line(Any, "service/*/*/**", Refused(StatusCode::BAD_REQUEST, "invalid URI"), To::Nowhere),
    line(Get, "scaling/policies", Rows(&[N::ListScalingPolicies, N::ReadJob]), To::Scaling),
    slash("scaling/policy"),
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
    slash("acl/policy"),
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
    line(Get, "agent/health", Open, To::Agent).at(Place::Agent),
    line(Get, "agent/self", Agent(Level::Read), To::Agent).at(Place::Agent),
    line(Get, "agent/members", Node(Level::Read), To::Agent),
    line(Get, "agent/servers", Agent(Level::Read), To::Agent).at(Place::ServerList),
    line(Put, "agent/servers", Agent(Level::Write), To::Agent).at(Place::ServerList),
    line(Put, "agent/join", Agent(Level::Write), To::Agent).at(Place::Agent),
    line(Put, "agent/force-leave", Agent(Level::Write), To::Agent).at(Place::Agent),
    slash("agent/keyring"),
    line(Get, "agent/keyring/list", Agent(Level::Read), To::Agent).at(Place::Agent),
    line(Any, "agent/keyring/list", Agent(Level::Write), To::Agent).at(Place::Agent),
    line(Any, "agent/keyring/install", Agent(Level::Write), To::Agent).at(Place::Agent),
    line(Any, "agent/keyring/use", Agent(Level::Write), To::Agent).at(Place::Agent),
    line(Any, "agent/keyring/remove", Agent(Level::Write), To::Agent).at(Place::Agent),
    line(Get, "agent/monitor", Agent(Level::Read), To::Monitor(OfMonitor::Log)),
    line(Get, "agent/monitor/export", Agent(Level::Read), To::Monitor(OfMonitor::LogFile)),
    slash("agent/pprof"),
    line(Get, "agent/pprof/**", Agent(Level::Write), To::Monitor(OfMonitor::Profile)),
    line(Get, "agent/host", Agent(Level::Read), To::Monitor(OfMonitor::Host)),
    line(Get, "agent/schedulers", Agent(Level::Read), To::Agent).at(Place::Agent),
    line(Get, "agent/schedulers/config", Agent(Level::Read), To::Agent).at(Place::Agent),
    line(Put, "agent/schedulers/config", Agent(Level::Write), To::Agent).at(Place::Agent),
    line(Put, "agent/reload", Agent(Level::Write), To::Agent).at(Place::Agent),
    line(Get, "status/leader", Open, To::System),
    line(Get, "status/peers", Open, To::System),
    line(Get, "regions", Open, To::System),
    line(Get, "metrics", Open, To::Metrics).at(Place::Agent),
    slash("operator/raft"),
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
    slash("operator/keyring"),
    line(Get, "operator/keyring/keys", OperatorCap("keyring-read", Level::Read), To::System),
    line(Put, "operator/keyring/rotate", OperatorCap("keyring-rotate", Level::Write), To::System),
    line(Delete, "operator/keyring/key/*", OperatorCap("keyring-delete", Level::Write), To::System),
    line(Any, "operator/keyring/**", Refused(StatusCode::METHOD_NOT_ALLOWED, "Invalid method"), To::Nowhere),
    line(Get, "operator/snapshot", OperatorCap("snapshot-save", Level::Write), To::System),
    line(Put, "operator/snapshot", Management, To::System).body(BodyLimit::Snapshot),
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

/// Returns the first line whose path matches, for any method; `segments` are the segments of the whole path.
pub(crate) fn find_path(segments: &[&str]) -> Option<&'static Line> {
    TABLE.iter().find(|line| line.is_about(segments))
}

/// Returns the line for a request, where `first` is the first line whose path matches. `None` if the path is not served
/// with this method.
pub(crate) fn find_method(first: &'static Line, method: &Method) -> Option<&'static Line> {
    TABLE.iter().filter(|line| line.path == first.path).find(|line| line.on.fits(method))
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
    /// Whether requests are redirected to the same path with a slash at its end.
    pub redirected: bool,
    /// The agent that answers.
    pub place: &'static str,
    /// Maximum length of the body, in bytes.
    pub max_body: usize,
    /// Whether the answer to a read without `index` may come from memory.
    pub cached: bool,
    /// The methods with which pages of other origins may call the route; empty if they may not.
    pub shared: &'static [&'static str],
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
        redirected: line.to == To::Slash,
        place: line.place.describe(),
        max_body: line.body.bytes(),
        cached: line.cached,
        shared: line.shared,
    };
    TABLE.iter().map(route).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::line::Names;

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

    #[test]
    fn each_line_is_complete() {
        for line in TABLE {
            let path = line.path;
            let refuses = matches!(line.need, Refused(..));
            assert_eq!(refuses, line.to == To::Nowhere, "{path}: either a refusal or a handler");
            if line.cached {
                assert!(
                    line.on == Get && line.place == Place::Server,
                    "{path}: only reads of the state are cached"
                );
            }
            if line.body != BodyLimit::Usual || line.registers {
                assert_eq!(line.on, Put, "{path}: only writes have such bodies");
            }
            if line.to == To::Slash {
                let below =
                    if path.starts_with('/') { format!("{}/x", &path[1..]) } else { format!("v1/{path}/x") };
                let below = first(&below).map_or("", |line| line.path);
                let serves = TABLE.iter().any(|line| line.path.starts_with(&format!("{path}/")));
                assert!(serves && below != path, "{path}: nothing is served below it");
            }
            let same = TABLE.iter().filter(|other| other.path == path && other.shared != line.shared);
            assert_eq!(same.count(), 0, "{path}: a preflight request has no method of its own");
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
}
