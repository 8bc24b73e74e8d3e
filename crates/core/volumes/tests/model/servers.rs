//! The model of the servers: the real decisions and the real state machine of claims, on records of the model.

use crate::state::*;
use caravan_messages::ClaimReportStep;
use caravan_types::command::{ClaimStep, LetGo};
use caravan_types::plugin::{CsiControllerInfo, CsiInfo, CsiNodeInfo, Plugin, Reports};
use caravan_types::volume::{
    AccessMode, AttachmentMode, Claim, ClaimId, ClaimMode, ClaimPhase, ConfirmedOff, MountProof, Volume,
};
use caravan_types::{BootInstant, Nanos, NodeId, UnixNanos, VolumeKey};
use caravan_volumes::detach::{AfterRefusal, Listed, Refusal, after_refusal};
use caravan_volumes::invariants::{self, Call, Needs, Rule, Verb, Violation};
use caravan_volumes::lease::Lease;
use caravan_volumes::reconcile::{self, Action, Facts, Presence, Seen};
use caravan_volumes::{claim, modes};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A unit of the model's time, in nanoseconds.
const UNIT: i64 = 1_000_000_000;
/// The constant current wall time; records keep distances to it.
const NOW: UnixNanos = UnixNanos(1_000 * UNIT);
/// The current time on the clock of the servers' process.
const BOOT: BootInstant = BootInstant::from_nanos(77_000_000_000);
/// The spans of the lease: one unit each, so that every order of events within a fence is explored.
pub const LEASE: Lease = Lease { ttl: Nanos(UNIT), kill_grace: Nanos(UNIT), margin: Nanos(UNIT) };
/// The length of the whole fence in units.
pub const GRACE: u8 = 3;
/// The units after which the lease runs out, and after which the shim has certainly ended the task (`KILLED`).
pub const TTL: u8 = 1;
pub const KILLED: u8 = 2;

/// The servers' part of the model: the inputs of records.
#[derive(Clone, Debug)]
pub struct Servers {
    setting: Setting,
    claims: Vec<Vec<Claim>>,
    volumes: Vec<Volume>,
    plugin: Plugin,
    unreported: Plugin,
}

impl Servers {
    pub fn new(setting: &Setting) -> Self {
        let key = |v: u8| VolumeKey::new("default", ["data", "more"][usize::from(v)]);
        let access_mode =
            if setting.shared { AccessMode::MultiNodeMultiWriter } else { AccessMode::SingleNodeWriter };
        let claim = |a: usize, n: usize| Claim {
            id: ClaimId { volume: key(setting.volume_of[a]), alloc: ["a0", "a1"][a].into() },
            node_id: ["n0", "n1"][n].into(),
            plugin_id: "p".into(),
            mode: ClaimMode::Write,
            access_mode,
            attachment_mode: AttachmentMode::FileSystem,
            create_index: a as u64 + 1,
            ..Claim::default()
        };
        let node = |n: &str| {
            let info = CsiInfo {
                healthy: true,
                node_info: Some(CsiNodeInfo { id: n.into(), ..Default::default() }),
                ..Default::default()
            };
            (NodeId::from(n), Arc::new(info))
        };
        let controller = CsiInfo {
            healthy: true,
            controller_info: Some(CsiControllerInfo {
                supports_attach_detach: setting.attach,
                ..Default::default()
            }),
            ..Default::default()
        };
        let unreported = Plugin {
            id: "p".into(),
            controller_required: true,
            nodes: [node("n0"), node("n1")].into_iter().collect(),
            ..Plugin::default()
        };
        let plugin =
            Plugin { controllers: Reports::unit("n0".into(), controller.into()), ..unreported.clone() };
        Self {
            setting: setting.clone(),
            claims: (0..TWO).map(|a| (0..TWO).map(|n| claim(a, n)).collect()).collect(),
            volumes: (0..2)
                .map(|v| Volume { namespace: "default".into(), id: key(v).id, ..Volume::default() })
                .collect(),
            plugin,
            unreported,
        }
    }

    fn plugin(&self, state: &State) -> &Plugin {
        if state.plugin_reported { &self.plugin } else { &self.unreported }
    }

