//! The RPC and API endpoints: users' requests about jobs, clients' requests about their nodes.

mod admit;
mod approve;
mod disks;
mod dispatch;
mod evals;
pub(crate) mod explain;
pub(crate) mod fault;
mod jobs;
mod node_changes;
mod nodes;
mod scaling;
mod services;
mod versions;

pub use crate::node_evals::NodeUpdated;
pub use admit::{AdmittedJob, JobDraft, Preserve};
pub use dispatch::{Dispatch, Dispatched};
pub use evals::Evals;
pub use fault::{EvalFault, JobFault, NodeFault, TaskFault};
pub use jobs::{JobPlanned, JobRegistered, JobSubmission, Jobs};
pub use node_changes::DrainRequest;
pub use nodes::Nodes;
pub use scaling::ScaleRequest;
