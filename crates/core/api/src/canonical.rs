//! The defaults of a job (docs/reference/jobspec.md, sections 4 and 5), which the agent fills in before it sends a
//! job to the servers.

mod mesh;

use super::{
    Affinity, Artifact, Disconnect, EphemeralDisk, Job, LogConfig, MigrateStrategy, Multiregion,
    MultiregionStrategy, Nanos, Periodic, ReschedulePolicy, Resources, RestartPolicy, ScalingPolicy, Service,
    Spread, Task, TaskGroup, Template, UpdateStrategy, Vault,
};

const SERVICE: &str = "service";
const BATCH: &str = "batch";
const SYSTEM: &str = "system";
const SYSBATCH: &str = "sysbatch";

/// Fills the defaults of every block in place. A second call changes nothing.
pub fn canonicalize(job: &mut Job) {
    let id = job.id.get_or_insert_default().clone();
    job.name.get_or_insert_with(|| id.clone());
    job.parent_id.get_or_insert_default();
    job.namespace.get_or_insert_with(|| "default".to_owned());
    job.priority.get_or_insert(50);
    job.stop.get_or_insert(false);
    job.region.get_or_insert_with(|| "global".to_owned());
    job.node_pool.get_or_insert_default();
    let kind = job.kind.get_or_insert_with(|| SERVICE.to_owned()).clone();
    job.all_at_once.get_or_insert(false);
    for text in [
        &mut job.consul_namespace,
        &mut job.vault_namespace,
        &mut job.nomad_token_id,
        &mut job.status,
        &mut job.status_description,
    ] {
        text.get_or_insert_default();
    }
    job.stable.get_or_insert(false);
    for index in [&mut job.version, &mut job.create_index, &mut job.modify_index, &mut job.job_modify_index] {
        index.get_or_insert(0);
    }
    if let Some(periodic) = &mut job.periodic {
        fill_periodic(periodic);
    }
    if let Some(parameterized) = &mut job.parameterized
        && parameterized.payload.is_empty()
    {
        "optional".clone_into(&mut parameterized.payload);
    }
    if let Some(multiregion) = &mut job.multiregion {
        fill_multiregion(multiregion);
    }
    if let Some(update) = &mut job.update {
        fill_update(update);
    } else if kind == SERVICE || kind == SYSTEM {
        let mut update = UpdateStrategy::default();
        fill_update(&mut update);
        job.update = Some(update);
    }
    fill_spreads(job.spreads.as_deref_mut());
    fill_affinities(job.affinities.as_deref_mut());
    let outer = Outer {
        job: id,
        kind,
        update: job.update.clone(),
        reschedule: job.reschedule.clone(),
        migrate: job.migrate.clone(),
    };
    for group in job.task_groups.iter_mut().flatten() {
        fill_group(group, &outer);
    }
}

/// The settings that groups inherit from their job.
struct Outer {
    job: String,
    kind: String,
    update: Option<UpdateStrategy>,
    reschedule: Option<ReschedulePolicy>,
    migrate: Option<MigrateStrategy>,
}

fn fill_periodic(periodic: &mut Periodic) {
    periodic.enabled.get_or_insert(true);
    periodic.spec.get_or_insert_default();
    periodic.specs.get_or_insert_default();
    periodic.spec_type.get_or_insert_with(|| "cron".to_owned());
    periodic.prohibit_overlap.get_or_insert(false);
    if periodic.time_zone.as_deref().is_none_or(str::is_empty) {
        periodic.time_zone = Some("UTC".to_owned());
    }
}

fn fill_multiregion(multiregion: &mut Multiregion) {
    let strategy = multiregion.strategy.get_or_insert_with(MultiregionStrategy::default);
    strategy.max_parallel.get_or_insert(0);
    strategy.on_failure.get_or_insert_default();
    for region in multiregion.regions.get_or_insert_default() {
        region.count.get_or_insert(1);
        region.datacenters.get_or_insert_default();
        region.meta.get_or_insert_default();
    }
}

