//! Changes of the table by rows and claims of other servers.

use super::{Core, Differences, Entry, Notice, Output, Phase, Seen};
use crate::frame::{Claim, Intent, MAX_MEMBERS, Row};
use crate::member::Tags;
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

impl Core {
    /// Returns the rows that the sender of claims lacks, and the members whose rows this server lacks.
    pub(super) fn compare(&mut self, now: Duration, claims: &[Claim]) -> Differences {
        let mut requests = Vec::new();
        let claimed: BTreeMap<Uuid, _> =
            claims.iter().map(|claim| (claim.id, (claim.version, claim.intent))).collect();
        if let Some(rank) = claimed.get(&self.id) {
            self.own_row(now, *rank);
        }
        for (id, rank) in &claimed {
            let known = self.rows.get(id).map(|entry| entry.row.rank());
            if *id != self.id && known.is_none_or(|known| known < *rank) {
                // A server without a row of a removed member does not need the row.
                if known.is_some() || rank.1 != Intent::Pruned {
                    requests.push(*id);
                }
            }
        }
        let is_news = |row: &&Row| match claimed.get(&row.id) {
            Some(rank) => row.rank() > *rank,
            None => row.intent != Intent::Pruned,
        };
        let rows = self.rows.values().map(|entry| &entry.row).filter(is_news).cloned().collect();
        Differences { rows, requests }
    }

    /// Applies the claims of another server about the liveness of members.
    pub(super) fn believe(&mut self, now: Duration, claims: &[Claim]) {
        if self.phase == Phase::Left {
            return;
        }
        let own = self.swim.peer();
        for claim in claims.iter().filter(|claim| claim.id == self.id) {
            if claim.generation > own.generation {
                if claim.addr != own.addr {
                    self.out.push_back(Output::Notice(Notice::SameId { at: claim.addr }));
                }
                self.swim.raise(now, claim.generation.saturating_add(1));
            }
        }
        let raised = self.swim.peer();
        let foreign = |claim: &&Claim| {
            let is_known = self.rows.contains_key(&claim.id);
            // An earlier generation of this server is no member.
            is_known && (claim.id != self.id || claim.generation == raised.generation)
        };
        let believed: Vec<Claim> = claims.iter().filter(foreign).cloned().collect();
        self.swim.apply(now, &believed);
    }

    /// Adds rows of other servers with the claims about them, and passes new rows on.
    pub(super) fn merge_all(&mut self, now: Duration, rows: Vec<Row>, claims: &[Claim]) {
        let ids: Vec<Uuid> = rows.into_iter().filter_map(|row| self.merge(now, row)).collect();
        self.believe(now, claims);
        self.relay(&ids);
    }

    /// Adds a row. Returns its member if the row is newer than the row in the table.
    pub(super) fn merge(&mut self, now: Duration, mut row: Row) -> Option<Uuid> {
        if row.id == self.id {
            self.own_row(now, row.rank());
            return None;
        }
        let is_full = self.rows.len() >= MAX_MEMBERS && !self.rows.contains_key(&row.id);
        if is_full || !row.is_valid() {
            let Row { name, addr, .. } = row;
            self.out.push_back(Output::Notice(Notice::Refused { name, at: addr }));
            return None;
        }
        if row.intent == Intent::Pruned {
            row.tags = Tags::new();
        }
        let id = row.id;
        match self.rows.get_mut(&id) {
            Some(entry) if row.rank() <= entry.row.rank() => return None,
            Some(entry) => entry.row = row,
            None if row.intent == Intent::Pruned => return None,
            None => {
                self.rows.insert(id, Entry { row, shown: None, since: now });
            }
        }
        self.has_changed = true;
        Some(id)
    }

    /// Reacts to a row of the own server at others: a row of an earlier start, or a row that forces the
    /// server to leave.
    pub(super) fn own_row(&mut self, now: Duration, (version, intent): (u64, Intent)) {
        let refute = self.timing.refute;
        let Some(entry) = self.rows.get_mut(&self.id) else { return };
        if (version, intent) <= entry.row.rank() {
            return;
        }
        if version > entry.row.version || self.phase != Phase::Present {
            entry.row.version = version + 1;
            self.announce(&[self.id]);
            return;
        }
        match intent {
            // Other servers reported this server as failed, and a user removed it by mistake. No user
            // waits, so refute immediately.
            Intent::Left => self.refute(),
            Intent::Leaving => {
                entry.row.intent = Intent::Leaving;
                self.due.refute.get_or_insert(now + refute);
                self.announce(&[self.id]);
            }
            Intent::Pruned => {
                self.due.refute.get_or_insert(now + refute);
            }
            Intent::Present => {}
        }
    }

    /// Declares that the own server is present.
    pub(super) fn refute(&mut self) {
        if self.phase != Phase::Present {
            return;
        }
        if let Some(entry) = self.rows.get_mut(&self.id) {
            entry.row.version += 1;
            entry.row.intent = Intent::Present;
            self.due.refute = None;
            self.out.push_back(Output::Notice(Notice::Refuted));
            self.announce(&[self.id]);
        }
    }

    /// Removes members that are absent for too long, and old rows of removed members.
    pub(super) fn reap(&mut self, now: Duration) {
        let timing = self.timing;
        let seen = self.swim.seen();
        self.rows.retain(|id, entry| {
            *id == self.id
                || entry.row.intent != Intent::Pruned
                || now.saturating_sub(entry.since) < timing.tombstone
        });
        for (id, entry) in &mut self.rows {
            let is_up = seen.get(id).is_none_or(Seen::is_up);
            let limit = match entry.row.intent {
                Intent::Left | Intent::Leaving if !is_up => timing.reap_left,
                Intent::Left => timing.reap_left,
                Intent::Present if !is_up => timing.reap_failed,
                _ => continue,
            };
            if *id != self.id && now.saturating_sub(entry.since) >= limit {
                entry.row.intent = Intent::Pruned;
                entry.row.tags = Tags::new();
                self.has_changed = true;
            }
        }
    }
}
