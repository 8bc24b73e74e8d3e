//! Mounts that plugins leave below their directories when they end. Unused mounts are unmounted if no data is lost;
//! others are reported and checked periodically until they have ended.
//!
//! A plugin has two directories on the host, shared with its task in both directions. The first contains its socket
//! and exists for each allocation; the second is its root, which all of its allocations share. Content below a mount
//! there is never deleted: the socket's directory is removed by name, and the root stays.

use super::ledger::MountPhase;
use super::supervisor::{PluginTask, SOCKET};
use super::volumes::VolumeManager;
use super::watch::listen;
use crate::ClientError;
use crate::node::NodeState;
use caravan_sys::below::{self, Found, Outcome, Treatment, end_mounts};
use caravan_sys::dir::{Dir, Mounts};
use caravan_types::plugin::LeftMount;
use caravan_types::{AllocId, PluginId};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The interval between checks of mounts that are in use: nothing notifies about the end of a use.
const INTERVAL: Duration = Duration::from_secs(15);
/// The shortest pause between checks after changes, so that a burst of changes causes one check.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
/// The reason that mounts below a plugin's root stay while its volumes are mounted.
const VOLUMES_MOUNTED: &str = "a volume of the plugin is still mounted";

/// A directory in which plugins may have left mounts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    dir: PathBuf,
    plugin: PluginId,
    /// The allocation, for the directory of a socket; `None` for the root of a plugin.
    alloc: Option<AllocId>,
}

/// The remains of a plugin that ended.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// Paths of ended mounts.
    ended: Vec<PathBuf>,
    /// Mounts that stay.
    left: Vec<below::LeftMount>,
    /// The reason that the directory of the socket stays, if no mount keeps it.
    kept: Option<String>,
    /// The error that kept the mounts from being examined.
    error: Option<String>,
}

impl Rest {
    /// Describes the remains for an event of the task; `None` without any.
    pub(crate) fn describe(&self) -> Option<String> {
        let ended = self.ended.iter().map(|path| format!("unmounted {}", path.display()));
        let left = self.left.iter().map(|mount| format!("left {mount}"));
        let words: Vec<String> =
            ended.chain(left).chain(self.kept.clone()).chain(self.error.clone()).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }

    fn add(&mut self, other: Self) {
        self.ended.extend(other.ended);
        self.left.extend(other.left);
        self.kept = self.kept.take().or(other.kept);
        self.error = self.error.take().or(other.error);
    }
}

/// The mounts that plugins left on this node. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct LeftMounts {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    csi_dir: PathBuf,
    node: NodeState,
    volumes: VolumeManager,
    state: Mutex<State>,
    /// The lock of a check, so that no plugin starts while its directories are checked.
    turn: tokio::sync::Mutex<()>,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    /// Plugin tasks that have not ended, with their directories.
    live: BTreeMap<(AllocId, String), [PathBuf; 2]>,
    /// The mounts that stay, by place. A place without mounts could not be examined.
    left: BTreeMap<Place, Vec<below::LeftMount>>,
}

impl State {
    /// Records the mounts that stay in a place. A place that could not be examined keeps its earlier mounts and is
    /// examined again.
    fn note(&mut self, place: &Place, rest: &Rest) {
        match (&rest.error, rest.left.is_empty()) {
            (Some(_), _) => drop(self.left.entry(place.clone()).or_default()),
            (None, true) => drop(self.left.remove(place)),
            (None, false) => drop(self.left.insert(place.clone(), rest.left.clone())),
        }
    }
}

impl LeftMounts {
    /// Creates an empty set.
    pub(crate) fn new(csi_dir: PathBuf, node: NodeState, volumes: VolumeManager) -> Self {
        let (state, turn, changed) = Default::default();
        Self { inner: Arc::new(Inner { csi_dir, node, volumes, state, turn, changed }) }
    }

    /// Records a task that is a plugin of an earlier agent and has not ended.
    pub(crate) fn adopt(&self, task: &str, plugin: &PluginTask) {
        let key = (plugin.alloc().clone(), task.to_owned());
        self.lock().live.insert(key, plugin.dirs().map(Path::to_owned));
    }

    /// Records that a task starts as a plugin: its directories are in use until [`LeftMounts::end`].
    pub(crate) async fn begin(&self, task: &str, plugin: &PluginTask) {
        let _turn = self.inner.turn.lock().await;
        self.adopt(task, plugin);
    }

