//! The reports of clients about their allocations, written in batches under load.
//!
//! The first report is written immediately. Reports that arrive during this write share the next command.

use crate::core::Core;
use crate::error::ServerError;
use crate::node_evals;
use crate::runtime;
use caravan_types::alloc::AllocUpdate;
use caravan_types::command::Change;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use tokio::sync::oneshot;

/// The maximum number of updates in one command, so that readers never wait long for it.
const AT_ONCE: usize = 1000;

#[derive(Debug, Default)]
struct Waiting {
    reports: Vec<Report>,
    /// Whether a writer is active. The writer looks for more updates when its command is written.
    writing: bool,
}

#[derive(Debug)]
struct Report {
    updates: Vec<AllocUpdate>,
    answer: oneshot::Sender<Result<u64, ServerError>>,
}

/// The writer of reports; cheap to clone.
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
        self.waiting.lock()
    }

    /// Writes updates. Returns the index of the state that contains them.
    pub(crate) async fn submit(&self, updates: Vec<AllocUpdate>) -> Result<u64, ServerError> {
        let (answer, result) = oneshot::channel();
        let begins = {
            let mut waiting = self.waiting();
            waiting.reports.push(Report { updates, answer });
            !std::mem::replace(&mut waiting.writing, true)
        };
        if begins {
            // Other callers share the command, so it continues after this caller disconnects.
            runtime::spawn(self.clone().write());
        }
        result.await.map_err(|_| ServerError::Stopped("server"))?
    }

    /// Removes and returns the waiting updates that fit into one command, or `None` if no update waits.
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
                // The caller may have disconnected.
                let _ = answer.send(result.clone());
            }
        }
    }
}
