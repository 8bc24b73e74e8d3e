//! The computation of the services and checks that an allocation should have now. Pure.

use super::address::{Endpoint, endpoint};
use crate::env::TaskEnv;
use caravan_types::NodeId;
use caravan_types::alloc::{Allocation, TaskRunState, TaskState};
use caravan_types::service::{CheckSpec, ServiceRegistration, ServiceSpec};
use caravan_types::small::Map;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The inputs of the computation.
#[derive(Debug)]
pub(crate) struct Inputs<'a> {
    /// The allocation that owns the services.
    pub(crate) alloc: &'a Allocation,
    /// States of its tasks.
    pub(crate) tasks: &'a Map<String, TaskState>,
    /// Tasks that are being stopped.
    pub(crate) ending: &'a dyn EndingTasks,
    /// Whether the allocation as a whole is being stopped.
    pub(crate) stopping: bool,
    /// Id of the node.
    pub(crate) node: &'a NodeId,
    /// Datacenter of the node.
    pub(crate) datacenter: &'a str,
    /// Address of the node.
    pub(crate) address: &'a str,
}

/// The tasks that are being stopped.
pub(crate) trait EndingTasks: std::fmt::Debug {
    /// Returns whether this task is being stopped.
    fn is_ending(&self, task: &str) -> bool;
}

impl EndingTasks for std::collections::BTreeSet<String> {
    fn is_ending(&self, task: &str) -> bool {
        self.contains(task)
    }
}

/// A check with all references replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DesiredCheck {
    /// The check as in the job file.
    pub(crate) spec: CheckSpec,
    /// Name of its service.
    pub(crate) service: String,
    /// Name of the check.
    pub(crate) name: String,
    /// The task of a task's service; `None` for a group's service.
    pub(crate) task: Option<String>,
    /// The task in which scripts run, and which is restarted.
    pub(crate) acts_on: Option<String>,
    /// The endpoint of the check, or the reason that it has none.
    pub(crate) endpoint: Result<Endpoint, String>,
}

impl DesiredCheck {
    /// Returns `healthiness` or `readiness`.
    pub(crate) fn mode(&self) -> &'static str {
        if self.spec.on_update == "ignore" { "readiness" } else { "healthiness" }
    }
}

/// The services and checks that should exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Desired {
    /// Registrations, sorted by id.
    pub(crate) services: Vec<ServiceRegistration>,
    /// Checks, by id.
    pub(crate) checks: BTreeMap<String, DesiredCheck>,
    /// Whether the job has services for this client, now or later.
    pub(crate) may_have: bool,
    /// Services that cannot be registered, with the reasons.
    pub(crate) faults: Vec<String>,
}

/// The group or task that owns services.
struct Owner<'a> {
    services: &'a [ServiceSpec],
    task: Option<&'a str>,
    up: bool,
}

/// Computes the desired services and checks. `env` returns the environment of a task, or of the group.
pub(crate) fn desired(inputs: &Inputs<'_>, env: impl Fn(Option<&str>) -> TaskEnv) -> Desired {
    let mut out = Desired::default();
    let Some(group) = inputs.alloc.group() else { return out };
    let runs = |task: &str| {
        inputs.tasks.get(task).is_some_and(|state| state.state == TaskRunState::Running)
            && !inputs.ending.is_ending(task)
    };
    let mains: Vec<&str> = group.tasks.iter().filter(|t| t.is_main()).map(|t| t.name.as_str()).collect();
    let group_up = !inputs.stopping && mains.iter().any(|task| runs(task));
    let mut owners = vec![Owner { services: &group.services, task: None, up: group_up }];
    owners.extend(group.tasks.iter().map(|task| Owner {
        services: &task.services,
        task: Some(&task.name),
        up: !inputs.stopping && runs(&task.name),
    }));
    for owner in owners.iter().filter(|owner| !owner.services.is_empty()) {
        let specs: Vec<&ServiceSpec> = owner.services.iter().filter(|spec| spec.is_native()).collect();
        if specs.is_empty() {
            continue;
        }
        out.may_have = true;
        if !owner.up {
            continue;
        }
        let env = env(owner.task);
        for spec in specs {
            add(inputs, owner.task, &group.name, spec, &env, &mut out);
        }
    }
    out.services.sort_by(|a, b| a.id.cmp(&b.id));
    out
}

