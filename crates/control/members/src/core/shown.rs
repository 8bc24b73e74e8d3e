//! The shown state of the table: the status of each member, the events, and members with equal names.

use super::{Core, Entry, Notice, Output, Phase, Seen};
use crate::frame::{Intent, Message};
use crate::member::{CLUSTER_TAG, Event, Member, Status, Tags};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use uuid::Uuid;

/// The interval at which two alive servers of one name, or servers of two clusters, are reported again.
const REPORT_INTERVAL: Duration = Duration::from_secs(300);

impl Core {
    /// Sends the datagrams of failure detection, and compares the statuses with the shown ones.
    pub(super) fn settle(&mut self, now: Duration) {
        for (to, bytes) in self.swim.take_sends() {
            self.out.push_back(Output::Send { to, message: Message::Swim(bytes) });
        }
        if !self.swim.take_changed() && !self.has_changed {
            return;
        }
        self.has_changed = false;
        let seen = self.swim.seen();
        self.swim.resize(seen.values().filter(|seen| seen.is_up()).count() + 1);
        self.replace_same_names(now, &seen);
        let mut events = Vec::new();
        for (id, entry) in &mut self.rows {
            let status = status(entry, is_up(self.id, *id, &seen));
            let member = status.map(|status| Member {
                id: *id,
                name: entry.row.name.clone(),
                addr: entry.row.addr,
                status,
                tags: entry.row.tags.clone(),
            });
            if member == entry.shown {
                continue;
            }
            let before = std::mem::replace(&mut entry.shown, member.clone());
            if before.as_ref().map(|member| member.status) != status {
                entry.since = now;
            }
            events.extend(event(before, member));
        }
        if !events.is_empty() {
            self.version += 1;
            self.out.extend(events.into_iter().map(Output::Event));
            self.report_other_clusters(now);
        }
        self.ask_for_unknown(&seen);
    }

    /// Begins a sync with alive members that have no row here.
    fn ask_for_unknown(&mut self, seen: &BTreeMap<Uuid, Seen>) {
        if self.phase == Phase::Left {
            return;
        }
        let unknown = seen.values().filter(|seen| seen.is_up() && !self.rows.contains_key(&seen.peer.id));
        let addresses: Vec<SocketAddr> = unknown.map(|seen| seen.peer.addr).collect();
        for to in addresses {
            self.out.push_back(Output::Send { to, message: self.sync_message() });
        }
    }

    /// Reports the alive servers of the region that belong to another cluster than the own server.
    fn report_other_clusters(&mut self, now: Duration) {
        let shown = |entry: &Entry| entry.shown.clone();
        let Some(own) = self.rows.get(&self.id).and_then(shown) else { return };
        let Some(cluster) = own.tag(CLUSTER_TAG) else { return };
        let others = self.rows.values().filter_map(shown);
        for other in others.filter(|other| other.is_alive() && other.is_foreign(&own)) {
            let Some(its) = other.tag(CLUSTER_TAG) else { continue };
            let last = self.other_clusters.get(&other.id);
            if last.is_none_or(|(cluster, at)| cluster != its || now.saturating_sub(*at) >= REPORT_INTERVAL) {
                self.other_clusters.insert(other.id, (its.to_owned(), now));
                self.out.push_back(Output::Notice(Notice::OtherCluster {
                    name: other.name.clone(),
                    at: other.addr,
                    cluster: its.to_owned(),
                    own: cluster.to_owned(),
                }));
            }
        }
    }

    /// Removes absent members if another server of the same name is alive, which replaces them.
    fn replace_same_names(&mut self, now: Duration, seen: &BTreeMap<Uuid, Seen>) {
        let mut alive: BTreeMap<String, (Uuid, SocketAddr)> = BTreeMap::new();
        let mut twice = Vec::new();
        for (id, entry) in &self.rows {
            if status(entry, is_up(self.id, *id, seen)) == Some(Status::Alive) {
                let place = (*id, entry.row.addr);
                if let Some(other) = alive.insert(entry.row.name.clone(), place) {
                    twice.push((entry.row.name.clone(), other.1, entry.row.addr));
                }
            }
        }
        for (id, entry) in &mut self.rows {
            let is_absent =
                matches!(status(entry, is_up(self.id, *id, seen)), Some(Status::Failed | Status::Left));
            let is_replaced = alive.get(&entry.row.name).is_some_and(|(other, _)| other != id);
            if is_absent && is_replaced && *id != self.id {
                entry.row.intent = Intent::Pruned;
                entry.row.tags = Tags::new();
            }
        }
        for (name, one, other) in twice {
            let last = self.same_names.get(&name);
            if last.is_none_or(|last| now.saturating_sub(*last) >= REPORT_INTERVAL) {
                self.same_names.insert(name.clone(), now);
                self.out.push_back(Output::Notice(Notice::SameName { name, one, other }));
            }
        }
    }
}

/// Returns whether a member is up; `None` before any claim about it.
fn is_up(own: Uuid, id: Uuid, seen: &BTreeMap<Uuid, Seen>) -> Option<bool> {
    if id == own { Some(true) } else { seen.get(&id).map(Seen::is_up) }
}

/// Returns the status of a member; `None` hides it. A row may arrive before any claim about its member.
fn status(entry: &Entry, is_up: Option<bool>) -> Option<Status> {
    match (entry.row.intent, is_up) {
        (Intent::Pruned, _) => None,
        (Intent::Left, _) | (Intent::Leaving, Some(false)) => Some(Status::Left),
        (Intent::Leaving, Some(true)) => Some(Status::Leaving),
        (Intent::Present, Some(true)) => Some(Status::Alive),
        (Intent::Present, Some(false)) => Some(Status::Failed),
        (Intent::Leaving | Intent::Present, None) => None,
    }
}

/// Returns the event for a change of a member.
fn event(before: Option<Member>, after: Option<Member>) -> Option<Event> {
    match (before, after) {
        (Some(before), None) => Some(Event::Reaped(before)),
        (before, Some(after)) if before.as_ref().is_none_or(|before| before.status != after.status) => {
            Some(match after.status {
                Status::Alive | Status::None => Event::Joined(after),
                Status::Leaving => Event::Leaving(after),
                Status::Left => Event::Left(after),
                Status::Failed => Event::Failed(after),
            })
        }
        (Some(_), Some(after)) => Some(Event::Updated(after)),
        (None, _) => None,
    }
}
