//! Reports the progress of new allocations until they run.

use super::eval::changed;
use crate::format::{Clock, id};
use caravan_types::alloc::{AllocListStub, ClientStatus, DesiredStatus};
use caravan_types::id::AllocId;
use std::collections::BTreeMap;

/// A monitor that keeps the reported state of each allocation and reports only changes.
#[derive(Debug)]
pub(crate) struct Follow {
    verbose: bool,
    printed: BTreeMap<AllocId, (ClientStatus, String)>,
}

impl Follow {
    /// Continues from the allocations that were reported already.
    pub(crate) fn new(verbose: bool, statuses: BTreeMap<AllocId, ClientStatus>) -> Self {
        let printed = statuses.into_iter().map(|(id, status)| (id, (status, String::new()))).collect();
        Self { verbose, printed }
    }

    /// Returns lines about changes of status, and about the latest event of each pending allocation.
    pub(crate) fn update(&mut self, clock: &Clock, allocs: &[AllocListStub]) -> Vec<String> {
        let mut out = Vec::new();
        for alloc in allocs.iter().filter(|a| a.desired_status == DesiredStatus::Run) {
            let news =
                if alloc.client_status == ClientStatus::Pending { latest(alloc) } else { String::new() };
            let now = (alloc.client_status, news.clone());
            let before = self.printed.insert(alloc.id.clone(), now);
            let (status, statuses) = before.unwrap_or_default();
            if status != alloc.client_status {
                out.push(format!("    {}: {}", clock.stamp(), changed(alloc, status, self.verbose)));
            } else if !news.is_empty() && statuses != news {
                let name = id(alloc.id.as_str(), self.verbose);
                out.push(format!("    {}: Allocation \"{name}\" is pending: {news}", clock.stamp()));
            }
        }
        out
    }

    /// Returns the exit status once no allocation is pending: 1 if one failed.
    pub(crate) fn ended(&self, allocs: &[AllocListStub]) -> Option<u8> {
        let is_requested = || allocs.iter().filter(|a| a.desired_status == DesiredStatus::Run);
        if is_requested().any(|a| a.client_status == ClientStatus::Pending) {
            return None;
        }
        let bad = |a: &AllocListStub| matches!(a.client_status, ClientStatus::Failed | ClientStatus::Lost);
        Some(u8::from(is_requested().any(bad)))
    }
}

/// Returns the newest event of any task, or the allocation's client description.
fn latest(alloc: &AllocListStub) -> String {
    let newest = alloc.task_states.values().flat_map(|state| &state.events).max_by_key(|event| event.time);
    match newest {
        Some(event) if !event.display_message.is_empty() => event.display_message.clone(),
        Some(event) => event.display(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::clock;
    use caravan_types::alloc::{TaskEvent, TaskState, event};
    use caravan_types::time::UnixNanos;

    fn alloc(status: ClientStatus, message: &str) -> AllocListStub {
        let mut state = TaskState::default();
        if !message.is_empty() {
            state.push_event(TaskEvent::new(event::HOOK_MESSAGE, UnixNanos(1)).message(message));
        }
        AllocListStub {
            id: "59017f05-ce1f".into(),
            client_status: status,
            client_description: "Tasks are running".into(),
            task_states: [("t".into(), state)].into(),
            ..Default::default()
        }
    }

    #[test]
    fn a_pending_allocation_says_what_it_waits_for_once() {
        let clock = clock("2026-11-21T09:22:20Z");
        let mut follow = Follow::new(false, BTreeMap::new());
        let pending = [alloc(ClientStatus::Pending, "volume data: attaching")];
        assert_eq!(
            follow.update(&clock, &pending),
            ["    2026-11-21T09:22:20Z: Allocation \"59017f05\" is pending: volume data: attaching"]
        );
        assert!(follow.update(&clock, &pending).is_empty());
        assert_eq!(follow.ended(&pending), None);
        let running = [alloc(ClientStatus::Running, "")];
        assert_eq!(
            follow.update(&clock, &running),
            [
                "    2026-11-21T09:22:20Z: Allocation \"59017f05\" status changed: \"pending\" -> \"running\" (Tasks are running)"
            ]
        );
        assert_eq!(follow.ended(&running), Some(0));
    }

    #[test]
    fn a_failed_allocation_is_an_error_and_a_stopped_one_is_not_waited_for() {
        let follow = Follow::new(false, BTreeMap::new());
        assert_eq!(follow.ended(&[alloc(ClientStatus::Failed, "")]), Some(1));
        let mut stopped = alloc(ClientStatus::Pending, "");
        stopped.desired_status = DesiredStatus::Stop;
        assert_eq!(follow.ended(&[stopped]), Some(0));
        assert_eq!(follow.ended(&[]), Some(0));
    }
}
