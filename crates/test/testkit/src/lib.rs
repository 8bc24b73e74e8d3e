//! Tools of whole-system tests: agents as real processes, a small HTTP client, waits with deadlines,
//! and reads of the mount table.
//!
//! All functions are synchronous: a test controls separate processes.

mod agent;
pub mod browser;
pub mod chaos;
mod cli;
pub mod cluster;
pub mod conformance;
mod engine;
mod http;
mod job;
pub mod linear;
mod mounts;
mod net;
mod servers;
mod space;
pub mod trace;
pub mod vm;
mod wait;
mod web;

pub use agent::{Agent, AgentOptions, free_port, free_ports};
pub use chaos::rng::Rng;
pub use cli::{
    Output, cargo, example_plugin, fault_plugin, guest, next_program, program, test_plugin, use_guest,
    use_program, use_test_plugin,
};
pub use engine::{ContainerEngine, EngineKind, Registry};
pub use http::{Call, Reply, request, request_over, send, send_and};
pub use job::{ForeignPlugin, Plugin, Writer, foreign_plugin_job, plugin_job, volume_spec, writer_job};
pub use mounts::{children, mounts_below, process_alive, start_time};
pub use net::{Host, Router, Switch};
pub use servers::Servers;
pub use space::Space;
pub use wait::{eventually, eventually_within};
pub use web::{Answer, Asked, Pair, WebServer};

/// Returns the path of a directory of the workspace.
pub fn workspace(path: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(path)
}