    /// Removes the remains of a plugin's task after it ended. Stages and targets belong to their claims.
    pub(crate) async fn end(&self, task: &str, plugin: &PluginTask) -> Rest {
        let _turn = self.inner.turn.lock().await;
        self.lock().live.remove(&(plugin.alloc().clone(), task.to_owned()));
        let mut rest = Rest::default();
        for place in Place::list(plugin) {
            rest.add(self.look(&place).await);
        }
        rest
    }

    /// Checks the directory of an allocation's socket again before the allocation is removed.
    pub(crate) async fn clear(&self, plugin: &PluginTask) -> Result<(), ClientError> {
        let _turn = self.inner.turn.lock().await;
        let [place, _] = Place::list(plugin);
        let rest = self.look(&place).await;
        match rest.left.first().map(ToString::to_string).or(rest.error) {
            None => Ok(()),
            Some(mount) => Err(ClientError::Mounted { dir: place.dir, mount }),
        }
    }

    /// Checks the directories of all plugins of earlier agents. `plugin_of` returns the plugin of a known allocation.
    pub(crate) async fn sweep(&self, plugin_of: impl Fn(&AllocId) -> Option<PluginId>) {
        let _turn = self.inner.turn.lock().await;
        let names = |dir: &Path| -> Vec<String> {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
        };
        let sockets = self.inner.csi_dir.join("plugins");
        let mut places: Vec<Place> = Vec::new();
        for alloc in names(&sockets) {
            let (dir, alloc) = (sockets.join(&alloc), AllocId::from(alloc.as_str()));
            places.push(Place { dir, plugin: plugin_of(&alloc).unwrap_or_default(), alloc: Some(alloc) });
        }
        for kind in ["controller", "node", "monolith"].map(|kind| self.inner.csi_dir.join(kind)) {
            let of_kind = names(&kind).into_iter();
            places.extend(of_kind.map(|name| Place {
                dir: kind.join(&name),
                plugin: PluginId::from(name.as_str()),
                alloc: None,
            }));
        }
        for place in places {
            let rest = self.look(&place).await;
            // An examination that failed is logged, and repeated.
            if let Some(words) = rest.describe().filter(|_| rest.error.is_none()) {
                tracing::warn!(
                    plugin = %place.plugin, dir = %place.dir.display(), words,
                    "a plugin left mounts or files, or its directory cannot be examined"
                );
                let details = BTreeMap::from([
                    ("plugin_id".to_owned(), place.plugin.to_string()),
                    ("path".to_owned(), place.dir.display().to_string()),
                    ("mounts".to_owned(), words),
                ]);
                self.inner.node.event("Storage", "Found mounts that a plugin left", details);
            }
        }
    }

    /// Checks the remaining mounts again until cancelled: after changes of the mount table or of volumes, and
    /// periodically.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let _listening = listen(&self.inner.changed);
        let mut volumes = self.inner.volumes.changes();
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = self.inner.changed.notified() => {}
                () = tokio::time::sleep(INTERVAL) => {}
                Ok(()) = volumes.changed() => {}
            }
            let places: Vec<Place> = self.lock().left.keys().cloned().collect();
            for place in places {
                let _turn = self.inner.turn.lock().await;
                let rest = self.look(&place).await;
                if !rest.ended.is_empty() {
                    tracing::info!(plugin = %place.plugin, ended = ?rest.ended, "ended mounts that a plugin left");
                }
            }
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(SHORTEST_PAUSE) => {}
            }
        }
    }

    /// Ends the unused mounts in a place and records the remaining ones. The place of a running plugin is skipped.
    async fn look(&self, place: &Place) -> Rest {
        let is_live = self.lock().live.values().flatten().any(|dir| *dir == place.dir);
        let result = match is_live {
            true => Ok(Rest::default()),
            false => {
                let (volumes, place) = (self.inner.volumes.clone(), place.clone());
                let work = tokio::task::spawn_blocking(move || clean(&place, &volumes));
                work.await
                    .map_err(|error| error.to_string())
                    .and_then(|rest| rest.map_err(|e| caravan_sys::describe(&e)))
            }
        };
        let rest = result.unwrap_or_else(|error| {
            tracing::warn!(dir = %place.dir.display(), error, "mounts of a plugin cannot be examined");
            Rest { error: Some(error), ..Rest::default() }
        });
        self.note(place, &rest);
        rest
    }

    fn note(&self, place: &Place, rest: &Rest) {
        let mut state = self.lock();
        state.note(place, rest);
        let all = state.left.iter().flat_map(|(place, mounts)| mounts.iter().map(|m| report(place, m)));
        // Still under the lock, so that the newest report is the last one.
        self.inner.node.put_left_mounts(all.collect());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock()
    }
}

