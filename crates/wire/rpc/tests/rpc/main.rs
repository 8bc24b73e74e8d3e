//! Tests calls over all kinds of channels: in process, over TCP, and over reverse connections.

mod support;

mod connections;
mod members;
mod same_everywhere;
