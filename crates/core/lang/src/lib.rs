//! Small languages. Job files use [`constraint`] operators, [`version`] ranges, [`interpolate`] for `${name}` at run
//! time, [`glob`] patterns for datacenter names, and [`cron`] schedules. The HTTP API uses [`filter`] expressions.
//!
//! All modules work on text, without jobs and nodes: the caller resolves names.

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
