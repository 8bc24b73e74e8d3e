//! Containers that an agent created, and of which no agent has a record any more.

use crate::container::{ALLOC_LABEL, NODE_LABEL, RUN_LABEL};
use crate::engine::{status, text};
use crate::tasks::Shared;
use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ContainerSummary;
use bollard::query_parameters::{ListContainersOptionsBuilder, RemoveContainerOptionsBuilder};
use caravan_drivers::TaskId;
use caravan_sys::time::wall_nanos;
use std::collections::{HashMap, HashSet};
use std::sync::Weak;
use std::time::Duration;

/// Searches periodically, until the driver is dropped. The first search follows the grace of new containers: by then,
/// the tasks of an earlier agent are recovered.
pub(crate) async fn search(shared: Weak<Shared>) {
    let Some(settings) = shared.upgrade().map(|shared| shared.options.gc.dangling) else { return };
    tokio::time::sleep(settings.period.max(settings.creation_grace)).await;
    while let Some(shared) = shared.upgrade() {
        if let Ok(client) = shared.engine.client().await {
            match sweep(&shared, &client).await {
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(error = text(&error), "the search for dangling containers failed")
                }
            }
        }
        drop(shared);
        tokio::time::sleep(settings.period).await;
    }
}

async fn sweep(shared: &Shared, client: &Docker) -> Result<(), Error> {
    let settings = shared.options.gc.dangling;
    let own = vec![format!("{NODE_LABEL}={}", shared.node_id)];
    let found = list(client, own).await?;
    let tracked: HashSet<String> =
        shared.tasks.lock().values().map(|task| task.state.container.clone()).collect();
    let networks: HashSet<String> = shared.networks.lock().keys().cloned().collect();
    let now = Duration::from_nanos(u64::try_from(wall_nanos()).unwrap_or(0)).as_secs();
    for container in found {
        let Some(id) = container.id.clone() else { continue };
        let labels = container.labels.as_ref();
        let holds_network = labels.is_some_and(|labels| {
            let alloc = labels.get(ALLOC_LABEL);
            !labels.contains_key(RUN_LABEL) && alloc.is_some_and(|alloc| networks.contains(alloc))
        });
        if tracked.contains(&id) || holds_network || age(&container, now) < settings.creation_grace {
            continue;
        }
        if settings.dry_run {
            tracing::info!(container = id, "this container has no task and would be removed");
            continue;
        }
        tracing::warn!(container = id, "removing a container without a task");
        if let Err(error) = remove(client, &id).await {
            tracing::warn!(container = id, error = text(&error), "a dangling container cannot be removed");
        }
    }
    Ok(())
}

fn age(container: &ContainerSummary, now: u64) -> Duration {
    let created = container.created.and_then(|second| u64::try_from(second).ok()).unwrap_or(now);
    Duration::from_secs(now.saturating_sub(created))
}

async fn list(client: &Docker, labels: Vec<String>) -> Result<Vec<ContainerSummary>, Error> {
    let filters = HashMap::from([("label", labels)]);
    let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
    client.list_containers(Some(options)).await
}

async fn remove(client: &Docker, id: &str) -> Result<(), Error> {
    let options = RemoveContainerOptionsBuilder::default().force(true).build();
    match client.remove_container(id, Some(options)).await {
        Err(error) if !matches!(status(&error), Some(404 | 409)) => Err(error),
        _ => Ok(()),
    }
}

/// Returns the allocation and the task of a run.
pub(crate) fn names(id: &TaskId) -> Option<(&str, &str)> {
    let (alloc, rest) = id.0.split_once('/')?;
    Some((alloc, rest.rsplit_once('/')?.0))
}

/// Removes the container of a run, if it exists.
pub(crate) async fn remove_run(client: &Docker, id: &TaskId) -> Result<(), Error> {
    let alloc = names(id).map_or("", |(alloc, _)| alloc);
    let labels = vec![format!("{RUN_LABEL}={id}"), format!("{ALLOC_LABEL}={alloc}")];
    for container in list(client, labels).await? {
        remove(client, container.id.as_deref().unwrap_or_default()).await?;
    }
    Ok(())
}
