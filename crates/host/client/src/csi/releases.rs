//! The releases of volumes: unpublish, unstage when no other claim uses the stage, and the proofs of both. Releases
//! are retried until they succeed, never abandoned while the client runs, and continued by the next agent.

use super::CsiFault;
use super::ledger::{ClaimEntry, Entry, MountPhase, Reach};
use super::steps::{Came, Steps};
use super::volumes::{VolumeManager, kernel};
use crate::clock::Backoff;
use caravan_messages::{ClaimReportStep, NodeDetach};
use caravan_sys::mount::{Unmount, unmount};
use caravan_sys::seal::unseal_beneath;
use caravan_types::plugin::PluginRole;
use caravan_types::volume::ClaimId;
use caravan_volumes::node::How;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// The longest wait of one attempt of a release for its plugin; the attempt continues as soon as the plugin is
/// available.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// The shortest pause between two attempts of a release.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);

/// The pauses between the attempts of a release: they grow while the plugin returns the same kind of answer.
#[derive(Debug)]
struct Pauses {
    backoff: Backoff,
    /// The failed attempts since the pauses began.
    tries: u32,
    /// The state of the release after the last attempt, as [`Steps`] counts it.
    progress: u32,
    refused: bool,
}

impl Default for Pauses {
    fn default() -> Self {
        let backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(60));
        Self { backoff, tries: 0, progress: 0, refused: false }
    }
}

impl Pauses {
    /// Returns the pause after a failed attempt. The pauses begin again after progress, because the plugin's next
    /// call is for another place or a retry. The pauses also begin again with the first refusal: earlier attempts
    /// left the outcome open, and a claim is only proven free after several refusals.
    fn after(&mut self, progress: u32, refused: bool) -> Duration {
        if progress > self.progress || refused && !self.refused {
            self.backoff.reset();
            self.tries = 0;
        }
        (self.progress, self.refused) = (progress, refused);
        self.tries += 1;
        self.backoff.delay()
    }
}

impl VolumeManager {
    /// Releases a volume in the background. Returns immediately; a second call for the claim has no effect.
    pub(crate) fn release(&self, claim: ClaimId) {
        let newly = self.inner.releasing.lock().insert(claim.clone());
        if newly {
            let this = self.clone();
            self.inner.tasks.spawn(async move { this.release_until_done(claim).await });
        }
    }

