//! Metrics of volumes: claims by phase, waits and their ages, calls, used capacity.

use super::calls::CallFigures;
use super::reconciler::Reconciler;
use super::usage::UsageBook;
use caravan_state::Root;
use caravan_types::volume::{ClaimPhase, VolumeUsage};
use caravan_types::{Nanos, NodeId, PluginId, UnixNanos, VolumeKey};
use caravan_volumes::reconcile::owes_growth;
use std::collections::BTreeMap;

/// Metrics of volumes at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VolumeFigures {
    /// Number of volumes by the name of their phase.
    pub volumes: BTreeMap<&'static str, usize>,
    /// Number of live claims by the name of their phase; every phase is present.
    pub claims: BTreeMap<&'static str, usize>,
    /// Number of claims that need another step: not mounted yet, being released, or with a pending expansion.
    pub backlog: usize,
    /// Number of waiting claims by the code of their reason; every code is present.
    pub waits: BTreeMap<&'static str, usize>,
    /// The time for which the oldest claim of the backlog has been in its phase.
    pub oldest_wait: Nanos,
    /// Statistics of calls, by plugin and name.
    pub calls: BTreeMap<(PluginId, &'static str), CallFigures>,
    /// The used capacity, by volume and node.
    pub usage: Vec<(VolumeKey, NodeId, VolumeUsage)>,
}

const PHASES: [ClaimPhase; 9] = [
    ClaimPhase::Reserved,
    ClaimPhase::Attaching,
    ClaimPhase::Attached,
    ClaimPhase::Mounted,
    ClaimPhase::Releasing,
    ClaimPhase::Unpublished,
    ClaimPhase::Unstaged,
    ClaimPhase::Detaching,
    ClaimPhase::Fencing,
];

impl VolumeFigures {
    pub(crate) fn collect(root: &Root, now: UnixNanos, reconciler: &Reconciler, usage: &UsageBook) -> Self {
        let mut figures =
            Self { claims: PHASES.iter().map(|p| (p.as_str(), 0)).collect(), ..Self::default() };
        for volume in root.volumes() {
            *figures.volumes.entry(volume.phase.as_str()).or_default() += 1;
        }
        let mut oldest: Option<UnixNanos> = None;
        for claim in root.claims().filter(|c| c.phase.holds()) {
            *figures.claims.entry(claim.phase.as_str()).or_default() += 1;
            let settled = claim.phase == ClaimPhase::Mounted
                && !root.volume(&claim.id.volume).is_some_and(|v| owes_growth(v, claim));
            if !settled {
                figures.backlog += 1;
                oldest = Some(oldest.map_or(claim.phase_since, |at| at.min(claim.phase_since)));
            }
        }
        figures.oldest_wait = oldest.map_or(Nanos::ZERO, |at| now.since(at));
        figures.waits = reconciler.waits.counts();
        figures.calls = reconciler.controllers.calls.figures();
        figures.usage = usage.all(root);
        figures.usage.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        figures
    }
}
