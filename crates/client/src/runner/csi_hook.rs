//! The hook that mounts an allocation's CSI volumes before its tasks start, and releases them afterwards
//! (docs/reference/storage.md, section 4.3).

use super::alloc::AllocRunner;
use super::binds::claim_id;
use crate::clock::Backoff;
use crate::csi::CsiFault;
use crate::csi::owner::Wish;
use caravan_types::alloc::Allocation;
use caravan_types::job::VolumeRequest;
use caravan_types::volume::ClaimId;
use caravan_types::wire::{ClaimGrant, ClaimProgress, ClaimReportStep, ClaimVolume};
use futures::StreamExt;
use futures::future::try_join_all;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Shorter waits are not reported; longer ones become an event.
const SHORT: Duration = Duration::from_secs(1);
/// The most attempts of a mount whose failure may be temporary, before the allocation fails.
const MOUNT_TRIES: u32 = 5;

/// Returns the claims of an allocation.
pub(crate) fn claims(alloc: &Allocation) -> Vec<ClaimId> {
    requests(alloc).into_iter().map(|(claim, _)| claim).collect()
}

fn requests(alloc: &Allocation) -> Vec<(ClaimId, VolumeRequest)> {
    let volumes = alloc.group().into_iter().flat_map(|g| g.csi_volumes());
    volumes.map(|(_, request)| (claim_id(alloc, request), request.clone())).collect()
}

impl AllocRunner {
    /// Claims and mounts every CSI volume of the group in parallel. A volume that is still mounted, by its proof, is
    /// neither claimed nor mounted again. The error is the hook's, in Nomad's words.
    pub(super) async fn mount_volumes(&self) -> Result<(), String> {
        let requests = self.requests();
        try_join_all(requests.iter().map(|(claim, request)| self.mount_volume(claim, request)))
            .await
            .map(|_| ())
    }

    /// Returns the claims of the group.
    pub(super) fn claims(&self) -> Vec<ClaimId> {
        claims(&self.alloc())
    }

    /// Returns the claims of the group with their volume requests.
    pub(super) fn requests(&self) -> Vec<(ClaimId, VolumeRequest)> {
        requests(&self.alloc())
    }

