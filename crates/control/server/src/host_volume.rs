//! Host volumes that users create on nodes: the commands, and the resumption of interrupted commands.
//!
//! A command writes its intent before it calls the node, and the outcome afterwards. The leader resumes intents
//! without an owner, so that an interrupted command results in one directory and one record.

mod busy;
pub(crate) mod fault;
mod resume;
mod spec;

pub use fault::HostVolumeFault;

use crate::core::{Core, new_id};
use crate::error::ServerError;
use crate::volume::Controllers;
use busy::Busy;
use caravan_messages::{self as messages, HostVolumeCreated};
use caravan_rpc::{Code, RpcError, methods};
use caravan_state::Root;
use caravan_types::command::{Change, Refusal};
use caravan_types::host_volume::{HostVolume, HostVolumeIntent, HostVolumeSpec, HostVolumeState};
use caravan_types::node::NodeStatus;
use caravan_types::{AllocId, HostVolumeId, Namespace, NodeId};
use fault::{Call, Holder};
use std::slice;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// Timeout of a command's wait for another command on the same volume.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a call to a node that creates or deletes a volume. The plugin itself has one minute.
const NODE_DEADLINE: Duration = Duration::from_secs(75);
/// Maximum number of attempts to write a row that other writers keep changing.
const WRITE_TRIES: usize = 16;

/// The service for the users' requests about host volumes; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct HostVolumes {
    core: Core,
    nodes: Controllers,
    busy: Busy,
    /// Ownership of volumes by commands in progress.
    pub(crate) commands: TaskTracker,
}

/// The result of a call to a node.
#[derive(Debug)]
enum Called {
    Made(HostVolumeCreated),
    /// The call was certainly not executed.
    Refused(RpcError),
    /// The call may have been executed, or may still be.
    Unknown(RpcError),
}

impl Called {
    fn from_result(result: Result<HostVolumeCreated, RpcError>) -> Self {
        match result {
            Ok(made) => Self::Made(made),
            Err(error) if refuses(error.code) => Self::Refused(error),
            Err(error) => Self::Unknown(error),
        }
    }
}

fn refuses(code: Code) -> bool {
    matches!(code, Code::NoPath | Code::Invalid | Code::NotFound | Code::Permission | Code::Conflict)
}

impl HostVolumes {
    pub(crate) fn new(core: Core, nodes: Controllers) -> Self {
        Self { core, nodes, busy: Busy::default(), commands: TaskTracker::new() }
    }

    /// Returns the row of a specification, with its namespace filled in and checked.
    fn read(&self, namespace: &Namespace, mut spec: HostVolumeSpec) -> Result<HostVolume, ServerError> {
        if spec.namespace.is_empty() {
            spec.namespace = namespace.to_string();
        }
        let volume = spec::parse(&spec)?;
        if self.core.snapshot().namespace(&volume.namespace).is_none() {
            return Err(HostVolumeFault::NoNamespace(volume.namespace).into());
        }
        Ok(volume)
    }

    /// Creates a volume by its plugin on a node, or updates the volume whose id the specification contains.
    pub(crate) async fn create(
        &self,
        namespace: &Namespace,
        spec: HostVolumeSpec,
    ) -> Result<Arc<HostVolume>, ServerError> {
        let mut volume = self.read(namespace, spec)?;
        if !volume.id.is_empty() {
            return self.update(volume, false).await;
        }
        volume.host_path.clear();
        volume.capacity_bytes = 0;
        volume.id = new_id().into();
        spec::default_capabilities(&mut volume);
        if volume.plugin_id.is_empty() {
            HostVolume::DEFAULT_PLUGIN.clone_into(&mut volume.plugin_id);
        }
        let _own = self.own(&volume.id).await?;
        let (row, index) = self.intend_new(volume, true).await?;
        self.carry_out(row, index, None).await
    }

