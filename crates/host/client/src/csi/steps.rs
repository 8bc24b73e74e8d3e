//! The execution of the decisions of `caravan_volumes::node` about a claim: each intent is written to the ledger
//! before its call, each proof after it.

use super::ledger::{ClaimEntry, MountPhase, Reach, is_device};
use super::manager::Lent;
use super::owner::Wish;
use super::places;
use super::releases::{clear, end, open_beneath};
use super::volumes::{VolumeManager, check, make_dir, proof, seal, set_owner};
use super::{CsiFault, capability};
use caravan_csi::{
    Class, CsiError, NodePublishRequest, NodeStageRequest, NodeUnpublishRequest, NodeUnstageRequest,
};
use caravan_messages::ClaimGrant;
use caravan_types::plugin::PluginRole;
use caravan_types::volume::ClaimId;
use caravan_volumes::node::{
    Answer, Because, Entry, Goal, NodeAction, NodeCall, NodeWait, Observed, Place, Proof, Spot, Tries, next,
};
use caravan_volumes::paths::VolumePaths;
use std::path::PathBuf;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The timeout for the answer of a file system.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The timeout of unmounting and other work at a place: longer than for a check, because unmounting flushes data.
const WORK_TIMEOUT: Duration = Duration::from_secs(5);

/// The inputs of mounting that a release does not need.
#[derive(Clone, Debug)]
pub(super) struct Mounting {
    pub(super) grant: ClaimGrant,
    pub(super) wish: Wish,
}

/// The progress of a claim towards a goal, over several attempts.
#[derive(Debug)]
pub(super) struct Steps {
    goal: Goal,
    claim: ClaimId,
    mounting: Option<Mounting>,
    /// The token that is cancelled when no caller waits for the mount any more.
    given_up: CancellationToken,
    plugin: Option<Lent>,
    plugin_timeout: Duration,
    tries: Tries,
    /// The error of the last failed call.
    last: Option<CsiFault>,
    /// The reason that the stage is dead.
    dead: Option<String>,
    /// The number of mounts ended and proofs written so far. While the number grows, the release makes progress.
    pub(super) progress: u32,
    /// Warnings for the servers: errors of the plugin that did not stop the claim.
    pub(super) words: Vec<String>,
}

/// The result of an attempt.
#[derive(Debug)]
pub(super) enum Came {
    /// The goal was reached.
    There,
    /// The claim must wait, with the reason.
    Waits(CsiFault),
}

/// The observed state of a claim.
struct Sight {
    observed: (Place, Place, bool),
    others: Vec<Entry>,
}

impl Steps {
    /// Creates steps to mount with a plugin that is available.
    pub(super) fn mount(mounting: Mounting, plugin: Lent, given_up: CancellationToken) -> Self {
        let claim = mounting.grant.claim.id.clone();
        Self { plugin: Some(plugin), mounting: Some(mounting), given_up, ..Self::new(Goal::Mount, claim) }
    }

    /// Creates steps to release a volume; each attempt waits up to `plugin_timeout` for a plugin that it needs.
    pub(super) fn release(claim: ClaimId, plugin_timeout: Duration) -> Self {
        Self { plugin_timeout, ..Self::new(Goal::Release, claim) }
    }

    fn new(goal: Goal, claim: ClaimId) -> Self {
        Self {
            goal,
            claim,
            mounting: None,
            given_up: CancellationToken::new(),
            plugin: None,
            plugin_timeout: Duration::ZERO,
            tries: Tries::default(),
            last: None,
            dead: None,
            progress: 0,
            words: Vec::new(),
        }
    }

    /// Returns whether the plugin answered a call that undoes a step, while the place is not proven to be empty.
    pub(super) fn is_ending(&self) -> bool {
        self.tries.is_undoing()
    }

    /// Returns whether the plugin has refused to undo the current place since its last success.
    pub(super) fn is_refused(&self) -> bool {
        self.tries.is_refused()
    }

    /// Prepares the next attempt after a pause.
    pub(super) fn rest(&mut self) {
        self.tries.rest();
        if self.goal == Goal::Release {
            self.plugin = None;
        }
    }
}

impl VolumeManager {
    /// Takes steps until the goal is reached, a wait is needed, or the attempt fails. The caller holds the volume's
    /// lock.
    pub(super) async fn take_steps(&self, steps: &mut Steps) -> Result<Came, CsiFault> {
        match self.advance(steps).await {
            Err(reason @ CsiFault::Waits(_)) => Ok(Came::Waits(reason)),
            came => came,
        }
    }

