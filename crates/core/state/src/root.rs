//! The state as one immutable value.

use crate::index::Indexes;
use crate::staged::Staged;
use crate::tenancy::Tenancy;
use caravan_types::alloc::Allocation;
use caravan_types::command::JobSource;
use caravan_types::deployment::Deployment;
use caravan_types::eval::Evaluation;
use caravan_types::host_volume::{HostVolume, HostVolumeClaim};
use caravan_types::job::Job;
use caravan_types::node::Node;
use caravan_types::plugin::Plugin;
use caravan_types::scaling::ScalingEvent;
use caravan_types::service::ServiceRegistration;
use caravan_types::variable::{Variable, VariableKey};
use caravan_types::volume::{Claim, ClaimId, Volume};
use caravan_types::{
    AllocId, DeploymentId, EvalId, HostVolumeId, JobKey, NodeId, PluginId, ServiceId, UnixNanos, VolumeKey,
};
use imbl::OrdMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The scaling events of a job by group, newest first.
pub type ScalingEvents = BTreeMap<String, Vec<ScalingEvent>>;

/// A root that a reader may hold indefinitely.
pub type Snapshot = Arc<Root>;

/// The tables, each with the index of its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// The client agents.
    Nodes,
    /// The newest version of each job.
    Jobs,
    /// The kept versions of jobs.
    JobVersions,
    /// The submitted texts of jobs.
    Submissions,
    /// The derived counts of jobs; only the table's index is stored.
    JobSummaries,
    /// The evaluations of jobs.
    Evals,
    /// The allocations of groups.
    Allocs,
    /// The deployments of job versions.
    Deployments,
    /// The CSI volumes.
    Volumes,
    /// The claims on volumes.
    Claims,
    /// The CSI plugins.
    Plugins,
    /// The host volumes that users created.
    HostVolumes,
    /// The holds of groups on host volumes.
    HostClaims,
    /// The variables with their sealed items.
    Variables,
    /// The registered services.
    Services,
    /// The scaling policies of jobs; only the table's index is stored.
    ScalingPolicies,
    /// The scaling events of jobs.
    ScalingEvents,
    /// The times of the last children of periodic jobs.
    PeriodicLaunches,
    /// The namespaces of the region.
    Namespaces,
    /// The node pools of the region.
    NodePools,
    /// The policies of access control.
    AclPolicies,
    /// The tokens of access control.
    AclTokens,
    /// The roles of access control.
    AclRoles,
    /// The auth methods for logins.
    AuthMethods,
    /// The binding rules of auth methods.
    BindingRules,
    /// The one-time secrets of tokens.
    OneTimeTokens,
    /// The metadata of the root keys.
    RootKeys,
    /// The settings of the region.
    Settings,
}

impl Table {
    /// All tables, in the order of their discriminants.
    pub const ALL: [Self; 28] = [
        Self::Nodes,
        Self::Jobs,
        Self::JobVersions,
        Self::Submissions,
        Self::JobSummaries,
        Self::Evals,
        Self::Allocs,
        Self::Deployments,
        Self::Volumes,
        Self::Claims,
        Self::Plugins,
        Self::HostVolumes,
        Self::HostClaims,
        Self::Variables,
        Self::Services,
        Self::ScalingPolicies,
        Self::ScalingEvents,
        Self::PeriodicLaunches,
        Self::Namespaces,
        Self::NodePools,
        Self::AclPolicies,
        Self::AclTokens,
        Self::AclRoles,
        Self::AuthMethods,
        Self::BindingRules,
        Self::OneTimeTokens,
        Self::RootKeys,
        Self::Settings,
    ];

    /// Returns whether clients receive the index 1 for a table that was never written. For other tables they receive
    /// 0.
    ///
    /// Nomad raises the index of some of its lists, so that a client can wait with the index that it received.
    fn shows_one(self) -> bool {
        matches!(
            self,
            Self::HostVolumes
                | Self::HostClaims
                | Self::Variables
                | Self::Services
                | Self::ScalingPolicies
                | Self::Namespaces
                | Self::NodePools
                | Self::AclPolicies
                | Self::AclTokens
                | Self::AclRoles
                | Self::AuthMethods
                | Self::BindingRules
                | Self::RootKeys
        )
    }

