//! Running allocations: [`alloc`] runs a whole allocation with its hooks, [`task`] each task. The pure modules
//! [`lifecycle`] and [`status`] decide.

mod alloc;
mod alloc_state;
mod artifacts;
mod binds;
mod broken;
mod cores_hook;
mod csi_hook;
mod devices_hook;
mod disk;
mod driver_network;
mod fence;
mod fresh;
mod health;
mod hooks;
mod host_hook;
mod identity;
mod lifecycle;
mod names;
mod network;
mod payload;
mod plan;
#[cfg(test)]
mod race_tests;
mod service_inputs;
mod sockets;
mod status;
mod task;
mod task_hooks;
mod templates;
mod time_limit;
mod unpack;
mod unveil;
pub(crate) mod users;

pub(crate) use alloc::{AllocRunner, RunnerParts};
pub(crate) use alloc_state::{AllocState, Outlets, Stage};
pub(crate) use binds::Sources;
pub(crate) use csi_hook::claims;
pub(crate) use disk::FindAlloc;
pub(crate) use driver_network::DriverNetworks;
pub(crate) use fence::Fence;
pub(crate) use network::{DIR as NETWORKS, sweep};
pub(crate) use plan::{Planner, Site};
pub(crate) use task::TaskHookParts;
pub(crate) use unveil::sweep as sweep_unveiled;
