//! CSI volumes: the list, registration, and plugins' own lists (docs/reference/http-api.md, section 3.5, and
//! docs/reference/storage.md, sections 5.1 and 6.1).

use crate::blocking;
use crate::body;
use crate::call::Call;
use crate::error::ApiError;
use crate::order::{Keys, keys};
use crate::page::{Token, object, page};
use crate::reply::{Meta, Next, Reply, to_value};
use caravan_server::{Caller, NsCap, ServerError};
use caravan_state::{Root, Table, VolumeUse};
use caravan_types::volume::{Claim, ClaimMode, CsiVolume, Volume, VolumeRequestBody};
use caravan_types::{Namespace, NodeId, PluginId};
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The tables of a volume's answer: its row, its claims, the health of its plugin.
pub(crate) const TABLES: [Table; 3] = [Table::Volumes, Table::Claims, Table::Plugins];

/// The keys by which lists of CSI volumes can be sorted.
pub(crate) const KEYS: Keys<Volume> = keys!(Volume {
    "id" => |_, row| row.id.as_str(),
    "name" => |_, row| &row.name,
    "namespace" => |_, row| row.namespace.as_str(),
    "plugin" => |_, row| row.plugin_id.as_str(),
    "phase" => |_, row| row.phase.as_str(),
    "capacity" => |_, row| row.capacity.accepted,
    "claims" => |root, row| claims(root, row).len(),
    "create" => |_, row| row.create_index,
    "modify" => |_, row| row.modify_index,
});

/// The keys of volumes of both kinds; `node`, `pool` and `state` are those of host volumes, `phase` and `claims`
/// those of CSI volumes.
pub(crate) const LIST_KEYS: &[&str] = &[
    "id",
    "name",
    "namespace",
    "plugin",
    "phase",
    "claims",
    "node",
    "pool",
    "state",
    "capacity",
    "create",
    "modify",
];

/// Lists the volumes of the kind that the query names.
pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    match call.query.text("type") {
        "csi" => list_csi(call).await,
        "host" => super::host_volumes::list(call).await,
        "" => Ok(Reply::value(json!([]))),
        _ => Err(ApiError::not_found(super::NO_RESOURCE)),
    }
}

