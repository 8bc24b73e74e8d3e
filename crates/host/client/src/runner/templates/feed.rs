//! The data that the templates of a task read: kept up to date by the servers' stream and by file notifications.

use super::place::Places;
use crate::servers::{Answers, Link};
use caravan_drivers::DirWatch;
use caravan_sys::dir::Dir;
use caravan_templates::Need;
use caravan_types::AllocId;
use caravan_types::lookup::{Found, Lookup, LookupsFound, WatchLookups};
use futures::StreamExt;
use futures::future::{pending, select_all};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The first and the longest pause between attempts to reach the servers.
const AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// The current values of all data.
pub(super) struct Feed {
    link: Link,
    alloc: AllocId,
    task: String,
    places: Places,
    /// The values of lookups at the servers.
    pub(super) found: Arc<BTreeMap<Lookup, Found>>,
    /// The content of files.
    pub(super) files: Arc<BTreeMap<String, String>>,
    /// The reason that the servers send nothing.
    pub(super) unreachable: Option<String>,
    needed: BTreeSet<Need>,
    /// The stream of the servers. Only the owner of this value uses the stream; the lock makes the type `Sync`.
    stream: Option<Mutex<Answers<LookupsFound>>>,
    next_try: Option<Instant>,
    wait: Duration,
    watches: Vec<DirWatch>,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("task", &self.task).field("needed", &self.needed).finish_non_exhaustive()
    }
}

impl Feed {
    pub(super) fn new(link: Link, alloc: AllocId, task: String, places: Places) -> Self {
        Self {
            link,
            alloc,
            task,
            places,
            found: Arc::default(),
            files: Arc::default(),
            unreachable: None,
            needed: BTreeSet::new(),
            stream: None,
            next_try: None,
            wait: AGAIN.0,
            watches: Vec::new(),
        }
    }

    /// Sets the data to read from now on. Returns the data that became known immediately.
    pub(super) fn want(&mut self, needed: BTreeSet<Need>) -> BTreeSet<Need> {
        if needed == self.needed {
            return BTreeSet::new();
        }
        let lookups = |needs: &BTreeSet<Need>| -> BTreeSet<Lookup> { lookups(needs).cloned().collect() };
        if !lookups(&needed).is_subset(&lookups(&self.needed)) {
            // The next stream sends all values from the beginning.
            self.stream = None;
        }
        self.needed = needed;
        let directories: BTreeMap<PathBuf, Option<Dir>> =
            self.paths().filter_map(|path| self.places.parent(path)).collect();
        // Read after the watches exist, so that no change is missed.
        self.watches = directories.values().map(|dir| DirWatch::on(dir.as_ref())).collect();
        self.read_files()
    }

    /// Returns whether a requested value is still missing.
    pub(super) fn is_waiting(&self) -> bool {
        lookups(&self.needed).any(|lookup| !self.found.contains_key(lookup))
    }

    /// Returns the reason that a requested value may not be read, if it may not.
    pub(super) fn denied(&self, need: &Need) -> Option<&str> {
        let Need::Lookup(lookup) = need else { return None };
        match self.found.get(lookup)? {
            Found::Denied(why) => Some(why),
            _ => None,
        }
    }

    fn paths(&self) -> impl Iterator<Item = &str> {
        self.needed.iter().filter_map(|need| match need {
            Need::File(path) => Some(path.as_str()),
            Need::Lookup(_) => None,
        })
    }

    fn read_files(&mut self) -> BTreeSet<Need> {
        let text = |path: &str| {
            let read = self.places.read(path).inspect_err(|why| {
                tracing::debug!(task = %self.task, why, "a file that a template reads cannot be read");
            });
            let bytes = read.ok().flatten()?;
            Some((path.to_owned(), String::from_utf8_lossy(&bytes).into_owned()))
        };
        let now: BTreeMap<String, String> = self.paths().filter_map(text).collect();
        let news = |path: &&String| self.files.get(*path) != now.get(*path);
        let changed =
            self.files.keys().chain(now.keys()).filter(news).map(|path| Need::File(path.clone())).collect();
        self.files = Arc::new(now);
        changed
    }

    /// Waits until a value changed, or the reason for a missing answer is known. May be dropped at any time.
    pub(super) async fn news(&mut self) -> BTreeSet<Need> {
        loop {
            let wants = lookups(&self.needed).next().is_some();
            let opened = self.stream.is_some();
            let next_try = self.next_try;
            let Self { link, alloc, task, needed, stream, watches, .. } = self;
            let (link, alloc, task, needed) = (&*link, &*alloc, &*task, &*needed);
            let open = async move {
                if let Some(at) = next_try {
                    sleep_until(at).await;
                }
                let request = WatchLookups {
                    node_id: link.identity.node_id.clone(),
                    secret: link.identity.secret.clone(),
                    alloc_id: alloc.clone(),
                    task: task.clone(),
                    lookups: lookups(needed).cloned().collect(),
                };
                link.servers.watch_lookups(request).await
            };
            let answer = async {
                match stream.as_mut() {
                    Some(stream) => stream.get_mut().next().await,
                    None => pending().await,
                }
            };
            let changed = async {
                match watches.is_empty() {
                    true => pending().await,
                    false => {
                        drop(select_all(watches.iter_mut().map(|watch| Box::pin(watch.changed()))).await)
                    }
                }
            };
            tokio::select! {
                stream = open, if wants && !opened => self.stream = Some(Mutex::new(stream)),
                answer = answer, if opened => match answer {
                    Some(Ok(answer)) => {
                        (self.next_try, self.wait) = (None, AGAIN.0);
                        let silent = self.unreachable.take().is_some();
                        let news = self.take(answer);
                        if silent || !news.is_empty() {
                            return news;
                        }
                    }
                    ended => {
                        let why = ended.and_then(Result::err).map_or_else(
                            || "the servers ended the connection".to_owned(),
                            |error| error.message,
                        );
                        self.stream = None;
                        self.next_try = Some(Instant::now() + self.wait);
                        self.wait = (self.wait * 2).min(AGAIN.1);
                        if self.unreachable.as_ref() != Some(&why) {
                            self.unreachable = Some(why);
                            return BTreeSet::new();
                        }
                    }
                },
                () = changed => {
                    let news = self.read_files();
                    if !news.is_empty() {
                        return news;
                    }
                }
            }
        }
    }

    fn take(&mut self, answer: LookupsFound) -> BTreeSet<Need> {
        let found = Arc::make_mut(&mut self.found);
        let mut news = BTreeSet::new();
        for (lookup, what) in answer.found {
            if found.get(&lookup) != Some(&what) {
                found.insert(lookup.clone(), what);
                news.insert(Need::Lookup(lookup));
            }
        }
        news
    }
}

fn lookups(needs: &BTreeSet<Need>) -> impl Iterator<Item = &Lookup> {
    needs.iter().filter_map(|need| match need {
        Need::Lookup(lookup) => Some(lookup),
        Need::File(_) => None,
    })
}
