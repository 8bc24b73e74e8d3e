//! The calls of the Identity service.

use super::Sensitive;
use crate::{Call, CapabilitySet, CsiClient, CsiError, PluginCapability, PluginInfo, Readiness};
use caravan_proto::csi;

impl CsiClient {
    /// Returns whether the plugin is ready to serve ("Probe").
    pub async fn probe(&self) -> Result<Readiness, CsiError> {
        let mut client = self.identity();
        let answer = self
            .call(Call::Probe, &Sensitive::none(), csi::ProbeRequest {}, |request| client.probe(request))
            .await?;
        Ok(match answer.ready {
            Some(false) => Readiness::NotReady,
            Some(true) | None => Readiness::Ready,
        })
    }

    /// Returns the plugin's name and version ("GetPluginInfo").
    pub async fn get_plugin_info(&self) -> Result<PluginInfo, CsiError> {
        let call = Call::GetPluginInfo;
        let mut client = self.identity();
        let answer = self
            .call(call, &Sensitive::none(), csi::GetPluginInfoRequest {}, |request| {
                client.get_plugin_info(request)
            })
            .await?;
        if answer.name.is_empty() {
            return Err(CsiError::Malformed { call, field: "name" });
        }
        Ok(PluginInfo { name: answer.name, vendor_version: answer.vendor_version, manifest: answer.manifest })
    }

    /// Returns the services of the plugin ("GetPluginCapabilities").
    pub async fn get_plugin_capabilities(&self) -> Result<CapabilitySet<PluginCapability>, CsiError> {
        use csi::plugin_capability::{Type, service, volume_expansion};
        let mut client = self.identity();
        let answer = self
            .call(
                Call::GetPluginCapabilities,
                &Sensitive::none(),
                csi::GetPluginCapabilitiesRequest {},
                |request| client.get_plugin_capabilities(request),
            )
            .await?;
        let mut set = CapabilitySet::default();
        for capability in answer.capabilities.into_iter().filter_map(|capability| capability.r#type) {
            match capability {
                Type::Service(part) => set.insert(
                    part.r#type,
                    match service::Type::try_from(part.r#type) {
                        Ok(service::Type::ControllerService) => Some(PluginCapability::ControllerService),
                        Ok(service::Type::VolumeAccessibilityConstraints) => {
                            Some(PluginCapability::VolumeAccessibilityConstraints)
                        }
                        Ok(service::Type::GroupControllerService) => {
                            Some(PluginCapability::GroupControllerService)
                        }
                        Ok(service::Type::SnapshotMetadataService) => {
                            Some(PluginCapability::SnapshotMetadataService)
                        }
                        Ok(service::Type::Unknown) | Err(_) => None,
                    },
                ),
                Type::VolumeExpansion(part) => set.insert(
                    part.r#type,
                    match volume_expansion::Type::try_from(part.r#type) {
                        Ok(volume_expansion::Type::Online) => Some(PluginCapability::ExpansionOnline),
                        Ok(volume_expansion::Type::Offline) => Some(PluginCapability::ExpansionOffline),
                        Ok(volume_expansion::Type::Unknown) | Err(_) => None,
                    },
                ),
            }
        }
        Ok(set)
    }
}
