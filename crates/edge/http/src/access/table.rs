//! The table of routes. Each line has the right that a caller needs, the place of the request's namespace, and the
//! handler (`docs/design/http-api.md`).
//!
//! Requests are dispatched only through this table, so no route is served without a line here. A new route is one
//! line and one function. `cargo xtask docs` writes docs/http-routes.md from the table.

use super::line::{Asks, BodyLimit, Line, Need, Object, On, Place, Scope, To, line, session, slash};
use crate::routes::{
    acl, actions, agent, agent_admin, allocs, children, claims, client, cluster, deployments, evals, event,
    exec, explain, files, fuzzy, group_logs, host_volumes, job, job_versions, jobs, metrics, monitor,
    monitor_export, namespaces, node_changes, node_pools, node_usage, nodes, operator, overview, plan,
    plugins, profiles, scaling, search, servers, services, snapshots, statuses, storage_map, system, tags,
    ui, vars, volume, volumes, what_if,
};
use Need::{
    Action, Agent, Alloc, AnyPool, Body, Deployment, Deregister, Eval, Exec, Held, HiddenAlloc, HostClaim,
    HostVolume, Job, Management, Namespace, Node, Open, Operator, OperatorCap, Plugin, Pool, PoolBody, Quota,
    Refused, Rows, SaveSnapshot, Shown, Variable,
};
use NsCap as N;
use On::{Any, Delete, Get, Put};
use caravan_server::{Level, NsCap, PoolCap, VarCap};
use http::{Method, StatusCode};
use std::collections::HashMap;
use std::sync::LazyLock;

/// The capabilities to see jobs and their allocations; one of them is enough.
const READ: &[NsCap] = &[N::ReadJob];

const NO_RESOURCE: Need = Refused(StatusCode::NOT_FOUND, "resource not found");
const NO_METHOD: Need = Refused(StatusCode::NOT_FOUND, "Invalid method");

/// The methods of pages of other origins on the routes of a node.
const SHARED_NODE: &[&str] = &["HEAD", "GET", "PUT", "POST"];
/// The methods of pages of other origins on lists of variables.
const SHARED_READ: &[&str] = &["HEAD", "GET"];
/// The methods of pages of other origins on single variables.
const SHARED_WRITE: &[&str] = &["HEAD", "GET", "PUT", "DELETE"];

/// Creates the handler of a line from an async function of `routes`.
macro_rules! run {
    ($function:path) => {
        To::Handler(|call| Box::pin($function(call)))
    };
}

/// Creates the handler of a line from a function that does not wait.
macro_rules! at_once {
    ($function:path) => {
        To::Handler(|call| Box::pin(std::future::ready($function(call))))
    };
}

