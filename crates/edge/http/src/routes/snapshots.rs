//! Snapshots of volumes (docs/reference/storage.md, sections 5.1 and 5.7). Plugins store them, so no index of the
//! servers' state changes with them.

use super::volume::header_secrets;
use super::volumes::refused;
use crate::body;
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::{Meta, Next, Reply};
use caravan_server::Caller;
use caravan_types::PluginId;
use caravan_types::volume::CsiSnapshot;
use http::Method;
use serde_json::json;

/// Returns the metadata of a plugin's answer, which has no index of the servers' state.
fn meta(next_token: String) -> Meta {
    Meta { index: 0, known_leader: false, next: Next { token: next_token, total: None } }
}

fn answer(snapshots: &[CsiSnapshot], next_token: String) -> Result<Reply, ApiError> {
    let meta = meta(next_token);
    Ok(Reply::value(meta.merge_into(json!({"Snapshots": snapshots}))).meta(meta))
}

pub(crate) async fn create(call: &Call) -> Result<Reply, ApiError> {
    let snapshots = body::snapshots(&call.body)?;
    let made = call.server()?.snapshots().create(&call.namespace, snapshots).await;
    answer(&made.map_err(|e| refused(call, &e))?, String::new())
}

pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let plugin = PluginId::new(call.query.text("plugin_id"));
    crate::page::of_plugin(&call.query)?;
    let token = call.query.text("next_token").to_owned();
    let (caller, per_page) = (call.caller(), call.query.per_page()?);
    let listed =
        call.server()?.snapshots().list_as(&caller, &plugin, per_page, token, header_secrets(call)).await;
    let (snapshots, next_token) = listed.map_err(|e| refused(call, &e))?;
    answer(&snapshots, next_token)
}

pub(crate) async fn delete(call: &Call) -> Result<Reply, ApiError> {
    let plugin = PluginId::new(call.query.text("plugin_id"));
    let snapshot = call.query.text("snapshot_id");
    let (caller, secrets) = (Caller::clone(&call.caller()), header_secrets(call));
    let done = call.server()?.snapshots().delete_as(caller, &plugin, snapshot, &secrets).await;
    done.map_err(|e| refused(call, &e))?;
    Ok(Reply::empty().meta(meta(String::new())))
}
