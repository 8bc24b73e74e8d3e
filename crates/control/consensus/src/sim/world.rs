//! The executor: tasks of several hosts on one thread, and time that passes only when all of them wait.

use super::lots::Lots;
use super::plant::Plant;
use super::runtime;
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use tokio::time::Instant;

/// A machine of the world. Number 0 is the world itself: clients, the network, and the test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// Parts per million.
const MILLION: u128 = 1_000_000;

type BoxedTask = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Task {
    host: HostId,
    future: Option<BoxedTask>,
    waker: Arc<TaskWaker>,
}

struct TaskWaker {
    id: u64,
    queued: AtomicBool,
    woken: Arc<Mutex<Vec<u64>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.woken.lock().push(self.id);
        }
    }
}

/// The clock and the timers of a host.
#[derive(Debug)]
struct Host {
    /// The clock's reading at `since`, in nanoseconds.
    base: u64,
    since: u64,
    /// The clock's rate, in parts per million of the exact rate.
    rate: u64,
    /// Whether the clock does not advance, as while a machine is suspended.
    stands: bool,
    /// The time for which the clock did not advance.
    stood: u64,
    /// Whether no task of the host runs.
    frozen: bool,
    /// Tasks that became ready while the host was frozen, by their ids.
    parked: Vec<u64>,
    timers: BTreeMap<(u64, u64), Waker>,
}

impl Host {
    fn local(&self, now: u64) -> u64 {
        if self.stands {
            return self.base;
        }
        let passed = u128::from(now - self.since) * u128::from(self.rate) / MILLION;
        self.base + passed as u64
    }

    /// Sets the clock's reference point to `now`.
    fn rebase(&mut self, now: u64) {
        if self.stands {
            self.stood += now - self.since;
        }
        (self.base, self.since) = (self.local(now), now);
    }

    /// Returns the earliest time at which the clock shows `local`.
    fn global(&self, local: u64) -> u64 {
        let left = u128::from(local.saturating_sub(self.base)) * MILLION;
        let mut at = self.since + left.div_ceil(u128::from(self.rate)) as u64;
        while self.local(at) < local {
            at += 1;
        }
        at
    }
}

pub(super) struct Inner {
    now: Cell<u64>,
    origin: Instant,
    lots: RefCell<Lots>,
    /// Tasks that became ready since the last poll.
    woken: Arc<Mutex<Vec<u64>>>,
    ready: RefCell<VecDeque<u64>>,
    tasks: RefCell<BTreeMap<u64, Task>>,
    next: Cell<u64>,
    hosts: RefCell<BTreeMap<HostId, Host>>,
    current: Cell<HostId>,
    plant: Cell<Option<Plant>>,
    polls: Cell<u64>,
}

/// A world. It belongs to its thread until it is dropped; a thread has one world at a time.
pub struct World(Rc<Inner>);

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("elapsed", &self.elapsed()).finish_non_exhaustive()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let hosts: Vec<HostId> = self.0.hosts.borrow().keys().copied().collect();
        for host in hosts {
            self.kill(host);
        }
        runtime::leave();
    }
}

impl World {
    /// Creates the world of this thread. All random numbers follow from `seed`.
    pub fn new(seed: u64) -> Self {
        let inner = Rc::new(Inner {
            now: Cell::new(0),
            origin: Instant::now(),
            lots: RefCell::new(Lots::new(seed)),
            woken: Arc::default(),
            ready: RefCell::default(),
            tasks: RefCell::default(),
            next: Cell::new(0),
            hosts: RefCell::default(),
            current: Cell::new(HostId(0)),
            plant: Cell::new(None),
            polls: Cell::new(0),
        });
        runtime::enter(inner.clone());
        let world = Self(inner);
        world.boot(HostId(0), 0, 0);
        world
    }

    /// Plants a fault in all servers.
    pub fn plant(&self, plant: Plant) {
        self.0.plant.set(Some(plant));
    }

