//! Volumes whose mount breaks while an allocation runs: reported in events of its tasks, and handled as the volume
//! request sets.

use super::alloc_state::{AllocState, Readiness};
use super::binds::Sources;
use super::csi_hook::{CsiHook, requests, say_once, wish};
use super::hooks::HookContext;
use super::plan::Planner;
use crate::clock::{self, Backoff};
use crate::csi::health::{Reaction, Trouble, Troubles, react};
use caravan_types::alloc::{TaskEvent, event};
use caravan_types::job::VolumeRequest;
use caravan_types::volume::ClaimId;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The time without a broken mount after which the next one starts a new series of failures.
const QUIET: Duration = Duration::from_secs(300);

/// The reason in the event of a task's restart.
const REASON: &str = "Volume mount broken";

/// A guard that prevents starts of the allocation's tasks until it is dropped.
struct Starts<'a>(&'a AllocState);

impl<'a> Starts<'a> {
    fn hold(alloc: &'a AllocState) -> Self {
        alloc.set_readiness(Readiness::Ready, Readiness::Preparing);
        Self(alloc)
    }
}

impl Drop for Starts<'_> {
    fn drop(&mut self) {
        self.0.set_readiness(Readiness::Preparing, Readiness::Ready);
    }
}

/// The guard of an allocation's CSI volumes.
#[derive(Debug)]
pub(super) struct VolumeGuard {
    pub(super) csi: CsiHook,
    pub(super) planner: Arc<Planner>,
    pub(super) sources: Sources,
    pub(super) state: AllocState,
}

impl VolumeGuard {
    /// Handles broken mounts while the returned future is polled.
    pub(super) async fn run(&self) {
        let mut troubles = self.csi.volumes.troubles();
        let mut handled = Troubles::new();
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let mut last: Option<Instant> = None;
        loop {
            let mine: Vec<_> = {
                let all = troubles.borrow_and_update();
                handled.retain(|claim, trouble| all.get(claim) == Some(trouble));
                let ours = |claim: &ClaimId| all.get(claim).cloned();
                requests(&self.state.alloc())
                    .into_iter()
                    .filter_map(|(c, r)| ours(&c).map(|t| (c, r, t)))
                    .collect()
            };
            for (claim, request, trouble) in mine {
                if handled.contains_key(&claim) {
                    continue;
                }
                self.tell_broken(&request, &trouble);
                let reaction = react(request.broken_mount, trouble.kind);
                handled.insert(claim.clone(), trouble);
                if reaction == Reaction::Tell {
                    continue;
                }
                match last {
                    Some(at) if at.elapsed() < QUIET => tokio::time::sleep(backoff.delay()).await,
                    _ => backoff.reset(),
                }
                tokio::select! {
                    () = self.state.until_stopping() => std::future::pending().await,
                    () = self.renew(&claim, &request, reaction) => {}
                }
                last = Some(Instant::now());
                handled.remove(&claim);
            }
            if troubles.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }

    async fn renew(&self, claim: &ClaimId, request: &VolumeRequest, reaction: Reaction) {
        let users = self.users_of(&request.name);
        match reaction {
            Reaction::Tell => {}
            Reaction::Restart => {
                let held = Starts::hold(&self.state);
                for task in &users {
                    // An error means that the task does not run, so a restart is not needed.
                    let _idle = self.state.restart_because(task, REASON);
                }
                self.until_idle(&users).await;
                self.mount_anew(claim, request).await;
                drop(held);
            }
            Reaction::Remount => {
                self.mount_anew(claim, request).await;
                for task in &users {
                    self.rebind(task, &request.name).await;
                }
            }
        }
        self.csi.volumes.renewed(claim).await;
        for task in users {
            let event = TaskEvent::new(event::VOLUME_RENEWED, clock::now())
                .detail("volume_id", claim.volume.id.to_string())
                .message(format!("volume \"{}\" is mounted again", request.name));
            self.state.emit(&task, event);
        }
    }

    /// Mounts a volume again, retrying until it succeeds.
    async fn mount_anew(&self, claim: &ClaimId, request: &VolumeRequest) {
        let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(30));
        let cx = HookContext::new(&self.state);
        let (mut reported, mut tries) = (String::new(), 0);
        loop {
            tries += 1;
            let tried = async {
                let wish = wish(request).await.map_err(|fault| fault.to_string())?;
                let (grant, _) = self.csi.await_claim(&cx, claim).await?;
                let volumes = &self.csi.volumes;
                // The volume is still used under the same lease term: its use ends with that term.
                let term = volumes.lease_term(claim);
                let (waits, waiting) = watch::channel(String::new());
                let under_way = format!("volume {} is being mounted again", claim.volume.id);
                let mount = volumes.remount(&grant, &wish, term, &waits);
                let mounted =
                    self.csi.saying_waits(&cx, &mut reported, &grant, (under_way, tries), waiting, mount);
                mounted.await.map_err(|fault| {
                    volumes.report_failure(&grant, fault.to_string(), tries);
                    fault.to_string()
                })
            };
            match tried.await {
                Ok(_) => return,
                Err(why) => {
                    let volume = &claim.volume.id;
                    say_once(&cx, &mut reported, format!("mounting volume {volume} again failed: {why}"));
                }
            }
            tokio::time::sleep(backoff.delay()).await;
        }
    }

    /// Replaces the mount in a running task; a task whose driver cannot replace it is restarted.
    async fn rebind(&self, task: &str, alias: &str) {
        let Ok((driver, id)) = self.planner.running(&self.state, task) else { return };
        let Some(plan) = self.planner.plan(&self.state, task) else { return };
        if let Err(why) = plan.rebind(&self.sources, alias, driver.as_ref(), &id).await {
            let words = format!("volumes: the task is started anew to see the new mount: {why}");
            self.state.emit(task, TaskEvent::new(event::HOOK_MESSAGE, clock::now()).message(words));
            // The task may have ended by itself meanwhile.
            let _idle = self.state.restart_because(task, REASON);
        }
    }

    fn tell_broken(&self, request: &VolumeRequest, trouble: &Trouble) {
        let message = format!(
            "volume \"{}\" at {}: {} (broken_mount: {})",
            request.name,
            trouble.path,
            trouble.reason,
            request.broken_mount.as_str()
        );
        for task in self.users_of(&request.name) {
            let event = TaskEvent::new(event::VOLUME_BROKEN, clock::now())
                .detail("volume_id", request.source_for(&self.state.alloc().name))
                .detail("path", trouble.path.clone())
                .detail("reason", trouble.reason.clone())
                .message(message.clone());
            self.state.emit(&task, event);
        }
    }

    /// Returns the tasks that mount a volume of the group; all tasks if none has a `volume_mount` for it.
    fn users_of(&self, alias: &str) -> Vec<String> {
        let alloc = self.state.alloc();
        let tasks = alloc.group().map_or(&[][..], |g| &g.tasks);
        let uses = tasks.iter().filter(|t| t.volume_mounts.iter().any(|m| m.volume == alias));
        let users: Vec<String> = uses.map(|t| t.name.clone()).collect();
        if users.is_empty() { self.state.task_names() } else { users }
    }

    /// Waits until none of these tasks runs.
    async fn until_idle(&self, tasks: &[String]) {
        let mut changes = self.state.changes();
        loop {
            changes.borrow_and_update();
            if !tasks.iter().any(|task| self.state.record(task).is_some_and(|r| r.handle.is_some())) {
                return;
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}
