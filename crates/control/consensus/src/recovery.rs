//! Recovery of a cluster that permanently lost its majority, on a server that is not running.
//!
//! The log of the survivor gets one more entry, a membership, under a new cluster id. Servers that keep the
//! old id are refused from then on. So they cannot form a second majority from their logs.

mod peers_file;

pub use peers_file::{EntryFault, PeersFile, PeersFileFault, apply_peers_file};

use crate::log::{Offline, open_offline};
use crate::raft::{CommittedLeaderId, Entry, LogId, Membership, Vote};
use crate::{ClusterId, Error, Identity, MembershipError, Peer, ServerId, snapshot};
use openraft::entry::EntryPayload;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use uuid::Uuid;

/// The state of a stopped server, for the operator's decision about a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// The server's place in the log.
    pub identity: Identity,
    /// Term and index of the last entry. Commands that other servers acknowledged after it are lost by a recovery.
    pub last: Option<(u64, u64)>,
    /// Index of the last entry that is committed according to the server. A recovery lets later entries of
    /// its log take effect, although they may never have been acknowledged.
    pub committed: Option<u64>,
    /// The members in the last membership in the server's log, and whether each of them votes.
    pub members: BTreeMap<ServerId, (Peer, bool)>,
}

/// An open log and its content.
struct Opened {
    log: Offline,
    last: Option<LogId>,
    membership: Membership,
    /// The entry with the membership.
    membership_at: Option<LogId>,
}

fn open(dir: &Path) -> Result<Opened, Error> {
    let log = open_offline(dir)?;
    let snapshots = dir.join("snapshots");
    let newest = snapshot::newest_in(&snapshots).map_err(Error::data_dir(&snapshots))?;
    let newest = newest.map(|(meta, _)| meta).unwrap_or_default();
    if newest.last_log_id < log.purged {
        let purged = log.purged.map_or(0, |id| id.index);
        let newest = newest.last_log_id.map(|id| id.index);
        return Err(Error::SnapshotMissing { path: dir.into(), purged, newest });
    }
    let last = log.entries.last().map(|entry| entry.log_id).max(newest.last_log_id);
    let in_log = log.entries.iter().rev().find_map(|entry| match &entry.payload {
        EntryPayload::Membership(membership) => Some((entry.log_id, membership.clone())),
        EntryPayload::Normal(_) | EntryPayload::Blank => None,
    });
    let in_snapshot = *newest.last_membership.log_id();
    let (membership_at, membership) = match in_log {
        Some((id, membership)) if Some(id) > in_snapshot => (Some(id), membership),
        _ => (in_snapshot, newest.last_membership.membership().clone()),
    };
    Ok(Opened { log, last, membership, membership_at })
}

impl Opened {
    fn members(&self) -> BTreeMap<ServerId, (Peer, bool)> {
        let voters: BTreeSet<u64> = self.membership.voter_ids().collect();
        let member = |(id, peer): (&u64, &Peer)| (ServerId(*id), (peer.clone(), voters.contains(id)));
        self.membership.nodes().map(member).collect()
    }

    /// Appends a membership under a new cluster id.
    fn write(
        &mut self,
        cluster: ClusterId,
        number: ServerId,
        members: BTreeMap<ServerId, (Peer, bool)>,
    ) -> Result<(), Error> {
        let voters = members.iter().filter(|(_, (_, voter))| *voter).map(|(number, _)| number.0).collect();
        let nodes = members.into_iter().map(|(number, (peer, _))| (number.0, peer));
        let membership = Membership::new(vec![voters], nodes.collect::<BTreeMap<_, _>>())
            .map_err(|error| MembershipError::Refused(error.to_string()))?;
        let (term, index) = self.last.map_or((0, 0), |id| (id.committed_leader_id().term, id.index));
        // Servers that are recovered together write an equal entry, because their logs end equally.
        let log_id = LogId::new(CommittedLeaderId::new(term + 1), index + 1);
        let entry = Entry { log_id, payload: EntryPayload::Membership(membership) };
        // Newer than every vote of this server, so that no old vote counts.
        let voted = self.log.vote.map_or(0, |vote| vote.leader_id().term);
        let vote = Vote::new(voted.max(term + 1) + 1, number.0);
        let identity = Identity { cluster: Some(cluster), number: Some(number) };
        self.log.append(&entry, self.last, vote, identity)
    }
}

