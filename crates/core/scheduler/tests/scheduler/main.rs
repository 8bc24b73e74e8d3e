//! The scheduler over small clusters: its decisions and invariants.

mod devices;
mod disconnect;
mod explanations;
mod host_volumes;
mod jobs;
mod laws;
mod limits;
mod placing;
mod preemption;
mod properties;
mod rollouts;
mod script;
mod state;
mod volumes;
mod world;
