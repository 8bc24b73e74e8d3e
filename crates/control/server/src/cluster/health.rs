//! The health of the servers, as the leader measures it (docs/reference/cluster.md, section 10).

use caravan_messages::cluster::ServerStatus;
use caravan_types::operator::AutopilotConfig;
use caravan_types::{BootInstant, Nanos, UnixNanos};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// The health of a server of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerHealth {
    /// The server's UUID.
    pub id: Uuid,
    /// The name in the member table, `<node>.<region>`.
    pub name: String,
    /// The address for calls between servers.
    pub address: String,
    /// The status in the member table; `none` if the table does not contain the server.
    pub member_status: String,
    /// The version of the server's program.
    pub version: String,
    /// The feature level that the server supports.
    pub level: u32,
    /// Whether the server leads.
    pub leader: bool,
    /// Whether the server votes.
    pub voter: bool,
    /// Time since the last message of the leader; absent if unknown.
    pub last_contact: Option<Nanos>,
    /// The term of the server's last log entry.
    pub last_term: u64,
    /// The index of the server's last log entry.
    pub last_index: u64,
    /// Whether the server is healthy.
    pub healthy: bool,
    /// The time of the last change of `healthy`.
    pub stable_since: UnixNanos,
    /// The difference between the server's wall clock and the leader's.
    pub clock_skew: Nanos,
}

/// The health of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AutopilotHealth {
    /// The servers in the membership of the log.
    pub servers: Vec<ServerHealth>,
}

impl AutopilotHealth {
    /// Whether all servers are healthy.
    pub fn is_healthy(&self) -> bool {
        !self.servers.is_empty() && self.servers.iter().all(|server| server.healthy)
    }

    /// Returns the feature level that all servers support; `None` before the first measurement.
    pub fn common_level(&self) -> Option<u32> {
        self.servers.iter().map(|server| server.level).min()
    }

    /// Returns the number of voters that may fail while the cluster keeps its quorum.
    pub fn failure_tolerance(&self) -> usize {
        let voters = self.servers.iter().filter(|server| server.voter);
        let healthy = voters.clone().filter(|server| server.healthy).count();
        healthy.saturating_sub(voters.count() / 2 + 1)
    }
}

/// The facts about one server from which its health follows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    pub(crate) health: ServerHealth,
    pub(crate) is_alive: bool,
    pub(crate) status: Option<ServerStatus>,
}

/// The number of longest pauses between the leader's messages for which a healthy server may be out of contact.
const MISSED_MESSAGES: u32 = 3;

/// Returns whether a server is healthy. `leader` is the status of the leader; `silence` is the longest pause between
/// its messages.
///
/// The configured threshold applies only if it exceeds [`MISSED_MESSAGES`] pauses. With a threshold of 200 ms and
/// pauses of 216 ms, a server that misses no message would be unhealthy before each message.
pub(crate) fn is_healthy(
    observed: &Observed,
    leader: &ServerStatus,
    config: &AutopilotConfig,
    silence: Duration,
) -> bool {
    let Some(status) = &observed.status else { return false };
    let threshold = config.last_contact_threshold.0.to_std().max(silence * MISSED_MESSAGES);
    let contact = status.last_contact.is_some_and(|age| Duration::from_nanos(age) <= threshold);
    let is_close = leader.last_index.saturating_sub(status.last_index) <= config.max_trailing_logs;
    observed.is_alive && contact && status.last_term == leader.last_term && is_close
}

/// The health of each server and the time of its last change; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct HealthBook(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    now: AutopilotHealth,
    since: BTreeMap<Uuid, (bool, BootInstant, UnixNanos)>,
}

impl HealthBook {
    /// Returns the latest health of the cluster.
    pub(crate) fn now(&self) -> AutopilotHealth {
        self.0.lock().now.clone()
    }

    /// Removes all measurements of an earlier term.
    pub(crate) fn clear(&self) {
        *self.0.lock() = Book::default();
    }

    /// Records the health of all servers.
    pub(crate) fn record(&self, servers: Vec<ServerHealth>, boot: BootInstant, wall: UnixNanos) {
        let mut book = self.0.lock();
        book.since.retain(|id, _| servers.iter().any(|server| server.id == *id));
        let mut all = Vec::with_capacity(servers.len());
        for mut server in servers {
            let since = book.since.entry(server.id).or_insert((server.healthy, boot, wall));
            if since.0 != server.healthy {
                *since = (server.healthy, boot, wall);
            }
            server.stable_since = since.2;
            all.push(server);
        }
        book.now = AutopilotHealth { servers: all };
    }

