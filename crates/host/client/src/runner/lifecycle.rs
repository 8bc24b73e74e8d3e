//! Lifecycle rules: the conditions for the start of a task, and the tasks that end with another one
//! (docs/reference/jobspec.md, sections 4.11 and 9.4).

use caravan_types::alloc::TaskRunState;
use caravan_types::job::Task;
use std::collections::BTreeMap;

/// The role of a task in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A task without a `lifecycle` block.
    Main,
    /// A task that runs before the main tasks; a sidecar continues together with them.
    Prestart {
        /// Whether the task runs together with the main tasks.
        sidecar: bool,
    },
    /// A task that starts after the main tasks started.
    Poststart {
        /// Whether the task runs together with the main tasks.
        sidecar: bool,
    },
    /// A task that runs after the main tasks ended.
    Poststop,
}

impl Role {
    /// Returns the role of a task.
    pub(crate) fn from_task(task: &Task) -> Self {
        match &task.lifecycle {
            None => Self::Main,
            Some(block) => match block.hook.as_str() {
                "prestart" => Self::Prestart { sidecar: block.sidecar },
                "poststart" => Self::Poststart { sidecar: block.sidecar },
                _ => Self::Poststop,
            },
        }
    }
    /// Returns whether a task with this role runs to completion once, for every type of job.
    pub(crate) fn runs_once(self) -> bool {
        matches!(
            self,
            Self::Prestart { sidecar: false } | Self::Poststart { sidecar: false } | Self::Poststop
        )
    }
}

/// The properties of a task that affect its siblings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sibling {
    /// The task's role.
    pub(crate) role: Role,
    /// Whether the task's end stops the other tasks.
    pub(crate) leader: bool,
    /// The current run state of the task.
    pub(crate) state: TaskRunState,
    /// Whether the task ended with a failure.
    pub(crate) failed: bool,
    /// Whether the task ran at least once.
    pub(crate) started: bool,
}

/// Siblings by task name.
pub(crate) type Group = BTreeMap<String, Sibling>;

/// Returns whether a task may start now. `stopping` is whether the allocation is being stopped.
pub(crate) fn may_start(group: &Group, name: &str, stopping: bool) -> bool {
    let Some(task) = group.get(name) else { return false };
    let mut others = group.values();
    match task.role {
        Role::Prestart { .. } => !stopping,
        Role::Main => {
            !stopping
                && others.all(|t| match t.role {
                    Role::Prestart { sidecar: false } => t.state == TaskRunState::Dead && !t.failed,
                    Role::Prestart { sidecar: true } => t.state == TaskRunState::Running,
                    _ => true,
                })
        }
        Role::Poststart { .. } => {
            !stopping && others.all(|t| t.role != Role::Main || (t.started && !t.failed))
        }
        Role::Poststop => mains_dead(group),
    }
}

/// The reason that a task must stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// This sibling failed.
    SiblingFailed(String),
    /// The leader task is dead.
    LeaderDead,
    /// All main tasks are dead; only sidecars still run.
    MainTasksDead,
}

/// Returns the tasks that must stop after `dead` ended, with the reasons. Poststop tasks are not stopped.
pub(crate) fn ends_with(group: &Group, dead: &str) -> Vec<(String, EndReason)> {
    let Some(task) = group.get(dead) else { return Vec::new() };
    let live = |name: &String, other: &Sibling| {
        name != dead && other.state != TaskRunState::Dead && other.role != Role::Poststop
    };
    let pick = |reason: EndReason, only_helpers: bool| {
        group
            .iter()
            .filter(|(name, other)| live(name, other) && (!only_helpers || other.role != Role::Main))
            .map(|(name, _)| (name.clone(), reason.clone()))
            .collect::<Vec<_>>()
    };
    if task.role == Role::Poststop {
        return Vec::new();
    }
    if task.failed {
        return pick(EndReason::SiblingFailed(dead.to_owned()), false);
    }
    if task.leader {
        return pick(EndReason::LeaderDead, false);
    }
    if task.role == Role::Main && mains_dead(group) {
        // Without a main task, a poststart task that never started has no task to follow.
        return pick(EndReason::MainTasksDead, true);
    }
    Vec::new()
}

fn mains_dead(group: &Group) -> bool {
    group.values().all(|t| t.role != Role::Main || t.state == TaskRunState::Dead)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sibling(role: Role) -> Sibling {
        Sibling { role, leader: false, state: TaskRunState::Pending, failed: false, started: false }
    }

    fn group() -> Group {
        Group::from([
            ("init".to_owned(), sibling(Role::Prestart { sidecar: false })),
            ("proxy".to_owned(), sibling(Role::Prestart { sidecar: true })),
            ("web".to_owned(), sibling(Role::Main)),
            ("after".to_owned(), sibling(Role::Poststart { sidecar: false })),
            ("clean".to_owned(), sibling(Role::Poststop)),
        ])
    }

    fn startable(group: &Group, stopping: bool) -> Vec<&str> {
        group.keys().filter(|name| may_start(group, name, stopping)).map(String::as_str).collect()
    }

    fn set(group: &mut Group, name: &str, state: TaskRunState, failed: bool) {
        let task = group.get_mut(name).unwrap();
        task.state = state;
        task.failed = failed;
        task.started |= state != TaskRunState::Pending;
    }

    #[test]
    fn the_order_of_life() {
        let mut g = group();
        assert_eq!(startable(&g, false), ["init", "proxy"]);
        set(&mut g, "proxy", TaskRunState::Running, false);
        assert!(!may_start(&g, "web", false));
        set(&mut g, "init", TaskRunState::Dead, false);
        assert!(may_start(&g, "web", false) && !may_start(&g, "after", false));
        set(&mut g, "web", TaskRunState::Running, false);
        assert!(may_start(&g, "after", false) && !may_start(&g, "clean", false));
        set(&mut g, "web", TaskRunState::Dead, false);
        assert!(may_start(&g, "clean", false));
        set(&mut g, "after", TaskRunState::Dead, false);
        assert_eq!(ends_with(&g, "web"), [("proxy".to_owned(), EndReason::MainTasksDead)]);
    }

    #[test]
    fn a_failed_prestart_keeps_the_mains_from_starting() {
        let mut g = group();
        set(&mut g, "proxy", TaskRunState::Running, false);
        set(&mut g, "init", TaskRunState::Dead, true);
        assert!(!may_start(&g, "web", false));
        let names: Vec<_> = ends_with(&g, "init").into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["after", "proxy", "web"]);
    }

    #[test]
    fn a_dead_leader_takes_the_others_along_but_not_the_cleaner() {
        let mut g = group();
        g.get_mut("web").unwrap().leader = true;
        set(&mut g, "web", TaskRunState::Dead, false);
        let ends = ends_with(&g, "web");
        assert!(ends.iter().all(|(name, why)| name != "clean" && *why == EndReason::LeaderDead));
    }

    #[test]
    fn a_stop_starts_nothing_but_the_cleaner() {
        let mut g = group();
        assert!(startable(&g, true).is_empty());
        set(&mut g, "web", TaskRunState::Dead, false);
        assert_eq!(startable(&g, true), ["clean"]);
    }
}
