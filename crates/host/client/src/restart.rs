//! The decision whether and when an ended task starts again: a pure function of its history and the policy
//! (docs/reference/jobspec.md, section 5, docs/reference/http-api.md, section 5.3 for the texts).

use caravan_types::job::{RestartMode, RestartPolicy};
use caravan_types::{Nanos, UnixNanos};
use serde::{Deserialize, Serialize};

/// The reason that a task needs a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The task ended by itself.
    Exited {
        /// Whether the task ended with code 0 and no signal.
        success: bool,
    },
    /// The task could not be started.
    StartFailed {
        /// Whether a retry may help.
        recoverable: bool,
    },
    /// A health check or a template requests a restart.
    Unhealthy,
    /// A user requests a restart, which is immediate and not counted.
    Requested,
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The task starts again after a delay.
    Restart {
        /// The reason in Nomad's words.
        reason: String,
        /// The delay, jitter included.
        delay: Nanos,
    },
    /// The task does not start again.
    Over {
        /// The reason in Nomad's words; empty if the task completed.
        reason: String,
        /// Whether the task has failed.
        failed: bool,
    },
}

/// The reason of a restart that the policy allows.
pub(crate) const WITHIN_POLICY: &str = "Restart within policy";
const DELAYED: &str = "Exceeded allowed attempts, applying a delay";
const NO_RESTARTS: &str = "Policy allows no restarts";
const UNRECOVERABLE: &str = "Error was unrecoverable";

/// The restarts of one task so far. Stored in the client state, so that a restart of the agent does not give a task new
/// attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RestartTracker {
    count: u32,
    window_start: UnixNanos,
}

impl RestartTracker {
    /// Decides whether and when the task starts again. `restart_on_success` is false for batch jobs and for lifecycle
    /// tasks that run once. `jitter_permille` (0..=250) lengthens the delay by so many thousandths.
    pub(crate) fn next(
        &mut self,
        policy: &RestartPolicy,
        restart_on_success: bool,
        cause: Cause,
        now: UnixNanos,
        jitter_permille: u16,
    ) -> Verdict {
        let failed = match cause {
            Cause::Requested => {
                return Verdict::Restart { reason: String::new(), delay: Nanos::ZERO };
            }
            Cause::Exited { success: true } if !restart_on_success => {
                return Verdict::Over { reason: String::new(), failed: false };
            }
            Cause::StartFailed { recoverable: false } => {
                return Verdict::Over { reason: UNRECOVERABLE.to_owned(), failed: true };
            }
            Cause::Exited { success } => !success,
            Cause::StartFailed { .. } | Cause::Unhealthy => true,
        };
        if policy.attempts == 0 && policy.mode == RestartMode::Fail {
            return Verdict::Over { reason: NO_RESTARTS.to_owned(), failed };
        }
        let window_end = self.window_start.plus(policy.interval);
        if self.window_start.is_zero() || now >= window_end {
            self.count = 0;
            self.window_start = now;
        }
        self.count = self.count.saturating_add(1);
        if self.count <= policy.attempts {
            let delay = lengthened(policy.delay, jitter_permille);
            return Verdict::Restart { reason: WITHIN_POLICY.to_owned(), delay };
        }
        match policy.mode {
            RestartMode::Delay => {
                let rest = self.window_start.plus(policy.interval).since(now);
                let wait = lengthened(Nanos(rest.0.max(0)), jitter_permille);
                Verdict::Restart { reason: DELAYED.to_owned(), delay: wait }
            }
            RestartMode::Fail => Verdict::Over {
                reason: format!(
                    "Exceeded allowed attempts {} in interval {} and mode is \"fail\"",
                    policy.attempts, policy.interval
                ),
                failed: true,
            },
        }
    }
}