/// Reads the state of a stopped server. Changes no file.
///
/// # Errors
/// [`Error::Locked`] while a server uses the directory; [`Error::DataDir`], [`Error::Log`] and
/// [`Error::SnapshotMissing`] if its files cannot be read.
pub fn survivor(dir: &Path) -> Result<Survivor, Error> {
    let opened = open(dir)?;
    Ok(Survivor {
        identity: opened.log.identity,
        last: opened.last.map(|id| (id.committed_leader_id().term, id.index)),
        committed: opened.log.committed.map(|id| id.index),
        members: opened.members(),
    })
}

/// Recovers a stopped server as the only member of a new cluster that continues with the log of the server.
///
/// # Errors
/// As [`survivor`]; [`Error::NotAdmitted`] if the server was never a member.
pub fn recover_alone(dir: &Path, cluster: ClusterId) -> Result<(), Error> {
    let mut opened = open(dir)?;
    let number = opened.log.identity.number.ok_or(Error::NotAdmitted)?;
    let mut members = opened.members();
    let (peer, _) = members.remove(&number).ok_or(MembershipError::NotMember(number))?;
    opened.write(cluster, number, BTreeMap::from([(number, (peer, true))]))
}

/// A member of a recovered cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryPeer {
    /// UUID of the server.
    pub server: Uuid,
    /// Address of its RPC port.
    pub address: String,
    /// Whether the server receives the log only.
    pub non_voter: bool,
}

/// Recovers a stopped server as a member of a new cluster of the given servers. The operator must do the same on
/// each of them. The new cluster id follows from the list and the last entry, so servers whose logs end
/// differently refuse each other. Returns the new cluster id.
///
/// # Errors
/// As [`recover_alone`]; [`Error::Membership`] if a server was no member before, or if `own` is not in the list.
pub fn recover_with(dir: &Path, own: Uuid, peers: &[RecoveryPeer]) -> Result<ClusterId, Error> {
    recover_opened(&mut open(dir)?, own, peers)
}

fn recover_opened(opened: &mut Opened, own: Uuid, peers: &[RecoveryPeer]) -> Result<ClusterId, Error> {
    let number = opened.log.identity.number.ok_or(Error::NotAdmitted)?;
    let known = opened.members();
    let mut members = BTreeMap::new();
    for peer in peers {
        let found = known.iter().find(|(_, (known, _))| known.server == peer.server);
        let Some((number, (known, _))) = found else {
            let reason = format!("server {} was not a member of this cluster", peer.server);
            return Err(MembershipError::Refused(reason).into());
        };
        let peer_now = Peer { addr: peer.address.clone(), ..known.clone() };
        members.insert(*number, (peer_now, !peer.non_voter));
    }
    let is_own = |peer: &Peer| peer.server == own;
    if !members.get(&number).is_some_and(|(peer, _)| is_own(peer)) {
        return Err(MembershipError::NotMember(number).into());
    }
    // The server crashed after an earlier recovery, or the membership needs no recovery. Another cluster id
    // would separate this server from the others.
    if let Some(cluster) = opened.log.identity.cluster
        && opened.last == opened.membership_at
        && opened.members() == members
    {
        return Ok(cluster);
    }
    let cluster = derived_id(opened.log.identity.cluster, opened.last, &members);
    opened.write(cluster, number, members)?;
    Ok(cluster)
}

fn derived_id(
    old: Option<ClusterId>,
    last: Option<LogId>,
    members: &BTreeMap<ServerId, (Peer, bool)>,
) -> ClusterId {
    let mut hash = Sha256::new();
    hash.update(old.map_or(Uuid::nil(), |id| id.0).as_bytes());
    let (term, index) = last.map_or((0, 0), |id| (id.committed_leader_id().term, id.index));
    hash.update(term.to_le_bytes());
    hash.update(index.to_le_bytes());
    for (number, (peer, voter)) in members {
        hash.update(number.0.to_le_bytes());
        hash.update(peer.server.as_bytes());
        hash.update([u8::from(*voter)]);
    }
    let digest = hash.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    ClusterId(uuid::Builder::from_random_bytes(bytes).into_uuid())
}
