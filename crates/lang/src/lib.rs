//! Small languages. Inside job files: [`constraint`] operators, [`version`] ranges, runtime [`interpolate`] of
//! `${name}`, the [`glob`] of datacenter names, and the times of [`cron`]; and the [`filter`] expressions of the HTTP
//! API.
//!
//! Everything works on text and knows nothing of jobs and nodes: what a name means is the caller's.

pub mod constraint;
pub mod cron;
pub mod filter;
pub mod glob;
pub mod interpolate;
pub mod regexp;
pub mod version;

pub use constraint::{Matcher, Operator, resolve};
pub use filter::{Filter, FilterError};
pub use interpolate::interpolate;