    /// Returns the servers' record of the claim.
    fn full(&self, state: &State, a: u8) -> Option<Claim> {
        let alloc = &state.allocs[usize::from(a)];
        let record = alloc.claim?;
        let mut claim = self.claims[usize::from(a)][usize::from(alloc.node)].clone();
        claim.phase = record.phase;
        claim.needs_attach = record.needs_attach;
        claim.attach_calls = record.attach_calls;
        if record.named {
            claim.external_node_id = claim.node_id.to_string();
        }
        claim.proof = record.proof.then(MountProof::default);
        claim.generation = record.generation;
        if record.phase == ClaimPhase::Fencing {
            claim.fence_until = UnixNanos(NOW.0 + i64::from(record.wall_left) * UNIT);
        }
        claim.fence_index = record.fence.map(u64::from);
        claim.node_off = record.off.then(ConfirmedOff::default);
        Some(claim)
    }

    fn record(&self, claim: &Claim) -> Record {
        let left = (claim.fence_until.0 - NOW.0) / UNIT;
        // The value is only tracked if an event could depend on it.
        let fencing = claim.phase == ClaimPhase::Fencing && self.setting.budget.steps > 0;
        Record {
            phase: claim.phase,
            needs_attach: claim.needs_attach,
            attach_calls: claim.attach_calls,
            named: !claim.external_node_id.is_empty(),
            proof: claim.proof.is_some(),
            generation: claim.generation,
            fence: claim.fence_index.and_then(|index| u8::try_from(index).ok()),
            wall_left: if fencing { i8::try_from(left).unwrap_or(0) } else { 0 },
            off: claim.node_off.is_some(),
        }
    }

    /// Takes a step as the real state does: an illegal step changes nothing.
    fn step(&self, state: &mut State, a: u8, step: &ClaimStep) -> bool {
        let Some(before) = self.full(state, a) else { return false };
        let node = &mut state.nodes[usize::from(state.allocs[usize::from(a)].node)];
        let mut step = step.clone();
        // The step was decided in the current silence of the node, or for a node without a record.
        let same = |index: u64| node.removed || (node.silent && u64::from(node.silence) == index);
        let valid = match &mut step {
            ClaimStep::Fence { silence: Some(silence), .. } if node.removed => {
                node.silence += 1;
                *silence = u64::from(node.silence);
                true
            }
            ClaimStep::Fence { silence: Some(silence), .. } => same(*silence),
            ClaimStep::Waited { fence, .. } => same(*fence),
            _ => true,
        };
        if !valid {
            return false;
        }
        let Ok(after) = claim::step(&before, &step, NOW) else { return false };
        let by_time = matches!(step, ClaimStep::Waited { .. });
        let (volume, node) = (self.setting.volume(a), state.allocs[usize::from(a)].node);
        if by_time {
            state.outside[volume].lost.insert(node);
        }
        let wrong = invariants::known_before_used(&before, &after, Some(self.plugin(state)));
        note(state, wrong);
        state.allocs[usize::from(a)].claim = Some(self.record(&after));
        self.prune_seen(state);
        true
    }

    /// Removes the silences that have ended and for which no claim waits from the record of this process.
    pub fn prune_seen(&self, state: &mut State) {
        if self.setting.planted == Planted::EarlierWaitCounts {
            return;
        }
        let (nodes, allocs) = (&state.nodes, &state.allocs);
        state.seen.retain(|(n, silence), _| {
            let node = &nodes[usize::from(*n)];
            let waits = |alloc: &Alloc| {
                alloc.node == *n && alloc.claim.is_some_and(|c| c.phase.holds() && c.fence == Some(*silence))
            };
            (node.silent && node.silence == *silence) || allocs.iter().any(waits)
        });
    }

    /// Records that the node is in contact again: earlier waits do not count any more.
    pub fn returned(&self, state: &mut State, n: u8) {
        let of_node = |alloc: &&mut Alloc| alloc.node == n;
        for claim in state.allocs.iter_mut().filter(of_node).filter_map(|alloc| alloc.claim.as_mut()) {
            if self.setting.planted != Planted::EarlierWaitCounts {
                claim.fence = claim.fence.map(|_| 0);
            }
            claim.off = false;
        }
        self.prune_seen(state);
    }

