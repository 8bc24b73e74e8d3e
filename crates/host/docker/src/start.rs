//! The start of a task: its image, its container, and the first examination of the container.

use crate::NAME;
use crate::config::Config;
use crate::container::{self, ALLOC_LABEL, RUN_LABEL};
use crate::driver::HANDLE_VERSION;
use crate::engine::{RETRIES, backoff, failed, inspect, is_absent, is_trouble, status, text};
use crate::guard::{Guard, UnderLease};
use crate::tasks::{Shared, State, unix_ns};
use crate::watch::Waiter;
use bollard::Docker;
use bollard::errors::Error as EngineError;
use bollard::models::{ContainerCreateBody, ContainerInspectResponse};
use bollard::query_parameters::{CreateContainerOptionsBuilder, RemoveContainerOptionsBuilder};
use caravan_drivers::{DriverNetwork, Error, Processors, Result, TaskConfig, TaskHandle};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The signal of a graceful stop, unless the image or the job names another one.
const STOP_SIGNAL: &str = "SIGTERM";

fn fault(message: String, recoverable: bool) -> Error {
    Error::Start { message, recoverable }
}

/// Starts a task. A failed start leaves no container.
pub(crate) async fn start(shared: &Arc<Shared>, task: TaskConfig) -> Result<TaskHandle> {
    let options = &shared.options;
    let config = Config::read(&task.driver_config)?;
    let image_name = config.image.clone();
    let misconfigured = |image: &str, error: Error| match error {
        Error::Config(reason) => Error::Config(format!(
            "Failed to create container configuration for image {image_name:?} ({image:?}): {reason}"
        )),
        other => other,
    };
    // Before the image: a task that may not run needs no download.
    container::check_allowed(&config, options).map_err(|error| misconfigured("", error))?;
    if task.lease.is_some() && !shared.engine.is_local() {
        return Err(Error::Config(
            "driver docker runs tasks that are the only writers of a volume on a local engine only".into(),
        ));
    }
    caravan_sys::files::private_dir(&task.dirs.state_dir)?;
    let connection = |error: crate::engine::Unreachable| {
        fault(format!("Failed to connect to docker daemon: {error}"), true)
    };
    let client = shared.engine.client().await.map_err(connection)?;
    let facts = shared.engine.facts(&client);
    let facts = shared.patiently(&task.alloc_id, &task.task_name, "the start", facts).await;
    let facts = facts.map_err(|error| fault(text(&error), true))?;
    let report = |message: &str, details: BTreeMap<String, String>| {
        let event = caravan_drivers::DriverEvent {
            alloc_id: task.alloc_id.clone(),
            task_name: task.task_name.clone(),
            message: message.to_owned(),
            details,
        };
        // Without a receiver, no caller reads events.
        let _unread = shared.events.send(event);
    };
    let user = &task.id.0;
    let local = task.dirs.task_dir.join("local");
    let image = shared
        .images
        .get(&config, options, &local, user, &report)
        .await
        .map_err(|error| fault(error.message, error.recoverable))?;
    let described = container::body(&task, &config, options, facts, &image)
        .and_then(|body| container::hosts::write(&task, &config).map(|()| body));
    let started = match described {
        Err(error) => Err(misconfigured(&image, error)),
        Ok(mut body) => {
            if let (Some(host), Some(cpus)) = (&mut body.host_config, &*shared.cpus.borrow())
                && host.cpuset_cpus.is_none()
            {
                host.cpuset_cpus = Some(cpus.clone());
            }
            let started = Box::pin(run(shared, &client, &task, body));
            shared.patiently(&task.alloc_id, &task.task_name, "the start", started).await
        }
    };
    let (id, found, under_lease, waiter) = match started {
        Ok(started) => started,
        Err(error) => {
            shared.images.release(&image, user);
            return Err(error);
        }
    };
    let collected = task.logs.clone().filter(|_| !options.disable_log_collection);
    // The output of an earlier run of the task is complete.
    crate::logs::clear(&task.dirs.state_dir);
    let running = found.state.clone().unwrap_or_default();
    let pid = running.pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
    // podman's service skips lines for a slow follower. Without a file, such as with journald, the follower uses the
    // service.
    let output_file = found
        .log_path
        .as_deref()
        .filter(|_| facts.is_podman && shared.engine.is_of_root())
        .and_then(|path| crate::ctr_log::usual_path(&id, path));
    let state = State {
        container: id,
        image,
        alloc_id: task.alloc_id.clone(),
        task_name: task.task_name.clone(),
        state_dir: task.dirs.state_dir.clone(),
        logs: collected,
        output_file,
        stop_signal: found
            .config
            .as_ref()
            .and_then(|config| config.stop_signal.clone())
            .filter(|signal| !signal.is_empty())
            .unwrap_or_else(|| STOP_SIGNAL.to_owned()),
        pid: pid.filter(|_| shared.engine.is_local()),
        has_own_cpus: matches!(task.processors, Processors::Own(_)),
        under_lease,
    };
    let value = serde_json::to_value(&state)
        .map_err(|error| Error::Handle { id: task.id.clone(), reason: error.to_string() })?;
    let handle = TaskHandle {
        version: HANDLE_VERSION,
        driver: NAME.to_owned(),
        task_id: task.id.clone(),
        started_unix_ns: unix_ns(running.started_at.as_deref()),
        pid: state.pid,
        degraded: Vec::new(),
        network: network(&found, &config),
        state: value,
    };
    // A container that ended already is examined.
    let begun = Some(waiter).filter(|_| running.running == Some(true));
    shared.adopt(handle.clone(), state, begun);
    Ok(handle)
}