fn lengthened(delay: Nanos, permille: u16) -> Nanos {
    let extra = i128::from(delay.0) * i128::from(permille) / 1000;
    Nanos(delay.0.saturating_add(i64::try_from(extra).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policy(attempts: u32, mode: RestartMode) -> RestartPolicy {
        RestartPolicy {
            attempts,
            interval: Nanos::from_secs(60),
            delay: Nanos::from_secs(1),
            mode,
            render_templates: false,
        }
    }

    const FAILED: Cause = Cause::Exited { success: false };

    #[test]
    fn attempts_are_used_up_within_the_interval() {
        let mut tracker = RestartTracker::default();
        let p = policy(2, RestartMode::Fail);
        for second in 1..=2 {
            let verdict = tracker.next(&p, true, FAILED, UnixNanos(second * 1_000_000_000), 90);
            let delay = Nanos(1_090_000_000);
            assert_eq!(verdict, Verdict::Restart { reason: WITHIN_POLICY.into(), delay });
        }
        let verdict = tracker.next(&p, true, FAILED, UnixNanos(3_000_000_000), 0);
        let reason = "Exceeded allowed attempts 2 in interval 1m0s and mode is \"fail\"".to_owned();
        assert_eq!(verdict, Verdict::Over { reason, failed: true });
        let later = tracker.next(&p, true, FAILED, UnixNanos(62_000_000_000), 0);
        assert!(matches!(later, Verdict::Restart { .. }), "a new interval gives new attempts");
    }

    #[test]
    fn delay_mode_waits_for_the_interval_to_pass() {
        let mut tracker = RestartTracker::default();
        let p = policy(1, RestartMode::Delay);
        tracker.next(&p, true, FAILED, UnixNanos(1_000_000_000), 0);
        let verdict = tracker.next(&p, true, FAILED, UnixNanos(11_000_000_000), 0);
        assert_eq!(verdict, Verdict::Restart { reason: DELAYED.into(), delay: Nanos::from_secs(50) });
    }

    #[test]
    fn success_ends_a_batch_task_and_restarts_a_service() {
        let p = policy(1, RestartMode::Fail);
        let done = Cause::Exited { success: true };
        let batch = RestartTracker::default().next(&p, false, done, UnixNanos(1), 0);
        assert_eq!(batch, Verdict::Over { reason: String::new(), failed: false });
        let service = RestartTracker::default().next(&p, true, done, UnixNanos(1), 0);
        assert!(matches!(service, Verdict::Restart { .. }));
    }

    #[test]
    fn unrecoverable_starts_and_empty_policies_end_it() {
        let cause = Cause::StartFailed { recoverable: false };
        let over =
            RestartTracker::default().next(&policy(9, RestartMode::Fail), true, cause, UnixNanos(1), 0);
        assert_eq!(over, Verdict::Over { reason: UNRECOVERABLE.into(), failed: true });
        let none =
            RestartTracker::default().next(&policy(0, RestartMode::Fail), true, FAILED, UnixNanos(1), 0);
        assert_eq!(none, Verdict::Over { reason: NO_RESTARTS.into(), failed: true });
    }

    proptest! {
        #[test]
        fn never_more_restarts_in_a_window_than_allowed(
            attempts in 1u32..6,
            steps in prop::collection::vec(0i64..20_000_000_000, 1..80),
        ) {
            let p = policy(attempts, RestartMode::Fail);
            let mut tracker = RestartTracker::default();
            let mut now = 1i64;
            let mut window: Option<(i64, u32)> = None;
            for step in steps {
                now += step;
                let allowed = matches!(tracker.next(&p, true, FAILED, UnixNanos(now), 0), Verdict::Restart { .. });
                let (start, used) = match window {
                    Some((start, used)) if now < start + p.interval.0 => (start, used),
                    _ => (now, 0),
                };
                prop_assert_eq!(allowed, used < attempts);
                window = Some((start, used + 1));
            }
        }

        #[test]
        fn user_requests_are_never_counted(requests in 0usize..50) {
            let p = policy(1, RestartMode::Fail);
            let mut tracker = RestartTracker::default();
            for _ in 0..requests {
                tracker.next(&p, true, Cause::Requested, UnixNanos(5), 0);
            }
            prop_assert_eq!(tracker, RestartTracker::default());
        }
    }
}
