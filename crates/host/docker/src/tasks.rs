//! The running tasks of the driver: one watcher per container, which waits for the container's end.

use crate::engine::{Engine, Unreachable, inspect, is_absent, status, text};
use crate::guard::{self, UnderLease, Ward};
use crate::images::Images;
use crate::logs::Follower;
use crate::measure;
use crate::options::DockerOptions;
use crate::running::Running;
use crate::watch::{EngineWatch, Waiter};
use bollard::models::{ContainerInspectResponse, ContainerState, ContainerUpdateBody};
use caravan_drivers::{DriverEvent, Error, ExitResult, LogConfig, Result, ShimCommand, TaskHandle, TaskId};
use caravan_sys::cgroup::Hierarchy;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time after which a container is examined even without an event.
const EXAMINE_INTERVAL: Duration = Duration::from_secs(60);

/// The time that the engine may take to answer before the delay is reported.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Time between two examinations while the engine does not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The time that the end of a task waits for more of its output.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that the result of a container that SIGKILL ended waits for the engine's report of a lack of memory. The
/// engine may detect the container's end before the reason.
const OUT_OF_MEMORY_TIMEOUT: Duration = Duration::from_secs(2);

/// Exit code of a container that SIGKILL ended.
const KILLED: i64 = 128 + 9;

/// The driver's data in a task handle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) container: String,
    pub(crate) image: String,
    pub(crate) alloc_id: String,
    pub(crate) task_name: String,
    pub(crate) state_dir: PathBuf,
    /// The log files; absent if the engine keeps the output.
    pub(crate) logs: Option<LogConfig>,
    /// The file in which podman keeps the output; absent for other engines.
    #[serde(default)]
    pub(crate) output_file: Option<PathBuf>,
    /// Signal of a graceful stop.
    pub(crate) stop_signal: String,
    /// Process id of the container's first process, if the engine runs on this machine.
    pub(crate) pid: Option<u32>,
    /// Whether the task reserved its processors.
    #[serde(default)]
    pub(crate) has_own_cpus: bool,
    /// The lease that the container's guard enforces; absent if the task has no lease.
    #[serde(default)]
    pub(crate) under_lease: Option<UnderLease>,
}

/// A container that the driver watches.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) handle: TaskHandle,
    pub(crate) state: State,
    exit: watch::Receiver<Option<ExitResult>>,
    /// Whether the driver itself sent SIGKILL.
    pub(crate) killed: Arc<AtomicBool>,
}

impl Task {
    /// Returns the result if the task has ended.
    pub(crate) fn result(&self) -> Option<ExitResult> {
        self.exit.borrow().clone()
    }

    /// Waits for the task's end.
    pub(crate) async fn wait(&self) -> Result<ExitResult> {
        let mut exit = self.exit.clone();
        let result = exit.wait_for(Option::is_some).await.map(|result| result.clone());
        match result {
            Ok(Some(result)) => Ok(result),
            // The watcher ends early only when the driver or the runtime shuts down.
            Ok(None) | Err(_) => Err(Error::Supervisor {
                id: self.handle.task_id.clone(),
                source: std::io::ErrorKind::ConnectionAborted.into(),
            }),
        }
    }
}

/// The parts that all calls of the driver share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: DockerOptions,
    /// The id of the node, by which this agent's containers are recognized.
    pub(crate) node_id: String,
    pub(crate) engine: Arc<Engine>,
    /// The running containers.
    pub(crate) running: Running,
    /// The control groups of this machine, once they were examined.
    pub(crate) hierarchy: OnceLock<Option<Hierarchy>>,
    pub(crate) watch: Arc<EngineWatch>,
    pub(crate) images: Arc<Images>,
    pub(crate) tasks: Mutex<HashMap<TaskId, Arc<Task>>>,
    /// Runs whose start failed: they have no container.
    pub(crate) failed_starts: Mutex<HashSet<TaskId>>,
    pub(crate) events: mpsc::UnboundedSender<DriverEvent>,
    /// Images of the containers that hold networks, by the id of the allocation.
    pub(crate) networks: Mutex<HashMap<String, String>>,
    /// The program of guards.
    pub(crate) shim: ShimCommand,
    /// The processors of tasks that reserved none; absent if they may use all.
    pub(crate) cpus: watch::Sender<Option<String>>,
    /// The watchers and followers of containers.
    pub(crate) workers: TaskTracker,
    /// The signal that ends the workers.
    pub(crate) end: CancellationToken,
}

