//! Rules for services and their checks (docs/reference/jobspec.md, sections 4.6 and 4.7).

use super::network::is_label;
use super::{joined, one_of};
use caravan_types::Nanos;
use caravan_types::api::{Connect, from_value};
use caravan_types::job::{Job, Task, TaskGroup};
use caravan_types::service::{CheckSpec, ServiceSpec};
use caravan_types::words::suggestion;
use std::collections::{BTreeSet, HashSet};

const ADDRESS_MODES: [&str; 5] = ["auto", "host", "alloc", "alloc_ipv6", "driver"];
const ON_UPDATE: [&str; 3] = ["require_healthy", "ignore_warnings", "ignore"];
const ONE_SECOND: Nanos = Nanos::from_secs(1);

/// Checks the services of a group, and of all its tasks.
pub(super) fn check(job: &Job, group: &TaskGroup, errors: &mut Vec<String>) {
    let mut found = Vec::new();
    let mut providers = BTreeSet::new();
    let mut seen = HashSet::new();
    let labels = labels(group);
    let of_tasks = group.tasks.iter().flat_map(|task| task.services.iter().map(move |s| (s, Some(task))));
    for (index, (service, owner)) in group.services.iter().map(|s| (s, None)).chain(of_tasks).enumerate() {
        let task = owner.map_or(service.task_name.as_str(), |task| task.name.as_str());
        if !seen.insert((task.to_owned(), service.name.clone(), service.port_label.clone())) {
            found.push(format!(
                "Services are not unique: name=\"{}\" port=\"{}\" task=\"{task}\" is there twice",
                service.name, service.port_label
            ));
        }
        providers.insert(service.provider.clone());
        let mut own = Vec::new();
        one(job, group, service, owner, &labels, &mut own);
        if !own.is_empty() {
            found.push(format!("Service[{index}] {} validation failed: {}", service.name, joined(&own)));
        }
    }
    if providers.len() > 1 {
        let names: Vec<_> = providers.iter().map(String::as_str).collect();
        found.push(format!(
            "Multiple service providers used: task group services must use the same provider, not {}",
            names.join(" and ")
        ));
    }
    if !found.is_empty() {
        errors.push(format!("Task group service validation failed: {}", joined(&found)));
    }
}

/// Returns all port labels of a group and its tasks.
fn labels(group: &TaskGroup) -> BTreeSet<&str> {
    let of_tasks = group.tasks.iter().flat_map(|task| &task.resources.networks);
    group
        .networks
        .iter()
        .chain(of_tasks)
        .flat_map(|network| network.reserved_ports.iter().chain(&network.dynamic_ports))
        .map(|port| port.label.as_str())
        .collect()
}

fn one(
    job: &Job,
    group: &TaskGroup,
    service: &ServiceSpec,
    owner: Option<&Task>,
    labels: &BTreeSet<&str>,
    errors: &mut Vec<String>,
) {
    name(job, group, service, owner, errors);
    if !ADDRESS_MODES.contains(&service.address_mode.as_str()) {
        errors.push(one_of("Service address_mode must be known, not", &service.address_mode, &ADDRESS_MODES));
    }
    if owner.is_none() && service.address_mode == "driver" {
        errors.push("service address_mode \"driver\" is for services of tasks only".into());
    }
    if !service.address.is_empty() && service.address_mode != "auto" {
        errors.push("Service address_mode must be \"auto\" if address is set".into());
    }
    if !ON_UPDATE.contains(&service.on_update.as_str()) {
        errors.push(one_of("Service on_update must be known, not", &service.on_update, &ON_UPDATE));
    }
    if !matches!(service.provider.as_str(), "consul" | "nomad") {
        errors.push(one_of("Service provider must be known, not", &service.provider, &["consul", "nomad"]));
    }
    if errors.is_empty() {
        // The references of a service are checked only if the service itself is valid: clients expect these errors
        // alone.
        if !service.port_label.is_empty() {
            port(&service.port_label, labels, errors);
        }
        if owner.is_none() && !service.task_name.is_empty() {
            task_of(group, &service.task_name, errors);
        }
    }
    let mut names = HashSet::new();
    for check in service.checks() {
        let mut found = Vec::new();
        if !check.name.is_empty() && !names.insert(check.name.as_str()) {
            found.push("check name is not unique in its service".into());
        }
        one_check(group, service, owner, check, labels, &mut found);
        if service.provider == "nomad" {
            nomad_check(check, &mut found);
        }
        if !found.is_empty() {
            let what = if check.name.is_empty() { &check.kind } else { &check.name };
            errors.push(format!("Check {what} validation failed: {}", joined(&found)));
        }
    }
    if let Some(connect) = service.connect.as_ref().and_then(|block| from_value(&block.0).ok()) {
        if owner.is_some() {
            errors.push("connect is for services of groups only".into());
        }
        connected(service, &connect, errors);
    }
}

