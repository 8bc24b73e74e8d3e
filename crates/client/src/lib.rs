//! A client agent: finds out what its node is and has, runs allocations under task drivers, serves CSI plugins
//! that run as tasks, and mounts their volumes.
//!
//! [`Client::new`] gives a [`Service`] that runs it and a [`Handle`] to ask it things. It reaches the servers
//! through [`Servers`] only, so that both sides may live in one process.
//!
//! What must survive the agent is written before it is acted on (`state`); what a user may wait for is said as
//! an event of the task; what is only decided is in pure modules (`restart`, `runner::lifecycle`,
//! `runner::status`, `csi::registry`, `csi::ledger`, `env`).

mod alloc_dir;
mod allocs;
mod ask;
mod client;
mod clock;
mod config;
mod contact;
mod cores;
mod csi;
mod drivers;
mod env;
mod error;
mod fingerprint;
pub mod fs;
mod host_volumes;
mod lease;
mod metadata;
mod node;
mod node_identity;
mod once;
mod reporter;
mod restart;
mod runner;
mod servers;
mod services;
mod state;
mod task_api;

pub use caravan_drivers::{ExecEvent, ExecInput, ExecRequest, ExecStream, ProcessUsage, Usage};
pub use client::{Client, Handle, Service};
pub use config::ClientConfig;
pub use csi::CsiFault;
pub use error::ClientError;
pub use fingerprint::{Neighbour, NeighbourKind, Neighbours, host_addresses};
pub use metadata::Metadata;
pub use servers::{Answers, RpcServers, Servers};
pub use services::ChecksSummary;
pub use state::state_at_rest;
pub use task_api::TaskApi;