    async fn advance(&self, steps: &mut Steps) -> Result<Came, CsiFault> {
        loop {
            let Some(entry) = self.entry(&steps.claim) else { return Ok(Came::There) };
            match self.decide(steps, &entry).await? {
                NodeAction::Call(call) => self.call(steps, entry, call).await?,
                NodeAction::Unmount(spot, how) => {
                    let path = at(&entry.on_host()?, spot).clone();
                    tracing::warn!(volume = %entry.claim.volume, path = %path.display(), ?how, "unmounting without its plugin");
                    self.work_at(steps, &entry, spot, move || end(&path, how)).await?;
                    steps.tries.note_unmount(spot);
                    steps.progress += 1;
                }
                NodeAction::Record(proof) => self.record(steps, entry, proof).await?,
                NodeAction::Wait(wait) => return Ok(Came::Waits(self.reason(steps, &entry, wait))),
                NodeAction::GiveUp => return Err(steps.last.take().unwrap_or(CsiFault::GivenUp)),
                NodeAction::Finished => {
                    if steps.goal == Goal::Mount && entry.phase < MountPhase::Mounted {
                        self.prove(steps, entry).await?;
                    }
                    return Ok(Came::There);
                }
            }
        }
    }

    async fn decide(&self, steps: &mut Steps, entry: &ClaimEntry) -> Result<NodeAction, CsiFault> {
        let Sight { observed: (target, stage, is_proven), others } = self.see(steps, entry).await?;
        let mut observed = Observed {
            target,
            stage,
            is_proven,
            is_device: is_device(entry.usage),
            lingers: false,
            is_replaced: false,
            is_stale: steps.mounting.as_ref().is_some_and(|m| self.is_stale(&m.grant)),
            is_abandoned: steps.given_up.is_cancelled(),
            others: &others,
            tries: steps.tries,
        };
        let node = entry.node();
        let mut action = next(steps.goal, &node, &observed);
        // Slow facts are only read if the decision depends on them.
        if matches!(action, NodeAction::Wait(NodeWait::Refused(_))) && !entry.made_by.is_empty() {
            let now = self.plugin_process(steps).await;
            observed.is_replaced = now.is_some_and(|now| now != entry.made_by);
            action = next(steps.goal, &node, &observed);
        }
        let made = match action {
            NodeAction::Record(Proof::TargetGone(Because::Absent)) => {
                node.publish == Reach::Made && !entry.stages
            }
            NodeAction::Record(Proof::StageGone(Because::Absent)) => node.stage == Reach::Made,
            _ => false,
        };
        if made {
            observed.lingers = self.lingers(entry).await;
            action = next(steps.goal, &node, &observed);
        }
        Ok(action)
    }

    /// Reads the state of the places that matter for the next step.
    async fn see(&self, steps: &mut Steps, entry: &ClaimEntry) -> Result<Sight, CsiFault> {
        let others = self.lock().others_on_stage(entry).map(ClaimEntry::node).collect();
        let nothing = Sight { observed: (Place::Empty, Place::Empty, false), others };
        // The plugin was not available when the claim was granted.
        if entry.host_root.as_os_str().is_empty() {
            return Ok(nothing);
        }
        let (places, mounts) = (entry.on_host()?, steps.goal == Goal::Mount);
        let (mut target, mut is_proven, mut stage) = (Place::Empty, false, Place::Empty);
        if mounts || entry.phase < MountPhase::Unpublished {
            let (known, path) = (entry.clone(), places.publish.clone());
            let look = move || (places::look(&path).0, check(&known).is_ok());
            let seen = self.inner.prober.look(&places.publish, ANSWER_TIMEOUT, look).await;
            (target, is_proven) = seen.unwrap_or((Place::Silent, false));
        }
        if entry.stages && (mounts || entry.phase == MountPhase::Unpublished) {
            let path = places.staging.clone();
            let look = move || places::look(&path);
            let seen = self.inner.prober.look(&places.staging, ANSWER_TIMEOUT, look).await;
            (stage, steps.dead) = seen.unwrap_or((Place::Silent, None));
        }
        Ok(Sight { observed: (target, stage, is_proven && entry.proof.is_some()), ..nothing })
    }

