//! Health of an allocation: the servers wait for it before they update the next allocation (`update` blocks) or migrate
//! the next one (`migrate` blocks). [`judge`] decides; [`Health`] records the start time and the deployment.

use super::lifecycle::Role;
use caravan_types::alloc::{AllocDeploymentStatus, Allocation, TaskRunState, TaskState};
use caravan_types::job::JobType;
use caravan_types::{DeploymentId, Nanos, UnixNanos};

/// The conditions of a healthy allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// The time in which the allocation must be healthy without a break.
    pub(crate) well_for: Nanos,
    /// The deadline, counted from the start time.
    pub(crate) within: Nanos,
    /// Whether the checks of the allocation's services count.
    pub(crate) checks: bool,
}

/// The combined state of the checks of an allocation's services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checks {
    /// No check counts.
    None,
    /// Some check does not pass.
    Open,
    /// All checks pass since this time.
    Passing(UnixNanos),
}

impl Rule {
    /// Returns the rule of an allocation; `None` if no deployment or migration waits for it, or users report health
    /// manually.
    pub(crate) fn from_alloc(alloc: &Allocation) -> Option<Self> {
        let job = alloc.job.as_ref()?;
        let group = job.group(&alloc.task_group)?;
        let (mode, well_for, within) = match job.kind {
            JobType::Batch | JobType::Sysbatch => return None,
            _ if !alloc.deployment_id.is_empty() => {
                let update = group.update.as_ref()?;
                (&update.health_check, update.min_healthy_time, update.healthy_deadline)
            }
            JobType::System => return None,
            JobType::Service => {
                let migrate = group.migrate.as_ref()?;
                (&migrate.health_check, migrate.min_healthy_time, migrate.healthy_deadline)
            }
        };
        (mode != "manual").then_some(Self { well_for, within, checks: mode != "task_states" })
    }
}

/// The current judgement about an allocation's health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The allocation is healthy.
    Well,
    /// The allocation is unhealthy for good: the responsible task, if there is one, and the reason.
    Unwell(Option<String>, String),
    /// The health stays unknown until this time, if nothing changes.
    Wait(Option<UnixNanos>),
}

/// Judges by the task states. `since` is the time from which deadlines count.
pub(crate) fn judge<'a>(
    rule: Rule,
    tasks: impl Iterator<Item = (&'a str, Role, &'a TaskState)>,
    since: UnixNanos,
    now: UnixNanos,
) -> Judgement {
    let (mut up, mut newest, mut waits_for) = (true, since, None);
    for (name, role, task) in tasks.filter(|(_, role, _)| *role != Role::Poststop) {
        if task.failed {
            return Judgement::Unwell(Some(name.to_owned()), "Unhealthy because of failed task".to_owned());
        }
        let fine = match (task.state, role.runs_once()) {
            (TaskRunState::Running, false) => true,
            (TaskRunState::Dead, true) => true,
            // A running one-shot poststart task does not block health; a running one-shot prestart task does.
            (TaskRunState::Running, true) => !matches!(role, Role::Prestart { .. }),
            (TaskRunState::Dead, false) => {
                return Judgement::Unwell(Some(name.to_owned()), "the task ended".to_owned());
            }
            (TaskRunState::Pending, _) => false,
        };
        if !fine {
            up = false;
            waits_for = Some(name.to_owned());
        }
        let began = task.started_at.0.max(task.last_restart.0);
        if task.state == TaskRunState::Running && !role.runs_once() {
            newest = newest.max(UnixNanos(began));
        }
    }
    let well_at = newest.plus(rule.well_for);
    if up && well_at <= now {
        return Judgement::Well;
    }
    let end = since.plus(rule.within);
    if end <= now {
        let why = match up {
            true => format!("not running for {} within {}", rule.well_for, rule.within),
            false => format!("not running within {}", rule.within),
        };
        return Judgement::Unwell(waits_for, why);
    }
    Judgement::Wait(Some(if up { well_at.min(end) } else { end }))
}

/// Combines the judgement of tasks with the state of their checks.
fn with_checks(rule: Rule, tasks: Judgement, checks: Checks, since: UnixNanos, now: UnixNanos) -> Judgement {
    let end = since.plus(rule.within);
    let late = || Judgement::Unwell(None, "Services not healthy by deadline".to_owned());
    match (tasks, checks) {
        (Judgement::Well, Checks::Open) if rule.checks && end <= now => late(),
        (Judgement::Well, Checks::Open) if rule.checks => Judgement::Wait(Some(end)),
        (Judgement::Well, Checks::Passing(began)) if rule.checks && began.plus(rule.well_for) > now => {
            if end <= now { late() } else { Judgement::Wait(Some(began.plus(rule.well_for).min(end))) }
        }
        (tasks, _) => tasks,
    }
}

/// The health of one allocation.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    deployment: DeploymentId,
    rule: Option<Rule>,
    since: UnixNanos,
    known: Option<AllocDeploymentStatus>,
}

impl Health {
    /// Creates the health of an allocation as the servers sent it.
    pub(crate) fn new(alloc: &Allocation, now: UnixNanos) -> Self {
        Self {
            deployment: alloc.deployment_id.clone(),
            rule: Rule::from_alloc(alloc),
            since: now,
            known: alloc.deployment_status.clone().filter(|status| status.healthy.is_some()),
        }
    }

