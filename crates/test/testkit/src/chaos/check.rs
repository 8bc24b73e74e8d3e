//! The checks of a chaos run: of the stamps at any time, and of the whole cluster when it is quiet.

use super::schedule::{JobPlan, Schedule, VolumePlan};
use crate::cluster::{Cluster, SanVolume, Stamp};
use crate::trace::{self, Event, Held, Line, Note, Setting};
use crate::wait::eventually_within;
use anyhow::{Context, Result, bail, ensure};
use caravan_volumes::invariants::Needs;
use nix::time::{ClockId, clock_gettime};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The maximum age in nanoseconds of the latest stamp of an active writer.
const FRESH: u64 = 3_000_000_000;

/// Returns the boot time in nanoseconds, the clock of the stamps.
pub(crate) fn boot_time() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME)?;
    Ok(u64::try_from(now.tv_sec())? * 1_000_000_000 + u64::try_from(now.tv_nsec())?)
}

/// Checks that writers of a single-writer volume followed each other: in the order of the file, no stamp of
/// one writer is between stamps of another. Rule 2 of the storage rules.
pub fn one_writer_at_a_time(stamps: &[Stamp]) -> Result<(), String> {
    let mut over: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for pair in stamps.windows(2) {
        let (before, after) = (&pair[0], &pair[1]);
        let (old, new) = ((&*before.alloc, &*before.run), (&*after.alloc, &*after.run));
        if old == new {
            continue;
        }
        over.insert(old, before.at);
        if let Some(ended) = over.get(&new) {
            return Err(format!(
                "allocation {} (run {}) wrote at {} though {} (run {}) had written since its stamp at {ended}",
                new.0, new.1, after.at, old.0, old.1
            ));
        }
    }
    Ok(())
}

/// Returns the allocations of a job that may still run.
fn live(cluster: &Cluster, job: &str) -> Result<Vec<Value>> {
    let mut allocs = cluster.server().allocs(job)?;
    allocs.retain(|a| !matches!(a["ClientStatus"].as_str(), Some("complete" | "failed" | "lost")));
    Ok(allocs)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// Returns the active claims of a volume: phase by allocation.
fn claims(cluster: &Cluster, volume: &str) -> Result<BTreeMap<String, String>> {
    let whole = cluster.volume(volume)?;
    let claims = whole["CaravanClaims"].as_array().cloned().unwrap_or_default();
    let held = claims.iter().filter(|c| c["Phase"] != "gone");
    Ok(held.map(|c| (text(c, "AllocID").to_owned(), text(c, "Phase").to_owned())).collect())
}

/// Returns all volume mounts of all nodes, as node and path.
fn mounts(cluster: &Cluster) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for node in cluster.nodes() {
        all.extend(node.volume_mounts()?.into_iter().map(|path| (node.name.clone(), path)));
    }
    Ok(all)
}

fn known(cluster: &Cluster, volume: &VolumePlan) -> Result<SanVolume> {
    let found = cluster.san(&volume.plugin).volume(&volume.id)?;
    found.with_context(|| format!("the plugin has lost volume {}", volume.id))
}

/// Checks that all desired allocations run and write, and that claims = consumers = published = mounts.
pub(crate) fn settled(cluster: &Cluster, schedule: &Schedule) -> Result<()> {
    let mut mounts = mounts(cluster)?;
    for (number, volume) in schedule.volumes.iter().enumerate() {
        let jobs = schedule.jobs.iter().zip(&schedule.finally).filter(|(job, _)| job.volume == number);
        let mut running: BTreeMap<String, String> = BTreeMap::new();
        for (job, desired) in jobs {
            running.extend(of_job(cluster, job, desired.unwrap_or(0))?);
        }
        of_volume(cluster, schedule, volume, &running)?;
        for (alloc, node) in &running {
            let (before, word) = (mounts.len(), format!("/{alloc}/"));
            mounts.retain(|(on, path)| !(on == node && path.contains(&word)));
            ensure!(mounts.len() < before, "allocation {alloc} has no mount on {node}");
        }
    }
    mounts.retain(|(_, path)| !path.contains("/staging/"));
    ensure!(mounts.is_empty(), "mounts of nobody: {mounts:?}");
    Ok(())
}

