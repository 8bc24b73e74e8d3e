//! Periodic jobs: the launcher creates their children when they are due. [`book`] decides which jobs are due.

mod book;

use crate::broker::until;
use crate::core::Core;
use crate::node_evals::evaluation;
use crate::runtime::select;
use book::{Book, Launch};
use caravan_state::{Changed, FeedItem};
use caravan_types::command::{Change, Refusal};
use caravan_types::eval::{Evaluation, Trigger};
use caravan_types::job::{Job, JobStatus};
use caravan_types::{Nanos, UnixNanos};
use tokio_util::sync::CancellationToken;

pub(crate) use book::next_launch;

/// The pause before a failed commit is retried.
const PAUSE: Nanos = Nanos(1_000_000_000);

/// The service that creates the children of periodic jobs; one per leader.
#[derive(Debug)]
pub(crate) struct Launcher {
    pub(crate) core: Core,
}

impl Launcher {
    /// Launches due jobs until cancelled.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let mut feed = self.core.store.feed();
        let mut book = Book::read(&self.core.snapshot());
        loop {
            let mut failed = false;
            for launch in book.due(&self.core.snapshot(), self.core.now()) {
                if !self.launch(&launch).await {
                    book.again(&launch);
                    failed = true;
                }
            }
            let wake = if failed { Some(self.core.now().plus(PAUSE)) } else { book.next() };
            select! {
                () = cancel.cancelled() => return,
                () = until(wake, self.core.now()) => {}
                item = feed.next() => match item {
                    None => return,
                    Some(FeedItem::Resync) => book = Book::read(&self.core.snapshot()),
                    Some(FeedItem::Changes(set)) => {
                        let root = self.core.snapshot();
                        for change in &set.changes {
                            if let Changed::Job(key) | Changed::JobRemoved(key) = change {
                                book.follow(&root, key);
                            }
                        }
                    }
                },
            }
        }
    }

    /// Creates a child. Returns whether this launch is complete.
    async fn launch(&self, launch: &Launch) -> bool {
        let Some(parent) = self.core.snapshot().job(&launch.key).cloned() else { return true };
        let now = self.core.now();
        let (job, eval) = child(&parent, launch.at.as_secs(), now);
        let change = Change::JobChild { job: Box::new(job), eval: Some(eval), launched: Some(launch.at) };
        match self.core.propose(change).await {
            // A user forced a launch in the same second, or the job was stopped.
            Ok(outcome) => {
                if let Some(refusal) = outcome.refused {
                    tracing::info!(job = %launch.key.id, %refusal, "a launch of a periodic job was refused");
                }
                true
            }
            Err(error) => {
                tracing::error!(job = %launch.key.id, %error, "a launch of a periodic job failed; retrying");
                false
            }
        }
    }
}

/// Returns the child of a periodic job for a time in Unix seconds, and its evaluation.
pub(crate) fn child(parent: &Job, unix: i64, now: UnixNanos) -> (Job, Evaluation) {
    let id = parent.periodic_child_id(unix);
    let job = Job {
        name: id.to_string(),
        id,
        parent_id: parent.id.clone(),
        periodic: None,
        stop: false,
        status: JobStatus::Pending,
        status_description: String::new(),
        stable: false,
        version: 0,
        version_tag: None,
        submit_time: now,
        job_modify_index: 0,
        ..parent.clone()
    };
    let eval = evaluation(&job, Trigger::PeriodicJob, now);
    (job, eval)
}

/// Whether a command was refused because its job already exists.
pub(crate) fn is_there(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::JobModifyIndex { expected: 0, .. })
}