fn fill_update(update: &mut UpdateStrategy) {
    update.max_parallel.get_or_insert(1);
    update.stagger.get_or_insert(Nanos::from_secs(30));
    update.health_check.get_or_insert_with(|| "checks".to_owned());
    update.min_healthy_time.get_or_insert(Nanos::from_secs(10));
    update.healthy_deadline.get_or_insert(Nanos::from_secs(5 * 60));
    update.progress_deadline.get_or_insert(Nanos::from_secs(10 * 60));
    update.auto_revert.get_or_insert(false);
    update.canary.get_or_insert(0);
    update.auto_promote.get_or_insert(false);
}

/// Returns whether every value of an update block is zero. Groups do not inherit such a block.
fn is_empty_update(update: &UpdateStrategy) -> bool {
    let zero = |d: Option<Nanos>| d.is_none_or(|d| d.0 == 0);
    zero(update.stagger)
        && zero(update.min_healthy_time)
        && zero(update.healthy_deadline)
        && zero(update.progress_deadline)
        && update.max_parallel.is_none_or(|n| n == 0)
        && update.canary.is_none_or(|n| n == 0)
        && update.health_check.as_deref().is_none_or(str::is_empty)
        && !update.auto_revert.unwrap_or_default()
        && !update.auto_promote.unwrap_or_default()
}

/// Overlays every value that `$over` sets on `$base`.
macro_rules! overlay {
    ($base:expr, $over:expr; $($field:ident),*) => {
        $( if $over.$field.is_some() { $base.$field.clone_from(&$over.$field); } )*
    };
}

fn fill_group(group: &mut TaskGroup, outer: &Outer) {
    let name = group.name.get_or_insert_default().clone();
    let kind = outer.kind.as_str();
    let from_scaling = group.scaling.as_ref().and_then(|s| s.min);
    let count = *group.count.get_or_insert(from_scaling.unwrap_or(1));
    if let Some(scaling) = &mut group.scaling {
        fill_scaling(scaling, count);
    }
    let disk = group.ephemeral_disk.get_or_insert_with(EphemeralDisk::default);
    disk.sticky.get_or_insert(false);
    disk.migrate.get_or_insert(false);
    disk.size_mb.get_or_insert(300);
    if let Some(consul) = &mut group.consul {
        or_default_cluster(&mut consul.cluster);
    }

    match (&outer.update, &mut group.update) {
        (Some(job), Some(own)) => {
            let mut merged = job.clone();
            overlay!(merged, own; stagger, max_parallel, health_check, min_healthy_time, healthy_deadline,
                progress_deadline, canary, auto_revert, auto_promote);
            *own = merged;
        }
        (Some(job), own @ None) if !is_empty_update(job) => *own = Some(job.clone()),
        _ => {}
    }
    if let Some(update) = &mut group.update {
        fill_update(update);
    }

    fill_reschedule(group, outer);
    if kind == SERVICE {
        let mut migrate = outer.migrate.clone().unwrap_or_default();
        if let Some(own) = &group.migrate {
            overlay!(migrate, own; max_parallel, health_check, min_healthy_time, healthy_deadline);
        }
        fill_migrate(&mut migrate);
        group.migrate = Some(migrate);
    } else if let Some(migrate) = &mut group.migrate {
        fill_migrate(migrate);
    }

    let restart = {
        let mut restart = default_restart(kind);
        if let Some(own) = &group.restart {
            overlay!(restart, own; interval, attempts, delay, mode, render_templates);
        }
        group.restart.insert(restart).clone()
    };
    if let Some(disconnect) = &mut group.disconnect {
        fill_disconnect(disconnect);
    }
    fill_spreads(group.spreads.as_deref_mut());
    fill_affinities(group.affinities.as_deref_mut());
    for service in group.services.iter_mut().flatten() {
        fill_service(service, &format!("{}-{name}", outer.job));
    }
    for task in group.tasks.iter_mut().flatten() {
        fill_task(task, &outer.job, &name, &restart);
    }
}

