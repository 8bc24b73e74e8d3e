//! The calls of CSI controller plugins on behalf of the servers.

use super::manager::Manager;
use super::{CsiFault, capability};
use caravan_csi as csi;
use caravan_messages::{ControllerAnswer, ControllerCall, ControllerOperation as Op};
use caravan_types::job::MountOptions;
use caravan_types::plugin::PluginRole;
use caravan_types::volume::{Capability, CsiSnapshot, Topology, Usage, VolumeExternalStub};
use std::time::Duration;

/// The longest wait of a call for a plugin that is registered but has not answered yet.
const TIMEOUT: Duration = Duration::from_secs(5);

impl Manager {
    /// Sends the call to the controller plugin on this node. Calls for one volume are serialized. The lock is kept
    /// until the plugin has answered, even if the requester has disconnected: a call of a restarted server must not
    /// overtake its earlier call.
    pub(crate) async fn controller_call(&self, call: ControllerCall) -> Result<ControllerAnswer, CsiFault> {
        let this = self.clone();
        let work = tokio::spawn(async move {
            let _turn = match call.operation.subject() {
                Some(subject) => Some(this.controller_turn(&call.plugin_id, subject).await),
                None => None,
            };
            this.make_controller_call(call).await
        });
        work.await.unwrap_or(Err(CsiFault::GivenUp))
    }

    async fn make_controller_call(&self, call: ControllerCall) -> Result<ControllerAnswer, CsiFault> {
        let lent = self.plugin(PluginRole::Controller, &call.plugin_id, TIMEOUT).await?;
        let client = &lent.instance.client;
        Ok(match call.operation {
            Op::Create {
                name,
                capacity_min,
                capacity_max,
                capabilities,
                mount_options,
                parameters,
                secrets,
                clone_id,
                snapshot_id,
                topology,
            } => {
                let limits = csi::CapacityRange {
                    required_bytes: bytes(capacity_min),
                    limit_bytes: bytes(capacity_max),
                };
                let content_source = match (clone_id.is_empty(), snapshot_id.is_empty()) {
                    (false, _) => Some(csi::ContentSource::Volume(clone_id)),
                    (true, false) => Some(csi::ContentSource::Snapshot(snapshot_id)),
                    (true, true) => None,
                };
                let segments = |all: Vec<Topology>| all.into_iter().map(|t| t.segments).collect();
                let created = client
                    .create_volume(csi::CreateVolumeRequest {
                        name,
                        capacity_range: (limits != csi::CapacityRange::default()).then_some(limits),
                        capabilities: all_of(&capabilities, mount_options.as_ref())?,
                        parameters,
                        secrets: secrets.expose().clone().into(),
                        content_source,
                        topology: topology.map(|t| csi::TopologyRequirement {
                            requisite: segments(t.required),
                            preferred: segments(t.preferred),
                        }),
                    })
                    .await?;
                ControllerAnswer::Created {
                    external_id: created.volume_id,
                    capacity_bytes: signed(created.capacity_bytes),
                    context: created.context,
                    topologies: created
                        .accessible_topology
                        .into_iter()
                        .map(|segments| Topology { segments })
                        .collect(),
                }
            }
            Op::Delete { external_id, secrets } => {
                let request = csi::DeleteVolumeRequest {
                    volume_id: external_id,
                    secrets: secrets.expose().clone().into(),
                };
                match client.delete_volume(request).await {
                    // Against the specification, but the volume is deleted: the response of an earlier call may have
                    // been lost.
                    Err(error) if error.is_not_found() => {}
                    other => other?,
                }
                ControllerAnswer::Done
            }
            Op::Publish { external_id, external_node_id, usage, mount_options, secrets, context } => {
                let publish_context = client
                    .controller_publish(csi::ControllerPublishRequest {
                        volume_id: external_id,
                        node_id: external_node_id,
                        capability: capability(usage, mount_options.as_ref(), "")?,
                        readonly: usage.read_only,
                        secrets: secrets.expose().clone().into(),
                        context,
                    })
                    .await?;
                ControllerAnswer::Published { publish_context }
            }
            Op::Unpublish { external_id, external_node_id, secrets } => {
                let request = csi::ControllerUnpublishRequest {
                    volume_id: external_id,
                    node_id: external_node_id,
                    secrets: secrets.expose().clone().into(),
                };
                match client.controller_unpublish(request).await {
                    // The volume or the node does not exist: nothing is attached.
                    Err(error) if error.is_not_found() => {}
                    other => other?,
                }
                ControllerAnswer::Done
            }
            Op::Validate { external_id, capabilities, mount_options, parameters, context, secrets } => {
                let request = csi::ValidateRequest {
                    volume_id: external_id,
                    context,
                    capabilities: all_of(&capabilities, mount_options.as_ref())?,
                    parameters,
                    secrets: secrets.expose().clone().into(),
                };
                let refused = match client.validate_capabilities(request).await? {
                    csi::Validation::Confirmed => None,
                    csi::Validation::Refused(why) => Some(why),
                };
                ControllerAnswer::Validated { refused }
            }
            Op::List { max_entries, starting_token } => {
                let most = u32::try_from(max_entries).unwrap_or(0);
                let page = client.list_volumes(most, &starting_token).await?;
                ControllerAnswer::Listed {
                    volumes: page.entries.into_iter().map(stub).collect(),
                    next_token: page.next_token.unwrap_or_default(),
                }
            }
            Op::Expand {
                external_id,
                capacity_min,
                capacity_max,
                capability: used,
                mount_options,
                secrets,
            } => {
                let capability = match used {
                    Some(used) => all_of(&[used], mount_options.as_ref())?.pop(),
                    None => None,
                };
                let expanded = client
                    .controller_expand(csi::ControllerExpandRequest {
                        volume_id: external_id,
                        capacity_range: csi::CapacityRange {
                            required_bytes: bytes(capacity_min),
                            limit_bytes: bytes(capacity_max),
                        },
                        secrets: secrets.expose().clone().into(),
                        capability,
                    })
                    .await?;
                ControllerAnswer::Expanded {
                    capacity_bytes: signed(expanded.capacity_bytes),
                    node_expansion_required: expanded.node_expansion_required,
                }
            }
            Op::CreateSnapshot { external_id, name, parameters, secrets } => {
                let made = client
                    .create_snapshot(csi::CreateSnapshotRequest {
                        source_volume_id: external_id,
                        name,
                        secrets: secrets.expose().clone().into(),
                        parameters,
                    })
                    .await?;
                ControllerAnswer::Snapshot(Box::new(snapshot(made)))
            }
            Op::DeleteSnapshot { snapshot_id, secrets } => {
                let request =
                    csi::DeleteSnapshotRequest { snapshot_id, secrets: secrets.expose().clone().into() };
                match client.delete_snapshot(request).await {
                    // Against the specification, but the snapshot is deleted: the response of an earlier call may have
                    // been lost.
                    Err(error) if error.is_not_found() => {}
                    other => other?,
                }
                ControllerAnswer::Done
            }
            Op::ListSnapshots { max_entries, starting_token, secrets, snapshot_id } => {
                let page = client
                    .list_snapshots(csi::ListSnapshotsRequest {
                        max_entries: u32::try_from(max_entries).unwrap_or(0),
                        starting_token,
                        snapshot_id,
                        secrets: secrets.expose().clone().into(),
                        ..Default::default()
                    })
                    .await?;
                ControllerAnswer::Snapshots {
                    snapshots: page.entries.into_iter().map(snapshot).collect(),
                    next_token: page.next_token.unwrap_or_default(),
                }
            }
        })
    }
}