    /// Registers an existing directory.
    pub(crate) async fn register(
        &self,
        namespace: &Namespace,
        spec: HostVolumeSpec,
    ) -> Result<Arc<HostVolume>, ServerError> {
        let mut volume = self.read(namespace, spec)?;
        for (field, missing) in
            [("node ID", volume.node_id.is_empty()), ("host path", volume.host_path.is_empty())]
        {
            if missing {
                return Err(HostVolumeFault::Missing(field).into());
            }
        }
        if !volume.id.is_empty() {
            return self.update(volume, true).await;
        }
        volume.id = new_id().into();
        volume.plugin_id.clear();
        spec::default_capabilities(&mut volume);
        let _own = self.own(&volume.id).await?;
        let (row, index) = self.intend_new(volume, false).await?;
        self.carry_out(row, index, None).await
    }

    async fn own(&self, id: &HostVolumeId) -> Result<busy::Own, ServerError> {
        let own = self.busy.for_command(id, QUEUE_TIMEOUT).await;
        Ok(own.ok_or_else(|| HostVolumeFault::Busy(id.clone()))?)
    }

    /// Chooses the node and writes the intent. If the name was taken on that node meanwhile, chooses another node.
    async fn intend_new(&self, volume: HostVolume, place: bool) -> Result<(HostVolume, u64), ServerError> {
        for _ in 0..WRITE_TRIES {
            let root = self.core.snapshot();
            let mut row = HostVolume { intent: HostVolumeIntent::Create, ..volume.clone() };
            spec::locate(&root, &mut row)?;
            if place {
                let node = spec::place(&root, &row)?;
                row.node_id = node.id.clone();
                row.node_pool = node.node_pool.clone();
            } else if root.node(&row.node_id).is_some_and(|node| spec::has_name(&root, node, &row)) {
                return Err(HostVolumeFault::NameTaken.into());
            }
            if let Some(index) = self.write(row.clone(), 0).await? {
                return Ok((row, index));
            }
        }
        Err(HostVolumeFault::NodesChange(volume.name).into())
    }

    async fn update(&self, supplied: HostVolume, register: bool) -> Result<Arc<HostVolume>, ServerError> {
        let id = supplied.id.clone();
        let _own = self.own(&id).await?;
        for _ in 0..WRITE_TRIES {
            let root = self.core.snapshot();
            let current = find(&root, &supplied.namespace, &id)
                .ok_or_else(|| HostVolumeFault::NothingToUpdate(id.clone()))?;
            let users: Vec<_> = root.host_volume_users(current).collect();
            let mut row = spec::merge(current, supplied.clone(), &users)?;
            let made_by_plugin = !current.plugin_id.is_empty();
            if made_by_plugin {
                // The plugin decides on the path.
                row.host_path.clone_from(&current.host_path);
            }
            // An update that only changes the description of a plugin's volume does not concern the node.
            let concerns_node = !(register && made_by_plugin);
            if concerns_node {
                row.intent = HostVolumeIntent::Create;
            }
            let Some(index) = self.write(row.clone(), current.modify_index).await? else { continue };
            if !concerns_node {
                return self.row(&id);
            }
            return self.carry_out(row, index, Some(current)).await;
        }
        Err(HostVolumeFault::Changes(id.clone()).into())
    }

    /// Executes the intent on the node, and records the outcome. `before` is the previous row; `None` for a new
    /// volume.
    async fn carry_out(
        &self,
        row: HostVolume,
        index: u64,
        before: Option<&Arc<HostVolume>>,
    ) -> Result<Arc<HostVolume>, ServerError> {
        // A report of the node meanwhile changes the index, but not the intent.
        debug_assert!(index > 0, "the intent was written");
        let (id, call) =
            (row.id.clone(), if row.plugin_id.is_empty() { Call::Register } else { Call::Create });
        match self.call_create(&row).await {
            Called::Made(made) => {
                self.change(&id, |row| settle(row, &made)).await?;
                self.row(&id)
            }
            Called::Refused(error) => {
                match before {
                    None => {
                        let namespace = row.namespace.clone();
                        let change = Change::HostVolumeDelete { namespace, id, force: true };
                        self.core.commit(change).await?;
                    }
                    Some(before) => {
                        self.change(&id, |row| {
                            let state = row.state;
                            *row = HostVolume { state, ..HostVolume::clone(before) };
                        })
                        .await?;
                    }
                }
                Err(HostVolumeFault::Call { call, error }.into())
            }
            Called::Unknown(error) => {
                self.change(&id, |row| row.last_error.clone_from(&error.message)).await?;
                Err(HostVolumeFault::Retried { call, error, volume: id }.into())
            }
        }
    }

