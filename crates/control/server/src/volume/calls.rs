//! Calls to plugins: the calls in progress, their durations, and the limit of concurrent calls to one plugin.
//!
//! This data is not durable. It feeds `volume explain`, the metrics and the lanes.

use crate::runtime;
use caravan_messages::ControllerOperation;
use caravan_meters::{Aggregate, Recent};
use caravan_types::volume::CallInFlight;
use caravan_types::{AllocId, Nanos, NodeId, PluginId, VolumeKey};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast};

/// Default number of concurrent calls of one kind to one plugin.
pub const CALLS_PER_PLUGIN: usize = 8;

/// Number of volumes that a follower of calls and reasons may lag behind.
pub(super) const LAG: usize = 1024;

/// A kind of call; each kind has a separate limit, so that it does not wait for calls of other kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    /// ControllerPublishVolume.
    Attach,
    /// ControllerUnpublishVolume.
    Detach,
    /// NodeExpandVolume.
    Grow,
    /// Calls that create, expand and delete volumes and snapshots.
    Manage,
}

impl Lane {
    const ALL: [Self; 4] = [Self::Attach, Self::Detach, Self::Grow, Self::Manage];

    /// Returns the word that users see.
    fn name(self) -> &'static str {
        match self {
            Self::Attach => "attach",
            Self::Detach => "detach",
            Self::Grow => "grow",
            Self::Manage => "manage",
        }
    }

    /// Returns the lane whose permit the call acquires itself. Attach and detach acquire their permits before the
    /// intent is written, and queries need none.
    pub(super) fn from_operation(operation: &ControllerOperation) -> Option<Self> {
        use ControllerOperation as Op;
        match operation {
            Op::Create { .. }
            | Op::Delete { .. }
            | Op::Expand { .. }
            | Op::CreateSnapshot { .. }
            | Op::DeleteSnapshot { .. } => Some(Self::Manage),
            Op::Publish { .. }
            | Op::Unpublish { .. }
            | Op::Validate { .. }
            | Op::List { .. }
            | Op::ListSnapshots { .. } => None,
        }
    }
}

/// The use of a lane of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneUse {
    /// `attach`, `detach`, `grow` or `manage`.
    pub name: &'static str,
    /// Number of calls that have a permit.
    pub running: usize,
    /// Number of calls that wait for a permit.
    pub waiting: usize,
    /// Number of permits.
    pub limit: usize,
}

