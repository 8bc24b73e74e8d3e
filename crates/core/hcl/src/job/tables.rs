//! The tables of the job language (docs/reference/jobspec.md, section 4).

mod file;
mod finish;
mod group;
mod job;
mod mesh;
mod service;
mod task;

pub use self::file::{FILE, VALIDATION, VARIABLE};
pub use self::job::{CONSTRAINT, JOB};
