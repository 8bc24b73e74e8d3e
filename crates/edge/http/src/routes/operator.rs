//! Operators' routes: the servers, scheduling, root keys, snapshots (docs/reference/http-api.md, section 3.7).

use super::system::enterprise;
use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::http_body::Body;
use crate::query::go_bool;
use crate::reply::Reply;
use crate::typed::{self, coded, refused};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use caravan_api::ErrorReason;
use caravan_messages::cluster::ClusterKey;
use caravan_server::SnapshotKeys;
use caravan_state::Table;
use caravan_state::archive::{self, Archive, ArchiveKey, ArchiveMeta};
use caravan_types::operator::{AutopilotConfig, SchedulerConfig};
use caravan_types::{Nanos, UnixNanos};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The time for which a key set may be cached. A prepublished key is visible for this long before its first use.
const KEYS_FRESH: &str = "max-age=3600";

fn check_index(call: &Call) -> Result<Option<u64>, ApiError> {
    match call.query.text("cas") {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!(
                "Error parsing cas value: strconv.ParseUint: parsing \"{text}\": invalid syntax"
            ))
        }),
    }
}

/// Returns the error for a configuration that cannot be parsed.
fn unread(what: &str, error: ApiError) -> ApiError {
    ApiError { message: format!("Error parsing {what} config: {}", error.message), ..error }
}

pub(crate) async fn autopilot(call: &Call) -> Result<Reply, ApiError> {
    match call.method {
        Method::GET => {
            let root = call.server()?.store().snapshot();
            Reply::json(root.autopilot_config())
        }
        Method::PUT => {
            let row: AutopilotConfig = typed::row(&call.body).map_err(|e| unread("autopilot", e))?;
            for (field, time) in [
                ("LastContactThreshold", row.last_contact_threshold.0),
                ("ServerStabilizationTime", row.server_stabilization_time.0),
            ] {
                if time < Nanos::ZERO {
                    let negative = ApiError::bad_request(format!("{field} is {time}, which is below 0"));
                    return Err(unread("autopilot", negative));
                }
            }
            let done = call.server()?.admin().set_autopilot(row, check_index(call)?).await;
            Ok(Reply::value(json!(done.map_err(|e| refused(&e))?.0)))
        }
        _ => Err(ApiError::unknown_path()),
    }
}

pub(crate) async fn scheduler(call: &Call) -> Result<Reply, ApiError> {
    if call.is_get() {
        let (meta, config) = blocking::read(call, |reads| {
            Ok((reads.scheduler_config().modify_index, reads.scheduler_config().clone()))
        })
        .await?;
        let body = meta.merge_into(json!({"SchedulerConfig": config}));
        return Ok(Reply::value(body).meta(meta));
    }
    call.put()?;
    let mut body: Value = typed::row(&call.body).map_err(|e| unread("scheduler", e))?;
    let algorithm = body["SchedulerAlgorithm"].as_str().unwrap_or_default().to_owned();
    if !matches!(algorithm.as_str(), "" | "binpack" | "spread") {
        return Err(ApiError::bad_request(format!("invalid scheduler algorithm: {algorithm}")));
    }
    if algorithm.is_empty() {
        body["SchedulerAlgorithm"] = json!("binpack");
    }
    // Fields that a request omits are off, even if their default is on.
    if let Some(preemption) = body.as_object_mut().and_then(|map| {
        let entry = map.entry("PreemptionConfig").or_insert_with(|| json!({}));
        entry.as_object_mut()
    }) {
        preemption.entry("SystemSchedulerEnabled").or_insert(json!(false));
    }
    let config: SchedulerConfig = typed::of_value(&body)?;
    let done = call.server()?.admin().set_scheduler(config, check_index(call)?).await;
    let (updated, index) = done.map_err(|e| refused(&e))?;
    Ok(Reply::value(json!({"Updated": updated, "Index": index})).index(index))
}

pub(crate) async fn keys(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let (meta, rows) = blocking::read(call, |reads| {
        Ok((reads.table_index(Table::RootKeys), reads.snapshot().root_keys().cloned().collect::<Vec<_>>()))
    })
    .await?;
    Ok(Reply::json(rows)?.meta(meta))
}

pub(crate) async fn rotate(call: &Call) -> Result<Reply, ApiError> {
    let full = call.query.flag("full")?.unwrap_or(false);
    let publish = match call.query.text("publish_time") {
        "" | "0" => None,
        text => {
            let wrong = |_| ApiError::bad_request("Error parsing publish_time value: invalid syntax");
            Some(UnixNanos(text.parse().map_err(wrong)?))
        }
    };
    let (key, index) = call.server()?.admin().rotate_key(full, publish).await.map_err(|e| refused(&e))?;
    Ok(Reply::value(json!({"Key": key, "Index": index})).index(index))
}

