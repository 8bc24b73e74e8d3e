//! The gRPC services of a device plugin.

use super::{DeviceGroup, DevicePlugin, GroupStats, Instance, Reservation};
use crate::driver::{duration, time};
use crate::error::Cause;
use crate::hclspec::Spec;
use crate::serve::Reply;
use crate::serve::base::Plugin;
use crate::serve::stream::{self, Until as _};
use crate::value::attributes;
use crate::{DeviceError, Info};
use async_trait::async_trait;
use caravan_proto::plugins::base::{NomadConfig, PluginType};
use caravan_proto::plugins::device as wire;
use caravan_proto::plugins::device::device_plugin_server::DevicePlugin as Device;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

/// The services of a device plugin.
pub(crate) struct DeviceService<P> {
    plugin: Arc<P>,
    /// The token that is cancelled when the process ends.
    cancel: CancellationToken,
}

impl<P: DevicePlugin> DeviceService<P> {
    pub(crate) fn new(plugin: P, cancel: CancellationToken) -> Self {
        Self { plugin: Arc::new(plugin), cancel }
    }
}

#[async_trait]
impl<P: DevicePlugin> Plugin for DeviceService<P> {
    const KIND: PluginType = PluginType::Device;
    type Config = P::Config;

    fn info(&self) -> Info {
        self.plugin.info()
    }

    fn config_schema(&self) -> Option<Spec> {
        self.plugin.config_schema()
    }

    async fn configure(&self, config: P::Config, _agent: Option<NomadConfig>) -> Result<(), Status> {
        self.plugin.configure(config).await.map_err(DeviceError::into_status)
    }

    fn unreadable(cause: Cause) -> Status {
        DeviceError::Failed(cause).into_status()
    }
}

#[async_trait]
impl<P: DevicePlugin> Device for DeviceService<P> {
    async fn fingerprint(
        &self,
        _: Request<wire::FingerprintRequest>,
    ) -> Reply<BoxStream<wire::FingerprintResponse>> {
        let interval = self.plugin.fingerprint_interval();
        let look = stream::look(&self.plugin, |plugin| async move {
            let groups = plugin.fingerprint().await.map_err(DeviceError::into_status)?;
            let device_group = groups.into_iter().map(group).collect();
            Ok(Some(wire::FingerprintResponse { device_group }))
        });
        Ok(Response::new(stream::changes(interval, look).until(&self.cancel)))
    }

    async fn reserve(&self, request: Request<wire::ReserveRequest>) -> Reply<wire::ReserveResponse> {
        let result = self.plugin.reserve(request.into_inner().device_ids).await;
        result.map(|found| Response::new(reservation(found))).map_err(DeviceError::into_status)
    }

    async fn stats(&self, request: Request<wire::StatsRequest>) -> Reply<BoxStream<wire::StatsResponse>> {
        let look = stream::look(&self.plugin, |plugin| async move {
            let groups = plugin.stats().await.map_err(DeviceError::into_status)?;
            Ok(Some(wire::StatsResponse { groups: groups.into_iter().map(group_stats).collect() }))
        });
        let interval = stream::interval(duration(request.into_inner().collection_interval));
        Ok(Response::new(stream::every(interval, look).until(&self.cancel)))
    }
}

fn group(from: DeviceGroup) -> wire::DeviceGroup {
    wire::DeviceGroup {
        vendor: from.vendor,
        device_type: from.device_type,
        device_name: from.name,
        devices: from.instances.into_iter().map(instance).collect(),
        attributes: attributes(from.attributes),
    }
}

fn instance(from: Instance) -> wire::DetectedDevice {
    wire::DetectedDevice {
        id: from.id,
        healthy: from.healthy,
        health_description: from.health_description,
        hw_locality: from.pci_bus_id.map(|pci_bus_id| wire::DeviceLocality { pci_bus_id }),
    }
}

fn reservation(from: Reservation) -> wire::ReserveResponse {
    let mounts = from.mounts.into_iter().map(|mount| wire::Mount {
        task_path: mount.task_path,
        host_path: mount.host_path,
        read_only: mount.read_only,
    });
    let devices = from.devices.into_iter().map(|device| wire::DeviceSpec {
        task_path: device.task_path,
        host_path: device.host_path,
        permissions: device.permissions,
    });
    let container_res =
        wire::ContainerReservation { envs: from.env, mounts: mounts.collect(), devices: devices.collect() };
    wire::ReserveResponse { container_res: Some(container_res) }
}

fn group_stats(from: GroupStats) -> wire::DeviceGroupStats {
    let instances = from.instances.into_iter().map(|(id, stats)| {
        let message = wire::DeviceStats {
            summary: Some(stats.summary.into_message()),
            stats: Some(stats.stats.into_message()),
            timestamp: Some(time(Some(stats.at))),
        };
        (id, message)
    });
    wire::DeviceGroupStats {
        vendor: from.vendor,
        r#type: from.device_type,
        name: from.name,
        instance_stats: instances.collect(),
    }
}
