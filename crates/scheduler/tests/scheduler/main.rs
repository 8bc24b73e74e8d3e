//! The scheduler over small clusters: what it decides, and what always holds.

mod disconnect;
mod explanations;
mod host_volumes;
mod jobs;
mod placing;
mod properties;
mod rollouts;
mod state;
mod volumes;
mod world;
