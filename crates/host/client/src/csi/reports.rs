//! Proofs of steps, delivered to the servers in order and retried until accepted.

use crate::clock::Backoff;
use crate::servers::Servers;
use crate::state::Identity;
use caravan_messages::{ClaimReport, ClaimReportStep};
use caravan_rpc::Code;
use caravan_types::volume::ClaimId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The delivery of reports. Clones share the lanes.
#[derive(Clone, Debug)]
pub(crate) struct Reports {
    servers: Arc<dyn Servers>,
    identity: Arc<Identity>,
    /// A lock per claim: reports are sent one at a time, so that a late one does not overtake.
    lanes: Arc<Mutex<HashMap<ClaimId, Arc<tokio::sync::Mutex<()>>>>>,
    cancel: CancellationToken,
}

/// The failure of a delivery: the client ended before the servers accepted the report. The ledger still has the
/// entry.
#[derive(Debug)]
pub(crate) struct Undelivered;

impl Reports {
    /// Creates a sender for the reports of this node, which works until cancelled.
    pub(crate) fn new(servers: Arc<dyn Servers>, identity: Arc<Identity>, cancel: CancellationToken) -> Self {
        Self { servers, identity, lanes: Arc::default(), cancel }
    }

    /// Delivers a step, retrying until the servers have accepted or refused it.
    pub(crate) async fn deliver(
        &self,
        claim: &ClaimId,
        generation: u32,
        step: ClaimReportStep,
    ) -> Result<(), Undelivered> {
        let lane = Arc::clone(self.lanes.lock().entry(claim.clone()).or_default());
        let delivering = async {
            let _turn = lane.lock().await;
            let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(15));
            loop {
                match self.send(claim, generation, step.clone()).await {
                    Ok(()) => return,
                    Err(error) if is_refusal(error.code) => {
                        tracing::warn!(volume = %claim.volume, alloc = %claim.alloc, ?step, %error, "the servers refused a claim report");
                        return;
                    }
                    Err(error) => {
                        tracing::debug!(volume = %claim.volume, alloc = %claim.alloc, %error, "a claim report cannot be sent; retrying");
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

    /// Reports a failure without a retry: the next failure replaces it.
    pub(crate) async fn failed(&self, claim: &ClaimId, generation: u32, error: String, tries: u32) {
        let step = ClaimReportStep::Failed { error, tries };
        if let Err(error) = self.send(claim, generation, step).await {
            tracing::debug!(volume = %claim.volume, alloc = %claim.alloc, %error, "a failure could not be reported");
        }
    }

    /// Removes the lane of a claim that needs no more reports.
    pub(crate) fn remove(&self, claim: &ClaimId) {
        self.lanes.lock().remove(claim);
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

/// Returns whether a retry cannot help, because the servers refused the report.
fn is_refusal(code: Code) -> bool {
    matches!(code, Code::NotFound | Code::Invalid | Code::Conflict | Code::Permission)
}