fn fill_scaling(scaling: &mut ScalingPolicy, count: i64) {
    scaling.enabled.get_or_insert(true);
    scaling.min.get_or_insert(count);
}

fn default_reschedule(kind: &str) -> Option<ReschedulePolicy> {
    match kind {
        SERVICE => Some(ReschedulePolicy {
            attempts: Some(0),
            interval: Some(Nanos(0)),
            delay: Some(Nanos::from_secs(30)),
            delay_function: Some("exponential".to_owned()),
            max_delay: Some(Nanos::from_secs(3600)),
            unlimited: Some(true),
        }),
        BATCH => Some(ReschedulePolicy {
            attempts: Some(1),
            interval: Some(Nanos::from_secs(24 * 3600)),
            delay: Some(Nanos::from_secs(5)),
            delay_function: Some("constant".to_owned()),
            max_delay: Some(Nanos(0)),
            unlimited: Some(false),
        }),
        _ => None,
    }
}

fn fill_reschedule(group: &mut TaskGroup, outer: &Outer) {
    let supplied = outer.reschedule.is_some() || group.reschedule.is_some();
    let default = default_reschedule(&outer.kind);
    if !supplied && default.is_none() {
        return;
    }
    let mut merged = default.unwrap_or_else(|| ReschedulePolicy {
        attempts: Some(0),
        interval: Some(Nanos(0)),
        delay: Some(Nanos(0)),
        delay_function: Some(String::new()),
        max_delay: Some(Nanos(0)),
        unlimited: Some(false),
    });
    for layer in [&outer.reschedule, &group.reschedule].into_iter().flatten() {
        overlay!(merged, layer; attempts, interval, delay, delay_function, max_delay, unlimited);
    }
    group.reschedule = Some(merged);
}

fn fill_migrate(migrate: &mut MigrateStrategy) {
    migrate.max_parallel.get_or_insert(1);
    migrate.health_check.get_or_insert_with(|| "checks".to_owned());
    migrate.min_healthy_time.get_or_insert(Nanos::from_secs(10));
    migrate.healthy_deadline.get_or_insert(Nanos::from_secs(5 * 60));
}

fn default_restart(kind: &str) -> RestartPolicy {
    let (attempts, interval) = match kind {
        BATCH | SYSBATCH => (3, Nanos::from_secs(24 * 3600)),
        // Service jobs, system jobs, and types that validation refuses.
        _ => (2, Nanos::from_secs(30 * 60)),
    };
    RestartPolicy {
        interval: Some(interval),
        attempts: Some(attempts),
        delay: Some(Nanos::from_secs(15)),
        mode: Some("fail".to_owned()),
        render_templates: Some(false),
    }
}

fn fill_disconnect(disconnect: &mut Disconnect) {
    disconnect.replace.get_or_insert(true);
    disconnect.reconcile.get_or_insert_with(|| "best_score".to_owned());
}

fn fill_spreads(spreads: Option<&mut [Spread]>) {
    for spread in spreads.unwrap_or_default() {
        spread.weight.get_or_insert(50);
    }
}

fn fill_affinities(affinities: Option<&mut [Affinity]>) {
    for affinity in affinities.unwrap_or_default() {
        affinity.weight.get_or_insert(50);
    }
}

fn or_default_cluster(cluster: &mut String) {
    or(cluster, "default");
}

fn or(text: &mut String, default: &str) {
    if text.is_empty() {
        default.clone_into(text);
    }
}

