//! Search for ids by prefix, over all kinds of objects (docs/reference/http-api.md, section 3.7).

use crate::blocking;
use crate::body::{bodies, required};
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;
use caravan_server::{Caller, Level, NsCap, PoolCap, VarCap};
use caravan_state::{Reads, Root, Table};
use caravan_types::Namespace;
use serde_json::{Map, Value, json};

bodies! {
    /// The search request.
    SearchBody("SearchRequest") {
        prefix: String = "Prefix";
        context: String = "Context";
    }
}

/// Maximum number of ids of one kind in an answer.
const LIMIT: usize = 20;

/// The kinds of objects, with their tables.
pub(crate) const CONTEXTS: [(&str, Option<Table>); 12] = [
    ("allocs", Some(Table::Allocs)),
    ("jobs", Some(Table::Jobs)),
    ("nodes", Some(Table::Nodes)),
    ("node_pools", Some(Table::NodePools)),
    ("evals", Some(Table::Evals)),
    ("deployment", Some(Table::Deployments)),
    ("plugins", Some(Table::Plugins)),
    ("volumes", Some(Table::Volumes)),
    ("scaling_policy", Some(Table::ScalingPolicies)),
    ("vars", Some(Table::Variables)),
    ("namespaces", Some(Table::Namespaces)),
    ("host_volumes", Some(Table::HostVolumes)),
];

pub(crate) async fn route(call: &Call) -> Result<Reply, ApiError> {
    call.put()?;
    let body: SearchBody = required(&call.body)?;
    let all = matches!(body.context.as_str(), "" | "all");
    let kinds: Vec<_> = CONTEXTS.iter().filter(|(name, _)| all || *name == body.context).collect();
    if kinds.is_empty() {
        return Err(context_error(&body.context));
    }
    let namespace = call.list_namespace();
    let (meta, (matches, truncations)) = blocking::read(call, |reads| {
        let (mut matches, mut truncations) = (Map::new(), Map::new());
        let caller = call.caller();
        let kinds = kinds.iter().filter(|(kind, _)| may_search(&caller, kind, namespace.as_ref()));
        for (name, _) in kinds.clone() {
            let mut ids = found(&caller, reads.snapshot(), name, namespace.as_ref(), &body.prefix);
            truncations.insert((*name).into(), json!(ids.len() > LIMIT));
            ids.truncate(LIMIT);
            matches.insert((*name).into(), if ids.is_empty() { Value::Null } else { json!(ids) });
        }
        Ok((newest(reads, kinds.filter_map(|(_, table)| *table)), (matches, truncations)))
    })
    .await?;
    let body = json!({"Matches": matches, "Truncations": truncations});
    Ok(Reply::value(meta.merge_into(body)).meta(meta))
}

/// Returns the index of the newest change of the tables; 0 if none was written. The built-in namespaces and node
/// pools count as written at index 1.
pub(crate) fn newest(reads: &Reads<'_>, tables: impl IntoIterator<Item = Table>) -> u64 {
    let index = |table| match (table, reads.table_index(table)) {
        (Table::Namespaces | Table::NodePools, index) => index,
        _ => reads.snapshot().written_index(table),
    };
    tables.into_iter().map(index).max().unwrap_or(0)
}

/// Returns the error for an unknown kind.
pub(crate) fn context_error(context: &str) -> ApiError {
    let names: Vec<_> = CONTEXTS.iter().map(|(name, _)| *name).collect();
    ApiError::internal(format!(
        "context must be one of [{}] or 'all' for all contexts; got \"{context}\"",
        names.join(" ")
    ))
}

