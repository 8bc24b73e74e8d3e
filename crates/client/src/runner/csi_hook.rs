//! The hook that keeps an allocation from starting until its volumes are mounted, and gives them back afterwards
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

/// Waits that are shorter are nobody's business; longer ones become an event.
const SHORT: Duration = Duration::from_secs(1);
/// Tries of a mount whose failure may pass, before the allocation fails.
const MOUNT_TRIES: u32 = 5;

/// The claims that an allocation makes.
pub(crate) fn claims(alloc: &Allocation) -> Vec<ClaimId> {
    requests(alloc).into_iter().map(|(claim, _)| claim).collect()
}

fn requests(alloc: &Allocation) -> Vec<(ClaimId, VolumeRequest)> {
    let volumes = alloc.group().into_iter().flat_map(|g| g.csi_volumes());
    volumes.map(|(_, request)| (claim_id(alloc, request), request.clone())).collect()
}

impl AllocRunner {
    /// Claims and mounts every CSI volume of the group; volumes go side by side. What is mounted already, as
    /// proven, is neither claimed nor mounted again. The error is the hook's, in the reference's words.
    pub(super) async fn mount_volumes(&self) -> Result<(), String> {
        let requests = self.requests();
        try_join_all(requests.iter().map(|(claim, request)| self.mount_volume(claim, request)))
            .await
            .map(|_| ())
    }

    /// The claims that the group makes.
    pub(super) fn claims(&self) -> Vec<ClaimId> {
        claims(&self.alloc())
    }

    /// The claims that the group makes, with what they are made of.
    pub(super) fn requests(&self) -> Vec<(ClaimId, VolumeRequest)> {
        requests(&self.alloc())
    }

    async fn mount_volume(&self, claim: &ClaimId, request: &VolumeRequest) -> Result<(), String> {
        let volumes = &self.context().volumes;
        let before = volumes.was_mounted(claim);
        let lives = before && self.has_processes();
        if lives && volumes.is_renewing(claim) {
            // An earlier agent began to mount it anew beneath tasks that run: this one goes on with it.
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
            // It broke under tasks that run while no agent looked. What becomes of them is the request's to say.
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

    /// Asks the servers until they answer for good; each new reason for the wait becomes an event. A fenced claim
    /// comes with the term of the lease in which it was asked for and granted.
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
            // The reason that is to be told, and when.
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
                    // Out of contact in between, the node may have lost what it was granted.
                    Ok(ClaimProgress::Attached(grant)) if grant.fenced && context.lease.term() != term => {}
                    Ok(ClaimProgress::Attached(grant)) => {
                        let term = term.filter(|_| grant.fenced);
                        return Ok((*grant, term));
                    }
                    Ok(ClaimProgress::Denied { reason }) => return Err(reason),
                    Ok(ClaimProgress::Waiting { reason }) => {
                        backoff.reset();
                        // A reason that follows soon takes the place of the one before, but not its time.
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

    /// Carries something out that takes no time as a rule; when it does, why the allocation waits is told.
    async fn saying_if_slow<T>(&self, said: &mut String, reason: String, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(SHORT) => self.say_once(said, reason),
        }
        work.await
    }

    /// Carries a mount out, and tells why it waits: at once where its plugin or another claim keeps it waiting, and
    /// after a while where it only takes its time.
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

    /// Mounts, trying a few times; `again`: what is left of an earlier mount is ended first.
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

    /// Gives every volume back and waits until nothing of them is mounted. Proofs go to the servers meanwhile.
    pub(super) async fn release_volumes(&self) {
        let context = self.context();
        let mut claims = context.volumes.claims_of(&self.alloc().id);
        for claim in &claims {
            context.volumes.release(claim.clone());
        }
        // A claim may be granted on the servers without this node ever having heard of it: nothing was mounted,
        // and only this node can say so.
        for claim in self.claims().into_iter().filter(|c| !claims.contains(c)) {
            context.volumes.report(claim, 0, ClaimReportStep::Unstaged);
        }
        claims.retain(|c| c.alloc == self.alloc().id);
        let ended = context.volumes.released(&claims);
        self.saying_if_slow(&mut String::new(), "its volumes are being unmounted".to_owned(), ended).await;
    }
}

/// Ends at a time, never if there is none.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Owner and mode as the request asks for them; the host's users may be in a directory that takes its time.
pub(super) async fn wish(request: &VolumeRequest) -> Result<Wish, CsiFault> {
    let request = request.clone();
    tokio::task::spawn_blocking(move || Wish::of(&request)).await.map_err(|_| CsiFault::GivenUp)?
}
