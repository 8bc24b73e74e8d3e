//! The conversion of a plugin's responses to the node's report (docs/reference/storage.md, section 3.3).

use super::registry::Registration;
use caravan_csi::{
    CapabilitySet, ControllerCapability as C, CsiClient, CsiError, NodeCapability as N, PluginCapability as P,
};
use caravan_types::Time;
use caravan_types::plugin::{CsiControllerInfo, CsiInfo, CsiNodeInfo, PluginRole};
use caravan_types::volume::Topology;

/// A plugin in one role, reached through its socket.
#[derive(Debug)]
pub(crate) struct Instance {
    /// The registration that serves the plugin.
    pub(crate) registration: Registration,
    /// The connection to the plugin.
    pub(crate) client: CsiClient,
}

/// Properties that do not change while the plugin runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Basics {
    controller_service: bool,
    topologies: bool,
    /// The node information, with the capabilities of the node service once the plugin has returned them.
    node: Option<CsiNodeInfo>,
    capable: bool,
}

impl Instance {
    /// Fingerprints the plugin. `basics` are the properties that an earlier fingerprint found.
    pub(crate) async fn fingerprint(&self, basics: &mut Option<Basics>, now: Time) -> CsiInfo {
        let mut info = blank(&self.registration, now);
        if basics.is_none() {
            match self.basics().await {
                Ok(found) => *basics = Some(found),
                Err(error) => {
                    info.health_description = format!("failed initial fingerprint with err: {error}");
                    return info;
                }
            }
        }
        let Some(known) = basics else { return info };
        info.requires_controller_plugin = known.controller_service;
        info.requires_topologies = known.topologies;
        info.node_info.clone_from(&known.node);
        match self.capabilities(&mut info).await {
            Ok(ready) => {
                known.node.clone_from(&info.node_info);
                known.capable = true;
                info.healthy = ready;
                info.health_description = if ready { "healthy" } else { "unhealthy" }.to_owned();
            }
            Err(error) => {
                // The last response stays valid. Without a response, no node information is reported, because an
                // empty value would mean that the plugin has no capabilities.
                if !known.capable {
                    info.node_info = None;
                }
                info.health_description = format!("failed fingerprinting with error: {error}");
            }
        }
        info
    }

    async fn basics(&self) -> Result<Basics, CsiError> {
        let capabilities = self.client.get_plugin_capabilities().await?;
        let node = match self.registration.role {
            PluginRole::Controller => None,
            PluginRole::Node => {
                let info = self.client.node_get_info().await?;
                Some(CsiNodeInfo {
                    id: info.node_id,
                    max_volumes: info.max_volumes.map_or(i64::MAX, |n| i64::try_from(n).unwrap_or(i64::MAX)),
                    accessible_topology: info.accessible_topology.map(|segments| Topology { segments }),
                    ..Default::default()
                })
            }
        };
        Ok(Basics {
            controller_service: capabilities.has(P::ControllerService),
            topologies: capabilities.has(P::VolumeAccessibilityConstraints),
            node,
            capable: false,
        })
    }

    /// Probes the plugin and reads the capabilities of its role; returns whether the plugin is ready.
    async fn capabilities(&self, info: &mut CsiInfo) -> Result<bool, CsiError> {
        let ready = self.client.probe().await?.is_ready();
        match self.registration.role {
            PluginRole::Controller => {
                info.controller_info =
                    Some(controller_info(&self.client.controller_get_capabilities().await?));
            }
            PluginRole::Node => {
                let set = self.client.node_get_capabilities().await?;
                if let Some(node) = &mut info.node_info {
                    node.requires_node_stage_volume = set.has(N::StageUnstageVolume);
                    node.supports_stats = set.has(N::GetVolumeStats);
                    node.supports_expand = set.has(N::ExpandVolume);
                    node.supports_condition = set.has(N::VolumeCondition);
                    node.supports_mount_group = set.has(N::VolumeMountGroup);
                }
            }
        }
        Ok(ready)
    }
}

/// Returns the information that is reported before the first fingerprint.
pub(crate) fn blank(registration: &Registration, now: Time) -> CsiInfo {
    CsiInfo {
        plugin_id: registration.name.clone(),
        alloc_id: registration.alloc.clone(),
        healthy: false,
        health_description: "initial fingerprint not completed".to_owned(),
        update_time: now,
        provider: registration.provider.clone(),
        provider_version: registration.version.clone(),
        ..Default::default()
    }
}

fn controller_info(set: &CapabilitySet<C>) -> CsiControllerInfo {
    CsiControllerInfo {
        supports_create_delete: set.has(C::CreateDeleteVolume),
        supports_attach_detach: set.has(C::PublishUnpublishVolume),
        supports_list_volumes: set.has(C::ListVolumes),
        supports_get_capacity: set.has(C::GetCapacity),
        supports_create_delete_snapshot: set.has(C::CreateDeleteSnapshot),
        supports_list_snapshots: set.has(C::ListSnapshots),
        supports_clone: set.has(C::CloneVolume),
        supports_read_only_attach: set.has(C::PublishReadonly),
        supports_expand: set.has(C::ExpandVolume),
        supports_list_volumes_attached_nodes: set.has(C::ListVolumesPublishedNodes),
        supports_condition: set.has(C::VolumeCondition),
        supports_get: set.has(C::GetVolume),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_csi::Deadlines;
    use caravan_types::job::CsiPluginType;
    use std::path::PathBuf;

    /// A plugin that dies between two responses has not reported that it lacks staging. If that were assumed, unstaged
    /// volumes would be published, and staged ones would remain.
    #[tokio::test]
    async fn missing_answers_are_unknown_and_earlier_answers_are_kept() {
        let nobody = std::path::Path::new("/nonexistent/csi.sock");
        let registration = Registration {
            role: PluginRole::Node,
            name: "p".into(),
            alloc: "a".into(),
            kind: CsiPluginType::Monolith,
            provider: String::new(),
            version: String::new(),
            socket: nobody.into(),
            host_root: PathBuf::new(),
            plugin_root: PathBuf::new(),
            healthy: true,
        };
        let client = CsiClient::new(nobody, Deadlines::default());
        let instance = Instance { registration, client };
        let node = CsiNodeInfo { id: "n".into(), ..CsiNodeInfo::default() };
        let known = |node, capable| {
            Some(Basics { controller_service: true, topologies: false, node: Some(node), capable })
        };
        let info = instance.fingerprint(&mut known(node.clone(), false), Time(1)).await;
        assert_eq!((info.healthy, info.node_info), (false, None));
        let reported = CsiNodeInfo { requires_node_stage_volume: true, ..node };
        let info = instance.fingerprint(&mut known(reported.clone(), true), Time(1)).await;
        assert_eq!((info.healthy, info.node_info), (false, Some(reported)));
    }
}
