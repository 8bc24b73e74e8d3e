//! The durable state of a client: its identity, allocations, handles of tasks, plugins and mounts.
//!
//! The state is one redb file (in memory for `-dev`), owned by one thread. Changes are queued, and one commit writes
//! all queued changes. A caller that must act on a durable change waits for [`Written`].

mod offline;
mod record;

pub use offline::state_at_rest;
pub(crate) use record::{
    AttachmentRecord, Identity, LastAddress, Loaded, NamespaceId, NetworkRecord, PluggedRecord, TaskRecord,
};

use crate::ClientError;
use crate::csi::{ClaimEntry, Registrations};
use crate::host_volumes::HostVolumeRecord;
use caravan_types::alloc::Allocation;
use caravan_types::packed;
use caravan_types::packed::Packed;
use caravan_types::volume::ClaimId;
use caravan_types::{AllocId, HostVolumeId};
use parking_lot::Mutex;
use redb::backends::InMemoryBackend;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::collections::BTreeMap;
use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

type Table = TableDefinition<'static, &'static str, &'static [u8]>;

const META: Table = TableDefinition::new("meta");
const ALLOCS: Table = TableDefinition::new("allocs");
const TASKS: Table = TableDefinition::new("tasks");
const CLAIMS: Table = TableDefinition::new("claims");
const HOST_VOLUMES: Table = TableDefinition::new("host_volumes");
const ATTACHMENTS: Table = TableDefinition::new("attachments");
const PLUGGED: Table = TableDefinition::new("cni");
const NETWORKS: Table = TableDefinition::new("networks");

const IDENTITY: &str = "identity";
const REGISTRY: &str = "registry";
const LAST_ADDRESS: &str = "last_address";
const NODE_META: &str = "node_meta";
const FILE: &str = "client.redb";
/// The size of the database's cache. The data is small; the default cache would be a large part of an idle agent.
const CACHE_BYTES: usize = 512 * 1024;

enum Operation {
    Put { table: Table, key: String, value: Vec<u8> },
    Remove { table: Table, key: String },
    RemovePrefix { table: Table, prefix: String },
}

type Outcome = Result<(), Arc<redb::Error>>;

struct Request {
    operation: Option<Operation>,
    done: oneshot::Sender<Outcome>,
}

/// The client state. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    writer: Arc<Writer>,
}

#[derive(Debug)]
struct Writer {
    queue: Mutex<Option<Sender<Request>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A change that is being written. Dropping this value does not revert the change.
#[must_use = "wait for what must be durable, or call `later`"]
#[derive(Debug)]
pub(crate) struct Written(Option<oneshot::Receiver<Outcome>>);

impl Written {
    /// Waits until the change is durable; a failure is also logged.
    pub(crate) async fn done(self) -> Result<(), ClientError> {
        let Some(receiver) = self.0 else { return Err(ClientError::ShuttingDown) };
        match receiver.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(source)) => {
                tracing::error!(error = %source, "the client state cannot be written");
                Err(ClientError::WriteState { source })
            }
            Err(_) => Err(ClientError::ShuttingDown),
        }
    }
    /// Waits until the change is durable; a failure is only logged.
    pub(crate) async fn wait(self) {
        // `done` logs the failure; the caller has nothing to revert.
        let _ = self.done().await;
    }
    /// Returns without a wait; the writer logs a failure.
    pub(crate) fn later(self) {}
}

