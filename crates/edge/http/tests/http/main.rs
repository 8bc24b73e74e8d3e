//! The routes over a server in this process, compared with recorded exchanges.

mod access;
mod caravan;
mod chores;
mod clients;
mod events;
mod harness;
mod hostile;
mod jobs;
mod lists;
mod nodes;
mod oidc;
mod problems;
mod relays;
mod rights;
mod shape;
mod state;
mod streams;
mod tenants;
mod transport;
mod variables;
mod volumes;
