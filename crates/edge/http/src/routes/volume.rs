//! One CSI volume. Ids may contain slashes, so the last segment decides.

use super::volumes::{self, TABLES};
use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::query::go_bool;
use crate::reply::{Meta, Next, Reply};
use caravan_server::{Handle, Kind};
use caravan_state::{Root, Topic};
use caravan_types::ser::Secrets;
use caravan_types::volume::{Claim, Volume};
use caravan_types::{NodeId, VolumeId, VolumeKey};
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns the key of the volume that the path of a request names.
fn named(call: &Call) -> VolumeKey {
    VolumeKey { namespace: call.namespace.clone(), id: VolumeId::new(call.star(0)) }
}

/// Creates volumes. POST is refused, as in Nomad.
pub(crate) async fn create(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::PUT)?;
    volumes::create(call).await
}

/// Registers volumes. POST is refused, as in Nomad.
pub(crate) async fn register(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::PUT)?;
    volumes::register(call).await
}

pub(crate) async fn get(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let key = named(call);
    let server = call.server()?;
    let (meta, value) = blocking::read(call, |reads| {
        let index = reads.part_index(&TABLES);
        match reads.volume(&key) {
            Some(volume) => {
                reads.record(Topic::ClaimsOfVolume(key.clone()));
                reads.record(Topic::Plugin(volume.plugin_id.clone()));
                Ok((index, full(server, reads.snapshot(), volume)?))
            }
            None => {
                let meta = Meta { index, known_leader: true, next: Next::default() };
                Err(ApiError::not_found("volume not found").with_meta(meta))
            }
        }
    })
    .await?;
    Ok(Reply::value(value).meta(meta))
}

/// Explains the state of the volume and of each of its claims. Calls in progress and wait reasons are only in the
/// servers' memory, so only changes of the records wake a blocking query.
pub(crate) async fn explain(call: &Call) -> Result<Reply, ApiError> {
    let key = named(call);
    let server = call.server()?;
    let (meta, reported) = blocking::read(call, |reads| {
        let index = reads.part_index(&TABLES);
        reads.record(Topic::Volume(key.clone()));
        reads.record(Topic::ClaimsOfVolume(key.clone()));
        server.volumes().explain(&key).map(|reported| (index, reported)).ok_or_else(|| {
            let meta = Meta { index, known_leader: true, next: Next::default() };
            ApiError::not_found("volume not found").with_meta(meta)
        })
    })
    .await?;
    // The answer has no values of users, so its integers stay integers.
    Ok(Reply::parsed(reported)?.meta(meta))
}

/// Returns the claims that hold a volume, with phases and wait reasons.
pub(super) fn claims<'c>(server: &Handle, held: impl Iterator<Item = &'c Claim>) -> Value {
    let claim = |claim: &Claim| {
        json!({
            "AllocID": claim.id.alloc,
            "NodeID": claim.node_id,
            "JobID": claim.job_id,
            "Mode": claim.mode,
            "Phase": claim.phase,
            "Tries": claim.tries,
            "LastError": claim.last_error,
            "NextTry": claim.next_try,
            "WaitsFor": server.volumes().wait_sentence(&claim.id),
            "ModifyTime": claim.modify_time,
        })
    };
    Value::Array(held.map(claim).collect())
}

/// Returns the volume in Nomad's shape, with Caravan's additional facts: the phase of the volume, and the phase
/// and wait reason of each claim.
fn full(server: &Handle, root: &Root, volume: &Arc<Volume>) -> Result<Value, ApiError> {
    let mut value = serde_json::to_value(volumes::view(root, volume))
        .map_err(|e| ApiError::internal(format!("the volume cannot be encoded: {e}")))?;
    value["CaravanClaims"] = claims(server, volumes::claims(root, volume).into_iter());
    value["CaravanPhase"] = json!(volume.phase);
    value["CaravanCapacity"] = json!({
        "Wanted": volume.capacity.requested_min,
        "Accepted": volume.capacity.accepted,
        "Actual": volume.capacity.actual,
    });
    let usage = server.volumes().usage(root, &volume.key());
    if !usage.is_empty() {
        value["CaravanUsage"] = json!(usage);
    }
    value["CaravanLastError"] = json!(volume.last_error);
    Ok(value)
}

fn removed(call: &Call, index: u64) -> Result<Reply, ApiError> {
    let known_leader = call.server()?.is_leader();
    Ok(Reply::empty().meta(Meta { index, known_leader, next: Next::default() }))
}

pub(crate) async fn deregister(call: &Call) -> Result<Reply, ApiError> {
    let key = &named(call);
    let force = match call.query.text("force") {
        "" => false,
        text => go_bool(text).ok_or_else(|| ApiError::bad_request("invalid force value"))?,
    };
    let done = call.server()?.volumes().deregister(key, force).await;
    removed(call, done.map_err(|e| volumes::refused(call, &e))?)
}

pub(crate) async fn delete(call: &Call) -> Result<Reply, ApiError> {
    let key = &named(call);
    let done = call.server()?.volumes().delete(key, &header_secrets(call)).await;
    removed(call, done.map_err(|e| volumes::refused(call, &e))?)
}

/// Returns the secrets of the request's header.
pub(super) fn header_secrets(call: &Call) -> Secrets {
    let header = call.headers.get("x-nomad-csi-secrets").and_then(|value| value.to_str().ok());
    secrets(header.unwrap_or_default())
}

/// Parses `k1=v1,k2=v2`; drops parts that are not pairs.
fn secrets(header: &str) -> Secrets {
    let pairs: BTreeMap<String, String> = header
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.trim().to_owned(), value.to_owned()))
        .filter(|(key, _)| !key.is_empty())
        .collect();
    Secrets::new(pairs)
}

pub(crate) async fn detach(call: &Call) -> Result<Reply, ApiError> {
    let key = &named(call);
    let node = call.query.text("node");
    if node.is_empty() {
        return Err(ApiError::bad_request("detach requires node ID"));
    }
    let server = call.server()?;
    let done = server.volumes().detach(key, &NodeId::new(node)).await.map_err(|error| {
        if error.kind() == Kind::NotFound && server.store().snapshot().volume(key).is_none() {
            return ApiError::internal("no such volume");
        }
        volumes::refused(call, &error)
    })?;
    removed(call, done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_come_in_pairs() {
        let secrets = secrets("user=admin, pass=a=b,nonsense,=x");
        let want = [("pass".to_owned(), "a=b".to_owned()), ("user".to_owned(), "admin".to_owned())];
        assert_eq!(secrets.expose(), &BTreeMap::from(want));
    }
}