    /// Records that an operator confirms that a node is off.
    pub fn confirmed_off(state: &mut State, n: u8) {
        let of_node = |alloc: &&mut Alloc| alloc.node == n;
        for claim in state.allocs.iter_mut().filter(of_node).filter_map(|alloc| alloc.claim.as_mut()) {
            claim.off |= claim.phase.holds();
        }
    }

    /// Places an allocation, if its claim is admitted.
    pub fn place(&self, state: &mut State, a: u8, node: u8) -> bool {
        let at = usize::from(a);
        let previous = self.full(state, a);
        let holding: Vec<Claim> = self.of_volume(state, self.setting.volume(a));
        let holding: Vec<&Claim> = holding.iter().collect();
        let expected = self.claims[at][usize::from(node)].clone();
        let Ok(granted) = claim::reserve(previous.as_ref(), expected, NOW) else { return false };
        if modes::admit(&self.volumes[self.setting.volume(a)], &holding, &granted).is_err() {
            return false;
        }
        let alloc = &mut state.allocs[at];
        alloc.node = node;
        alloc.desired = Desired::Run;
        alloc.runner = Runner::None;
        alloc.reported = false;
        alloc.claim = Some(self.record(&granted));
        true
    }

    /// Returns the claims of a volume.
    fn of_volume(&self, state: &State, volume: usize) -> Vec<Claim> {
        let all = (0..2_u8).filter(|a| self.setting.volume(*a) == volume);
        all.filter_map(|a| self.full(state, a)).collect()
    }

    /// Ends the allocation. The release of its claim begins in the same step.
    pub fn over(&self, state: &mut State, a: u8) {
        state.allocs[usize::from(a)].desired = Desired::Stop;
        if state.allocs[usize::from(a)].claim.is_some_and(|c| c.phase.is_live()) {
            self.step(state, a, &ClaimStep::Release);
        }
    }

    fn presence(node: &Node, stale: bool) -> Presence {
        match node.silent {
            _ if node.removed => Presence::Unknown,
            silent if silent || stale => Presence::Silent { index: u64::from(node.silence) },
            _ => Presence::Here,
        }
    }

    /// Returns the time at which the servers' process first saw the silence that a claim waits out.
    fn seen(&self, state: &mut State, claim: &Claim, n: u8, presence: Presence, stale: bool) -> Seen {
        let ago = |age: u8| BootInstant::from_nanos(77_000_000_000 - u64::from(age) * 1_000_000_000);
        let mut seen = Seen::at(BOOT);
        let index = reconcile::silence(claim, presence);
        if stale {
            seen.silence = ago(OLD);
        } else if index > 0 {
            let key = (n, u8::try_from(index).unwrap_or(0));
            seen.silence = ago(*state.seen.entry(key).or_insert(0));
        }
        if self.setting.planted == Planted::FenceByWallClock && claim.phase == ClaimPhase::Fencing {
            let left = (claim.fence_until.0 - NOW.0).max(0) / UNIT;
            seen.silence = ago(GRACE.saturating_sub(u8::try_from(left).unwrap_or(GRACE)));
        }
        seen
    }

    /// Returns the reconciler's next action for a claim. With `stale`, the reconciler read the state before the node
    /// returned.
    pub fn decide(&self, state: &mut State, a: u8, stale: bool) -> Action {
        let Some(claim) = self.full(state, a).filter(|c| c.phase.holds()) else { return Action::Nothing };
        let volume = self.setting.volume(a);
        let others: Vec<Claim> =
            self.of_volume(state, volume).into_iter().filter(|c| c.id != claim.id).collect();
        let others: Vec<&Claim> = others.iter().collect();
        let n = state.allocs[usize::from(a)].node;
        let node = Self::presence(&state.nodes[usize::from(n)], stale);
        let seen = self.seen(state, &claim, n, node, stale);
        let facts = Facts {
            volume: Some(&self.volumes[volume]),
            claim: &claim,
            others: &others,
            plugin: Some(self.plugin(state)),
            node,
            lease: LEASE,
            seen,
            now: BOOT,
        };
        let action = reconcile::next(&facts);
        match (self.setting.planted, &action) {
            (Planted::NoFence, Action::WaitUntil { .. }) => {
                let over = Seen { silence: BootInstant::default(), ..facts.seen };
                reconcile::next(&Facts { seen: over, ..facts })
            }
            (Planted::FreedWithoutProof, Action::WaitForClient(_))
                if claim.phase == ClaimPhase::Releasing =>
            {
                Action::Free
            }
            (Planted::UnknownIsNo, Action::WaitForPlugin(_))
                if claim.phase == ClaimPhase::Reserved && !state.plugin_reported =>
            {
                Action::MarkAttached { external_node_id: String::new() }
            }
            _ => action,
        }
    }

