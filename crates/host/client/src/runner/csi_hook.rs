//! The hook that mounts an allocation's CSI volumes before its tasks start, and releases them afterwards
//! (docs/reference/storage.md, section 4.3).

use super::binds::claim_id;
use super::fence;
use super::hooks::{AllocHook, HookContext};
use crate::clock::Backoff;
use crate::csi::owner::Wish;
use crate::csi::{CsiFault, VolumeManager};
use crate::lease::NodeLease;
use crate::servers::Link;
use async_trait::async_trait;
use caravan_messages::{ClaimGrant, ClaimProgress, ClaimReportStep, ClaimVolume};
use caravan_sys::cgroup::{Cgroup, Hierarchy};
use caravan_types::alloc::Allocation;
use caravan_types::job::VolumeRequest;
use caravan_types::volume::ClaimId;
use futures::StreamExt;
use futures::future::try_join_all;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The longest wait that is not reported; a longer wait becomes an event.
const SHORT: Duration = Duration::from_secs(1);
/// The most attempts of a mount whose failure may be temporary, before the allocation fails.
const MOUNT_TRIES: u32 = 5;

/// Returns the claims of an allocation.
pub(crate) fn claims(alloc: &Allocation) -> Vec<ClaimId> {
    requests(alloc).into_iter().map(|(claim, _)| claim).collect()
}

pub(super) fn requests(alloc: &Allocation) -> Vec<(ClaimId, VolumeRequest)> {
    let volumes = alloc.group().into_iter().flat_map(|g| g.csi_volumes());
    volumes.map(|(_, request)| (claim_id(alloc, request), request.clone())).collect()
}

/// The hook of CSI volumes.
#[derive(Clone, Debug)]
pub(super) struct CsiHook {
    pub(super) volumes: VolumeManager,
    pub(super) link: Link,
    pub(super) lease: NodeLease,
    /// The parent of the control groups of tasks.
    pub(super) cgroup_parent: String,
}

#[async_trait]
impl AllocHook for CsiHook {
    /// Claims and mounts every CSI volume of the group in parallel. A volume that is still mounted, by its proof, is
    /// neither claimed nor mounted again. The error is the hook's, in Nomad's words.
    async fn prepare(&self, cx: &HookContext<'_>) -> Result<(), String> {
        let requests = requests(&cx.alloc());
        try_join_all(requests.iter().map(|(claim, request)| self.mount_volume(cx, claim, request)))
            .await
            .map(|_| ())
    }

    /// Releases every volume and waits until none is mounted. Proofs are sent to the servers meanwhile.
    async fn release(&self, cx: &HookContext<'_>) {
        let mut held = self.volumes.claims_of(&cx.alloc().id);
        for claim in &held {
            self.volumes.release(claim.clone());
        }
        // The servers may have granted a claim without this node ever receiving it. Nothing was mounted then, and only
        // this node can prove that.
        for claim in claims(&cx.alloc()).into_iter().filter(|c| !held.contains(c)) {
            self.volumes.report(claim, 0, ClaimReportStep::Unstaged);
        }
        held.retain(|c| c.alloc == cx.alloc().id);
        let ended = self.volumes.released(&held);
        self.saying_if_slow(cx, &mut String::new(), "its volumes are being unmounted".to_owned(), ended)
            .await;
    }
}

impl CsiHook {
    async fn mount_volume(
        &self,
        cx: &HookContext<'_>,
        claim: &ClaimId,
        request: &VolumeRequest,
    ) -> Result<(), String> {
        let volumes = &self.volumes;
        let before = volumes.was_mounted(claim);
        let lives = before && has_processes(&self.cgroup_parent, cx);
        if lives && volumes.is_renewing(claim) {
            // An earlier agent began to mount the volume again beneath running tasks: this agent continues that.
            return Ok(());
        }
        if volumes.is_mounted(claim).await {
            tracing::debug!(volume = %claim.volume, alloc = %claim.alloc, "volume is still mounted");
            if volumes.is_renewing(claim) {
                volumes.renewed(claim).await;
            }
            return Ok(());
        }
        if lives {
            // The mount broke beneath running tasks while no agent ran. The request's `broken_mount` decides the
            // reaction.
            return Ok(());
        }
        let failed = |fault: CsiFault| format!("mounting volumes: {fault}");
        let wish = wish(request).await.map_err(failed)?;
        let (grant, term) = self.await_claim(cx, claim).await.map_err(|reason| {
            format!("claiming volumes: could not claim volume {}: {reason}", claim.volume.id)
        })?;
        self.mount_patiently(cx, &grant, &wish, term, before).await.map_err(failed)?;
        if before {
            volumes.renewed(claim).await;
        }
        Ok(())
    }

