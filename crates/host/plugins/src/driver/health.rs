//! The reports of a driver about itself: fingerprints, outages, and events of tasks.

use super::calls::{Failed, call};
use super::{Shared, client};
use crate::convert;
use crate::error::describe;
use crate::instance::{Instance, Status};
use crate::process::Process;
use caravan_drivers::{Fingerprint, Health};
use caravan_proto::plugins::driver::{FingerprintRequest, TaskEventsRequest};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// The pause before a stream that ended is opened again; it doubles with each attempt.
const REOPEN_INTERVAL: Duration = Duration::from_secs(5);
/// The longest pause before a stream is opened again.
const MAX_REOPEN_INTERVAL: Duration = Duration::from_secs(120);

/// Returns the fingerprint of a driver that cannot run tasks now.
pub(super) fn unhealthy(description: String) -> Fingerprint {
    Fingerprint { state: Health::Unhealthy, attributes: BTreeMap::new(), description }
}

/// The latest fingerprint of a plugin.
#[derive(Debug)]
pub(super) struct Fingerprints {
    latest: watch::Receiver<Latest>,
    /// The revision that [`Fingerprints::latest`] returned last.
    seen: AtomicU64,
}

#[derive(Clone, Debug, Default)]
struct Latest {
    /// A counter of the changes of the fingerprint and of the plugin's state.
    revision: u64,
    /// The fingerprint; `None` until the current process reported one.
    found: Option<Fingerprint>,
}

impl Fingerprints {
    /// Begins to read the fingerprints of each process of the plugin.
    pub(super) fn begin(name: &str, instance: &Arc<Instance>) -> Self {
        let (sender, latest) = watch::channel(Latest::default());
        let mut status = instance.watch();
        let name = name.to_owned();
        tokio::spawn(async move {
            let mut reader = tokio::task::JoinSet::new();
            let mut current: Option<Arc<Process>> = None;
            loop {
                let now = status.borrow_and_update().clone();
                match now {
                    Status::Up(process) | Status::Silent(process) => {
                        if !current.as_ref().is_some_and(|known| Arc::ptr_eq(known, &process)) {
                            reader.abort_all();
                            publish(&sender, None);
                            current = Some(Arc::clone(&process));
                            reader.spawn(read(name.clone(), process, sender.clone()));
                        }
                    }
                    Status::Down(_) | Status::Stopped => reader.abort_all(),
                }
                sender.send_modify(|latest| latest.revision += 1);
                if status.changed().await.is_err() {
                    return;
                }
            }
        });
        Self { latest, seen: AtomicU64::new(0) }
    }

    /// Returns the latest fingerprint, and waits for the first of the current process.
    pub(super) async fn latest(&self, instance: &Instance) -> Fingerprint {
        let mut latest = self.latest.clone();
        let mut status = instance.watch();
        let first = tokio::select! {
            found = latest.wait_for(|latest| latest.found.is_some()) => found.ok().map(|found| found.clone()),
            _ = status.wait_for(|status| !matches!(status, Status::Up(_))) => None,
        };
        let first = first.unwrap_or_else(|| self.latest.borrow().clone());
        self.seen.store(first.revision, Ordering::Release);
        first.found.unwrap_or_else(|| unhealthy("the plugin ended before its first report".into()))
    }

    /// Waits until there is a fingerprint or a state that [`Fingerprints::latest`] did not return.
    pub(super) async fn changed(&self) {
        let seen = self.seen.load(Ordering::Acquire);
        let mut latest = self.latest.clone();
        let revision = latest.wait_for(|latest| latest.revision != seen).await.map(|latest| latest.revision);
        match revision {
            Ok(revision) => self.seen.store(revision, Ordering::Release),
            // The agent ends.
            Err(_) => std::future::pending().await,
        }
    }
}

fn publish(sender: &watch::Sender<Latest>, found: Option<Fingerprint>) {
    sender.send_if_modified(|latest| {
        let is_new = latest.found != found;
        if is_new {
            latest.found = found;
            latest.revision += 1;
        }
        is_new
    });
}

/// Reads the fingerprints of one process until it ends.
async fn read(name: String, process: Arc<Process>, sender: watch::Sender<Latest>) {
    let mut pause = REOPEN_INTERVAL;
    loop {
        let mut client = client(process.channel());
        let reason = match call(&process, client.fingerprint(FingerprintRequest {})).await {
            Ok(mut stream) => loop {
                match stream.message().await {
                    Ok(Some(message)) => {
                        pause = REOPEN_INTERVAL;
                        publish(&sender, Some(convert::fingerprint(&name, message)));
                    }
                    Ok(None) => break "the plugin ended its report".to_owned(),
                    Err(status) => break describe(&status),
                }
            },
            Err(Failed::Ended) => return,
            Err(Failed::UnknownTask) => "the plugin refused to report".to_owned(),
            Err(Failed::Refused(status)) => describe(&status),
        };
        if process.has_ended() {
            return;
        }
        tracing::warn!(driver = name, reason, "failed to fingerprint driver");
        publish(&sender, Some(unhealthy(format!("failed to fingerprint driver: {reason}"))));
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_REOPEN_INTERVAL);
    }
}

/// Adds an event to each live task when the plugin goes down, stops answering, or returns.
pub(super) fn report_outages(instance: &Instance, shared: &Arc<Shared>) {
    let mut status = instance.watch();
    let shared = Arc::downgrade(shared);
    tokio::spawn(async move {
        let mut is_up = true;
        while status.changed().await.is_ok() {
            let now = status.borrow_and_update().clone();
            let words = match now {
                Status::Up(_) if is_up => continue,
                Status::Up(_) => {
                    is_up = true;
                    "the driver's plugin runs again".to_owned()
                }
                Status::Silent(_) => {
                    is_up = false;
                    "the driver's plugin does not answer; the task goes on".to_owned()
                }
                Status::Down(reason) => {
                    is_up = false;
                    format!("the driver's plugin is down: {reason}; the task goes on")
                }
                Status::Stopped => return,
            };
            let Some(shared) = shared.upgrade() else { return };
            for task in shared.tasks.live() {
                shared.report(&task, words.clone());
            }
        }
    });
}

/// Forwards the events of tasks that each process of the plugin reports.
pub(super) fn forward_events(instance: &Arc<Instance>, shared: &Arc<Shared>) {
    let stop = instance.stop_token();
    let (instance, events) = (Arc::downgrade(instance), shared.events.clone());
    tokio::spawn(stop.run_until_cancelled_owned(async move {
        let mut last: Option<Arc<Process>> = None;
        loop {
            let Some(found) = instance.upgrade() else { return };
            let process = match last.take() {
                Some(old) => found.up_after(&old).await,
                None => found.up().await,
            };
            drop(found);
            let Some(process) = process else { return };
            let mut client = client(process.channel());
            let mut pause = REOPEN_INTERVAL;
            while !process.has_ended() {
                if let Ok(mut stream) = call(&process, client.task_events(TaskEventsRequest {})).await {
                    while let Ok(Some(event)) = stream.message().await {
                        pause = REOPEN_INTERVAL;
                        if events.send(convert::event(event)).is_err() {
                            return;
                        }
                    }
                }
                tokio::select! {
                    () = process.ended() => {}
                    () = tokio::time::sleep(pause) => {}
                }
                pause = (pause * 2).min(MAX_REOPEN_INTERVAL);
            }
            last = Some(process);
        }
    }));
}
