//! A storage system that outlives the servers. It records the calls that it receives, and fails as the test
//! specifies.

use caravan_messages::{ControllerAnswer, ControllerCall, ControllerOperation, NodeExpand, NodeExpanded};
use caravan_rpc::{Code, RpcError};
use caravan_types::volume::{CsiSnapshot, VolumeExternalStub};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Semaphore;

pub const CREATE: &str = "CreateVolume";
pub const DELETE: &str = "DeleteVolume";
pub const PUBLISH: &str = "ControllerPublishVolume";
pub const CREATE_SNAPSHOT: &str = "CreateSnapshot";
pub const DELETE_SNAPSHOT: &str = "DeleteSnapshot";
pub const LIST: &str = "ListVolumes";
pub const UNPUBLISH: &str = "ControllerUnpublishVolume";
pub const EXPAND: &str = "ControllerExpandVolume";
pub const NODE_EXPAND: &str = "NodeExpandVolume";
pub const VALIDATE: &str = "ValidateVolumeCapabilities";

/// The behaviour of the plugin in place of a successful response.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Refuses the call without executing it.
    Fail(Code, &'static str),
    /// Executes the call, but the response is lost.
    DoneButLost,
    /// Responds once the gate is open.
    Hold(Gate),
    /// Responds with the response of another call.
    Nonsense,
}

/// A gate at which calls wait.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Semaphore>);

impl Gate {
    pub fn closed() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }
    pub fn open(&self) {
        self.0.close();
    }
    async fn pass(&self) {
        // Closing the semaphore opens the gate: the wait ends with an error.
        let _ = self.0.acquire().await;
    }
}

#[derive(Debug, Default)]
struct Disk {
    calls: Vec<String>,
    running: BTreeMap<String, u32>,
    overlaps: Vec<String>,
    made: u32,
    volumes: BTreeMap<String, String>,
    published: BTreeSet<(String, String)>,
    /// The snapshots, with the volume of each.
    snapshots: BTreeMap<String, String>,
    /// The last call of each kind, including its secrets.
    last: BTreeMap<&'static str, ControllerOperation>,
    script: HashMap<&'static str, VecDeque<Reply>>,
    /// Whether a detach without an attachment is refused, against the specification.
    strict: bool,
}

impl Disk {
    fn snapshot(&self, id: &str) -> CsiSnapshot {
        CsiSnapshot {
            id: id.to_owned(),
            external_source_volume_id: self.snapshots[id].clone(),
            is_ready: true,
            ..CsiSnapshot::default()
        }
    }
}

/// The simulated plugin. All clones are the same storage system.
#[derive(Clone, Debug, Default)]
pub struct Plugin(Arc<Mutex<Disk>>);

/// A running call, which ends when dropped.
struct Running(Plugin, String);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(count) = self.0.disk().running.get_mut(&self.1) {
            *count -= 1;
        }
    }
}