/// The lines of all routes. The first line whose path matches decides.
pub(super) static TABLE: &[Line] = &[
    line(Any, "/", Open, at_once!(ui::root)).at(Place::Page),
    slash("/ui"),
    line(Any, "/ui/**", Open, at_once!(ui::page)).at(Place::Page),
    line(Get, "caravan/ui", Open, at_once!(ui::settings)).at(Place::Agent),
    line(Get, "caravan/errors/*", Open, at_once!(ui::error_page)).at(Place::Agent),
    line(Get, "caravan/overview", Shown, run!(overview::overview)).cached(),
    line(Get, "caravan/storage", Shown, run!(storage_map::map)).cached().sorted_by(volumes::KEYS.names),
    line(Get, "caravan/host-volumes", Shown, run!(storage_map::hosts::list))
        .cached()
        .sorted_by(storage_map::hosts::KEYS.names),
    line(Get, "caravan/claims", Shown, run!(claims::list)).cached().sorted_by(claims::KEYS.names),
    line(Get, "caravan/logs", Namespace(&[N::ReadLogs, N::ReadFs]), at_once!(group_logs::stream))
        .at(Place::AnyServer),
    line(Get, "caravan/nodes/usage", Node(Level::Read), run!(node_usage::columns)).cached(),
    line(Get, "caravan/servers", Node(Level::Read), at_once!(servers::list))
        .with_scope(Scope::Own)
        .at(Place::AnyServer),
    line(Get, "caravan/what-if", Node(Level::Read), run!(what_if::answer)),
    line(Get, "/.well-known/*", Open, run!(operator::well_known)).follows(),
    line(Any, "/.well-known/*", Open, run!(operator::well_known)),
    line(Get, "jobs", Namespace(&[N::ListJobs]), run!(jobs::list))
        .cached()
        .sorted_by(jobs::KEYS.names)
        .follows(),
    line(Put, "jobs", Job(&[N::SubmitJob, N::RegisterJob]), run!(jobs::register))
        .with_scope(Scope::Job)
        .registers(),
    line(Put, "jobs/parse", Namespace(&[N::ParseJob, N::SubmitJob]), at_once!(jobs::parse)).at(Place::Agent),
    line(Get, "jobs/statuses", Namespace(READ), run!(statuses::route)).cached().sorted_by(jobs::KEYS.names),
    line(Put, "jobs/statuses", Namespace(READ), run!(statuses::route)).sorted_by(jobs::KEYS.names),
    line(Put, "validate/job", Job(READ), at_once!(jobs::validate)).with_scope(Scope::Job),
    slash("job"),
    session("job/**/action", Action, exec::action),
    line(Put, "job/**/plan", Job(&[N::SubmitJob, N::PlanJob]), run!(plan::plan)).with_scope(Scope::Job),
    line(Put, "job/**/evaluate", Namespace(&[N::SubmitJob, N::EvaluateJob]), run!(job::evaluate)),
    line(Put, "job/*/versions/*/tag", Namespace(&[N::SubmitJob, N::TagJobVersion]), run!(tags::tag)),
    line(Delete, "job/*/versions/*/tag", Namespace(&[N::SubmitJob, N::TagJobVersion]), run!(tags::untag)),
    line(Put, "job/**/revert", Namespace(&[N::SubmitJob, N::RevertJob]), run!(job_versions::revert)),
    line(Put, "job/**/stable", Namespace(&[N::SubmitJob, N::StableJob]), run!(job_versions::stable)),
    line(Put, "job/**/dispatch", Namespace(&[N::DispatchJob]), run!(children::dispatch)).registers(),
    line(Put, "job/**/dispatch/payload", Namespace(&[N::DispatchJob]), run!(children::dispatch_payload))
        .registers(),
    line(
        Put,
        "job/**/periodic/force",
        Namespace(&[N::SubmitJob, N::ForcePeriodicJob]),
        run!(children::force),
    ),
    line(Get, "job/**/scale", Namespace(&[N::ReadJob, N::ReadJobScaling]), run!(scaling::status)),
    line(Put, "job/**/scale", Namespace(&[N::SubmitJob, N::ScaleJob]), run!(scaling::scale)).registers(),
    line(Get, "job/**/allocations", Namespace(READ), run!(job::allocations)).follows(),
    line(Get, "job/**/evaluations", Namespace(READ), run!(job::evaluations)).follows(),
    line(Get, "job/**/deployments", Namespace(READ), run!(job::deployments)).follows(),
    line(Get, "job/**/deployment", Namespace(READ), run!(job::deployment)).follows(),
    line(Get, "job/**/summary", Namespace(READ), run!(job::summary)).follows(),
    line(Get, "job/**/versions", Namespace(READ), run!(job::versions)).follows(),
    line(Get, "job/**/submission", Namespace(READ), run!(job::submission)).follows(),
    line(Get, "job/**/actions", Namespace(READ), run!(actions::list)),
    line(Get, "job/**/services", Namespace(READ), run!(services::of_job)).sorted_by(services::KEYS.names),
    line(Get, "job/**", Namespace(READ), run!(job::get)).follows(),
    line(Put, "job/**", Job(&[N::SubmitJob, N::RegisterJob]), run!(job::register))
        .with_scope(Scope::Job)
        .registers(),
    line(Delete, "job/**", Deregister, run!(job::deregister)),
    line(Get, "allocations", Namespace(READ), run!(allocs::list))
        .cached()
        .sorted_by(allocs::KEYS.names)
        .follows(),
    slash("allocation"),
    line(Put, "allocation/*/stop", Alloc(1, &[N::AllocLifecycle]), run!(allocs::stop)),
    line(Get, "allocation/*/services", Alloc(1, READ), run!(services::of_alloc)),
    line(Any, "allocation/*/checks", Held(1, READ), at_once!(client::checks)).at(Place::Node(Object::Alloc)),
    line(Get, "allocation/*", HiddenAlloc(1, READ), run!(allocs::get)).follows(),
    line(Any, "allocation/*/**", NO_RESOURCE, To::Nowhere),
    line(Get, "evaluations", Namespace(READ), run!(evals::list))
        .cached()
        .sorted_by(evals::KEYS.names)
        .follows(),
    line(Get, "evaluations/count", Namespace(READ), run!(evals::count)),
    line(Delete, "evaluations", Management, run!(evals::delete)),
    slash("evaluation"),
    line(Get, "evaluation/**/allocations", Eval(1, READ), run!(evals::allocations)).follows(),
    line(Get, "evaluation/**/explain", Eval(1, READ), run!(evals::explain)),
    line(Get, "evaluation/**", Eval(1, READ), run!(evals::get)).follows(),
    line(Get, "deployments", Namespace(READ), run!(deployments::list))
        .cached()
        .sorted_by(deployments::KEYS.names)
        .follows(),
    slash("deployment"),
    line(Get, "deployment/allocations/**", Deployment(2, READ), run!(deployments::allocations)).follows(),
    line(
        Put,
        "deployment/fail/**",
        Deployment(2, &[N::SubmitJob, N::FailDeployment]),
        run!(deployments::fail),
    ),
    line(
        Put,
        "deployment/pause/**",
        Deployment(2, &[N::SubmitJob, N::PauseDeployment]),
        run!(deployments::pause),
    ),
    line(
        Put,
        "deployment/promote/**",
        Deployment(2, &[N::SubmitJob, N::PromoteDeployment]),
        run!(deployments::promote),
    ),
    line(
        Put,
        "deployment/unblock/**",
        Deployment(2, &[N::SubmitJob, N::UnblockDeployment]),
        run!(deployments::unblock),
    ),
    line(
        Put,
        "deployment/allocation-health/**",
        Deployment(2, &[N::SubmitJob, N::SetAllocHealthDeployment]),
        run!(deployments::set_health),
    ),
    line(Get, "deployment/**", Deployment(1, READ), run!(deployments::get)).follows(),
    line(Get, "nodes", Node(Level::Read), run!(nodes::list)).cached().sorted_by(nodes::KEYS.names).follows(),
    slash("node"),
    line(Get, "node/pools", Shown, run!(node_pools::list)).sorted_by(node_pools::KEYS.names).follows(),
    line(Put, "node/pools", PoolBody(PoolCap::Write), run!(node_pools::create))
        .with_scope(Scope::Authoritative),
    slash("node/pool"),
    line(Get, "node/pool/**/nodes", Node(Level::Read), run!(node_pools::nodes_of))
        .sorted_by(nodes::KEYS.names),
    line(Get, "node/pool/**/jobs", AnyPool(PoolCap::Read), run!(node_pools::jobs_of))
        .sorted_by(jobs::KEYS.names),
    line(Get, "node/pool/**", Pool(2, PoolCap::Read), run!(node_pools::get)).follows(),
    line(Put, "node/pool/**", Pool(2, PoolCap::Write), run!(node_pools::update))
        .with_scope(Scope::Authoritative),
    line(Delete, "node/pool/**", Pool(2, PoolCap::Delete), run!(node_pools::delete))
        .with_scope(Scope::Authoritative),
    line(Put, "node/**/drain", Node(Level::Write), run!(node_changes::drain)),
    line(Put, "node/**/eligibility", Node(Level::Write), run!(node_changes::eligibility)),
    line(Put, "node/**/fence", Node(Level::Write), run!(node_changes::fence)),
    line(Put, "node/**/evaluate", Node(Level::Write), run!(node_changes::evaluate)),
    line(Put, "node/**/purge", Node(Level::Write), run!(node_changes::purge)),
    line(Get, "node/**/allocations", Node(Level::Read), run!(nodes::allocations)).follows(),
    line(Get, "node/**", Node(Level::Read), run!(nodes::get)).follows(),
    slash("client/fs"),
    line(Any, "client/fs/logs/**", Held(3, &[N::ReadLogs, N::ReadFs]), run!(files::logs))
        .at(Place::Node(Object::Files(Asks::Log)))
        .shared(SHARED_NODE),
    line(Any, "client/fs/ls/**", Held(3, &[N::ReadFs]), run!(files::list))
        .at(Place::Node(Object::Alloc))
        .shared(SHARED_NODE),
    line(Any, "client/fs/stat/**", Held(3, &[N::ReadFs]), run!(files::stat))
        .at(Place::Node(Object::Files(Asks::Path)))
        .shared(SHARED_NODE),
    line(Any, "client/fs/cat/**", Held(3, &[N::ReadFs]), run!(files::cat))
        .at(Place::Node(Object::Files(Asks::PathAsContent)))
        .shared(SHARED_NODE),
    line(Any, "client/fs/readat/**", Held(3, &[N::ReadFs]), run!(files::read_at))
        .at(Place::Node(Object::Files(Asks::PathAsContent)))
        .shared(SHARED_NODE),
    line(Any, "client/fs/stream/**", Held(3, &[N::ReadFs]), run!(files::stream_file))
        .at(Place::Node(Object::Files(Asks::Path)))
        .shared(SHARED_NODE),
    line(Any, "client/fs/logs", NO_ALLOC, To::Nowhere).shared(SHARED_NODE),
    line(Any, "client/fs/ls", NO_ALLOC, To::Nowhere).shared(SHARED_NODE),
    line(Any, "client/fs/stat", NO_ALLOC, To::Nowhere).shared(SHARED_NODE),
    line(Any, "client/fs/cat", NO_ALLOC, To::Nowhere).shared(SHARED_NODE),
    line(Any, "client/fs/readat", NO_ALLOC, To::Nowhere).shared(SHARED_NODE),
    line(Any, "client/fs/stream", NO_ALLOC, To::Nowhere).shared(SHARED_NODE),
    line(Any, "client/fs/**", NO_METHOD, To::Nowhere).shared(SHARED_NODE),
    line(Any, "client/stats", Node(Level::Read), run!(client::host_stats))
        .at(Place::Node(Object::Node))
        .shared(SHARED_NODE),
    line(Any, "client/gc", Node(Level::Write), run!(client::collect_all)).at(Place::Node(Object::Node)),
    line(Get, "client/metadata", Node(Level::Read), run!(client::metadata))
        .at(Place::Node(Object::NodeOfBody))
        .shared(SHARED_NODE),
    line(Any, "client/metadata", Node(Level::Write), run!(client::metadata))
        .at(Place::Node(Object::NodeOfBody))
        .shared(SHARED_NODE),
    line(Get, "client/identity", Node(Level::Read), run!(client::identity))
        .at(Place::Node(Object::Node))
        .shared(SHARED_NODE),
    line(Any, "client/identity/renew", Node(Level::Write), run!(client::renew_identity))
        .at(Place::Node(Object::NodeOfBody))
        .shared(SHARED_NODE),
    slash("client/allocation"),
    line(Any, "client/allocation/*/stats", Held(2, READ), run!(client::stats))
        .at(Place::Node(Object::Alloc))
        .shared(SHARED_NODE),
    line(Any, "client/allocation/*/checks", Held(2, READ), at_once!(client::checks))
        .at(Place::Node(Object::Alloc))
        .shared(SHARED_NODE),
    session("client/allocation/*/exec", Exec(2), exec::command).shared(SHARED_NODE),
    line(Any, "client/allocation/*/snapshot", Held(2, &[N::ReadFs]), run!(files::snapshot))
        .at(Place::Node(Object::Alloc))
        .shared(SHARED_NODE),
    line(Any, "client/allocation/*/restart", Held(2, &[N::AllocLifecycle]), at_once!(client::restart))
        .at(Place::Node(Object::Alloc))
        .shared(SHARED_NODE),
    line(Any, "client/allocation/*/signal", Held(2, &[N::AllocLifecycle]), run!(client::signal))
        .at(Place::Node(Object::Alloc))
        .shared(SHARED_NODE),
    line(Get, "client/allocation/*/pause", Held(2, READ), at_once!(client::pause))
        .at(Place::Node(Object::Alloc))
        .shared(SHARED_NODE),
    line(
        Any,
        "client/allocation/*/pause",
        Held(2, &[N::SubmitJob, N::PauseAllocation]),
        at_once!(client::pause),
    )
    .at(Place::Node(Object::Alloc))
    .shared(SHARED_NODE),
    line(Any, "client/allocation/*/gc", Held(2, &[N::SubmitJob, N::GcAllocation]), run!(client::collect))
        .at(Place::Node(Object::Garbage))
        .shared(SHARED_NODE),
    line(Any, "client/allocation/**", NO_RESOURCE, To::Nowhere).shared(SHARED_NODE),
    // Lists of volumes of both kinds: the handler checks the right for each kind.
    line(Get, "volumes", Shown, run!(volumes::list)).cached().sorted_by(volumes::LIST_KEYS),
    line(Put, "volumes", Body(&[N::CsiWriteVolume]), run!(volumes::register)),
    line(Get, "volumes/external", Namespace(&[N::CsiListVolume]), run!(volumes::external)),
    line(Get, "volumes/snapshot", Namespace(&[N::CsiListVolume]), run!(snapshots::list)),
    line(Put, "volumes/snapshot", Body(&[N::CsiWriteVolume]), run!(snapshots::create)),
    line(Delete, "volumes/snapshot", Namespace(&[N::CsiWriteVolume]), run!(snapshots::delete)),
    line(Get, "volumes/claims", Namespace(&[N::HostVolumeRead]), run!(host_volumes::claims))
        .sorted_by(host_volumes::CLAIM_KEYS.names),
    slash("volumes/claim"),
    line(Delete, "volumes/claim/**", HostClaim(2, &[N::HostVolumeDelete]), run!(host_volumes::delete_claim)),
    slash("volume/host"),
    line(
        Put,
        "volume/host/create",
        Body(&[N::HostVolumeCreate, N::HostVolumeWrite]),
        run!(host_volumes::create),
    ),
    line(
        Put,
        "volume/host/register",
        Body(&[N::HostVolumeRegister, N::HostVolumeWrite]),
        run!(host_volumes::register),
    ),
    line(Get, "volume/host/*", HostVolume(2, &[N::HostVolumeRead]), run!(host_volumes::get)),
    line(
        Delete,
        "volume/host/*",
        HostVolume(2, &[N::HostVolumeDelete, N::HostVolumeWrite]),
        run!(host_volumes::delete),
    ),
    line(Any, "volume/host/*", NO_RESOURCE, To::Nowhere),
    line(Get, "volume/host/*/explain", HostVolume(2, &[N::HostVolumeRead]), run!(explain::host_volume)),
    line(Any, "volume/host/*/**", NO_RESOURCE, To::Nowhere),
    slash("volume/csi"),
    line(Put, "volume/csi/**/create", Body(&[N::CsiWriteVolume]), run!(volume::create)),
    line(Delete, "volume/csi/**/delete", Namespace(&[N::CsiWriteVolume]), run!(volume::delete)),
    line(Delete, "volume/csi/**/detach", Namespace(&[N::CsiWriteVolume]), run!(volume::detach)),
    line(Get, "volume/csi/**/explain", Namespace(&[N::CsiReadVolume]), run!(volume::explain)),
    line(Get, "volume/csi/**", Namespace(&[N::CsiReadVolume]), run!(volume::get)),
    line(Put, "volume/csi/**", Body(&[N::CsiWriteVolume]), run!(volume::register)),
    line(Delete, "volume/csi/**", Namespace(&[N::CsiWriteVolume]), run!(volume::deregister)),
    line(Get, "plugins", Shown, run!(plugins::list)),
    slash("plugin/csi"),
    line(Get, "plugin/csi/**/explain", Plugin(Level::Read), run!(explain::plugin)),
    line(Get, "plugin/csi/**", Plugin(Level::Read), run!(plugins::get)),
    line(Get, "vars", Shown, run!(vars::list)).shared(SHARED_READ).sorted_by(vars::KEYS.names).follows(),
    slash("var"),
    line(Get, "var/**", Variable(VarCap::Read), run!(vars::route)).shared(SHARED_WRITE).follows(),
    line(Put, "var/**", Variable(VarCap::Write), run!(vars::route)).shared(SHARED_WRITE),
    line(Delete, "var/**", Variable(VarCap::Destroy), run!(vars::route)).shared(SHARED_WRITE),
    line(Any, "var/**", Refused(StatusCode::BAD_REQUEST, "Invalid method"), To::Nowhere).shared(SHARED_WRITE),
    line(Get, "services", Rows(READ), run!(services::list)).cached().follows(),
    slash("service"),
    line(Get, "service/*", Namespace(READ), run!(services::get)).sorted_by(services::KEYS.names).follows(),
    line(
        Delete,
        "service/*/*",
        Namespace(&[N::SubmitJob, N::DeleteServiceRegistration]),
        run!(services::delete),
    ),
    line(Any, "service/*/*/**", Refused(StatusCode::BAD_REQUEST, "invalid URI"), To::Nowhere),
    line(Get, "scaling/policies", Rows(&[N::ListScalingPolicies, N::ReadJob]), run!(scaling::policies)),
    slash("scaling/policy"),
    line(Get, "scaling/policy/**", Namespace(&[N::ReadScalingPolicy, N::ReadJob]), run!(scaling::policy)),
    line(Put, "search", Shown, run!(search::route)),
    line(Put, "search/fuzzy", Shown, run!(fuzzy::route)),
    // The handler checks the right for each topic, and each event. A caller without the right receives an empty
    // stream, or a refusal with `caravan=true`. With `coalesce`, the stream sends the newest row of each object
    // at most once in that time.
    line(Get, "event/stream", Open, at_once!(event::stream)).at(Place::AnyServer),
    line(Get, "namespaces", Shown, run!(namespaces::list)).sorted_by(namespaces::KEYS.names).follows(),
    line(Get, "namespace/**", Shown, run!(namespaces::get)).follows(),
    line(Put, "namespace", Management, run!(namespaces::create)).with_scope(Scope::Authoritative),
    line(Put, "namespace/**", Management, run!(namespaces::update)).with_scope(Scope::Authoritative),
    line(Delete, "namespace/**", Management, run!(namespaces::delete)).with_scope(Scope::Authoritative),
    line(Put, "acl/bootstrap", Open, run!(acl::bootstrap)).with_scope(Scope::Authoritative),
    line(Put, "acl/login", Open, run!(acl::auth::login)).with_scope(Scope::Login),
    line(Put, "acl/oidc/auth-url", Open, run!(acl::auth::auth_url)).with_scope(Scope::Login),
    line(Put, "acl/oidc/complete-auth", Open, run!(acl::auth::complete_auth)).with_scope(Scope::Login),
    line(Put, "acl/token/onetime/exchange", Open, run!(acl::exchange)),
    line(Put, "acl/token/onetime", Shown, run!(acl::one_time)),
    line(Get, "acl/token/self", Shown, run!(acl::own_token)),
    line(Get, "acl/tokens", Management, run!(acl::tokens)).sorted_by(acl::TOKEN_KEYS.names),
    line(Put, "acl/token", Management, run!(acl::create_token)).with_scope(Scope::Token),
    line(Get, "acl/token/**", Shown, run!(acl::token)),
    line(Put, "acl/token/**", Management, run!(acl::token)).with_scope(Scope::Token),
    line(Delete, "acl/token/**", Management, run!(acl::token)).with_scope(Scope::Token),
    line(Get, "acl/auth-methods", Open, run!(acl::auth::methods)).sorted_by(acl::auth::METHOD_KEYS.names),
    line(Put, "acl/auth-method", Management, run!(acl::auth::create_method)).with_scope(Scope::Authoritative),
    line(Any, "acl/auth-method/**", Management, run!(acl::auth::method)).with_scope(Scope::Authoritative),
    line(Get, "acl/binding-rules", Management, run!(acl::auth::rules)).sorted_by(acl::auth::RULE_KEYS.names),
    line(Put, "acl/binding-rule", Management, run!(acl::auth::create_rule)).with_scope(Scope::Authoritative),
    line(Any, "acl/binding-rule/**", Management, run!(acl::auth::rule)).with_scope(Scope::Authoritative),
    line(Get, "acl/policies", Shown, run!(acl::policies)).sorted_by(acl::POLICY_KEYS.names),
    slash("acl/policy"),
    line(Get, "acl/policy/self", Shown, run!(acl::own_policies)).sorted_by(acl::POLICY_KEYS.names),
    line(Get, "acl/policy/**", Shown, run!(acl::policy)),
    line(Put, "acl/policy/**", Management, run!(acl::policy)).with_scope(Scope::Authoritative),
    line(Delete, "acl/policy/**", Management, run!(acl::policy)).with_scope(Scope::Authoritative),
    line(Get, "acl/roles", Shown, run!(acl::roles)).sorted_by(acl::ROLE_KEYS.names),
    line(Get, "acl/role/name/**", Shown, run!(acl::role_named)),
    line(Put, "acl/role", Management, run!(acl::create_role)).with_scope(Scope::Authoritative),
    line(Get, "acl/role/**", Shown, run!(acl::role)),
    line(Put, "acl/role/**", Management, run!(acl::role)).with_scope(Scope::Authoritative),
    line(Delete, "acl/role/**", Management, run!(acl::role)).with_scope(Scope::Authoritative),
    line(Put, "acl/identity/client-introduction-token", Node(Level::Write), run!(acl::auth::introduce)),
    line(Get, "agent/health", Open, at_once!(agent::health)).at(Place::Agent),
    line(Get, "agent/self", Agent(Level::Read), at_once!(agent::own)).at(Place::Agent),
    line(Get, "agent/members", Node(Level::Read), at_once!(cluster::members))
        .with_scope(Scope::Own)
        .at(Place::AnyServer),
    line(Get, "agent/servers", Agent(Level::Read), at_once!(agent::servers)).at(Place::ServerList),
    line(Put, "agent/servers", Agent(Level::Write), run!(agent_admin::set_servers)).at(Place::ServerList),
    line(Put, "agent/join", Agent(Level::Write), run!(cluster::join)).at(Place::Agent),
    line(Put, "agent/force-leave", Agent(Level::Write), run!(cluster::force_leave)).at(Place::Agent),
    slash("agent/keyring"),
    line(Get, "agent/keyring/list", Agent(Level::Read), run!(cluster::keyring)).at(Place::Agent),
    line(Any, "agent/keyring/list", Agent(Level::Write), run!(cluster::keyring)).at(Place::Agent),
    line(Any, "agent/keyring/install", Agent(Level::Write), run!(cluster::keyring)).at(Place::Agent),
    line(Any, "agent/keyring/use", Agent(Level::Write), run!(cluster::keyring)).at(Place::Agent),
    line(Any, "agent/keyring/remove", Agent(Level::Write), run!(cluster::keyring)).at(Place::Agent),
    line(Get, "agent/monitor", Agent(Level::Read), at_once!(monitor::log))
        .at(Place::Named(StatusCode::BAD_REQUEST)),
    line(Get, "agent/monitor/export", Agent(Level::Read), at_once!(monitor_export::export))
        .at(Place::Named(StatusCode::BAD_REQUEST)),
    slash("agent/pprof"),
    line(Get, "agent/pprof/**", Agent(Level::Write), run!(profiles::profile))
        .at(Place::Named(StatusCode::INTERNAL_SERVER_ERROR)),
    line(Get, "agent/host", Agent(Level::Read), at_once!(monitor::host))
        .at(Place::Named(StatusCode::BAD_REQUEST)),
    line(Get, "agent/schedulers", Agent(Level::Read), at_once!(agent_admin::schedulers)).at(Place::Agent),
    line(Get, "agent/schedulers/config", Agent(Level::Read), at_once!(agent_admin::workers)).at(Place::Agent),
    line(Put, "agent/schedulers/config", Agent(Level::Write), at_once!(agent_admin::workers))
        .at(Place::Agent),
    line(Put, "agent/reload", Agent(Level::Write), at_once!(agent_admin::reload)).at(Place::Agent),
    line(Get, "status/leader", Open, at_once!(cluster::leader)),
    line(Get, "status/peers", Open, at_once!(cluster::peers)),
    line(Get, "regions", Open, at_once!(cluster::regions)).with_scope(Scope::Own).at(Place::AnyServer),
    line(Get, "metrics", Open, run!(metrics::route)).at(Place::Agent),
    slash("operator/raft"),
    line(Get, "operator/raft/configuration", Operator(Level::Read), at_once!(cluster::raft)),
    // This route is refused with an empty body.
    line(Any, "operator/raft/configuration", Refused(StatusCode::METHOD_NOT_ALLOWED, ""), To::Nowhere),
    line(Delete, "operator/raft/peer", Operator(Level::Write), run!(cluster::remove_peer)),
    line(Any, "operator/raft/peer", Refused(StatusCode::NOT_FOUND, ""), To::Nowhere),
    line(Put, "operator/raft/transfer-leadership", Operator(Level::Write), run!(cluster::transfer)),
    line(Any, "operator/raft/**", NO_METHOD, To::Nowhere),
    line(Get, "operator/autopilot/configuration", Operator(Level::Read), run!(operator::autopilot)),
    line(Any, "operator/autopilot/configuration", Operator(Level::Write), run!(operator::autopilot)),
    line(Get, "operator/autopilot/health", Operator(Level::Read), at_once!(cluster::health)),
    line(Get, "operator/scheduler/configuration", Operator(Level::Read), run!(operator::scheduler)),
    line(Any, "operator/scheduler/configuration", Operator(Level::Write), run!(operator::scheduler)),
    slash("operator/keyring"),
    line(Get, "operator/keyring/keys", OperatorCap("keyring-read", Level::Read), run!(operator::keys)),
    line(Put, "operator/keyring/rotate", OperatorCap("keyring-rotate", Level::Write), run!(operator::rotate)),
    line(
        Delete,
        "operator/keyring/key/*",
        OperatorCap("keyring-delete", Level::Write),
        run!(operator::delete_key),
    ),
    line(Any, "operator/keyring/**", Refused(StatusCode::METHOD_NOT_ALLOWED, "Invalid method"), To::Nowhere),
    line(Get, "operator/snapshot", SaveSnapshot, run!(operator::save)),
    line(Put, "operator/snapshot", Management, run!(operator::restore)).body(BodyLimit::Snapshot),
    line(Get, "operator/license", OperatorCap("license-read", Level::Read), at_once!(operator::license)),
    line(Put, "operator/license", Operator(Level::Write), at_once!(system::enterprise_only)),
    line(
        Get,
        "operator/upgrade-check/vault-workload-identity",
        Operator(Level::Read),
        run!(operator::upgrade_check),
    ),
    line(Any, "operator/utilization", Operator(Level::Write), at_once!(operator::utilization)),
    line(Any, "system/gc", Management, run!(system::collect_garbage)),
    line(Any, "system/reconcile/summaries", Management, run!(system::reconcile_summaries)),
    line(Get, "quotas", Quota(Level::Read), at_once!(system::enterprise_only)),
    line(Get, "quota/**", Quota(Level::Read), at_once!(system::enterprise_only)),
    line(Any, "quotas", Quota(Level::Write), at_once!(system::enterprise_only)),
    line(Any, "quota", Quota(Level::Write), at_once!(system::enterprise_only)),
    line(Any, "quota/**", Quota(Level::Write), at_once!(system::enterprise_only)),
    line(Any, "quota-usages", Management, at_once!(system::enterprise_only)),
    line(Any, "quota-usages/**", Management, at_once!(system::enterprise_only)),
    line(Any, "recommendations", Management, at_once!(system::enterprise_only)),
    line(Any, "recommendations/**", Management, at_once!(system::enterprise_only)),
    line(Any, "recommendation", Management, at_once!(system::enterprise_only)),
    line(Any, "recommendation/**", Management, at_once!(system::enterprise_only)),
    line(Any, "sentinel", Management, at_once!(system::enterprise_only)),
    line(Any, "sentinel/**", Management, at_once!(system::enterprise_only)),
];

const NO_ALLOC: Need = Refused(StatusCode::BAD_REQUEST, "must provide a valid alloc id");

/// The lines by the segment that names their subject, in the order of the table.
static BY_KEY: LazyLock<HashMap<(usize, &str), Vec<&Line>>> = LazyLock::new(|| {
    let mut lines: HashMap<_, Vec<&Line>> = HashMap::new();
    for line in TABLE {
        lines.entry(line.key()).or_default().push(line);
    }
    lines
});

/// Returns the first line whose path matches, for any method; `segments` are the segments of the whole path.
pub(crate) fn find_path(segments: &[&str]) -> Option<&'static Line> {
    let keyed = |at: usize| BY_KEY.get(&(at, *segments.get(at)?));
    [1, 0].into_iter().filter_map(keyed).flatten().copied().find(|line| line.is_about(segments))
}

/// Returns the line for a request, where `first` is the first line whose path matches. `None` if the path is not
/// served with this method.
pub(crate) fn find_method(first: &'static Line, method: &Method) -> Option<&'static Line> {
    TABLE.iter().filter(|line| line.path == first.path).find(|line| line.on.fits(method))
}