impl Store {
    /// Opens the state in a directory, or in memory, and reads all records.
    pub(crate) fn open(dir: Option<&Path>) -> Result<(Self, Loaded), ClientError> {
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE_BYTES);
        let database = match dir {
            None => {
                builder.create_with_backend(InMemoryBackend::new()).map_err(opening("memory".as_ref()))?
            }
            Some(dir) => {
                let path = dir.join(FILE);
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .mode(0o600)
                    .open(&path)
                    .map_err(ClientError::directory(&path, "open the client state"))?;
                file.set_permissions(Permissions::from_mode(0o600))
                    .map_err(ClientError::directory(&path, "protect the client state"))?;
                drop(file);
                builder.create(&path).map_err(opening(&path))?
            }
        };
        let loaded = load(&database)?;
        let (queue, requests) = channel();
        let thread = std::thread::Builder::new()
            .name("client-state".to_owned())
            .stack_size(512 * 1024)
            .spawn(move || write_all(&database, &requests))
            .map_err(ClientError::directory(dir.unwrap_or(Path::new("memory")), "start the writer"))?;
        let writer = Writer { queue: Mutex::new(Some(queue)), thread: Mutex::new(Some(thread)) };
        Ok((Self { writer: Arc::new(writer) }, loaded))
    }

    /// Writes all queued changes and closes the file. Later changes are refused.
    pub(crate) fn close(&self) {
        drop(self.writer.queue.lock().take());
        let thread = self.writer.thread.lock().take();
        if thread.is_some_and(|t| t.join().is_err()) {
            tracing::error!("the writer of the client state panicked");
        }
    }

    /// Stores the node's identity.
    pub(crate) fn put_identity(&self, identity: &Identity) -> Written {
        self.put(META, IDENTITY.to_owned(), identity)
    }
    /// Stores the plugin registrations.
    pub(crate) fn put_registry(&self, registrations: &Registrations) -> Written {
        self.put(META, REGISTRY.to_owned(), registrations)
    }
    /// Stores the users' changes of the node metadata.
    pub(crate) fn put_node_meta(&self, changes: &BTreeMap<String, Option<String>>) -> Written {
        self.put(META, NODE_META.to_owned(), changes)
    }
    /// Stores an allocation as the servers sent it.
    pub(crate) fn put_alloc(&self, alloc: &Allocation) -> Written {
        self.put(ALLOCS, alloc.id.to_string(), alloc)
    }
    /// Removes an allocation and its tasks.
    pub(crate) fn remove_alloc(&self, alloc: &AllocId) -> Written {
        self.send(Operation::Remove { table: ALLOCS, key: alloc.to_string() }).later();
        self.send(Operation::RemovePrefix { table: TASKS, prefix: format!("{alloc}/") })
    }
    /// Stores the data of a task that a restarted agent needs.
    pub(crate) fn put_task(&self, alloc: &AllocId, task: &str, record: &TaskRecord) -> Written {
        self.put(TASKS, format!("{alloc}/{task}"), record)
    }
    /// Stores an entry of the ledger.
    pub(crate) fn put_claim(&self, entry: &ClaimEntry) -> Written {
        self.put(CLAIMS, claim_key(&entry.claim), entry)
    }
    /// Removes an entry of the ledger.
    pub(crate) fn remove_claim(&self, claim: &ClaimId) -> Written {
        self.send(Operation::Remove { table: CLAIMS, key: claim_key(claim) })
    }
    /// Stores a host volume.
    pub(crate) fn put_host_volume(&self, record: &HostVolumeRecord) -> Written {
        self.put(HOST_VOLUMES, record.volume.id.to_string(), record)
    }
    /// Removes a host volume.
    pub(crate) fn remove_host_volume(&self, id: &HostVolumeId) -> Written {
        self.send(Operation::Remove { table: HOST_VOLUMES, key: id.to_string() })
    }
    /// Stores the network of an allocation.
    pub(crate) fn put_attachment(&self, record: &AttachmentRecord) -> Written {
        self.put(ATTACHMENTS, record.attachment.alloc.to_string(), record)
    }
    /// Removes the network of an allocation.
    pub(crate) fn remove_attachment(&self, alloc: &AllocId) -> Written {
        self.send(Operation::Remove { table: ATTACHMENTS, key: alloc.to_string() })
    }
    /// Stores the network of an allocation by CNI plugins.
    pub(crate) fn put_plugged(&self, record: &PluggedRecord) -> Written {
        self.put(PLUGGED, record.0.alloc.to_string(), record)
    }
    /// Removes the network of an allocation by CNI plugins.
    pub(crate) fn remove_plugged(&self, alloc: &AllocId) -> Written {
        self.send(Operation::Remove { table: PLUGGED, key: alloc.to_string() })
    }
    /// Stores the last addresses that an allocation received.
    pub(crate) fn put_last_address(&self, last: &LastAddress) -> Written {
        self.put(META, LAST_ADDRESS.to_owned(), last)
    }
    /// Stores the network that a driver creates for an allocation.
    pub(crate) fn put_network(&self, alloc: &AllocId, record: &NetworkRecord) -> Written {
        self.put(NETWORKS, alloc.to_string(), record)
    }
    /// Removes the network that a driver created for an allocation.
    pub(crate) fn remove_network(&self, alloc: &AllocId) -> Written {
        self.send(Operation::Remove { table: NETWORKS, key: alloc.to_string() })
    }
    /// Returns a handle that completes once all earlier changes are durable.
    pub(crate) fn flush(&self) -> Written {
        self.request(None)
    }

    fn put<T: Packed>(&self, table: Table, key: String, value: &T) -> Written {
        let value = value.pack().expect("our own records have a MessagePack form");
        self.send(Operation::Put { table, key, value })
    }

    fn send(&self, operation: Operation) -> Written {
        self.request(Some(operation))
    }

    fn request(&self, operation: Option<Operation>) -> Written {
        let (done, receiver) = oneshot::channel();
        let queue = self.writer.queue.lock();
        let sent = queue.as_ref().is_some_and(|q| q.send(Request { operation, done }).is_ok());
        Written(sent.then_some(receiver))
    }
}

