//! The checks of the namespace and node pool of a job, and of the features that the namespace permits.

use caravan_admission::{Problem, ProblemCode as Code, Problems};
use caravan_api::JobPath;
use caravan_state::Root;
use caravan_types::Namespace;
use caravan_types::identity::IdentitySpec;
use caravan_types::job::Job;
use caravan_types::namespace::AllowedConfig;
use caravan_types::node_pool::DEFAULT;

/// Fills in an absent namespace, an absent node pool, and the identity of each task.
pub(crate) fn localised(root: &Root, job: &mut Job) {
    if job.namespace.is_empty() {
        job.namespace = Namespace::default_namespace();
    }
    if job.node_pool.is_empty() {
        let pools = root.namespace(&job.namespace).and_then(|ns| ns.node_pool_configuration.as_ref());
        let default = pools.map(|pools| pools.default.as_str()).filter(|name| !name.is_empty());
        default.unwrap_or(DEFAULT).clone_into(&mut job.node_pool);
    }
    for group in &mut job.task_groups {
        let consul = group.consul.as_ref().map(|consul| consul.namespace.clone()).unwrap_or_default();
        let own = job.namespace.to_string();
        let of_tasks = group.tasks.iter_mut().flat_map(|task| &mut task.services);
        for service in group.services.iter_mut().chain(of_tasks) {
            let namespace = match () {
                () if service.is_native() => own.as_str(),
                () if consul.is_empty() => "default",
                () => consul.as_str(),
            };
            service.namespace = Some(namespace.to_owned());
        }
    }
    for task in job.task_groups.iter_mut().flat_map(|group| &mut group.tasks) {
        task.identity.get_or_insert_with(|| IdentitySpec::default_one().into());
    }
}

/// Returns the problems of the namespace and node pool of a job, and of settings that the namespace does not allow.
pub(crate) fn homes(root: &Root, job: &Job) -> Problems {
    let mut errors = Problems::default();
    let mut refuse = |code, path, text: String| {
        if !errors.iter().any(|problem| problem.text == text) {
            errors.push(Problem::new(code, path, text));
        }
    };
    let Some(namespace) = root.namespace(&job.namespace) else {
        let text = format!("job \"{}\" is in nonexistent namespace \"{}\"", job.id, job.namespace);
        refuse(Code::Nonexistent, JobPath::root().field("Namespace"), text);
        return errors;
    };
    let pool = || JobPath::root().field("NodePool");
    if root.node_pool(&job.node_pool).is_none() {
        let text = format!("job \"{}\" is in nonexistent node pool \"{}\"", job.id, job.node_pool);
        refuse(Code::Nonexistent, pool(), text);
    }
    if namespace.node_pool_configuration.as_ref().is_some_and(|pools| !allows(pools, &job.node_pool)) {
        let text = format!(
            "job \"{}\" is in node pool \"{}\", which namespace \"{}\" does not allow",
            job.id, job.node_pool, job.namespace
        );
        refuse(Code::NotAllowedInNamespace, pool(), text);
    }
    let Some(capabilities) = &namespace.capabilities else { return errors };
    for (at, group) in job.task_groups.iter().enumerate() {
        let path = JobPath::group(at);
        for (at, task) in group.tasks.iter().enumerate() {
            if !capabilities.allows_driver(&task.driver) {
                let path = path.clone().field("Tasks").index(at).field("Driver");
                let text = format!(
                    "used task driver \"{}\" is not allowed in namespace \"{}\"",
                    task.driver, job.namespace
                );
                refuse(Code::NotAllowedInNamespace, path, text);
            }
        }
        for (at, network) in group.networks.iter().enumerate() {
            let mode = if network.mode.is_empty() { "host" } else { network.mode.as_str() };
            if !capabilities.allows_network_mode(mode) {
                let path = path.clone().field("Networks").index(at).field("Mode");
                let text = format!(
                    "used group network mode \"{mode}\" is not allowed in namespace \"{}\"",
                    job.namespace
                );
                refuse(Code::NotAllowedInNamespace, path, text);
            }
        }
    }
    errors
}

/// Returns whether a name is permitted: the default always, otherwise the allowed names, or all names that are not
/// denied.
fn allows(config: &AllowedConfig, name: &str) -> bool {
    let fits = |patterns: &[String]| patterns.iter().any(|p| caravan_lang::glob::matches(p, name));
    if config.default == name {
        return true;
    }
    if config.allowed.is_empty() { !fits(&config.denied) } else { fits(&config.allowed) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::sample::minimal;
    use caravan_types::UnixNanos;
    use caravan_types::admin::AdminChange;
    use caravan_types::command::{Change, Command};
    use caravan_types::namespace::{NamespaceCapabilities, NamespaceSpec};

    fn with(spec: NamespaceSpec) -> Root {
        let change = Change::Admin(AdminChange::NamespaceWrite(Box::new(spec)));
        Root::default().apply(1, &Command { now: UnixNanos(1), change }).0
    }

    #[test]
    fn homes_must_be_there() {
        let mut job = minimal();
        assert!(homes(&Root::default(), &job).is_empty());
        job.namespace = "ghost".into();
        assert_eq!(
            homes(&Root::default(), &job).texts(),
            [format!("job \"{}\" is in nonexistent namespace \"ghost\"", job.id)]
        );
        job.namespace = "default".into();
        job.node_pool = "gold".into();
        assert!(homes(&Root::default(), &job).texts()[0].contains("nonexistent node pool \"gold\""));
    }

    #[test]
    fn a_namespace_says_which_drivers_and_pools_it_allows() {
        let root = with(NamespaceSpec {
            name: "team-a".into(),
            capabilities: Some(NamespaceCapabilities {
                enabled_task_drivers: vec!["mock_driver".into()],
                ..NamespaceCapabilities::default()
            }),
            node_pool_configuration: Some(AllowedConfig {
                default: "all".into(),
                allowed: vec!["gold*".into()],
                denied: Vec::new(),
            }),
            ..NamespaceSpec::default()
        });
        let mut job = minimal();
        job.namespace = "team-a".into();
        let problems = homes(&root, &job);
        let paths: Vec<String> = problems.iter().map(|problem| problem.path.to_string()).collect();
        assert_eq!(paths, ["NodePool", "TaskGroups[0].Tasks[0].Driver"]);
        let errors = problems.texts();
        assert!(errors[0].contains("which namespace \"team-a\" does not allow"), "{errors:?}");
        assert_eq!(errors[1], "used task driver \"raw_exec\" is not allowed in namespace \"team-a\"");
        job.node_pool = String::new();
        localised(&root, &mut job);
        assert_eq!(job.node_pool, "all");
    }
}
