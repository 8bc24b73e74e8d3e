//! Which route needs what: one table (`http-api` sections 3 and 5.8).
//!
//! The first line that fits decides. A route of the API that no line names needs a management token, so that a
//! forgotten one is closed, not open.

use caravan_server::{Level, NsCap, PoolCap, VarCap};
use http::Method;

/// Which methods a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    /// Reading.
    Get,
    /// Writing: PUT and POST are the same.
    Put,
    /// Removing.
    Delete,
    /// All of them.
    Any,
}

impl On {
    fn fits(self, method: &Method) -> bool {
        match self {
            Self::Get => method == Method::GET || method == Method::HEAD,
            Self::Put => method == Method::PUT || method == Method::POST,
            Self::Delete => method == Method::DELETE,
            Self::Any => true,
        }
    }
}

/// What a route needs. Capabilities are alternatives: one of them is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing, not even a token that is known.
    Open,
    /// A token that is known, or none: the route shows only what may be seen.
    Shown,
    /// Everything.
    Management,
    /// In the namespace of the query; `*` in any.
    Namespace(&'static [NsCap]),
    /// The same of lists; of those of all namespaces everybody sees the rows that they may see.
    Rows(&'static [NsCap]),
    /// In the namespace of the job in the body.
    Job(&'static [NsCap]),
    /// In the namespace of the volumes in the body.
    Body(&'static [NsCap]),
    /// In the namespace of the allocation that the segment names.
    Alloc(usize, &'static [NsCap]),
    /// The same; an allocation that may not be seen is one that is not there.
    HiddenAlloc(usize, &'static [NsCap]),
    /// To run something in an allocation.
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

use Need::{
    Action, Agent, Alloc, AnyPool, Body, Deployment, Eval, Exec, HiddenAlloc, HostClaim, HostVolume, Job,
    Management, Namespace, Node, Open, Operator, OperatorCap, Plugin, Pool, PoolBody, Quota, Rows, Shown,
    Variable,
};
use NsCap as N;
use On::{Any, Delete, Get, Put};

/// Either of these lets one see jobs and what they run.
const READ: &[NsCap] = &[N::ReadJob];

/// Methods, path, need. In paths `*` is one segment and `**` any number of them, but at least one.
pub(super) const TABLE: &[(On, &str, Need)] = &[
    (Get, "jobs", Namespace(&[N::ListJobs])),
    (Put, "jobs", Job(&[N::SubmitJob, N::RegisterJob])),
    (Put, "jobs/parse", Namespace(&[N::ParseJob, N::SubmitJob])),
    (Any, "jobs/statuses", Namespace(READ)),
    (Put, "validate/job", Job(READ)),
    (Get, "job/**/action", Action),
    (Put, "job/**/plan", Job(&[N::SubmitJob, N::PlanJob])),
    (Put, "job/**/evaluate", Namespace(&[N::SubmitJob, N::EvaluateJob])),
    (Any, "job/**/versions/*/tag", Namespace(&[N::SubmitJob, N::TagJobVersion])),
    (Put, "job/**/revert", Namespace(&[N::SubmitJob, N::RevertJob])),
    (Put, "job/**/stable", Namespace(&[N::SubmitJob, N::StableJob])),
    (Put, "job/**/dispatch", Namespace(&[N::DispatchJob])),
    (Put, "job/**/dispatch/payload", Namespace(&[N::DispatchJob])),
    (Put, "job/**/periodic/force", Namespace(&[N::SubmitJob, N::ForcePeriodicJob])),
    (Get, "job/**/scale", Namespace(&[N::ReadJob, N::ReadJobScaling])),
    (Put, "job/**/scale", Namespace(&[N::SubmitJob, N::ScaleJob])),
    (Get, "job/**", Namespace(READ)),
    (Put, "job/**", Job(&[N::SubmitJob, N::RegisterJob])),
    (Delete, "job/**", Namespace(&[N::SubmitJob, N::DeregisterJob, N::PurgeJob])),
    (Get, "allocations", Namespace(READ)),
    (Put, "allocation/*/stop", Alloc(1, &[N::AllocLifecycle])),
    (Any, "allocation/*/services", Alloc(1, READ)),
    (Any, "allocation/*/checks", Alloc(1, READ)),
    (Get, "allocation/*", HiddenAlloc(1, READ)),
    (Get, "evaluations", Namespace(READ)),
    (Get, "evaluations/count", Namespace(READ)),
    (Delete, "evaluations", Management),
    (Get, "evaluation/*", Eval(1, READ)),
    (Get, "evaluation/*/allocations", Eval(1, READ)),
    (Get, "deployments", Namespace(READ)),
    (Get, "deployment/allocations/*", Deployment(2, READ)),
    (Put, "deployment/fail/*", Deployment(2, &[N::SubmitJob, N::FailDeployment])),
    (Put, "deployment/pause/*", Deployment(2, &[N::SubmitJob, N::PauseDeployment])),
    (Put, "deployment/promote/*", Deployment(2, &[N::SubmitJob, N::PromoteDeployment])),
    (Put, "deployment/unblock/*", Deployment(2, &[N::SubmitJob, N::UnblockDeployment])),
    (Put, "deployment/allocation-health/*", Deployment(2, &[N::SubmitJob, N::SetAllocHealthDeployment])),
    (Get, "deployment/*", Deployment(1, READ)),
    (Get, "nodes", Node(Level::Read)),
    (Get, "node/pools", Shown),
    (Put, "node/pools", PoolBody(PoolCap::Write)),
    (Get, "node/pool/*/nodes", Node(Level::Read)),
    (Get, "node/pool/*/jobs", AnyPool(PoolCap::Read)),
    (Get, "node/pool/*", Pool(2, PoolCap::Read)),
    (Put, "node/pool/*", Pool(2, PoolCap::Write)),
    (Delete, "node/pool/*", Pool(2, PoolCap::Delete)),
    (Put, "node/*/fence", Node(Level::Write)),
    (Get, "node/**", Node(Level::Read)),
    (Any, "node/**", Node(Level::Write)),
    (Any, "client/fs/logs/*", Alloc(3, &[N::ReadLogs, N::ReadFs])),
    (Any, "client/fs/*/*", Alloc(3, &[N::ReadFs])),
    (Any, "client/stats", Node(Level::Read)),
    (Any, "client/gc", Node(Level::Write)),
    (Get, "client/metadata", Node(Level::Read)),
    (Any, "client/metadata", Node(Level::Write)),
    (Get, "client/identity", Node(Level::Read)),
    (Any, "client/identity/renew", Node(Level::Write)),
    (Any, "client/allocation/*/stats", Alloc(2, READ)),
    (Any, "client/allocation/*/checks", Alloc(2, READ)),
    (Any, "client/allocation/*/exec", Exec(2)),
    (Any, "client/allocation/*/snapshot", Alloc(2, &[N::ReadFs])),
    (Any, "client/allocation/*/restart", Alloc(2, &[N::AllocLifecycle])),
    (Any, "client/allocation/*/signal", Alloc(2, &[N::AllocLifecycle])),
    (Get, "client/allocation/*/pause", Alloc(2, READ)),
    (Any, "client/allocation/*/pause", Alloc(2, &[N::SubmitJob, N::PauseAllocation])),
    (Any, "client/allocation/*/gc", Alloc(2, &[N::SubmitJob, N::GcAllocation])),
    // Lists of volumes of both kinds: the kind decides, see there.
    (Get, "volumes", Shown),
    (Put, "volumes", Body(&[N::CsiWriteVolume])),
    (Get, "volumes/external", Namespace(&[N::CsiListVolume])),
    (Get, "volumes/snapshot", Namespace(&[N::CsiListVolume])),
    (Any, "volumes/snapshot", Namespace(&[N::CsiWriteVolume])),
    (Get, "volumes/claims", Namespace(&[N::HostVolumeRead])),
    (Delete, "volumes/claim/*", HostClaim(2, &[N::HostVolumeDelete])),
    (Put, "volume/host/create", Body(&[N::HostVolumeCreate, N::HostVolumeWrite])),
    (Put, "volume/host/register", Body(&[N::HostVolumeRegister, N::HostVolumeWrite])),
    (Get, "volume/host/*", HostVolume(2, &[N::HostVolumeRead])),
    (Delete, "volume/host/*", HostVolume(2, &[N::HostVolumeDelete, N::HostVolumeWrite])),
    (Put, "volume/csi/**", Body(&[N::CsiWriteVolume])),
    (Get, "volume/csi/**", Namespace(&[N::CsiReadVolume])),
    (Any, "volume/csi/**", Namespace(&[N::CsiWriteVolume])),
    (Get, "plugins", Shown),
    (Get, "plugin/csi/*", Plugin(Level::Read)),
    (Get, "vars", Shown),
    (Get, "var/**", Variable(VarCap::Read)),
    (Put, "var/**", Variable(VarCap::Write)),
    (Delete, "var/**", Variable(VarCap::Destroy)),
    (Get, "services", Rows(READ)),
    (Get, "service/*", Namespace(READ)),
    (Delete, "service/*/*", Namespace(&[N::SubmitJob, N::DeleteServiceRegistration])),
    (Get, "scaling/policies", Rows(&[N::ListScalingPolicies, N::ReadJob])),
    (Get, "scaling/policy/*", Namespace(&[N::ReadScalingPolicy, N::ReadJob])),
    (Any, "search", Shown),
    (Any, "search/fuzzy", Shown),
    // Who may not hear gets a stream that says nothing, see there.
    (Any, "event/stream", Open),
    (Get, "namespaces", Shown),
    (Get, "namespace/*", Shown),
    (Any, "namespace", Management),
    (Any, "namespace/*", Management),
    (Any, "acl/bootstrap", Open),
    (Any, "acl/login", Open),
    (Any, "acl/oidc/*", Open),
    (Any, "acl/token/onetime/exchange", Open),
    (Any, "acl/token/onetime", Shown),
    (Get, "acl/auth-methods", Open),
    (Get, "acl/token/*", Shown),
    (Get, "acl/policies", Shown),
    (Get, "acl/policy/*", Shown),
    (Get, "acl/roles", Shown),
    (Get, "acl/role/**", Shown),
    (Any, "acl/identity/client-introduction-token", Node(Level::Write)),
    (Any, "acl/**", Management),
    (Any, "agent/health", Open),
    (Any, "agent/self", Agent(Level::Read)),
    (Any, "agent/members", Node(Level::Read)),
    (Get, "agent/servers", Agent(Level::Read)),
    (Any, "agent/servers", Agent(Level::Write)),
    (Any, "agent/join", Agent(Level::Write)),
    (Any, "agent/force-leave", Agent(Level::Write)),
    (Get, "agent/keyring/list", Agent(Level::Read)),
    (Any, "agent/keyring/*", Agent(Level::Write)),
    (Any, "agent/monitor", Agent(Level::Read)),
    (Any, "agent/monitor/export", Agent(Level::Read)),
    (Any, "agent/pprof/*", Agent(Level::Write)),
    (Any, "agent/host", Agent(Level::Read)),
    (Get, "agent/schedulers", Agent(Level::Read)),
    (Get, "agent/schedulers/config", Agent(Level::Read)),
    (Any, "agent/schedulers/config", Agent(Level::Write)),
    (Any, "agent/reload", Agent(Level::Write)),
    (Any, "status/**", Open),
    (Any, "regions", Open),
    (Any, "metrics", Open),
    (Get, "operator/raft/configuration", Operator(Level::Read)),
    (Get, "operator/autopilot/configuration", Operator(Level::Read)),
    (Get, "operator/autopilot/health", Operator(Level::Read)),
    (Get, "operator/scheduler/configuration", Operator(Level::Read)),
    (Get, "operator/keyring/keys", OperatorCap("keyring-read", Level::Read)),
    (Put, "operator/keyring/rotate", OperatorCap("keyring-rotate", Level::Write)),
    (Delete, "operator/keyring/key/*", OperatorCap("keyring-delete", Level::Write)),
    (Get, "operator/snapshot", OperatorCap("snapshot-save", Level::Write)),
    (Any, "operator/snapshot", Management),
    (Get, "operator/license", OperatorCap("license-read", Level::Read)),
    (Get, "operator/upgrade-check/*", Operator(Level::Read)),
    (Any, "operator/**", Operator(Level::Write)),
    (Any, "system/**", Management),
    (Get, "quotas", Quota(Level::Read)),
    (Get, "quota/*", Quota(Level::Read)),
    (Any, "quota/**", Quota(Level::Write)),
];

/// What a request needs; `segments` are those after `v1`.
pub(super) fn need(method: &Method, segments: &[&str]) -> Need {
    let fits = |(on, pattern, _): &&(On, &str, Need)| on.fits(method) && matches(pattern, segments);
    TABLE.iter().find(fits).map_or(Management, |(_, _, need)| *need)
}

/// Whether a path fits a pattern.
fn matches(pattern: &str, segments: &[&str]) -> bool {
    let parts: Vec<&str> = pattern.split('/').collect();
    fits(&parts, segments)
}

fn fits(parts: &[&str], segments: &[&str]) -> bool {
    match (parts, segments) {
        ([], []) => true,
        (["**", rest @ ..], [_, tail @ ..]) => fits(rest, tail) || fits(parts, tail),
        (["*", rest @ ..], [_, tail @ ..]) => fits(rest, tail),
        ([part, rest @ ..], [segment, tail @ ..]) => part == segment && fits(rest, tail),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(method: Method, path: &str) -> Need {
        need(&method, &path.split('/').collect::<Vec<_>>())
    }

    #[test]
    fn the_first_line_that_fits_decides() {
        for (method, path, want) in [
            (Method::GET, "jobs", Namespace(&[N::ListJobs])),
            (Method::POST, "jobs", Job(&[N::SubmitJob, N::RegisterJob])),
            (Method::GET, "job/a/b/c", Namespace(READ)),
            (Method::GET, "job/a/b/scale", Namespace(&[N::ReadJob, N::ReadJobScaling])),
            (Method::PUT, "job/dispatch", Job(&[N::SubmitJob, N::RegisterJob])),
            (Method::PUT, "job/x/dispatch", Namespace(&[N::DispatchJob])),
            (Method::GET, "node/pools", Shown),
            (Method::GET, "node/some-id", Node(Level::Read)),
            (Method::PUT, "node/some-id/drain", Node(Level::Write)),
            (Method::PUT, "node/some-id/fence", Node(Level::Write)),
            (Method::GET, "client/fs/logs/x", Alloc(3, &[N::ReadLogs, N::ReadFs])),
            (Method::GET, "client/fs/cat/x", Alloc(3, &[N::ReadFs])),
            (Method::DELETE, "var/a/b", Variable(VarCap::Destroy)),
            (Method::PUT, "acl/token", Management),
            (Method::GET, "nothing/like/this", Management),
            (Method::PATCH, "jobs", Management),
        ] {
            assert_eq!(needed(method.clone(), path), want, "{method} {path}");
        }
    }

    #[test]
    fn no_line_is_hidden_behind_an_earlier_one() {
        for (at, (on, pattern, _)) in TABLE.iter().enumerate() {
            let method = match on {
                On::Get => Method::GET,
                On::Put => Method::PUT,
                On::Delete => Method::DELETE,
                On::Any => Method::PATCH,
            };
            let path = pattern.replace("**", "x").replace('*', "x");
            let segments: Vec<&str> = path.split('/').collect();
            let first = TABLE.iter().position(|(on, p, _)| on.fits(&method) && matches(p, &segments));
            assert_eq!(first, Some(at), "{pattern}");
        }
    }
}