/// Fills the defaults of a service. `name` is the default name: `<job>-<group>` or `<job>-<group>-<task>`.
fn fill_service(service: &mut Service, name: &str) {
    or(&mut service.name, name);
    or(&mut service.address_mode, "auto");
    or(&mut service.on_update, "require_healthy");
    or(&mut service.provider, "consul");
    or_default_cluster(&mut service.cluster);
    if let Some(weights) = &mut service.weights {
        for weight in [&mut weights.passing, &mut weights.warning] {
            if *weight <= 0 {
                *weight = 1;
            }
        }
    }
    if let Some(connect) = &mut service.connect {
        mesh::fill_connect(connect);
    }
    for check in service.checks.iter_mut().flatten() {
        for count in [
            &mut check.success_before_passing,
            &mut check.failures_before_critical,
            &mut check.failures_before_warning,
        ] {
            *count = (*count).max(0);
        }
        or(&mut check.on_update, &service.on_update);
        if let Some(outer) = &service.check_restart {
            let own = check.check_restart.get_or_insert_default();
            if own.limit == 0 {
                own.limit = outer.limit;
            }
            if own.grace.is_none() {
                own.grace = outer.grace;
            }
            own.ignore_warnings |= outer.ignore_warnings;
        }
        if let Some(restart) = &mut check.check_restart {
            restart.grace.get_or_insert(Nanos::from_secs(1));
        }
    }
}

fn fill_task(task: &mut Task, job: &str, group: &str, restart: &RestartPolicy) {
    task.kill_timeout.get_or_insert(Nanos::from_secs(5));
    fill_resources(task.resources.get_or_insert_default());
    fill_logs(task.log_config.get_or_insert_default());
    let mut merged = restart.clone();
    if let Some(own) = &task.restart {
        overlay!(merged, own; interval, attempts, delay, mode, render_templates);
    }
    task.restart = Some(merged);
    for artifact in task.artifacts.iter_mut().flatten() {
        fill_artifact(artifact);
    }
    if let Some(vault) = &mut task.vault {
        fill_vault(vault);
    }
    if let Some(consul) = &mut task.consul {
        or_default_cluster(&mut consul.cluster);
    }
    for template in task.templates.iter_mut().flatten() {
        fill_template(template);
    }
    fill_affinities(task.affinities.as_deref_mut());
    for mount in task.volume_mounts.iter_mut().flatten() {
        mesh::fill_volume_mount(mount);
    }
    if let Some(plugin) = &mut task.csi_plugin {
        or(&mut plugin.mount_dir, "/csi");
        or(&mut plugin.stage_publish_base_dir, "/local/csi");
        if plugin.health_timeout.0 == 0 {
            plugin.health_timeout = Nanos::from_secs(30);
        }
    }
    let name = format!("{job}-{group}-{}", task.name);
    for service in task.services.iter_mut().flatten() {
        fill_service(service, &name);
    }
}

fn fill_resources(resources: &mut Resources) {
    // Cores and MHz exclude each other, so the default for MHz depends on whether the job requests cores.
    let default_cpu = if resources.cores.is_none() { 100 } else { 0 };
    resources.cores.get_or_insert(0);
    resources.cpu.get_or_insert(default_cpu);
    resources.memory_mb.get_or_insert(300);
    for device in resources.devices.iter_mut().flatten() {
        device.count.get_or_insert(1);
        fill_affinities(device.affinities.as_deref_mut());
    }
    if let Some(numa) = &mut resources.numa {
        or(&mut numa.affinity, "none");
    }
}

fn fill_logs(logs: &mut LogConfig) {
    logs.max_files.get_or_insert(10);
    logs.max_file_size_mb.get_or_insert(10);
    logs.disabled.get_or_insert(false);
}

fn fill_artifact(artifact: &mut Artifact) {
    let mode = artifact.mode.get_or_insert_with(|| "any".to_owned()).clone();
    let source = artifact.source.get_or_insert_default().clone();
    artifact.insecure.get_or_insert(false);
    if artifact.options.as_ref().is_some_and(std::collections::BTreeMap::is_empty) {
        artifact.options = None;
    }
    if artifact.headers.as_ref().is_some_and(std::collections::BTreeMap::is_empty) {
        artifact.headers = None;
    }
    artifact.destination.get_or_insert_with(|| match mode.as_str() {
        "file" => format!("local/{}", source.rsplit('/').next().unwrap_or_default()),
        _ => "local/".to_owned(),
    });
}

