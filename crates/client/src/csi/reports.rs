//! Proofs of steps, delivered to the servers in order and until they are taken.

use crate::clock::Backoff;
use crate::servers::Servers;
use crate::state::Identity;
use caravan_rpc::Code;
use caravan_types::volume::ClaimId;
use caravan_types::wire::{ClaimReport, ClaimReportStep};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Delivers reports. Clones share the lanes.
#[derive(Clone, Debug)]
pub(crate) struct Reports {
    servers: Arc<dyn Servers>,
    identity: Arc<Identity>,
    /// One report of a claim at a time: a late one must not overtake.
    lanes: Arc<Mutex<HashMap<ClaimId, Arc<tokio::sync::Mutex<()>>>>>,
    cancel: CancellationToken,
}

/// The client ends before the servers took the report; the ledger still has the entry.
#[derive(Debug)]
pub(crate) struct Undelivered;

impl Reports {
    /// Reports of this node, until cancelled.
    pub(crate) fn new(servers: Arc<dyn Servers>, identity: Arc<Identity>, cancel: CancellationToken) -> Self {
        Self { servers, identity, lanes: Arc::default(), cancel }
    }

    /// Delivers a step, trying again until the servers have taken or refused it.
    pub(crate) async fn deliver(
        &self,
        claim: &ClaimId,
        generation: u32,
        step: ClaimReportStep,
    ) -> Result<(), Undelivered> {
        let lane = Arc::clone(
            self.lanes.lock().unwrap_or_else(PoisonError::into_inner).entry(claim.clone()).or_default(),
        );
        let delivering = async {
            let _turn = lane.lock().await;
            let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(15));
            loop {
                match self.send(claim, generation, step.clone()).await {
                    Ok(()) => return,
                    Err(error) if is_refusal(error.code) => {
                        tracing::warn!(volume = %claim.volume, alloc = %claim.alloc, ?step, %error, "the servers refuse a report of a claim");
                        return;
                    }
                    Err(error) => {
                        tracing::debug!(volume = %claim.volume, alloc = %claim.alloc, %error, "a report of a claim waits for the servers");
                        tokio::time::sleep(backoff.delay()).await;
                    }
                }
            }
        };
        tokio::select! {
            () = self.cancel.cancelled() => Err(Undelivered),
            () = delivering => Ok(()),
        }
    }

    /// Tells of a failure, once: the next one tells more.
    pub(crate) async fn failed(&self, claim: &ClaimId, generation: u32, error: String, tries: u32) {
        let step = ClaimReportStep::Failed { error, tries };
        if let Err(error) = self.send(claim, generation, step).await {
            tracing::debug!(volume = %claim.volume, alloc = %claim.alloc, %error, "a failure could not be reported");
        }
    }

    /// Nothing more will be said of a claim.
    pub(crate) fn forget(&self, claim: &ClaimId) {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner).remove(claim);
    }

    async fn send(
        &self,
        claim: &ClaimId,
        generation: u32,
        step: ClaimReportStep,
    ) -> Result<(), caravan_rpc::RpcError> {
        let report = ClaimReport {
            node_id: self.identity.node_id.clone(),
            secret: self.identity.secret.clone(),
            claim: claim.clone(),
            generation,
            step,
        };
        self.servers.claim_report(report).await.map(|_| ())
    }
}

/// Whether trying again cannot help: the servers know better about this claim.
fn is_refusal(code: Code) -> bool {
    matches!(code, Code::NotFound | Code::Invalid | Code::Conflict | Code::Permission)
}
