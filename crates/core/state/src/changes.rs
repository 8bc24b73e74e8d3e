//! The changes of a command: the feed for brokers, streams and reconcilers.

use crate::root::Table;
use crate::tenancy::AdminRow;
use caravan_types::variable::VariableKey;
use caravan_types::volume::ClaimId;
use caravan_types::{
    AllocId, DeploymentId, EvalId, HostVolumeId, JobKey, NodeId, PluginId, ServiceId, UnixNanos, VolumeKey,
};

/// A row that a command wrote or removed. The newest snapshot has its content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Changed {
    /// The node was written.
    Node(NodeId),
    /// The node was removed.
    NodeRemoved(NodeId),
    /// Written.
    Job(JobKey),
    /// Removed.
    JobRemoved(JobKey),
    /// The counts derived from the job's allocations, evaluations and children may differ.
    JobSummary(JobKey),
    /// Written.
    Deployment(DeploymentId),
    /// Removed.
    DeploymentRemoved(DeploymentId),
    /// Written.
    Eval(EvalId),
    /// Removed.
    EvalRemoved(EvalId),
    /// Written.
    Alloc(AllocId),
    /// Removed.
    AllocRemoved(AllocId),
    /// Written.
    Volume(VolumeKey),
    /// Removed.
    VolumeRemoved(VolumeKey),
    /// Written.
    Claim(ClaimId),
    /// Removed.
    ClaimRemoved(ClaimId),
    /// Written.
    Plugin(PluginId),
    /// Removed.
    PluginRemoved(PluginId),
    /// Written.
    HostVolume(HostVolumeId),
    /// Removed.
    HostVolumeRemoved(HostVolumeId),
    /// The hold of a group on a host volume was written.
    HostClaim(String),
    /// Removed.
    HostClaimRemoved(String),
    /// Written.
    Variable(VariableKey),
    /// Removed.
    VariableRemoved(VariableKey),
    /// Written.
    Service(ServiceId),
    /// Removed.
    ServiceRemoved(ServiceId),
    /// An operator wrote the row.
    Admin(AdminRow),
    /// An operator removed the row.
    AdminRemoved(AdminRow),
    /// The scaling policies of a job changed.
    ScalingPolicies(JobKey),
    /// The scaling events of a job were written or removed.
    ScalingEvents(JobKey),
}

impl Changed {
    /// Returns the table of the row.
    pub fn table(&self) -> Table {
        match self {
            Self::Node(_) | Self::NodeRemoved(_) => Table::Nodes,
            Self::Job(_) | Self::JobRemoved(_) => Table::Jobs,
            Self::JobSummary(_) => Table::JobSummaries,
            Self::Deployment(_) | Self::DeploymentRemoved(_) => Table::Deployments,
            Self::Eval(_) | Self::EvalRemoved(_) => Table::Evals,
            Self::Alloc(_) | Self::AllocRemoved(_) => Table::Allocs,
            Self::Volume(_) | Self::VolumeRemoved(_) => Table::Volumes,
            Self::Claim(_) | Self::ClaimRemoved(_) => Table::Claims,
            Self::Plugin(_) | Self::PluginRemoved(_) => Table::Plugins,
            Self::HostVolume(_) | Self::HostVolumeRemoved(_) => Table::HostVolumes,
            Self::HostClaim(_) | Self::HostClaimRemoved(_) => Table::HostClaims,
            Self::Variable(_) | Self::VariableRemoved(_) => Table::Variables,
            Self::Service(_) | Self::ServiceRemoved(_) => Table::Services,
            Self::Admin(row) | Self::AdminRemoved(row) => row.table(),
            Self::ScalingPolicies(_) => Table::ScalingPolicies,
            Self::ScalingEvents(_) => Table::ScalingEvents,
        }
    }
}

/// All changes of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeSet {
    /// Index of the command.
    pub index: u64,
    /// The time at which its proposer decided; 0 after a restore.
    pub now: UnixNanos,
    /// Kind of the command ([`caravan_types::command::Change::kind`]), or [`ChangeSet::RESTORE`].
    pub kind: &'static str,
    /// Changed rows, each once, in a fixed order. Empty if the command was refused or changed nothing.
    pub changes: Vec<Changed>,
}

impl ChangeSet {
    /// The kind of the set that announces a replaced state: drop all derived data and read the state again.
    pub const RESTORE: &'static str = "Restore";

    /// Whether the whole state was replaced.
    pub fn is_restore(&self) -> bool {
        self.kind == Self::RESTORE
    }
}
