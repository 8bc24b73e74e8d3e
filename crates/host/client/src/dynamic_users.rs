//! The users that the client chooses for tasks of drivers with dynamic users: numbers of a range, each used by one task
//! at a time. A task keeps its number over restarts of the task and of the agent, since its files belong to that user.

use caravan_types::AllocId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The users of tasks. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct DynamicUsers {
    range: RangeInclusive<u32>,
    taken: Arc<Mutex<BTreeMap<(AllocId, String), u32>>>,
}

impl DynamicUsers {
    /// Creates the value with the users of the tasks that an earlier agent started.
    pub(crate) fn new(
        range: RangeInclusive<u32>,
        taken: impl IntoIterator<Item = ((AllocId, String), u32)>,
    ) -> Self {
        Self { range, taken: Arc::new(Mutex::new(taken.into_iter().collect())) }
    }

    /// Returns the name by which drivers receive a user.
    pub(crate) fn name(uid: u32) -> String {
        format!("nomad-{uid}")
    }

    /// Chooses a user that no other task has.
    pub(crate) fn assign(&self, alloc: &AllocId, task: &str) -> Result<u32, String> {
        let mut taken = self.taken.lock();
        let key = (alloc.clone(), task.to_owned());
        if let Some(uid) = taken.get(&key) {
            return Ok(*uid);
        }
        let used: BTreeSet<u32> = taken.values().copied().collect();
        let Some(uid) = self.range.clone().find(|uid| !used.contains(uid)) else {
            return Err(format!(
                "all users for tasks ({} to {}) are in use on this node",
                self.range.start(),
                self.range.end()
            ));
        };
        taken.insert(key, uid);
        Ok(uid)
    }

    /// Returns the user that was chosen for a task.
    pub(crate) fn get(&self, alloc: &AllocId, task: &str) -> Option<u32> {
        self.taken.lock().get(&(alloc.clone(), task.to_owned())).copied()
    }

    /// Frees the user of a task that has ended for good.
    pub(crate) fn release(&self, alloc: &AllocId, task: &str) {
        self.taken.lock().remove(&(alloc.clone(), task.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_tasks_have_a_user_at_a_time() {
        let known = (("a0".into(), "web".to_owned()), 80_000);
        let users = DynamicUsers::new(80_000..=80_001, [known]);
        assert_eq!(users.assign(&"a1".into(), "web"), Ok(80_001));
        assert_eq!(users.assign(&"a1".into(), "web"), Ok(80_001), "a restart keeps the user");
        let error = users.assign(&"a2".into(), "web").unwrap_err();
        assert!(error.contains("80000 to 80001"), "{error}");
        users.release(&"a0".into(), "web");
        assert_eq!(users.assign(&"a2".into(), "web"), Ok(80_000));
        assert_eq!(users.get(&"a0".into(), "web"), None);
        assert_eq!(DynamicUsers::name(80_000), "nomad-80000");
    }
}
