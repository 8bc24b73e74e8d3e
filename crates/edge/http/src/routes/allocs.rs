//! Allocations (docs/reference/http-api.md, sections 3.2 and 5.3).

use super::{check_prefix, check_uuid};
use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::filter::whole_allocation;
use crate::order::{Keys, keys};
use crate::page::{Pager, Token, object};
use crate::reply::{Meta, Next, Reply};
use caravan_server::{Kind, NsCap};
use caravan_state::{Root, Table};
use caravan_types::alloc::{AllocListStub, AllocatedTaskResources, Allocation};
use caravan_types::job::Resources;
use caravan_types::small::Map;
use caravan_types::{AllocId, JobId, JobKey, NodeId};
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns the elements of a list.
pub(crate) fn stubs<'a>(
    rows: impl IntoIterator<Item = &'a Arc<Allocation>>,
    task_states: bool,
    resources: bool,
) -> Vec<AllocListStub> {
    let stub = |alloc: &Arc<Allocation>| {
        let mut stub = alloc.stub();
        if !task_states {
            stub.task_states.clear();
        }
        if resources {
            stub.allocated_resources.clone_from(&alloc.allocated_resources);
        }
        stub
    };
    rows.into_iter().map(stub).collect()
}

/// Returns an allocation as filter expressions see it; with its job only if they use it.
fn asked_about(alloc: &Allocation, with_job: bool) -> Value {
    match with_job {
        true => whole_allocation(object(alloc)),
        false => whole_allocation(object(&Allocation { job: None, ..alloc.clone() })),
    }
}

/// Returns the allocations of the job and on the node that the query names, and whether it names one.
fn narrowed<'r>(call: &Call, root: &'r Root) -> Option<Vec<&'r Arc<Allocation>>> {
    let (job, node) = (call.query.text("job_id"), call.query.text("node_id"));
    let is_on = |alloc: &&Arc<Allocation>| node.is_empty() || alloc.node_id == *node;
    // An earlier job may have had the same id.
    let is_of = |alloc: &Allocation, key: &JobKey| {
        let (ran, now) = (alloc.job.as_ref(), root.job(key));
        ran.zip(now).is_none_or(|(ran, now)| ran.create_index == now.create_index)
    };
    match (job, node, call.list_namespace()) {
        ("", "", _) => None,
        ("", node, _) => Some(root.allocs_by_node(&NodeId::new(node)).collect()),
        (job, _, Some(namespace)) => {
            let key = JobKey { namespace, id: JobId::new(job) };
            Some(root.allocs_by_job(&key).filter(|alloc| is_of(alloc, &key)).filter(is_on).collect())
        }
        (job, "", None) => Some(root.allocs().filter(|alloc| alloc.job_id == *job).collect()),
        (job, node, None) => {
            let rows = root.allocs_by_node(&NodeId::new(node));
            Some(rows.filter(|alloc| alloc.job_id == *job).collect())
        }
    }
}

/// The keys by which the list of allocations can be sorted.
pub(crate) const KEYS: Keys<Allocation> = keys!(Allocation {
    "id" => |_, alloc| alloc.id.as_str(),
    "name" => |_, alloc| &alloc.name,
    "namespace" => |_, alloc| alloc.namespace.as_str(),
    "job" => |_, alloc| alloc.job_id.as_str(),
    "group" => |_, alloc| alloc.task_group.as_str(),
    "node" => |_, alloc| alloc.node_name.as_str(),
    "status" => |_, alloc| alloc.client_status.as_str(),
    "desired" => |_, alloc| alloc.desired_status.as_str(),
    "version" => |_, alloc| alloc.job.as_ref().map_or(0, |job| job.version),
    "create" => |_, alloc| alloc.create_index,
    "modify" => |_, alloc| alloc.modify_index,
});

pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let namespace = call.list_namespace();
    let prefix = call.query.text("prefix");
    check_prefix("alloc", prefix)?;
    let pager = Pager::new(&call.query, &KEYS)?;
    let with_job = pager.mentions("Job");
    let resources = call.query.flag("resources")?.unwrap_or(false);
    let task_states = call.query.flag("task_states")?.unwrap_or(true);
    let (mut meta, (rows, next)) = blocking::read(call, |reads| {
        let here = |alloc: &&Arc<Allocation>| {
            namespace.as_ref().is_none_or(|ns| alloc.namespace == *ns)
                && call.may(&alloc.namespace, NsCap::ReadJob)
        };
        let seen = |alloc: &&Arc<Allocation>| asked_about(alloc, with_job);
        let (rows, next) = match (prefix, narrowed(call, reads.snapshot())) {
            ("", Some(rows)) => pager.cut(
                reads.snapshot(),
                rows.into_iter().filter(here).collect(),
                |alloc| Token::Created(alloc.create_index, alloc.id.as_str()),
                seen,
            )?,
            ("", None) => pager.take(
                reads.snapshot(),
                reads.snapshot().allocs_by_age(pager.start_by_age(), pager.reverse).filter(here),
                |alloc| Token::Created(alloc.create_index, alloc.id.as_str()),
                seen,
            )?,
            (prefix, _) => pager.cut(
                reads.snapshot(),
                reads.snapshot().allocs_with_prefix(prefix).filter(here).collect(),
                |alloc| Token::Id(alloc.id.as_str()),
                seen,
            )?,
        };
        Ok((reads.table_index(Table::Allocs), (stubs(rows, task_states, resources), next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::json(rows)?.meta(meta))
}

pub(crate) async fn get(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let id = AllocId::new(call.star(0));
    check_uuid("alloc", id.as_str())?;
    let (meta, alloc) = blocking::read(call, |reads| match reads.alloc(&id) {
        Some(alloc) => Ok((alloc.modify_index, alloc.clone())),
        None => {
            let index = reads.part_index(&[Table::Allocs]);
            let meta = Meta { index, known_leader: true, next: Next::default() };
            Err(ApiError::not_found("alloc not found").with_meta(meta))
        }
    })
    .await?;
    Ok(Reply::value(full(&alloc)?).meta(meta))
}

pub(crate) async fn stop(call: &Call) -> Result<Reply, ApiError> {
    let id = AllocId::new(call.star(0));
    check_uuid("alloc", id.as_str())?;
    let at_once = call.query.flag("no_shutdown_delay")?.unwrap_or(false);
    let reschedule = call.query.flag("reschedule")?.unwrap_or(false);
    let stopped = call.server()?.jobs().stop_alloc(id, at_once, reschedule).await;
    let (eval, index) = stopped.map_err(|error| match error.kind() {
        Kind::NotFound => ApiError::not_found("allocation not found"),
        _ => ApiError::of_change(&error),
    })?;
    Ok(Reply::value(json!({"EvalID": eval, "Index": index})).index(index))
}

/// Returns the whole allocation, with display messages and the older views of its resources.
pub(crate) fn full(alloc: &Allocation) -> Result<Value, ApiError> {
    let mut alloc = Allocation { task_states: alloc.displayed_states(), ..alloc.clone() };
    if let Some(supplied) = &alloc.allocated_resources {
        let shared = Resources {
            disk_mb: supplied.shared.disk_mb,
            networks: supplied.shared.networks.clone(),
            ..Resources::default()
        };
        let tasks: Map<String, Resources> =
            supplied.tasks.iter().map(|(name, task)| (name.clone(), of_task(task))).collect();
        let mut total = shared.clone();
        for task in tasks.values() {
            total.cpu += task.cpu;
            total.memory_mb += task.memory_mb;
            total.memory_max_mb += if task.memory_max_mb > 0 { task.memory_max_mb } else { task.memory_mb };
            total.networks.extend(task.networks.iter().cloned());
        }
        (alloc.resources, alloc.shared_resources, alloc.task_resources) =
            (Some(total.into()), Some(shared.into()), tasks);
    }
    let mut value = serde_json::to_value(&alloc)
        .map_err(|e| ApiError::internal(format!("the allocation cannot be encoded: {e}")))?;
    if let Some(network) = value.get_mut("NetworkStatus").and_then(Value::as_object_mut) {
        // Without the settings of a plugin, the job's block applies.
        let asked = || alloc.group().and_then(|group| group.networks.first()?.dns.clone());
        let dns = alloc.network_status.as_ref().and_then(|status| status.dns.clone()).or_else(asked);
        network.insert("DNS".into(), json!(dns));
    }
    Ok(value)
}

fn of_task(task: &AllocatedTaskResources) -> Resources {
    Resources {
        cpu: task.cpu.cpu_shares,
        memory_mb: task.memory.memory_mb,
        memory_max_mb: task.memory.memory_max_mb,
        networks: task.networks.clone(),
        ..Resources::default()
    }
}
