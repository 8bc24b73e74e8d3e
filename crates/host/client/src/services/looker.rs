//! The periodic runs of one check, and the decisions whether it passes, fails, or restarts its task.

use super::desired::DesiredCheck;
use super::probe::{self, Seen};
use crate::clock;
use crate::runner::{AllocState, Planner};
use caravan_types::service::{CheckRestartSpec, CheckResult, CheckSpec, CheckStatus};
use std::sync::Arc;
use std::time::Duration;

/// The longest output in bytes; longer output is cut.
const MAX_OUTPUT: usize = 3 * 1024;

/// The status that follows from a series of results. Pure.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Judge {
    status: CheckStatus,
    successes: i64,
    failures: i64,
    before_passing: i64,
    before_critical: i64,
}

impl Judge {
    fn new(spec: &CheckSpec) -> Self {
        let status = match spec.initial_status.as_str() {
            "passing" => CheckStatus::Success,
            "critical" => CheckStatus::Failure,
            _ => CheckStatus::Pending,
        };
        Self {
            status,
            successes: 0,
            failures: 0,
            before_passing: spec.success_before_passing.max(1),
            before_critical: spec.failures_before_critical.max(0) + 1,
        }
    }

    /// Adds a result and returns the status.
    fn see(&mut self, success: bool) -> CheckStatus {
        if success {
            self.failures = 0;
            self.successes += 1;
            if self.successes >= self.before_passing {
                self.status = CheckStatus::Success;
            }
        } else {
            self.successes = 0;
            self.failures += 1;
            if self.failures >= self.before_critical {
                self.status = CheckStatus::Failure;
            }
        }
        self.status
    }
}

/// The decision when failures restart the task. Pure.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Patience {
    limit: i64,
    grace: Duration,
    failures: i64,
}

impl Patience {
    fn new(spec: &CheckRestartSpec) -> Option<Self> {
        (spec.limit > 0).then(|| Self { limit: spec.limit, grace: spec.grace.to_std(), failures: 0 })
    }

    /// Returns whether the task must be restarted. `age` is the time that the task has run.
    fn lost(&mut self, success: bool, age: Duration) -> bool {
        if success || age < self.grace {
            self.failures = 0;
            return false;
        }
        self.failures += 1;
        if self.failures < self.limit {
            return false;
        }
        self.failures = 0;
        true
    }
}

/// Runs the check periodically while the returned future is polled.
pub(crate) async fn look_after(alloc: AllocState, planner: Arc<Planner>, id: String, check: DesiredCheck) {
    let mut judge = Judge::new(&check.spec);
    let mut patience = check.spec.check_restart.as_ref().and_then(Patience::new);
    let name = alloc.alloc().name.clone();
    let book = &alloc.services().book;
    book.begin(&id, &name, &check, judge.status, clock::now().as_secs());
    let interval = check.spec.interval.to_std().max(Duration::from_millis(100));
    let timeout = check.spec.timeout.to_std().max(Duration::from_millis(100));
    loop {
        let started = tokio::time::Instant::now();
        let seen = match tokio::time::timeout(timeout, probe::look(&alloc, &planner, &check)).await {
            Ok(seen) => seen,
            Err(_) => Seen::failed(format!("no answer within {}", check.spec.timeout)),
        };
        let status = judge.see(seen.success);
        book.put(CheckResult {
            id: id.clone(),
            mode: check.mode().to_owned(),
            status,
            status_code: seen.status_code,
            output: cut(seen.output),
            timestamp: clock::now().as_secs(),
            group: name.clone(),
            task: check.task.clone().unwrap_or_default(),
            service: check.service.clone(),
            check: check.name.clone(),
        });
        if let Some(patience) = &mut patience
            && patience.lost(seen.success, alloc.age_of(check.acts_on.as_deref()))
        {
            let reason = format!("healthcheck: check \"{}\" unhealthy", check.name);
            alloc.restart_unhealthy(check.acts_on.as_deref(), &reason);
        }
        tokio::time::sleep_until(started + interval).await;
    }
}

fn cut(mut output: String) -> String {
    if output.len() > MAX_OUTPUT {
        let mut end = MAX_OUTPUT;
        while !output.is_char_boundary(end) {
            end -= 1;
        }
        output.truncate(end);
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::Nanos;

    #[test]
    fn a_row_of_looks_decides() {
        let spec = CheckSpec { success_before_passing: 2, failures_before_critical: 1, ..Default::default() };
        let mut judge = Judge::new(&spec);
        let reported: Vec<CheckStatus> =
            [true, true, false, true, false, false].into_iter().map(|success| judge.see(success)).collect();
        use CheckStatus::{Failure, Pending, Success};
        assert_eq!(reported, [Pending, Success, Success, Success, Success, Failure]);
        let one = Judge::new(&CheckSpec { initial_status: "passing".into(), ..Default::default() });
        assert_eq!(one.status, Success);
    }

    #[test]
    fn a_task_is_restarted_after_so_many_failures_past_its_grace() {
        let spec = CheckRestartSpec { limit: 2, grace: Nanos::from_secs(10), ignore_warnings: false };
        let mut patience = Patience::new(&spec).unwrap();
        let old = Duration::from_secs(60);
        assert!(!patience.lost(false, Duration::from_secs(5)), "in its grace");
        assert!(!patience.lost(false, old));
        assert!(!patience.lost(true, old), "a success begins anew");
        assert!(!patience.lost(false, old));
        assert!(patience.lost(false, old));
        assert!(!patience.lost(false, old), "counted anew after a restart");
        assert!(Patience::new(&CheckRestartSpec::default()).is_none());
    }

    proptest::proptest! {
        #[test]
        fn output_is_cut_between_characters(output in "\\PC{0,2000}") {
            proptest::prop_assert!(cut(output).len() <= MAX_OUTPUT);
        }
    }
}