    /// Waits until no volume of these claims is published or staged, or the client ends.
    pub(crate) async fn released(&self, claims: &[ClaimId]) {
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            let pending =
                claims.iter().any(|c| self.entry(c).is_some_and(|e| e.phase < MountPhase::Unstaged));
            if !pending {
                return;
            }
            tokio::select! {
                () = self.inner.cancel.cancelled() => return,
                changed = changes.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Releases a volume at the servers' request. A claim in the ledger is released normally. Otherwise, the plugin
    /// is called only if it is available and a path of the volume exists.
    pub(crate) async fn detach(&self, request: NodeDetach) -> Result<(), CsiFault> {
        if self.entry(&request.claim).is_none() {
            let known = self.inner.plugins.plugin(PluginRole::Node, &request.plugin_id, Duration::ZERO).await;
            let mut entry = ClaimEntry {
                claim: request.claim.clone(),
                generation: request.generation,
                plugin: request.plugin_id,
                external_id: request.external_volume_id,
                usage: request.usage,
                phase: MountPhase::Unstaged,
                ..Default::default()
            };
            entry.on_host()?;
            if let Ok(lent) = known {
                entry.host_root.clone_from(&lent.instance.registration.host_root);
                entry.plugin_root.clone_from(&lent.instance.registration.plugin_root);
                entry.stages = lent.info.node_info.is_some_and(|n| n.requires_node_stage_volume);
                let host = entry.on_host()?;
                if [host.publish, host.staging].iter().any(|t| t.symlink_metadata().is_ok()) {
                    let (phase, stages, renewing) = (MountPhase::Unpublishing, entry.stages, false);
                    let (stage, publish) = (Reach::Unclear, Reach::Unclear);
                    entry.set(Entry { phase, stages, stage, publish, renewing, stage_lost: false });
                }
            }
            self.write(entry).await?;
        }
        self.release(request.claim);
        Ok(())
    }

    async fn release_until_done(&self, claim: ClaimId) {
        let mut pauses = Pauses::default();
        let mut steps = Steps::release(claim.clone(), PLUGIN_TIMEOUT);
        let mut plugins = self.inner.plugins.changes();
        loop {
            plugins.borrow_and_update();
            let fault = tokio::select! {
                () = self.inner.cancel.cancelled() => return,
                result = self.release_once(&mut steps, &claim) => match result {
                    Ok(()) => break,
                    Err(fault) => fault,
                },
            };
            let pause = pauses.after(steps.progress, steps.is_refused());
            self.note("Unmount volume", &claim, Some(&fault));
            let generation = self.entry(&claim).map_or(0, |e| e.generation);
            tokio::select! {
                () = self.inner.cancel.cancelled() => return,
                () = async {
                    self.inner.reports.failed(&claim, generation, fault.to_string(), pauses.tries).await;
                    // Retry as soon as the plugin changes, but never in a tight loop.
                    tokio::time::sleep(SHORTEST_PAUSE).await;
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        _ = plugins.changed() => {}
                    }
                } => {}
            }
        }
        let Some(entry) = self.entry(&claim) else { return };
        let words =
            steps.words.into_iter().map(|error| ClaimReportStep::Failed { error, tries: pauses.tries + 1 });
        for step in words.chain([ClaimReportStep::Unpublished, ClaimReportStep::Unstaged]) {
            if self.inner.reports.deliver(&claim, entry.generation, step).await.is_err() {
                return;
            }
        }
        self.strike(&claim);
        self.inner.releasing.lock().remove(&claim);
    }

    async fn release_once(&self, steps: &mut Steps, claim: &ClaimId) -> Result<(), CsiFault> {
        let _turn = self.turn(&claim.volume).await;
        let before = self.entry(claim).map(|e| e.phase);
        steps.rest();
        if let Came::Waits(reason) = self.take_steps(steps).await? {
            return Err(reason);
        }
        if before.is_some_and(|phase| phase > MountPhase::Granted && phase < MountPhase::Unstaged) {
            self.note("Unmount volume", claim, None);
        }
        Ok(())
    }
}

pub(super) fn open_beneath(path: &Path) -> Result<(), CsiFault> {
    unseal_beneath(path).map_err(kernel("open what lies beneath a mount"))
}

/// Unmounts a path without its plugin. A mount in use stays, unless it is unmounted lazily.
pub(super) fn end(path: &Path, how: How) -> Result<(), CsiFault> {
    let how = match how {
        How::Now => Unmount::Now,
        How::Lazily => Unmount::Lazy,
    };
    unmount(path, how).map(drop).map_err(kernel("end a mount without its plugin"))
}

/// Removes a path that the plugin left, and the empty directories above it up to the root. A directory with the
/// plugin's own files stays: the plugin must remove it.
pub(super) fn clear(path: &Path, root: &Path) -> Result<(), CsiFault> {
    let gone = |result: std::io::Result<()>| match result {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
            tracing::warn!(path = %path.display(), "a plugin left files at a mount path; they are kept");
            Ok(())
        }
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    let removed = match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => gone(std::fs::remove_dir(path)),
        Ok(_) => gone(std::fs::remove_file(path)),
        Err(error) => gone(Err(error)),
    };
    removed.map_err(|source| CsiFault::Directory { what: "remove", path: path.to_owned(), source })?;
    let above = path.ancestors().skip(1).take_while(|p| p.starts_with(root) && *p != root);
    for dir in above {
        // Another claim uses the other directories.
        if std::fs::remove_dir(dir).is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refusal_after_open_outcomes_is_retried_soon() {
        let soon = Duration::from_millis(250 + 250 / 4);
        let mut pauses = Pauses::default();
        let open: Vec<Duration> = (0..10).map(|_| pauses.after(0, false)).collect();
        assert!(open[0] <= soon && open[9] >= Duration::from_secs(60), "{open:?}");
        assert!(pauses.after(0, true) <= soon, "the plugin refuses for the first time");
        assert_eq!(pauses.tries, 1);
        assert!(pauses.after(0, true) > soon, "a further refusal");
        assert!(
            pauses.after(0, true) >= Duration::from_secs(1),
            "a plugin that alternates is not called more often"
        );
        assert!(pauses.after(1, false) <= soon, "a place is free");
        assert!(pauses.after(1, true) <= soon, "the first refusal for the next place");
    }

    #[test]
    fn what_a_plugin_left_at_its_target_keeps_no_claim() {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("per-alloc/a/v/rw");
        std::fs::create_dir_all(&target).unwrap();
        std::fs::write(target.join("metadata"), "of the plugin").unwrap();
        clear(&target, root.path()).unwrap();
        assert!(target.join("metadata").exists(), "it is the plugin's to remove");
        std::fs::remove_file(target.join("metadata")).unwrap();
        clear(&target, root.path()).unwrap();
        clear(&target, root.path()).unwrap();
        assert!(!root.path().join("per-alloc").exists() && root.path().exists());
    }
}