/// Returns the ids that match: at most one more than the answer holds, which shows whether the answer is truncated.
pub(crate) fn found(
    caller: &Caller,
    root: &Root,
    kind: &str,
    namespace: Option<&Namespace>,
    prefix: &str,
) -> Vec<String> {
    let may = |ns: &Namespace, cap: NsCap| caller.may(ns.as_str(), cap);
    let here = |ns: &Namespace| namespace.is_none_or(|desired| ns == desired) && may(ns, NsCap::ReadJob);
    let most = LIMIT + 1;
    match kind {
        "allocs" => {
            let rows = root.allocs_with_prefix(prefix).filter(|a| here(&a.namespace));
            rows.take(most).map(|a| a.id.to_string()).collect()
        }
        "jobs" => {
            let rows = root.jobs_with_prefix(namespace, prefix).filter(|job| here(&job.namespace));
            rows.take(most).map(|j| j.id.to_string()).collect()
        }
        "nodes" => {
            let rows =
                root.nodes().filter(|n| n.id.as_str().starts_with(prefix) || n.name.starts_with(prefix));
            rows.take(most).map(|n| n.id.to_string()).collect()
        }
        "evals" => {
            let rows = root.evals_with_prefix(prefix).filter(|e| here(&e.namespace));
            rows.take(most).map(|e| e.id.to_string()).collect()
        }
        "deployment" => {
            let rows = root.deployments_with_prefix(prefix).filter(|d| here(&d.namespace));
            rows.take(most).map(|d| d.id.to_string()).collect()
        }
        "plugins" => root.plugins_with_prefix(prefix).take(most).map(|p| p.id.to_string()).collect(),
        "volumes" => {
            let rows = root.volumes_with_prefix(namespace, prefix);
            let rows = rows.filter(|v| may(&v.namespace, NsCap::CsiListVolume));
            rows.take(most).map(|v| v.id.to_string()).collect()
        }
        "host_volumes" => {
            let here = |ns: &Namespace| {
                namespace.is_none_or(|desired| ns == desired) && may(ns, NsCap::HostVolumeRead)
            };
            let rows = root.host_volumes().filter(|v| here(&v.namespace));
            let rows = rows.filter(|v| v.id.as_str().starts_with(prefix) || v.name.starts_with(prefix));
            rows.take(most).map(|v| v.id.to_string()).collect()
        }
        "vars" => {
            let rows = root.variables_with_prefix(namespace, prefix);
            let rows =
                rows.filter(|v| caller.variable(v.key.namespace.as_str(), v.key.path.as_str(), VarCap::List));
            rows.take(most).map(|v| v.key.path.to_string()).collect()
        }
        "scaling_policy" => {
            let jobs = root.jobs().filter(|job| here(&job.namespace));
            let policies = jobs.flat_map(|job| caravan_types::scaling::policies(job));
            let ids = policies.map(|policy| &policy.id).filter(|id| id.starts_with(prefix));
            ids.take(most).cloned().collect()
        }
        "node_pools" => {
            let rows = root.node_pools().filter(|pool| pool.name.starts_with(prefix));
            let rows = rows.filter(|pool| caller.acl.node_pool(&pool.name, PoolCap::Read));
            rows.take(most).map(|pool| pool.name.clone()).collect()
        }
        "namespaces" => {
            let rows = root.namespaces().filter(|row| row.name.as_str().starts_with(prefix));
            let rows = rows.filter(|row| caller.acl.sees_namespace(row.name.as_str()));
            rows.take(most).map(|row| row.name.to_string()).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns whether the caller may search for objects of a kind in at least one namespace.
pub(crate) fn may_search(caller: &Caller, kind: &str, namespace: Option<&Namespace>) -> bool {
    let namespace = namespace.map_or("*", Namespace::as_str);
    match kind {
        "nodes" | "classes" => caller.node(Level::Read),
        "node_pools" => caller.acl.any_node_pool(PoolCap::Read),
        "namespaces" => caller.may("*", NsCap::ListJobs) || caller.may("*", NsCap::ReadJob),
        "plugins" => caller.acl.plugin(Level::List),
        "volumes" => caller.may(namespace, NsCap::CsiListVolume),
        "host_volumes" => caller.may(namespace, NsCap::HostVolumeRead),
        "vars" => caller.acl.any_variable(namespace),
        _ => caller.may(namespace, NsCap::ReadJob),
    }
}