impl Place {
    /// Returns the directory of the socket, then the root.
    fn list(plugin: &PluginTask) -> [Self; 2] {
        let [socket, root] = plugin.dirs().map(Path::to_owned);
        let id = plugin.id().clone();
        [
            Self { dir: socket, plugin: id.clone(), alloc: Some(plugin.alloc().clone()) },
            Self { dir: root, plugin: id, alloc: None },
        ]
    }
}

fn report(place: &Place, mount: &below::LeftMount) -> LeftMount {
    LeftMount {
        plugin_id: place.plugin.clone(),
        alloc_id: place.alloc.clone().unwrap_or_default(),
        path: mount.path.display().to_string(),
        fs_type: mount.fs_type.clone(),
        source: mount.source.clone(),
        reason: mount.reason.to_string(),
    }
}

fn clean(place: &Place, volumes: &VolumeManager) -> Result<Rest, caravan_sys::Error> {
    let Outcome { ended, left } = match place.alloc {
        Some(_) => end_mounts(&place.dir, |_| Treatment::Foreign)?,
        None => end_root(&place.dir, volumes)?,
    };
    let kept = match place.alloc.is_some() && left.is_empty() {
        true => remove_socket_dir(&place.dir)?,
        false => None,
    };
    Ok(Rest { ended, left, kept, error: None })
}

/// Unmounts the mounts below a plugin's root that belong to no claim.
fn end_root(root: &Path, volumes: &VolumeManager) -> Result<Outcome, caravan_sys::Error> {
    let Ok(real) = root.canonicalize() else { return Ok(Outcome::default()) };
    let (places, mounted) = volumes.places_below(root);
    let places: BTreeSet<PathBuf> = places.iter().map(|below| real.join(below)).collect();
    end_mounts(root, |found: Found<'_>| {
        let of_claim = found.entry.target.ancestors().any(|path| places.contains(path));
        match (of_claim, mounted) {
            (true, _) => Treatment::Keep,
            (false, true) => Treatment::Used(VOLUMES_MOUNTED),
            (false, false) => Treatment::Foreign,
        }
    })
}

impl VolumeManager {
    /// Returns the stages and targets of claims below a plugin's root, relative to it, and whether any of them is in
    /// use.
    fn places_below(&self, root: &Path) -> (Vec<PathBuf>, bool) {
        let ledger = self.lock();
        let mut places = Vec::new();
        let mut mounted = false;
        for entry in ledger.entries().filter(|entry| entry.host_root == root) {
            mounted |= entry.phase > MountPhase::Granted && entry.phase < MountPhase::Unstaged;
            if let Ok(paths) = entry.on_host() {
                let below = [paths.staging, paths.publish];
                places
                    .extend(below.iter().filter_map(|path| path.strip_prefix(root).ok().map(Path::to_owned)));
            }
        }
        (places, mounted)
    }
}

/// Removes the directory of a socket by name: the socket, empty directories, then the directory itself. Returns the
/// reason if the directory stays.
fn remove_socket_dir(dir: &Path) -> Result<Option<String>, caravan_sys::Error> {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else { return Ok(None) };
    let parent = match Dir::open(parent) {
        Err(error) if error.is_not_found() => return Ok(None),
        opened => opened?,
    };
    let inside = match parent.enter(Path::new(name), Mounts::Refuse) {
        Err(error) if error.is_not_found() => return Ok(None),
        opened => opened?,
    };
    inside.remove_file(OsStr::new(SOCKET))?;
    let mut others = Vec::new();
    for entry in inside.names()? {
        // For example former mount points. A directory with content stays.
        if inside.remove_dir(&entry).is_err() {
            others.push(entry.to_string_lossy().into_owned());
        }
    }
    if others.is_empty() {
        parent.remove_dir(name)?;
        return Ok(None);
    }
    others.sort();
    Ok(Some(format!("kept {}: the plugin left {} in it", dir.display(), others.join(", "))))
}

#[cfg(test)]
mod tests;
