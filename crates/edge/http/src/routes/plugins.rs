//! CSI plugins (docs/reference/http-api.md, section 3.5, docs/reference/storage.md, section 5.2).

use super::allocs;
use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::page::whole;
use crate::reply::{Meta, Next, Reply};
use caravan_server::Level;
use caravan_state::{Root, Table};
use caravan_types::plugin::Plugin;
use caravan_types::{AllocId, PluginId};
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    match call.query.text("type") {
        "csi" => {}
        "" => return Ok(Reply::value(json!([]))),
        _ => return Ok(Reply::empty()),
    }
    let prefix = call.query.text("prefix");
    let (mut meta, stubs) = blocking::read(call, |reads| {
        let rows =
            reads.snapshot().plugins_with_prefix(prefix).filter(|_| call.caller().acl.plugin(Level::List));
        let stubs: Vec<_> = rows.map(|plugin| plugin.stub()).collect();
        Ok((reads.table_index(Table::Plugins), stubs))
    })
    .await?;
    meta.next = whole(&call.query, stubs.len())?;
    Ok(Reply::json(stubs)?.meta(meta))
}

pub(crate) async fn get(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let id = PluginId::new(call.star(0));
    let (meta, value) = blocking::read(call, |reads| {
        let index = reads.part_index(&[Table::Plugins]);
        match reads.plugin(&id) {
            Some(plugin) => Ok((index, full(reads.snapshot(), plugin)?)),
            None => {
                let meta = Meta { index: 0, known_leader: true, next: Next::default() };
                Err(ApiError::not_found("plugin not found").with_meta(meta))
            }
        }
    })
    .await?;
    Ok(Reply::value(value).meta(meta))
}

/// Returns a plugin with the allocations that run it, newest change first.
fn full(root: &Root, plugin: &Plugin) -> Result<Value, ApiError> {
    let reports = plugin.controllers.values().chain(plugin.nodes.values());
    let ids: BTreeSet<&AllocId> = reports.map(|report| &report.alloc_id).collect();
    let mut rows: Vec<_> = ids.into_iter().filter_map(|id| root.alloc(id)).collect();
    rows.sort_by_key(|alloc| std::cmp::Reverse(alloc.modify_index));
    let mut value = serde_json::to_value(plugin)
        .map_err(|e| ApiError::internal(format!("the plugin cannot be encoded: {e}")))?;
    value["Allocations"] = json!(allocs::stubs(rows, true, false));
    Ok(value)
}
