//! CSI volumes of a group on a node: whether they may be used there, and the claims of a placement.
//!
//! The order of the checks and the reasons follow docs/reference/storage.md, section 7, with three differences.
//! Claims of the current plan count. Modes are checked against the modes that the volume was registered with. A
//! volume that the node already holds does not count against the plugin's limit again.

use crate::context::Context;
use crate::view::View;
use caravan_types::eval::WaitsFor;
use caravan_types::job::{TaskGroup, VolumeRequest};
use caravan_types::node::{Node, NodeStatus};
use caravan_types::volume::{Claim, ClaimId, ClaimMode, ClaimPhase, Volume, VolumePhase};
use caravan_types::{AllocId, VolumeKey};
use caravan_volumes::{AdmitError, limits, modes, topology};
use std::sync::Arc;

/// The reason that the volumes of a group do not fit a node, and the changes that may help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub reason: String,
    pub waits: Vec<WaitsFor>,
}

impl Refused {
    fn new(reason: String, waits: impl IntoIterator<Item = WaitsFor>) -> Self {
        Self { reason, waits: waits.into_iter().collect() }
    }
}

/// A volume that a group requests: alias, request and volume.
pub(crate) type Requested<'a> = (&'a str, &'a VolumeRequest, Arc<Volume>);

/// Returns the group's volume requests for an allocation's name.
pub(crate) fn requests<'a, V: View>(
    ctx: &Context<'_, V>,
    group: &'a TaskGroup,
    alloc_name: &str,
) -> Result<Vec<Requested<'a>>, Refused> {
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for (alias, request) in group.csi_volumes() {
        let key = VolumeKey::new(ctx.job.namespace.clone(), request.source_for(alloc_name));
        match ctx.view.volume(&key) {
            Some(volume) => found.push((alias.as_str(), request, Arc::clone(volume))),
            None => missing.push(key),
        }
    }
    if missing.is_empty() {
        return Ok(found);
    }
    let names: Vec<&str> = missing.iter().map(|key| key.id.as_str()).collect();
    let reason = format!("missing CSI volume(s) {}", names.join(", "));
    Err(Refused::new(reason, missing.into_iter().map(WaitsFor::Volume)))
}

/// Returns the claims of a placement on the node at a position, or the reason that the volumes cannot be used there.
///
/// With `without_stopped`, claims of allocations that this plan stops do not count. The result then states whether
/// the placement will be possible once those claims are released.
pub(crate) fn claims<V: View>(
    ctx: &mut Context<'_, V>,
    at: usize,
    group: &TaskGroup,
    alloc_name: &str,
    without_stopped: bool,
) -> Result<Vec<Claim>, Refused> {
    let node = &ctx.nodes[at];
    let requests = requests(ctx, group, alloc_name)?;
    let mut granted: Vec<Claim> = Vec::new();
    for (alias, request, volume) in &requests {
        let mut claim = draft(ctx, node, group, alias, request, volume);
        // One claim serves all aliases of a volume. It is a write claim if any alias writes.
        let same = granted.iter().position(|c| c.id.volume == claim.id.volume);
        if same.is_some_and(|at| granted[at].mode == ClaimMode::Write) {
            claim.mode = ClaimMode::Write;
        }
        check(ctx, at, volume, &mut claim, &granted, without_stopped)?;
        match same {
            Some(at) => granted[at].mode = claim.mode,
            None => granted.push(claim),
        }
    }
    Ok(granted)
}

/// Assigns claims to an allocation.
pub(crate) fn assign(claims: &mut [Claim], alloc: &AllocId) {
    for claim in claims {
        claim.id.alloc = alloc.clone();
    }
}

fn draft<V: View>(
    ctx: &Context<'_, V>,
    node: &Node,
    group: &TaskGroup,
    alias: &str,
    request: &VolumeRequest,
    volume: &Volume,
) -> Claim {
    let info = node.csi_node_plugins.get(&volume.plugin_id).and_then(|info| info.node_info.as_ref());
    let mount_options = match (&volume.mount_options, &request.mount_options) {
        (Some(base), Some(over)) => Some(base.merged(over)),
        (base, over) => over.clone().or_else(|| base.clone()),
    };
    Claim {
        id: ClaimId { volume: volume.key(), alloc: AllocId::default() },
        job_id: ctx.job.id.clone(),
        task_group: group.name.clone(),
        alias: alias.to_owned(),
        mode: if request.read_only { ClaimMode::Read } else { ClaimMode::Write },
        access_mode: request.access_mode,
        attachment_mode: request.attachment_mode,
        mount_options: mount_options.filter(|options| !options.is_empty()),
        node_id: node.id.clone(),
        plugin_id: volume.plugin_id.clone(),
        external_volume_id: volume.remote_id().to_owned(),
        external_node_id: info.map(|info| info.id.clone()).unwrap_or_default(),
        phase: ClaimPhase::Reserved,
        ..Claim::default()
    }
}