pub(crate) async fn delete_key(call: &Call) -> Result<Reply, ApiError> {
    let force = match call.query.text("force") {
        "" => false,
        text => go_bool(text)
            .ok_or_else(|| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid force parameter"))?,
    };
    let index = call.server()?.admin().delete_key(&call.star(0), force).await.map_err(|e| refused(&e))?;
    Ok(Reply::value(json!({"Index": index})).index(index))
}

/// Returns the milliseconds since the epoch.
fn now_ms() -> i64 {
    caravan_sys::time::wall_nanos() / 1_000_000
}

pub(crate) async fn save(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let server = call.server()?.clone();
    let key = match call.query.flag("key")?.unwrap_or(false) {
        true => Some(ArchiveKey::Clear(*server.admin().cluster_key().map_err(|e| coded(&e))?.expose())),
        false => None,
    };
    if !call.query.is_stale() {
        server.barrier().await.map_err(|e| coded(&e))?;
    }
    let made = tokio::task::spawn_blocking(move || {
        let root = server.store().snapshot();
        let (index, term, created) = (root.index(), server.log_metrics().term, now_ms());
        let meta = ArchiveMeta { version: 1, id: format!("{term}-{index}-{created}"), index, term, created };
        archive::pack_root(&meta, &root, key.as_ref())
    });
    let failed = |why: String| ApiError::internal(format!("failed to save a snapshot: {why}"));
    let bytes = made.await.map_err(|e| failed(e.to_string()))?.map_err(|e| failed(e.to_string()))?;
    let digest = format!("sha-256={}", BASE64.encode(Sha256::digest(&bytes)));
    let mut reply = Reply::raw("application/x-gzip", Body::from(bytes));
    if let Ok(value) = HeaderValue::from_str(&digest) {
        reply.headers.insert(HeaderName::from_static("digest"), value);
    }
    Ok(reply)
}

pub(crate) async fn restore(call: &Call) -> Result<Reply, ApiError> {
    let server = call.server()?.clone();
    let body = call.body.clone();
    let read = tokio::task::spawn_blocking(move || archive::unpack(&body));
    let failed = |why: String| ApiError::internal(format!("failed to restore from snapshot: {why}"));
    let read = read.await.map_err(|e| failed(e.to_string()))?.map_err(|e| failed(e.to_string()))?;
    let Archive { state, key, .. } = read;
    let keys = match key {
        _ if call.query.flag("without_key")?.unwrap_or(false) => SnapshotKeys::NotNeeded,
        Some(ArchiveKey::Clear(key)) => SnapshotKeys::Needed(Some(ClusterKey::new(key))),
        // The client program opens a sealed key, because the passphrase stays with its user.
        Some(ArchiveKey::Sealed(_)) | None => SnapshotKeys::Needed(None),
    };
    match server.admin().restore(state, keys).await {
        Ok(_) => Ok(Reply::empty()),
        Err(error) if error.reason() == Some(ErrorReason::SnapshotKey) => Err(ApiError::coded(&error)),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Returns an answer without contacting Vault, because nothing depends on legacy Vault tokens.
pub(crate) async fn upgrade_check(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let (meta, ()) = blocking::read(call, |reads| Ok((reads.snapshot().index(), ()))).await?;
    let body = json!({"JobsWithoutVaultIdentity": [], "OutdatedNodes": [], "VaultTokens": null});
    Ok(Reply::value(meta.merge_into(body)).meta(meta))
}

/// Returns the answer that no license exists.
pub(crate) fn license(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    Ok(Reply::empty().status(StatusCode::NO_CONTENT))
}

/// Refuses all methods except POST; POST is a route of Nomad's Enterprise edition.
pub(crate) fn utilization(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::POST)?;
    Err(enterprise())
}

/// Returns the keys that verify identities, or their location (`/.well-known/...`, RFC 8414).
pub(crate) async fn well_known(call: &Call) -> Result<Reply, ApiError> {
    let admin = call.server()?.admin();
    match call.star(0).as_str() {
        "jwks.json" => {
            call.only(&Method::GET)?;
            let set = admin.key_set().await.map_err(|e| coded(&e))?;
            let (meta, ()) =
                blocking::read(call, |reads| Ok((reads.table_index(Table::RootKeys), ()))).await?;
            Ok(Reply::value(set).meta(meta).header("cache-control", KEYS_FRESH))
        }
        "openid-configuration" => {
            call.only(&Method::GET)?;
            let issuer = admin
                .issuer()
                .ok_or_else(|| ApiError::not_found("OIDC Discovery endpoint disabled"))?
                .trim_end_matches('/');
            Ok(Reply::value(json!({
                "issuer": issuer,
                "jwks_uri": format!("{issuer}/.well-known/jwks.json"),
                "id_token_signing_alg_values_supported": ["RS256", "EdDSA"],
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
            })))
        }
        _ => Err(ApiError::unknown_path()),
    }
}
