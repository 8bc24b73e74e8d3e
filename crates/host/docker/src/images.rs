//! Images: pulled once for all tasks that wait for one, kept while tasks use them, removed some time later.

mod pull;

use crate::auth;
use crate::config::Config;
use crate::engine::{Engine, Unreachable, is_absent, status, text};
use crate::image::Reference;
use crate::options::DockerOptions;
use crate::tasks::PATIENCE;
use crate::watch::EngineWatch;
use bollard::Docker;
use bollard::auth::DockerCredentials;
use bollard::query_parameters::RemoveImageOptionsBuilder;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{RwLock, watch};
use tokio::task::AbortHandle;

/// Attempts to remove an image, and the pause between them.
const REMOVALS: u32 = 3;
const REMOVAL_PAUSE: Duration = Duration::from_secs(3);
/// The number of times that an image may vanish between its pull and its use.
const VANISHINGS: u32 = 3;

/// The reason that there is no image.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct NoImage {
    pub(crate) message: String,
    /// Whether another attempt may succeed.
    pub(crate) recoverable: bool,
}

impl NoImage {
    fn fatal(message: String) -> Self {
        Self { message, recoverable: false }
    }

    fn again(message: String) -> Self {
        Self { message, recoverable: true }
    }
}

impl From<Unreachable> for NoImage {
    fn from(error: Unreachable) -> Self {
        Self::again(error.to_string())
    }
}

/// Time between two events about a pull that continues.
const REPORT_INTERVAL: Duration = Duration::from_secs(120);

/// A function that adds an event with details to the task that waits for an image.
pub(crate) type Report<'a> = dyn Fn(&str, BTreeMap<String, String>) + Send + Sync + 'a;

/// The state of a pull.
#[derive(Debug, Default)]
struct Pulled {
    /// The layers in one sentence; empty at first.
    progress: String,
    result: Option<Result<(), NoImage>>,
}

/// The images of all tasks.
#[derive(Debug)]
pub(crate) struct Images {
    engine: Arc<Engine>,
    /// The time that an image stays after its last user; absent if it stays forever.
    delay: Option<Duration>,
    pulls: Mutex<HashMap<String, watch::Receiver<Pulled>>>,
    uses: Mutex<HashMap<String, Use>>,
    watch: Arc<EngineWatch>,
    /// The ids of images by their name, which hold until the engine reports a change of an image.
    known: Mutex<Known>,
    /// Held for writing while an image is removed, so that no task begins to use it.
    removal: RwLock<()>,
}

/// The ids of images that were found since the latest change of an image.
#[derive(Debug, Default)]
struct Known {
    age: u64,
    ids: HashMap<String, String>,
}

/// The users of an image.
#[derive(Debug, Default)]
struct Use {
    users: HashSet<String>,
    /// The removal that waits for the delay.
    timer: Option<AbortHandle>,
}

/// A request for an image.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) image: Reference,
    pub(crate) force: bool,
    /// Longest time of the pull.
    pub(crate) limit: Duration,
    /// Longest time of the pull without progress.
    pub(crate) idle_limit: Duration,
    pub(crate) credentials: Option<DockerCredentials>,
}

impl Images {
    pub(crate) fn new(engine: Arc<Engine>, watch: Arc<EngineWatch>, options: &DockerOptions) -> Self {
        Self {
            engine,
            delay: options.gc.image.then_some(options.gc.image_delay),
            pulls: Mutex::default(),
            uses: Mutex::default(),
            watch,
            known: Mutex::default(),
            removal: RwLock::default(),
        }
    }