/// The permits of a lane, and the number of calls that wait for one.
#[derive(Clone, Debug)]
struct Permits {
    free: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

/// A guard that counts a waiting call until dropped.
struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn new(number: Arc<AtomicUsize>) -> Self {
        number.fetch_add(1, Ordering::Relaxed);
        Self(number)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Statistics of one kind of call to a plugin since the server started. Times are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallFigures {
    /// Durations of the completed calls.
    pub times: Aggregate,
    /// Durations of the latest calls.
    pub recent: Recent,
    /// Number of failed calls.
    pub errors: u64,
    /// Number of calls in progress.
    pub in_flight: usize,
}

#[derive(Debug)]
struct Running {
    plugin: PluginId,
    volume: Option<VolumeKey>,
    call: CallInFlight,
    name: &'static str,
    begun: Instant,
}

#[derive(Debug, Default)]
struct Book {
    next: u64,
    running: BTreeMap<u64, Running>,
    figures: BTreeMap<(PluginId, &'static str), CallFigures>,
    lanes: HashMap<(PluginId, Lane), Permits>,
}

/// All calls of this server; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    book: Arc<Mutex<Book>>,
    width: usize,
    /// The channel that reports the volumes whose calls begin and end.
    volumes: broadcast::Sender<VolumeKey>,
}

/// A call in progress. It ends when dropped, and counts as failed unless [`Call::done`] reported success.
#[derive(Debug)]
pub(crate) struct Call {
    calls: Calls,
    number: u64,
    begun: Instant,
    good: bool,
}

impl Calls {
    pub(crate) fn new(width: usize) -> Self {
        Self { book: Arc::default(), width: width.max(1), volumes: broadcast::Sender::new(LAG) }
    }

    /// Returns the channel that reports the volumes whose calls begin and end.
    pub(super) fn reports(&self) -> broadcast::Sender<VolumeKey> {
        self.volumes.clone()
    }

    fn report(&self, volume: &Option<VolumeKey>) {
        if let Some(volume) = volume.as_ref().filter(|_| self.volumes.receiver_count() > 0) {
            // The last receiver may have been dropped.
            let _ = self.volumes.send(volume.clone());
        }
    }

    /// Locks the book. Each holder performs one complete change, so a panic leaves the data consistent.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock()
    }

    /// Waits for the permit to make a call of this kind.
    pub(crate) async fn permit(&self, plugin: &PluginId, lane: Lane) -> Option<OwnedSemaphorePermit> {
        let lane = {
            let mut book = self.book();
            let lane = book.lanes.entry((plugin.clone(), lane));
            let new = || Permits { free: Arc::new(Semaphore::new(self.width)), waiting: Arc::default() };
            lane.or_insert_with(new).clone()
        };
        let _waiting = Waiting::new(lane.waiting);
        // The semaphore is never closed.
        lane.free.acquire_owned().await.ok()
    }

    /// Returns the use of each lane of a plugin.
    pub(crate) fn lanes(&self, plugin: &PluginId) -> Vec<LaneUse> {
        let book = self.book();
        let used = |lane: Lane| {
            let permits = book.lanes.get(&(plugin.clone(), lane));
            let free = permits.map_or(self.width, |permits| permits.free.available_permits());
            LaneUse {
                name: lane.name(),
                running: self.width.saturating_sub(free),
                waiting: permits.map_or(0, |permits| permits.waiting.load(Ordering::Relaxed)),
                limit: self.width,
            }
        };
        Lane::ALL.into_iter().map(used).collect()
    }

    /// Records the beginning of a call.
    pub(crate) fn begin(
        &self,
        plugin: &PluginId,
        about: Option<&(VolumeKey, AllocId)>,
        name: &'static str,
    ) -> Call {
        let (volume, alloc_id) = match about {
            Some((volume, alloc)) => (Some(volume.clone()), alloc.clone()),
            None => (None, AllocId::default()),
        };
        let call = CallInFlight {
            call: name.to_owned(),
            alloc_id,
            since: runtime::wall(),
            ..CallInFlight::default()
        };
        let mut book = self.book();
        book.next += 1;
        let number = book.next;
        let begun = Instant::now();
        let running = Running { plugin: plugin.clone(), volume: volume.clone(), call, name, begun };
        book.running.insert(number, running);
        drop(book);
        self.report(&volume);
        Call { calls: self.clone(), number, begun, good: false }
    }

    /// Returns the calls in progress for a volume, oldest first.
    pub(crate) fn list(&self, volume: &VolumeKey) -> Vec<CallInFlight> {
        let book = self.book();
        let of_volume = book.running.values().filter(|r| r.volume.as_ref() == Some(volume));
        let running_for = |running: &Running| Nanos::from_std(running.begun.elapsed());
        of_volume.map(|r| CallInFlight { running_for: running_for(r), ..r.call.clone() }).collect()
    }

    /// Returns the calls in progress of a plugin with their volumes, oldest first.
    pub(crate) fn of_plugin(&self, plugin: &PluginId) -> Vec<(Option<VolumeKey>, CallInFlight)> {
        let book = self.book();
        let of_plugin = book.running.values().filter(|running| running.plugin == *plugin);
        of_plugin
            .map(|running| {
                let running_for = Nanos::from_std(running.begun.elapsed());
                (running.volume.clone(), CallInFlight { running_for, ..running.call.clone() })
            })
            .collect()
    }

    /// Returns statistics of all kinds of calls, by plugin and name.
    pub(crate) fn figures(&self) -> BTreeMap<(PluginId, &'static str), CallFigures> {
        let book = self.book();
        let mut figures = book.figures.clone();
        for running in book.running.values() {
            figures.entry((running.plugin.clone(), running.name)).or_default().in_flight += 1;
        }
        figures
    }

    fn end(&self, number: u64, took: Duration, good: bool) {
        let mut book = self.book();
        let Some(running) = book.running.remove(&number) else { return };
        let figures = book.figures.entry((running.plugin, running.name)).or_default();
        figures.times.note_time(took);
        figures.recent.note_time(Instant::now(), took);
        figures.errors += u64::from(!good);
        drop(book);
        self.report(&running.volume);
    }
}

impl Call {
    /// Records the node that makes the call.
    pub(crate) fn at(&self, node: &NodeId) {
        if let Some(running) = self.calls.book().running.get_mut(&self.number) {
            running.call.node_id = node.clone();
        }
    }

