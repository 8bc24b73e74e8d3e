//! What others call: users about jobs, clients about their nodes.

mod jobs;
mod nodes;

pub(crate) use jobs::Jobs;
pub use jobs::{JobPlanned, JobRegistered, JobSubmission};
pub(crate) use nodes::Nodes;
