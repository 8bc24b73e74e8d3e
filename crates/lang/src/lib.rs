//! Small languages inside job files: [`constraint`] operators, [`version`] ranges, runtime
//! [`interpolate`] of `${name}`, and the [`glob`] of datacenter names.
//!
//! Everything works on text and knows nothing of jobs and nodes: what a name means is the caller's.

pub mod constraint;
pub mod glob;
pub mod interpolate;
pub mod version;

pub use constraint::{Matcher, Operator, resolve};
pub use interpolate::interpolate;