impl Plugin {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap()
    }

    /// Sets the replies to the next calls of this kind. Later calls succeed.
    pub fn script(&self, call: &'static str, replies: impl IntoIterator<Item = Reply>) {
        self.disk().script.entry(call).or_default().extend(replies);
    }

    /// Refuses each detach without an attachment from now on.
    pub fn refuse_unknown_attachments(&self) {
        self.disk().strict = true;
    }

    /// Holds the next call of this kind at the returned gate.
    pub fn hold(&self, call: &'static str) -> Gate {
        let gate = Gate::closed();
        self.script(call, [Reply::Hold(gate.clone())]);
        gate
    }

    /// Returns all calls so far: name, volume, and node if the call has one.
    pub fn calls(&self) -> Vec<String> {
        self.disk().calls.clone()
    }

    /// Returns the last call of a kind.
    pub fn last(&self, call: &str) -> ControllerOperation {
        self.disk().last[call].clone()
    }

    /// Returns the snapshots that exist now.
    pub fn snapshots(&self) -> Vec<String> {
        self.disk().snapshots.keys().cloned().collect()
    }

    /// Returns the number of calls of this kind.
    pub fn count(&self, call: &str) -> usize {
        self.disk().calls.iter().filter(|c| c.split(' ').next() == Some(call)).count()
    }

    /// Returns the volumes that exist now, and the number of volumes that were ever created.
    pub fn volumes(&self) -> (Vec<String>, u32) {
        let disk = self.disk();
        (disk.volumes.values().cloned().collect(), disk.made)
    }

    /// Returns the volumes that are attached, each with its node.
    pub fn published(&self) -> Vec<(String, String)> {
        self.disk().published.iter().cloned().collect()
    }

    /// Fails if two calls about one volume ever ran concurrently.
    pub fn assert_one_at_a_time(&self) {
        assert_eq!(self.disk().overlaps, Vec::<String>::new(), "calls of one volume overlapped");
    }

    fn begin(&self, operation: &ControllerOperation) -> (Running, Option<Reply>) {
        use ControllerOperation as Op;
        let (volume, node) = match operation {
            Op::Create { name, .. } => (name.clone(), ""),
            Op::Delete { external_id, .. }
            | Op::Validate { external_id, .. }
            | Op::Expand { external_id, .. }
            | Op::CreateSnapshot { external_id, .. } => (bare(external_id), ""),
            Op::DeleteSnapshot { snapshot_id, .. } => (snapshot_id.clone(), ""),
            Op::ListSnapshots { .. } => ("snapshots".to_owned(), ""),
            Op::Publish { external_id, external_node_id, .. }
            | Op::Unpublish { external_id, external_node_id, .. } => (bare(external_id), &**external_node_id),
            Op::List { .. } => ("*".to_owned(), ""),
        };
        self.disk().last.insert(operation.name(), operation.clone());
        self.enter(operation.name(), volume, node)
    }

    fn enter(&self, name: &str, volume: String, node: &str) -> (Running, Option<Reply>) {
        let mut disk = self.disk();
        let text = format!("{name} {volume} {node}");
        disk.calls.push(text.trim_end().to_owned());
        let running = disk.running.entry(volume.clone()).or_default();
        *running += 1;
        if *running > 1 {
            disk.overlaps.push(text);
        }
        let reply = disk.script.get_mut(name).and_then(VecDeque::pop_front);
        drop(disk);
        (Running(self.clone(), volume), reply)
    }

    pub async fn answer(&self, call: ControllerCall) -> Result<ControllerAnswer, RpcError> {
        let (_running, reply) = self.begin(&call.operation);
        match reply {
            None => self.carry_out(call.operation),
            Some(Reply::Fail(code, text)) => Err(RpcError::new(code, text)),
            Some(Reply::DoneButLost) => {
                self.carry_out(call.operation)?;
                Err(RpcError::new(Code::Deadline, "the answer was lost"))
            }
            Some(Reply::Hold(gate)) => {
                gate.pass().await;
                self.carry_out(call.operation)
            }
            Some(Reply::Nonsense) => {
                Ok(ControllerAnswer::Listed { volumes: Vec::new(), next_token: String::new() })
            }
        }
    }

    /// Expands a mounted volume on a node.
    pub async fn grow(&self, request: NodeExpand, node: &str) -> Result<NodeExpanded, RpcError> {
        let done = NodeExpanded { capacity_bytes: request.capacity_min };
        let (_running, reply) = self.enter(NODE_EXPAND, request.claim.volume.id.to_string(), node);
        match reply {
            Some(Reply::Fail(code, text)) => Err(RpcError::new(code, text)),
            Some(Reply::Hold(gate)) => {
                gate.pass().await;
                Ok(done)
            }
            Some(Reply::DoneButLost) => Err(RpcError::new(Code::Deadline, "the answer was lost")),
            Some(Reply::Nonsense) | None => Ok(done),
        }
    }

    fn carry_out(&self, operation: ControllerOperation) -> Result<ControllerAnswer, RpcError> {
        use ControllerOperation as Op;
        let mut disk = self.disk();
        Ok(match operation {
            Op::Create { name, capacity_min, .. } => {
                let external_id = disk.volumes.get(&name).cloned().unwrap_or_else(|| format!("ext-{name}"));
                if disk.volumes.insert(name, external_id.clone()).is_none() {
                    disk.made += 1;
                }
                ControllerAnswer::Created {
                    external_id,
                    capacity_bytes: capacity_min,
                    context: BTreeMap::from([("made".to_owned(), "yes".to_owned())]),
                    topologies: Vec::new(),
                }
            }
            Op::Delete { external_id, .. } => {
                disk.volumes.retain(|_, id| *id != external_id);
                ControllerAnswer::Done
            }
            Op::Publish { external_id, external_node_id, .. } => {
                let elsewhere =
                    disk.published.iter().find(|(v, n)| *v == external_id && *n != external_node_id);
                if let Some((_, node)) = elsewhere {
                    return Err(RpcError::new(Code::Conflict, format!("published on {node}")));
                }
                disk.published.insert((external_id, external_node_id.clone()));
                ControllerAnswer::Published {
                    publish_context: BTreeMap::from([(
                        "device".to_owned(),
                        format!("/dev/{external_node_id}"),
                    )]),
                }
            }
            Op::Unpublish { external_id, external_node_id, .. } => {
                let was_attached = disk.published.remove(&(external_id, external_node_id));
                if disk.strict && !was_attached {
                    return Err(RpcError::new(Code::Unavailable, "INTERNAL: the attachment is not known"));
                }
                ControllerAnswer::Done
            }
            Op::Validate { .. } => ControllerAnswer::Validated { refused: None },
            Op::List { .. } => {
                let nodes = |id: &str| {
                    disk.published.iter().filter(|(v, _)| v == id).map(|(_, n)| n.clone()).collect()
                };
                let stub = |id: &String| VolumeExternalStub {
                    external_id: id.clone(),
                    published_external_node_ids: nodes(id),
                    ..VolumeExternalStub::default()
                };
                let volumes = disk.volumes.values().map(stub).collect();
                ControllerAnswer::Listed { volumes, next_token: String::new() }
            }
            Op::Expand { capacity_min, .. } => {
                ControllerAnswer::Expanded { capacity_bytes: capacity_min, node_expansion_required: true }
            }
            Op::CreateSnapshot { external_id, name, .. } => {
                let id = format!("snap-{name}");
                disk.snapshots.insert(id.clone(), external_id);
                ControllerAnswer::Snapshot(Box::new(disk.snapshot(&id)))
            }
            Op::DeleteSnapshot { snapshot_id, .. } => {
                disk.snapshots.remove(&snapshot_id);
                ControllerAnswer::Done
            }
            Op::ListSnapshots { .. } => ControllerAnswer::Snapshots {
                snapshots: disk.snapshots.keys().map(|id| disk.snapshot(id)).collect(),
                next_token: String::new(),
            },
        })
    }
}

fn bare(external_id: &str) -> String {
    external_id.strip_prefix("ext-").unwrap_or(external_id).to_owned()
}