    /// Makes a task's image present and counts the task as its user. Returns the image's id.
    pub(crate) async fn get(
        self: &Arc<Self>,
        config: &Config,
        options: &DockerOptions,
        local: &Path,
        user: &str,
        report: &Report<'_>,
    ) -> Result<String, NoImage> {
        let image = Reference::parse(&config.image).map_err(|error| NoImage::fatal(error.to_string()))?;
        if let Some(archive) = &config.load {
            let is_present = !image.moves() && self.id_of(&image, report).await?.is_some();
            if !is_present {
                let client = self.engine.client().await?;
                pull::load(&client, local, archive).await?;
                self.mistrust();
            }
            return self.retain(&image, user, report).await?.ok_or_else(|| {
                NoImage::fatal(format!("the archive {archive:?} has no image {:?}", config.image))
            });
        }
        let credentials = match auth::find(&image, config.auth.as_ref(), &options.auth).await {
            Ok(found) => found,
            Err(error) if config.auth_soft_fail => {
                tracing::warn!(error, image = config.image, "pulling without credentials");
                None
            }
            Err(error) => return Err(NoImage::fatal(error)),
        };
        let order = Order {
            image,
            force: config.force_pull,
            limit: config.image_pull_timeout.unwrap_or(options.image_pull_timeout),
            idle_limit: options.pull_activity_timeout,
            credentials,
        };
        self.fetch(order, user, report).await
    }

    /// Pulls an image if that is needed, and counts the user. Returns the image's id.
    pub(crate) async fn fetch(
        self: &Arc<Self>,
        order: Order,
        user: &str,
        report: &Report<'_>,
    ) -> Result<String, NoImage> {
        let image = order.image.clone();
        if !order.force
            && !image.moves()
            && let Some(id) = self.retain(&image, user, report).await?
        {
            return Ok(id);
        }
        let order = Arc::new(order);
        for _ in 0..VANISHINGS {
            self.pull(&order, report).await?;
            // The engine's report of the pull may still be on its way.
            self.mistrust();
            // The removal of an earlier use may win against this one.
            if let Some(id) = self.retain(&image, user, report).await? {
                return Ok(id);
            }
        }
        Err(NoImage::again(format!("the image {} was removed while it was pulled", image.full())))
    }

    /// Pulls an image, or waits for a pull of the same name that runs. Each task that waits reports the progress.
    async fn pull(self: &Arc<Self>, order: &Arc<Order>, report: &Report<'_>) -> Result<(), NoImage> {
        let name = order.image.full();
        let client = self.engine.client().await?;
        let mut pulled = {
            let mut pulls = self.pulls.lock();
            match pulls.get(&name) {
                Some(running) => running.clone(),
                None => {
                    let (sender, receiver) = watch::channel(Pulled::default());
                    pulls.insert(name.clone(), receiver.clone());
                    let (this, order) = (self.clone(), order.clone());
                    // A separate task: the pull continues for the others if the first task no longer waits.
                    tokio::spawn(async move {
                        let result = pull::pull(&client, &order, |progress| {
                            sender.send_modify(|pulled| pulled.progress = progress);
                        })
                        .await;
                        this.pulls.lock().remove(&order.image.full());
                        sender.send_modify(|pulled| pulled.result = Some(result));
                    });
                    receiver
                }
            }
        };
        report("Downloading image", BTreeMap::from([("image".to_owned(), order.image.full())]));
        let mut reports =
            tokio::time::interval_at(tokio::time::Instant::now() + REPORT_INTERVAL, REPORT_INTERVAL);
        let result = loop {
            tokio::select! {
                done = pulled.wait_for(|pulled| pulled.result.is_some()) => {
                    break done.ok().and_then(|pulled| pulled.result.clone());
                }
                _ = reports.tick() => {}
            }
            let progress = pulled.borrow().progress.clone();
            if !progress.is_empty() {
                report(&format!("Docker image pull progress: {progress}"), BTreeMap::new());
            }
        };
        result.unwrap_or_else(|| Err(NoImage::again(format!("the pull of {name} was cut off"))))
    }

    /// Returns the id of an image; `None` if it is absent.
    async fn id_of(&self, image: &Reference, report: &Report<'_>) -> Result<Option<String>, NoImage> {
        let mut look = std::pin::pin!(self.look(image));
        if let Ok(found) = tokio::time::timeout(PATIENCE, &mut look).await {
            return found;
        }
        let words = format!("the start waits for the Docker engine: there was no answer for {PATIENCE:?}");
        report(&words, BTreeMap::new());
        look.await
    }

