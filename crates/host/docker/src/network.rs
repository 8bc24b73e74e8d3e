//! The networks of groups: for each allocation a container that only holds a network namespace, which the containers
//! of its tasks join. The client sets the namespace up.

use crate::auth;
use crate::container::{ALLOC_LABEL, NODE_LABEL};
use crate::engine::{inspect, is_absent, is_trouble, status, text};
use crate::image::Reference;
use crate::images::Order;
use crate::tasks::Shared;
use bollard::Docker;
use bollard::errors::Error as EngineError;
use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, HostConfig, RestartPolicy, RestartPolicyNameEnum,
};
use bollard::query_parameters::{CreateContainerOptionsBuilder, RemoveContainerOptionsBuilder};
use caravan_drivers::{Error, HostsLine, NetworkIsolation, NetworkRequest, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The fact of a network that names the container which holds the namespace.
pub(crate) const HOLDER: &str = "docker_sandbox_container_id";
/// The fact of a network with the hostname that its job requests.
const HOSTNAME: &str = "docker_sandbox_hostname";
/// The length of a container's id as engines show it, and as the hostname in the container.
const SHORT_ID: usize = 12;

fn fault(message: String, recoverable: bool) -> Error {
    Error::Start { message, recoverable }
}

fn engine_fault(what: &str, error: &EngineError) -> Error {
    // The engine may start the previous container at the same time.
    let is_recoverable = is_trouble(error) || status(error) == Some(409);
    fault(format!("cannot {what} the container of the network: {}", text(error)), is_recoverable)
}

/// Returns the name of the container that holds the network of an allocation.
fn name(alloc_id: &str) -> String {
    format!("nomad_init_{alloc_id}")
}

async fn client(shared: &Shared) -> Result<Docker> {
    let found = shared.engine.client().await;
    found.map_err(|error| fault(format!("Failed to connect to docker daemon: {error}"), true))
}

/// Creates the network of an allocation, or returns the existing one.
pub(crate) async fn create(shared: &Arc<Shared>, request: &NetworkRequest) -> Result<NetworkIsolation> {
    let client = client(shared).await?;
    let found = own(&client, &request.alloc_id).await?;
    if let Some(found) = found.filter(is_running)
        && let Some(image) = found.image.clone()
    {
        // This needs neither the image's name nor a registry.
        shared.images.count(&image, &request.alloc_id);
        shared.networks.lock().insert(request.alloc_id.clone(), image);
        return network(&found, request);
    }
    let image = image(shared, &request.alloc_id).await?;
    let made = holder(&client, request, &shared.node_id, &image).await;
    match made {
        Ok(network) => {
            shared.networks.lock().insert(request.alloc_id.clone(), image);
            Ok(network)
        }
        Err(error) => {
            shared.images.release(&image, &request.alloc_id);
            Err(error)
        }
    }
}

/// Makes the image of these containers present, and counts the allocation as its user. Returns the image's id.
async fn image(shared: &Arc<Shared>, user: &str) -> Result<String> {
    let options = &shared.options;
    let image = Reference::parse(&options.infra_image)?;
    let credentials = auth::find(&image, None, &options.auth).await.unwrap_or_else(|error| {
        tracing::warn!(error, image = options.infra_image, "pulling without credentials");
        None
    });
    let order = Order {
        image,
        force: false,
        limit: options.infra_image_pull_timeout,
        idle_limit: options.pull_activity_timeout,
        credentials,
    };
    let report =
        |message: &str, _: BTreeMap<String, String>| tracing::info!(user, message, "infra_image progress");
    let found = shared.images.fetch(order, user, &report).await;
    found.map_err(|error| {
        fault(format!("the infra_image is not available: {}", error.message), error.recoverable)
    })
}

/// Returns the network of the allocation's container, which is created unless it runs.
async fn holder(
    client: &Docker,
    request: &NetworkRequest,
    node_id: &str,
    image: &str,
) -> Result<NetworkIsolation> {
    let name = name(&request.alloc_id);
    if let Some(found) = own(client, &request.alloc_id).await? {
        if is_running(&found) {
            return network(&found, request);
        }
        remove(client, &name).await?;
    }
    let body = ContainerCreateBody {
        image: Some(image.to_owned()),
        hostname: Some(request.hostname.clone()).filter(|name| !name.is_empty()),
        labels: Some(
            [(ALLOC_LABEL, request.alloc_id.as_str()), (NODE_LABEL, node_id)]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        ),
        host_config: Some(HostConfig {
            network_mode: Some("none".into()),
            restart_policy: Some(RestartPolicy {
                name: Some(RestartPolicyNameEnum::UNLESS_STOPPED),
                maximum_retry_count: None,
            }),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let options = CreateContainerOptionsBuilder::default().name(&name).build();
    let made = client.create_container(Some(options), body).await;
    let id = made.map_err(|error| engine_fault("create from the infra_image", &error))?.id;
    let started = async {
        client.start_container(&id, None).await.map_err(|error| engine_fault("start", &error))?;
        let found = inspect(client, &id).await.map_err(|error| engine_fault("examine", &error))?;
        if !is_running(&found) {
            return Err(fault(
                "the program of the infra_image ended at once: it must run until it is stopped".into(),
                false,
            ));
        }
        network(&found, request)
    };
    match started.await {
        Ok(network) => Ok(network),
        Err(error) => {
            let _left = remove(client, &name).await;
            Err(error)
        }
    }
}

/// Returns the allocation's container. A container of that name with another owner is an error.
async fn own(client: &Docker, alloc_id: &str) -> Result<Option<ContainerInspectResponse>> {
    let name = name(alloc_id);
    let found = match inspect(client, &name).await {
        Ok(found) => found,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(engine_fault("examine", &error)),
    };
    let labels = found.config.as_ref().and_then(|config| config.labels.as_ref());
    if labels.and_then(|labels| labels.get(ALLOC_LABEL)).is_none_or(|owner| owner != alloc_id) {
        return Err(fault(format!("the name {name:?} is in use by a container of another owner"), false));
    }
    Ok(Some(found))
}

/// Returns whether a container holds its namespace.
fn is_running(found: &ContainerInspectResponse) -> bool {
    let state = found.state.clone().unwrap_or_default();
    state.running == Some(true) && state.restarting != Some(true)
}

fn network(found: &ContainerInspectResponse, request: &NetworkRequest) -> Result<NetworkIsolation> {
    let settings = found.network_settings.as_ref();
    let key = settings.and_then(|settings| settings.sandbox_key.clone()).filter(|path| !path.is_empty());
    // podman names no file for a network without interfaces.
    let pid = found.state.as_ref().and_then(|state| state.pid).filter(|pid| *pid > 0);
    let path = key.or_else(|| pid.map(|pid| format!("/proc/{pid}/ns/net")));
    let (Some(path), Some(id)) = (path, found.id.clone()) else {
        return Err(fault("the engine names no network namespace of the container".into(), false));
    };
    let mut labels = BTreeMap::from([(HOLDER.to_owned(), id.clone())]);
    let mut hostname = id.chars().take(SHORT_ID).collect();
    if !request.hostname.is_empty() {
        labels.insert(HOSTNAME.to_owned(), request.hostname.clone());
        hostname = request.hostname.clone();
    }
    Ok(NetworkIsolation {
        path: path.into(),
        labels,
        hosts: Some(HostsLine { hostname, address: String::new() }),
    })
}

/// Destroys the network of an allocation.
pub(crate) async fn destroy(shared: &Shared, alloc_id: &str) -> Result<()> {
    let client = client(shared).await?;
    if own(&client, alloc_id).await?.is_some() {
        remove(&client, &name(alloc_id)).await?;
    }
    let image = shared.networks.lock().remove(alloc_id);
    if let Some(image) = image {
        shared.images.release(&image, alloc_id);
    }
    Ok(())
}

async fn remove(client: &Docker, name: &str) -> Result<()> {
    let options = RemoveContainerOptionsBuilder::default().force(true).build();
    match client.remove_container(name, Some(options)).await {
        Ok(()) => Ok(()),
        // The container is gone, or is being removed.
        Err(error) if matches!(status(&error), Some(404 | 409)) => Ok(()),
        Err(error) => Err(engine_fault("remove", &error)),
    }
}