fn check<V: View>(
    ctx: &mut Context<'_, V>,
    at: usize,
    volume: &Volume,
    claim: &mut Claim,
    granted: &[Claim],
    without_stopped: bool,
) -> Result<(), Refused> {
    let node = &ctx.nodes[at];
    let (plugin_id, key) = (&volume.plugin_id, volume.key());
    let plugin_wait = || [WaitsFor::Plugin(plugin_id.clone())];
    let id = &volume.id;
    match volume.phase {
        VolumePhase::Ready | VolumePhase::Expanding => {}
        VolumePhase::Creating => {
            return Err(Refused::new(format!("CSI volume {id} is being created"), [WaitsFor::Volume(key)]));
        }
        VolumePhase::Deleting => {
            return Err(Refused::new(format!("CSI volume {id} is being deleted"), [WaitsFor::Volume(key)]));
        }
    }
    let Some(info) = node.csi_node_plugins.get(plugin_id) else {
        let reason = format!("CSI plugin {plugin_id} is missing from client {}", node.id);
        return Err(Refused::new(reason, plugin_wait()));
    };
    if !info.healthy {
        let reason = format!("CSI plugin {plugin_id} is unhealthy on client {}", node.id);
        return Err(Refused::new(reason, plugin_wait()));
    }
    let node_info = info.node_info.as_ref();
    if let Some(limit) = node_info.map(|info| info.max_volumes).filter(|limit| *limit > 0) {
        let mut held = ctx.detail(at).volumes.get(plugin_id).cloned().unwrap_or_default();
        held.extend(granted.iter().filter(|c| c.plugin_id == *plugin_id).map(|c| c.id.volume.clone()));
        if !limits::has_room(limit, &held, [&key]) {
            let reason =
                format!("CSI plugin {plugin_id} has the maximum number of volumes on client {}", node.id);
            return Err(Refused::new(reason, held.into_iter().map(WaitsFor::Claim)));
        }
    }
    if !topology::accessible(&volume.topologies, node_info.and_then(|info| info.accessible_topology.as_ref()))
    {
        return Err(Refused::new("did not meet topology requirement".to_owned(), []));
    }
    // Whether volumes are attached is unknown until a controller has reported it; unknown must not count as "no".
    let attaches = ctx.view.plugin(plugin_id).and_then(|plugin| plugin.attaches());
    if attaches.is_none() {
        return Err(Refused::new(unschedulable(volume, claim.mode), plugin_wait()));
    }
    claim.needs_attach = attaches;
    let existing = ctx.claims_of(volume, without_stopped);
    let twins: Vec<&Volume> = ctx.view.twins(volume).into_iter().map(AsRef::as_ref).collect();
    modes::sole(volume, &twins).and_then(|()| modes::admit(volume, &existing, claim)).map_err(|error| {
        let reason = match &error {
            AdmitError::MaxClaims { holder, .. } | AdmitError::OtherNode { holder, .. } => {
                exhausted(ctx, volume, claim.mode, holder)
            }
            AdmitError::ReadOnlyMode { .. } => unschedulable(volume, claim.mode),
            other => format!("CSI {other}"),
        };
        Refused::new(reason, error.waits_for())
    })
}

fn unschedulable(volume: &Volume, mode: ClaimMode) -> String {
    match mode {
        ClaimMode::Read => {
            format!("CSI volume {} is unschedulable or has exhausted its available reader claims", volume.id)
        }
        ClaimMode::Write => format!("CSI volume {} is unschedulable or is read-only", volume.id),
    }
}

/// Returns the name of the node that holds the blocking claim, if that node is not in contact.
fn silent_holder<V: View>(ctx: &Context<'_, V>, volume: &Volume, holder: &AllocId) -> Option<String> {
    let claim = ctx.view.claims_of(&volume.key()).find(|c| c.id.alloc == *holder)?;
    let silent = |node: &Node| matches!(node.status, NodeStatus::Down | NodeStatus::Disconnected);
    let node = ctx.view.node(&claim.node_id);
    node.is_none_or(|node| silent(node)).then(|| claim.node_id.short().to_owned())
}

fn exhausted<V: View>(ctx: &Context<'_, V>, volume: &Volume, mode: ClaimMode, holder: &AllocId) -> String {
    if mode == ClaimMode::Read {
        return unschedulable(volume, mode);
    }
    let base = format!("CSI volume {} has exhausted its available writer claims", volume.id);
    if let Some(node) = silent_holder(ctx, volume, holder) {
        return format!(
            "{base}: node {node} is not in contact, and its tasks must certainly have ended first"
        );
    }
    // A claim of the current plan has no allocation in the state yet, and a claim of a collected allocation no longer
    // has one.
    if holder.is_empty() || ctx.view.alloc(holder).is_some() || ctx.is_planned(holder) {
        return base;
    }
    format!(
        "{base} and is claimed by a garbage collected allocation {holder}; waiting for claim to be released"
    )
}
