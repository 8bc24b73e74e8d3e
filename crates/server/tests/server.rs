//! The whole server in one process, with clients that do what the test says.

#[path = "server/make.rs"]
mod make;
#[path = "server/plugin.rs"]
mod plugin;
#[path = "server/world.rs"]
mod world;

#[path = "server/blocked.rs"]
mod blocked;
#[path = "server/claims.rs"]
mod claims;
#[path = "server/disconnect.rs"]
mod disconnect;
#[path = "server/expand.rs"]
mod expand;
#[path = "server/fencing.rs"]
mod fencing;
#[path = "server/host_volumes.rs"]
mod host_volumes;
#[path = "server/jobs.rs"]
mod jobs;
#[path = "server/lookups.rs"]
mod lookups;
#[path = "server/nodes.rs"]
mod nodes;
#[path = "server/planner.rs"]
mod planner;
#[path = "server/restart.rs"]
mod restart;
#[path = "server/secrets.rs"]
mod secrets;
#[path = "server/storages.rs"]
mod storages;
#[path = "server/templates.rs"]
mod templates;
#[path = "server/tenants.rs"]
mod tenants;
#[path = "server/verbs.rs"]
mod verbs;
#[path = "server/volumes.rs"]
mod volumes;
