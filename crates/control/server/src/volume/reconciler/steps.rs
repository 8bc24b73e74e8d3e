//! The execution of claim steps: the reconciler writes the intent, makes the call, and writes the outcome.

use super::Reconciler;
use crate::error::ServerError;
use crate::volume::calls::Lane;
use crate::volume::controller::CallError;
use crate::volume::expand;
use crate::volume::merged_options;
use caravan_messages::{ControllerAnswer, ControllerOperation};
use caravan_state::Root;
use caravan_types::command::{Change, ClaimStep, LetGo, Refusal};
use caravan_types::volume::{Claim, ClaimId, ClaimPhase};
use caravan_volumes::claim::let_go;
use caravan_volumes::reconcile::Action;
use std::collections::BTreeMap;

impl Reconciler {
    pub(super) async fn act(&self, root: &Root, claim: &Claim, action: Action) -> Result<(), ServerError> {
        let step = match action {
            Action::Attach { external_node_id } => return self.attach(claim, external_node_id).await,
            Action::Detach => return self.detach(claim).await,
            Action::ExpandNode { to } => return expand::node(self, claim, to).await.map(drop),
            Action::MarkAttached { external_node_id } => ClaimStep::Attached {
                publish_context: BTreeMap::new(),
                needs_attach: false,
                external_node_id,
            },
            Action::LeaveAttached => let_go(claim, LetGo::LeftAttached),
            Action::Free => let_go(claim, LetGo::Freed),
            Action::Fence { silence, wait } => {
                tracing::warn!(volume = %claim.id.volume, node = %claim.node_id, %wait, index = root.index(), "the node vanished: fencing its claim");
                ClaimStep::Fence { until: self.core.now().plus(wait), silence: Some(silence) }
            }
            Action::WaitForClient(_)
            | Action::WaitForPlugin(_)
            | Action::WaitUntil { .. }
            | Action::Nothing => return Ok(()),
        };
        self.step(&claim.id, claim.modify_index, step).await.map(drop)
    }

    /// Records a step; `None` if the claim changed meanwhile, which the next check handles.
    pub(in crate::volume) async fn step(
        &self,
        id: &ClaimId,
        expect: u64,
        step: ClaimStep,
    ) -> Result<Option<u64>, ServerError> {
        let change = Change::ClaimStep { id: id.clone(), expect_modify_index: expect, step };
        let outcome = self.core.propose(change).await?;
        match outcome.refused {
            None => Ok(Some(outcome.index)),
            Some(Refusal::Changed { .. } | Refusal::NotFound { .. }) => Ok(None),
            Some(refusal) => Err(refusal.into()),
        }
    }

    /// Records the outcome of a call. A claim whose allocation ended meanwhile keeps its new phase: the intent
    /// already records that the call may have been executed.
    pub(in crate::volume) async fn conclude(
        &self,
        claim: &Claim,
        index: u64,
        step: Result<ClaimStep, CallError>,
    ) -> Result<(), ServerError> {
        let step = match step {
            Ok(step) => step,
            // The intent stays, and is resumed after the restart.
            Err(_) if self.controllers.cut.is_cancelled() => return Ok(()),
            Err(error) => {
                self.seens.failed(claim, error.failure());
                let text = error.to_string();
                if claim.last_error != text {
                    tracing::warn!(volume = %claim.id.volume, alloc = %claim.id.alloc, %error, "a controller call failed; retrying");
                }
                let pause = caravan_volumes::retry::delay(claim.tries.saturating_add(1));
                let next_try = self.core.now().plus(pause);
                match claim.phase {
                    // The intent was written, so the claim is attaching now.
                    ClaimPhase::Reserved | ClaimPhase::Attaching if error.proves_no_effect() => {
                        ClaimStep::AttachRefused { error: text, next_try }
                    }
                    _ => ClaimStep::Failed { error: text, next_try },
                }
            }
        };
        self.step(&claim.id, index, step).await.map(drop)
    }

    async fn attach(&self, claim: &Claim, external_node_id: String) -> Result<(), ServerError> {
        let _permit = self.controllers.calls.permit(&claim.plugin_id, Lane::Attach).await;
        let intent = ClaimStep::IntendAttach { external_node_id: external_node_id.clone() };
        let Some(index) = self.step(&claim.id, claim.modify_index, intent).await? else { return Ok(()) };
        // The wait for the permit may have taken long.
        let root = self.core.snapshot();
        let Some(volume) = root.volume(&claim.id.volume) else { return Ok(()) };
        let secrets = match self.core.secrets_of(&root, volume) {
            Ok(secrets) => secrets,
            Err(wait) => return self.conclude(claim, index, Err(wait.into())).await,
        };
        let operation = ControllerOperation::Publish {
            external_id: volume.remote_id().to_owned(),
            external_node_id: external_node_id.clone(),
            usage: claim.usage(),
            mount_options: merged_options(volume, claim),
            secrets,
            context: volume.context.clone(),
        };
        let name = operation.name();
        let controllers = self.controllers.about(&claim.id.volume, Some(&claim.id.alloc));
        let step = match controllers.call(&root, &claim.plugin_id, operation).await {
            Ok(ControllerAnswer::Published { publish_context }) => {
                Ok(ClaimStep::Attached { publish_context, needs_attach: true, external_node_id })
            }
            Ok(_) => Err(CallError::OtherAnswer { call: name }),
            Err(error) => Err(error),
        };
        self.conclude(claim, index, step).await
    }
}
