//! The parts of a server that work for one leader term.
//!
//! A server that becomes leader creates new parts: their queues, deadlines and waits begin empty and are filled from
//! the state. A follower also has parts, whose writes fail with
//! [`ServerError::NotLeader`](crate::ServerError::NotLeader); the follower uses them to read.

use super::ServerConfig;
use crate::acl::AclConfig;
use crate::admin::Admin;
use crate::broker::Broker;
use crate::cluster::{Addresses, Cluster, NodePaths};
use crate::core::Core;
use crate::endpoint::{Jobs, Nodes};
use crate::heartbeat::{HeartbeatConfig, Heartbeats};
use crate::host_volume::HostVolumes;
use crate::locks::Locks;
use crate::lookups::Lookups;
use crate::plan::{Planner, PlannerService, RejectionConfig};
use crate::reasons::Mirror;
use crate::reports::Reports;
use crate::volume::{Claims, Controllers, Reconciler, UsageBook, Volumes};
use caravan_rpc::ReverseRegistry;
use caravan_volumes::lease::Lease;
use std::sync::Arc;

/// The settings and shared objects from which parts are created.
#[derive(Clone, Debug)]
pub(crate) struct Blueprint {
    /// The core without a term.
    pub(crate) core: Core,
    pub(crate) admin: Admin,
    pub(crate) paths: NodePaths,
    pub(crate) cluster: Cluster,
    pub(crate) usage: UsageBook,
    pub(crate) mirror: Mirror,
    pub(crate) addresses: Addresses,
    region: String,
    heartbeat: HeartbeatConfig,
    lease: Lease,
    rejections: RejectionConfig,
    calls_per_plugin: usize,
}

/// Parts that use one core; see the module.
#[derive(Debug)]
pub struct Parts {
    pub(crate) core: Core,
    pub(crate) admin: Arc<Admin>,
    pub(crate) locks: Locks,
    pub(crate) jobs: Jobs,
    pub(crate) nodes: Nodes,
    pub(crate) volumes: Volumes,
    pub(crate) host_volumes: HostVolumes,
    pub(crate) claims: Claims,
    pub(crate) usage: UsageBook,
    pub(crate) mirror: Mirror,
    pub(crate) lookups: Lookups,
    pub(crate) broker: Broker,
    pub(crate) planner: Planner,
    pub(crate) heartbeats: Heartbeats,
    pub(crate) cluster: Cluster,
}

impl Blueprint {
    pub(crate) fn new(
        core: Core,
        config: &ServerConfig,
        registry: ReverseRegistry,
        cluster: Cluster,
    ) -> Self {
        let reset_file =
            config.keyring.as_deref().and_then(|dir| Some(dir.parent()?.join(super::RESET_FILE)));
        let acl: AclConfig = config.acl;
        let admin = Admin::new(core.clone(), config.region.clone(), acl, config.issuer.clone());
        Self {
            core,
            admin: admin.with_reset_file(reset_file).in_region(cluster.authoritative() == &*cluster.region),
            paths: NodePaths::new(registry, cluster.clone()),
            cluster,
            usage: UsageBook::default(),
            mirror: Mirror::default(),
            addresses: Addresses::new(
                config.addresses.clone(),
                config.cluster.id,
                &config.region,
                config.cluster.directory.clone(),
            ),
            region: config.region.clone(),
            heartbeat: config.heartbeat,
            lease: config.lease,
            rejections: config.rejections,
            calls_per_plugin: config.volume_calls_per_plugin,
        }
    }

    /// Creates the parts of a follower: its writes fail with
    /// [`ServerError::NotLeader`](crate::ServerError::NotLeader).
    pub(crate) fn of_follower(&self) -> Arc<Parts> {
        self.parts(self.core.clone()).0
    }

    /// Creates the parts for a core. The service of the planner runs only during a leader term.
    pub(crate) fn parts(&self, core: Core) -> (Arc<Parts>, PlannerService) {
        let heartbeats = Heartbeats::new(core.clone(), self.heartbeat);
        let (planner, planner_service) = Planner::new(core.clone(), self.rejections);
        let controllers = Controllers::new(self.paths.clone(), self.calls_per_plugin);
        let reconciler = Reconciler::new(core.clone(), controllers.clone(), self.lease);
        let admin = self.admin.with_core(core.clone());
        let parts = Parts {
            lookups: Lookups { core: core.clone(), admin: admin.clone() },
            admin: Arc::new(admin),
            locks: Locks::new(core.clone()),
            jobs: Jobs { core: core.clone(), region: self.region.clone(), questions: Default::default() },
            nodes: Nodes {
                core: core.clone(),
                heartbeats: heartbeats.clone(),
                addresses: self.addresses.clone(),
                lease_ttl: self.lease.ttl,
                reports: Reports::new(core.clone()),
                region: self.region.clone(),
            },
            claims: Claims { core: core.clone(), waits: reconciler.waits.clone() },
            usage: self.usage.clone(),
            mirror: self.mirror.clone(),
            volumes: Volumes { core: core.clone(), reconciler },
            host_volumes: HostVolumes::new(core.clone(), controllers),
            broker: Broker::new(core.clone()),
            planner,
            heartbeats,
            cluster: self.cluster.clone(),
            core,
        };
        (Arc::new(parts), planner_service)
    }
}
