//! What clients say of their allocations, written together while there is much of it.
//!
//! The first report is written at once. Those that come while it is being written share the next command.

use crate::core::Core;
use crate::error::ServerError;
use crate::node_evals;
use caravan_types::alloc::AllocUpdate;
use caravan_types::command::Change;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Updates in one command: few enough that a reader never waits long for it.
const AT_ONCE: usize = 1000;

#[derive(Debug, Default)]
struct Waiting {
    reports: Vec<Report>,
    /// Whether somebody writes, who will look again when that is done.
    writing: bool,
}

#[derive(Debug)]
struct Report {
    updates: Vec<AllocUpdate>,
    answer: oneshot::Sender<Result<u64, ServerError>>,
}

/// Writes reports; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Reports {
    core: Core,
    waiting: Arc<Mutex<Waiting>>,
}

impl Reports {
    pub(crate) fn new(core: Core) -> Self {
        Self { core, waiting: Arc::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes updates. Answers the index at which they are in the state.
    pub(crate) async fn submit(&self, updates: Vec<AllocUpdate>) -> Result<u64, ServerError> {
        let (answer, result) = oneshot::channel();
        let begins = {
            let mut waiting = self.waiting();
            waiting.reports.push(Report { updates, answer });
            !std::mem::replace(&mut waiting.writing, true)
        };
        if begins {
            // Others rely on it by now: it goes on when this caller goes away.
            tokio::spawn(self.clone().write());
        }
        result.await.map_err(|_| ServerError::unavailable("the server has stopped"))?
    }

    /// Takes what waits, as far as it fits into one command; none when nothing does.
    fn take(&self) -> Option<Vec<Report>> {
        let mut waiting = self.waiting();
        let mut sum = 0;
        let fits = |report: &&Report| {
            sum += report.updates.len();
            sum <= AT_ONCE
        };
        let count = waiting.reports.iter().take_while(fits).count().max(1).min(waiting.reports.len());
        if count == 0 {
            waiting.writing = false;
            return None;
        }
        Some(waiting.reports.drain(..count).collect())
    }

    async fn write(self) {
        while let Some(reports) = self.take() {
            let (updates, answers): (Vec<_>, Vec<_>) =
                reports.into_iter().map(|report| (report.updates, report.answer)).unzip();
            let updates: Vec<AllocUpdate> = updates.into_iter().flatten().collect();
            let evals = node_evals::for_updates(&self.core.snapshot(), &updates, self.core.now());
            let result = self.core.commit(Change::AllocUpdates { updates, evals }).await;
            if let Ok(index) = &result {
                self.core.store.wait_for_index(*index).await;
            }
            for answer in answers {
                // Whoever asked may be gone.
                let _ = answer.send(result.clone());
            }
        }
    }
}
