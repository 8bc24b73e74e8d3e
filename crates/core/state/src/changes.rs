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
    /// The job was written.
    Job(JobKey),
    /// The job was removed.
    JobRemoved(JobKey),
    /// The counts derived from the job's allocations, evaluations and children may differ.
    JobSummary(JobKey),
    /// The deployment was written.
    Deployment(DeploymentId),
    /// The deployment was removed.
    DeploymentRemoved(DeploymentId),
    /// The evaluation was written.
    Eval(EvalId),
    /// The evaluation was removed.
    EvalRemoved(EvalId),
    /// The allocation was written.
    Alloc(AllocId),
    /// The allocation was removed.
    AllocRemoved(AllocId),
    /// The volume was written.
    Volume(VolumeKey),
    /// The volume was removed.
    VolumeRemoved(VolumeKey),
    /// The claim was written.
    Claim(ClaimId),
    /// The claim was removed.
    ClaimRemoved(ClaimId),
    /// The plugin was written.
    Plugin(PluginId),
    /// The plugin was removed.
    PluginRemoved(PluginId),
    /// The host volume was written.
    HostVolume(HostVolumeId),
    /// The host volume was removed.
    HostVolumeRemoved(HostVolumeId),
    /// The hold of a group on a host volume was written.
    HostClaim(String),
    /// The hold of a group on a host volume was removed.
    HostClaimRemoved(String),
    /// The variable was written.
    Variable(VariableKey),
    /// The variable was removed.
    VariableRemoved(VariableKey),
    /// The service registration was written.
    Service(ServiceId),
    /// The service registration was removed.
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
    /// The index of the command.
    pub index: u64,
    /// The time at which the command's proposer decided; 0 after a restore.
    pub now: UnixNanos,
    /// The kind of the command ([`caravan_types::command::Change::kind`]), or [`ChangeSet::RESTORE`].
    pub kind: &'static str,
    /// The changed rows, each once, in a fixed order. Empty if the command was refused or changed nothing.
    pub changes: Vec<Changed>,
}

impl ChangeSet {
    /// The kind of the set that announces a replaced state. Receivers drop all derived data and read the state again.
    pub const RESTORE: &'static str = "Restore";

    /// Whether the whole state was replaced.
    pub fn is_restore(&self) -> bool {
        self.kind == Self::RESTORE
    }
}
