//! Host volumes and the claims of groups on them (docs/reference/storage.md, section 8.2).

use super::NO_RESOURCE;
use crate::blocking;
use crate::body::{Elsewhere, bodies, required, spelled};
use crate::call::Call;
use crate::error::ApiError;
use crate::order::{Keys, keys};
use crate::page::{Token, object, page};
use crate::query::go_bool;
use crate::reply::{Meta, Next, Reply};
use caravan_server::{NsCap, ServerError};
use caravan_state::{Root, Table};
use caravan_types::HostVolumeId;
use caravan_types::host_volume::{HostVolume, HostVolumeClaim, HostVolumeSpec};
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;

bodies! {
    /// A volume to create or to register.
    HostVolumeBody("HostVolumeCreateRequest") {
        volume: Option<Value> = "Volume";
        namespace: Elsewhere = "Namespace";
    }
}

/// The keys of a host volume and its nested objects.
const KEYS: &[&str] = &[
    "ID",
    "Name",
    "Namespace",
    "PluginID",
    "NodePool",
    "NodeID",
    "Constraints",
    "LTarget",
    "RTarget",
    "Operand",
    "RequestedCapacityMinBytes",
    "RequestedCapacityMaxBytes",
    "CapacityBytes",
    "RequestedCapabilities",
    "AttachmentMode",
    "AccessMode",
    "Parameters",
    "HostPath",
];

fn read(body: &[u8]) -> Result<HostVolumeSpec, ApiError> {
    let body: HostVolumeBody = required(body)?;
    let volume = body.volume.ok_or_else(|| ApiError::internal("missing volume definition"))?;
    serde_json::from_value(spelled(&volume, KEYS, &["Parameters"]))
        .map_err(|error| ApiError::bad_request(format!("json: {error}")))
}

/// Parses the volume of a body and checks the caller's right in the volume's namespace.
fn read_own(call: &Call) -> Result<HostVolumeSpec, ApiError> {
    let mut spec = read(&call.body)?;
    if spec.namespace.is_empty() {
        spec.namespace = call.namespace.to_string();
    }
    call.permit(&spec.namespace)?;
    Ok(spec)
}

pub(crate) async fn create(call: &Call) -> Result<Reply, ApiError> {
    let spec = read_own(call)?;
    let done = call.server()?.host_volumes().create(&call.namespace, spec).await;
    written(call, done)
}

pub(crate) async fn register(call: &Call) -> Result<Reply, ApiError> {
    let spec = read_own(call)?;
    let done = call.server()?.host_volumes().register(&call.namespace, spec).await;
    written(call, done)
}

fn written(call: &Call, done: Result<Arc<HostVolume>, ServerError>) -> Result<Reply, ApiError> {
    let volume = done.map_err(|e| ApiError::of_change(&e))?;
    let index = volume.modify_index;
    let root = call.server()?.store().snapshot();
    let shown = match call.may(&volume.namespace, NsCap::HostVolumeRead) {
        true => view(&root, &volume),
        false => named(&volume),
    };
    let body = json!({"Volume": shown, "Warnings": "", "Index": index});
    Ok(Reply::value(body).index(index))
}

/// Returns the part of a volume that a caller with only the right to write sees: its identity and node.
fn named(volume: &HostVolume) -> HostVolume {
    HostVolume {
        id: volume.id.clone(),
        name: volume.name.clone(),
        namespace: volume.namespace.clone(),
        node_id: volume.node_id.clone(),
        node_pool: volume.node_pool.clone(),
        plugin_id: volume.plugin_id.clone(),
        state: volume.state,
        create_index: volume.create_index,
        create_time: volume.create_time,
        modify_index: volume.modify_index,
        modify_time: volume.modify_time,
        ..HostVolume::default()
    }
}

/// Returns a volume with the allocations that use it.
fn view(root: &Root, volume: &HostVolume) -> HostVolume {
    let allocations = root.host_volume_users(volume).map(|alloc| alloc.stub()).collect();
    HostVolume { allocations, ..volume.clone() }
}

pub(crate) async fn get(call: &Call) -> Result<Reply, ApiError> {
    // HEAD is refused like an unknown part of a volume.
    if !call.is_get() {
        return Err(ApiError::not_found(NO_RESOURCE));
    }
    let id = HostVolumeId::new(call.star(0));
    let namespace = call.namespace.clone();
    let (meta, volume) =
        blocking::read(call, |reads| match reads.host_volume(&id).filter(|row| row.namespace == namespace) {
            Some(row) => Ok((row.modify_index, view(reads.snapshot(), row))),
            None => {
                let index = reads.part_index(&[Table::HostVolumes]);
                let meta = Meta { index, known_leader: true, next: Next::default() };
                Err(ApiError::not_found("volume not found").with_meta(meta))
            }
        })
        .await?;
    Ok(Reply::json(volume)?.meta(meta))
}

pub(crate) async fn delete(call: &Call) -> Result<Reply, ApiError> {
    let id = &HostVolumeId::new(call.star(0));
    let force = match call.query.text("force") {
        "" => false,
        text => go_bool(text)
            .ok_or_else(|| ApiError::bad_request(format!("invalid value for force: \"{text}\"")))?,
    };
    let index = call
        .server()?
        .host_volumes()
        .delete(&call.namespace, id, force)
        .await
        .map_err(|e| ApiError::of_change(&e))?;
    Ok(Reply::value(json!({"Index": index})).index(index))
}

