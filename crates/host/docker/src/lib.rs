//! The docker driver: each task is a container of a Docker engine, or of podman's compatible service.
//!
//! The engine keeps containers running while the agent is away. The driver finds them again by their id, and
//! containers whose handle was lost by their name and labels.

// A test has a config with all keys in one json!.
#![cfg_attr(test, recursion_limit = "256")]

mod auth;
mod config;
mod connection;
mod container;
mod ctr_log;
mod dangling;
mod driver;
mod engine;
mod exec;
mod fingerprint;
mod guard;
mod image;
mod images;
mod logs;
mod measure;
mod network;
mod options;
mod running;
mod start;
mod tasks;
mod watch;

pub use config::Logging;
pub use driver::DockerDriver;
pub use options::{AllowedModes, AuthOptions, Dangling, DockerOptions, Gc, Tls};

/// The driver's name.
const NAME: &str = "docker";
