//! Checks the namespace and node pool of a job, and the features that the namespace permits.

use caravan_state::Root;
use caravan_types::Namespace;
use caravan_types::identity::IdentitySpec;
use caravan_types::job::Job;
use caravan_types::namespace::AllowedConfig;
use caravan_types::node_pool::DEFAULT;

/// Fills in the namespace and the node pool if absent, and the identity of each task.
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

/// Returns the problems of the job's namespace and node pool.
pub(crate) fn homes(root: &Root, job: &Job) -> Vec<String> {
    let mut errors = Vec::new();
    let Some(namespace) = root.namespace(&job.namespace) else {
        errors.push(format!("job \"{}\" is in nonexistent namespace \"{}\"", job.id, job.namespace));
        return errors;
    };
    if root.node_pool(&job.node_pool).is_none() {
        errors.push(format!("job \"{}\" is in nonexistent node pool \"{}\"", job.id, job.node_pool));
    }
    if namespace.node_pool_configuration.as_ref().is_some_and(|pools| !allows(pools, &job.node_pool)) {
        errors.push(format!(
            "job \"{}\" is in node pool \"{}\", which namespace \"{}\" does not allow",
            job.id, job.node_pool, job.namespace
        ));
    }
    let Some(capabilities) = &namespace.capabilities else { return errors };
    let mut refuse = |text: String| {
        if !errors.contains(&text) {
            errors.push(text);
        }
    };
    for group in &job.task_groups {
        for task in group.tasks.iter().filter(|task| !capabilities.allows_driver(&task.driver)) {
            refuse(format!(
                "used task driver \"{}\" is not allowed in namespace \"{}\"",
                task.driver, job.namespace
            ));
        }
        for network in &group.networks {
            let mode = if network.mode.is_empty() { "host" } else { network.mode.as_str() };
            if !capabilities.allows_network_mode(mode) {
                refuse(format!(
                    "used group network mode \"{mode}\" is not allowed in namespace \"{}\"",
                    job.namespace
                ));
            }
        }
    }
    errors
}

/// Whether a name is permitted: the default always, otherwise the allowed names, or all names that are not denied.
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
            homes(&Root::default(), &job),
            [format!("job \"{}\" is in nonexistent namespace \"ghost\"", job.id)]
        );
        job.namespace = "default".into();
        job.node_pool = "gold".into();
        assert!(homes(&Root::default(), &job)[0].contains("nonexistent node pool \"gold\""));
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
        let errors = homes(&root, &job);
        assert!(errors[0].contains("which namespace \"team-a\" does not allow"), "{errors:?}");
        assert_eq!(errors[1], "used task driver \"raw_exec\" is not allowed in namespace \"team-a\"");
        job.node_pool = String::new();
        localised(&root, &mut job);
        assert_eq!(job.node_pool, "all");
    }
}