fn fill_vault(vault: &mut Vault) {
    vault.env.get_or_insert(true);
    vault.disable_file.get_or_insert(false);
    vault.namespace.get_or_insert_default();
    or_default_cluster(&mut vault.cluster);
    vault.change_mode.get_or_insert_with(|| "restart".to_owned());
    vault.change_signal.get_or_insert_with(|| "SIGHUP".to_owned());
    vault.allow_token_expiration.get_or_insert(false);
}

fn fill_template(template: &mut Template) {
    template.source.get_or_insert_default();
    template.destination.get_or_insert_default();
    template.data.get_or_insert_default();
    let mode = template.change_mode.get_or_insert_with(|| "restart".to_owned()).clone();
    let signal = template
        .change_signal
        .get_or_insert_with(|| if mode == "signal" { "SIGHUP".to_owned() } else { String::new() });
    *signal = signal.to_ascii_uppercase();
    if let Some(script) = &mut template.change_script {
        script.command.get_or_insert_default();
        script.args.get_or_insert_default();
        script.timeout.get_or_insert(Nanos::from_secs(5));
        script.fail_on_error.get_or_insert(false);
        script.run_on_first_render.get_or_insert(false);
    }
    template.once.get_or_insert(false);
    template.splay.get_or_insert(Nanos::from_secs(5));
    template.perms.get_or_insert_with(|| "0644".to_owned());
    template.left_delim.get_or_insert_with(|| "{{".to_owned());
    template.right_delim.get_or_insert_with(|| "}}".to_owned());
    template.env.get_or_insert(false);
    template.error_on_missing_key.get_or_insert(false);
    template.vault_grace.get_or_insert(Nanos(0));
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value;

    use super::*;
    use crate::from_value;

    /// For every recorded job, the printed job with its defaults equals the agent's answer. Reading and writing the
    /// job again changes nothing.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the cases are files")]
    fn recorded_jobs_get_the_recorded_defaults() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/jobspec/valid");
        let (mut seen, mut wrong) = (0, Vec::<String>::new());
        for case in std::fs::read_dir(dir).unwrap() {
            let case = case.unwrap().path();
            let name = case.file_name().unwrap().to_string_lossy().into_owned();
            let read = |file: &str| -> Option<Value> {
                Some(serde_json::from_str(&std::fs::read_to_string(case.join(file)).ok()?).unwrap())
            };
            let output = read("output.json").unwrap()["Job"].clone();
            let mut job: Job = from_value(&output).unwrap();
            assert_eq!(serde_json::to_value(&job).unwrap(), output, "{name}: read and written again");
            if name == "flag-vault-namespace" {
                // Its flags act on the printed job only (fixtures' README).
                continue;
            }
            if let Some(canonical) = read("canonical.json") {
                canonicalize(&mut job);
                let ours = serde_json::to_value(&job).unwrap();
                wrong.extend(differences(&canonical, &ours).into_iter().map(|d| format!("{name}{d}")));
                canonicalize(&mut job);
                assert_eq!(serde_json::to_value(&job).unwrap(), ours, "{name}: twice");
                seen += 1;
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(seen > 40, "only {seen} recorded cases found");
    }

    fn differences(want: &Value, have: &Value) -> Vec<String> {
        fn walk(path: &str, want: &Value, have: &Value, out: &mut Vec<String>) {
            match (want, have) {
                (Value::Object(a), Value::Object(b)) => {
                    for key in a.keys().chain(b.keys().filter(|k| !a.contains_key(*k))) {
                        match (a.get(key), b.get(key)) {
                            (Some(x), Some(y)) => walk(&format!("{path}.{key}"), x, y, out),
                            (x, y) => out.push(format!("{path}.{key}: want {x:?}, have {y:?}")),
                        }
                    }
                }
                (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                    for (i, (x, y)) in a.iter().zip(b).enumerate() {
                        walk(&format!("{path}[{i}]"), x, y, out);
                    }
                }
                _ if want == have => {}
                _ if want.as_f64().is_some() && want.as_f64() == have.as_f64() => {}
                _ => out.push(format!("{path}: want {want}, have {have}")),
            }
        }
        let mut out = Vec::new();
        walk("", want, have, &mut out);
        out
    }
}
