//! The whole server in one process, with clients that act as the test specifies.

mod make;
mod plugin;
mod world;

mod blocked;
mod claims;
mod detach;
mod disconnect;
mod expand;
mod fencing;
mod host_volumes;
mod jobs;
mod lookups;
mod nodes;
mod planner;
mod restart;
mod secrets;
mod storages;
mod templates;
mod tenants;
mod verbs;
mod volumes;
