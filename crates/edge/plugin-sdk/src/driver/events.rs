//! Events of tasks, which agents show to users.

use super::convert::time;
use crate::log::now;
use caravan_proto::plugins::driver::DriverTaskEvent;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::broadcast;

/// The number of events that wait for a slow reader. Of more events, the oldest ones are lost.
const BACKLOG: usize = 256;

/// An event of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEvent {
    /// The id of the task.
    pub task_id: String,
    /// The name of the task.
    pub task_name: String,
    /// The id of the allocation.
    pub alloc_id: String,
    /// The text of the event, shown to users.
    pub message: String,
    /// Further facts.
    pub annotations: BTreeMap<String, String>,
}

/// A sender of events. All clones send to the same agent.
#[derive(Clone, Debug)]
pub struct Events {
    sender: broadcast::Sender<DriverTaskEvent>,
    /// The receiver that keeps the events before the agent's first call.
    early: Arc<Mutex<Option<broadcast::Receiver<DriverTaskEvent>>>>,
}

impl Events {
    pub(crate) fn new() -> Self {
        let (sender, early) = broadcast::channel(BACKLOG);
        Self { sender, early: Arc::new(Mutex::new(Some(early))) }
    }

    /// Sends an event, with the present time.
    pub fn send(&self, event: TaskEvent) {
        let message = DriverTaskEvent {
            task_id: event.task_id,
            alloc_id: event.alloc_id,
            task_name: event.task_name,
            timestamp: Some(time(Some(now()))),
            message: event.message,
            annotations: event.annotations,
        };
        // Without a reader, the event is lost.
        let _readers = self.sender.send(message);
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<DriverTaskEvent> {
        let early = self.early.lock().unwrap_or_else(PoisonError::into_inner).take();
        early.unwrap_or_else(|| self.sender.subscribe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_before_the_first_reader_are_kept() {
        let events = Events::new();
        let event = TaskEvent {
            task_id: "id".into(),
            task_name: "web".into(),
            alloc_id: "alloc".into(),
            message: "started".into(),
            annotations: BTreeMap::new(),
        };
        events.send(event.clone());
        let mut first = events.subscribe();
        assert_eq!(first.try_recv().unwrap().message, "started");
        let mut second = events.subscribe();
        assert!(second.try_recv().is_err());
        events.send(event);
        assert!(first.try_recv().is_ok() && second.try_recv().is_ok());
    }
}