/// Returns the allocations of a job and their nodes, if their number is `desired` and all run.
fn of_job(cluster: &Cluster, job: &JobPlan, desired: u32) -> Result<BTreeMap<String, String>> {
    let live = live(cluster, &job.id)?;
    let reported: Vec<String> = live
        .iter()
        .map(|a| {
            let (id, node) = (text(a, "ID"), text(a, "NodeName"));
            format!("{id} on {node}: {}/{}", text(a, "DesiredStatus"), text(a, "ClientStatus"))
        })
        .collect();
    let runs = live.iter().all(|a| a["ClientStatus"] == "running" && a["DesiredStatus"] == "run");
    if !runs || live.len() != desired as usize {
        let states: Vec<&Value> = live.iter().map(|a| &a["TaskStates"]).collect();
        bail!("job {} is to have {desired} running allocations and has {reported:?}: {states:?}", job.id);
    }
    Ok(live.iter().map(|a| (text(a, "ID").to_owned(), text(a, "NodeName").to_owned())).collect())
}

fn of_volume(
    cluster: &Cluster,
    schedule: &Schedule,
    volume: &VolumePlan,
    running: &BTreeMap<String, String>,
) -> Result<()> {
    let id = &volume.id;
    let claims = claims(cluster, id)?;
    let mounted = claims.values().all(|phase| phase == "mounted");
    ensure!(
        mounted && claims.keys().eq(running.keys()),
        "volume {id}: claims {claims:?}, running {running:?}"
    );

    let known = known(cluster, volume)?;
    let mut published: Vec<&str> = known.published.iter().map(|(node, _)| node.as_str()).collect();
    let mut consumers: Vec<&str> = running.values().map(String::as_str).collect();
    published.sort_unstable();
    consumers.sort_unstable();
    ensure!(published == consumers, "volume {id}: running on {consumers:?}, the plugin says {known:?}");
    let nodes: BTreeSet<&str> = consumers.into_iter().collect();
    let staged: BTreeSet<&str> = known.staged.iter().map(|(node, _)| node.as_str()).collect();
    let attached: BTreeSet<&str> = known.attached.iter().map(String::as_str).collect();
    let plugin = cluster.plugin(&volume.plugin).context("a plugin of no cluster")?;
    ensure!(!plugin.stage || staged == nodes, "volume {id}: running on {nodes:?}, staged on {staged:?}");
    ensure!(
        !plugin.attach || attached == nodes,
        "volume {id}: running on {nodes:?}, attached to {attached:?}"
    );

    if plugin.images {
        return Ok(());
    }
    let (stamps, now) = (cluster.san(&volume.plugin).stamps(id)?, boot_time()?);
    for alloc in running.keys() {
        let last = stamps.iter().rev().find(|s| s.alloc == *alloc).map_or(0, |s| s.at);
        ensure!(
            last + FRESH > now,
            "allocation {alloc} runs and does not write to {id} (seed {})",
            schedule.seed
        );
    }
    Ok(())
}

/// Checks that no volume has a claim, a mount or a consumer.
pub(crate) fn nothing_left(cluster: &Cluster, schedule: &Schedule) -> Result<()> {
    for job in &schedule.jobs {
        of_job(cluster, job, 0)?;
    }
    for volume in &schedule.volumes {
        let claims = claims(cluster, &volume.id)?;
        ensure!(claims.is_empty(), "volume {}: claims {claims:?}", volume.id);
        let known = known(cluster, volume)?;
        ensure!(known == SanVolume::default(), "volume {}: the plugin says {known:?}", volume.id);
    }
    let mounts = mounts(cluster)?;
    ensure!(mounts.is_empty(), "mounts are left: {mounts:?}");
    Ok(())
}

/// Checks the rules that hold at any time: no two concurrent writers, no stamp on a local disk.
pub(crate) fn never(cluster: &Cluster, schedule: &Schedule) -> Result<()> {
    for volume in &schedule.volumes {
        let images = cluster.plugin(&volume.plugin).is_some_and(|p| p.images);
        if volume.shared || images {
            continue;
        }
        let stamps = cluster.san(&volume.plugin).stamps(&volume.id)?;
        if let Err(words) = one_writer_at_a_time(&stamps) {
            bail!("volume {} had two writers at once: {words}", volume.id);
        }
    }
    for node in cluster.nodes() {
        let found = node.stamps_on_local_disk()?;
        ensure!(found.is_empty(), "files under the mount points of {}: {found:?}", node.name);
    }
    Ok(())
}

