//! Status reports of clients.

use caravan_types::UnixNanos;
use caravan_types::alloc::{
    AllocDeploymentStatus, AllocUpdate, Allocation, ClientStatus, TaskEvent, TaskRunState, TaskState, event,
};

/// Returns the report for an allocation whose tasks all have the same state, with the events of a real client.
pub fn report(alloc: &Allocation, status: ClientStatus) -> AllocUpdate {
    let at = UnixNanos(alloc.create_time.0 + 1_000_000);
    let running = status == ClientStatus::Running;
    let mut state = TaskState {
        state: if running { TaskRunState::Running } else { TaskRunState::Dead },
        started_at: at.to_time(),
        events: vec![
            TaskEvent::new(event::RECEIVED, at),
            TaskEvent::new(event::TASK_SETUP, at).message("Building Task Directory"),
            TaskEvent::new(event::STARTED, at),
        ],
        ..TaskState::default()
    };
    if !running {
        state.finished_at = at.to_time();
        state.push_event(TaskEvent::new(event::KILLED, at));
    }
    let tasks = alloc.group().into_iter().flat_map(|group| &group.tasks);
    let words = if running { "Tasks are running" } else { "All tasks have completed" };
    let healthy =
        AllocDeploymentStatus { healthy: Some(running), timestamp: at.to_time(), ..Default::default() };
    AllocUpdate {
        deployment_id: alloc.deployment_id.clone(),
        deployment_status: (running && !alloc.deployment_id.is_empty()).then_some(healthy),
        alloc_id: alloc.id.clone(),
        client_status: status,
        client_description: words.into(),
        task_states: tasks.map(|task| (task.name.clone(), state.clone())).collect(),
        ..AllocUpdate::default()
    }
}