    /// Records whether the call succeeded.
    pub(crate) fn done(mut self, good: bool) {
        self.good = good;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.calls.end(self.number, self.begun.elapsed(), self.good);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_seen_while_they_run_and_counted_when_they_end() {
        let calls = Calls::new(2);
        let (plugin, key) = (PluginId::new("p"), VolumeKey::new("default", "v"));
        let about = (key.clone(), AllocId::new("a"));
        let call = calls.begin(&plugin, Some(&about), "ControllerPublishVolume");
        call.at(&"n".into());
        let seen = calls.list(&key);
        assert_eq!((seen[0].node_id.as_str(), seen[0].alloc_id.as_str()), ("n", "a"));
        assert!(calls.list(&VolumeKey::new("default", "w")).is_empty());
        assert_eq!(calls.of_plugin(&plugin)[0].0, Some(key.clone()));
        assert!(calls.of_plugin(&PluginId::new("q")).is_empty());
        assert_eq!(calls.figures()[&(plugin.clone(), "ControllerPublishVolume")].in_flight, 1);
        call.done(true);
        drop(calls.begin(&plugin, None, "ControllerPublishVolume"));
        let figures = calls.figures()[&(plugin, "ControllerPublishVolume")].clone();
        assert_eq!((figures.times.count, figures.errors, figures.in_flight), (2, 1, 0));
        assert!(calls.list(&key).is_empty());
    }

    #[tokio::test]
    async fn the_volumes_of_calls_are_reported_when_they_begin_and_end() {
        let calls = Calls::new(1);
        let (plugin, key) = (PluginId::new("p"), VolumeKey::new("default", "v"));
        let mut reports = calls.reports().subscribe();
        let call = calls.begin(&plugin, Some(&(key.clone(), AllocId::default())), "DeleteVolume");
        assert_eq!(reports.try_recv().unwrap(), key);
        drop(calls.begin(&plugin, None, "ListVolumes"));
        assert!(reports.try_recv().is_err());
        call.done(true);
        assert_eq!((reports.try_recv().unwrap(), calls.list(&key)), (key, vec![]));
    }

    #[tokio::test]
    async fn lanes_are_apart() {
        let calls = Calls::new(1);
        let plugin = PluginId::new("p");
        let _attach = calls.permit(&plugin, Lane::Attach).await.unwrap();
        let _detach = calls.permit(&plugin, Lane::Detach).await.unwrap();
        let _other = calls.permit(&PluginId::new("q"), Lane::Attach).await.unwrap();
        let second = calls.permit(&plugin, Lane::Attach);
        assert!(tokio::time::timeout(Duration::from_millis(1), second).await.is_err());
        let mut second = Box::pin(calls.permit(&plugin, Lane::Attach));
        assert!(futures::poll!(second.as_mut()).is_pending());
        let of = |calls: &Calls| {
            let lanes = calls.lanes(&plugin).into_iter();
            lanes.map(|lane| (lane.name, lane.running, lane.waiting)).collect::<Vec<_>>()
        };
        let rest = [("detach", 1, 0), ("grow", 0, 0), ("manage", 0, 0)];
        assert_eq!(of(&calls), [&[("attach", 1, 1)][..], &rest].concat());
        drop(second);
        assert_eq!(of(&calls), [&[("attach", 1, 0)][..], &rest].concat());
    }
}
