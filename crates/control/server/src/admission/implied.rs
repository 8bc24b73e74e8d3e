//! The constraints that follow from the features that a group uses: the group runs only on nodes that have these
//! features (docs/reference/http-api.md, section 5.1).
//!
//! The constraints are part of the stored job, so they appear in the job and in its differences.

use caravan_types::job::{Constraint, Job, Task, TaskGroup};
use caravan_types::service::ServiceSpec;
use serde_json::Value;
use std::collections::BTreeSet;

const VERSION: &str = "${attr.nomad.version}";

fn constraint(attribute: &str, operand: &str, value: &str) -> Constraint {
    Constraint { l_target: attribute.to_owned(), r_target: value.to_owned(), operand: operand.to_owned() }
}

/// Adds each group's implied constraints. Existing constraints are not added again.
pub(crate) fn imply(job: &mut Job) {
    for group in &mut job.task_groups {
        for needed in needs(group) {
            if !group.constraints.contains(&needed) {
                group.constraints.push(needed);
            }
        }
    }
}

/// Returns the implied constraints of a group, in the order in which they are added.
fn needs(group: &TaskGroup) -> Vec<Constraint> {
    let mut out = Vec::new();
    if group.tasks.iter().any(|task| task.vault.is_some()) {
        out.push(constraint("${attr.vault.version}", "semver", ">= 0.6.1"));
    }
    let providers: BTreeSet<&str> = secrets(group).collect();
    for provider in providers {
        out.push(constraint(&format!("${{attr.plugins.secrets.{provider}.version}}"), "is_set", ""));
    }
    let signals: BTreeSet<&str> = group.tasks.iter().flat_map(signals).collect();
    if !signals.is_empty() {
        let all: Vec<&str> = signals.into_iter().collect();
        out.push(constraint("${attr.os.signals}", "set_contains", &all.join(",")));
    }
    let of_tasks = group.tasks.iter().flat_map(|task| &task.services);
    let services: Vec<&ServiceSpec> = group.services.iter().chain(of_tasks).collect();
    let native = || services.iter().filter(|service| service.is_native());
    if native().next().is_some() {
        out.push(constraint("${attr.nomad.service_discovery}", "=", "true"));
    }
    if native().any(|service| !service.checks().is_empty()) {
        out.push(constraint(VERSION, "semver", ">= 1.4.0"));
    }
    if group.networks.iter().any(|network| network.mode == "bridge") {
        for plugin in ["bridge", "firewall", "host-local", "loopback", "portmap"] {
            let attribute = format!("${{attr.plugins.cni.version.{plugin}}}");
            out.push(constraint(&attribute, "semver", ">= 0.4.0"));
        }
    }
    if services.iter().any(|service| service.provider == "consul") {
        out.push(constraint("${attr.consul.version}", "semver", ">= 1.8.0"));
    }
    if group.tasks.iter().any(|task| !task.identities.is_empty())
        || services.iter().any(|service| service.identity.is_some())
    {
        out.push(constraint(VERSION, "semver", ">= 1.7.0-a"));
    }
    if group.tasks.iter().any(|task| task.resources.numa_wish().is_some()) {
        out.push(constraint(VERSION, "semver", ">= 1.6.3-dev"));
        out.push(constraint("${attr.kernel.name}", "=", "linux"));
    }
    out
}

fn secrets(group: &TaskGroup) -> impl Iterator<Item = &str> {
    group.tasks.iter().flat_map(|task| &task.secrets).filter_map(|secret| secret.0["Provider"].as_str())
}

/// Returns the signals that a task may receive.
fn signals(task: &Task) -> Vec<&str> {
    let mut out: Vec<&str> = Vec::new();
    out.extend(task.vault.as_ref().and_then(|block| signal_of(&block.0)));
    let templates = task.templates.iter().filter(|block| block.change_mode.eq_ignore_ascii_case("signal"));
    out.extend(templates.map(|block| block.change_signal.as_str()));
    out.push(&task.kill_signal);
    out.retain(|signal| !signal.is_empty());
    out
}

/// Returns the signal of a template or identity that signals its task when it changes.
fn signal_of(block: &Value) -> Option<&str> {
    let mode = block["ChangeMode"].as_str()?;
    block["ChangeSignal"].as_str().filter(|_| mode.eq_ignore_ascii_case("signal"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::identity::IdentitySpec;
    use caravan_types::job::{Numa, Template};
    use caravan_types::service::CheckSpec;

    fn added(change: impl FnOnce(&mut TaskGroup)) -> Vec<String> {
        let mut group = TaskGroup { tasks: vec![Task::default()], ..TaskGroup::default() };
        change(&mut group);
        let mut job = Job { task_groups: vec![group], ..Job::default() };
        imply(&mut job);
        let once = job.clone();
        imply(&mut job);
        assert_eq!(job, once, "what is there is not added again");
        let reported = |c: &Constraint| format!("{} {} {}", c.l_target, c.operand, c.r_target);
        job.task_groups[0].constraints.iter().map(reported).collect()
    }

    #[test]
    fn what_a_group_uses_must_be_where_it_runs() {
        assert!(added(|_| {}).is_empty());
        let service = |checks: Option<Vec<CheckSpec>>| ServiceSpec {
            provider: "nomad".into(),
            checks,
            ..ServiceSpec::default()
        };
        let discovery = "${attr.nomad.service_discovery} = true";
        assert_eq!(added(|g| g.services.push(service(None))), [discovery]);
        assert_eq!(
            added(|g| g.tasks[0].services.push(service(Some(vec![CheckSpec::default()])))),
            [discovery, "${attr.nomad.version} semver >= 1.4.0"]
        );
        let signals = added(|group| {
            group.tasks[0].kill_signal = "SIGQUIT".into();
            let template = |mode: &str| Template {
                change_mode: mode.into(),
                change_signal: "SIGHUP".into(),
                ..Template::default()
            };
            group.tasks[0].templates = vec![template("signal"), template("noop")];
        });
        assert_eq!(signals, ["${attr.os.signals} set_contains SIGHUP,SIGQUIT"]);
        let numa = |wish: &str| {
            let numa = Numa { affinity: wish.into(), devices: None };
            added(|g| g.tasks[0].resources.numa = Some(numa.into()))
        };
        assert_eq!(
            numa("prefer"),
            ["${attr.nomad.version} semver >= 1.6.3-dev", "${attr.kernel.name} = linux"]
        );
        assert!(numa("none").is_empty());
        assert_eq!(
            added(|g| g.tasks[0].identities.push(IdentitySpec::default())),
            ["${attr.nomad.version} semver >= 1.7.0-a"]
        );
        let consul =
            added(|g| g.services.push(ServiceSpec { provider: "consul".into(), ..ServiceSpec::default() }));
        assert_eq!(consul, ["${attr.consul.version} semver >= 1.8.0"]);
    }
}
