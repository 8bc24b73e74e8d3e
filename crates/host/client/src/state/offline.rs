//! The inspection of the state of a client that is not running.

use super::{CACHE_BYTES, FILE, load, opening};
use crate::ClientError;
use caravan_types::AllocId;
use caravan_types::redact::redact;
use redb::Builder;
use serde_json::{Map, Value, json};
use std::path::Path;

/// Returns the state of the client in a directory (the directory that contains `client.redb`) for inspection. The
/// value contains the node's identity, its allocations with their tasks, plugins, mounts and host volumes. Secrets
/// are removed.
///
/// # Errors
/// [`ClientError::OpenState`] if the file is absent, is not a client state, or an agent uses it;
/// [`ClientError::ReadState`] if a record cannot be read.
pub fn state_at_rest(dir: &Path) -> Result<Value, ClientError> {
    let path = dir.join(FILE);
    if let Err(source) = std::fs::metadata(&path) {
        return Err(opening(&path)(redb::Error::Io(source)));
    }
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    let database = builder.open(&path).map_err(opening(&path))?;
    let loaded = load(&database)?;
    let readable = |what: &str, value: Result<Value, serde_json::Error>| {
        value.map_err(|source| ClientError::ReadState { what: what.to_owned(), source: Box::new(source) })
    };
    let tasks_of = |alloc: &AllocId| -> Map<String, Value> {
        let own = loaded.tasks.iter().filter(|((id, _), _)| id == alloc);
        own.map(|((_, name), task)| {
            let local = json!({
                "DriverID": task.driver_id,
                // The handle's content is private to the driver.
                "HandleBytes": task.handle.as_ref().map_or(0, Vec::len),
                "Restarts": task.restarts,
                "Stopping": task.stopping,
                "Fenced": task.fenced,
                "TimedOut": task.timed_out,
                "Begun": task.begun,
                "Over": task.over,
            });
            (name.clone(), json!({"LocalState": local, "RemoteState": task.state}))
        })
        .collect()
    };
    let mut allocs = Map::new();
    for alloc in &loaded.allocs {
        let own = readable("an allocation", serde_json::to_value(alloc))?;
        allocs.insert(alloc.id.to_string(), json!({"Alloc": own, "Tasks": tasks_of(&alloc.id)}));
    }
    let mut all = json!({
        "NodeID": loaded.identity.map(|identity| identity.node_id.to_string()).unwrap_or_default(),
        "NodeMeta": loaded.node_meta,
        "Allocations": allocs,
        "Plugins": readable("the plugins", serde_json::to_value(&loaded.registrations))?,
        "CSIClaims": readable("a claim", serde_json::to_value(&loaded.claims))?,
        "HostVolumes": readable("a host volume", serde_json::to_value(&loaded.host_volumes))?,
    });
    redact(&mut all);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::super::{Identity, Store, TaskRecord};
    use super::*;
    use caravan_types::alloc::Allocation;
    use caravan_types::node::NodeSecret;

    #[tokio::test]
    async fn the_state_of_a_stopped_client_is_reported_without_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let error = state_at_rest(dir.path()).unwrap_err().to_string();
        assert!(error.contains("client.redb"), "{error}");
        assert!(!dir.path().join(FILE).exists(), "looking makes nothing");

        let (store, _) = Store::open(Some(dir.path())).unwrap();
        let identity =
            Identity { node_id: "n1".into(), secret: NodeSecret::new("hunter2"), signed: Default::default() };
        store.put_identity(&identity).later();
        let alloc = Allocation { id: "a1".into(), ..Allocation::default() };
        store.put_alloc(&alloc).later();
        let task = TaskRecord { handle: Some(vec![1, 2, 3]), ..TaskRecord::default() };
        store.put_task(&alloc.id, "web", &task).done().await.unwrap();
        assert!(state_at_rest(dir.path()).is_err(), "an agent uses it");
        store.close();

        let readable = state_at_rest(dir.path()).unwrap();
        assert_eq!(
            (&readable["NodeID"], &readable["Allocations"]["a1"]["Alloc"]["ID"]),
            (&json!("n1"), &json!("a1"))
        );
        assert_eq!(readable["Allocations"]["a1"]["Tasks"]["web"]["LocalState"]["HandleBytes"], 3);
        assert!(!readable.to_string().contains("hunter2"));
    }
}
