//! Tests of whole commands on whole roots.

mod allocs;
mod build;
mod host_volumes;
mod jobs;
mod nodes;
mod ops;
mod plugins;
mod properties;
mod services;
mod storages;
mod store;
mod templates;
mod volumes;
