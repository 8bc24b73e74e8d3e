//! A client agent: fingerprints its node, runs allocations under task drivers, serves CSI plugins that run as tasks,
//! and mounts their volumes.
//!
//! [`Client::connect`] returns a [`Service`] that runs the client and a [`Handle`] for requests. The client reaches the
//! servers through [`Servers`] only, so that both sides may run in one process.
//!
//! State that must survive the agent is written before the client acts on it (`state`). Waits that users may notice are
//! reported as events of the task. Pure modules make the decisions (`restart`, `runner::lifecycle`, `runner::status`,
//! `csi::registry`, `csi::ledger`, `env`).

mod alloc_dir;
mod allocs;
mod ask;
mod client;
mod clock;
mod config;
mod contact;
mod cores;
mod csi;
mod devices;
mod drivers;
mod dynamic_users;
mod env;
mod error;
mod fingerprint;
pub mod fs;
mod groups;
mod host_volumes;
mod lease;
mod metadata;
mod networks;
mod node;
mod node_identity;
mod reporter;
mod restart;
mod runner;
mod servers;
mod services;
mod state;
mod task_api;

pub use caravan_drivers::{
    Error as DriverError, ExecEvent, ExecInput, ExecRequest, ExecStream, Pressure, ProcessUsage, Usage,
};
pub use caravan_networks::{BridgeConfig, ConfigFault as BridgeConfigFault};
pub use client::{Client, Handle, Service};
pub use config::{AddressFamily, ClientConfig};
pub use csi::CsiFault;
pub use error::ClientError;
pub use fingerprint::{Neighbour, NeighbourKind, Neighbours, go_arch, host_addresses, interface_addresses};
pub use metadata::Metadata;
pub use servers::{Answers, KnownServers, RpcServers, Servers};
pub use services::ChecksSummary;
pub use state::state_at_rest;
pub use task_api::TaskApi;
