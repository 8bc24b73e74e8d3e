//! Node pools (docs/reference/http-api.md, section 3.3).

use super::{jobs, nodes};
use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::order::{Keys, keys};
use crate::page::{Token, object, page};
use crate::reply::Reply;
use crate::typed::{self, refused};
use caravan_server::{NsCap, PoolCap};
use caravan_state::{Root, Table};
use caravan_types::job::Job;
use caravan_types::node::Node;
use caravan_types::node_pool::{ALL, NodePool};
use http::Method;
use std::sync::Arc;

/// The keys by which the list of pools can be sorted.
pub(crate) const KEYS: Keys<NodePool> = keys!(NodePool {
    "name" => |_, pool| &pool.name,
    "description" => |_, pool| &pool.description,
    "create" => |_, pool| pool.create_index,
    "modify" => |_, pool| pool.modify_index,
});

/// Lists the node pools.
pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let prefix = call.query.text("prefix");
    let (mut meta, (rows, next)) = blocking::read(call, |reads| {
        let seen = |row: &&Arc<NodePool>| {
            row.name.starts_with(prefix) && call.caller().acl.node_pool(&row.name, PoolCap::Read)
        };
        let rows: Vec<_> = reads.snapshot().node_pools().filter(seen).collect();
        let (rows, next) =
            page(&call.query, &KEYS, reads.snapshot(), rows, |row| Token::Id(row.name.as_str()), object)?;
        let rows: Vec<_> = rows.into_iter().cloned().collect();
        Ok((reads.table_index(Table::NodePools), (rows, next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::json(rows)?.meta(meta))
}

pub(crate) async fn create(call: &Call) -> Result<Reply, ApiError> {
    write(call, None).await
}

/// Creates or changes the pool that the path names.
pub(crate) async fn update(call: &Call) -> Result<Reply, ApiError> {
    write(call, Some(&call.star(0))).await
}

pub(crate) async fn delete(call: &Call) -> Result<Reply, ApiError> {
    let done = call.server()?.admin().delete_node_pool(call.star(0)).await;
    Ok(Reply::empty().index(done.map_err(|e| refused(&e))?))
}

fn without_prefix(call: &Call) -> Result<(), ApiError> {
    match call.query.text("prefix") {
        "" => Ok(()),
        _ => Err(ApiError::bad_request("prefix query parameter is not allowed")),
    }
}

async fn write(call: &Call, name: Option<&str>) -> Result<Reply, ApiError> {
    let row: NodePool = typed::row(&call.body)?;
    if name.is_some_and(|name| row.name != name) {
        return Err(ApiError::bad_request("Node pool name does not match request path"));
    }
    let index = call.server()?.admin().write_node_pool(row).await.map_err(|e| refused(&e))?;
    Ok(Reply::empty().index(index))
}

pub(crate) async fn get(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let name: &str = &call.star(0);
    let (meta, row) = blocking::read(call, |reads| match reads.node_pool(name) {
        Some(row) => Ok((row.modify_index, row.clone())),
        None => Err(unknown(reads.snapshot())),
    })
    .await?;
    Ok(Reply::json(row)?.meta(meta))
}

fn unknown(root: &Root) -> ApiError {
    super::absent(root, Table::NodePools, "node pool not found")
}

pub(crate) async fn nodes_of(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    without_prefix(call)?;
    let name: &str = &call.star(0);
    let (mut meta, (stubs, next)) = blocking::read(call, |reads| {
        reads.node_pool(name).ok_or_else(|| unknown(reads.snapshot()))?;
        let seen = |node: &&Arc<Node>| {
            (name == ALL || node.node_pool == name)
                && call.caller().acl.node_pool(&node.node_pool, PoolCap::Read)
        };
        let rows: Vec<_> = reads.snapshot().nodes().filter(seen).collect();
        let (rows, next) = page(
            &call.query,
            &nodes::KEYS,
            reads.snapshot(),
            rows,
            |node| Token::Id(node.id.as_str()),
            object,
        )?;
        let stubs: Vec<_> = rows.into_iter().map(|node| node.stub()).collect();
        Ok((reads.table_index(Table::Nodes), (stubs, next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::json(stubs)?.meta(meta))
}

pub(crate) async fn jobs_of(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    without_prefix(call)?;
    let name: &str = &call.star(0);
    let namespace = call.list_namespace();
    let with_meta = call.query.flag("meta")?.unwrap_or(false);
    let tables = [Table::Jobs, Table::JobSummaries];
    let (mut meta, (stubs, next)) = blocking::read(call, |reads| {
        reads.node_pool(name).ok_or_else(|| unknown(reads.snapshot()))?;
        let seen = |job: &&Arc<Job>| {
            job.node_pool == name
                && call.may(&job.namespace, NsCap::ListJobs)
                && call.caller().acl.node_pool(name, PoolCap::Read)
        };
        let rows: Vec<_> = reads.snapshot().jobs_with_prefix(namespace.as_ref(), "").filter(seen).collect();
        let (rows, next) = page(&call.query, &jobs::KEYS, reads.snapshot(), rows, jobs::own, object)?;
        let stubs: Vec<_> =
            rows.into_iter().map(|job| jobs::stub(reads.snapshot(), job, with_meta)).collect();
        Ok((reads.tables_index(&tables), (stubs, next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::json(stubs)?.meta(meta))
}
