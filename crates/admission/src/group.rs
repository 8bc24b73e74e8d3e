//! Rules for groups.

use super::targets::{Place, affinities, constraints, spreads};
use super::{joined, network, policies, service, task, unheeded, volume, warnings};
use caravan_types::api::{Misfits, Part};
use caravan_types::job::{Job, JobType, TaskGroup};
use std::collections::HashMap;

pub(super) fn check(job: &Job, group: &TaskGroup, mut misfits: Misfits) -> (Vec<String>, Vec<String>) {
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    let mut of_tasks: Vec<Misfits> = (0..group.tasks.len()).map(|index| misfits.of_task(index)).collect();
    errors.extend(misfits.take(Part::Count));
    if group.tasks.is_empty() {
        errors.push("Missing tasks for task group".into());
    } else if !group.tasks.iter().any(caravan_types::job::Task::is_main) {
        errors.push("Task group must have at least one main task: one without a lifecycle block".into());
    }
    if group.tasks.iter().filter(|t| t.leader).count() > 1 {
        errors.push("Only one task may be marked as leader".into());
    }
    constraints(&group.constraints, Place::Group, &mut errors);
    if job.kind != JobType::System {
        affinities(&group.affinities, &mut errors);
        spreads(&group.spreads, &mut errors);
    }
    policies::check(job, group, &mut misfits, &mut errors);
    network::check(group, &mut errors);
    volume::requests(job, group, &mut errors);
    errors.extend(misfits.rest());
    service::check(job, group, &mut errors);
    warnings.extend(service::unregistered(&format!("group \"{}\"", group.name), &group.services));
    warnings.extend(warnings::of_group(group));
    warnings.extend(unheeded::of_group(group));
    warnings.extend(warnings::of_services(group));
    let mut names: HashMap<&str, usize> = HashMap::new();
    for (index, task) in group.tasks.iter().enumerate() {
        if task.name.is_empty() {
            errors.push(format!("Task {} missing name", index + 1));
        } else if let Some(first) = names.insert(&task.name, index + 1) {
            errors.push(format!("Task {} redefines '{}' from task {first}", index + 1, task.name));
        }
        let (found, more) = task::check(job, group, task, std::mem::take(&mut of_tasks[index]));
        if !found.is_empty() {
            errors.push(format!("Task {} validation failed: {}", task.name, joined(&found)));
        }
        warnings.extend(more);
    }
    (errors, warnings)
}