    /// Runs blocking work at a place of a claim. A file system that does not answer causes a wait.
    async fn work_at<T: Send + 'static>(
        &self,
        steps: &mut Steps,
        entry: &ClaimEntry,
        spot: Spot,
        work: impl FnOnce() -> Result<T, CsiFault> + Send + 'static,
    ) -> Result<T, CsiFault> {
        let path = at(&entry.on_host()?, spot).clone();
        match self.inner.prober.work(&path, WORK_TIMEOUT, work).await {
            Some(done) => done,
            None => Err(self.reason(steps, entry, NodeWait::Silent(spot))),
        }
    }

    /// Returns whether the volume's file system is mounted at a place that belongs to no live claim.
    async fn lingers(&self, entry: &ClaimEntry) -> bool {
        let Some(file_system) = entry.file_system.clone() else { return false };
        if self.lock().used_by_another(entry) {
            return false;
        }
        let Ok(places) = entry.on_host() else { return false };
        let except = [places.publish, places.staging];
        let found =
            tokio::task::spawn_blocking(move || places::find_file_system(&file_system, &except)).await;
        found.ok().flatten().is_some()
    }

    async fn plugin<'s>(&self, steps: &'s mut Steps, entry: &ClaimEntry) -> Result<&'s Lent, CsiFault> {
        if steps.plugin.is_none() {
            let found =
                self.inner.plugins.plugin(PluginRole::Node, &entry.plugin, steps.plugin_timeout).await?;
            steps.plugin = Some(found);
        }
        steps.plugin.as_ref().ok_or(CsiFault::GivenUp)
    }

    /// Returns the process of the plugin, identified by its pid and start time.
    async fn plugin_process(&self, steps: &Steps) -> Option<String> {
        let socket = &steps.plugin.as_ref()?.instance.registration.socket;
        let connected = tokio::time::timeout(ANSWER_TIMEOUT, caravan_csi::connect(socket)).await;
        let pid = connected.ok()?.ok()?.peer_cred().ok()?.pid()?;
        let start = caravan_sys::process::start_time(u32::try_from(pid).ok()?).ok()??;
        Some(format!("{pid}:{start}"))
    }

    async fn call(&self, steps: &mut Steps, entry: ClaimEntry, call: NodeCall) -> Result<(), CsiFault> {
        // Without the plugin no step is started.
        self.plugin(steps, &entry).await?;
        let before = entry.node();
        let mut entry = entry;
        entry.set(before.intend(steps.goal, call));
        if entry.node() != before {
            self.write(entry.clone()).await?;
        }
        let places = entry.on_host()?;
        let spot = match call {
            NodeCall::Stage | NodeCall::Unstage => Spot::Stage,
            NodeCall::Publish | NodeCall::Unpublish => Spot::Target,
        };
        let (root, host) = (entry.host_root.clone(), places.clone());
        self.work_at(steps, &entry, spot, move || {
            match call {
                NodeCall::Stage => make_dir(&root, &host.staging, "create staging directory")?,
                NodeCall::Publish => make_dir(&root, &host.alloc_dir, "create allocation directory")?,
                // The plugin removes its mount target, which is impossible while the directory is sealed.
                NodeCall::Unpublish | NodeCall::Unstage => {}
            }
            open_beneath(at(&host, spot))
        })
        .await?;
        let result = self.ask_plugin(steps, &entry, call).await?;
        let answer = result.as_ref().map_or_else(answer, |()| Answer::Done);
        steps.tries.note(call, answer);
        let learned = entry.node().learn(call, answer);
        if answer == Answer::Done && matches!(call, NodeCall::Stage | NodeCall::Publish) {
            entry.set(learned);
            entry.made_by = self.plugin_process(steps).await.unwrap_or_default();
            if call == NodeCall::Stage {
                let stage = places.staging;
                let work = move || {
                    seal(&stage);
                    Ok(places::file_system(&stage))
                };
                // If a stage does not answer, the next step waits for it, and the next agent seals it.
                entry.file_system = self.work_at(steps, &entry, spot, work).await.ok().flatten();
            }
            // The next intent makes this durable; until then, the outcome counts as unknown.
            self.write_later(entry);
        }
        if let Err(error) = result {
            tracing::info!(volume = %steps.claim.volume, alloc = %steps.claim.alloc, %error, "a node plugin call failed");
            steps.last = Some(error.into());
        }
        Ok(())
    }

    /// Sends a call to the plugin. The outer error means that the call could not be sent.
    async fn ask_plugin(
        &self,
        steps: &mut Steps,
        entry: &ClaimEntry,
        call: NodeCall,
    ) -> Result<Result<(), CsiError>, CsiFault> {
        let (inside, volume_id) = (entry.in_plugin()?, entry.external_id.clone());
        let mounting = steps.mounting.clone();
        let client = &self.plugin(steps, entry).await?.instance.client;
        let capability =
            |grant: &ClaimGrant| capability(entry.usage, grant.mount_options.as_ref(), &entry.mount_group);
        Ok(match (call, mounting) {
            (NodeCall::Stage, Some(Mounting { grant, .. })) => {
                let request = NodeStageRequest {
                    volume_id,
                    publish_context: grant.claim.publish_context.clone(),
                    staging_target_path: inside.staging,
                    capability: capability(&grant)?,
                    secrets: grant.secrets.expose().clone().into(),
                    context: grant.volume_context,
                };
                client.node_stage(request).await
            }
            (NodeCall::Publish, Some(Mounting { grant, .. })) => {
                let request = NodePublishRequest {
                    volume_id,
                    publish_context: grant.claim.publish_context.clone(),
                    staging_target_path: entry.stages.then_some(inside.staging),
                    target_path: inside.publish,
                    capability: capability(&grant)?,
                    readonly: entry.usage.read_only,
                    secrets: grant.secrets.expose().clone().into(),
                    context: grant.volume_context,
                };
                client.node_publish(request).await
            }
            (NodeCall::Unpublish, _) => {
                client.node_unpublish(NodeUnpublishRequest { volume_id, target_path: inside.publish }).await
            }
            (NodeCall::Unstage, _) => {
                let request = NodeUnstageRequest { volume_id, staging_target_path: inside.staging };
                client.node_unstage(request).await
            }
            // A release does not mount.
            (NodeCall::Stage | NodeCall::Publish, None) => return Err(CsiFault::GivenUp),
        })
    }

    async fn record(&self, steps: &mut Steps, entry: ClaimEntry, proof: Proof) -> Result<(), CsiFault> {
        if let Proof::TargetGone(Because::Absent) | Proof::StageGone(Because::Absent) = proof {
            self.note_absent(steps, &entry, proof);
        }
        let spot = match proof {
            Proof::TargetGone(_) => Some(Spot::Target),
            Proof::StageGone(_) => Some(Spot::Stage),
            _ => None,
        };
        let called = !entry.host_root.as_os_str().is_empty();
        if let (Some(spot), Ok(places), true) = (spot, entry.on_host(), called) {
            let root = entry.host_root.clone();
            self.work_at(steps, &entry, spot, move || {
                open_beneath(at(&places, spot))?;
                clear(at(&places, spot), &root)
            })
            .await?;
        }
        let others: Vec<ClaimEntry> = self.lock().others_on_stage(&entry).cloned().collect();
        for mut other in others {
            let beside = other.node().beside(proof);
            if beside != other.node() {
                other.set(beside);
                self.write_later(other);
            }
        }
        let mut entry = entry;
        let recorded = entry.node().record(steps.goal, proof);
        entry.set(recorded);
        if entry.phase == MountPhase::Unstaged {
            entry.proof = None;
        }
        self.write(entry).await?;
        steps.tries.note_proof(proof);
        steps.progress += 1;
        Ok(())
    }

    /// Records the plugin's error if the claim continues in spite of it.
    fn note_absent(&self, steps: &mut Steps, entry: &ClaimEntry, proof: Proof) {
        let Some(fault) = steps.last.take() else { return };
        let (place, made) = match proof {
            Proof::TargetGone(_) => (entry.on_host().map(|p| p.publish), entry.node().publish == Reach::Made),
            _ => (entry.on_host().map(|p| p.staging), entry.node().stage == Reach::Made),
        };
        let place = place.map(|path| path.display().to_string()).unwrap_or_default();
        let ledger = if made { "its mount has ended" } else { "no mount there ever succeeded" };
        let words = format!("{fault}; nothing is mounted at {place}, and {ledger}: the claim goes on");
        tracing::warn!(volume = %entry.claim.volume, alloc = %entry.claim.alloc, words, "plugin error ignored: no mount exists");
        if steps.goal == Goal::Release {
            steps.words.push(words);
        }
    }

    /// Returns the reason of a wait.
    fn reason(&self, steps: &mut Steps, entry: &ClaimEntry, wait: NodeWait) -> CsiFault {
        let volume = entry.claim.volume.id.to_string();
        let path =
            |spot: Spot| entry.on_host().map(|p| at(&p, spot).display().to_string()).unwrap_or_default();
        let last = steps.last.take();
        let words = last.as_ref().map(ToString::to_string).unwrap_or_default();
        let text = match wait {
            NodeWait::Stale => stale_words(&entry.claim),
            NodeWait::DeadStage => {
                let why = steps.dead.as_deref().unwrap_or("its file system is dead");
                format!(
                    "the stage of volume \"{volume}\" at {} is dead ({why}) and in use by {}: waits for their end",
                    path(Spot::Stage),
                    self.users_of_stage(entry)
                )
            }
            NodeWait::LeavingStage => format!(
                "{words}; the stage of volume \"{volume}\" is in use by {}: waits for their end",
                self.users_of_stage(entry)
            ),
            NodeWait::Silent(spot) => {
                format!("the file system of volume \"{volume}\" at {} does not answer", path(spot))
            }
            NodeWait::Lingers(spot) => format!(
                "{words}; nothing is mounted at {}, but its file system is still mounted elsewhere on this node",
                path(spot)
            ),
            NodeWait::Refused(_) | NodeWait::Unanswered(_) => match last {
                Some(fault) => return fault,
                None => format!("waits for the plugin of volume \"{volume}\""),
            },
        };
        CsiFault::Waits(text)
    }

    fn users_of_stage(&self, entry: &ClaimEntry) -> String {
        let ledger = self.lock();
        let users = ledger.others_on_stage(entry).filter(|e| e.node().holds_stage());
        let users: Vec<String> = users
            .map(|e| match e.job.as_str() {
                "" => format!("allocation {}", e.claim.alloc),
                job => format!("allocation {} of job \"{job}\"", e.claim.alloc),
            })
            .collect();
        users.join(", ")
    }

    /// Proves a mount that the plugin reported: checks it, seals the directory beneath, sets the owner, and stores the
    /// proof.
    async fn prove(&self, steps: &mut Steps, mut entry: ClaimEntry) -> Result<(), CsiFault> {
        let target = entry.on_host()?.publish;
        let (path, device) = (target.clone(), is_device(entry.usage));
        let close = move || {
            // A plugin reports success without a mount on the host if its mounts do not reach the host.
            if !super::volumes::is_published(&path, device) {
                let private = places::private_mount(&path);
                return Err(CsiFault::NotMounted { path, private });
            }
            seal(&path);
            Ok(())
        };
        self.work_at(steps, &entry, Spot::Target, close).await?;
        if let Some(Mounting { wish, .. }) = steps.mounting.as_ref().filter(|m| !m.wish.is_none())
            && !entry.owned
        {
            let own = if entry.mount_group.is_empty() { wish.clone() } else { wish.without_group() };
            set_owner(own, target.clone()).await?;
            entry.owned = true;
        }
        let identify = move || Ok((proof(&target, device)?, places::file_system(&target)));
        let (proof, file_system) = self.work_at(steps, &entry, Spot::Target, identify).await?;
        if entry.file_system.is_none() && !entry.stages {
            entry.file_system = file_system;
        }
        entry.proof = Some(proof);
        entry.phase = MountPhase::Mounted;
        self.write(entry).await
    }
}

pub(super) fn stale_words(claim: &ClaimId) -> String {
    format!(
        "waits for the end of what an earlier attachment of volume \"{}\" left on this node",
        claim.volume.id
    )
}

fn at(places: &VolumePaths, spot: Spot) -> &PathBuf {
    match spot {
        Spot::Target => &places.publish,
        Spot::Stage => &places.staging,
    }
}

/// Returns the outcome that a failed call proves (CSI specification, "Error Scheme"). Plugins that choose no code
/// return UNKNOWN; a broken connection is UNAVAILABLE here.
fn answer(error: &CsiError) -> Answer {
    match error.class() {
        Some(Class::NotFound) => Answer::NotFound,
        Some(Class::FailedPrecondition) => Answer::OutOfOrder,
        Some(
            Class::Cancelled
            | Class::DeadlineExceeded
            | Class::Aborted
            | Class::Unavailable
            | Class::ResourceExhausted,
        )
        | None => Answer::Unclear,
        Some(_) => Answer::Refused,
    }
}
