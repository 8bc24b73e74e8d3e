//! Usage of volumes (NodeGetVolumeStats): read soon after a mount and then periodically, and reported to the servers
//! when it changed.

use super::ledger::{ClaimEntry, MountPhase};
use super::volumes::VolumeManager;
use crate::clock;
use caravan_csi::{NodeStatsRequest, VolumeStats as PluginStats};
use caravan_messages::VolumeStats;
use caravan_types::VolumeKey;
use caravan_types::plugin::PluginRole;
use caravan_types::time::UnixNanos;
use caravan_types::volume::{VolumeCondition, VolumeUsage};
use futures::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The interval between rounds, lengthened by up to a quarter, so that the nodes of a cluster do not send together.
const PERIOD: Duration = Duration::from_secs(30);
/// The delay after a new mount.
const SOON: Duration = Duration::from_secs(1);
/// The timeout of a plugin's response.
const DEADLINE: Duration = Duration::from_secs(10);
/// The longest time in which a request holds the volume's lock. The request continues without the lock afterwards,
/// because a slow response must not delay mounts.
const TURN: Duration = Duration::from_secs(1);
/// The longest time between two reports, so that a restarted server receives the usage again.
const REPEAT: Duration = Duration::from_secs(300);

/// The usage in the last report.
#[derive(Debug, Default)]
struct Last {
    usage: BTreeMap<VolumeKey, VolumeUsage>,
    reported: BTreeMap<VolumeKey, VolumeUsage>,
    /// The volumes whose usage was already requested, with any result.
    asked: BTreeSet<VolumeKey>,
    at: Option<Instant>,
}

impl Last {
    /// Returns the usage of all volumes, if it changed. A report contains all of them, because it replaces the one
    /// before.
    fn news(&self, now: Instant) -> Option<Vec<(VolumeKey, VolumeUsage)>> {
        let plain = |map: &BTreeMap<VolumeKey, VolumeUsage>| -> BTreeMap<VolumeKey, VolumeUsage> {
            let undated = |u: &VolumeUsage| VolumeUsage { sampled_at: UnixNanos::default(), ..u.clone() };
            map.iter().map(|(volume, usage)| (volume.clone(), undated(usage))).collect()
        };
        let changed = plain(&self.usage) != plain(&self.reported);
        let due = !self.usage.is_empty() && self.at.is_none_or(|at| now >= at + REPEAT);
        (changed || due).then(|| self.usage.clone().into_iter().collect())
    }
}

