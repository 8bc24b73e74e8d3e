//! A checker of histories for linearizability (Herlihy and Wing 1990), with memory.
//!
//! The search follows Wing and Gong 1993; Lowe 2017 adds the memory of visited configurations. Objects are
//! independent, so each object has a separate history. An operation without a response may take effect at
//! any time after its call, or never.

pub mod specs;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

/// A sequential specification of an object.
pub trait Spec {
    /// The state of the object.
    type State: Clone + Eq + Hash + Debug;
    /// An operation with its arguments.
    type Op: Clone + Debug;
    /// The result of an operation.
    type Ret: Clone + Debug;

    /// Returns the state before the first operation.
    fn start() -> Self::State;

    /// Returns the state after an operation with a result, or `None` if the operation cannot have this result.
    fn step(state: &Self::State, op: &Self::Op, ret: &Self::Ret) -> Option<Self::State>;

    /// Returns all states after an operation whose result is unknown.
    fn effects(state: &Self::State, op: &Self::Op) -> Vec<Self::State>;
}

/// An operation of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<O, R> {
    /// The client of the operation: for reports only.
    pub client: usize,
    /// The time of the call.
    pub called: u64,
    /// The time of the response and the result; `None` if the result is unknown.
    pub answered: Option<(u64, R)>,
    /// The operation.
    pub op: O,
}

/// The operations for which a checker found no order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotLinearizable<O, R> {
    /// The operations of the longest order that was found, as positions in the history.
    pub longest: Vec<usize>,
    /// The operations that could not follow the longest order.
    pub stuck: Vec<Operation<O, R>>,
}

/// The operations in an order, one bit each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Taken(Vec<u64>);

impl Taken {
    fn has(&self, number: usize) -> bool {
        self.0[number / 64] >> (number % 64) & 1 == 1
    }

    fn with(&self, number: usize) -> Self {
        let mut taken = self.clone();
        taken.0[number / 64] |= 1 << (number % 64);
        taken
    }
}

/// A configuration of the search: an order, and the state after it.
struct Place<S: Spec> {
    taken: Taken,
    state: S::State,
    order: Vec<usize>,
}

/// Checks the history of one object.
///
/// # Errors
/// Returns the longest order that was found, if no order explains all responses.
pub fn check<S: Spec>(history: &[Operation<S::Op, S::Ret>]) -> Result<(), NotLinearizable<S::Op, S::Ret>> {
    let answered = history.iter().filter(|operation| operation.answered.is_some()).count();
    let first = Place::<S> {
        taken: Taken(vec![0; history.len().div_ceil(64)]),
        state: S::start(),
        order: Vec::new(),
    };
    let mut visited = HashSet::from([(first.taken.clone(), first.state.clone())]);
    let mut longest: Vec<usize> = Vec::new();
    let mut places = vec![first];
    while let Some(place) = places.pop() {
        let done = place.order.iter().filter(|number| history[**number].answered.is_some()).count();
        if done == answered {
            return Ok(());
        }
        for number in candidates(history, &place.taken) {
            let operation = &history[number];
            let next = match &operation.answered {
                Some((_, ret)) => S::step(&place.state, &operation.op, ret).into_iter().collect(),
                None => S::effects(&place.state, &operation.op),
            };
            for state in next {
                let taken = place.taken.with(number);
                if visited.insert((taken.clone(), state.clone())) {
                    let mut order = place.order.clone();
                    order.push(number);
                    places.push(Place { taken, state, order });
                }
            }
        }
        if place.order.len() >= longest.len() {
            longest = place.order;
        }
    }
    let taken = longest.iter().fold(Taken(vec![0; history.len().div_ceil(64)]), |t, n| t.with(*n));
    let stuck = candidates(history, &taken).into_iter().map(|number| history[number].clone()).collect();
    Err(NotLinearizable { longest, stuck })
}

/// Returns the operations that may be next: no other remaining operation precedes them. The last one is tried first.
fn candidates<O, R>(history: &[Operation<O, R>], taken: &Taken) -> Vec<usize> {
    let left = || (0..history.len()).filter(|number| !taken.has(*number));
    let limit = left().filter_map(|number| history[number].answered.as_ref().map(|(at, _)| *at)).min();
    let mut found: Vec<usize> =
        left().filter(|number| limit.is_none_or(|limit| history[*number].called <= limit)).collect();
    // An operation with an early response is most likely the next one, so it is on top of the stack.
    found.sort_by_key(|number| {
        std::cmp::Reverse(history[*number].answered.as_ref().map_or(u64::MAX, |(at, _)| *at))
    });
    found
}