/// Checks the name of the registration, as far as it is known before the placement.
fn name(job: &Job, group: &TaskGroup, service: &ServiceSpec, owner: Option<&Task>, errors: &mut Vec<String>) {
    let task = owner.map_or("", |task| task.name.as_str());
    let base = if task.is_empty() {
        format!("{}-{}", job.id, group.name)
    } else {
        format!("{}-{}-{task}", job.id, group.name)
    };
    let known = [("JOB", job.id.as_str()), ("TASKGROUP", &group.name), ("TASK", task), ("BASE", &base)];
    let name = caravan_lang::interpolate::interpolate(&service.name, |wanted| {
        known.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned())
    });
    if name.is_empty() {
        errors.push("Service name can not be empty".into());
    } else if !name.contains("${") && !is_label(&name) {
        errors.push(format!(
            "Service name must be valid per RFC 1123 and can contain only alphanumeric characters or dashes and must be no longer than 63 characters: \"{name}\""
        ));
    }
}

fn port(label: &str, labels: &BTreeSet<&str>, errors: &mut Vec<String>) {
    if label.contains("${") || labels.contains(label) {
        return;
    }
    match label.parse::<i64>() {
        Ok(number) if (1..=65_535).contains(&number) => {}
        Ok(number) => errors.push(format!("port {number} is out of range: it must be from 1 to 65535")),
        Err(_) => {
            let near = suggestion(label, labels.iter().copied());
            errors.push(format!("port label \"{label}\" is not defined by a network of the group.{near}"));
        }
    }
}

fn task_of(group: &TaskGroup, name: &str, errors: &mut Vec<String>) {
    if !group.tasks.iter().any(|task| task.name == name) {
        let near = suggestion(name, group.tasks.iter().map(|task| task.name.as_str()));
        errors.push(format!("refers to task \"{name}\", which is not in the group.{near}"));
    }
}