    /// Returns whether the reconciler may act on a volume: no call of this leader or of an earlier leader is in
    /// flight.
    pub fn has_turn(&self, state: &State, volume: usize) -> bool {
        match state.server_calls[volume] {
            None => true,
            Some(call) => call.orphan && self.setting.planted == Planted::OverlappingLeaders,
        }
    }

    /// Executes a decision: records the intent, then begins the call.
    pub fn act(&self, state: &mut State, a: u8, action: Action) -> bool {
        let step = match action {
            Action::Attach { external_node_id } => {
                let intent = ClaimStep::IntendAttach { external_node_id };
                return self.step(state, a, &intent) && self.call(state, a, Verb::ControllerPublish);
            }
            Action::Detach => {
                return self.let_go(state, a, LetGo::IntendDetach)
                    && self.call(state, a, Verb::ControllerUnpublish);
            }
            Action::MarkAttached { external_node_id } => ClaimStep::Attached {
                publish_context: BTreeMap::new(),
                needs_attach: false,
                external_node_id,
            },
            Action::LeaveAttached => return self.let_go(state, a, LetGo::LeftAttached),
            Action::Free if self.setting.planted == Planted::FreedWithoutProof => {
                let record = state.allocs[usize::from(a)].claim.as_mut();
                record.expect("a claim was decided about").phase = ClaimPhase::Gone;
                return true;
            }
            Action::Free => return self.let_go(state, a, LetGo::Freed),
            Action::Fence { silence, wait } => {
                ClaimStep::Fence { until: NOW.plus(wait), silence: Some(silence) }
            }
            // The model has no expansions.
            Action::ExpandNode { .. }
            | Action::WaitForClient(_)
            | Action::WaitForPlugin(_)
            | Action::WaitUntil { .. }
            // No volume of the model is ever expanded.
            | Action::Nothing => return false,
        };
        self.step(state, a, &step)
    }

    fn let_go(&self, state: &mut State, a: u8, then: LetGo) -> bool {
        let Some(claim) = self.full(state, a) else { return false };
        self.step(state, a, &claim::let_go(&claim, then))
    }

    fn call(&self, state: &mut State, a: u8, verb: Verb) -> bool {
        let volume = self.setting.volume(a);
        let call = call(state.allocs[usize::from(a)].node, a, verb);
        begin(&self.setting, state, volume, call);
        state.server_calls[volume] = Some(ServerCall { alloc: a, verb, orphan: false });
        true
    }

    /// Ends a call with its effect or without it, and with a success or an error.
    pub fn call_ends(&self, state: &mut State, volume: usize, effect: bool, ok: bool) {
        let Some(ServerCall { alloc: a, verb, orphan }) = state.server_calls[volume].take() else { return };
        let node = state.allocs[usize::from(a)].node;
        let made = call(node, a, verb);
        let unknown = verb == Verb::ControllerUnpublish && !state.outside[volume].attached.contains(&node);
        let (effect, ok) = match self.setting.strict_controller && unknown {
            true => (false, false),
            false => (effect, ok),
        };
        if effect {
            state.outside[volume].take_effect(&made);
        }
        state.outside[volume].end(&made);
        let phase = state.allocs[usize::from(a)].claim.map(|c| c.phase);
        // The volume was attached again, so that the plugin can detach it.
        let again = verb == Verb::ControllerPublish && phase == Some(ClaimPhase::Detaching);
        // The step is taken only if the claim is still in the phase of the intent.
        let intended = match verb {
            Verb::ControllerPublish if !again => ClaimPhase::Attaching,
            _ => ClaimPhase::Detaching,
        };
        if orphan || phase != Some(intended) {
            return;
        }
        if again && ok {
            self.call(state, a, Verb::ControllerUnpublish);
            return;
        }
        let step = match (ok, verb) {
            (false, Verb::ControllerUnpublish) => match self.after_refusal(state, volume, node) {
                AfterRefusal::Detached => ClaimStep::Freed,
                AfterRefusal::AttachAgain => {
                    self.call(state, a, Verb::ControllerPublish);
                    return;
                }
                AfterRefusal::List | AfterRefusal::Retry => {
                    ClaimStep::Failed { error: "no".into(), next_try: NOW }
                }
            },
            (false, Verb::ControllerPublish)
                if !again && (!effect || self.setting.planted == Planted::UnclearAttachIsRefused) =>
            {
                ClaimStep::AttachRefused { error: "no".into(), next_try: NOW }
            }
            (false, _) => ClaimStep::Failed { error: "no".into(), next_try: NOW },
            (true, Verb::ControllerPublish) => ClaimStep::Attached {
                publish_context: BTreeMap::new(),
                needs_attach: true,
                external_node_id: String::new(),
            },
            (true, _) => ClaimStep::Freed,
        };
        self.step(state, a, &step);
    }

