//! Tests of calls over all kinds of channels: in process, over TCP, and over reverse connections.

mod support;

mod connections;
mod exchange;
mod members;
mod same_everywhere;
