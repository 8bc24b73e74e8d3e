//! Reads of nodes; changes are in [`super::node_changes`] (docs/reference/http-api.md, sections 3.3 and 5.4).

use super::{allocs, check_prefix, check_uuid};
use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::order::{Keys, keys};
use crate::page::{Token, object, page};
use crate::reply::{Meta, Next, Reply};
use caravan_server::NsCap;
use caravan_state::Table;
use caravan_types::NodeId;
use caravan_types::alloc::Allocation;
use caravan_types::node::Node;
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The keys by which lists of nodes can be sorted.
pub(crate) const KEYS: Keys<Node> = keys!(Node {
    "id" => |_, node| node.id.as_str(),
    "name" => |_, node| node.name.as_str(),
    "datacenter" => |_, node| &node.datacenter,
    "pool" => |_, node| &node.node_pool,
    "class" => |_, node| &node.node_class,
    "status" => |_, node| node.status.as_str(),
    "eligibility" => |_, node| node.scheduling_eligibility.as_str(),
    "drain" => |_, node| node.drain_strategy.is_some(),
    "version" => |_, node| node.version(),
    "address" => |_, node| &node.http_addr,
    "create" => |_, node| node.create_index,
    "modify" => |_, node| node.modify_index,
});

pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let prefix = call.query.text("prefix");
    check_prefix("node", prefix)?;
    let resources = call.query.flag("resources")?.unwrap_or(false);
    let os = call.query.flag("os")?.unwrap_or(false);
    let (mut meta, (stubs, next)) = blocking::read(call, |reads| {
        let rows = reads.snapshot().nodes_with_prefix(prefix).collect();
        let (rows, next) =
            page(&call.query, &KEYS, reads.snapshot(), rows, |node| Token::Id(node.id.as_str()), object)?;
        let stub = |node: &Node| {
            let mut stub = node.stub();
            if os {
                let name = node.attributes.get("os.name").cloned().unwrap_or_default();
                stub.attributes = Some(BTreeMap::from([("os.name".to_owned(), name)]));
            }
            if resources {
                stub.node_resources = Some(node.node_resources.clone());
                stub.reserved_resources = Some(node.reserved_resources.clone());
            }
            stub
        };
        let stubs: Vec<_> = rows.into_iter().map(|node| stub(node)).collect();
        Ok((reads.table_index(Table::Nodes), (stubs, next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::json(stubs)?.meta(meta))
}

pub(crate) async fn get(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let id = NodeId::new(call.star(0));
    check_uuid("node", id.as_str())?;
    let (meta, node) = blocking::read(call, |reads| match reads.node(&id) {
        Some(node) => Ok((node.modify_index, node.clone())),
        None => {
            let index = reads.part_index(&[Table::Nodes]);
            let meta = Meta { index, known_leader: true, next: Next::default() };
            Err(ApiError::not_found("node not found").with_meta(meta))
        }
    })
    .await?;
    let mut value = serde_json::to_value(&*node)
        .map_err(|e| ApiError::internal(format!("the node cannot be encoded: {e}")))?;
    value["Drain"] = json!(node.drain_strategy.is_some());
    Ok(Reply::value(value).meta(meta))
}

/// Lists the allocations of a node. For an unknown node, the list is empty.
pub(crate) async fn allocations(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let id = NodeId::new(call.star(0));
    let (meta, rows) = blocking::read(call, |reads| {
        let seen = |alloc: &&Arc<Allocation>| call.may(&alloc.namespace, NsCap::ReadJob);
        let mut rows: Vec<_> = reads.allocs_by_node(&id).filter(seen).cloned().collect();
        rows.sort_by_key(|alloc| alloc.create_index);
        Ok((reads.part_index(&[Table::Allocs]), rows))
    })
    .await?;
    let rows: Vec<Value> = rows.iter().map(|alloc| allocs::full(alloc)).collect::<Result<_, _>>()?;
    Ok(Reply::value(Value::Array(rows)).meta(meta))
}
