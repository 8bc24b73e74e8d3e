//! Admission of jobs: the checks of `caravan_admission`, and the checks against the state, which need the job's
//! namespace, node pool and volumes.
//!
//! Rules: docs/reference/jobspec.md, section 6, docs/reference/storage.md, sections 1.1, 4.1 and 4.2. Pure.

mod homes;
mod implied;
#[cfg(test)]
pub(crate) mod sample;
mod volumes;

pub use caravan_admission::{Problem, ProblemCode, Problems, Verdict, joined, joined_warnings};
pub(crate) use caravan_admission::{check_all, keep_origin, update};
pub(crate) use homes::{homes, localised};
pub(crate) use implied::imply;
pub(crate) use volumes::against;