    /// Returns the age of the world, on a clock of exact rate.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.0.now.get())
    }

    /// Returns the number of polls of tasks so far.
    pub fn polls(&self) -> u64 {
        self.0.polls.get()
    }

    /// Creates another sequence of random numbers.
    pub fn lots(&self) -> Lots {
        self.0.lots.borrow_mut().fork()
    }

    /// Boots a host, whose monotonic clock shows `offset` and is `drift` parts per million too fast.
    pub fn boot(&self, host: HostId, offset: u64, drift: i64) {
        let rate = (MILLION as i64 + drift).max(1) as u64;
        let (parked, timers) = Default::default();
        let (stands, stood, frozen) = (false, 0, false);
        let clock =
            Host { base: offset, since: self.0.now.get(), rate, stands, stood, frozen, parked, timers };
        self.0.hosts.borrow_mut().insert(host, clock);
    }

    /// Runs a future on a host.
    pub fn spawn(&self, host: HostId, future: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(host, Box::pin(future));
    }

    /// Ends all tasks of a host immediately.
    pub fn kill(&self, host: HostId) {
        let dead: Vec<Task> = {
            let mut tasks = self.0.tasks.borrow_mut();
            let ids: Vec<u64> = tasks.iter().filter(|(_, t)| t.host == host).map(|(id, _)| *id).collect();
            ids.iter().filter_map(|id| tasks.remove(id)).collect()
        };
        let before = self.0.current.replace(host);
        drop(dead);
        self.0.current.set(before);
        let gone = self.0.hosts.borrow_mut().remove(&host);
        drop(gone);
    }

    /// Stops all tasks of a host. Its monotonic clock continues, unless the whole machine is suspended.
    pub fn freeze(&self, host: HostId, suspended: bool) {
        let now = self.0.now.get();
        if let Some(host) = self.0.hosts.borrow_mut().get_mut(&host) {
            host.rebase(now);
            (host.frozen, host.stands) = (true, suspended);
        }
    }

    /// Continues all tasks of a host.
    pub fn thaw(&self, host: HostId) {
        let now = self.0.now.get();
        if let Some(host) = self.0.hosts.borrow_mut().get_mut(&host) {
            host.rebase(now);
            (host.frozen, host.stands) = (false, false);
            self.0.woken.lock().append(&mut host.parked);
        }
    }

    /// Runs until the world has the age `until`. Calls `check` whenever all tasks wait, until `check`
    /// returns `false`.
    pub fn run(&self, until: Duration, mut check: impl FnMut(&Self) -> bool) {
        let until = until.as_nanos() as u64;
        loop {
            while let Some(id) = self.0.next_ready() {
                self.0.poll(id);
            }
            if !check(self) {
                return;
            }
            if !self.0.woken.lock().is_empty() {
                continue;
            }
            match self.0.next_timer() {
                Some(at) if at <= until => {
                    self.0.now.set(at.max(self.0.now.get()));
                    self.0.fire();
                }
                _ => {
                    self.0.now.set(until.max(self.0.now.get()));
                    return;
                }
            }
        }
    }
}

impl Inner {
    pub(super) fn is_planted(&self, plant: Plant) -> bool {
        self.plant.get() == Some(plant)
    }

    /// Runs a future on a host, unless the host is down.
    pub(super) fn spawn_on(&self, host: HostId, future: BoxedTask) {
        if self.hosts.borrow().contains_key(&host) {
            self.spawn(host, future);
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now.get())
    }

    pub(super) fn current(&self) -> HostId {
        self.current.get()
    }

    pub(super) fn fork_lots(&self) -> Lots {
        self.lots.borrow_mut().fork()
    }

    pub(super) fn spawn(&self, host: HostId, future: BoxedTask) {
        let id = self.next.get();
        self.next.set(id + 1);
        let waker = TaskWaker { id, queued: AtomicBool::new(true), woken: self.woken.clone() };
        let task = Task { host, future: Some(future), waker: Arc::new(waker) };
        self.tasks.borrow_mut().insert(id, task);
        self.woken.lock().push(id);
    }