    /// Returns the servers' step after the plugin refused to detach. The model does not count attempts: each refusal
    /// is at least the second one.
    fn after_refusal(&self, state: &State, volume: usize, node: u8) -> AfterRefusal {
        let listed = match state.outside[volume].attached.contains(&node) {
            true => Listed::Attached,
            false => Listed::Absent,
        };
        let refusal = Refusal {
            tries: 1,
            lists_nodes: self.setting.lists_nodes,
            listed: self.setting.lists_nodes.then_some(listed),
            has_volume: true,
        };
        match self.setting.planted {
            Planted::DetachRefusalIsProof => AfterRefusal::Detached,
            Planted::DetachIsOnlyRepeated => AfterRefusal::Retry,
            _ => after_refusal(refusal),
        }
    }

    /// Applies a client's report as the servers do, with all steps that the claim still lacks.
    pub fn report(&self, state: &mut State, a: u8, generation: u32, ended: bool) {
        for _ in 0..4 {
            let Some(record) = state.allocs[usize::from(a)].claim else { return };
            if record.generation != generation && self.setting.planted != Planted::GenerationIgnored {
                return;
            }
            let text = match ended {
                true => ClaimReportStep::Unstaged,
                false => ClaimReportStep::Mounted { proof: MountProof::default() },
            };
            let step = self.full(state, a).and_then(|claim| claim::reported(&claim, &text, NOW));
            let Some(step) = step else { return };
            if !self.step(state, a, &step) {
                return;
            }
        }
    }

    /// Returns the violations of the rules for records and tasks.
    pub fn always(&self, state: &State) -> Vec<Violation> {
        let mut wrong = Vec::new();
        for volume in 0..TWO {
            let claims = self.of_volume(state, volume);
            let claims: Vec<&Claim> = claims.iter().collect();
            wrong.extend(invariants::records("v", Some(&self.volumes[volume]), &claims));
            wrong.extend(invariants::detached_in_use("v", &claims));
            if !self.setting.shared {
                let live = (0..2_u8).filter(|a| self.setting.volume(*a) == volume);
                let live = live.filter(|a| state.allocs[usize::from(*a)].task);
                let live = live.map(|a| (state.allocs[usize::from(a)].node, a));
                wrong.extend(invariants::one_writer("v", live));
            }
        }
        wrong
    }
}

/// Returns a call for an allocation's volume. All allocations have one stage, and each has its own target.
pub fn call(node: u8, a: u8, verb: Verb) -> Call<u8> {
    let placed = matches!(verb, Verb::Publish | Verb::Unpublish);
    Call { verb, node, target: if placed { 10 + a } else { 0 }, staging: 1 }
}

/// Begins a call and checks rule 4.
pub fn begin(setting: &Setting, state: &mut State, volume: usize, call: Call<u8>) {
    let needs = Needs { attach: setting.attach, stage: setting.stage, shared: setting.shared };
    let wrong = state.outside[volume].begin("v", needs, call);
    note(state, wrong);
}

fn note(state: &mut State, wrong: Vec<Violation>) {
    if let Some(first) = wrong.into_iter().next()
        && state.broken.is_none()
    {
        let rule: Rule = first.rule;
        state.broken = Some((rule, first.text));
    }
}
