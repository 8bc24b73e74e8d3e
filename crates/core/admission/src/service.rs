//! Rules for services and their checks (docs/reference/jobspec.md, sections 4.6 and 4.7).

use super::one_of;
use super::problem::{Findings, ProblemCode as Code};
use caravan_api::{Connect, JobPath, from_value};
use caravan_types::Nanos;
use caravan_types::job::{Job, Task, TaskGroup, is_label};
use caravan_types::service::{CheckSpec, ServiceSpec};
use caravan_types::words::suggestion;
use std::collections::{BTreeMap, BTreeSet, HashSet};

const ADDRESS_MODES: [&str; 5] = ["auto", "host", "alloc", "alloc_ipv6", "driver"];
const ON_UPDATE: [&str; 3] = ["require_healthy", "ignore_warnings", "ignore"];
const ONE_SECOND: Nanos = Nanos::from_secs(1);

/// Checks the services of a group and of all its tasks.
pub(super) fn check(job: &Job, group: &TaskGroup, errors: &mut Findings) {
    let mut found = errors.below("");
    let mut providers: BTreeMap<String, JobPath> = BTreeMap::new();
    let mut seen = HashSet::new();
    let labels = labels(group);
    let path = errors.path.clone();
    let own = at_paths(&group.services, path.clone()).map(|(path, service)| (path, service, None));
    let of_tasks = group.tasks.iter().enumerate().flat_map(|(at, task)| {
        let path = path.clone().field("Tasks").index(at);
        at_paths(&task.services, path).map(move |(path, service)| (path, service, Some(task)))
    });
    for (index, (path, service, owner)) in own.chain(of_tasks).enumerate() {
        let task = owner.map_or(service.task_name.as_str(), |task| task.name.as_str());
        if !seen.insert((task.to_owned(), service.name.clone(), service.port_label.clone())) {
            let text = format!(
                "Services are not unique: name=\"{}\" port=\"{}\" task=\"{task}\" is there twice",
                service.name, service.port_label
            );
            found.add_at(Code::Duplicate, path.clone().field("Name"), text);
        }
        providers.entry(service.provider.clone()).or_insert_with(|| path.clone());
        let mut own = Findings::at(path);
        one(job, group, service, owner, &labels, &mut own);
        found.nest(format!("Service[{index}] {} validation failed: ", service.name), own);
    }
    if providers.len() > 1 {
        let names: Vec<_> = providers.keys().map(String::as_str).collect();
        let text = format!(
            "Multiple service providers used: task group services must use the same provider, not {}",
            names.join(" and ")
        );
        if let Some(path) = providers.into_values().max() {
            found.add_at(Code::Conflict, path.field("Provider"), text);
        }
    }
    errors.nest("Task group service validation failed: ", found);
}

/// Returns the services of the group or task at a path, each with its own path.
fn at_paths(services: &[ServiceSpec], path: JobPath) -> impl Iterator<Item = (JobPath, &ServiceSpec)> {
    services.iter().enumerate().map(move |(at, service)| (path.clone().field("Services").index(at), service))
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
    errors: &mut Findings,
) {
    name(job, group, service, owner, errors);
    if !ADDRESS_MODES.contains(&service.address_mode.as_str()) {
        let text = one_of("Service address_mode must be known, not", &service.address_mode, &ADDRESS_MODES);
        errors.add(Code::UnknownWord, "AddressMode", text);
    }
    if owner.is_none() && service.address_mode == "driver" {
        let text = "service address_mode \"driver\" is for services of tasks only";
        errors.add(Code::NotAllowedHere, "AddressMode", text);
    }
    if !service.address.is_empty() && service.address_mode != "auto" {
        let text = "Service address_mode must be \"auto\" if address is set";
        errors.add(Code::Conflict, "AddressMode", text);
    }
    if !ON_UPDATE.contains(&service.on_update.as_str()) {
        let text = one_of("Service on_update must be known, not", &service.on_update, &ON_UPDATE);
        errors.add(Code::UnknownWord, "OnUpdate", text);
    }
    if !matches!(service.provider.as_str(), "consul" | "nomad") {
        let text = one_of("Service provider must be known, not", &service.provider, &["consul", "nomad"]);
        errors.add(Code::UnknownWord, "Provider", text);
    }
    if errors.is_empty() {
        // The references of a service are checked only if the service itself is valid, because clients expect these
        // errors alone.
        if !service.port_label.is_empty() {
            port(&service.port_label, labels, errors);
        }
        if owner.is_none() && !service.task_name.is_empty() {
            task_of(group, &service.task_name, errors);
        }
    }
    let mut names = HashSet::new();
    for (at, check) in service.checks().iter().enumerate() {
        let mut found = errors.element("Checks", at);
        if !check.name.is_empty() && !names.insert(check.name.as_str()) {
            found.add(Code::Duplicate, "Name", "check name is not unique in its service");
        }
        one_check(group, service, owner, check, labels, &mut found);
        if service.provider == "nomad" {
            nomad_check(check, &mut found);
        }
        let what = if check.name.is_empty() { &check.kind } else { &check.name };
        errors.nest(format!("Check {what} validation failed: "), found);
    }
    if let Some(connect) = service.connect.as_ref().and_then(|block| from_value(&block.0).ok()) {
        if owner.is_some() {
            errors.add(Code::NotAllowedHere, "Connect", "connect is for services of groups only");
        }
        connected(service, &connect, errors);
    }
}