impl Shared {
    pub(crate) fn get(&self, id: &TaskId) -> Result<Arc<Task>> {
        self.tasks.lock().get(id).cloned().ok_or_else(|| Error::UnknownTask(id.clone()))
    }

    /// Returns a task that has not ended.
    pub(crate) fn live(&self, id: &TaskId) -> Result<Arc<Task>> {
        let task = self.get(id)?;
        if task.result().is_some() { Err(Error::Ended(id.clone())) } else { Ok(task) }
    }

    /// Adds an event to a task.
    pub(crate) fn report(&self, alloc_id: &str, task_name: &str, message: impl Into<String>) {
        let event = DriverEvent {
            alloc_id: alloc_id.to_owned(),
            task_name: task_name.to_owned(),
            message: message.into(),
            ..DriverEvent::default()
        };
        // Without a receiver, no caller reads events.
        let _unread = self.events.send(event);
    }

    /// Returns a container; `None` if the engine has no such container.
    pub(crate) async fn examine(
        &self,
        container: &str,
    ) -> std::result::Result<Option<ContainerInspectResponse>, String> {
        let answer = async {
            let client = self.engine.client().await.map_err(|error: Unreachable| error.to_string())?;
            match inspect(&client, container).await {
                Ok(found) => Ok(Some(found)),
                Err(error) if is_absent(&error) => Ok(None),
                Err(error) => Err(text(&error)),
            }
        };
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("there was no answer for {PATIENCE:?}")),
        }
    }

    /// Waits for the engine. If that takes long, the task gets an event that names the waiting step.
    pub(crate) async fn patiently<T>(
        &self,
        alloc_id: &str,
        task_name: &str,
        what: &str,
        answer: impl Future<Output = T>,
    ) -> T {
        let mut answer = std::pin::pin!(answer);
        if let Ok(found) = tokio::time::timeout(PATIENCE, &mut answer).await {
            return found;
        }
        let words = format!("{what} waits for the Docker engine: there was no answer for {PATIENCE:?}");
        self.report(alloc_id, task_name, words);
        answer.await
    }

    /// Runs a part of the driver until the part or the driver ends.
    fn work<T: Send + 'static>(
        &self,
        part: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        self.workers.spawn(self.end.clone().run_until_cancelled_owned(part))
    }

    /// Watches a container from now on. `begun` is a waiter from before its start, if the container was just seen
    /// running.
    pub(crate) fn adopt(self: &Arc<Self>, handle: TaskHandle, state: State, begun: Option<Waiter>) {
        self.watch.ensure();
        self.images.count(&state.image, &handle.task_id.0);
        let (sender, exit) = watch::channel(None);
        let (shared, id, watched) = (self.clone(), handle.task_id.clone(), state.clone());
        let started = handle.started_unix_ns;
        let killed = Arc::new(AtomicBool::new(false));
        let is_killed = killed.clone();
        self.work(async move {
            let mut result = Box::pin(shared.until_gone(&id, &watched, &is_killed, begun)).await;
            // The engine notes the start after the fact, so a short run may seem to end before.
            result.finished_unix_ns = result.finished_unix_ns.max(started);
            tracing::debug!(task = %id, code = result.exit_code, "container ended");
            sender.send_replace(Some(result));
        });
        if let Some(under) = state.under_lease.clone() {
            let ward = Ward {
                under,
                container: state.container.clone(),
                state_dir: state.state_dir.clone(),
                alloc_id: state.alloc_id.clone(),
                task_name: state.task_name.clone(),
            };
            self.work(guard::keep(self.clone(), ward, exit.clone()));
        }
        let task = Arc::new(Task { handle, state, exit, killed });
        self.tasks.lock().insert(task.handle.task_id.clone(), task);
    }

    async fn until_gone(
        self: &Arc<Self>,
        id: &TaskId,
        state: &State,
        killed: &AtomicBool,
        begun: Option<Waiter>,
    ) -> ExitResult {
        let (ended, has_ended) = watch::channel(false);
        let batches = Arc::<AtomicU64>::default();
        let mut output = state.logs.clone().map(|logs| {
            let follower = Follower {
                engine: self.engine.clone(),
                watch: self.watch.clone(),
                container: state.container.clone(),
                file: state.output_file.clone(),
                ended: has_ended,
                batches: batches.clone(),
            };
            self.work(follower.run(logs, state.state_dir.clone()))
        });
        let result = self.until_ended(state, killed, begun).await;
        ended.send_replace(true);
        if let Some(output) = &mut output {
            // A long output may take longer, as long as it arrives.
            let rest = loop {
                let before = batches.load(Ordering::Relaxed);
                match tokio::time::timeout(OUTPUT_TIMEOUT, &mut *output).await {
                    Err(_) if batches.load(Ordering::Relaxed) > before => {}
                    rest => break rest,
                }
            };
            match rest {
                Ok(Ok(None | Some(Ok(())))) => {}
                Ok(Ok(Some(Err(reason)))) => self.report(&state.alloc_id, &state.task_name, reason),
                Ok(Err(error)) => tracing::error!(task = %id, %error, "the copy of a task's output failed"),
                Err(_) => {
                    output.abort();
                    let words = "the end of the output could not be read from the engine in time";
                    self.report(&state.alloc_id, &state.task_name, words);
                }
            }
        }
        result
    }

    async fn until_ended(
        self: &Arc<Self>,
        state: &State,
        killed: &AtomicBool,
        begun: Option<Waiter>,
    ) -> ExitResult {
        let mut cpus = self.cpus.subscribe();
        let mut killed_since = None;
        let mut failures = 0_u32;
        // A container that was seen running needs no examination before the first event.
        let mut is_seen = begun.is_some();
        let mut waiter = begun.unwrap_or_else(|| self.watch.waiter(&state.container));
        if !is_seen {
            is_seen = self.running.has(&self.engine, &self.node_id, &state.container).await == Ok(true);
        }
        if is_seen {
            self.confine(state, &mut cpus).await;
            tokio::select! {
                () = waiter.changed() => {}
                // The driver keeps the sender.
                Ok(()) = cpus.changed() => {}
                () = tokio::time::sleep(EXAMINE_INTERVAL) => {}
            }
        }
        loop {
            // On the heap, because it is large, and the watcher mostly waits elsewhere.
            match Box::pin(self.examine(&state.container)).await {
                Ok(found) => {
                    if failures > 1 {
                        self.report(&state.alloc_id, &state.task_name, "the Docker engine answers again");
                    }
                    failures = 0;
                    match found.map(|found| found.state.unwrap_or_default()) {
                        None => return lost("the container was removed by another program"),
                        Some(mut found) if is_over(&found) => {
                            if waiter.is_out_of_memory() {
                                found.oom_killed = Some(true);
                            }
                            let has_reason = found.oom_killed == Some(true) || killed.load(Ordering::Relaxed);
                            let since = *killed_since.get_or_insert_with(Instant::now);
                            let rest = OUT_OF_MEMORY_TIMEOUT.saturating_sub(since.elapsed());
                            if found.exit_code != Some(KILLED) || has_reason || rest.is_zero() {
                                return result(&found);
                            }
                            let _elapsed = tokio::time::timeout(rest, waiter.changed()).await;
                            continue;
                        }
                        Some(_) => {}
                    }
                    self.confine(state, &mut cpus).await;
                    tokio::select! {
                        () = waiter.changed() => {}
                        // The driver keeps the sender.
                        Ok(()) = cpus.changed() => {}
                        () = tokio::time::sleep(EXAMINE_INTERVAL) => {}
                    }
                }
                Err(reason) => {
                    failures += 1;
                    // A short break, such as a restart of the connection, is not reported.
                    if failures == 2 {
                        let words = format!("the Docker engine does not answer, the task goes on: {reason}");
                        self.report(&state.alloc_id, &state.task_name, words);
                    }
                    let _elapsed = tokio::time::timeout(RETRY_INTERVAL, waiter.changed()).await;
                }
            }
        }
    }
}

