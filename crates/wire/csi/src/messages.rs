//! Requests and responses as plain Rust structs. Sizes are in bytes. An empty string or map means "not set", as on
//! the wire; optional messages of the interface are an `Option`.

pub(crate) mod controller;
pub(crate) mod identity;
pub(crate) mod node;
