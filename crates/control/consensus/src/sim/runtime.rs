//! The runtime of openraft and of this crate: the simulation of the current thread, or tokio outside a simulation.

use super::lots::Lots;
use super::world::{HostId, Inner};
use openraft::OptionalSend;
use openraft::rt::AsyncRuntime;
use openraft_rt_tokio::{TokioMpsc, TokioMutex, TokioOneshot, TokioRuntime, TokioWatch};
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::oneshot;

thread_local! {
    static WORLD: RefCell<Option<Rc<Inner>>> = const { RefCell::new(None) };
}

pub(super) fn enter(world: Rc<Inner>) {
    let before = WORLD.replace(Some(world));
    assert!(before.is_none(), "this thread has a world already");
}

pub(super) fn leave() {
    WORLD.set(None);
}

pub(super) fn with_world<T>(with: impl FnOnce(&Inner) -> T) -> Option<T> {
    let world = WORLD.try_with(|world| world.borrow().clone()).ok().flatten();
    world.map(|world| with(&world))
}

/// Returns whether the current thread has a world.
pub fn is_simulated() -> bool {
    WORLD.with(|world| world.borrow().is_some())
}

/// Runs a future on the current host of the world.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    with_world(|world| world.spawn(world.current(), Box::pin(future)));
}

/// Starts a task on the current host of the world, or a task of tokio.
pub fn start<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    Runtime::spawn(future)
}

/// Returns another sequence of the world's random numbers; `None` without a world.
pub fn lots() -> Option<Lots> {
    with_world(Inner::fork_lots)
}

/// Runs a future on a host of the world, unless the host is down.
pub fn spawn_on(host: HostId, future: impl Future<Output = ()> + Send + 'static) {
    with_world(|world| world.spawn_on(host, Box::pin(future)));
}

/// Returns the age of the world, on a clock of exact rate; zero without a world.
pub fn elapsed() -> Duration {
    with_world(Inner::elapsed).unwrap_or_default()
}

/// Returns the time for which the current host was suspended; `None` without a world.
pub(crate) fn suspended() -> Option<Duration> {
    with_world(Inner::suspended)
}

/// Reads the monotonic clock of the current host.
pub fn now() -> tokio::time::Instant {
    with_world(Inner::local_now).unwrap_or_else(tokio::time::Instant::now)
}

/// Waits for a time on the clock of the current host.
pub async fn sleep(duration: Duration) {
    Sleep::until(now() + duration).await;
}

/// Waits until the clock of the current host shows an instant.
pub async fn sleep_until(at: tokio::time::Instant) {
    Sleep::until(at).await;
}

/// Waits for a future, at most for a duration.
///
/// # Errors
/// If the duration has passed.
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Result<F::Output, Elapsed> {
    Timeout { future: Box::pin(future), sleep: Sleep::until(now() + duration) }.await
}

/// The error of a [`timeout`] whose duration has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("deadline has elapsed")]
pub struct Elapsed;

impl From<Elapsed> for std::io::Error {
    fn from(error: Elapsed) -> Self {
        Self::new(std::io::ErrorKind::TimedOut, error)
    }
}

/// A wait for an instant.
pub(crate) enum Sleep {
    Tokio(Pin<Box<tokio::time::Sleep>>),
    World { host: HostId, at: tokio::time::Instant, key: Option<(u64, u64)> },
}

