//! The clients' requests and reports about claims.

use crate::core::Core;
use crate::error::ServerError;
use crate::runtime::select;
use crate::secrets::variables;
use crate::volume::fault::VolumeFault;
use crate::volume::merged_options;
use crate::volume::reconciler::Waits;
use caravan_messages::{self as messages, ClaimGrant, ClaimProgress, Done};
use caravan_rpc::RpcError;
use caravan_state::{Root, Topic};
use caravan_types::command::Change;
use caravan_types::ser::Secrets;
use caravan_types::volume::{Claim, ClaimId, ClaimPhase, Volume};
use futures::Stream;

/// The service for the clients' requests about claims.
#[derive(Clone, Debug)]
pub(crate) struct Claims {
    pub(crate) core: Core,
    pub(crate) waits: Waits,
}

impl Claims {
    /// Returns the progress of a claim until the claim is attached or denied. Sends each change of the wait reason.
    pub(crate) fn claim(
        &self,
        request: messages::ClaimVolume,
    ) -> impl Stream<Item = Result<ClaimProgress, RpcError>> + Send + use<> {
        let state = Progress { claims: self.clone(), request, sent: None, over: false };
        futures::stream::unfold(state, |mut state| async move {
            let progress = state.next().await?;
            Some((Ok(progress), state))
        })
    }

    /// Records the proofs that a client reports. A report about a claim that has ended has no effect, and is no
    /// error.
    pub(crate) async fn report(&self, report: messages::ClaimReport) -> Result<Done, ServerError> {
        let (mut done, mut is_proved) = (None, false);
        // A report may prove several steps together, and a step that lost a race with the reconciler is retried.
        for _ in 0..16 {
            let root = self.core.snapshot();
            let Some(change) = self.effect(&root, &report) else {
                if done.is_none() && !is_proved {
                    // The client reports once. A discarded proof would keep the volume for ever.
                    self.core.prove_newest().await?;
                    is_proved = true;
                    continue;
                }
                if root.claim(&report.claim).is_some_and(|claim| claim.node_id != report.node_id) {
                    let (alloc, node) = (report.claim.alloc, report.node_id);
                    return Err(VolumeFault::ClaimElsewhere { alloc, node }.into());
                }
                return Ok(done.unwrap_or(Done { index: root.index() }));
            };
            let outcome = self.core.propose(change).await?;
            match outcome.refused {
                None => done = Some(Done { index: outcome.index }),
                Some(caravan_types::command::Refusal::Changed { .. }) => {}
                Some(refusal) => return Err(refusal.into()),
            }
        }
        Err(VolumeFault::ClaimChanges(report.claim.alloc).into())
    }

    /// Returns the change that a report causes in a state; `None` if the report adds nothing to that state.
    fn effect(&self, root: &Root, report: &messages::ClaimReport) -> Option<Change> {
        let claim = root.claim(&report.claim)?;
        if claim.node_id != report.node_id || claim.generation != report.generation {
            return None;
        }
        let step = caravan_volumes::claim::reported(claim, &report.step, self.core.now())?;
        Some(Change::ClaimStep { id: report.claim.clone(), expect_modify_index: claim.modify_index, step })
    }
}

struct Progress {
    claims: Claims,
    request: messages::ClaimVolume,
    sent: Option<String>,
    over: bool,
}

impl Progress {
    async fn next(&mut self) -> Option<ClaimProgress> {
        if self.over {
            return None;
        }
        let (core, id) = (self.claims.core.clone(), self.request.claim.clone());
        loop {
            let mut watch =
                core.store.watch().on(Topic::Claim(id.clone())).on(Topic::Volume(id.volume.clone()));
            if let Some(volume) = core.snapshot().volume(&id.volume) {
                let named = variables(&volume.namespace, &volume.secrets_from);
                watch = named.fold(watch, |watch, key| watch.on(Topic::Variable(key)));
            }
            let mut watch = watch.start();
            let waits = self.claims.waits.changed();
            let mut progress = self.look(&id);
            if matches!(progress, ClaimProgress::Denied { .. }) {
                // The node gives up after a denial, so the denial must not come from an old state.
                core.prove_newest().await.ok()?;
                progress = self.look(&id);
            }
            match progress {
                ClaimProgress::Waiting { reason } => {
                    if self.sent.as_ref() != Some(&reason) {
                        self.sent = Some(reason.clone());
                        return Some(ClaimProgress::Waiting { reason });
                    }
                }
                end => {
                    self.over = true;
                    return Some(end);
                }
            }
            select! {
                () = watch.changed() => {}
                () = waits => {}
            }
        }
    }

    fn look(&self, id: &ClaimId) -> ClaimProgress {
        let root = self.claims.core.snapshot();
        let denied = |reason: String| ClaimProgress::Denied { reason };
        let Some(claim) = root.claim(id) else {
            return denied(format!("allocation {} has no claim on volume {}", id.alloc, id.volume.id));
        };
        if claim.node_id != self.request.node_id {
            return denied(format!("the claim of allocation {} is for another node", id.alloc));
        }
        match claim.phase {
            ClaimPhase::Attached | ClaimPhase::Mounted => match root.volume(&id.volume) {
                Some(volume) => match self.claims.core.secrets_of(&root, volume) {
                    Ok(secrets) => ClaimProgress::Attached(Box::new(grant(&root, claim, volume, secrets))),
                    Err(wait) => ClaimProgress::Waiting { reason: wait.to_string() },
                },
                None => denied(format!("volume not found: {}", id.volume.id)),
            },
            ClaimPhase::Reserved | ClaimPhase::Attaching => {
                let wait = self.claims.waits.get(id).map(|wait| wait.to_string());
                let reason = wait.unwrap_or_else(|| {
                    if claim.last_error.is_empty() {
                        format!("waiting for volume \"{}\" to be attached", id.volume.id)
                    } else {
                        format!(
                            "attaching volume \"{}\" failed and is tried again: {}",
                            id.volume.id, claim.last_error
                        )
                    }
                });
                ClaimProgress::Waiting { reason }
            }
            _ => denied(format!("the claim on volume {} is being released", id.volume.id)),
        }
    }
}

fn grant(root: &Root, claim: &Claim, volume: &Volume, secrets: Secrets) -> ClaimGrant {
    let beside = root
        .claims_of(&claim.id.volume)
        .filter(|other| other.phase.holds() && other.node_id == claim.node_id && other.id != claim.id)
        .map(|other| other.id.alloc.clone());
    ClaimGrant {
        beside: Some(beside.collect()),
        claim: claim.clone(),
        external_volume_id: volume.remote_id().to_owned(),
        volume_context: volume.context.clone(),
        mount_options: merged_options(volume, claim),
        secrets,
        fenced: caravan_volumes::lease::needs_fence(claim.access_mode, claim.mode),
    }
}
