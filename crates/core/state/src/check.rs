//! The offline check: invariants of every root.

mod volumes;

pub use volumes::check_volumes;
#[cfg(test)]
pub(crate) use volumes::storages;

use crate::index::Indexes;
use crate::root::{Root, Table};
use crate::{plugins, status};
use caravan_types::{JobKey, PluginId};
use std::collections::BTreeSet;

/// Returns all violations of a root's invariants, one sentence each; empty for a sound root.
///
/// The check compares secondary indexes with rebuilt ones and derives derived rows again. It also follows the
/// references between rows and their indexes, and checks the rules of volumes.
pub fn check(root: &Root) -> Vec<String> {
    let mut wrong = Vec::new();
    if root.secondary != Indexes::rebuilt(root) {
        wrong.push("the secondary indexes do not match the tables".to_owned());
    }
    for table in Table::ALL {
        let at = root.table_index[table as usize];
        if at > root.index {
            wrong.push(format!("table {} was changed at index {at}, after {}", table.as_str(), root.index));
        }
    }
    row_indexes(root, &mut wrong);
    jobs(root, &mut wrong);
    claims(root, &mut wrong);
    volumes::rules(root, &mut wrong);
    host_volumes(root, &mut wrong);
    derived_plugins(root, &mut wrong);
    wrong
}

fn row_indexes(root: &Root, wrong: &mut Vec<String>) {
    let mut row = |table: Table, id: String, create: u64, modify: u64| {
        if create == 0 || create > modify || modify > root.table_index[table as usize] {
            let at = root.table_index[table as usize];
            let name = table.as_str();
            wrong.push(format!(
                "row {id} of {name} (at {at}) has create index {create}, modify index {modify}"
            ));
        }
    };
    root.nodes().for_each(|r| row(Table::Nodes, r.id.to_string(), r.create_index, r.modify_index));
    root.jobs().for_each(|r| row(Table::Jobs, r.key().to_string(), r.create_index, r.modify_index));
    root.evals().for_each(|r| row(Table::Evals, r.id.to_string(), r.create_index, r.modify_index));
    root.allocs().for_each(|r| row(Table::Allocs, r.id.to_string(), r.create_index, r.modify_index));
    root.deployments()
        .for_each(|r| row(Table::Deployments, r.id.to_string(), r.create_index, r.modify_index));
    root.volumes().for_each(|r| row(Table::Volumes, r.key().to_string(), r.create_index, r.modify_index));
    root.claims().for_each(|r| row(Table::Claims, format!("{:?}", r.id), r.create_index, r.modify_index));
    root.plugins().for_each(|r| row(Table::Plugins, r.id.to_string(), r.create_index, r.modify_index));
    root.host_volumes()
        .for_each(|r| row(Table::HostVolumes, r.id.to_string(), r.create_index, r.modify_index));
    root.host_claims().for_each(|r| row(Table::HostClaims, r.id.clone(), r.create_index, r.modify_index));
    root.services().for_each(|r| row(Table::Services, r.id.to_string(), r.create_index, r.modify_index));
    root.variables().for_each(|r| row(Table::Variables, r.key.to_string(), r.create_index, r.modify_index));
}

fn jobs(root: &Root, wrong: &mut Vec<String>) {
    for job in root.jobs() {
        let key = job.key();
        let derived = status::derive(root, job, false, false);
        if job.status != derived {
            let (is, should) = (job.status.as_str(), derived.as_str());
            wrong.push(format!("job {key} is {is} but its records say {should}"));
        }
        if job.is_periodic_active() != root.periodic_launches.contains_key(&key) {
            wrong.push(format!(
                "job {key} is periodic without a time of its last launch, or the other way round"
            ));
        }
        if root.job_versions(&key).next() != Some(job) {
            wrong.push(format!("job {key} is not its own newest version"));
        }
        let kept = root.job_versions(&key).filter(|v| v.version_tag.is_none()).count();
        if kept > Root::KEPT_VERSIONS {
            wrong.push(format!("job {key} keeps {kept} versions"));
        }
    }
    for (key, version) in root.versions.keys().filter(|(key, _)| root.job(key).is_none()) {
        wrong.push(format!("version {version} of job {key} is kept without the job"));
    }
    for key in root.periodic_launches.keys().filter(|key| root.job(key).is_none()) {
        wrong.push(format!("the last launch of job {key} is kept without the job"));
    }
    for at in root.submissions.keys().filter(|at| !root.versions.contains_key(*at)) {
        wrong.push(format!("the text of version {} of job {} is kept without it", at.1, at.0));
    }
}

fn claims(root: &Root, wrong: &mut Vec<String>) {
    for claim in root.claims() {
        let (volume, alloc) = (&claim.id.volume, &claim.id.alloc);
        if root.volume(volume).is_none() && !(claim.forsaken && claim.phase.holds()) {
            wrong.push(format!("allocation {alloc} has a claim on volume {volume} that is not there"));
        }
        match root.alloc(alloc) {
            None if claim.phase.is_live() => {
                wrong.push(format!("a claim on volume {volume} is live without allocation {alloc}"));
            }
            Some(row) if claim.phase.is_live() && row.client_terminal() => {
                wrong.push(format!("allocation {alloc} is over and its claim on volume {volume} is live"));
            }
            Some(row) if row.node_id != claim.node_id => {
                wrong.push(format!(
                    "allocation {alloc} and its claim on volume {volume} are on different nodes"
                ));
            }
            _ => {}
        }
    }
    for alloc in root.allocs().filter(|alloc| alloc.job.is_none()) {
        wrong.push(format!("allocation {} does not say which job it runs", alloc.id));
    }
}

fn host_volumes(root: &Root, wrong: &mut Vec<String>) {
    for volume in root.host_volumes() {
        let id = &volume.id;
        if volume.state != volume.state_on(root.node(&volume.node_id).map(AsRef::as_ref)) {
            wrong.push(format!(
                "host volume {id} is {} although its node says otherwise",
                volume.state.as_str()
            ));
        }
        if root.host_volumes_by_node(&volume.node_id).any(|v| v.name == volume.name && v.id != *id) {
            wrong.push(format!("node {} has two host volumes named {}", volume.node_id, volume.name));
        }
    }
    for claim in root.host_claims() {
        let key = JobKey { namespace: claim.namespace.clone(), id: claim.job_id.clone() };
        if root.host_volume(&claim.volume_id).is_none() {
            let volume = &claim.volume_id;
            wrong.push(format!("claim {} holds host volume {volume} that is not there", claim.id));
        }
        if root.job(&key).is_none() {
            wrong.push(format!("claim {} on a host volume is of job {key} that is not there", claim.id));
        }
    }
}

fn derived_plugins(root: &Root, wrong: &mut Vec<String>) {
    let reported = root.secondary.nodes_by_plugin.iter().map(|(plugin, _)| plugin);
    let run = root.secondary.jobs_by_plugin.iter().map(|(plugin, _)| plugin);
    let ids: BTreeSet<&PluginId> = reported.chain(run).chain(root.plugins.keys()).collect();
    for id in ids {
        let sound = match (root.plugin(id), plugins::derive(root, id)) {
            (None, None) => true,
            (Some(row), Some(derived)) => plugins::same(row, &derived),
            _ => false,
        };
        if !sound {
            wrong.push(format!("plugin {id} is not what nodes and jobs say"));
        }
    }
}