fn add(
    inputs: &Inputs<'_>,
    task: Option<&str>,
    group: &str,
    spec: &ServiceSpec,
    env: &TaskEnv,
    out: &mut Desired,
) {
    let alloc = inputs.alloc;
    let name = env.text(&spec.name);
    let label = env.text(&spec.port_label);
    let custom = env.text(&spec.address);
    let place = endpoint(alloc, inputs.address, &spec.address_mode, &label, &custom);
    let canary = alloc.deployment_status.as_ref().is_some_and(|status| status.canary);
    let of_canaries = spec.canary_tags.as_deref().filter(|tags| canary && !tags.is_empty());
    let tags = of_canaries.or(spec.tags.as_deref()).unwrap_or_default();
    match &place {
        Ok(place) => {
            let owner = task.map_or_else(|| format!("group-{group}"), str::to_owned);
            out.services.push(ServiceRegistration {
                id: format!("_nomad-task-{}-{owner}-{name}-{label}", alloc.id).into(),
                service_name: name.clone(),
                namespace: alloc.namespace.clone(),
                node_id: inputs.node.clone(),
                datacenter: inputs.datacenter.to_owned(),
                job_id: alloc.job_id.clone(),
                alloc_id: alloc.id.clone(),
                tags: tags.iter().map(|tag| env.text(tag)).collect(),
                address: place.address.clone(),
                port: place.port,
                ..Default::default()
            });
        }
        Err(why) => out.faults.push(format!("service \"{name}\" cannot be registered: {why}")),
    }
    for check in spec.checks() {
        let check = in_place(check, env);
        let name_of = match check.name.as_str() {
            "" => format!("service: \"{name}\" check"),
            name => name.to_owned(),
        };
        let acts_on = [check.task_name.as_str(), task.unwrap_or_default(), spec.task_name.as_str()];
        let acts_on = acts_on.into_iter().find(|task| !task.is_empty()).map(str::to_owned);
        let own = !check.port_label.is_empty() || !check.address_mode.is_empty();
        let place = if own {
            let mode = if check.address_mode.is_empty() { &spec.address_mode } else { &check.address_mode };
            let label = if check.port_label.is_empty() { &label } else { &check.port_label };
            endpoint(alloc, inputs.address, mode, label, "")
        } else if check.kind == "script" {
            Ok(Endpoint::default())
        } else {
            place.clone()
        };
        let id = check_id(alloc, task, &name, &name_of, &check);
        let desired = DesiredCheck {
            service: name.clone(),
            name: name_of,
            task: task.map(str::to_owned),
            acts_on,
            endpoint: place,
            spec: check,
        };
        out.checks.insert(id, desired);
    }
}

fn in_place(check: &CheckSpec, env: &TaskEnv) -> CheckSpec {
    let text = |text: &String| env.text(text);
    CheckSpec {
        name: text(&check.name),
        command: text(&check.command),
        args: check.args.as_ref().map(|args| args.iter().map(text).collect()),
        path: text(&check.path),
        protocol: text(&check.protocol),
        tls_server_name: text(&check.tls_server_name),
        port_label: text(&check.port_label),
        method: text(&check.method),
        header: check.header.as_ref().map(|header| {
            header.iter().map(|(key, values)| (text(key), values.iter().map(text).collect())).collect()
        }),
        body: text(&check.body),
        grpc_service: text(&check.grpc_service),
        ..check.clone()
    }
}

