//! The detach of a volume: the call, and the steps after a plugin's refusal.

use super::Reconciler;
use crate::error::ServerError;
use crate::volume::calls::Lane;
use crate::volume::controller::{CallError, Controllers};
use crate::volume::merged_options;
use caravan_messages::{ControllerAnswer, ControllerOperation};
use caravan_state::Root;
use caravan_types::command::{ClaimStep, LetGo};
use caravan_types::ser::Secrets;
use caravan_types::volume::{Claim, Volume};
use caravan_volumes::claim::let_go;
use caravan_volumes::detach::{AfterRefusal, Listed, Refusal, after_refusal, lists_nodes};

/// The maximum number of pages of a plugin's list that are read for one attachment.
const MAX_PAGES: usize = 200;

/// A detach in progress.
struct Detach<'a> {
    root: &'a Root,
    claim: &'a Claim,
    volume: Option<&'a Volume>,
    controllers: Controllers,
    secrets: Secrets,
}

/// The proof that nothing is attached.
enum Detached {
    /// The plugin detached the volume.
    ByCall,
    /// The plugin refused before; the text states how the detach was settled.
    Settled(String),
}

impl Reconciler {
    pub(super) async fn detach(&self, claim: &Claim) -> Result<(), ServerError> {
        let _permit = self.controllers.calls.permit(&claim.plugin_id, Lane::Detach).await;
        let intent = let_go(claim, LetGo::IntendDetach);
        let Some(index) = self.step(&claim.id, claim.modify_index, intent).await? else { return Ok(()) };
        let root = self.core.snapshot();
        let volume = root.volume(&claim.id.volume).map(|v| &**v);
        let secrets = match self.core.secrets_for(&root, claim, volume) {
            Ok(secrets) => secrets,
            Err(wait) => return self.conclude(claim, index, Err(wait.into())).await,
        };
        let controllers = self.controllers.about(&claim.id.volume, Some(&claim.id.alloc));
        let detach = Detach { root: &root, claim, volume, controllers, secrets };
        match detach.run().await {
            Ok(Detached::ByCall) => self.conclude(claim, index, Ok(ClaimStep::Freed)).await,
            Ok(Detached::Settled(how)) => {
                tracing::warn!(volume = %claim.id.volume, alloc = %claim.id.alloc, %how, "a refused detach is settled");
                // The history records how the detach was settled.
                let note = ClaimStep::Failed { error: how, next_try: self.core.now() };
                let Some(index) = self.step(&claim.id, index, note).await? else { return Ok(()) };
                self.conclude(claim, index, Ok(ClaimStep::Freed)).await
            }
            Err(error) => self.conclude(claim, index, Err(error)).await,
        }
    }
}

impl Detach<'_> {
    async fn run(&self) -> Result<Detached, CallError> {
        let refused = match self.unpublish().await {
            Ok(()) => return Ok(Detached::ByCall),
            Err(error) if error.is_answer() => error,
            Err(error) => return Err(error),
        };
        let plugin = self.root.plugin(&self.claim.plugin_id).map(|plugin| &**plugin);
        let mut refusal = Refusal {
            tries: self.claim.tries,
            lists_nodes: lists_nodes(plugin),
            listed: None,
            has_volume: self.volume.is_some(),
        };
        let node = &self.claim.external_node_id;
        loop {
            match (after_refusal(refusal), self.volume) {
                (AfterRefusal::List, _) => refusal.listed = Some(self.list().await),
                (AfterRefusal::Detached, _) => {
                    let how = format!(
                        "{refused}; the plugin lists no attachment to node \"{node}\": the claim goes on"
                    );
                    return Ok(Detached::Settled(how));
                }
                (AfterRefusal::AttachAgain, Some(volume)) => return self.attach_again(refused, volume).await,
                (AfterRefusal::AttachAgain, None) | (AfterRefusal::Retry, _) => {
                    return Err(match refusal.listed {
                        Some(Listed::Attached) => {
                            CallError::StillAttached { refused: refused.into(), node: node.clone() }
                        }
                        _ => refused,
                    });
                }
            }
        }
    }

    async fn call(&self, operation: ControllerOperation) -> Result<ControllerAnswer, CallError> {
        self.controllers.call(self.root, &self.claim.plugin_id, operation).await
    }

    async fn unpublish(&self) -> Result<(), CallError> {
        let operation = ControllerOperation::Unpublish {
            external_id: external_id(self.claim, self.volume),
            external_node_id: self.claim.external_node_id.clone(),
            secrets: self.secrets.clone(),
        };
        let name = operation.name();
        match self.call(operation).await? {
            ControllerAnswer::Done => Ok(()),
            _ => Err(CallError::OtherAnswer { call: name }),
        }
    }

    /// Returns whether the plugin lists the attachment.
    async fn list(&self) -> Listed {
        let (id, node) = (external_id(self.claim, self.volume), &self.claim.external_node_id);
        let mut starting_token = String::new();
        for _ in 0..MAX_PAGES {
            let call = ControllerOperation::List { max_entries: 0, starting_token };
            let Ok(ControllerAnswer::Listed { volumes, next_token }) = self.call(call).await else {
                return Listed::Unknown;
            };
            if let Some(volume) = volumes.iter().find(|volume| volume.external_id == id) {
                let attached = volume.published_external_node_ids.contains(node);
                return if attached { Listed::Attached } else { Listed::Absent };
            }
            if next_token.is_empty() {
                return Listed::Unknown;
            }
            starting_token = next_token;
        }
        Listed::Unknown
    }

    /// Attaches the volume to the same node again, so that the plugin records the attachment, and detaches the
    /// volume.
    async fn attach_again(&self, refused: CallError, volume: &Volume) -> Result<Detached, CallError> {
        let node = &self.claim.external_node_id;
        let operation = ControllerOperation::Publish {
            external_id: external_id(self.claim, Some(volume)),
            external_node_id: node.clone(),
            usage: self.claim.usage(),
            mount_options: merged_options(volume, self.claim),
            secrets: self.secrets.clone(),
            context: volume.context.clone(),
        };
        match self.call(operation).await {
            Ok(_) => {}
            // A node or a volume that does not exist has no attachment.
            Err(error) if error.is_missing() => {
                return Ok(Detached::Settled(format!("{refused}; {error}: the claim goes on")));
            }
            Err(again) => {
                return Err(CallError::NotRepaired { refused: refused.into(), again: again.into() });
            }
        }
        match self.unpublish().await {
            Ok(()) => Ok(Detached::Settled(format!(
                "{refused}; the volume was attached to node \"{node}\" again and then detached: the claim goes on"
            ))),
            Err(again) => Err(CallError::NotRepaired { refused: refused.into(), again: again.into() }),
        }
    }
}

fn external_id(claim: &Claim, volume: Option<&Volume>) -> String {
    if claim.external_volume_id.is_empty() {
        volume.map_or_else(|| claim.id.volume.id.to_string(), |v| v.remote_id().to_owned())
    } else {
        claim.external_volume_id.clone()
    }
}
