//! Tasks that follow the state of an allocation while it runs: its health and its run time limit.

use super::{AllocState, Kill};
use crate::clock;
use crate::runner::health::Judged;
use crate::runner::time_limit::{MAX_SLEEP, left};
use caravan_types::alloc::{TaskEvent, TaskRunState, event};
use std::time::Duration;

impl AllocState {
    /// Watches the allocation's health until it is known; starts again with each deployment.
    pub(in crate::runner) async fn mind_health(&self) {
        let mut changes = self.changes();
        let mut checks = self.checks_summary();
        loop {
            changes.borrow_and_update();
            checks.borrow_and_update();
            let Judged { again, news, .. } = self.look_at_health();
            if news {
                self.push();
            }
            let now = clock::now();
            let waiting = async {
                match again {
                    Some(at) => tokio::time::sleep(at.since(now).to_std()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = waiting => {}
                changed = changes.changed() => if changed.is_err() { return },
                changed = checks.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Judges the health. If the allocation became unhealthy, task events contain the reason.
    pub(in crate::runner) fn look_at_health(&self) -> Judged {
        let judged = self.judge();
        if let Some((task, why)) = &judged.blame {
            tracing::info!(alloc = %self.id(), why, "allocation is not healthy");
            let whom = task.clone().map_or_else(|| self.task_names(), |task| vec![task]);
            for task in whom {
                self.note(&task, TaskEvent::new(event::ALLOC_UNHEALTHY, clock::now()).message(why));
            }
        }
        judged
    }

    /// Stops the allocation when its run time has passed. The limit may change while it runs.
    pub(in crate::runner) async fn mind_time(&self) {
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            match left(&self.alloc(), self.begun(), clock::now()) {
                Some(Duration::ZERO) => return self.time_out().await,
                Some(left) => {
                    tokio::select! {
                        () = tokio::time::sleep(left.min(MAX_SLEEP)) => {}
                        changed = changes.changed() => if changed.is_err() { return },
                    }
                }
                None if changes.changed().await.is_err() => return,
                None => {}
            }
        }
    }

    async fn time_out(&self) {
        tracing::info!(alloc = %self.id(), "the allocation exceeded max_run_duration; stopping it");
        self.count("allocs.max_run_duration.exceeded");
        // Durable first: a restarted agent must not start tasks of an allocation that is over its limit.
        for task in self.task_names() {
            let marked = self.update(&task, |record| {
                record.timed_out |= record.state.state != TaskRunState::Dead;
            });
            if let Some(written) = marked {
                written.wait().await;
            }
        }
        self.end(&Kill { timed_out: true, ..Kill::default() });
    }
}