impl VolumeManager {
    /// Reads and reports usage until cancelled.
    pub(crate) async fn watch_usage(self, cancel: CancellationToken) {
        let mut ledger = self.changes();
        let mut last = Last::default();
        let mut due = Instant::now();
        loop {
            let mounted = self.mounted_volumes();
            let new = mounted.keys().any(|volume| !last.asked.contains(volume));
            let gone = last.usage.keys().any(|volume| !mounted.contains_key(volume));
            if Instant::now() >= due || gone {
                tokio::select! {
                    () = cancel.cancelled() => return,
                    () = self.round(&mounted, &mut last) => {}
                }
                due = Instant::now() + PERIOD + PERIOD.mul_f64(f64::from(clock::jitter_permille()) / 1000.0);
            } else if new && self.plugin_tells(&mounted, &last) {
                due = due.min(Instant::now() + SOON);
            }
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep_until(due) => {}
                changed = ledger.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Returns one claim of each volume that is mounted on this node.
    fn mounted_volumes(&self) -> BTreeMap<VolumeKey, ClaimEntry> {
        let ledger = self.lock();
        let mounted = ledger.entries().filter(|e| e.phase == MountPhase::Mounted);
        mounted.map(|e| (e.claim.volume.clone(), e.clone())).collect()
    }

    fn plugin_tells(&self, mounted: &BTreeMap<VolumeKey, ClaimEntry>, last: &Last) -> bool {
        let new = mounted.iter().filter(|(volume, _)| !last.asked.contains(*volume));
        let plugins: BTreeSet<_> = new.map(|(_, entry)| entry.plugin.clone()).collect();
        let node = self.inner.node.get();
        let tells = |info: &caravan_types::plugin::CsiInfo| {
            info.node_info.as_ref().is_some_and(|node| node.supports_stats)
        };
        plugins.iter().any(|plugin| node.csi_node_plugins.get(plugin).is_some_and(tells))
    }

    async fn round(&self, mounted: &BTreeMap<VolumeKey, ClaimEntry>, last: &mut Last) {
        let answers = join_all(mounted.values().map(|entry| self.ask(entry))).await;
        last.usage.retain(|volume, _| mounted.contains_key(volume));
        last.asked = mounted.keys().cloned().collect();
        for ((volume, entry), answer) in mounted.iter().zip(answers) {
            let Some(usage) = answer else { continue };
            let abnormal = |usage: &VolumeUsage| usage.condition.clone().filter(|c| c.abnormal);
            let before = last.usage.get(volume).and_then(abnormal);
            self.tell_condition(entry, before.as_ref(), abnormal(&usage).as_ref());
            last.usage.insert(volume.clone(), usage);
        }
        let now = Instant::now();
        let Some(usage) = last.news(now) else { return };
        let request = VolumeStats {
            node_id: self.inner.identity.node_id.clone(),
            secret: self.inner.identity.secret.clone(),
            usage,
        };
        match self.inner.servers.volume_stats(request).await {
            Ok(_) => {
                last.reported.clone_from(&last.usage);
                last.at = Some(now);
            }
            Err(error) => tracing::debug!(%error, "the usage of volumes cannot be reported yet"),
        }
    }

    /// Reads the usage of one volume. Returns `None` if the plugin does not support it or is absent, or another
    /// operation holds the volume.
    async fn ask(&self, entry: &ClaimEntry) -> Option<VolumeUsage> {
        let lent = self.inner.plugins.plugin(PluginRole::Node, &entry.plugin, Duration::ZERO).await.ok()?;
        lent.info.node_info.as_ref().filter(|node| node.supports_stats)?;
        let mut turn = Some(self.turn_now(&entry.claim.volume)?);
        if self.entry(&entry.claim).is_none_or(|now| now.phase != MountPhase::Mounted) {
            return None;
        }
        let inside = entry.in_plugin().ok()?;
        let asking = lent.instance.client.node_get_volume_stats(NodeStatsRequest {
            volume_id: entry.external_id.clone(),
            volume_path: inside.publish,
            staging_target_path: entry.stages.then_some(inside.staging),
        });
        let mut asking = std::pin::pin!(tokio::time::timeout(DEADLINE, asking));
        let answer = match tokio::time::timeout(TURN, &mut asking).await {
            Ok(answer) => answer,
            Err(_) => {
                drop(turn.take());
                asking.await
            }
        };
        drop(turn);
        match answer {
            Ok(Ok(reported)) => Some(usage(&reported, clock::now())),
            Ok(Err(error)) => {
                tracing::debug!(volume = %entry.claim.volume, %error, "the plugin failed to report a volume's usage");
                None
            }
            Err(_) => {
                tracing::debug!(volume = %entry.claim.volume, "the plugin did not report a volume's usage in time");
                None
            }
        }
    }

    fn tell_condition(
        &self,
        entry: &ClaimEntry,
        before: Option<&VolumeCondition>,
        now: Option<&VolumeCondition>,
    ) {
        if before == now {
            return;
        }
        let mut details = BTreeMap::from([("volume_id".to_owned(), entry.claim.volume.id.to_string())]);
        let message = match now {
            Some(condition) => {
                details.insert("error".to_owned(), condition.message.clone());
                "Volume condition abnormal"
            }
            None => "Volume condition normal",
        };
        self.inner.node.event("Storage", message, details);
    }
}

fn usage(reported: &PluginStats, now: UnixNanos) -> VolumeUsage {
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let (bytes, inodes) = (reported.bytes.unwrap_or_default(), reported.inodes.unwrap_or_default());
    VolumeUsage {
        total_bytes: number(bytes.total),
        used_bytes: number(bytes.used),
        available_bytes: number(bytes.available),
        total_inodes: number(inodes.total),
        used_inodes: number(inodes.used),
        available_inodes: number(inodes.available),
        condition: reported
            .condition
            .as_ref()
            .map(|c| VolumeCondition { abnormal: c.abnormal, message: c.message.clone() }),
        sampled_at: now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_servers_hear_of_changes_and_of_everything_now_and_then() {
        let now = Instant::now();
        let usage =
            |used, at| VolumeUsage { used_bytes: used, sampled_at: UnixNanos(at), ..Default::default() };
        let map = |usage: VolumeUsage| BTreeMap::from([(VolumeKey::new("default", "a"), usage)]);
        assert!(Last::default().news(now).is_none());
        let mut last = Last { usage: map(usage(1, 1)), ..Default::default() };
        assert_eq!(last.news(now).unwrap().len(), 1);
        last.reported = last.usage.clone();
        last.at = Some(now);
        last.usage = map(usage(1, 2));
        assert!(last.news(now).is_none(), "nothing but the time changed");
        assert!(last.news(now + REPEAT).is_some());
        last.usage.clear();
        assert_eq!(last.news(now).unwrap(), [], "a volume that is gone is news");
    }
}
