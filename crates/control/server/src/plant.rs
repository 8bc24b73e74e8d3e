//! Faults that the simulation must find.

use std::cell::{Cell, RefCell};

/// A fault of this crate that a test plants in all servers of the world of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plant {
    /// A leader answers heartbeats without a quorum round.
    NoQuorumRound,
    /// A leader counts a fence from the time that an earlier leader recorded.
    WallClockFence,
    /// A server shows a node a list of allocations that may be older than the node's own.
    NoFloor,
    /// The work of a leader does not contain its term.
    NoTerm,
    /// A new leader expects heartbeats immediately.
    NoFailover,
    /// A leader answers reads without a proof that it still leads.
    UnprovedRead,
    /// A leader discards a node's report about an object that its state does not have, without a quorum round.
    UnprovedDiscard,
    /// A restarted server shows its state before the state is as new as before the restart.
    StaleBeforeRecovery,
}

thread_local! {
    static PLANTED: Cell<Option<Plant>> = const { Cell::new(None) };
}

/// Plants a fault in all servers of this thread.
pub fn plant(fault: Option<Plant>) {
    PLANTED.set(fault);
}

/// Returns whether a fault is planted in this thread.
pub(crate) fn is_planted(fault: Plant) -> bool {
    PLANTED.get() == Some(fault)
}

/// A change that a leader wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The term in which the leader decided.
    pub term: u64,
    /// The index in the log.
    pub index: u64,
}

thread_local! {
    static WRITTEN: RefCell<Vec<Written>> = const { RefCell::new(Vec::new()) };
}

/// Records a change, for the check that no decision of a term follows one of a later term.
pub(crate) fn record(term: u64, index: u64) {
    WRITTEN.with_borrow_mut(|written| written.push(Written { term, index }));
}

/// Removes and returns the changes that the servers of this thread wrote since the last call.
pub fn take_written() -> Vec<Written> {
    WRITTEN.take()
}