fn claim_key(claim: &ClaimId) -> String {
    format!("{}/{}/{}", claim.volume.namespace, claim.volume.id, claim.alloc)
}

fn opening<E: Into<redb::Error>>(path: &Path) -> impl FnOnce(E) -> ClientError + '_ {
    move |source| ClientError::OpenState { path: path.to_owned(), source: Box::new(source.into()) }
}

fn write_all(database: &Database, requests: &Receiver<Request>) {
    while let Ok(first) = requests.recv() {
        let mut batch = vec![first];
        batch.extend(requests.try_iter());
        let outcome = commit(database, &batch).map_err(Arc::new);
        for request in batch {
            // The requester may no longer wait.
            let _ = request.done.send(outcome.clone());
        }
    }
}

fn commit(database: &Database, batch: &[Request]) -> Result<(), redb::Error> {
    let operations: Vec<&Operation> = batch.iter().filter_map(|r| r.operation.as_ref()).collect();
    if operations.is_empty() {
        return Ok(());
    }
    let transaction = database.begin_write()?;
    for operation in operations {
        match operation {
            Operation::Put { table, key, value } => {
                transaction.open_table(*table)?.insert(key.as_str(), value.as_slice())?;
            }
            Operation::Remove { table, key } => {
                transaction.open_table(*table)?.remove(key.as_str())?;
            }
            Operation::RemovePrefix { table, prefix } => {
                transaction.open_table(*table)?.retain(|key, _| !key.starts_with(prefix.as_str()))?;
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

fn load(database: &Database) -> Result<Loaded, ClientError> {
    let reading = |source: redb::Error| ClientError::ReadState {
        what: "the database is damaged".to_owned(),
        source: Box::new(source),
    };
    let make_tables = || -> Result<(), redb::Error> {
        let transaction = database.begin_write()?;
        for table in [META, ALLOCS, TASKS, CLAIMS, HOST_VOLUMES, ATTACHMENTS, PLUGGED, NETWORKS] {
            transaction.open_table(table)?;
        }
        transaction.commit()?;
        Ok(())
    };
    make_tables().map_err(reading)?;
    let rows = |table: Table| -> Result<Vec<(String, Vec<u8>)>, ClientError> {
        let read = || -> Result<Vec<(String, Vec<u8>)>, redb::Error> {
            let table = database.begin_read()?.open_table(table)?;
            let mut rows = Vec::new();
            for row in table.iter()? {
                let (key, value) = row?;
                rows.push((key.value().to_owned(), value.value().to_vec()));
            }
            Ok(rows)
        };
        read().map_err(reading)
    };
    let mut loaded = Loaded::default();
    for (key, value) in rows(META)? {
        match key.as_str() {
            IDENTITY => loaded.identity = Some(decode(&key, &value)?),
            REGISTRY => loaded.registrations = decode(&key, &value)?,
            NODE_META => loaded.node_meta = decode(&key, &value)?,
            LAST_ADDRESS => loaded.last_address = Some(decode(&key, &value)?),
            _ => {}
        }
    }
    for (key, value) in rows(ALLOCS)? {
        loaded.allocs.push(decode(&key, &value)?);
    }
    for (key, value) in rows(TASKS)? {
        if let Some((alloc, task)) = key.split_once('/') {
            loaded.tasks.insert((alloc.into(), task.to_owned()), decode(&key, &value)?);
        }
    }
    for (key, value) in rows(CLAIMS)? {
        loaded.claims.push(decode(&key, &value)?);
    }
    for (key, value) in rows(HOST_VOLUMES)? {
        loaded.host_volumes.push(decode(&key, &value)?);
    }
    for (key, value) in rows(ATTACHMENTS)? {
        loaded.attachments.push(decode(&key, &value)?);
    }
    for (key, value) in rows(PLUGGED)? {
        loaded.plugged.push(decode(&key, &value)?);
    }
    for (key, value) in rows(NETWORKS)? {
        loaded.networks.insert(key.as_str().into(), decode(&key, &value)?);
    }
    Ok(loaded)
}

packed!(
    Identity,
    TaskRecord,
    Registrations,
    ClaimEntry,
    HostVolumeRecord,
    AttachmentRecord,
    LastAddress,
    NetworkRecord,
    PluggedRecord
);

fn decode<T: Packed>(key: &str, value: &[u8]) -> Result<T, ClientError> {
    T::unpack(value).map_err(|source| ClientError::ReadState {
        what: format!("record \"{key}\""),
        source: Box::new(source),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::alloc::{TaskRunState, TaskState};

    #[tokio::test]
    async fn what_was_written_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let (store, loaded) = Store::open(Some(dir.path())).unwrap();
        assert!(loaded.identity.is_none() && loaded.allocs.is_empty());
        let alloc = Allocation { id: "a1".into(), name: "j.g[0]".into(), ..Default::default() };
        store.put_alloc(&alloc).later();
        let state = TaskState { state: TaskRunState::Running, ..Default::default() };
        let record = TaskRecord { state, handle: Some(vec![1, 2]), ..Default::default() };
        store.put_task(&alloc.id, "web", &record).later();
        let identity = Identity {
            node_id: "n".into(),
            secret: caravan_types::node::NodeSecret::new("s"),
            signed: Default::default(),
        };
        store.put_identity(&identity).done().await.unwrap();
        store.close();
        assert!(matches!(store.flush().done().await, Err(ClientError::ShuttingDown)));

        let mode = std::fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (store, loaded) = Store::open(Some(dir.path())).unwrap();
        assert_eq!(loaded.identity.unwrap().secret.expose(), "s");
        assert_eq!(loaded.allocs, [alloc]);
        assert_eq!(loaded.tasks[&("a1".into(), "web".to_owned())], record);
        store.remove_alloc(&"a1".into()).done().await.unwrap();
        store.close();
        let (_, loaded) = Store::open(Some(dir.path())).unwrap();
        assert!(loaded.allocs.is_empty() && loaded.tasks.is_empty());
    }

    #[tokio::test]
    async fn a_state_in_use_is_refused_in_a_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let (_store, _) = Store::open(Some(dir.path())).unwrap();
        let error = Store::open(Some(dir.path())).unwrap_err();
        assert!(error.to_string().contains("is another agent using it?"), "{error}");
    }
}