async fn list_csi(call: &Call) -> Result<Reply, ApiError> {
    let namespace = call.list_namespace();
    let seen = |volume: &Volume| sees(call, &volume.namespace);
    let prefix = call.query.text("prefix");
    let plugin = call.query.text("plugin_id");
    let node = call.query.get("node_id").filter(|id| !id.is_empty()).map(NodeId::new);
    let with_claims = call.query.bool("claims")?.unwrap_or(false);
    let server = call.server()?;
    let (mut meta, (stubs, next)) = blocking::read(call, |reads| {
        if !sees(call, &call.namespace) {
            return Err(crate::access::denied());
        }
        let on_node: Option<BTreeSet<_>> = node.as_ref().map(|node| {
            reads
                .snapshot()
                .claims_by_node(node)
                .filter(|c| c.phase.holds())
                .map(|c| c.id.volume.clone())
                .collect()
        });
        let desired = |volume: &&Arc<Volume>| {
            namespace.as_ref().is_none_or(|ns| volume.namespace == *ns)
                && volume.id.as_str().starts_with(prefix)
                && (plugin.is_empty() || volume.plugin_id == *plugin)
        };
        let desired = |volume: &&Arc<Volume>| desired(volume) && seen(volume);
        // The narrowest index comes first: only candidates are examined, and only rows of the page are built.
        let rows = match (&on_node, plugin) {
            (Some(keys), _) => {
                keys.iter().filter_map(|key| reads.snapshot().volume(key)).filter(desired).collect()
            }
            (None, "") => {
                reads.snapshot().volumes_with_prefix(namespace.as_ref(), prefix).filter(|v| seen(v)).collect()
            }
            (None, plugin) => {
                reads.snapshot().volumes_by_plugin(&PluginId::new(plugin)).filter(desired).collect()
            }
        };
        let (rows, next) = page(
            &call.query,
            &KEYS,
            reads.snapshot(),
            rows,
            |row| Token::Key(row.namespace.as_str(), row.id.as_str()),
            |row| object(&bare(reads.snapshot(), row)),
        )?;
        let stub = |volume: &Volume| {
            let mut value = to_value(bare(reads.snapshot(), volume).stub())?;
            // Volumes that the caller may list but not read have no claims.
            if with_claims && call.may(&volume.namespace, NsCap::CsiReadVolume) {
                value["CaravanPhase"] = json!(volume.phase);
                value["CaravanClaims"] =
                    super::volume::claims(server, claims(reads.snapshot(), volume).into_iter());
            }
            Ok(value)
        };
        let stubs = rows.into_iter().map(|volume| stub(volume)).collect::<Result<Vec<Value>, ApiError>>()?;
        Ok((reads.tables_index(&TABLES), (stubs, next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::json(stubs)?.meta(meta))
}

pub(crate) fn claims<'a>(root: &'a Root, volume: &Volume) -> Vec<&'a Claim> {
    root.claims_of(&volume.key()).filter(|claim| claim.phase.holds()).map(|claim| &**claim).collect()
}

/// Returns a volume without the allocations that use it.
fn bare(root: &Root, volume: &Volume) -> CsiVolume {
    let plugin = root.plugin(&volume.plugin_id).map(|plugin| &**plugin);
    CsiVolume::project(volume, &claims(root, volume), plugin, Vec::new())
}

/// Returns a volume as clients see it, with the allocations of its claims, readers first.
pub(crate) fn view(root: &Root, volume: &Volume) -> CsiVolume {
    shown(volume, &VolumeUse::collect(root, volume))
}

/// As [`view`], from the rows that belong to the volume.
pub(crate) fn shown(volume: &Volume, used: &VolumeUse) -> CsiVolume {
    let held: Vec<&Claim> = used.claims.iter().map(|(claim, _)| &**claim).collect();
    let of = |mode: ClaimMode| {
        let claims = used.claims.iter().filter(move |(claim, _)| claim.mode == mode);
        claims.filter_map(|(_, alloc)| Some(alloc.as_ref()?.stub()))
    };
    let stubs = of(ClaimMode::Read).chain(of(ClaimMode::Write)).collect();
    CsiVolume::project(volume, &held, used.plugin.as_deref(), stubs)
}

/// Returns the part of a volume that a caller with only the right to write sees: its identity. A stored volume may
/// hold more than the caller's request.
fn named(volume: &Volume) -> CsiVolume {
    CsiVolume {
        id: volume.id.clone(),
        name: volume.name.clone(),
        namespace: volume.namespace.clone(),
        external_id: volume.external_id.clone(),
        plugin_id: volume.plugin_id.clone(),
        create_index: volume.create_index,
        modify_index: volume.modify_index,
        create_time: volume.create_time,
        modify_time: volume.modify_time,
        ..CsiVolume::default()
    }
}

/// Registers volumes that exist at their plugins.
pub(crate) async fn register(call: &Call) -> Result<Reply, ApiError> {
    let volumes = read(call, false)?;
    let server = call.server()?;
    let caller = Caller::clone(&call.caller());
    answer(call, server.volumes().register_as(caller, &call.namespace, volumes).await)
}

/// Creates volumes through their plugins.
pub(crate) async fn create(call: &Call) -> Result<Reply, ApiError> {
    let volumes = read(call, true)?;
    let server = call.server()?;
    let caller = Caller::clone(&call.caller());
    answer(call, server.volumes().create_as(caller, &call.namespace, volumes).await)
}

/// Parses the volumes of a body and checks the caller's right in each volume's namespace.
fn read(call: &Call, create: bool) -> Result<Vec<VolumeRequestBody>, ApiError> {
    let mut volumes = body::volumes(&call.body, create)?;
    for volume in &mut volumes {
        if volume.namespace.is_empty() {
            volume.namespace = call.namespace.clone();
        }
        call.permit(volume.namespace.as_str())?;
    }
    Ok(volumes)
}

/// Returns whether the caller may see the volumes of a namespace.
fn sees(call: &Call, namespace: &Namespace) -> bool {
    call.may(namespace, NsCap::CsiListVolume) || call.may(namespace, NsCap::CsiReadVolume)
}

/// Converts a refused change. The answer names the conflicting volume only to callers who may see it.
pub(super) fn refused(call: &Call, error: &ServerError) -> ApiError {
    let message = error.message_for(|namespace| sees(call, namespace));
    ApiError { message, ..ApiError::of_change(error) }
}

fn answer(call: &Call, done: Result<Vec<Arc<Volume>>, ServerError>) -> Result<Reply, ApiError> {
    let volumes = done.map_err(|e| refused(call, &e))?;
    let server = call.server()?;
    let root = server.store().snapshot();
    let index = volumes.iter().map(|volume| volume.modify_index).max().unwrap_or(root.index());
    let views: Vec<CsiVolume> = volumes
        .iter()
        .map(|volume| match call.may(&volume.namespace, NsCap::CsiReadVolume) {
            true => view(&root, volume),
            false => named(volume),
        })
        .collect();
    let meta = Meta { index, known_leader: server.is_leader(), next: Next::default() };
    let body = json!({"Volumes": views, "Warnings": ""});
    Ok(Reply::value(meta.merge_into(body)).meta(meta))
}

/// Lists volumes as a plugin reports them, in the plugin's own pages.
pub(crate) async fn external(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let plugin = PluginId::new(call.query.text("plugin_id"));
    crate::page::of_plugin(&call.query)?;
    let per_page = call.query.per_page()?;
    let (volumes, next_token) = call
        .server()?
        .volumes()
        .list_external(&call.caller(), &plugin, per_page, call.query.text("next_token").to_owned())
        .await
        .map_err(|e| refused(call, &e))?;
    let next = Next { token: next_token, total: None };
    let meta = Meta { index: 0, known_leader: false, next };
    let body: Value = json!({"Volumes": volumes});
    Ok(Reply::value(meta.merge_into(body)).meta(meta))
}