    async fn mount_volume(&self, claim: &ClaimId, request: &VolumeRequest) -> Result<(), String> {
        let volumes = &self.context().volumes;
        let before = volumes.was_mounted(claim);
        let lives = before && self.has_processes();
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
            // The mount broke beneath running tasks while no agent ran. The request's `broken_mount` decides how to
            // react.
            return Ok(());
        }
        let failed = |fault: CsiFault| format!("mounting volumes: {fault}");
        let wish = wish(request).await.map_err(failed)?;
        let (grant, term) = self.await_claim(claim).await.map_err(|reason| {
            format!("claiming volumes: could not claim volume {}: {reason}", claim.volume.id)
        })?;
        self.mount_patiently(&grant, &wish, term, before).await.map_err(failed)?;
        if before {
            volumes.renewed(claim).await;
        }
        Ok(())
    }

    /// Requests a claim until the servers grant or deny it; each new reason for the wait becomes an event. A fenced
    /// claim is returned with the lease term in which it was requested and granted.
    pub(super) async fn await_claim(&self, claim: &ClaimId) -> Result<(ClaimGrant, Option<u64>), String> {
        let context = self.context();
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(15));
        let (mut said, fenced) = (String::new(), self.is_fenced());
        loop {
            let term = if fenced { Some(context.lease.granted().await) } else { None };
            let request = ClaimVolume {
                node_id: context.identity.node_id.clone(),
                secret: context.identity.secret.clone(),
                claim: claim.clone(),
            };
            let mut answers = context.servers.claim_volume(request).await;
            // The reason to report next, and when to report it.
            let mut untold: Option<(Instant, String)> = None;
            loop {
                let due = untold.as_ref().map(|(at, _)| *at);
                let answer = tokio::select! {
                    answer = answers.next() => answer,
                    () = until(due) => {
                        if let Some((_, reason)) = untold.take() {
                            self.say_once(&mut said, reason);
                        }
                        continue;
                    }
                };
                let Some(answer) = answer else { break };
                match answer {
                    // The node was out of contact meanwhile and may have lost the grant.
                    Ok(ClaimProgress::Attached(grant)) if grant.fenced && context.lease.term() != term => {}
                    Ok(ClaimProgress::Attached(grant)) => {
                        let term = term.filter(|_| grant.fenced);
                        return Ok((*grant, term));
                    }
                    Ok(ClaimProgress::Denied { reason }) => return Err(reason),
                    Ok(ClaimProgress::Waiting { reason }) => {
                        backoff.reset();
                        // A new reason replaces an unreported one, but keeps its time.
                        untold = Some((due.unwrap_or_else(|| Instant::now() + SHORT), reason));
                    }
                    Err(error) => {
                        tracing::debug!(volume = %claim.volume, alloc = %claim.alloc, %error, "a claim waits for the servers");
                    }
                }
            }
            tokio::time::sleep(backoff.delay()).await;
        }
    }

    pub(super) fn say_once(&self, said: &mut String, reason: String) {
        if *said != reason {
            self.tell_waiting(&reason);
            *said = reason;
        }
    }

    /// Runs an operation that is normally quick. If it is slow, the reason for the wait is reported.
    async fn saying_if_slow<T>(&self, said: &mut String, reason: String, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(SHORT) => self.say_once(said, reason),
        }
        work.await
    }

    /// Runs a mount and reports why it waits: at once if its plugin or another claim blocks it, and after [`SHORT`] if
    /// it is only slow.
    pub(super) async fn saying_waits<T>(
        &self,
        said: &mut String,
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
                    self.say_once(said, reason.clone());
                }
                Ok(()) = waits.changed() => {
                    let why = waits.borrow_and_update().clone();
                    is_slow = true;
                    self.context().volumes.report_failure(grant, why.clone(), attempt);
                    self.say_once(said, why);
                }
            }
        }
    }

    /// Mounts a volume with several attempts; `again`: the remains of an earlier mount are ended first.
    async fn mount_patiently(
        &self,
        grant: &ClaimGrant,
        wish: &Wish,
        term: Option<u64>,
        again: bool,
    ) -> Result<(), CsiFault> {
        let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(10));
        let mut said = String::new();
        for attempt in 1..=MOUNT_TRIES {
            let (volume, plugin) = (&grant.claim.id.volume.id, &grant.claim.plugin_id);
            let under_way = format!("plugin {plugin} is mounting volume {volume}");
            let volumes = &self.context().volumes;
            let (waits, waiting) = watch::channel(String::new());
            let mount = async {
                match again {
                    true => volumes.remount(grant, wish, term, &waits).await,
                    false => volumes.mount(grant, wish, term, &waits).await,
                }
            };
            match self.saying_waits(&mut said, grant, (under_way, attempt), waiting, mount).await {
                Ok(_) => return Ok(()),
                Err(fault) if fault.is_retryable() && attempt < MOUNT_TRIES => {
                    self.context().volumes.report_failure(grant, fault.to_string(), attempt);
                    self.say_once(
                        &mut said,
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

    /// Releases every volume and waits until none is mounted. Proofs are sent to the servers meanwhile.
    pub(super) async fn release_volumes(&self) {
        let context = self.context();
        let mut claims = context.volumes.claims_of(&self.alloc().id);
        for claim in &claims {
            context.volumes.release(claim.clone());
        }
        // The servers may have granted a claim without this node ever receiving it. Nothing was mounted then, and only
        // this node can prove that.
        for claim in self.claims().into_iter().filter(|c| !claims.contains(c)) {
            context.volumes.report(claim, 0, ClaimReportStep::Unstaged);
        }
        claims.retain(|c| c.alloc == self.alloc().id);
        let ended = context.volumes.released(&claims);
        self.saying_if_slow(&mut String::new(), "its volumes are being unmounted".to_owned(), ended).await;
    }
}

/// Waits until a time; waits for ever without one.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Resolves the owner and mode of a request. Looking up users may be slow, because a directory service may be asked.
pub(super) async fn wish(request: &VolumeRequest) -> Result<Wish, CsiFault> {
    let request = request.clone();
    tokio::task::spawn_blocking(move || Wish::of(&request)).await.map_err(|_| CsiFault::GivenUp)?
}
