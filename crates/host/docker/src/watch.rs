//! The connection that reports changes of containers: one for all tasks of the driver.
//!
//! A task's watcher examines its container when an event names the container, and after each loss of the connection.

use crate::engine::{Engine, backoff};
use bollard::models::{EventMessage, EventMessageTypeEnum};
use bollard::query_parameters::EventsOptionsBuilder;
use futures::StreamExt;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tokio::sync::{Notify, watch};

/// The longest pause between two attempts to connect.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Events of this time before a connection are delivered again, since a container may end while the driver connects.
const OVERLAP: Duration = Duration::from_secs(10);

/// The watch over an engine.
#[derive(Debug)]
pub(crate) struct EngineWatch {
    engine: Arc<Engine>,
    /// Whether the engine answers.
    up: watch::Sender<bool>,
    /// Waiters by the id of a container or of an executed program.
    waiters: Mutex<HashMap<String, Arc<Watched>>>,
    /// The number of changes of an image and of losses of the connection.
    images: AtomicU64,
    started: Mutex<bool>,
}

/// A container or executed program whose events are awaited.
#[derive(Debug, Default)]
struct Watched {
    notify: Notify,
    /// Whether the engine reported that the kernel killed a process for lack of memory.
    out_of_memory: AtomicBool,
}

/// A waiter for events of one container or executed program; removed when dropped.
#[derive(Debug)]
pub(crate) struct Waiter {
    watch: Arc<EngineWatch>,
    id: String,
    watched: Arc<Watched>,
    up: watch::Receiver<bool>,
}

impl Waiter {
    /// Waits for the next event, or until the connection to the engine is lost or established.
    pub(crate) async fn changed(&mut self) {
        tokio::select! {
            () = self.watched.notify.notified() => {}
            changed = self.up.changed() => if changed.is_err() {
                std::future::pending::<()>().await;
            },
        }
    }

    /// Returns whether the engine reported a lack of memory in the container.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.watched.out_of_memory.load(Ordering::Relaxed)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiters = self.watch.waiters.lock();
        if waiters.get(&self.id).is_some_and(|own| Arc::ptr_eq(own, &self.watched)) {
            waiters.remove(&self.id);
        }
    }
}

impl EngineWatch {
    pub(crate) fn new(engine: Arc<Engine>) -> Arc<Self> {
        let up = watch::Sender::new(false);
        Arc::new(Self {
            engine,
            up,
            waiters: Mutex::default(),
            images: AtomicU64::new(0),
            started: Mutex::default(),
        })
    }

    /// Connects, unless the watch already does. The watch then reconnects until the driver is dropped.
    pub(crate) fn ensure(self: &Arc<Self>) {
        let mut started = self.started.lock();
        if !*started {
            *started = true;
            tokio::spawn(run(Arc::downgrade(self)));
        }
    }

    /// Returns a waiter for events of a container or executed program.
    pub(crate) fn waiter(self: &Arc<Self>, id: &str) -> Waiter {
        let watched = Arc::new(Watched::default());
        self.waiters.lock().insert(id.to_owned(), watched.clone());
        Waiter { watch: self.clone(), id: id.to_owned(), watched, up: self.up.subscribe() }
    }

    /// Returns whether the engine answers, now and at each change.
    pub(crate) fn states(&self) -> watch::Receiver<bool> {
        self.up.subscribe()
    }

    /// Waits until the engine stops answering, or answers again.
    pub(crate) async fn turned(&self) {
        let mut up = self.up.subscribe();
        if up.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the engine answers.
    pub(crate) async fn until_up(&self) {
        let mut up = self.up.subscribe();
        if up.wait_for(|up| *up).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns a number that stays the same as long as no image has changed; `None` while the engine's events are not
    /// received.
    pub(crate) fn age_of_images(&self) -> Option<u64> {
        let age = self.images.load(Ordering::Acquire);
        self.up.borrow().then_some(age)
    }

    fn set(&self, now: bool) {
        self.images.fetch_add(1, Ordering::AcqRel);
        self.up.send_if_modified(|up| std::mem::replace(up, now) != now);
    }

    fn deliver(&self, event: EventMessage) {
        if event.typ == Some(EventMessageTypeEnum::IMAGE) {
            self.images.fetch_add(1, Ordering::AcqRel);
            return;
        }
        let Some(actor) = event.actor else { return };
        // The end of an executed program is an event of its container.
        let program = actor.attributes.as_ref().and_then(|facts| facts.get("execID"));
        let is_out_of_memory = event.action.as_deref() == Some("oom");
        let waiters = self.waiters.lock();
        for id in actor.id.iter().chain(program) {
            if let Some(watched) = waiters.get(id) {
                if is_out_of_memory {
                    watched.out_of_memory.store(true, Ordering::Relaxed);
                }
                watched.notify.notify_one();
            }
        }
    }
}

async fn run(watch: std::sync::Weak<EngineWatch>) {
    let mut attempt = 0;
    loop {
        let Some(this) = watch.upgrade() else { return };
        let client = this.engine.client().await;
        if let Ok(client) = client {
            attempt = 0;
            let since = caravan_sys::time::wall_now() - OVERLAP;
            let since = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
            let filters = HashMap::from([("type", vec!["container", "image"])]);
            let options = EventsOptionsBuilder::default().since(&since.to_string()).filters(&filters).build();
            let mut events = client.events(Some(options));
            this.set(true);
            drop(this);
            while let Some(Ok(event)) = events.next().await {
                let Some(this) = watch.upgrade() else { return };
                this.deliver(event);
            }
            let Some(this) = watch.upgrade() else { return };
            this.engine.reset();
            this.set(false);
        } else {
            this.set(false);
            drop(this);
        }
        tokio::time::sleep(backoff(attempt).min(MAX_PAUSE)).await;
        attempt += 1;
    }
}