fn one_check(
    group: &TaskGroup,
    service: &ServiceSpec,
    owner: Option<&Task>,
    check: &CheckSpec,
    labels: &BTreeSet<&str>,
    errors: &mut Vec<String>,
) {
    match check.kind.as_str() {
        "tcp" | "grpc" => {}
        "http" => {
            if check.path.is_empty() {
                errors.push("http type must have http path".into());
            } else if check.path.contains("://") {
                errors.push(format!("relative http path required, got \"{}\"", check.path));
            }
        }
        "script" => {
            if check.command.is_empty() {
                errors.push("script type must have a valid script path".into());
            }
            if owner.is_none() && check.task_name.is_empty() && service.task_name.is_empty() {
                errors.push("script checks of a group's service need a task to run in".into());
            }
        }
        "" => errors.push("check type must be set: http, tcp, grpc or script".into()),
        other => errors.push(one_of("invalid check type", other, &["http", "tcp", "grpc", "script"])),
    }
    if owner.is_none() && !check.task_name.is_empty() {
        task_of(group, &check.task_name, errors);
    }
    for (what, time) in [("interval", check.interval), ("timeout", check.timeout)] {
        if time == Nanos::ZERO {
            errors.push(format!("missing required value {what}: it must be at least {ONE_SECOND}"));
        } else if time < ONE_SECOND {
            errors.push(format!("{what} ({time}) is lower than the required minimum {ONE_SECOND}"));
        }
    }
    let statuses = ["passing", "warning", "critical"];
    if !check.initial_status.is_empty() && !statuses.contains(&check.initial_status.as_str()) {
        errors.push(one_of("invalid initial check state", &check.initial_status, &statuses));
    }
    let modes = ["host", "alloc", "alloc_ipv6", "driver"];
    if !check.address_mode.is_empty() && !modes.contains(&check.address_mode.as_str()) {
        errors.push(one_of("invalid address_mode", &check.address_mode, &modes));
    }
    if !check.on_update.is_empty() && !ON_UPDATE.contains(&check.on_update.as_str()) {
        errors.push(one_of("on_update must be known, not", &check.on_update, &ON_UPDATE));
    }
    let needs_port = matches!(check.kind.as_str(), "http" | "tcp" | "grpc");
    if needs_port && check.port_label.is_empty() && service.port_label.is_empty() && !check.expose {
        errors.push("check requires a port but neither check nor service has a port".into());
    }
    if !check.port_label.is_empty() {
        port(&check.port_label, labels, errors);
    }
    if let Some(restart) = &check.check_restart {
        if restart.limit < 0 {
            errors.push(format!("limit of check_restart must be positive; got {}", restart.limit));
        }
        if restart.grace < Nanos::ZERO {
            errors.push("grace of check_restart must be positive".into());
        }
        if restart.limit > 0 && check.on_update == "ignore" {
            errors.push("on_update value \"ignore\" cannot be used with check_restart".into());
        }
        if restart.limit > 0 && restart.ignore_warnings && check.on_update == "require_healthy" {
            errors.push(
                "on_update value \"require_healthy\" cannot be used with ignore_warnings of check_restart"
                    .into(),
            );
        }
    }
    if check.success_before_passing > 0 && !needs_port {
        errors.push(format!("success_before_passing is not supported for check of type \"{}\"", check.kind));
    }
}

/// Returns a warning that names the services that are not registered, because their provider is not available.
pub(super) fn unregistered(owner: &str, services: &[ServiceSpec]) -> Option<String> {
    let others = services.iter().filter(|service| !service.is_native());
    let names: Vec<&str> = others.map(|service| service.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{owner}: kept with the job but registered nowhere, because their provider is not \"nomad\": services {}",
            names.join(", ")
        )
    })
}

/// Refuses settings that the built-in provider does not support. It supports more than Nomad's: scripts, gRPC, and
/// thresholds.
fn nomad_check(check: &CheckSpec, errors: &mut Vec<String>) {
    for (what, used) in [
        ("expose", check.expose),
        ("address_mode = \"driver\"", check.address_mode == "driver"),
        ("failures_before_warning", check.failures_before_warning > 0),
        // Nomad's provider has no gRPC checks; Caravan's may set the server name.
        ("tls_server_name", !check.tls_server_name.is_empty() && check.kind != "grpc"),
        ("on_update = \"ignore_warnings\"", check.on_update == "ignore_warnings"),
        ("ignore_warnings of check_restart", check.check_restart.as_ref().is_some_and(|r| r.ignore_warnings)),
    ] {
        if used {
            errors.push(format!("{what} is not possible with provider nomad"));
        }
    }
}

fn connected(service: &ServiceSpec, connect: &Connect, errors: &mut Vec<String>) {
    if service.provider == "nomad" {
        errors.push("Service with provider nomad cannot include Connect blocks".into());
    }
    let kinds = [connect.native, connect.sidecar_service.is_some(), connect.gateway.is_some()]
        .into_iter()
        .filter(|x| *x);
    if kinds.count() != 1 {
        errors.push(
            "Consul Connect must be exclusively native, make use of a sidecar, or represent a Gateway".into(),
        );
    }
}
