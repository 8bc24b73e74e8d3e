//! The latest results of an allocation's checks.

use super::desired::DesiredCheck;
use crate::clock;
use caravan_types::UnixNanos;
use caravan_types::service::{CheckResult, CheckStatus};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use tokio::sync::watch;

/// Counts of the checks on which the health of a deployment depends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChecksSummary {
    /// The number of passing checks.
    pub passing: usize,
    /// The number of critical checks.
    pub failing: usize,
    /// The number of checks without a result yet.
    pub pending: usize,
    /// The time of the last change of these counts.
    pub since: UnixNanos,
}

impl ChecksSummary {
    /// Returns whether no check is pending or critical.
    pub fn all_passing(self) -> bool {
        self.failing == 0 && self.pending == 0
    }
}

/// The results of an allocation's checks, by check id.
#[derive(Debug)]
pub(crate) struct CheckBook {
    results: Mutex<BTreeMap<String, CheckResult>>,
    summary: watch::Sender<ChecksSummary>,
}

impl Default for CheckBook {
    fn default() -> Self {
        Self { results: Mutex::default(), summary: watch::Sender::new(ChecksSummary::default()) }
    }
}

impl CheckBook {
    /// Stores a result.
    pub(crate) fn put(&self, result: CheckResult) {
        let mut results = self.lock();
        results.insert(result.id.clone(), result);
        self.reported(&results);
    }

    /// Adds a check that has not run yet.
    pub(crate) fn begin(
        &self,
        id: &str,
        alloc: &str,
        check: &DesiredCheck,
        status: CheckStatus,
        now_secs: i64,
    ) {
        self.put(CheckResult {
            id: id.to_owned(),
            mode: check.mode().to_owned(),
            status,
            output: "nomad: waiting to run".to_owned(),
            timestamp: now_secs,
            group: alloc.to_owned(),
            task: check.task.clone().unwrap_or_default(),
            service: check.service.clone(),
            check: check.name.clone(),
            ..CheckResult::default()
        });
    }

    /// Removes the results of all other checks.
    pub(crate) fn keep_only<'a>(&self, ids: impl Iterator<Item = &'a String>) {
        let ids: std::collections::BTreeSet<&String> = ids.collect();
        let mut results = self.lock();
        let before = results.len();
        results.retain(|id, _| ids.contains(id));
        if results.len() != before {
            self.reported(&results);
        }
    }

    /// Returns all results.
    pub(crate) fn all(&self) -> BTreeMap<String, CheckResult> {
        self.lock().clone()
    }

    /// Returns a receiver of the counts of the checks on which a deployment depends.
    pub(crate) fn watch(&self) -> watch::Receiver<ChecksSummary> {
        self.summary.subscribe()
    }

    fn reported(&self, results: &BTreeMap<String, CheckResult>) {
        let mut summary = ChecksSummary::default();
        for result in results.values().filter(|result| result.mode == "healthiness") {
            match result.status {
                CheckStatus::Success => summary.passing += 1,
                CheckStatus::Failure => summary.failing += 1,
                CheckStatus::Pending => summary.pending += 1,
            }
        }
        self.summary.send_if_modified(|known| {
            summary.since = known.since;
            if *known == summary {
                return false;
            }
            *known = ChecksSummary { since: clock::now(), ..summary };
            true
        });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, CheckResult>> {
        self.results.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_is_no_concern_of_deployments() {
        let book = CheckBook::default();
        let result = |id: &str, mode: &str, status| CheckResult {
            id: id.into(),
            mode: mode.into(),
            status,
            ..Default::default()
        };
        book.put(result("a", "healthiness", CheckStatus::Pending));
        book.put(result("b", "readiness", CheckStatus::Failure));
        assert!(!book.watch().borrow().all_passing());
        book.put(result("a", "healthiness", CheckStatus::Success));
        assert_eq!((book.watch().borrow().passing, book.watch().borrow().failing), (1, 0));
        assert!(book.watch().borrow().all_passing());
        book.keep_only(["b".to_owned()].iter());
        assert_eq!(book.all().len(), 1);
    }
}
