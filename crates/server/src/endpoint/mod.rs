//! What others call: users about jobs, clients about their nodes.

mod jobs;
mod node_changes;
mod nodes;
mod scaling;

pub(crate) use jobs::Jobs;
pub use jobs::{JobPlanned, JobRegistered, JobSubmission};
pub use node_changes::{DrainRequest, NodeUpdated};
pub(crate) use nodes::Nodes;
pub use scaling::ScaleRequest;