/// Moves starts of processes after the last line of their predecessors. A process may start while its predecessor
/// still serves, as in an update of the plugin's job. The checker, however, treats a start as the end of the
/// other processes of the instance.
fn starts_after_deaths(lines: &mut [Line]) {
    let mut spans: BTreeMap<(String, u32), (u64, u64)> = BTreeMap::new();
    for line in lines.iter() {
        let span = spans.entry((line.instance.clone(), line.pid)).or_insert((line.t_ns, line.t_ns));
        span.1 = line.t_ns;
    }
    for line in lines.iter_mut().filter(|line| line.event == Event::Start) {
        let earlier = spans
            .iter()
            .filter(|((instance, _), (first, _))| *instance == line.instance && *first < line.t_ns);
        let last = earlier.map(|(_, (_, last))| *last).max();
        line.t_ns = line.t_ns.max(last.map_or(0, |last| last + 1));
    }
    lines.sort_by_key(|line| line.t_ns);
}

/// The timeout for the last responses of the plugins.
const LAST_ANSWERS: Duration = Duration::from_secs(20);

/// Checks that the plugins were called as the CSI specification requires: in order, one call at a time on
/// each volume, and every effect undone. `notes` are the schedule's actions on nodes.
pub(crate) fn calls(cluster: &Cluster, schedule: &Schedule, notes: &[Note]) -> Result<()> {
    for volume in &schedule.volumes {
        let plugin = cluster.plugin(&volume.plugin).context("a plugin of no cluster")?;
        let needs = Needs { attach: plugin.attach, stage: plugin.stage, shared: volume.shared };
        let path = cluster.san(&volume.plugin).trace();
        // A call to which an ending plugin did not respond is retried, possibly only now.
        eventually_within(LAST_ANSWERS, "the plugin's log to tell the whole story", || {
            let log = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            let mut lines = trace::read([log.as_str()])?;
            starts_after_deaths(&mut lines);
            lines.retain(|line| line.event == Event::Start || line.volume == volume.id);
            let checked = trace::check(&lines, &Setting { needs, notes: notes.to_vec() });
            let (id, wrong) = (&volume.id, checked.wrong.join("\n  "));
            ensure!(
                checked.wrong.is_empty(),
                "calls on volume {id} were wrong:\n  {wrong}\n{}",
                path.display()
            );
            let left: Vec<_> = checked.held.values().filter(|held| **held != Held::default()).collect();
            ensure!(left.is_empty(), "volume {id}: by its log the plugin still has {left:?}");
            Ok(())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(who: &[(&str, &str)]) -> Vec<Stamp> {
        let stamp = |(at, (alloc, run)): (usize, &(&str, &str))| Stamp {
            alloc: (*alloc).to_owned(),
            run: (*run).to_owned(),
            at: at as u64,
        };
        who.iter().enumerate().map(stamp).collect()
    }

    #[test]
    fn a_process_that_begins_beside_another_does_not_end_its_calls() -> Result<()> {
        let line = |t: u64, pid: u32, event: &str| {
            format!("{{\"t_ns\":{t},\"pid\":{pid},\"instance\":\"n\",\"event\":\"{event}\"}}\n")
        };
        let log = [line(1, 1, "start"), line(2, 1, "begin"), line(3, 2, "start"), line(4, 1, "end")].concat();
        let mut lines = trace::read([log.as_str()])?;
        starts_after_deaths(&mut lines);
        let order: Vec<(u32, Event)> = lines.iter().map(|line| (line.pid, line.event)).collect();
        assert_eq!(order, [(1, Event::Start), (1, Event::Begin), (1, Event::End), (2, Event::Start)]);
        Ok(())
    }

    #[test]
    fn writers_follow_each_other() {
        let good = stamps(&[("a", "1"), ("a", "1"), ("a", "2"), ("b", "1"), ("b", "1")]);
        assert_eq!(one_writer_at_a_time(&good), Ok(()));
        assert_eq!(one_writer_at_a_time(&[]), Ok(()));
        for bad in [
            &[("a", "1"), ("b", "1"), ("a", "1")][..],
            &[("a", "1"), ("a", "2"), ("a", "1")],
            &[("a", "1"), ("b", "1"), ("c", "1"), ("a", "1")],
        ] {
            let words = one_writer_at_a_time(&stamps(bad)).unwrap_err();
            assert!(words.contains("allocation a (run 1)"), "{words}");
        }
    }
}