impl Shared {
    /// Confines a container that runs to the shared processors, unless it already is.
    async fn confine(&self, state: &State, cpus: &mut watch::Receiver<Option<String>>) {
        let Some(shared) = cpus.borrow_and_update().clone() else { return };
        if state.has_own_cpus {
            return;
        }
        let container = state.container.as_str();
        let current = match measure::group(self, state) {
            Some(group) => group.cpus(),
            None => match Box::pin(self.examine(container)).await {
                Ok(Some(found)) if !found.state.as_ref().is_some_and(is_over) => {
                    found.host_config.and_then(|host| host.cpuset_cpus)
                }
                // The watcher reports the end, or that the engine does not answer.
                _ => return,
            },
        };
        if current.as_deref() == Some(shared.as_str()) {
            return;
        }
        let Ok(client) = self.engine.client().await else { return };
        let update =
            ContainerUpdateBody { cpuset_cpus: Some(shared.clone()), ..ContainerUpdateBody::default() };
        match client.update_container(container, update).await {
            Ok(_) => tracing::debug!(container, cpus = shared, "container confined to shared processors"),
            // The container ends, and the watcher examines it again.
            Err(error) if matches!(status(&error), Some(404 | 409)) => {}
            Err(error) => {
                let error = text(&error);
                tracing::warn!(
                    container,
                    cpus = shared,
                    error,
                    "a container cannot be confined to processors"
                );
            }
        }
    }
}