    /// Returns the time for which a server has been healthy; `None` if the server is not healthy.
    pub(crate) fn healthy_for(&self, id: Uuid, boot: BootInstant) -> Option<Nanos> {
        let book = self.0.lock();
        let (healthy, since, _) = book.since.get(&id)?;
        healthy.then(|| boot.since(*since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voters(healthy: &[bool]) -> AutopilotHealth {
        let server = |healthy: &bool| ServerHealth { voter: true, healthy: *healthy, ..Default::default() };
        AutopilotHealth { servers: healthy.iter().map(server).collect() }
    }

    #[test]
    fn the_tolerance_counts_healthy_voters_above_the_quorum() {
        for (healthy, tolerance) in [
            (&[][..], 0),
            (&[true], 0),
            (&[true, true], 0),
            (&[true, true, true], 1),
            (&[true, true, false], 0),
            (&[true, false, false], 0),
            (&[true, true, true, true, true], 2),
        ] {
            assert_eq!(voters(healthy).failure_tolerance(), tolerance, "{healthy:?}");
        }
        assert!(voters(&[true]).is_healthy() && !voters(&[true, false]).is_healthy());
        assert!(!voters(&[]).is_healthy());
    }

    #[test]
    fn health_needs_life_contact_and_a_close_log() {
        let config = AutopilotConfig::default();
        let leader = ServerStatus { last_term: 3, last_index: 1000, ..Default::default() };
        let good = ServerStatus { last_contact: Some(100_000_000), ..leader.clone() };
        let judge = |is_alive, status: Option<ServerStatus>| {
            let observed = Observed { is_alive, status, ..Default::default() };
            is_healthy(&observed, &leader, &config, Duration::from_millis(60))
        };
        assert!(judge(true, Some(good.clone())));
        assert!(!judge(false, Some(good.clone())) && !judge(true, None));
        assert!(!judge(true, Some(ServerStatus { last_contact: None, ..good.clone() })));
        assert!(!judge(true, Some(ServerStatus { last_contact: Some(300_000_000), ..good.clone() })));
        assert!(!judge(true, Some(ServerStatus { last_term: 2, ..good.clone() })));
        assert!(judge(true, Some(ServerStatus { last_index: 750, ..good.clone() })));
        assert!(!judge(true, Some(ServerStatus { last_index: 749, ..good })));
    }

    #[test]
    fn a_server_that_missed_two_heartbeats_is_healthy() {
        let config = AutopilotConfig::default();
        let leader = ServerStatus { last_term: 3, last_index: 1000, ..Default::default() };
        let judge = |age: u64, silence| {
            let status = Some(ServerStatus { last_contact: Some(age * 1_000_000), ..leader.clone() });
            let observed = Observed { is_alive: true, status, ..Default::default() };
            is_healthy(&observed, &leader, &config, Duration::from_millis(silence))
        };
        assert!(judge(216, 216) && judge(648, 216) && !judge(649, 216));
        // `raft_multiplier = 5`.
        assert!(judge(1080, 1080) && !judge(3241, 1080));
        // Fast heartbeats: the configured threshold counts.
        assert!(judge(200, 20) && !judge(201, 20));
    }

    #[test]
    fn health_that_changes_begins_anew() {
        let (book, id) = (HealthBook::default(), Uuid::from_u128(1));
        let at = |secs| BootInstant::from_nanos(1).plus(Nanos::from_secs(secs));
        let server = |healthy| vec![ServerHealth { id, healthy, ..Default::default() }];
        book.record(server(true), at(0), UnixNanos(5));
        book.record(server(true), at(4), UnixNanos(9));
        assert_eq!(book.healthy_for(id, at(10)), Some(Nanos::from_secs(10)));
        assert_eq!(book.now().servers[0].stable_since, UnixNanos(5));
        book.record(server(false), at(12), UnixNanos(12));
        assert_eq!(book.healthy_for(id, at(13)), None);
        book.record(server(true), at(14), UnixNanos(14));
        assert_eq!(book.healthy_for(id, at(15)), Some(Nanos::from_secs(1)));
    }
}