    /// Requests a claim until the servers grant or deny it; each new reason for the wait becomes an event. A fenced
    /// claim is returned with the lease term in which it was requested and granted.
    pub(super) async fn await_claim(
        &self,
        cx: &HookContext<'_>,
        claim: &ClaimId,
    ) -> Result<(ClaimGrant, Option<u64>), String> {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(15));
        let (mut reported, fenced) = (String::new(), fence::is_fenced_alloc(&cx.alloc()));
        loop {
            let term = if fenced { Some(self.lease.granted().await) } else { None };
            let request = ClaimVolume {
                node_id: self.link.identity.node_id.clone(),
                secret: self.link.identity.secret.clone(),
                claim: claim.clone(),
            };
            let mut answers = self.link.servers.claim_volume(request).await;
            // The reason to report next, and the time of the report.
            let mut unreported: Option<(Instant, String)> = None;
            loop {
                let due = unreported.as_ref().map(|(at, _)| *at);
                let answer = tokio::select! {
                    answer = answers.next() => answer,
                    () = until(due) => {
                        if let Some((_, reason)) = unreported.take() {
                            say_once(cx, &mut reported, reason);
                        }
                        continue;
                    }
                };
                let Some(answer) = answer else { break };
                match answer {
                    // The node was out of contact meanwhile and may have lost the grant.
                    Ok(ClaimProgress::Attached(grant)) if grant.fenced && self.lease.term() != term => {}
                    Ok(ClaimProgress::Attached(grant)) => {
                        let term = term.filter(|_| grant.fenced);
                        return Ok((*grant, term));
                    }
                    Ok(ClaimProgress::Denied { reason }) => return Err(reason),
                    Ok(ClaimProgress::Waiting { reason }) => {
                        backoff.reset();
                        // A new reason replaces an unreported one, but keeps its time.
                        unreported = Some((due.unwrap_or_else(|| Instant::now() + SHORT), reason));
                    }
                    Err(error) => {
                        tracing::debug!(volume = %claim.volume, alloc = %claim.alloc, %error, "a claim call failed; retrying");
                    }
                }
            }
            tokio::time::sleep(backoff.delay()).await;
        }
    }

    /// Runs an operation that is normally quick. If it is slow, the reason for the wait is reported.
    async fn saying_if_slow<T>(
        &self,
        cx: &HookContext<'_>,
        reported: &mut String,
        reason: String,
        work: impl Future<Output = T>,
    ) -> T {
        tokio::pin!(work);
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(SHORT) => say_once(cx, reported, reason),
        }
        work.await
    }

    /// Runs a mount and reports the reasons of its waits: immediately if its plugin or another claim blocks it, and
    /// after [`SHORT`] if it is only slow.
    pub(super) async fn saying_waits<T>(
        &self,
        cx: &HookContext<'_>,
        reported: &mut String,
        grant: &ClaimGrant,
        (reason, attempt): (String, u32),
        mut waits: watch::Receiver<String>,
        work: impl Future<Output = T>,
    ) -> T {
        let slow = tokio::time::sleep(SHORT);
        tokio::pin!(work, slow);
        let mut is_slow = false;
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = &mut slow, if !is_slow => {
                    is_slow = true;
                    say_once(cx, reported, reason.clone());
                }
                Ok(()) = waits.changed() => {
                    let why = waits.borrow_and_update().clone();
                    is_slow = true;
                    self.volumes.report_failure(grant, why.clone(), attempt);
                    say_once(cx, reported, why);
                }
            }
        }
    }

    /// Mounts a volume with several attempts. With `again`, the remains of an earlier mount are ended first.
    async fn mount_patiently(
        &self,
        cx: &HookContext<'_>,
        grant: &ClaimGrant,
        wish: &Wish,
        term: Option<u64>,
        again: bool,
    ) -> Result<(), CsiFault> {
        let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(10));
        let mut reported = String::new();
        for attempt in 1..=MOUNT_TRIES {
            let (volume, plugin) = (&grant.claim.id.volume.id, &grant.claim.plugin_id);
            let under_way = format!("plugin {plugin} is mounting volume {volume}");
            let volumes = &self.volumes;
            let (waits, waiting) = watch::channel(String::new());
            let mount = async {
                match again {
                    true => volumes.remount(grant, wish, term, &waits).await,
                    false => volumes.mount(grant, wish, term, &waits).await,
                }
            };
            match self.saying_waits(cx, &mut reported, grant, (under_way, attempt), waiting, mount).await {
                Ok(_) => return Ok(()),
                Err(fault) if fault.is_retryable() && attempt < MOUNT_TRIES => {
                    self.volumes.report_failure(grant, fault.to_string(), attempt);
                    say_once(
                        cx,
                        &mut reported,
                        format!(
                            "mounting volume {} failed and is tried again: {fault}",
                            grant.claim.id.volume.id
                        ),
                    );
                    tokio::time::sleep(backoff.delay()).await;
                }
                Err(fault) => return Err(fault),
            }
        }
        Err(CsiFault::GivenUp)
    }
}

/// Reports the reason of a wait, unless it was the last reported one.
pub(super) fn say_once(cx: &HookContext<'_>, reported: &mut String, reason: String) {
    if *reported != reason {
        cx.tell_waiting(&reason);
        *reported = reason;
    }
}

/// Waits until a time; waits for ever without one.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Resolves the owner and mode of a request. The look-up of users may be slow, because the host may query a directory
/// service.
pub(super) async fn wish(request: &VolumeRequest) -> Result<Wish, CsiFault> {
    let request = request.clone();
    tokio::task::spawn_blocking(move || Wish::from_request(&request)).await.map_err(|_| CsiFault::GivenUp)?
}

/// Returns whether a process of a task that an earlier agent started still runs.
fn has_processes(cgroup_parent: &str, cx: &HookContext<'_>) -> bool {
    let parent = cgroup_parent.trim_start_matches('/');
    let alloc = cx.id();
    let Ok(Some(hierarchy)) = Hierarchy::detect() else { return false };
    cx.task_names().iter().any(|task| {
        let path = std::path::Path::new(parent).join(format!("{alloc}.{task}"));
        Cgroup::at(&hierarchy, &path).and_then(|group| group.is_empty()).is_ok_and(|empty| !empty)
    })
}
