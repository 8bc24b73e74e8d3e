//! The supervisor of a plugin: the only part that starts, restarts and ends the plugin's processes.

use crate::PluginError;
use crate::process::{Process, Program};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The pause before the second restart in a row; it doubles with each restart.
const RESTART_INTERVAL: Duration = Duration::from_secs(5);
/// The longest pause between restarts.
const MAX_RESTART_INTERVAL: Duration = Duration::from_secs(120);
/// The lifetime after which a process that ends is restarted immediately.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// The times after which a plugin that does not answer is unhealthy, and is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The time between two requests of the supervisor. A plugin that hangs sends no notification, so it is polled.
    pub ping_interval: Duration,
    /// The time without an answer after which a plugin is unhealthy.
    pub silent_after: Duration,
    /// The time without an answer after which a plugin is killed.
    pub kill_after: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            ping_interval: Duration::from_secs(10),
            silent_after: Duration::from_secs(10),
            kill_after: Duration::from_secs(30),
        }
    }
}

/// The state of a plugin.
#[derive(Clone, Debug)]
pub(crate) enum Status {
    /// The plugin serves calls.
    Up(Arc<Process>),
    /// The process runs and does not answer.
    Silent(Arc<Process>),
    /// No process exists, for this reason. The supervisor starts another one.
    Down(String),
    /// The agent ends; no process is started again.
    Stopped,
}

/// The preparation of a plugin of one kind, before it serves calls.
#[async_trait]
pub(crate) trait Prepare: Send + Sync + 'static {
    /// Configures a new process, and lets it recover all live tasks.
    async fn prepare(&self, process: &Arc<Process>) -> Result<(), PluginError>;

    /// Returns whether a process continues under the next agent. If not, the next agent replaces the process.
    fn keeps_processes(&self) -> bool;
}

/// The supervisor's handle.
#[derive(Debug)]
pub(crate) struct Instance {
    program: Program,
    status: watch::Receiver<Status>,
    stop: CancellationToken,
}

impl Instance {
    /// Begins to supervise a plugin. Without a process that is prepared already, takes over the process that an earlier
    /// agent left, or starts one.
    pub(crate) fn supervise(
        program: Program,
        first: Option<Arc<Process>>,
        prepare: Arc<dyn Prepare>,
    ) -> Self {
        let initial = match &first {
            Some(process) => Status::Up(Arc::clone(process)),
            None => Status::Down("the plugin starts".to_owned()),
        };
        let (sender, status) = watch::channel(initial);
        let stop = CancellationToken::new();
        let supervisor = Supervisor { program: program.clone(), prepare, status: sender, stop: stop.clone() };
        tokio::spawn(supervisor.run(first));
        Self { program, status, stop }
    }

    /// Returns the current state.
    pub(crate) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Returns a receiver of all later states.
    pub(crate) fn watch(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Waits until the plugin serves calls; `None` if the agent ends.
    pub(crate) async fn up(&self) -> Option<Arc<Process>> {
        let mut status = self.watch();
        let found = status.wait_for(|s| matches!(s, Status::Up(_) | Status::Stopped)).await.ok()?.clone();
        match found {
            Status::Up(process) => Some(process),
            _ => None,
        }
    }

    /// Waits until the plugin serves calls with another process than this one; `None` if the agent ends.
    pub(crate) async fn up_after(&self, old: &Arc<Process>) -> Option<Arc<Process>> {
        let mut status = self.watch();
        let is_other = |status: &Status| match status {
            Status::Up(process) => !Arc::ptr_eq(process, old),
            Status::Stopped => true,
            _ => false,
        };
        match status.wait_for(is_other).await.ok()?.clone() {
            Status::Up(process) => Some(process),
            _ => None,
        }
    }

    /// Returns the process that serves calls, or the reason why no process does.
    pub(crate) fn process(&self) -> Result<Arc<Process>, String> {
        match self.status() {
            Status::Up(process) | Status::Silent(process) => Ok(process),
            Status::Down(reason) => Err(reason),
            Status::Stopped => Err("the agent ends".into()),
        }
    }

    /// Runs a future until the agent ends.
    pub(crate) async fn until_stop<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        self.stop.run_until_cancelled(future).await
    }