    /// Returns a ready task: mostly the first one, sometimes another one.
    fn next_ready(&self) -> Option<u64> {
        let mut ready = self.ready.borrow_mut();
        // tokio's channels wake their waiters in an order that does not follow from the seed.
        let mut woken = std::mem::take(&mut *self.woken.lock());
        woken.sort_unstable();
        ready.extend(woken);
        let mut lots = self.lots.borrow_mut();
        if ready.len() > 1 && lots.chance(25) {
            let at = lots.below(ready.len() as u64) as usize;
            return ready.remove(at);
        }
        ready.pop_front()
    }

    fn poll(&self, id: u64) {
        let (mut future, waker, host) = {
            let mut tasks = self.tasks.borrow_mut();
            let Some(task) = tasks.get_mut(&id) else { return };
            if let Some(host) = self.hosts.borrow_mut().get_mut(&task.host)
                && host.frozen
            {
                host.parked.push(id);
                return;
            }
            let Some(future) = task.future.take() else { return };
            task.waker.queued.store(false, Ordering::Relaxed);
            (future, task.waker.clone(), task.host)
        };
        self.polls.set(self.polls.get() + 1);
        let before = self.current.replace(host);
        let waker = Waker::from(waker);
        let ended = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        if ended {
            drop(future);
            self.tasks.borrow_mut().remove(&id);
        } else if let Some(task) = self.tasks.borrow_mut().get_mut(&id) {
            task.future = Some(future);
        }
        self.current.set(before);
    }

    /// Returns the end of the next timer of a host that is not frozen.
    fn next_timer(&self) -> Option<u64> {
        let hosts = self.hosts.borrow();
        let next = |host: &Host| host.timers.keys().next().map(|(at, _)| host.global(*at));
        hosts.values().filter(|host| !host.frozen).filter_map(next).min()
    }

    fn fire(&self) {
        let mut due = Vec::new();
        let now = self.now.get();
        for host in self.hosts.borrow_mut().values_mut().filter(|host| !host.frozen) {
            let local = host.local(now);
            while let Some(entry) = host.timers.first_entry()
                && entry.key().0 <= local
            {
                due.push(entry.remove());
            }
        }
        due.into_iter().for_each(Waker::wake);
    }

    /// Returns the reading of the current host's clock.
    pub(super) fn local_now(&self) -> Instant {
        let host = self.current.get();
        let local = self.hosts.borrow().get(&host).map_or(0, |host| host.local(self.now.get()));
        self.origin + Duration::from_nanos(local)
    }

    /// Returns the age of the current host's boot in nanoseconds, including its suspended time.
    pub(super) fn since_boot(&self) -> u64 {
        let stood = self.suspended().as_nanos() as u64;
        self.local_now().saturating_duration_since(self.origin).as_nanos() as u64 + stood
    }

    /// Returns the time for which the current host was suspended since its boot.
    pub(super) fn suspended(&self) -> Duration {
        let host = self.current.get();
        Duration::from_nanos(self.hosts.borrow().get(&host).map_or(0, |host| host.stood))
    }

    /// Starts a timer of a host, and returns its key.
    pub(super) fn start_timer(&self, host: HostId, at: Instant, waker: Waker) -> (u64, u64) {
        let id = self.next.get();
        self.next.set(id + 1);
        let key = (at.saturating_duration_since(self.origin).as_nanos() as u64, id);
        if let Some(host) = self.hosts.borrow_mut().get_mut(&host) {
            host.timers.insert(key, waker);
        }
        key
    }

    pub(super) fn stop_timer(&self, host: HostId, key: (u64, u64)) {
        if let Some(host) = self.hosts.borrow_mut().get_mut(&host) {
            host.timers.remove(&key);
        }
    }
}
