//! Verification at the agent's start: finds the plugins and creates every volume again.

use super::fault::HostVolumeFault;
use super::{HostVolumeRecord, HostVolumes, RecordPhase};
use crate::clock::Backoff;
use caravan_types::host_volume::HostVolume;
use caravan_types::{HostVolumeId, Namespace};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::path::Path;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Refuses a path that does not exist.
pub(super) fn path_exists(name: &str, path: &Path) -> Result<(), HostVolumeFault> {
    std::fs::metadata(path).map(drop).map_err(|error| HostVolumeFault::Path {
        name: name.to_owned(),
        path: path.to_owned(),
        why: words(&error),
    })
}

/// Returns the system's error text as clients expect it: in lower case and without its number.
fn words(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => nix::errno::Errno::from_raw(number).desc().to_lowercase(),
        None => error.to_string(),
    }
}

impl HostVolumes {
    /// Finds the plugins and creates every volume again, retrying failures until they succeed. One failing volume does
    /// not keep others from being offered.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let plugins = self.inner.plugins.fingerprint().await;
        for (id, version) in plugins {
            self.inner.node.put_attribute(&HostVolume::plugin_attribute(&id), version);
        }
        let mut unverified: FuturesUnordered<_> = self
            .unverified()
            .into_iter()
            .map(|id| {
                let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
                let this = self.clone();
                async move {
                    let done = this.verify(&id).await;
                    (id, done, backoff.delay(), backoff)
                }
            })
            .collect();
        let mut failed = Vec::new();
        while let Some((id, done, delay, backoff)) = tokio::select! {
            () = cancel.cancelled() => return,
            next = unverified.next() => next,
        } {
            if !done {
                failed.push((id, delay, backoff));
            }
        }
        self.inner.first_pass.send_replace(true);
        let again = failed.into_iter().map(|(id, mut delay, mut backoff)| {
            let this = self.clone();
            async move {
                loop {
                    tokio::time::sleep(delay).await;
                    if this.verify(&id).await {
                        return;
                    }
                    delay = backoff.delay();
                }
            }
        });
        tokio::select! {
            () = cancel.cancelled() => {}
            _ = futures::future::join_all(again) => {}
        }
    }

    /// Waits until every plugin and volume was tried once, for at most `patience`.
    pub(crate) async fn first_pass(&self, patience: Duration) {
        let mut passed = self.inner.first_pass.subscribe();
        if tokio::time::timeout(patience, passed.wait_for(|passed| *passed)).await.is_err() {
            tracing::warn!("registering the node without the host volumes of late plugins");
        }
    }

    fn unverified(&self) -> Vec<HostVolumeId> {
        let known = self.known();
        let ready = known.iter().filter(|(_, k)| !k.verified && k.record.phase == RecordPhase::Ready);
        ready.map(|(id, _)| id.clone()).collect()
    }

    /// Creates a volume again by its plugin. Returns whether the volume needs no further attempt.
    async fn verify(&self, id: &HostVolumeId) -> bool {
        let Some(name) = self.known().get(id).map(|k| k.record.volume.name.clone()) else { return true };
        let _turn = self.turn(&name).await;
        let record = match self.known().get(id) {
            Some(known) if !known.verified && known.record.phase == RecordPhase::Ready => {
                known.record.clone()
            }
            // The servers changed the volume meanwhile.
            _ => return true,
        };
        let kept = match self.made_again(record).await {
            Ok(record) => self.keep(record, true).await,
            Err(fault) => Err(fault),
        };
        match kept {
            Ok(()) => {
                self.offer();
                true
            }
            Err(error) => {
                tracing::warn!(volume = %id, name, %error, "host volume is not offered: it could not be verified");
                false
            }
        }
    }

    async fn made_again(&self, record: HostVolumeRecord) -> Result<HostVolumeRecord, HostVolumeFault> {
        if record.volume.plugin_id.is_empty() {
            path_exists(&record.volume.name, Path::new(&record.host_path))?;
            return Ok(record);
        }
        let plugin = self.inner.plugins.find(&record.volume.plugin_id)?;
        let made = self.inner.plugins.create(&plugin, &record.volume).await?;
        Ok(HostVolumeRecord { host_path: made.host_path, ..record })
    }

    /// Waits until a volume of an earlier agent is verified; `tell` is called if that takes longer than a second.
    pub(crate) async fn settled(&self, namespace: &Namespace, name: &str, tell: impl FnOnce()) {
        let mut changes = self.inner.changes.subscribe();
        let mut tell = Some(tell);
        loop {
            changes.borrow_and_update();
            let waits = self.known().values().any(|k| {
                let volume = &k.record.volume;
                !k.verified
                    && k.record.phase == RecordPhase::Ready
                    && volume.name == name
                    && volume.namespace == *namespace
            });
            if !waits {
                return;
            }
            // Most volumes are verified before a wait is worth reporting.
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep(Duration::from_secs(1)), if tell.is_some() => {
                    if let Some(tell) = tell.take() {
                        tell();
                    }
                }
            }
        }
    }
}