fn is_over(state: &ContainerState) -> bool {
    let running = state.running == Some(true) || state.restarting == Some(true) || state.paused == Some(true);
    !running
}

/// Returns the result of a container that has ended.
fn result(state: &ContainerState) -> ExitResult {
    let code = state.exit_code.and_then(|code| i32::try_from(code).ok()).unwrap_or_default();
    let oom_killed = state.oom_killed == Some(true);
    let words = || format!("Docker container exited with non-zero exit code: {code}");
    ExitResult {
        exit_code: code,
        signal: 0,
        oom_killed,
        err: if oom_killed { Some("OOM Killed".to_owned()) } else { (code != 0).then(words) },
        lease_passed: false,
        finished_unix_ns: unix_ns(state.finished_at.as_deref()),
    }
}

fn lost(reason: &str) -> ExitResult {
    ExitResult { err: Some(reason.to_owned()), finished_unix_ns: unix_ns(None), ..ExitResult::default() }
}

/// Returns a time of the engine in nanoseconds since 1970; now, if the engine has none.
pub(crate) fn unix_ns(time: Option<&str>) -> u64 {
    let time = time.and_then(|time| time.parse::<Timestamp>().ok()).map(Timestamp::as_nanosecond);
    // A time that was never set is in the year 1.
    let time = time.filter(|time| *time > 0).and_then(|time| u64::try_from(time).ok());
    time.unwrap_or_else(|| u64::try_from(caravan_sys::time::wall_nanos()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_say_how_a_container_ended() {
        let state = |exit_code, oom_killed| ContainerState {
            running: Some(false),
            exit_code: Some(exit_code),
            oom_killed: Some(oom_killed),
            finished_at: Some("2026-01-01T00:00:00.5Z".into()),
            ..ContainerState::default()
        };
        let good = result(&state(0, false));
        assert!(good.is_success() && good.finished_unix_ns == 1_767_225_600_500_000_000);
        assert_eq!(
            result(&state(3, false)).err.as_deref(),
            Some("Docker container exited with non-zero exit code: 3")
        );
        let oom = result(&state(137, true));
        assert!(oom.oom_killed && oom.err.as_deref() == Some("OOM Killed"));
        assert!(is_over(&state(0, false)));
        assert!(!is_over(&ContainerState { paused: Some(true), ..ContainerState::default() }));
        assert!(unix_ns(Some("0001-01-01T00:00:00Z")) > 1_700_000_000_000_000_000);
    }
}
