//! The whole state as JSON, for inspection of a snapshot or of a stopped server.

use crate::root::{Root, Table};
use caravan_types::redact::redact;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Returns every table under its public name, and the index of each table's last change. Rows have their stored form,
/// which is mostly the form of the API. Secrets are omitted, including sealed secrets.
///
/// # Errors
/// If a row has no JSON form; all rows of [`Root`] have one.
pub fn dump(root: &Root) -> Result<Value, serde_json::Error> {
    let own = &root.tenancy;
    let mut all = Map::new();
    let mut table = |name: &str, rows: Result<Value, serde_json::Error>| -> Result<(), serde_json::Error> {
        let mut rows = rows?;
        redact(&mut rows);
        all.insert(name.to_owned(), rows);
        Ok(())
    };
    let indexes: Vec<Value> = Table::ALL
        .iter()
        .map(|table| json!({"Key": table.as_str(), "Value": root.table_index(*table)}))
        .collect();
    table("LatestIndex", Ok(json!(root.index())))?;
    table("Indexes", Ok(Value::Array(indexes)))?;
    table("Nodes", rows(root.nodes.values()))?;
    table("Jobs", rows(root.jobs.values()))?;
    table("JobVersions", rows(root.versions.values()))?;
    let submissions = root.submissions.iter().map(|((job, version), source)| {
        json!({
            "Namespace": job.namespace,
            "JobID": job.id,
            "Version": version,
            "Format": source.format,
            "Source": source.source,
            "VariableFlags": source.variable_flags,
            "Variables": source.variables,
        })
    });
    table("JobSubmissions", Ok(submissions.collect()))?;
    table("Evals", rows(root.evals.values()))?;
    table("Allocs", rows(root.allocs.values()))?;
    table("Deployments", rows(root.deployments.values()))?;
    table("CSIVolumes", rows(root.volumes.values()))?;
    table("CSIClaims", rows(root.claims.values()))?;
    table("CSIPlugins", rows(root.plugins.values()))?;
    table("HostVolumes", rows(root.host_volumes.values()))?;
    table("HostVolumeClaims", rows(root.host_claims.values()))?;
    table("Variables", rows(root.variables.values()))?;
    table("Services", rows(root.services.values()))?;
    let events = root
        .scaling_events
        .iter()
        .map(|(job, groups)| json!({"Namespace": job.namespace, "JobID": job.id, "ScalingEvents": groups}));
    table("ScalingEvents", Ok(events.collect()))?;
    let launches = root
        .periodic_launches
        .iter()
        .map(|(job, launch)| json!({"Namespace": job.namespace, "ID": job.id, "Launch": launch}));
    table("PeriodicLaunches", Ok(launches.collect()))?;
    table("Namespaces", rows(own.namespaces.values()))?;
    table("NodePools", rows(own.node_pools.values()))?;
    table("ACLPolicies", rows(own.policies.values()))?;
    table("ACLTokens", rows(own.tokens.values()))?;
    table("ACLRoles", rows(own.roles.values()))?;
    table("ACLAuthMethods", rows(own.auth_methods.values()))?;
    table("ACLBindingRules", rows(own.binding_rules.values()))?;
    table("OneTimeTokens", rows(own.one_time.values()))?;
    table("RootKeys", rows(own.root_keys.values()))?;
    table("SchedulerConfig", serde_json::to_value(root.scheduler_config()))?;
    table("AutopilotConfig", serde_json::to_value(root.autopilot_config()))?;
    Ok(Value::Object(all))
}

fn rows<T: Serialize>(rows: impl Iterator<Item = T>) -> Result<Value, serde_json::Error> {
    rows.map(serde_json::to_value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;
    use caravan_types::command::{Change, Command};
    use caravan_types::sealed::SealedSecrets;
    use caravan_types::variable::{LockUse, Variable, VariableKey};
    use caravan_types::{UnixNanos, volume::Volume};

    #[test]
    fn rows_are_dumped_without_secrets() {
        let store = Store::default();
        let volume = Volume { namespace: "default".into(), id: "data".into(), ..Volume::default() };
        let sealed = SealedSecrets { key: "k".into(), text: "c2VhbGVk".into() };
        let variable =
            Variable { key: VariableKey::new("default", "app"), items: sealed, ..Variable::default() };
        let changes = [
            Change::VolumeWrite { volume: Box::new(volume), expect_modify_index: 0, exclusive: false },
            Change::VariableWrite {
                variable: Box::new(variable),
                check_index: None,
                lock: LockUse::default(),
            },
        ];
        for (index, change) in (7..).zip(changes) {
            let outcome = store.apply(index, &Command { now: UnixNanos(1), change });
            assert_eq!(outcome.refused, None);
        }
        let reported = dump(&store.snapshot()).unwrap();
        assert_eq!(reported["LatestIndex"], 8);
        assert_eq!(reported["CSIVolumes"].as_array().unwrap().len(), 1);
        assert_eq!(reported["Variables"][0]["items"], "<redacted>");
        assert!(reported["Namespaces"].as_array().is_some_and(|rows| !rows.is_empty()));
        assert!(!reported.to_string().contains("c2VhbGVk"));
    }
}