    /// Waits for the connection of a node for a short time, unless the node is down.
    async fn wait_for(&self, node: &NodeId) {
        let status = self.core.snapshot().node(node).map(|node| node.status);
        if matches!(status, Some(NodeStatus::Initializing | NodeStatus::Ready)) {
            self.nodes.wait_for(slice::from_ref(node)).await;
        }
    }

    /// Asks the node to create, update or register a volume.
    async fn call_create(&self, row: &HostVolume) -> Called {
        let (node, volume) = (&row.node_id, row.clone());
        self.wait_for(node).await;
        if row.plugin_id.is_empty() {
            let made =
                HostVolumeCreated { host_path: row.host_path.clone(), capacity_bytes: row.capacity_bytes };
            let call = messages::HostVolumeRegister { volume };
            let done = self.nodes.node::<methods::HostVolumeRegister>(node, call, NODE_DEADLINE).await;
            return Called::from_result(done.map(|_| made));
        }
        let call = messages::HostVolumeCreate { volume };
        Called::from_result(self.nodes.node::<methods::HostVolumeCreate>(node, call, NODE_DEADLINE).await)
    }

    /// Asks the node to delete a volume.
    async fn call_delete(&self, row: &HostVolume) -> Called {
        let call = messages::HostVolumeDelete { volume: row.clone() };
        let done = self.nodes.node::<methods::HostVolumeDelete>(&row.node_id, call, NODE_DEADLINE).await;
        Called::from_result(done.map(|_| HostVolumeCreated::default()))
    }

    /// Deletes a volume by its plugin on its node, then its row. Returns the index.
    pub(crate) async fn delete(
        &self,
        namespace: &Namespace,
        id: &HostVolumeId,
        force: bool,
    ) -> Result<u64, ServerError> {
        let _own = self.own(id).await?;
        let node = find(&self.core.snapshot(), namespace, id).map(|row| row.node_id.clone());
        if let Some(node) = node {
            // With `force`, a node without a connection keeps its directory.
            self.wait_for(&node).await;
        }
        for _ in 0..WRITE_TRIES {
            let root = self.core.snapshot();
            let row = find(&root, namespace, id).ok_or_else(|| HostVolumeFault::NotFound(id.clone()))?;
            let status = root.node(&row.node_id).map(|node| node.status);
            let gone = status.is_none_or(|status| status == NodeStatus::Down);
            if !(gone && force) {
                unused(&root, row)?;
            }
            if status.is_none() || self.nodes.nodes.get(row.node_id.as_str()).is_err() {
                if !force {
                    return Err(HostVolumeFault::UnknownNode.into());
                }
                return self.remove_row(row, true).await;
            }
            let doomed = HostVolume { intent: HostVolumeIntent::Delete, ..HostVolume::clone(row) };
            if self.write(doomed.clone(), row.modify_index).await?.is_none() {
                continue;
            }
            return match self.call_delete(&doomed).await {
                Called::Made(_) => self.remove_row(row, false).await,
                Called::Refused(error) => {
                    let (intent, last_error) = (row.intent, row.last_error.clone());
                    self.change(id, |row| {
                        row.intent = intent;
                        row.last_error.clone_from(&last_error);
                    })
                    .await?;
                    Err(HostVolumeFault::Call { call: Call::Delete, error }.into())
                }
                Called::Unknown(error) => {
                    self.change(id, |row| row.last_error.clone_from(&error.message)).await?;
                    Err(HostVolumeFault::DeletedLater { error, volume: id.clone() }.into())
                }
            };
        }
        Err(HostVolumeFault::Changes(id.clone()).into())
    }