/// Checks the name of the registration, as far as it is known before the placement.
fn name(job: &Job, group: &TaskGroup, service: &ServiceSpec, owner: Option<&Task>, errors: &mut Findings) {
    let task = owner.map_or("", |task| task.name.as_str());
    let base = if task.is_empty() {
        format!("{}-{}", job.id, group.name)
    } else {
        format!("{}-{}-{task}", job.id, group.name)
    };
    let known = [("JOB", job.id.as_str()), ("TASKGROUP", &group.name), ("TASK", task), ("BASE", &base)];
    let name = caravan_lang::interpolate::interpolate(&service.name, |desired| {
        known.iter().find(|(name, _)| *name == desired).map(|(_, value)| (*value).to_owned())
    });
    if name.is_empty() {
        errors.add(Code::Missing, "Name", "Service name can not be empty");
    } else if !name.contains("${") && !is_label(&name) {
        let text = format!(
            "Service name must be valid per RFC 1123 and can contain only alphanumeric characters or dashes and must be no longer than 63 characters: \"{name}\""
        );
        errors.add(Code::InvalidName, "Name", text);
    }
}

fn port(label: &str, labels: &BTreeSet<&str>, errors: &mut Findings) {
    if label.contains("${") || labels.contains(label) {
        return;
    }
    match label.parse::<i64>() {
        Ok(number) if (1..=65_535).contains(&number) => {}
        Ok(number) => {
            let code = if number < 1 { Code::BelowMinimum } else { Code::AboveMaximum };
            let text = format!("port {number} is out of range: it must be from 1 to 65535");
            errors.add(code, "PortLabel", text);
        }
        Err(_) => {
            let near = suggestion(label, labels.iter().copied());
            let text = format!("port label \"{label}\" is not defined by a network of the group.{near}");
            errors.add(Code::UndefinedReference, "PortLabel", text);
        }
    }
}

fn task_of(group: &TaskGroup, name: &str, errors: &mut Findings) {
    if !group.tasks.iter().any(|task| task.name == name) {
        let near = suggestion(name, group.tasks.iter().map(|task| task.name.as_str()));
        let text = format!("refers to task \"{name}\", which is not in the group.{near}");
        errors.add(Code::UndefinedReference, "TaskName", text);
    }
}

fn one_check(
    group: &TaskGroup,
    service: &ServiceSpec,
    owner: Option<&Task>,
    check: &CheckSpec,
    labels: &BTreeSet<&str>,
    errors: &mut Findings,
) {
    match check.kind.as_str() {
        "tcp" | "grpc" => {}
        "http" => {
            if check.path.is_empty() {
                errors.add(Code::Missing, "Path", "http type must have http path");
            } else if check.path.contains("://") {
                let text = format!("relative http path required, got \"{}\"", check.path);
                errors.add(Code::InvalidValue, "Path", text);
            }
        }
        "script" => {
            if check.command.is_empty() {
                errors.add(Code::Missing, "Command", "script type must have a valid script path");
            }
            if owner.is_none() && check.task_name.is_empty() && service.task_name.is_empty() {
                let text = "script checks of a group's service need a task to run in";
                errors.add(Code::Missing, "TaskName", text);
            }
        }
        "" => errors.add(Code::Missing, "Type", "check type must be set: http, tcp, grpc or script"),
        other => {
            let text = one_of("invalid check type", other, &["http", "tcp", "grpc", "script"]);
            errors.add(Code::UnknownWord, "Type", text);
        }
    }
    if owner.is_none() && !check.task_name.is_empty() {
        task_of(group, &check.task_name, errors);
    }
    for (what, field, time) in
        [("interval", "Interval", check.interval), ("timeout", "Timeout", check.timeout)]
    {
        if time == Nanos::ZERO {
            let text = format!("missing required value {what}: it must be at least {ONE_SECOND}");
            errors.add(Code::Missing, field, text);
        } else if time < ONE_SECOND {
            let text = format!("{what} ({time}) is lower than the required minimum {ONE_SECOND}");
            errors.add(Code::BelowMinimum, field, text);
        }
    }
    let modes = ["host", "alloc", "alloc_ipv6", "driver"];
    for (field, what, word, known) in [
        (
            "InitialStatus",
            "invalid initial check state",
            &check.initial_status,
            &["passing", "warning", "critical"][..],
        ),
        ("AddressMode", "invalid address_mode", &check.address_mode, &modes[..]),
        ("OnUpdate", "on_update must be known, not", &check.on_update, &ON_UPDATE[..]),
    ] {
        if !word.is_empty() && !known.contains(&word.as_str()) {
            errors.add(Code::UnknownWord, field, one_of(what, word, known));
        }
    }
    let needs_port = matches!(check.kind.as_str(), "http" | "tcp" | "grpc");
    if needs_port && check.port_label.is_empty() && service.port_label.is_empty() && !check.expose {
        let text = "check requires a port but neither check nor service has a port";
        errors.add(Code::Missing, "PortLabel", text);
    }
    if !check.port_label.is_empty() {
        port(&check.port_label, labels, errors);
    }
    check_restart(check, errors);
    if check.success_before_passing > 0 && !needs_port {
        let text = format!("success_before_passing is not supported for check of type \"{}\"", check.kind);
        errors.add(Code::Conflict, "SuccessBeforePassing", text);
    }
}

