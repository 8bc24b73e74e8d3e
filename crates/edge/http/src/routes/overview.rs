//! The overview: counts by state, and the objects that need attention, with reasons.

use super::statuses;
use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;
use attention::Item;
use caravan_server::{Level, NsCap};
use caravan_state::Table;
use caravan_types::Namespace;
use serde::Serialize;
use std::collections::BTreeMap;

mod attention;

/// The most objects that an answer lists.
const MAX_ITEMS: usize = 200;
/// The tables whose changes end a wait.
const TABLES: [Table; 8] = [
    Table::Jobs,
    Table::Allocs,
    Table::Evals,
    Table::Deployments,
    Table::Nodes,
    Table::Volumes,
    Table::Claims,
    Table::Plugins,
];

/// The number of objects by their state; `None` if the caller may not read such objects in any namespace of the
/// request.
type Counts = Option<BTreeMap<&'static str, usize>>;

/// The answer of the route: counts by state, and the objects that need attention.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Overview {
    jobs: Counts,
    allocations: Counts,
    evaluations: Counts,
    nodes: Counts,
    plugins: Counts,
    volumes: Counts,
    claims: Counts,
    /// The objects that need attention: failures first, then the longest wait.
    attention: Vec<Item>,
    /// The number of objects that the list leaves out.
    omitted: usize,
    /// The rights that the caller lacks in every namespace of the request; their objects are missing.
    denied: Vec<&'static str>,
}

/// Returns the overview of the objects that the caller may see.
pub(crate) async fn overview(call: &Call) -> Result<Reply, ApiError> {
    let server = call.server()?;
    let namespace = call.list_namespace();
    let (meta, overview) = blocking::read(call, |reads| {
        let (root, caller) = (reads.snapshot(), call.caller());
        let is_in = |name: &Namespace| namespace.as_ref().is_none_or(|only| only == name);
        let sees = |name: &Namespace, cap: NsCap| is_in(name) && call.may(name, cap);
        let (nodes, plugins) = (caller.acl.node(Level::Read), caller.acl.plugin(Level::List));
        let volumes = |name: &Namespace| sees(name, NsCap::CsiReadVolume) || sees(name, NsCap::CsiListVolume);
        let any = namespace.as_ref().map_or("*", |name| name.as_str());
        let reads_jobs = caller.acl.namespace_any(any, &[NsCap::ReadJob]);
        let reads_volumes = caller.acl.namespace_any(any, &[NsCap::CsiReadVolume, NsCap::CsiListVolume]);
        let jobs = |name: &Namespace| sees(name, NsCap::ReadJob);
        // The counts are those of the jobs that the page's list of jobs shows.
        let listed = statuses::listed(call, root, namespace.as_ref(), "", false);
        let mut out = Overview {
            jobs: reads_jobs
                .then(|| count(listed.map(|job| if job.stop { "stopped" } else { job.status.as_str() }))),
            nodes: nodes.then(|| count(root.nodes().map(|node| attention::state_of(node)))),
            plugins: plugins.then(|| {
                let state = |healthy| if healthy { "healthy" } else { "unhealthy" };
                count(root.plugins().map(|plugin| state(attention::is_healthy(plugin))))
            }),
            volumes: reads_volumes.then(|| {
                let rows = root.volumes().filter(|volume| volumes(&volume.namespace));
                count(rows.map(|volume| volume.phase.as_str()))
            }),
            claims: reads_volumes.then(|| {
                let rows = root.claims().filter(|claim| claim.phase.holds());
                let rows = rows.filter(|claim| volumes(&claim.id.volume.namespace));
                count(rows.map(|claim| claim.phase.as_str()))
            }),
            ..Overview::default()
        };
        let mut items: Vec<Item> = Vec::new();
        // The large tables are read once, for the counts and for the objects that need attention.
        let mut numbers = BTreeMap::new();
        let evals = root.evals().filter(|row| jobs(&row.namespace));
        let evals = evals.inspect(|row| add(&mut numbers, row.status.as_str()));
        items.extend(evals.filter_map(|row| attention::of_eval(row)));
        out.evaluations = reads_jobs.then_some(numbers);
        items.extend(
            root.deployments()
                .filter(|row| jobs(&row.namespace))
                .filter_map(|row| attention::of_deployment(row)),
        );
        let mut numbers = BTreeMap::new();
        let allocs = root.allocs().map(|row| &**row).filter(|row| jobs(&row.namespace));
        let allocs = allocs.inspect(|row| add(&mut numbers, row.client_status.as_str()));
        items.extend(attention::of_allocs(allocs));
        out.allocations = reads_jobs.then_some(numbers);
        items.extend(root.nodes().filter(|_| nodes).filter_map(|row| attention::of_node(row)));
        items.extend(root.plugins().filter(|_| plugins).filter_map(|row| attention::of_plugin(row)));
        items.extend(
            root.volumes().filter(|row| volumes(&row.namespace)).filter_map(|row| attention::of_volume(row)),
        );
        items.extend(root.claims().filter(|row| volumes(&row.id.volume.namespace)).filter_map(|row| {
            attention::of_claim(row, server.volumes().claim_wait(&row.id).map(|wait| wait.to_string()))
        }));
        items.sort_by(|one, two| one.rank().cmp(&two.rank()));
        out.omitted = items.len().saturating_sub(MAX_ITEMS);
        items.truncate(MAX_ITEMS);
        out.attention = items;
        for (has, right) in [
            (reads_jobs, "read-job"),
            (nodes, "node:read"),
            (plugins, "plugin:list"),
            (reads_volumes, "csi-list-volume"),
        ] {
            if !has {
                out.denied.push(right);
            }
        }
        Ok((reads.tables_index(&TABLES), out))
    })
    .await?;
    Ok(Reply::parsed(overview)?.meta(meta))
}

fn count(states: impl Iterator<Item = &'static str>) -> BTreeMap<&'static str, usize> {
    let mut numbers = BTreeMap::new();
    states.for_each(|state| add(&mut numbers, state));
    numbers
}

/// Counts an object by its state.
fn add(numbers: &mut BTreeMap<&'static str, usize>, state: &'static str) {
    *numbers.entry(state).or_default() += 1;
}
