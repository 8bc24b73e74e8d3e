//! The servers' side: broker, workers, planner, heartbeats, the volume reconciler, and the endpoints for clients and
//! users.
//!
//! Pure code makes the decisions: `caravan-scheduler`, `caravan-volumes`, and the modules here that are marked as
//! pure. The rest executes them: it reads a snapshot, decides, and proposes a command.

mod absence;
mod acl;
mod admin;
mod admission;
mod aging;
mod attempt;
mod broker;
mod cluster;
mod core;
mod deployment;
mod documents;
mod drain;
mod endpoint;
mod error;
mod gc;
mod heartbeat;
mod host_volume;
mod jwks;
mod keyring;
mod locks;
mod lookups;
mod node_evals;
mod node_identity;
mod outbound;
mod periodic;
mod plan;
#[cfg(feature = "simulation")]
mod plant;
mod pool;
#[cfg(test)]
mod proof_tests;
mod reasons;
mod replication;
mod reports;
mod runtime;
mod secrets;
mod selector;
mod server;
mod storage;
mod variables;
mod volume;
mod ways_back;
mod worker;

pub use acl::{Acl, AclConfig, Caller, Denied, HostVolumeCap, Level, NsCap, PoolCap, VarCap, Workload};
pub use acl::{RulesError, parse as parse_rules};
pub use admin::{Admin, Introduction, OidcBegin, OidcDone, SnapshotKeys};
pub use admission::{Problem, ProblemCode, Problems, Verdict, joined, joined_warnings};
pub use attempt::attempt;
pub use broker::{BrokerDepth, QueueFigures};
pub use cluster::{
    AutopilotHealth, ClusterConfig, Directory, FEATURE_LEVEL, Foreign, Lane, MembershipFault, NoDirectory,
    PeerChannels, RegionFault, ReplicationConfig, RpcChannels, ServerHealth, Transferred,
};
pub use deployment::{DeploymentRequest, DeploymentUpdated, Deployments};
pub use endpoint::{
    AdmittedJob, Dispatch, Dispatched, DrainRequest, Evals, JobDraft, JobPlanned, JobRegistered,
    JobSubmission, Jobs, NodeUpdated, Nodes, Preserve, ScaleRequest,
};
pub use error::{Kind, ServerError};
pub use gc::{Ages, GcConfig};
pub use heartbeat::HeartbeatConfig;
pub use plan::RejectionConfig;
#[cfg(feature = "simulation")]
pub use plant::{Plant, Written, plant, take_written};
pub use pool::{MAX_WORKERS, Scheduler, UnknownScheduler, Workers, WorkersError};
pub use reasons::ReasonChanges;
pub use replication::{ReplicationState, ReplicationStatus};
pub use server::{
    ClusterMember, ClusterRequests, Handle, LeaderPlace, NoPath, Scheduling, ServerConfig, Service,
};
pub use storage::{HostVolumeRequests, SnapshotRequests, VariableRequests, VolumeRequests};
pub use variables::VariableWritten;
pub use volume::{CALLS_PER_PLUGIN, CallFigures, LaneUse, VolumeFigures};