impl Sleep {
    fn until(at: tokio::time::Instant) -> Self {
        match with_world(Inner::current) {
            Some(host) => Self::World { host, at, key: None },
            None => Self::Tokio(Box::pin(tokio::time::sleep_until(at))),
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self {
            Self::Tokio(sleep) => sleep.as_mut().poll(cx),
            Self::World { host, at, key } => {
                let polled = with_world(|world| {
                    if let Some(key) = key.take() {
                        world.stop_timer(*host, key);
                    }
                    if world.local_now() >= *at {
                        return Poll::Ready(());
                    }
                    *key = Some(world.start_timer(*host, *at, cx.waker().clone()));
                    Poll::Pending
                });
                polled.unwrap_or(Poll::Ready(()))
            }
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Self::World { host, key: Some(key), .. } = self {
            with_world(|world| world.stop_timer(*host, *key));
        }
    }
}

/// A future with a time limit.
pub(crate) struct Timeout<F> {
    future: Pin<Box<F>>,
    sleep: Sleep,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = self.future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(&mut self.sleep).poll(cx).map(|()| Err(Elapsed))
    }
}

/// The end of a task.
#[derive(Debug)]
pub enum JoinHandle<T> {
    /// A task of tokio.
    Tokio(tokio::task::JoinHandle<T>),
    /// A task of a world.
    World(oneshot::Receiver<T>),
}

/// The reason for which a task ended without a result.
#[derive(Debug)]
pub enum JoinError {
    /// A task of tokio.
    Tokio(tokio::task::JoinError),
    /// A task of a world, whose host was killed.
    Ended,
}

impl std::error::Error for JoinError {}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokio(error) => error.fmt(f),
            Self::Ended => f.write_str("the task was ended"),
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match &mut *self {
            Self::Tokio(handle) => ready!(Pin::new(handle).poll(cx)).map_err(JoinError::Tokio),
            Self::World(ended) => ready!(Pin::new(ended).poll(cx)).map_err(|_| JoinError::Ended),
        })
    }
}

/// A reading of the clock of the current host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(tokio::time::Instant);

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(self.0 + by)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, by: Duration) {
        self.0 += by;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, by: Duration) -> Self {
        Self(self.0 - by)
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0 - earlier.0
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, by: Duration) {
        self.0 -= by;
    }
}

impl openraft::Instant for Instant {
    fn now() -> Self {
        Self(now())
    }
}

/// Random numbers of the world, or of the system.
pub(crate) enum RuntimeLots {
    World(Lots),
    System(<TokioRuntime as AsyncRuntime>::ThreadLocalRng),
}

impl rand_010::TryRng for RuntimeLots {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        match self {
            Self::World(lots) => lots.try_next_u32(),
            Self::System(lots) => lots.try_next_u32(),
        }
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        match self {
            Self::World(lots) => lots.try_next_u64(),
            Self::System(lots) => lots.try_next_u64(),
        }
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Self::Error> {
        match self {
            Self::World(lots) => lots.try_fill_bytes(out),
            Self::System(lots) => lots.try_fill_bytes(out),
        }
    }
}

/// The runtime of openraft.
#[derive(Debug)]
pub(crate) struct Runtime(TokioRuntime);

impl AsyncRuntime for Runtime {
    type JoinError = JoinError;
    type JoinHandle<T: OptionalSend + 'static> = JoinHandle<T>;
    type Sleep = Sleep;
    type Instant = Instant;
    type TimeoutError = Elapsed;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = Timeout<T>;
    type ThreadLocalRng = RuntimeLots;

    fn spawn<T>(future: T) -> JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        if !is_simulated() {
            return JoinHandle::Tokio(tokio::spawn(future));
        }
        let (ended, end) = oneshot::channel();
        spawn(async move {
            // A handle that was dropped needs no result.
            let _ = ended.send(future.await);
        });
        JoinHandle::World(end)
    }

    fn sleep(duration: Duration) -> Sleep {
        Sleep::until(now() + duration)
    }

    fn sleep_until(deadline: Instant) -> Sleep {
        Sleep::until(deadline.0)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(duration: Duration, future: F) -> Timeout<F> {
        Timeout { future: Box::pin(future), sleep: Self::sleep(duration) }
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(deadline: Instant, future: F) -> Timeout<F> {
        Timeout { future: Box::pin(future), sleep: Self::sleep_until(deadline) }
    }

    fn is_panic(error: &JoinError) -> bool {
        matches!(error, JoinError::Tokio(error) if error.is_panic())
    }

    fn thread_rng() -> RuntimeLots {
        match with_world(Inner::fork_lots) {
            Some(lots) => RuntimeLots::World(lots),
            None => RuntimeLots::System(TokioRuntime::thread_rng()),
        }
    }

    type Mpsc = TokioMpsc;
    type Watch = TokioWatch;
    type Oneshot = TokioOneshot;
    type Mutex<T: OptionalSend + 'static> = TokioMutex<T>;

    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}
