//! The schema language of external drivers and devices (docs/reference/drivers.md, section 7).
//!
//! A plugin sends a schema, which another crate converts to a [`RawSpec`]. [`Spec::new`] checks it. [`decode`] reads a
//! configuration by it, and [`Value::to_msgpack`] encodes the result for the plugin.

mod decode;
mod problem;
mod spec;
mod types;
mod value;

#[cfg(test)]
mod tests;

pub use decode::decode;
pub use problem::Problem;
pub use spec::{Fault, MAX_DEPTH, RawSpec, Spec, SpecError};
pub use types::Type;
pub use value::Value;
