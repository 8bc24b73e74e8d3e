//! The comparison of job versions: the effect of a new version on a running allocation.

use caravan_types::job::{Job, LogConfig, Task, TaskGroup};

/// The way in which an allocation moves to the new version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// The allocation runs the newest specification already.
    None,
    /// The allocation continues with the new specification.
    InPlace,
    /// The allocation is stopped and replaced.
    Destructive,
}

/// Compares the specification of an allocation with the newest one, for its group.
///
/// Changes of the count, of policies, services, constraints, affinities, spreads, kill timeouts, run time limits and
/// log sizes are applied in place (docs/reference/http-api.md, section 5.6). Every other change needs a new
/// allocation.
pub fn update(old: Option<&Job>, new: &Job, group: &TaskGroup) -> Update {
    let Some(old) = old else { return Update::Destructive };
    if old.create_index == new.create_index
        && old.version == new.version
        && old.job_modify_index == new.job_modify_index
    {
        return Update::None;
    }
    let Some(before) = old.group(&group.name) else { return Update::Destructive };
    let same = old.meta == new.meta && old.kind == new.kind && essence(before) == essence(group);
    if same { Update::InPlace } else { Update::Destructive }
}

/// Returns the group without the fields that can change in place.
fn essence(group: &TaskGroup) -> TaskGroup {
    TaskGroup {
        count: 0,
        update: None,
        migrate: None,
        constraints: Vec::new(),
        scaling: None,
        restart_policy: None,
        disconnect: None,
        max_run_duration: None,
        reschedule_policy: None,
        affinities: Vec::new(),
        spreads: Vec::new(),
        services: Vec::new(),
        stop_after_client_disconnect: None,
        max_client_disconnect: None,
        prevent_reschedule_on_lost: false,
        tasks: group.tasks.iter().map(task_essence).collect(),
        ..group.clone()
    }
}

fn task_essence(task: &Task) -> Task {
    Task {
        services: Vec::new(),
        constraints: Vec::new(),
        affinities: Vec::new(),
        restart_policy: None,
        kill_timeout: Default::default(),
        scaling_policies: Vec::new(),
        log_config: LogConfig { disabled: task.log_config.disabled, ..LogConfig::default() },
        ..task.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::Nanos;
    use caravan_types::job::Constraint;

    fn job(version: u64) -> Job {
        let task = Task { name: "t".into(), driver: "raw_exec".into(), ..Task::default() };
        let group = TaskGroup { name: "g".into(), count: 1, tasks: vec![task], ..TaskGroup::default() };
        Job { version, job_modify_index: version, task_groups: vec![group], ..Job::default() }
    }

    fn after(change: impl FnOnce(&mut Job)) -> Update {
        let old = job(0);
        let mut new = job(1);
        change(&mut new);
        update(Some(&old), &new, &new.task_groups[0])
    }

    #[test]
    fn what_changes_in_place_and_what_does_not() {
        assert_eq!(update(Some(&job(0)), &job(0), &job(0).task_groups[0]), Update::None);
        assert_eq!(after(|_| ()), Update::InPlace);
        assert_eq!(after(|j| j.task_groups[0].count = 5), Update::InPlace);
        assert_eq!(after(|j| j.task_groups[0].constraints.push(Constraint::default())), Update::InPlace);
        assert_eq!(after(|j| j.task_groups[0].tasks[0].kill_timeout = Nanos(1)), Update::InPlace);
        assert_eq!(after(|j| j.task_groups[0].max_run_duration = Some(Nanos(1))), Update::InPlace);
        assert_eq!(after(|j| j.task_groups[0].tasks[0].log_config.max_files = 1), Update::InPlace);
        assert_eq!(after(|j| j.task_groups[0].tasks[0].log_config.disabled = true), Update::Destructive);
        assert_eq!(after(|j| j.task_groups[0].tasks[0].driver = "exec".into()), Update::Destructive);
        assert_eq!(after(|j| j.task_groups[0].tasks[0].resources.cpu = 7), Update::Destructive);
        assert_eq!(after(|j| drop(j.meta.insert("k".into(), "v".into()))), Update::Destructive);
        assert_eq!(update(None, &job(1), &job(1).task_groups[0]), Update::Destructive);
    }
}
