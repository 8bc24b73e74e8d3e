//! The status of an allocation, derived from the states of its tasks (docs/reference/http-api.md, section 6.1).

use caravan_types::alloc::{ClientStatus, TaskRunState, TaskState};
use caravan_types::small::Map;

/// Returns the status that the client reports, with its description.
pub(crate) fn aggregate(tasks: &Map<String, TaskState>) -> (ClientStatus, &'static str) {
    let any = |want: fn(&TaskState) -> bool| tasks.values().any(want);
    if any(|t| t.state == TaskRunState::Dead && t.failed) {
        return (ClientStatus::Failed, "Failed tasks");
    }
    if any(|t| t.state == TaskRunState::Running) {
        return (ClientStatus::Running, "Tasks are running");
    }
    // Between the end of the main tasks and the start of poststop tasks no task runs, but the allocation is not
    // pending.
    if any(|t| t.state == TaskRunState::Pending) {
        let begun = any(|t| !t.started_at.is_zero());
        return match begun {
            true => (ClientStatus::Running, "Tasks are running"),
            false => (ClientStatus::Pending, "No tasks have started"),
        };
    }
    if tasks.is_empty() {
        return (ClientStatus::Pending, "No tasks have started");
    }
    (ClientStatus::Complete, "All tasks have completed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::Time;

    fn task(state: TaskRunState, failed: bool, begun: bool) -> TaskState {
        TaskState { state, failed, started_at: Time(i64::from(begun)), ..Default::default() }
    }

    fn derive(states: &[TaskState]) -> ClientStatus {
        let map = states.iter().enumerate().map(|(n, s)| (n.to_string(), s.clone())).collect();
        aggregate(&map).0
    }

    #[test]
    fn one_failure_fails_the_whole() {
        let failed = task(TaskRunState::Dead, true, true);
        let running = task(TaskRunState::Running, false, true);
        assert_eq!(derive(&[running.clone(), failed]), ClientStatus::Failed);
        assert_eq!(derive(&[running, task(TaskRunState::Pending, false, false)]), ClientStatus::Running);
    }

    #[test]
    fn complete_needs_every_task_dead() {
        let done = task(TaskRunState::Dead, false, true);
        assert_eq!(derive(&[done.clone(), done.clone()]), ClientStatus::Complete);
        assert_eq!(derive(&[done, task(TaskRunState::Pending, false, false)]), ClientStatus::Running);
        assert_eq!(derive(&[task(TaskRunState::Pending, false, false)]), ClientStatus::Pending);
        assert_eq!(derive(&[]), ClientStatus::Pending);
    }
}
