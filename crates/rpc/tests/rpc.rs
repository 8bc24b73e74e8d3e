//! Calls in all the ways they can go: in process, over TCP, and back over a client's connection.

#[path = "rpc/support.rs"]
mod support;

#[path = "rpc/connections.rs"]
mod connections;
#[path = "rpc/same_everywhere.rs"]
mod same_everywhere;
