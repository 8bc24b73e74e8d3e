//! Requests and answers in plain Rust. Sizes are bytes; an empty string or map means "not given", as on
//! the wire; what the interface makes optional is an `Option`.

pub(crate) mod controller;
pub(crate) mod identity;
pub(crate) mod node;