    async fn look(&self, image: &Reference) -> Result<Option<String>, NoImage> {
        let name = image.full();
        let age = self.watch.age_of_images();
        if let Some(id) = self.known_id(&name, age) {
            return Ok(Some(id));
        }
        let client = self.engine.client().await?;
        match client.inspect_image(&name).await {
            Ok(found) => {
                if let (Some(id), Some(age)) = (&found.id, age) {
                    self.note(name, id.clone(), age);
                }
                Ok(found.id)
            }
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(NoImage::again(format!(
                "the image {} cannot be examined: {}",
                image.full(),
                text(&error)
            ))),
        }
    }

    fn known_id(&self, name: &str, age: Option<u64>) -> Option<String> {
        let known = self.known.lock();
        known.ids.get(name).filter(|_| age == Some(known.age)).cloned()
    }

    /// Records the id that an image had when its age was read.
    fn note(&self, name: String, id: String, age: u64) {
        let mut known = self.known.lock();
        if known.age != age {
            *known = Known { age, ids: HashMap::new() };
        }
        known.ids.insert(name, id);
    }

    /// Removes all known ids, so that images are examined before their next use: an engine may report a removal late.
    pub(crate) fn mistrust(&self) {
        self.known.lock().ids.clear();
    }

    /// Counts a user of an image, if it is present. Returns the image's id.
    async fn retain(
        &self,
        image: &Reference,
        user: &str,
        report: &Report<'_>,
    ) -> Result<Option<String>, NoImage> {
        let _no_removal = self.removal.read().await;
        let id = self.id_of(image, report).await?;
        if let Some(id) = &id {
            self.count(id, user);
        }
        Ok(id)
    }

    /// Counts a user of an image by its id, for tasks that were recovered.
    pub(crate) fn count(&self, id: &str, user: &str) {
        let mut uses = self.uses.lock();
        let image = uses.entry(id.to_owned()).or_default();
        image.users.insert(user.to_owned());
        if let Some(timer) = image.timer.take() {
            timer.abort();
        }
    }

    /// Removes a user of an image, and the image some time after its last user.
    pub(crate) fn release(self: &Arc<Self>, id: &str, user: &str) {
        let Some(delay) = self.delay else { return };
        let mut uses = self.uses.lock();
        let Some(image) = uses.get_mut(id) else { return };
        image.users.remove(user);
        if !image.users.is_empty() || image.timer.is_some() {
            return;
        }
        let (this, id) = (Arc::downgrade(self), id.to_owned());
        let timer = tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            if let Some(this) = this.upgrade() {
                this.remove(&id).await;
            }
        });
        image.timer = Some(timer.abort_handle());
    }

    async fn remove(&self, id: &str) {
        let _alone = self.removal.write().await;
        // Once the entry is removed, a new user begins with a new entry and cannot abort the removal midway.
        let unused = self.uses.lock().get(id).is_some_and(|image| image.users.is_empty());
        if !unused {
            return;
        }
        self.uses.lock().remove(id);
        self.mistrust();
        for attempt in 1..=REMOVALS {
            let Ok(client) = self.engine.client().await else { return };
            match remove_image(&client, id).await {
                Ok(()) => {
                    tracing::debug!(image = id, "unused image removed");
                    return;
                }
                Err(error) if attempt == REMOVALS => {
                    tracing::warn!(image = id, error, "an unused image cannot be removed");
                }
                Err(_) => tokio::time::sleep(REMOVAL_PAUSE).await,
            }
        }
    }
}

async fn remove_image(client: &Docker, id: &str) -> Result<(), String> {
    let options = RemoveImageOptionsBuilder::default().force(true).build();
    match client.remove_image(id, Some(options), None).await {
        Ok(_) => Ok(()),
        // The image is gone, or in use by a container that is not a task.
        Err(error) if matches!(status(&error), Some(404 | 409)) => Ok(()),
        Err(error) => Err(text(&error)),
    }
}