/// Returns an id that distinguishes a check from all others.
fn check_id(alloc: &Allocation, task: Option<&str>, service: &str, name: &str, check: &CheckSpec) -> String {
    let mut hash = Sha256::new();
    let parts = [
        alloc.id.as_str(),
        alloc.task_group.as_str(),
        task.unwrap_or_default(),
        service,
        name,
        &check.kind,
        &check.command,
        &check.path,
        &check.method,
        &check.port_label,
        &check.address_mode,
    ];
    for part in parts.into_iter().chain(check.args.iter().flatten().map(String::as_str)) {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::alloc::AllocDeploymentStatus;
    use caravan_types::job::{Job, Task, TaskGroup};
    use serde_json::json;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    fn alloc() -> Allocation {
        let service = json!({"Name": "web-${NOMAD_X}", "Provider": "nomad", "PortLabel": "9000", "AddressMode": "auto",
            "Tags": ["a", "${NOMAD_X}"], "CanaryTags": ["canary"],
            "Checks": [{"Type": "tcp", "Interval": 1_000_000_000_i64}]});
        let service: ServiceSpec = serde_json::from_value(service).unwrap();
        let group = TaskGroup {
            name: "g".into(),
            services: vec![service.clone()],
            tasks: vec![
                Task { name: "t".into(), services: vec![service], ..Default::default() },
                Task { name: "u".into(), ..Default::default() },
            ],
            ..Default::default()
        };
        let job = Job { id: "j".into(), task_groups: vec![group], ..Default::default() };
        Allocation {
            id: "a1".into(),
            job_id: "j".into(),
            task_group: "g".into(),
            job: Some(Arc::new(job)),
            ..Default::default()
        }
    }

    fn look(alloc: &Allocation, running: &[&str], ending: &[&str], stopping: bool) -> Desired {
        let state = TaskState { state: TaskRunState::Running, ..Default::default() };
        let tasks = running.iter().map(|task| ((*task).to_owned(), state.clone())).collect();
        let ending: BTreeSet<String> = ending.iter().map(|task| (*task).to_owned()).collect();
        let inputs = Inputs {
            alloc,
            tasks: &tasks,
            ending: &ending,
            stopping,
            node: &"n1".into(),
            datacenter: "dc1",
            address: "10.0.0.1",
        };
        desired(&inputs, |_| TaskEnv::default())
    }

    fn ids(desired: &Desired) -> Vec<&str> {
        desired.services.iter().map(|s| s.id.as_str()).collect()
    }

    #[test]
    fn services_come_and_go_with_their_owners() {
        let alloc = alloc();
        let nothing = look(&alloc, &[], &[], false);
        assert!(nothing.services.is_empty() && nothing.checks.is_empty() && nothing.may_have);
        let group_only = look(&alloc, &["u"], &[], false);
        assert_eq!(ids(&group_only), ["_nomad-task-a1-group-g-web-${NOMAD_X}-9000"]);
        let both = look(&alloc, &["t", "u"], &[], false);
        assert_eq!(both.services.len(), 2);
        assert_eq!(both.checks.len(), 2);
        assert_eq!(ids(&look(&alloc, &["t", "u"], &["t"], false)).len(), 1, "the task is being ended");
        assert!(look(&alloc, &["t", "u"], &[], true).services.is_empty(), "the allocation is being ended");
        assert_eq!(both.services[0].address, "10.0.0.1");
        assert_eq!(both.services[0].port, 9000);
    }

    #[test]
    fn canaries_have_tags_of_their_own() {
        let mut alloc = alloc();
        assert_eq!(look(&alloc, &["u"], &[], false).services[0].tags, ["a", "${NOMAD_X}"]);
        alloc.deployment_status = Some(AllocDeploymentStatus { canary: true, ..Default::default() });
        assert_eq!(look(&alloc, &["u"], &[], false).services[0].tags, ["canary"]);
    }

    #[test]
    fn a_check_without_a_name_is_named_after_its_service_and_has_a_steady_id() {
        let alloc = alloc();
        let (a, b) = (look(&alloc, &["u"], &[], false), look(&alloc, &["u"], &[], false));
        assert_eq!(a.checks, b.checks);
        let (id, check) = a.checks.first_key_value().unwrap();
        assert_eq!((id.len(), check.name.as_str()), (64, "service: \"web-${NOMAD_X}\" check"));
        assert_eq!(check.mode(), "healthiness");
    }
}
