//! The waits of this server, and their beginnings on its own clock.
//!
//! Records state that a wait exists; the server that waits measures its duration. After a restart every wait starts
//! again.

use super::Reconciler;
use crate::volume::controller::CallFailure;
use caravan_state::Root;
use caravan_types::plugin::Plugin;
use caravan_types::volume::{Claim, ClaimId, ClaimPhase, Volume};
use caravan_types::{AllocId, BootInstant, NodeId, UnixNanos, VolumeKey};
use caravan_volumes::reconcile::{Presence, Seen, silence};
use caravan_volumes::retry;
use caravan_volumes::seen::{Failures, FirstSeen};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The identity of a failure: the number of tries and the recorded time of the next try.
type Failure = (u32, UnixNanos);

/// The healthy controllers of a plugin: their nodes and allocations.
type Controllers = Vec<(NodeId, AllocId)>;

fn healthy(plugin: Option<&Plugin>) -> Controllers {
    let all = plugin.into_iter().flat_map(|plugin| &plugin.controllers);
    all.filter(|(_, info)| info.healthy).map(|(node, info)| (node.clone(), info.alloc_id.clone())).collect()
}

#[derive(Debug, Default)]
struct Book {
    /// The silences, by node and the index with which the silence began.
    silences: FirstSeen<(NodeId, u64), ()>,
    /// The failures, by claim; each with the claim's generation.
    claims: Failures<ClaimId, (u32, Failure), Controllers>,
    volumes: FirstSeen<VolumeKey, Failure>,
    /// The failed step of each claim with a failed call, and whether a call of the step was refused.
    answers: BTreeMap<ClaimId, ((u32, ClaimPhase), bool)>,
}

/// The times at which this server first observed each wait; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Seens(Arc<Mutex<Book>>);

impl Seens {
    /// Locks the book. Each holder performs one complete change, so a panic leaves the data consistent.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock()
    }

    /// Returns when this server first observed each condition for which a claim may wait.
    pub(super) fn of_claim(
        &self,
        claim: &Claim,
        node: Presence,
        plugin: Option<&Plugin>,
        now: BootInstant,
    ) -> Seen {
        let mut book = self.book();
        let mut seen = Seen::at(now);
        let index = silence(claim, node);
        if index > 0 {
            seen.silence = book.silences.since(&(claim.node_id.clone(), index), (), now);
        }
        if !claim.next_try.is_zero() {
            let failure = (claim.generation, (claim.tries, claim.next_try));
            let since = book.claims.since(&claim.id, claim.tries, failure, healthy(plugin), now);
            (seen.failure, seen.earlier_tries) = since;
        }
        seen
    }

    /// Records how a call of the claim's current step failed. The pauses between tries begin again with the first
    /// refusal after unknown outcomes, because the pauses may have grown while the plugin was busy.
    pub(super) fn failed(&self, claim: &Claim, failure: CallFailure) {
        let refused = match failure {
            CallFailure::NotMade => return,
            CallFailure::Unknown => false,
            CallFailure::Refused(_) | CallFailure::Failed => true,
        };
        let mut book = self.book();
        let step = (claim.generation, claim.phase);
        let before =
            book.answers.get(&claim.id).filter(|(known, _)| *known == step).map(|(_, refused)| *refused);
        if refused && before == Some(false) {
            book.claims.begin_again(&claim.id);
        }
        // One refusal is enough: a plugin that alternates is not called more often.
        book.answers.insert(claim.id.clone(), (step, refused || before == Some(true)));
    }

    /// Returns when the volume's intent is retried; `None` if it may be retried immediately.
    pub(super) fn due(&self, volume: &Volume, now: BootInstant) -> Option<BootInstant> {
        if volume.next_try.is_zero() {
            return None;
        }
        let failed = self.book().volumes.since(&volume.key(), (volume.tries, volume.next_try), now);
        Some(failed.plus(retry::delay(volume.tries))).filter(|due| *due > now)
    }

    /// Removes entries for which no wait exists any more.
    pub(super) fn sweep(&self, root: &Root) {
        let mut book = self.book();
        book.silences.sweep(|(node, _)| root.claims_by_node(node).any(|claim| claim.phase.holds()));
        book.claims.sweep(|id| root.claim(id).is_some_and(|claim| !claim.next_try.is_zero()));
        book.answers.retain(|id, _| root.claim(id).is_some_and(|claim| !claim.next_try.is_zero()));
        book.volumes.sweep(|key| root.volume(key).is_some_and(|volume| !volume.next_try.is_zero()));
    }
}

impl Reconciler {
    /// Returns when the volume's intent is expected to be retried, by the current wall clock; 0 = immediately.
    pub(in crate::volume) fn next_try(&self, volume: &Volume) -> UnixNanos {
        let now = self.core.clock.read();
        self.seens.due(volume, now.boot).map_or(UnixNanos(0), |due| now.wall.plus(due.since(now.boot)))
    }
}

#[cfg(test)]
mod tests;
