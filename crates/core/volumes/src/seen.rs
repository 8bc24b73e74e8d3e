//! The start times of waits, on the clock of the waiting process.
//!
//! The waiting process measures a wait that protects data, from the time at which it first observed the reason for
//! the wait. A process that started later did not observe that reason earlier, so it starts the whole wait again.

use caravan_types::BootInstant;
use std::collections::BTreeMap;

/// The number of entries that are kept before [`FirstSeen::sweep`] removes unused ones.
const FEW: usize = 64;

/// The time when this process first saw each key in its current state.
#[derive(Clone, Debug)]
pub struct FirstSeen<K, S> {
    seen: BTreeMap<K, (S, BootInstant)>,
    kept: usize,
}

impl<K, S> Default for FirstSeen<K, S> {
    fn default() -> Self {
        Self { seen: BTreeMap::new(), kept: 0 }
    }
}

impl<K: Ord + Clone, S: PartialEq> FirstSeen<K, S> {
    /// Returns the time at which `key` was first seen in `state`. It is `now`, unless an earlier call saw the same
    /// state. Another state starts the time again.
    pub fn since(&mut self, key: &K, state: S, now: BootInstant) -> BootInstant {
        match self.seen.get(key) {
            Some((known, at)) if *known == state => *at,
            _ => {
                self.seen.insert(key.clone(), (state, now));
                now
            }
        }
    }

    /// Removes unused entries, once there are enough to make that worthwhile. A removed key that is seen later starts
    /// its time again.
    pub fn sweep(&mut self, keep: impl Fn(&K) -> bool) {
        if self.seen.len() > FEW + 2 * self.kept {
            self.seen.retain(|key, _| keep(key));
            self.kept = self.seen.len();
        }
    }
}

/// The failures of each key as this process saw them. The delays between attempts grow with the failures that this
/// process saw under the same circumstances. Therefore they begin again at a new leader, and when a plugin gets other
/// controllers.
#[derive(Clone, Debug)]
pub struct Failures<K, F, S> {
    seen: BTreeMap<K, Failed<F, S>>,
}

#[derive(Clone, Debug)]
struct Failed<F, S> {
    tries: u32,
    failure: F,
    circumstances: S,
    at: BootInstant,
    earlier: u32,
}

impl<K, F, S> Default for Failures<K, F, S> {
    fn default() -> Self {
        Self { seen: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, F: PartialEq, S: PartialEq> Failures<K, F, S> {
    /// Returns the time at which the latest failure of `key` was first seen under these circumstances, and the number
    /// of its `tries` that happened before.
    pub fn since(
        &mut self,
        key: &K,
        tries: u32,
        failure: F,
        circumstances: S,
        now: BootInstant,
    ) -> (BootInstant, u32) {
        let (at, earlier) = match self.seen.get(key) {
            Some(known) if known.circumstances == circumstances && known.failure == failure => {
                (known.at, known.earlier)
            }
            Some(known) if known.circumstances == circumstances && known.tries < tries => {
                (now, known.earlier)
            }
            _ => (now, tries.saturating_sub(1)),
        };
        self.seen.insert(key.clone(), Failed { tries, failure, circumstances, at, earlier });
        (at, earlier)
    }

    /// Begins the delays of `key` again: its failures so far do not count for the next delay.
    pub fn begin_again(&mut self, key: &K) {
        self.seen.remove(key);
    }

    /// Removes unused entries, once there are enough to make that worthwhile.
    pub fn sweep(&mut self, keep: impl Fn(&K) -> bool) {
        if self.seen.len() > FEW {
            self.seen.retain(|key, _| keep(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> BootInstant {
        BootInstant::from_nanos(nanos)
    }

    #[test]
    fn a_state_counts_from_when_it_was_first_seen_and_another_begins_anew() {
        let mut seen = FirstSeen::default();
        assert_eq!(seen.since(&"n", 7, at(10)), at(10));
        assert_eq!(seen.since(&"n", 7, at(20)), at(10));
        assert_eq!(seen.since(&"n", 8, at(30)), at(30));
        assert_eq!(seen.since(&"m", 7, at(40)), at(40));
        assert_eq!(seen.since(&"n", 7, at(50)), at(50), "the earlier silence was over in between");
    }

    #[test]
    fn delays_begin_again_for_a_process_or_circumstances_without_earlier_failures() {
        let mut seen = Failures::default();
        assert_eq!(seen.since(&"c", 1, 'a', "p", at(10)), (at(10), 0));
        assert_eq!(seen.since(&"c", 1, 'a', "p", at(20)), (at(10), 0));
        assert_eq!(seen.since(&"c", 2, 'b', "p", at(30)), (at(30), 0), "its second failure");
        assert_eq!(seen.since(&"c", 2, 'b', "q", at(40)), (at(40), 1), "other controllers");
        assert_eq!(seen.since(&"c", 3, 'c', "q", at(50)), (at(50), 1));
        assert_eq!(seen.since(&"c", 1, 'd', "q", at(60)), (at(60), 0), "another step");
        assert_eq!(seen.since(&"c", 2, 'e', "q", at(61)), (at(61), 0));
        seen.begin_again(&"c");
        assert_eq!(seen.since(&"c", 3, 'f', "q", at(62)), (at(62), 2), "another kind of failure");
        let mut other = Failures::default();
        assert_eq!(other.since(&"c", 8, 'x', "p", at(70)), (at(70), 7), "a new leader");
        assert_eq!(other.since(&"c", 9, 'y', "p", at(80)), (at(80), 7));
    }

    #[test]
    fn what_is_of_no_use_is_dropped_and_what_is_stays() {
        let mut seen = FirstSeen::default();
        for key in 0..=FEW {
            seen.since(&key, (), at(1));
        }
        seen.sweep(|key| key % 2 == 0);
        assert_eq!(seen.seen.len(), FEW / 2 + 1);
        assert_eq!(seen.since(&0, (), at(2)), at(1));
        seen.sweep(|_| false);
        assert_eq!(seen.seen.len(), FEW / 2 + 1, "too few to look");
    }
}
