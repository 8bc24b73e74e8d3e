//! The remains of an earlier agent: ledger, mount table and directories are compared at start.

use super::health::{Kind, Trouble};
use super::ledger::{ClaimEntry, MountPhase};
use super::releases::{clear, open_beneath};
use super::volumes::{VolumeManager, check, seal};
use caravan_messages::ClaimReportStep;
use caravan_sys::below::{Treatment, end_mounts};
use caravan_sys::mount::is_mount_point;
use caravan_types::AllocId;
use caravan_volumes::paths::{PER_ALLOC, STAGING, VolumePaths};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

impl VolumeManager {
    /// Adopts the mounts of live claims, and cleans up all others. Claims of allocations on this node keep their
    /// mounts, which are sealed again. Claims of other allocations are released, mounts without a claim are unmounted,
    /// and empty directories are removed.
    ///
    /// A mount without a claim is unmounted without its plugin, because only the ledger contains the volume's
    /// external id.
    pub(crate) fn adopt(&self, is_live: impl Fn(&AllocId) -> bool) {
        let entries: Vec<ClaimEntry> = self.lock().entries().cloned().collect();
        for entry in entries.iter().filter(|e| !is_live(&e.claim.alloc) || e.phase > MountPhase::Mounted) {
            tracing::info!(volume = %entry.claim.volume, alloc = %entry.claim.alloc, "releasing a stale claim");
            self.release(entry.claim.clone());
        }
        for entry in entries.iter().filter(|e| is_live(&e.claim.alloc) && e.renewing) {
            let path = entry.on_host().map(|p| p.publish.display().to_string()).unwrap_or_default();
            let reason = "an earlier agent was mounting it anew".to_owned();
            let trouble = Trouble { kind: Kind::Changed, path, reason };
            self.inner.troubles.send_modify(|all| drop(all.insert(entry.claim.clone(), trouble)));
        }
        for entry in entries.iter().filter(|e| is_live(&e.claim.alloc) && e.phase == MountPhase::Mounted) {
            // The last agent may have ended before the servers accepted the proof. If they accepted it, this report
            // is a repetition.
            if let Some(proof) = entry.proof.clone() {
                self.report(entry.claim.clone(), entry.generation, ClaimReportStep::Mounted { proof });
            }
            // The last agent may also have ended between mounting and sealing.
            if let (Ok(()), Ok(host)) = (check(entry), entry.on_host()) {
                seal(&host.publish);
                if entry.stages {
                    seal(&host.staging);
                }
            }
        }
        let places: Vec<VolumePaths> = entries.iter().filter_map(|e| e.on_host().ok()).collect();
        self.end_unknown_mounts(&places);
        for root in plugin_roots(&self.inner.csi_dir) {
            for part in [STAGING, PER_ALLOC] {
                remove_unknown(&root.join(part), &root, &places);
            }
        }
    }

    /// Unmounts mounts on stages and targets that belong to no claim. A mount that is in use, or would lose data, stays
    /// and is reported.
    fn end_unknown_mounts(&self, places: &[VolumePaths]) {
        let csi_dir = self.inner.csi_dir.canonicalize().unwrap_or_else(|_| self.inner.csi_dir.clone());
        let real = |path: &Path| match path.strip_prefix(&self.inner.csi_dir) {
            Ok(below) => csi_dir.join(below),
            Err(_) => path.to_owned(),
        };
        let known: Vec<PathBuf> = places.iter().flat_map(|p| [real(&p.publish), real(&p.staging)]).collect();
        for dir in plugin_roots(&csi_dir).iter().flat_map(|root| [root.join(STAGING), root.join(PER_ALLOC)]) {
            let outcome = end_mounts(&dir, |found| {
                match known.iter().any(|place| found.entry.target.starts_with(place)) {
                    true => Treatment::Keep,
                    false => Treatment::Foreign,
                }
            });
            let outcome = match outcome {
                Ok(outcome) => outcome,
                Err(error) => {
                    let error = caravan_sys::describe(&error);
                    tracing::warn!(dir = %dir.display(), error, "left-over mounts cannot be removed");
                    continue;
                }
            };
            for path in outcome.ended {
                let path = path.display().to_string();
                tracing::warn!(path, "unmounted a mount without a claim");
                let details = BTreeMap::from([("path".to_owned(), path)]);
                self.inner.node.event("Storage", "Ended a mount that no claim knows", details);
            }
            for mount in outcome.left {
                tracing::warn!(%mount, "a mount without a claim was not removed");
                let details = BTreeMap::from([
                    ("path".to_owned(), mount.path.display().to_string()),
                    ("error".to_owned(), mount.reason.to_string()),
                ]);
                self.inner.node.event("Storage", "A mount that no claim knows stays", details);
            }
        }
    }
}

/// Returns the plugin roots: `<csi_dir>/<type>/<plugin>`.
fn plugin_roots(csi_dir: &Path) -> Vec<PathBuf> {
    let kinds = ["controller", "node", "monolith"].map(|kind| csi_dir.join(kind));
    kinds
        .iter()
        .filter_map(|kind| std::fs::read_dir(kind).ok())
        .flatten()
        .flatten()
        .map(|e| e.path())
        .collect()
}

/// Removes empty directories below `dir` that belong to no claim; directories with content stay.
fn remove_unknown(dir: &Path, root: &Path, places: &[VolumePaths]) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|e| e.path()) {
        let used = |p: &VolumePaths| p.publish == path || p.staging == path;
        if places.iter().any(used) || is_mount_point(&path).unwrap_or(true) {
            continue;
        }
        if !places.iter().any(|p| p.publish.starts_with(&path) || p.staging.starts_with(&path))
            && let Err(fault) = open_beneath(&path)
        {
            tracing::debug!(%fault, "a left-over directory cannot be unsealed");
        }
        let meta = path.symlink_metadata();
        if meta.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
            remove_unknown(&path, root, places);
        }
        let empty = match meta {
            Ok(meta) if meta.is_dir() => std::fs::read_dir(&path).is_ok_and(|mut all| all.next().is_none()),
            // The file on which a device was bind-mounted.
            Ok(meta) => meta.is_file() && meta.len() == 0,
            Err(_) => false,
        };
        if empty && let Err(fault) = clear(&path, root) {
            tracing::debug!(%fault, "a left-over directory cannot be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::VolumeKey;
    use caravan_types::volume::Usage;
    use std::fs;

    #[test]
    fn empty_directories_that_no_claim_has_are_removed_sealed_or_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("node/p");
        let known = caravan_volumes::paths::for_use(
            &root,
            &VolumeKey::new("default", "a"),
            &Usage::default(),
            &"x".into(),
        );
        let known = known.unwrap();
        let (left, full) = (root.join("per-alloc/y/b/rw"), root.join("staging/default/c/rw"));
        for path in [&known.staging, &known.publish, &left, &full] {
            fs::create_dir_all(path).unwrap();
        }
        fs::write(full.join("data"), "x").unwrap();
        caravan_sys::seal::seal_beneath(&left).unwrap();
        assert_eq!(plugin_roots(dir.path()), std::slice::from_ref(&root));
        for part in [STAGING, PER_ALLOC] {
            remove_unknown(&root.join(part), &root, std::slice::from_ref(&known));
        }
        assert!(known.staging.exists() && known.publish.exists() && full.join("data").exists());
        assert!(!root.join("per-alloc/y").exists());
    }
}
