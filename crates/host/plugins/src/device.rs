//! [`ExternalDevice`]: the devices of an external plugin.

use crate::PluginError;
use crate::convert;
use crate::error::describe;
use crate::instance::{Instance, Prepare};
use crate::process::{MAX_MESSAGE, Process, Program};
use crate::setup::{Configured, Setup};
use async_trait::async_trait;
use caravan_drivers::{
    DeviceAttribute, DeviceError, DeviceGroup, DeviceGroupStats, DeviceInstance, DeviceNode, DevicePlugin,
    DeviceStats, DeviceStream, Mount, Propagation, Reservation, StatObject, StatValue,
};
use caravan_proto::plugins::device::{
    self, FingerprintRequest, ReserveRequest, StatsRequest, device_plugin_client::DevicePluginClient,
};
use caravan_proto::plugins::structs::{self, attribute};
use caravan_types::Time;
use caravan_types::device::DeviceLocality;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming};

/// The number of messages that may wait for a slow reader.
const QUEUE: usize = 4;
/// The longest time for a reservation.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(60);

/// The devices of an external plugin.
#[derive(Debug)]
pub struct ExternalDevice {
    name: String,
    instance: Instance,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    setup: Setup,
    shown: Mutex<Option<serde_json::Value>>,
}

#[async_trait]
impl Prepare for Shared {
    async fn prepare(&self, process: &Arc<Process>) -> Result<(), PluginError> {
        let configured = self.setup.configure(process).await?;
        *self.shown.lock() = Some(configured.shown);
        Ok(())
    }

    fn keeps_processes(&self) -> bool {
        false
    }
}

impl ExternalDevice {
    /// Creates the devices of a plugin. Without a running process, the supervisor starts one.
    pub(crate) fn new(
        name: String,
        setup: Setup,
        program: Program,
        first: Option<(Arc<Process>, Configured)>,
    ) -> Self {
        let (process, shown) = first.map(|(process, configured)| (process, configured.shown)).unzip();
        let shared = Arc::new(Shared { setup, shown: Mutex::new(shown) });
        let instance = Instance::supervise(program, process, Arc::clone(&shared) as Arc<dyn Prepare>);
        Self { name, instance, shared }
    }

    /// Waits until the plugin serves calls, at most this long. Returns its configuration with defaults.
    pub(crate) async fn shown(&self, limit: Duration) -> Option<serde_json::Value> {
        let _late = tokio::time::timeout(limit, self.instance.up()).await;
        self.shared.shown.lock().clone()
    }

    async fn client(
        &self,
    ) -> Result<(Arc<Process>, DevicePluginClient<tonic::transport::Channel>), DeviceError> {
        let process = self.instance.up().await.ok_or_else(|| self.gone())?;
        let client = DevicePluginClient::new(process.channel()).max_decoding_message_size(MAX_MESSAGE);
        Ok((process, client))
    }

    fn gone(&self) -> DeviceError {
        DeviceError::Gone(self.name.clone())
    }

    /// Opens a stream of the plugin, and forwards its messages until the receiver is dropped.
    async fn stream<M: Send + 'static, T: Send + 'static>(
        &self,
        process: Arc<Process>,
        what: &'static str,
        opened: impl Future<Output = Result<tonic::Response<Streaming<M>>, Status>>,
        convert: fn(M) -> T,
    ) -> Result<DeviceStream<T>, DeviceError> {
        let mut messages = tokio::select! {
            opened = opened => match opened {
                Ok(opened) => opened.into_inner(),
                Err(status) => return Err(classify(&self.name, &process, what, &status).await),
            },
            () = process.ended() => return Err(self.gone()),
        };
        let (sender, receiver) = mpsc::channel(QUEUE);
        let name = self.name.clone();
        tokio::spawn(async move {
            loop {
                let message = tokio::select! {
                    message = messages.message() => message,
                    () = sender.closed() => return,
                    () = process.ended() => {
                        let _gone = sender.send(Err(DeviceError::Gone(name))).await;
                        return;
                    }
                };
                let (item, is_last) = match message {
                    Ok(Some(message)) => (Ok(convert(message)), false),
                    // A process that ends may end its streams first.
                    Ok(None) if ends(&process).await => (Err(DeviceError::Gone(name.clone())), true),
                    Ok(None) => return,
                    Err(status) => (Err(classify(&name, &process, what, &status).await), true),
                };
                if sender.send(item).await.is_err() || is_last {
                    return;
                }
            }
        });
        Ok(receiver)
    }
}

/// Returns whether the process ends within a short time.
async fn ends(process: &Process) -> bool {
    const LIMIT: Duration = Duration::from_secs(3);
    tokio::time::timeout(LIMIT, process.ended()).await.is_ok()
}

async fn classify(name: &str, process: &Process, what: &'static str, status: &Status) -> DeviceError {
    if status.code() == Code::Unimplemented {
        return DeviceError::Unsupported { plugin: name.to_owned(), what };
    }
    let is_transport = matches!(status.code(), Code::Unavailable | Code::Cancelled)
        || std::error::Error::source(status).is_some();
    if process.has_ended() || (is_transport && ends(process).await) {
        return DeviceError::Gone(name.to_owned());
    }
    DeviceError::Rejected(describe(status))
}

