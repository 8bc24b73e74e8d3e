//! Tests calls over all kinds of channels: in process, over TCP, and over reverse connections.

#[path = "rpc/support.rs"]
mod support;

#[path = "rpc/connections.rs"]
mod connections;
#[path = "rpc/same_everywhere.rs"]
mod same_everywhere;