    async fn remove_row(&self, row: &HostVolume, force: bool) -> Result<u64, ServerError> {
        let (namespace, id) = (row.namespace.clone(), row.id.clone());
        self.core.commit(Change::HostVolumeDelete { namespace, id, force }).await
    }

    /// Removes the hold of a group on a volume. Returns the index.
    pub(crate) async fn delete_claim(&self, id: &str) -> Result<u64, ServerError> {
        let outcome = self.core.propose(Change::HostClaimDelete { id: id.to_owned() }).await?;
        match outcome.refused {
            None => Ok(outcome.index),
            Some(Refusal::NotFound { .. }) => Err(HostVolumeFault::NoClaim.into()),
            Some(refusal) => Err(refusal.into()),
        }
    }

    fn row(&self, id: &HostVolumeId) -> Result<Arc<HostVolume>, ServerError> {
        let found = self.core.snapshot().host_volume(id).cloned();
        Ok(found.ok_or_else(|| HostVolumeFault::Deleted(id.clone()))?)
    }

    /// Writes a row if it has not changed since; returns the index, or `None` if it has changed.
    async fn write(&self, volume: HostVolume, expect: u64) -> Result<Option<u64>, ServerError> {
        let change = Change::HostVolumeWrite { volume: Box::new(volume), expect_modify_index: expect };
        let outcome = self.core.propose(change).await?;
        match outcome.refused {
            None => Ok(Some(outcome.index)),
            Some(Refusal::Changed { .. } | Refusal::NotFound { .. } | Refusal::VolumeInUse { .. }) => {
                Ok(None)
            }
            Some(refusal) => Err(refusal.into()),
        }
    }

    /// Changes the newest row, because a report of its node also changes the row, and may arrive at any time.
    async fn change(&self, id: &HostVolumeId, change: impl Fn(&mut HostVolume)) -> Result<(), ServerError> {
        for _ in 0..WRITE_TRIES {
            let current = self.row(id)?;
            let mut row = HostVolume::clone(&current);
            change(&mut row);
            if row == *current || self.write(row, current.modify_index).await?.is_some() {
                return Ok(());
            }
        }
        Err(HostVolumeFault::Changes(id.clone()).into())
    }
}

/// Records the properties that the node returned, and the end of the intent.
fn settle(row: &mut HostVolume, made: &HostVolumeCreated) {
    row.host_path.clone_from(&made.host_path);
    row.capacity_bytes = made.capacity_bytes;
    row.intent = HostVolumeIntent::None;
    row.last_error.clear();
    debug_assert!(
        row.state != HostVolumeState::Ready || !row.host_path.is_empty(),
        "a made volume is somewhere"
    );
}

fn find<'r>(root: &'r Root, namespace: &Namespace, id: &HostVolumeId) -> Option<&'r Arc<HostVolume>> {
    root.host_volume(id).filter(|row| row.namespace == *namespace)
}

/// Refuses if allocations use the volume or groups hold it.
fn unused(root: &Root, row: &HostVolume) -> Result<(), HostVolumeFault> {
    let allocs: Vec<AllocId> = root.host_volume_users(row).map(|alloc| alloc.id.clone()).collect();
    if !allocs.is_empty() {
        return Err(HostVolumeFault::InUse { volume: row.id.clone(), allocs });
    }
    let holders: Vec<Holder> = root
        .host_claims_of(&row.id)
        .map(|claim| Holder {
            job: claim.job_id.clone(),
            group: claim.task_group_name.clone(),
            claim: claim.id.clone(),
        })
        .collect();
    if !holders.is_empty() {
        return Err(HostVolumeFault::Held { volume: row.id.clone(), holders });
    }
    Ok(())
}