#[async_trait]
impl DevicePlugin for ExternalDevice {
    fn name(&self) -> &str {
        &self.name
    }

    async fn fingerprint(&self) -> Result<DeviceStream<Vec<DeviceGroup>>, DeviceError> {
        let (process, mut client) = self.client().await?;
        let opened = client.fingerprint(FingerprintRequest {});
        self.stream(process, "find devices", opened, groups).await
    }

    async fn reserve(&self, ids: &[String]) -> Result<Reservation, DeviceError> {
        let (process, mut client) = self.client().await?;
        let asked = client.reserve(ReserveRequest { device_ids: ids.to_vec() });
        let answer = tokio::select! {
            answer = tokio::time::timeout(RESERVE_TIMEOUT, asked) => answer,
            () = process.ended() => return Err(self.gone()),
        };
        match answer {
            Ok(Ok(answer)) => Ok(reservation(answer.into_inner())),
            Ok(Err(status)) => Err(classify(&self.name, &process, "reserve devices", &status).await),
            Err(_) => Err(DeviceError::Rejected(format!(
                "device plugin {} did not answer within {} s",
                self.name,
                RESERVE_TIMEOUT.as_secs()
            ))),
        }
    }

    async fn stats(&self, interval: Duration) -> Result<DeviceStream<Vec<DeviceGroupStats>>, DeviceError> {
        let (process, mut client) = self.client().await?;
        let opened = client.stats(StatsRequest { collection_interval: Some(convert::duration(interval)) });
        self.stream(process, "measure devices", opened, statistics).await
    }

    async fn shutdown(&self) {
        if let Some(process) = self.instance.stop() {
            process.shut_down(self.instance.program()).await;
        }
    }
}

fn groups(found: device::FingerprintResponse) -> Vec<DeviceGroup> {
    let instance = |found: device::DetectedDevice| DeviceInstance {
        id: found.id,
        healthy: found.healthy,
        health_description: found.health_description,
        locality: found.hw_locality.map(|place| DeviceLocality { pci_bus_id: place.pci_bus_id }),
    };
    let group = |found: device::DeviceGroup| DeviceGroup {
        vendor: found.vendor,
        kind: found.device_type,
        name: found.device_name,
        instances: found.devices.into_iter().map(instance).collect(),
        attributes: found.attributes.into_iter().map(|(key, value)| (key, attribute(value))).collect(),
    };
    found.device_group.into_iter().map(group).collect()
}

fn attribute(found: structs::Attribute) -> DeviceAttribute {
    let unit = found.unit;
    let empty = DeviceAttribute { unit, ..Default::default() };
    match found.value {
        // A message with an attribute without value is invalid, which the device manager reports.
        None => empty,
        Some(attribute::Value::FloatVal(number)) => DeviceAttribute { float: Some(number), ..empty },
        Some(attribute::Value::IntVal(number)) => DeviceAttribute { int: Some(number), ..empty },
        Some(attribute::Value::StringVal(text)) => DeviceAttribute { string: Some(text), ..empty },
        Some(attribute::Value::BoolVal(flag)) => DeviceAttribute { bool: Some(flag), ..empty },
    }
}

fn reservation(found: device::ReserveResponse) -> Reservation {
    let found = found.container_res.unwrap_or_default();
    let mount = |mount: device::Mount| Mount {
        host_path: mount.host_path.into(),
        task_path: mount.task_path.into(),
        read_only: mount.read_only,
        propagation: Propagation::Private,
    };
    let node = |device: device::DeviceSpec| DeviceNode {
        task_path: device.task_path.into(),
        host_path: device.host_path.into(),
        permissions: device.permissions,
    };
    Reservation {
        envs: found.envs,
        mounts: found.mounts.into_iter().map(mount).collect(),
        devices: found.devices.into_iter().map(node).collect(),
    }
}

fn statistics(found: device::StatsResponse) -> Vec<DeviceGroupStats> {
    let one = |(id, found): (String, device::DeviceStats)| {
        let time = found.timestamp.unwrap_or_default();
        let unix_ns = time.seconds.saturating_mul(1_000_000_000).saturating_add(time.nanos.into());
        (
            id,
            DeviceStats {
                summary: found.summary.map(value),
                stats: found.stats.map(object),
                timestamp: Time(unix_ns),
            },
        )
    };
    let group = |found: device::DeviceGroupStats| DeviceGroupStats {
        vendor: found.vendor,
        kind: found.r#type,
        name: found.name,
        instances: found.instance_stats.into_iter().map(one).collect(),
    };
    found.groups.into_iter().map(group).collect()
}

/// Reads a tree of values. Messages are nested at most a hundred levels deep, a limit of the decoder.
fn object(found: structs::StatObject) -> StatObject {
    StatObject {
        nested: found.nested.into_iter().map(|(key, nested)| (key, object(nested))).collect(),
        attributes: found.attributes.into_iter().map(|(key, found)| (key, value(found))).collect(),
    }
}

fn value(found: structs::StatValue) -> StatValue {
    StatValue {
        float_numerator: found.float_numerator_val,
        float_denominator: found.float_denominator_val,
        int_numerator: found.int_numerator_val,
        int_denominator: found.int_denominator_val,
        string: found.string_val,
        bool: found.bool_val,
        unit: found.unit,
        desc: found.desc,
    }
}
