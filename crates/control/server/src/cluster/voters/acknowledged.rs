//! Logs that lack entries that their servers had acknowledged, for example after the restore of an older copy of a
//! data directory. Such a server receives no entries, because it could vote against an entry that it acknowledged.

use caravan_consensus::ServerId;
use std::collections::{BTreeMap, BTreeSet};

/// The last acknowledged entry of each server, by its number.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    before: BTreeMap<ServerId, u64>,
    now: BTreeMap<ServerId, u64>,
    reported: BTreeSet<ServerId>,
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Complete,
    /// The log lacks entries up to this one, and the loss is not yet reported.
    Lost(u64),
    /// The log still lacks entries.
    StillLost,
}

impl Found {
    pub(super) fn is_complete(self) -> bool {
        self == Self::Complete
    }
}

impl Acknowledged {
    /// Begins a measurement.
    pub(super) fn begin(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }

    /// Compares the last entry of a server with the entry that the server had acknowledged at the previous
    /// measurement. Positions are copies, which may be a moment old. `acknowledged` is the entry that the leader
    /// records now. A server that is starting has no `last` entry.
    pub(super) fn compare(
        &mut self,
        server: ServerId,
        acknowledged: Option<u64>,
        last: Option<u64>,
    ) -> Found {
        self.now.extend(acknowledged.map(|index| (server, index)));
        match (last, self.before.get(&server)) {
            (Some(last), Some(index)) if last < *index => {
                if self.reported.insert(server) {
                    Found::Lost(*index)
                } else {
                    Found::StillLost
                }
            }
            (Some(_), _) => {
                self.reported.remove(&server);
                Found::Complete
            }
            (None, _) => Found::Complete,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_lacks_acknowledged_entries_is_found_once() {
        let (mut all, server) = (Acknowledged::default(), ServerId(3));
        let mut measure = |acknowledged, last| {
            all.begin();
            all.compare(server, Some(acknowledged), last)
        };
        assert_eq!(measure(300, Some(299)), Found::Complete, "a copy that is a moment old");
        assert_eq!(measure(300, None), Found::Complete, "the server starts");
        assert_eq!(measure(300, Some(3)), Found::Lost(300));
        assert_eq!(measure(300, Some(3)), Found::StillLost);
        assert_eq!(measure(300, Some(300)), Found::Complete);
        assert_eq!(measure(300, Some(3)), Found::Lost(300));
    }
}
