//! The routes over a server in this process, compared with recorded exchanges.

#[path = "http/access.rs"]
mod access;
#[path = "http/chores.rs"]
mod chores;
#[path = "http/clients.rs"]
mod clients;
#[path = "http/harness.rs"]
mod harness;
#[path = "http/hostile.rs"]
mod hostile;
#[path = "http/jobs.rs"]
mod jobs;
#[path = "http/nodes.rs"]
mod nodes;
#[path = "http/oidc.rs"]
mod oidc;
#[path = "http/problems.rs"]
mod problems;
#[path = "http/relays.rs"]
mod relays;
#[path = "http/rights.rs"]
mod rights;
#[path = "http/shape.rs"]
mod shape;
#[path = "http/state.rs"]
mod state;
#[path = "http/streams.rs"]
mod streams;
#[path = "http/tenants.rs"]
mod tenants;
#[path = "http/transport.rs"]
mod transport;
#[path = "http/variables.rs"]
mod variables;
#[path = "http/volumes.rs"]
mod volumes;
