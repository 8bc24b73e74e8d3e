//! The tables of the job language (jobspec.md section 4).

mod finish;
mod group;
mod job;
mod mesh;
mod service;
mod task;

pub use self::job::{CONSTRAINT, JOB};