    /// Returns the token that ends calls when the agent ends.
    pub(crate) fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Returns the plugin's program.
    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// Announces the end of the agent: no later end of a process counts as a failure. Returns the process.
    pub(crate) fn stop(&self) -> Option<Arc<Process>> {
        let process = self.process().ok();
        self.stop.cancel();
        process
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The part of a supervisor that runs.
struct Supervisor {
    program: Program,
    prepare: Arc<dyn Prepare>,
    status: watch::Sender<Status>,
    stop: CancellationToken,
}

impl Supervisor {
    async fn run(self, mut first: Option<Arc<Process>>) {
        let mut failures = 0;
        let mut may_attach = first.is_none();
        loop {
            let process = match first.take() {
                Some(process) => process,
                None => {
                    let pause = pause(failures);
                    let started = async {
                        tokio::time::sleep(pause).await;
                        self.start(may_attach).await
                    };
                    let started = self.stop.run_until_cancelled(started).await;
                    may_attach = false;
                    match started {
                        None => break,
                        Some(Ok(process)) => process,
                        Some(Err(error)) => {
                            failures = failures.saturating_add(1);
                            tracing::warn!(plugin = self.program.name, %error, "the plugin cannot be started");
                            self.status.send_replace(Status::Down(error.to_string()));
                            continue;
                        }
                    }
                }
            };
            self.status.send_replace(Status::Up(Arc::clone(&process)));
            let since = tokio::time::Instant::now();
            let Some(reason) = self.stop.run_until_cancelled(self.watch(&process)).await else { break };
            failures = if since.elapsed() > STABLE_AFTER { 0 } else { failures.saturating_add(1) };
            tracing::warn!(
                plugin = self.program.name,
                pid = process.identity.pid,
                reason,
                "the plugin ended"
            );
            self.status.send_replace(Status::Down(reason));
        }
        self.status.send_replace(Status::Stopped);
    }

    async fn start(&self, may_attach: bool) -> Result<Arc<Process>, PluginError> {
        if may_attach && let Some(process) = self.attach().await {
            return Ok(process);
        }
        let process = Arc::new(self.program.start().await?);
        if let Err(error) = self.prepare.prepare(&process).await {
            process.kill().await;
            return Err(error);
        }
        Ok(process)
    }

    /// Re-attaches to the process of an earlier agent. Returns `None` if no such process can be used.
    async fn attach(&self) -> Option<Arc<Process>> {
        let attached = match self.program.attach(self.prepare.keeps_processes()).await {
            Ok(attached) => Arc::new(attached?),
            Err(error) => {
                tracing::warn!(plugin = self.program.name, %error, "the plugin's earlier process cannot be used");
                return None;
            }
        };
        match self.prepare.prepare(&attached).await {
            Ok(()) => {
                tracing::info!(plugin = self.program.name, pid = attached.identity.pid, "plugin re-attached");
                Some(attached)
            }
            Err(error) => {
                tracing::warn!(plugin = self.program.name, %error, "the plugin's earlier process cannot be used");
                attached.kill().await;
                None
            }
        }
    }

    /// Waits until a process has ended, and kills a process that does not answer. Returns the reason of the end.
    async fn watch(&self, process: &Arc<Process>) -> String {
        let timing = self.program.timing;
        loop {
            tokio::select! {
                () = process.ended() => return ended(process).await,
                () = tokio::time::sleep(timing.ping_interval) => {}
            }
            if self.answers(process, timing.silent_after).await {
                continue;
            }
            if process.has_ended() {
                return ended(process).await;
            }
            tracing::warn!(
                plugin = self.program.name,
                pid = process.identity.pid,
                "the plugin does not answer"
            );
            self.status.send_replace(Status::Silent(Arc::clone(process)));
            if self.answers(process, timing.kill_after.saturating_sub(timing.silent_after)).await {
                tracing::info!(plugin = self.program.name, "the plugin answers again");
                self.status.send_replace(Status::Up(Arc::clone(process)));
                continue;
            }
            process.kill().await;
            return format!("the plugin did not answer for {:?} and was killed", timing.kill_after);
        }
    }

    async fn answers(&self, process: &Arc<Process>, limit: Duration) -> bool {
        tokio::select! {
            answer = process.ping(limit) => answer.is_ok(),
            () = process.ended() => false,
        }
    }
}

async fn ended(process: &Process) -> String {
    format!("the plugin's process {} ended ({})", process.identity.pid, process.end_reason().await)
}

/// Returns the pause before the next start. The first restart is immediate.
fn pause(failures: u32) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => (RESTART_INTERVAL * 2u32.saturating_pow((more - 2).min(8))).min(MAX_RESTART_INTERVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_restarts_double_up_to_a_limit() {
        let seconds: Vec<u64> = (0..9).map(|failures| pause(failures).as_secs()).collect();
        assert_eq!(seconds, [0, 0, 5, 10, 20, 40, 80, 120, 120]);
        assert_eq!(pause(u32::MAX), MAX_RESTART_INTERVAL);
    }
}
