//! One task drives a connection and the calls on it, in turns: calls first, then the connection, which
//! writes the messages of the calls. With separate tasks, the head of a message is often sent before its
//! body, and each costs the receiver a wakeup. The calls wake the connection and the connection wakes the
//! calls. Within one task this needs no scheduler, which would wake another thread each time.

use super::cork::Gate;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use hyper::rt::Executor;
use parking_lot::Mutex;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// The number of rounds after which the task lets other tasks run.
const ROUNDS: usize = 32;

type Part = BoxFuture<'static, ()>;

/// The wakeups of the task.
#[derive(Debug, Default)]
struct Signal(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether the task is driving: a wakeup then leads to another round.
    driving: bool,
    woken: bool,
    task: Option<Waker>,
}

impl Signal {
    fn begin(&self, task: &Waker) {
        let mut state = self.0.lock();
        state.driving = true;
        state.woken = false;
        if !state.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            state.task = Some(task.clone());
        }
    }

    /// Returns whether there was no wakeup since the last call or [`Self::begin`]. The task is idle then.
    fn is_idle(&self) -> bool {
        let mut state = self.0.lock();
        state.driving = state.woken;
        state.woken = false;
        !state.driving
    }

    /// Ends the driving, also if the task was woken meanwhile.
    fn end(&self) {
        self.0.lock().driving = false;
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let task = {
            let mut state = self.0.lock();
            if state.driving {
                state.woken = true;
                return;
            }
            state.task.clone()
        };
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// The driving of one task, which ends also when a part panics.
struct Driving<'s>(&'s Signal);

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Vec<Part>>,
    signal: Arc<Signal>,
}

/// The executor of hyper's parts that the task drives.
#[derive(Clone, Default)]
pub(super) struct Parts(Arc<Shared>);

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Parts").finish()
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Parts {
    fn execute(&self, part: F) {
        self.0.queue.lock().push(Box::pin(part));
        self.0.signal.wake_by_ref();
    }
}

/// The executor of the calls on a served connection: marked calls belong to the task of the connection, the
/// others have separate tasks.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    parts: Parts,
    next_is_short: Arc<AtomicBool>,
}

impl Calls {
    /// Marks the next executed call: it neither computes nor has a long response. hyper passes a request to the
    /// service and executes the call right after that, in the same task.
    pub(super) fn mark(&self, is_short: bool) {
        self.next_is_short.store(is_short, Ordering::Relaxed);
    }

    pub(super) fn driver(&self, gate: Gate) -> Driver {
        self.parts.driver(gate)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Calls {
    fn execute(&self, call: F) {
        if self.next_is_short.swap(false, Ordering::Relaxed) {
            self.parts.execute(call);
        } else {
            tokio::spawn(call);
        }
    }
}

impl Parts {
    /// Returns the parts of the connection with this gate.
    pub(super) fn driver(&self, gate: Gate) -> Driver {
        Driver { shared: self.0.clone(), parts: FuturesUnordered::new(), gate }
    }
}

/// The parts that a task drives. They are dropped with the driver.
pub(super) struct Driver {
    shared: Arc<Shared>,
    parts: FuturesUnordered<Part>,
    gate: Gate,
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A part before its first turn may hold the executor, and thus itself.
        drop(self.started());
    }
}

impl Driver {
    /// Removes and returns the newly started parts, in their order.
    pub(super) fn started(&self) -> Vec<Part> {
        std::mem::take(&mut self.shared.queue.lock())
    }

    /// Adds a part.
    pub(super) fn add(&mut self, part: Part) {
        self.parts.push(part);
    }

    /// Drives the parts and the connection until the connection ends. Cancel safe.
    pub(super) async fn drive<T>(
        &mut self,
        mut connection: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    ) -> T {
        poll_fn(|task| {
            let signal = self.shared.signal.clone();
            signal.begin(task.waker());
            let driving = Driving(&signal);
            self.gate.close();
            let waker = Waker::from(signal.clone());
            let mut context = Context::from_waker(&waker);
            for _ in 0..ROUNDS {
                // A part may start others: the head of a request starts the part that sends its body.
                loop {
                    self.parts.extend(self.started());
                    while let Poll::Ready(Some(())) = self.parts.poll_next_unpin(&mut context) {}
                    if self.shared.queue.lock().is_empty() {
                        break;
                    }
                }
                if let Poll::Ready(ended) = connection.as_mut().poll(&mut context) {
                    return Poll::Ready(ended);
                }
                if !signal.is_idle() {
                    continue;
                }
                // No part has more bytes to send: one write sends all of them.
                if !self.gate.open() {
                    return Poll::Pending;
                }
                signal.begin(task.waker());
                if let Poll::Ready(ended) = connection.as_mut().poll(&mut context) {
                    return Poll::Ready(ended);
                }
                if signal.is_idle() {
                    return Poll::Pending;
                }
                self.gate.close();
            }
            drop(driving);
            task.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    /// Drives the parts until all have ended. Cancel safe.
    pub(super) async fn finish(&mut self) {
        poll_fn(|task| {
            loop {
                self.parts.extend(self.started());
                match self.parts.poll_next_unpin(task) {
                    Poll::Ready(Some(())) => {}
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests;