    /// Returns the table's name in snapshots and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Jobs => "jobs",
            Self::JobVersions => "job_versions",
            Self::Submissions => "job_submissions",
            Self::JobSummaries => "job_summaries",
            Self::Evals => "evals",
            Self::Allocs => "allocs",
            Self::Deployments => "deployments",
            Self::Volumes => "volumes",
            Self::Claims => "claims",
            Self::Plugins => "plugins",
            Self::HostVolumes => "host_volumes",
            Self::HostClaims => "host_claims",
            Self::Variables => "variables",
            Self::Services => "services",
            Self::ScalingPolicies => "scaling_policies",
            Self::ScalingEvents => "scaling_events",
            Self::PeriodicLaunches => "periodic_launches",
            Self::Namespaces => "namespaces",
            Self::NodePools => "node_pools",
            Self::AclPolicies => "acl_policies",
            Self::AclTokens => "acl_tokens",
            Self::AclRoles => "acl_roles",
            Self::AuthMethods => "acl_auth_methods",
            Self::BindingRules => "acl_binding_rules",
            Self::OneTimeTokens => "one_time_tokens",
            Self::RootKeys => "root_keys",
            Self::Settings => "settings",
        }
    }
}

/// The whole state after the command of some index. Cloning is cheap: the maps share their nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Root {
    pub(crate) index: u64,
    /// The amount by which indexes of the state exceed indexes of the log. Zero until a snapshot with higher indexes
    /// is restored.
    pub(crate) ahead: u64,
    pub(crate) nodes: OrdMap<NodeId, Arc<Node>>,
    pub(crate) jobs: OrdMap<JobKey, Arc<Job>>,
    pub(crate) versions: OrdMap<(JobKey, u64), Arc<Job>>,
    pub(crate) submissions: OrdMap<(JobKey, u64), Arc<JobSource>>,
    pub(crate) evals: OrdMap<EvalId, Arc<Evaluation>>,
    pub(crate) allocs: OrdMap<AllocId, Arc<Allocation>>,
    pub(crate) deployments: OrdMap<DeploymentId, Arc<Deployment>>,
    pub(crate) volumes: OrdMap<VolumeKey, Arc<Volume>>,
    pub(crate) claims: OrdMap<ClaimId, Arc<Claim>>,
    pub(crate) plugins: OrdMap<PluginId, Arc<Plugin>>,
    pub(crate) host_volumes: OrdMap<HostVolumeId, Arc<HostVolume>>,
    pub(crate) host_claims: OrdMap<String, Arc<HostVolumeClaim>>,
    pub(crate) variables: OrdMap<VariableKey, Arc<Variable>>,
    pub(crate) services: OrdMap<ServiceId, Arc<ServiceRegistration>>,
    pub(crate) scaling_events: OrdMap<JobKey, Arc<ScalingEvents>>,
    pub(crate) periodic_launches: OrdMap<JobKey, UnixNanos>,
    pub(crate) tenancy: Tenancy,
    /// The parts of a snapshot that is being restored.
    pub(crate) staged: Option<Arc<Staged>>,
    pub(crate) secondary: Indexes,
    pub(crate) table_index: [u64; Table::ALL.len()],
}

impl Root {
    /// The number of kept versions of a job; tagged versions do not count (docs/reference/http-api.md, section 6.4).
    pub const KEPT_VERSIONS: usize = 6;

    /// Returns the index of the last applied command; 0 before the first.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Returns the index in the state of a command at an index of the log.
    ///
    /// A snapshot can be restored in a new cluster, whose log is short. Indexes of the state never decrease. A client
    /// that waits for a change after index 5000 must not wait until the new log has 5000 entries.
    pub fn index_of(&self, log_index: u64) -> u64 {
        log_index + self.ahead
    }

    /// Returns the received bytes of a snapshot whose restore has begun and not ended.
    pub fn restore_size(&self) -> usize {
        self.staged.as_ref().map_or(0, |staged| staged.size())
    }

    /// Returns the index of a table's last change in the form that clients receive.
    ///
    /// The index of a table that was never written is 0, or 1 for the tables of [`Table::shows_one`], as in Nomad.
    /// Clients raise 0 themselves before they wait with it.
    pub fn table_index(&self, table: Table) -> u64 {
        self.written_index(table).max(u64::from(table.shows_one()))
    }

    /// Returns the index of a table's last change, 0 before the first one.
    pub fn written_index(&self, table: Table) -> u64 {
        self.table_index[table as usize]
    }

    /// Returns the highest index of several tables.
    pub fn tables_index(&self, tables: &[Table]) -> u64 {
        tables.iter().map(|t| self.table_index(*t)).max().unwrap_or(0)
    }
}