/// Creates and starts a container. Returns its id, the engine's description, the lease that its guard enforces, and a
/// waiter for its events.
async fn run(
    shared: &Shared,
    client: &Docker,
    task: &TaskConfig,
    body: ContainerCreateBody,
) -> Result<(String, ContainerInspectResponse, Option<UnderLease>, Waiter)> {
    let name = container::name(task);
    let id = create(client, task, &name, body, shared.options.container_exists_attempts)
        .await
        .inspect_err(|_| shared.images.mistrust())?;
    let remove = async || {
        let options = RemoveContainerOptionsBuilder::default().force(true).build();
        if let Err(error) = client.remove_container(&id, Some(options)).await {
            tracing::warn!(
                container = id,
                error = text(&error),
                "a container that did not start cannot be removed"
            );
        }
    };
    let guard = match Guard::start(shared, task, &id).await {
        Ok(guard) => guard,
        Err(error) => {
            remove().await;
            return Err(error);
        }
    };
    // Before the start, so that no event is missed.
    shared.watch.ensure();
    let waiter = shared.watch.waiter(&id);
    let mut attempt = 0;
    loop {
        match client.start_container(&id, None).await {
            Ok(()) => break,
            Err(error) if is_trouble(&error) && attempt < RETRIES => {
                tokio::time::sleep(backoff(attempt)).await;
                attempt += 1;
            }
            Err(error) => {
                remove().await;
                let message = format!("Failed to start container {id}: {}", text(&error));
                return Err(fault(message, is_trouble(&error)));
            }
        }
    }
    let inspected = match inspect(client, &id).await {
        Ok(found) => match guard {
            Some(guard) => {
                guard.begin(&found, &task.dirs.state_dir).await.map(|under_lease| (found, under_lease))
            }
            None => Ok((found, None)),
        },
        Err(error) => Err(fault(format!("failed to inspect container for id {id}: {}", text(&error)), true)),
    };
    match inspected {
        Ok((found, under_lease)) => Ok((id, found, under_lease, waiter)),
        Err(error) => {
            remove().await;
            Err(error)
        }
    }
}

async fn create(
    client: &Docker,
    task: &TaskConfig,
    name: &str,
    body: ContainerCreateBody,
    attempts: u32,
) -> Result<String> {
    let options = CreateContainerOptionsBuilder::default().name(name).build();
    let (mut conflicts, mut troubles) = (0, 0);
    loop {
        let error = match client.create_container(Some(options.clone()), body.clone()).await {
            Ok(made) => return Ok(made.id),
            Err(error) => error,
        };
        let words = format!("failed to create container: {}", text(&error));
        if is_conflict(&error) && conflicts <= attempts {
            conflicts += 1;
            clear(client, task, name).await?;
            tokio::time::sleep(backoff(conflicts)).await;
        } else if is_trouble(&error) && troubles < RETRIES {
            troubles += 1;
            tokio::time::sleep(backoff(troubles)).await;
        } else {
            // An image that is absent vanished since it was pulled.
            let recoverable =
                is_absent(&error) || is_trouble(&error) || words.contains("uplicate mount point");
            return Err(fault(words, recoverable));
        }
    }
}

fn is_conflict(error: &EngineError) -> bool {
    // podman reports a name in use with status 500.
    status(error) == Some(409) || text(error).contains("already in use")
}

/// Removes the container of an earlier run of the task. A container of another owner stays.
async fn clear(client: &Docker, task: &TaskConfig, name: &str) -> Result<()> {
    let found = match inspect(client, name).await {
        Ok(found) => found,
        Err(error) if is_absent(&error) => return Ok(()),
        Err(error) => return Err(failed(&task.id, &error)),
    };
    let labels = found.config.and_then(|config| config.labels).unwrap_or_default();
    if labels.get(ALLOC_LABEL) != Some(&task.alloc_id) {
        return Err(fault(
            format!(
                "failed to create container: the name {name:?} is in use by a container of another owner"
            ),
            false,
        ));
    }
    let id = found.id.unwrap_or_default();
    tracing::info!(container = id, run = labels.get(RUN_LABEL), "removing the container of an earlier run");
    let options = RemoveContainerOptionsBuilder::default().force(true).build();
    match client.remove_container(&id, Some(options)).await {
        Ok(()) => Ok(()),
        Err(error) if matches!(status(&error), Some(404 | 409)) => Ok(()),
        Err(error) => Err(failed(&task.id, &error)),
    }
}

/// Returns the network that the engine made for a container.
fn network(found: &ContainerInspectResponse, config: &Config) -> Option<DriverNetwork> {
    let networks = found.network_settings.as_ref()?.networks.as_ref()?;
    let ipv6 = config.network.advertise_ipv6;
    let mut named: Vec<_> = networks.iter().collect();
    named.sort_by_key(|(name, _)| name.as_str());
    let address = |endpoint: &bollard::models::EndpointSettings| {
        let address = if ipv6 { &endpoint.global_ipv6_address } else { &endpoint.ip_address };
        address.clone().filter(|address| !address.is_empty())
    };
    let (name, ip) = named.into_iter().find_map(|(name, endpoint)| Some((name, address(endpoint)?)))?;
    Some(DriverNetwork {
        ip,
        ports: config.network.port_map.clone(),
        advertise: ipv6 || !matches!(name.as_str(), "bridge" | "nat" | "podman"),
    })
}
