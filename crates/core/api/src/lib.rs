//! The job as API clients send it: every scalar is optional, `null` differs from absent, durations are nanoseconds.
//!
//! Three steps, all pure: [`decode()`] reads a request body, [`canonicalize`] fills the defaults
//! (docs/reference/jobspec.md, sections 4 and 5), and the conversion in [`convert()`] creates the job that the
//! servers store. The job language (`caravan-hcl`) produces the same [`Job`].

mod canonical;
pub mod connect;
pub mod convert;
pub mod decode;
pub mod group;
pub mod job;
mod macros;
pub mod network;
pub mod policy;
mod problem;
pub mod service;
pub mod task;

pub use self::canonical::canonicalize;
pub use self::connect::*;
pub use self::convert::{ConvertError, Fault, Misfit, Misfits, Part, convert, fit};
pub use self::decode::{DecodeError, decode, from_owned, from_value};
pub use self::group::*;
pub use self::job::*;
pub use self::network::*;
pub use self::policy::*;
pub use self::problem::{ErrorReason, InvalidPath, JobPath, JobProblem, PathStep, REASON_HEADER, Severity};
pub use self::service::*;
pub use self::task::*;
pub use caravan_types::time::Nanos;

impl decode::ApiValue for Nanos {
    const TYPE: &'static str = "time.Duration";
    fn read(value: &serde_json::Value, at: &mut decode::Place) -> Result<Self, DecodeError> {
        value.as_i64().map(Self).ok_or_else(|| at.mismatch(value, Self::TYPE))
    }
}