/// The keys by which the list of host volumes can be sorted.
pub(crate) const SORT_KEYS: Keys<HostVolume> = keys!(HostVolume {
    "id" => |_, row| row.id.as_str(),
    "name" => |_, row| &row.name,
    "namespace" => |_, row| row.namespace.as_str(),
    "plugin" => |_, row| &row.plugin_id,
    "node" => |root, row| root.node(&row.node_id).map_or("", |node| node.name.as_str()),
    "pool" => |_, row| &row.node_pool,
    "state" => |_, row| row.state.as_str(),
    "capacity" => |_, row| row.capacity_bytes,
    "create" => |_, row| row.create_index,
    "modify" => |_, row| row.modify_index,
});

/// The keys by which the list of host volume claims can be sorted.
pub(crate) const CLAIM_KEYS: Keys<HostVolumeClaim> = keys!(HostVolumeClaim {
    "id" => |_, claim| &claim.id,
    "namespace" => |_, claim| claim.namespace.as_str(),
    "job" => |_, claim| claim.job_id.as_str(),
    "group" => |_, claim| &claim.task_group_name,
    "volume" => |_, claim| &claim.volume_name,
    "create" => |_, claim| claim.create_index,
    "modify" => |_, claim| claim.modify_index,
});

/// Lists the host volumes (`/v1/volumes?type=host`).
pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    let namespace = call.list_namespace();
    let (prefix, node, pool) =
        (call.query.text("prefix"), call.query.text("node_id"), call.query.text("node_pool"));
    let (mut meta, (stubs, next)) = blocking::read(call, |reads| {
        let rows = reads
            .snapshot()
            .host_volumes()
            .filter(|row| namespace.as_ref().is_none_or(|ns| row.namespace == *ns))
            .filter(|row| call.may(&row.namespace, NsCap::HostVolumeRead))
            .filter(|row| row.id.as_str().starts_with(prefix) || row.name.starts_with(prefix))
            .filter(|row| row.node_id.as_str().starts_with(node))
            .filter(|row| matches!(pool, "" | "all") || row.node_pool == pool)
            .collect();
        let (rows, next) = page(
            &call.query,
            &SORT_KEYS,
            reads.snapshot(),
            rows,
            |row| Token::Key(row.namespace.as_str(), row.id.as_str()),
            object,
        )?;
        let stubs: Vec<_> = rows.into_iter().map(|row| row.stub()).collect();
        Ok((reads.table_index(Table::HostVolumes), (stubs, next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::json(stubs)?.meta(meta))
}

/// Lists the claims of groups on host volumes.
pub(crate) async fn claims(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let namespace = call.list_namespace();
    let is = |key: &str, value: &str| matches!(call.query.text(key), "") || call.query.text(key) == value;
    let prefix = call.query.text("prefix");
    let (mut meta, (claims, next)) = blocking::read(call, |reads| {
        let rows = reads
            .snapshot()
            .host_claims()
            .filter(|claim| namespace.as_ref().is_none_or(|ns| claim.namespace == *ns))
            .filter(|claim| call.may(&claim.namespace, NsCap::HostVolumeRead))
            .filter(|claim| claim.id.starts_with(prefix))
            .filter(|claim| is("job_id", claim.job_id.as_str()))
            .filter(|claim| is("task_group", &claim.task_group_name))
            .filter(|claim| is("volume_name", &claim.volume_name))
            .collect();
        let (rows, next) = page(
            &call.query,
            &CLAIM_KEYS,
            reads.snapshot(),
            rows,
            |claim| Token::Key(claim.namespace.as_str(), &claim.id),
            object,
        )?;
        let claims: Vec<HostVolumeClaim> = rows.into_iter().map(|claim| (**claim).clone()).collect();
        Ok((reads.table_index(Table::HostClaims), (claims, next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::json(claims)?.meta(meta))
}

/// Deletes the claim of a group on a host volume.
pub(crate) async fn delete_claim(call: &Call) -> Result<Reply, ApiError> {
    let index = call
        .server()?
        .host_volumes()
        .delete_claim(&call.star(0))
        .await
        .map_err(|e| ApiError::of_change(&e))?;
    Ok(Reply::value(Value::Null).index(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_read_in_any_spelling_and_its_parameters_as_they_are() {
        let body = br#"{"volume":{"name":"data","NODEPOOL":"default","Constraints":null,
            "parameters":{"Mode":"0750"},"requestedcapabilities":[{"accessmode":"odd"}]},"PolicyOverride":false}"#;
        let spec = read(body).unwrap();
        assert_eq!((spec.name.as_str(), spec.node_pool.as_str()), ("data", "default"));
        assert_eq!(spec.parameters["Mode"], "0750");
        // The servers validate the values.
        assert_eq!(spec.requested_capabilities[0].access_mode, "odd");
        assert_eq!(read(b"{}").unwrap_err().message, "missing volume definition");
        assert_eq!(read(b"{\"Volume\":{\"Name\":1}}").unwrap_err().status, 400);
    }
}