fn snapshot(made: csi::Snapshot) -> CsiSnapshot {
    CsiSnapshot {
        id: made.snapshot_id,
        external_source_volume_id: made.source_volume_id,
        size_bytes: signed(made.size_bytes),
        create_time: made.created.map_or(0, |at| signed(at.as_secs())),
        is_ready: made.ready_to_use,
        ..CsiSnapshot::default()
    }
}

fn all_of(
    capabilities: &[Capability],
    options: Option<&MountOptions>,
) -> Result<Vec<csi::VolumeCapability>, CsiFault> {
    let one = |c: &Capability| {
        let usage =
            Usage { read_only: false, attachment_mode: c.attachment_mode, access_mode: c.access_mode };
        capability(usage, options, "")
    };
    capabilities.iter().map(one).collect()
}

fn stub(listed: csi::ListedVolume) -> VolumeExternalStub {
    let condition = listed.condition;
    let (clone_id, snapshot_id) = match listed.volume.content_source {
        Some(csi::ContentSource::Volume(id)) => (id, String::new()),
        Some(csi::ContentSource::Snapshot(id)) => (String::new(), id),
        None => Default::default(),
    };
    VolumeExternalStub {
        external_id: listed.volume.volume_id,
        capacity_bytes: signed(listed.volume.capacity_bytes),
        volume_context: listed.volume.context,
        clone_id,
        snapshot_id,
        published_external_node_ids: listed.published_node_ids,
        is_abnormal: condition.as_ref().is_some_and(|c| c.abnormal),
        status: condition.map(|c| c.message).unwrap_or_default(),
    }
}

fn bytes(size: i64) -> u64 {
    u64::try_from(size).unwrap_or(0)
}

fn signed(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
