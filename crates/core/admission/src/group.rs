//! Rules for groups.

use super::problem::{Findings, ProblemCode as Code};
use super::targets::{Place, affinities, constraints, spreads};
use super::{network, policies, service, task, unheeded, volume, warnings};
use caravan_api::{Misfits, Part};
use caravan_types::job::{Job, JobType, TaskGroup};
use std::collections::HashMap;

pub(super) fn check(
    job: &Job,
    group: &TaskGroup,
    mut misfits: Misfits,
    errors: &mut Findings,
    warnings: &mut Findings,
) {
    let mut of_tasks: Vec<Misfits> = (0..group.tasks.len()).map(|index| misfits.of_task(index)).collect();
    errors.misfits(misfits.take(Part::Count));
    if group.tasks.is_empty() {
        errors.add(Code::Missing, "Tasks", "Missing tasks for task group");
    } else if !group.tasks.iter().any(caravan_types::job::Task::is_main) {
        let text = "Task group must have at least one main task: one without a lifecycle block";
        errors.add(Code::Missing, "Tasks", text);
    }
    if group.tasks.iter().filter(|t| t.leader).count() > 1 {
        let second = group.tasks.iter().enumerate().filter(|(_, task)| task.leader).map(|(at, _)| at).nth(1);
        let path = errors.path.clone().field("Tasks").index(second.unwrap_or_default()).field("Leader");
        errors.add_at(Code::Duplicate, path, "Only one task may be marked as leader");
    }
    constraints(&group.constraints, Place::Group, errors);
    if job.kind != JobType::System {
        affinities(&group.affinities, errors);
        spreads(&group.spreads, errors);
    }
    policies::check(job, group, &mut misfits, errors);
    network::check(group, errors);
    volume::requests(job, group, errors);
    errors.misfits(misfits.rest());
    service::check(job, group, errors);
    service::unregistered(&format!("group \"{}\"", group.name), &group.services, warnings);
    warnings::of_group(group, warnings);
    unheeded::of_group(group, warnings);
    warnings::of_services(group, warnings);
    let mut names: HashMap<&str, usize> = HashMap::new();
    for (index, task) in group.tasks.iter().enumerate() {
        let mut found = errors.element("Tasks", index);
        let name = found.path.clone().field("Name");
        if task.name.is_empty() {
            errors.add_at(Code::Missing, name, format!("Task {} missing name", index + 1));
        } else if let Some(first) = names.insert(&task.name, index + 1) {
            let text = format!("Task {} redefines '{}' from task {first}", index + 1, task.name);
            errors.add_at(Code::Duplicate, name, text);
        }
        let mut more = warnings.element("Tasks", index);
        let misfits = std::mem::take(&mut of_tasks[index]);
        task::check(job, group, task, misfits, &mut found, &mut more);
        errors.nest(format!("Task {} validation failed: ", task.name), found);
        warnings.found.append(more.found);
    }
}