fn check_restart(check: &CheckSpec, errors: &mut Findings) {
    let Some(restart) = &check.check_restart else { return };
    if restart.limit < 0 {
        let text = format!("limit of check_restart must be positive; got {}", restart.limit);
        errors.add(Code::BelowMinimum, "CheckRestart.Limit", text);
    }
    if restart.grace < Nanos::ZERO {
        let text = "grace of check_restart must be positive";
        errors.add(Code::BelowMinimum, "CheckRestart.Grace", text);
    }
    if restart.limit > 0 && check.on_update == "ignore" {
        let text = "on_update value \"ignore\" cannot be used with check_restart";
        errors.add(Code::Conflict, "OnUpdate", text);
    }
    if restart.limit > 0 && restart.ignore_warnings && check.on_update == "require_healthy" {
        let text = "on_update value \"require_healthy\" cannot be used with ignore_warnings of check_restart";
        errors.add(Code::Conflict, "OnUpdate", text);
    }
}

/// Adds a warning that names the services that are not registered, because their provider is not available.
pub(super) fn unregistered(owner: &str, services: &[ServiceSpec], warnings: &mut Findings) {
    let foreign: Vec<(JobPath, &str)> = at_paths(services, warnings.path.clone())
        .filter(|(_, service)| !service.is_native())
        .map(|(path, service)| (path, service.name.as_str()))
        .collect();
    if let Some((path, _)) = foreign.first() {
        let names: Vec<&str> = foreign.iter().map(|(_, name)| *name).collect();
        let text = format!(
            "{owner}: kept with the job but registered nowhere, because their provider is not \"nomad\": services {}",
            names.join(", ")
        );
        warnings.add_at(Code::NoEffect, path.clone().field("Provider"), text);
    }
}

/// Refuses settings that the built-in provider does not support. The provider supports more than Nomad's provider:
/// scripts, gRPC, and thresholds.
fn nomad_check(check: &CheckSpec, errors: &mut Findings) {
    for (field, what, used) in [
        ("Expose", "expose", check.expose),
        ("AddressMode", "address_mode = \"driver\"", check.address_mode == "driver"),
        ("FailuresBeforeWarning", "failures_before_warning", check.failures_before_warning > 0),
        // Nomad's provider has no gRPC checks. Caravan's provider has them, and they may set the server name.
        ("TLSServerName", "tls_server_name", !check.tls_server_name.is_empty() && check.kind != "grpc"),
        ("OnUpdate", "on_update = \"ignore_warnings\"", check.on_update == "ignore_warnings"),
        (
            "CheckRestart.IgnoreWarnings",
            "ignore_warnings of check_restart",
            check.check_restart.as_ref().is_some_and(|r| r.ignore_warnings),
        ),
    ] {
        if used {
            let text = format!("{what} is not possible with provider nomad");
            errors.add(Code::NotAllowedHere, field, text);
        }
    }
}

fn connected(service: &ServiceSpec, connect: &Connect, errors: &mut Findings) {
    if service.provider == "nomad" {
        let text = "Service with provider nomad cannot include Connect blocks";
        errors.add(Code::NotAllowedHere, "Connect", text);
    }
    let kinds = [connect.native, connect.sidecar_service.is_some(), connect.gateway.is_some()]
        .into_iter()
        .filter(|x| *x);
    if kinds.count() != 1 {
        let text = "Consul Connect must be exclusively native, make use of a sidecar, or represent a Gateway";
        errors.add(Code::Conflict, "Connect", text);
    }
}
