//! The RPC and API endpoints: users' requests about jobs, clients' requests about their nodes.

mod admit;
mod approve;
mod disks;
mod dispatch;
mod evals;
pub(crate) mod explain;
mod jobs;
mod node_changes;
mod nodes;
mod scaling;
mod services;
mod versions;

pub use crate::node_evals::NodeUpdated;
pub use admit::{AdmittedJob, JobDraft, Preserve};
pub use dispatch::{Dispatch, Dispatched};
pub(crate) use jobs::Jobs;
pub use jobs::{JobPlanned, JobRegistered, JobSubmission};
pub use node_changes::DrainRequest;
pub(crate) use nodes::Nodes;
pub use scaling::ScaleRequest;