    /// Handles a new version of the allocation: with another deployment, the judgement starts again.
    pub(crate) fn receive(&mut self, alloc: &Allocation, now: UnixNanos) {
        if alloc.deployment_id != self.deployment {
            *self = Self::new(alloc, now);
        }
    }

    /// Returns the status to report; `None` while the health is unknown.
    pub(crate) fn report(&self) -> (DeploymentId, Option<AllocDeploymentStatus>) {
        (self.deployment.clone(), self.known.clone())
    }

    /// Judges the tasks, unless the health is known. Returns the time of the next judgement, and the responsible task
    /// with the reason once the allocation is unhealthy.
    pub(crate) fn look<'a>(
        &mut self,
        tasks: impl Iterator<Item = (&'a str, Role, &'a TaskState)>,
        checks: Checks,
        now: UnixNanos,
    ) -> (Option<UnixNanos>, Option<(Option<String>, String)>) {
        let (Some(rule), None) = (self.rule, &self.known) else { return (None, None) };
        let mut say = |healthy: bool| {
            self.known = Some(AllocDeploymentStatus {
                healthy: Some(healthy),
                timestamp: now.to_time(),
                ..AllocDeploymentStatus::default()
            });
        };
        let judged = judge(rule, tasks, self.since, now);
        match with_checks(rule, judged, checks, self.since, now) {
            Judgement::Well => {
                say(true);
                (None, None)
            }
            Judgement::Unwell(task, why) => {
                say(false);
                (None, Some((task, why)))
            }
            Judgement::Wait(again) => (again, None),
        }
    }
}

/// The result of judging an allocation's health.
#[derive(Clone, Debug, Default)]
pub(super) struct Judged {
    /// The time of the next judgement.
    pub(super) again: Option<UnixNanos>,
    /// Whether the health became known.
    pub(super) news: bool,
    /// The responsible task, if there is one, and the reason; `None` unless the allocation became unhealthy.
    pub(super) blame: Option<(Option<String>, String)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::Time;

    const RULE: Rule = Rule { well_for: Nanos(10), within: Nanos(100), checks: true };

    fn state(state: TaskRunState, began: i64) -> TaskState {
        TaskState { state, started_at: Time(began), ..TaskState::default() }
    }

    fn at(tasks: &[(Role, TaskState)], now: i64) -> Judgement {
        let tasks = tasks.iter().map(|(role, state)| ("t", *role, state));
        judge(RULE, tasks, UnixNanos(1000), UnixNanos(now))
    }

    #[test]
    fn checks_must_pass_for_as_long_as_tasks_must_run() {
        let look = |checks, now| with_checks(RULE, Judgement::Well, checks, UnixNanos(1000), UnixNanos(now));
        assert_eq!(look(Checks::None, 1030), Judgement::Well);
        assert_eq!(look(Checks::Open, 1030), Judgement::Wait(Some(UnixNanos(1100))));
        assert!(matches!(look(Checks::Open, 1100), Judgement::Unwell(None, _)));
        assert_eq!(look(Checks::Passing(UnixNanos(1025)), 1030), Judgement::Wait(Some(UnixNanos(1035))));
        assert_eq!(look(Checks::Passing(UnixNanos(1020)), 1030), Judgement::Well);
        let free = Rule { checks: false, ..RULE };
        let judged = with_checks(free, Judgement::Well, Checks::Open, UnixNanos(1000), UnixNanos(1030));
        assert_eq!(judged, Judgement::Well);
    }

    #[test]
    fn running_long_enough_is_well_and_a_restart_begins_anew() {
        let mut task = state(TaskRunState::Running, 1020);
        assert_eq!(at(&[(Role::Main, task.clone())], 1025), Judgement::Wait(Some(UnixNanos(1030))));
        assert_eq!(at(&[(Role::Main, task.clone())], 1030), Judgement::Well);
        task.last_restart = Time(1028);
        assert_eq!(at(&[(Role::Main, task)], 1030), Judgement::Wait(Some(UnixNanos(1038))));
    }

    #[test]
    fn what_does_not_get_there_in_time_is_unwell() {
        let pending = state(TaskRunState::Pending, 0);
        assert_eq!(at(&[(Role::Main, pending.clone())], 1050), Judgement::Wait(Some(UnixNanos(1100))));
        assert!(matches!(at(&[(Role::Main, pending)], 1100), Judgement::Unwell(Some(_), _)));
        let late = state(TaskRunState::Running, 1095);
        assert!(matches!(at(&[(Role::Main, late)], 1100), Judgement::Unwell(None, _)));
    }

    #[test]
    fn tasks_that_run_once_must_have_run_and_the_last_one_does_not_matter() {
        let up = (Role::Main, state(TaskRunState::Running, 1000));
        let before = Role::Prestart { sidecar: false };
        let waiting = (Role::Poststop, state(TaskRunState::Pending, 0));
        assert_eq!(
            at(&[up.clone(), (before, state(TaskRunState::Dead, 1000)), waiting], 1050),
            Judgement::Well
        );
        assert!(matches!(
            at(&[up.clone(), (before, state(TaskRunState::Running, 1000))], 1050),
            Judgement::Wait(_)
        ));
        assert!(matches!(at(&[(Role::Main, state(TaskRunState::Dead, 1000))], 1050), Judgement::Unwell(..)));
        let broken = TaskState { failed: true, ..state(TaskRunState::Dead, 1000) };
        assert!(matches!(at(&[up, (before, broken)], 1050), Judgement::Unwell(..)));
    }
}
