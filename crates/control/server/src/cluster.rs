//! This server's part in a cluster of servers: its identity, its channels to the others, and the voters.
//!
//! The member table ([`Directory`]) finds servers, and the log alone decides which of them vote. A server belongs to
//! one cluster permanently: it founds the cluster, alone or together with others ([`founder`]), or the leader admits
//! it ([`voters`]). Servers are identified by their UUID and their number in the log; addresses are hints.

mod addresses;
mod channels;
mod directory;
mod founder;
mod health;
mod inbound;
pub(crate) mod leader;
mod leave;
mod nodes;
mod promise;
mod regions;
mod removals;
mod transport;
mod voters;

pub use channels::{Foreign, Lane, PeerChannels, RpcChannels};
pub use directory::{Directory, NoDirectory};
pub use health::{AutopilotHealth, ServerHealth};
pub use leave::{MembershipFault, Transferred};
pub use regions::RegionFault;

pub(crate) use addresses::Addresses;
pub(crate) use founder::{Founder, peer};
pub(crate) use health::HealthBook;
pub(crate) use leader::{LEADER_TIMEOUT, Origin, Place};
pub(crate) use leave::Named;
pub(crate) use nodes::{NodePaths, PATH_TIMEOUT};
pub(crate) use promise::Promises;
pub(crate) use removals::Removals;
pub(crate) use transport::Transport;
pub(crate) use voters::Voters;

use crate::error::ServerError;
use crate::keyring::Keyring;
use crate::replication::StatusBook;
use crate::runtime;
use caravan_consensus::{ClusterId, Identity};
use caravan_rpc::{Credential, ServerSide};
use caravan_types::acl::Secret;
use std::path::PathBuf;
use std::sync::Arc;
use uuid::Uuid;

/// The highest feature level of commands that this version reads. A command of a higher level is proposed only once
/// every server of the cluster supports its level.
pub const FEATURE_LEVEL: u32 = 1;

/// The settings of a server as a part of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The server's UUID.
    pub id: Uuid,
    /// The server's name, without the region.
    pub name: String,
    /// The feature level of the program: [`FEATURE_LEVEL`], except in tests of upgrades.
    pub level: u32,
    /// The number of servers that found the cluster (`bootstrap_expect`): 0 waits for an admission, 1 founds alone.
    pub expect: usize,
    /// The directory of the promise to found a cluster; `None`: in memory.
    pub dir: Option<PathBuf>,
    /// The identity that this server presents to others; it receives the credential of the cluster.
    pub own: ServerSide,
    /// The channels to other servers.
    pub channels: Arc<dyn PeerChannels>,
    /// The member table.
    pub directory: Arc<dyn Directory>,
    /// The settings of the replication between regions.
    pub replication: ReplicationConfig,
}

/// The settings of the replication between regions.
#[derive(Clone, Debug, Default)]
pub struct ReplicationConfig {
    /// The authoritative region (`authoritative_region`); empty: the server's own.
    pub authoritative: String,
    /// The management token of the authoritative region with which this server reads policies, roles and tokens there
    /// (`replication_token`).
    pub token: Secret,
}

impl ClusterConfig {
    /// Returns the settings of a server that runs alone, with a new UUID.
    pub fn alone(name: impl Into<String>) -> Self {
        let id = runtime::random_uuid();
        Self {
            id,
            name: name.into(),
            level: FEATURE_LEVEL,
            expect: 1,
            dir: None,
            own: ServerSide { id: id.to_string(), ..ServerSide::default() },
            channels: Arc::new(channels::NoChannels),
            directory: Arc::new(NoDirectory::default()),
            replication: ReplicationConfig::default(),
        }
    }
}

/// The parts of a server that concern the cluster; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) config: Arc<ClusterConfig>,
    pub(crate) region: Arc<str>,
    pub(crate) log: caravan_consensus::Handle,
    pub(crate) keyring: Keyring,
    pub(crate) promises: Promises,
    pub(crate) health: HealthBook,
    /// The status of the replication from the authoritative region.
    pub(crate) replication: StatusBook,
    /// The servers that an operator removed a short while ago.
    pub(crate) removals: Removals,
}

impl Cluster {
    /// Returns this server's place in the log.
    pub(crate) fn identity(&self) -> Identity {
        self.log.identity()
    }

    /// Creates the cluster's id and key on a server that leads its cluster alone, unless they exist. A server that
    /// waits for a cluster uses the credential of its promise.
    pub(crate) async fn settle(&self) -> Result<(), ServerError> {
        let identity = self.identity();
        match (identity.cluster, identity.number) {
            (Some(cluster), Some(number)) => {
                self.make_key()?;
                self.show(cluster, number.0);
            }
            (None, Some(number)) => {
                let cluster = ClusterId(runtime::random_uuid());
                self.make_key()?;
                self.log.admit(cluster, number).await?;
                self.show(cluster, number.0);
            }
            _ => {
                if let Some(promised) = self.promises.promised() {
                    let number = promised.promise.founding.number(self.promises.server());
                    let cluster = promised.promise.founding.cluster.0.to_string();
                    let number = number.unwrap_or_default();
                    self.config.own.credential.set(Credential::new(cluster, number, *promised.key.expose()));
                }
            }
        }
        Ok(())
    }

    /// Creates the key of the cluster on the only server of a cluster that has none.
    fn make_key(&self) -> Result<(), ServerError> {
        if self.keyring.cluster_key().is_none() {
            if self.log.metrics().voters > 1 {
                return Err(crate::keyring::KeyringFault::NoClusterKey.into());
            }
            self.keyring.make_cluster_key()?;
        }
        Ok(())
    }

    /// Announces the identity to connections and to the member table.
    pub(crate) fn show(&self, cluster: ClusterId, number: u64) {
        if let Some(key) = self.keyring.cluster_key() {
            self.config.own.credential.set(Credential::new(cluster.0.to_string(), number, *key.expose()));
        }
        self.config.directory.announce(cluster.0, number);
    }
}
