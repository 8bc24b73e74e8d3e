//! The trace of a simulation, and a run of a seed in a separate thread.

use crate::Outcome;
use caravan_consensus::sim::elapsed;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The trace, and the past events that the checks of a simulation need; clones are the same book.
#[derive(Debug)]
pub(crate) struct Book<P>(Arc<Mutex<Pages<P>>>);

/// The content of a [`Book`].
#[derive(Debug, Default)]
pub(crate) struct Pages<P> {
    lines: Vec<String>,
    violation: Option<String>,
    counts: BTreeMap<&'static str, u64>,
    next_id: u64,
    /// The past, for the checks.
    pub(crate) past: P,
}

impl<P> Clone for Book<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P: Default> Default for Book<P> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Pages::default())))
    }
}

impl<P> Pages<P> {
    pub(crate) fn note(&mut self, text: String) {
        let at = elapsed();
        self.lines.push(format!("{:>4}.{:06} {text}", at.as_secs(), at.subsec_micros()));
    }

    pub(crate) fn violate(&mut self, text: String) {
        self.note(format!("VIOLATION: {text}"));
        self.violation.get_or_insert(text);
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }
}

impl<P> Book<P> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Pages<P>> {
        self.0.lock()
    }

    pub(crate) fn note(&self, text: impl Into<String>) {
        self.lock().note(text.into());
    }

    pub(crate) fn violate(&self, text: impl Into<String>) {
        self.lock().violate(text.into());
    }

    pub(crate) fn is_violated(&self) -> bool {
        self.lock().violation.is_some()
    }

    pub(crate) fn count(&self, what: &'static str) {
        self.lock().count(what);
    }

    pub(crate) fn next_id(&self) -> u64 {
        let mut pages = self.lock();
        pages.next_id += 1;
        pages.next_id
    }

    fn outcome(&self, seed: u64) -> Outcome {
        let pages = self.lock();
        let mut hash = DefaultHasher::new();
        pages.lines.hash(&mut hash);
        Outcome {
            seed,
            hash: hash.finish(),
            trace: pages.lines.clone(),
            violation: pages.violation.clone(),
            counts: pages.counts.clone(),
        }
    }
}

/// Runs a seed in a separate thread, because a world belongs to a thread. A panic of a server ends the
/// thread, and is a violation.
pub(crate) fn run<P: Default + Send + 'static>(
    seed: u64,
    work: impl FnOnce(Book<P>) + Send + 'static,
) -> Outcome {
    let book = Book::<P>::default();
    let pages = book.clone();
    let thread = std::thread::Builder::new().name(format!("seed {seed}")).stack_size(16 << 20);
    match thread.spawn(move || work(pages)).map(std::thread::JoinHandle::join) {
        Ok(Ok(())) => {}
        Ok(Err(panic)) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            book.violate(format!("panic: {}", text.unwrap_or_default()));
        }
        Err(error) => book.violate(format!("no thread: {error}")),
    }
    book.outcome(seed)
}
