//! Several servers: elections, replication, membership, reads, transfers and recovery.

use crate::net::{Cluster, eventually, peer};
use bytes::Bytes;
use caravan_consensus::{
    ClusterId, Error, Identity, MembershipError, MessageKind, RecoveryPeer, ServerId, Start, recover_alone,
    recover_with, survivor,
};
use std::time::Duration;
use uuid::Uuid;

async fn propose(cluster: &Cluster, leader: u64, value: &str) -> u64 {
    cluster.server(leader).propose(value.as_bytes().to_vec()).await.unwrap().index
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn founders_elect_a_leader_and_survive_its_end_and_return() {
    let mut cluster = Cluster::founded(3).await;
    let first = cluster.leader(&[]).await;
    for n in 0..30 {
        propose(&cluster, first, &format!("a{n}")).await;
    }
    let others: Vec<u64> = (1..=3).filter(|number| *number != first).collect();
    for other in &others {
        cluster.follows(*other, first).await;
        cluster.caught_up(*other, first).await;
        let error = cluster.server(*other).propose(b"x".to_vec()).await.unwrap_err();
        assert!(matches!(error, Error::NotLeader { leader: Some(l) } if l.number == ServerId(first)));
        assert!(matches!(cluster.server(*other).read(None).await, Err(Error::NotLeader { .. })));
        assert!(cluster.server(*other).last_contact().is_some());
        cluster.server(*other).recovered().await.unwrap();
    }
    // A repeated call changes nothing.
    let members = (1..=3).map(|number| (ServerId(number), peer(number))).collect();
    cluster.server(1).found(cluster.id, members).await.unwrap();

    cluster.stop(first).await;
    let second = cluster.leader(&[]).await;
    assert_ne!(first, second);
    propose(&cluster, second, "b").await;

    cluster.start(first, Start::Wait).await;
    assert_eq!(
        cluster.server(first).identity(),
        Identity { cluster: Some(cluster.id), number: Some(ServerId(first)) }
    );
    cluster.server(first).recovered().await.unwrap();
    cluster.caught_up(first, second).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_server_is_admitted_by_a_snapshot_and_replaces_another() {
    let mut cluster = Cluster::founded(3).await;
    let leader = cluster.leader(&[]).await;
    for n in 0..60 {
        propose(&cluster, leader, &format!("{n}")).await;
    }
    let handle = cluster.server(leader).clone();
    eventually("purged entries", || handle.metrics().purged_index).await;

    let number = handle.next_number().await.unwrap();
    assert!(handle.next_number().await.unwrap() > number && number.0 > 1000);
    cluster.start(90, Start::Wait).await;
    let waiting = cluster.server(90).clone();
    assert!(matches!(waiting.receive(MessageKind::Vote, vec![1; 40].into()).await, Err(Error::NotAdmitted)));
    assert!(matches!(waiting.propose(Vec::new()).await, Err(Error::NotAdmitted)));
    cluster.admit(90, number.0).await;
    let another = waiting.admit(ClusterId(Uuid::new_v4()), number).await.unwrap_err();
    assert!(matches!(another, Error::Admitted { identity } if identity.number == Some(number)));

    let seen = handle.members().version;
    handle.add_learner(seen, number, peer(number.0)).await.unwrap();
    let stale = handle.add_learner(seen, ServerId(7), peer(7)).await.unwrap_err();
    assert!(matches!(stale, Error::Membership(MembershipError::Changed)), "{stale}");
    cluster.caught_up(number.0, leader).await;
    assert!(cluster.snapshots() > 0);
    let member = || handle.members().get(number).cloned();
    let last = handle.metrics().last_log_index;
    eventually("the learner's progress", || member().filter(|m| m.matched >= Some(last))).await;
    assert!(member().is_some_and(|member| !member.voter && member.last_contact.is_some()));

    eventually("a committed membership", || handle.members().committed.then_some(())).await;
    handle.promote(handle.members().version, number).await.unwrap();
    assert_eq!(handle.members().voters().count(), 4);
    // The leader removes itself; another server continues without it.
    eventually("a committed membership", || handle.members().committed.then_some(())).await;
    handle.remove(handle.members().version, ServerId(leader)).await.unwrap();
    let next = cluster.leader(&[leader]).await;
    propose(&cluster, next, "after").await;
    cluster.caught_up(number.0, next).await;
    let voters = cluster.server(next).members();
    assert!(voters.get(ServerId(leader)).is_none() && voters.voters().count() == 3);

    // The admitted server keeps its number after a restart.
    cluster.stop(number.0).await;
    cluster.start(number.0, Start::Wait).await;
    cluster.server(number.0).recovered().await.unwrap();
    cluster.caught_up(number.0, next).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_is_passed_on_and_ends_the_term() {
    let cluster = Cluster::founded(3).await;
    let first = cluster.leader(&[]).await;
    let handle = cluster.server(first);
    let term = handle.metrics().term;
    handle.propose_in(term, b"mine".to_vec(), None).await.unwrap();
    let old = handle.propose_in(term - 1, b"old".to_vec(), None).await.unwrap_err();
    assert!(matches!(old, Error::TermEnded { .. }), "{old}");

    let to = (1..=3).find(|number| *number != first).unwrap();
    assert_eq!(handle.transfer(Some(ServerId(to))).await.unwrap(), ServerId(to));
    assert_eq!(cluster.leader(&[]).await, to);
    let ended = handle.propose_in(term, b"late".to_vec(), None).await.unwrap_err();
    assert!(matches!(ended, Error::TermEnded { .. }), "{ended}");
    assert!(matches!(handle.transfer(None).await, Err(Error::NotLeader { .. })));
    let unknown = cluster.server(to).transfer(Some(ServerId(9))).await.unwrap_err();
    assert!(matches!(unknown, Error::Membership(MembershipError::NotMember(ServerId(9)))), "{unknown}");
    cluster.server(to).transfer(None).await.unwrap();
    cluster.leader(&[to]).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_answers_no_read_and_takes_no_write() {
    let cluster = Cluster::founded(3).await;
    let old = cluster.leader(&[]).await;
    let index = propose(&cluster, old, "before").await;
    let handle = cluster.server(old);
    assert!(handle.read(None).await.unwrap() >= index);
    assert!(handle.read(Some(Duration::ZERO)).await.unwrap() >= index);
    let rounds = (0..100).map(|_| handle.read_quorum());
    for round in futures::future::join_all(rounds).await {
        assert!(round.unwrap() >= index);
    }

    cluster.isolate(old);
    let new = cluster.leader(&[old]).await;
    propose(&cluster, new, "after").await;
    let read = handle.read(None).await.unwrap_err();
    assert!(matches!(read, Error::NoQuorum), "{read}");
    let write = handle.propose(b"lost".to_vec()).await.unwrap_err();
    assert!(matches!(write, Error::NotLeader { .. }), "{write}");

    cluster.heal();
    cluster.follows(old, new).await;
    cluster.caught_up(old, new).await;
    assert_eq!(cluster.servers[&old].journal.values(), ["before", "after"]);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_cut_off_know_no_leader() {
    let cluster = Cluster::founded(3).await;
    let leader = cluster.leader(&[]).await;
    let others: Vec<u64> = (1..=3).filter(|number| *number != leader).collect();
    cluster.follows(others[0], leader).await;
    for number in [leader, others[0]] {
        let handle = cluster.server(number);
        eventually("evidence of the leader", || handle.knows_leader().then_some(())).await;
        assert!(handle.leader_contact().is_some());
    }
    // No server leaves its term, because no message arrives.
    for number in 1..=3 {
        cluster.isolate(number);
    }
    for number in [leader, others[0]] {
        let handle = cluster.server(number);
        eventually("no evidence of a leader", || (!handle.knows_leader()).then_some(())).await;
        assert!(handle.leader_contact() > Some(Duration::from_secs(1)));
    }
    cluster.heal();
    let next = cluster.leader(&[]).await;
    let handle = cluster.server(next);
    eventually("evidence of the next leader", || handle.knows_leader().then_some(())).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_read_at_the_leader_has_what_a_follower_has_shown() {
    let cluster = Cluster::founded(3).await;
    let leader = cluster.leader(&[]).await;
    propose(&cluster, leader, "first").await;
    let handle = cluster.server(leader).clone();
    handle.read_quorum().await.unwrap();

    // The leader applies nothing while its journal is locked.
    let journal = cluster.servers[&leader].journal.clone();
    let ((locked, is_locked), (open, is_open)) =
        (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
    let holder = std::thread::spawn(move || {
        let _rows = journal.0.lock().unwrap();
        locked.send(()).unwrap();
        let _ = is_open.recv();
    });
    is_locked.recv().unwrap();
    let proposed = tokio::spawn({
        let handle = handle.clone();
        async move { handle.propose(b"shown".to_vec()).await.unwrap().index }
    });
    let follower = (1..=3).find(|number| *number != leader).unwrap();
    let shown = || cluster.servers[&follower].journal.values().last().is_some_and(|value| value == "shown");
    eventually("the entry at a follower", || shown().then_some(())).await;

    let mut read = std::pin::pin!(handle.read(None));
    assert!(futures::poll!(&mut read).is_pending());
    drop(open);
    let index = read.await.unwrap();
    assert!(index >= proposed.await.unwrap());
    holder.join().unwrap();
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_catches_up_with_all_that_was_acknowledged() {
    const LIMIT: Duration = Duration::from_secs(10);
    let cluster = Cluster::founded(3).await;
    let leader = cluster.leader(&[]).await;
    let follower = (1..=3).find(|number| *number != leader).unwrap();
    let handle = cluster.server(follower);
    for round in 0..50 {
        let value = format!("v{round}");
        let index = propose(&cluster, leader, &value).await;
        let caught_up = (0..8).map(|_| handle.catch_up(LIMIT));
        for found in futures::future::join_all(caught_up).await {
            let found = match found {
                // Heartbeats are late on a busy machine, and the follower has no leader for a moment.
                Err(Error::NotLeader { .. }) => {
                    cluster.follows(follower, leader).await;
                    handle.catch_up(LIMIT).await
                }
                found => found,
            };
            assert!(found.unwrap() >= index);
        }
        assert_eq!(cluster.servers[&follower].journal.values().last(), Some(&value));
    }
    let own = cluster.server(leader).catch_up(LIMIT).await.unwrap_err();
    assert!(matches!(own, Error::NotLeader { .. }), "{own}");

    // Neither an isolated follower nor a follower of an isolated leader reads.
    cluster.isolate(follower);
    let other = (1..=3).find(|number| ![leader, follower].contains(number)).unwrap();
    propose(&cluster, leader, "after").await;
    let cut = handle.catch_up(LIMIT).await.unwrap_err();
    assert!(matches!(cut, Error::NotLeader { .. }), "{cut}");
    cluster.heal();
    cluster.follows(follower, leader).await;
    cluster.isolate(leader);
    let next = cluster.leader(&[leader]).await;
    let last = if next == other { follower } else { other };
    let index = propose(&cluster, next, "last").await;
    cluster.follows(last, next).await;
    assert!(cluster.server(last).catch_up(LIMIT).await.unwrap() >= index);
    cluster.heal();
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_alone_grows_to_three_and_shrinks_back() {
    let mut cluster = Cluster::new();
    cluster.start(1, Start::Alone(ServerId(1))).await;
    assert!(cluster.server(1).is_leader());
    propose(&cluster, 1, "alone").await;
    // Its directory is older than clusters have ids.
    assert_eq!(cluster.server(1).identity(), Identity { cluster: None, number: Some(ServerId(1)) });
    cluster.admit(1, 1).await;
    for _ in 0..2 {
        let leader = cluster.server(1).clone();
        let number = leader.next_number().await.unwrap();
        cluster.start(90, Start::Wait).await;
        cluster.admit(90, number.0).await;
        leader.add_learner(leader.members().version, number, peer(number.0)).await.unwrap();
        cluster.caught_up(number.0, 1).await;
        eventually("a committed membership", || leader.members().committed.then_some(())).await;
        leader.promote(leader.members().version, number).await.unwrap();
        eventually("a committed membership", || leader.members().committed.then_some(())).await;
    }
    propose(&cluster, 1, "three").await;
    let changed = caravan_consensus::Peer { addr: "10.9.9.9:4647".into(), ..peer(1) };
    let leader = cluster.server(1).clone();
    leader.update_peer(leader.members().version, ServerId(1), changed.clone()).await.unwrap();
    eventually("the address", || leader.members().get(ServerId(1)).filter(|m| m.peer == changed).cloned())
        .await;

    cluster.stop(1).await;
    let next = cluster.leader(&[]).await;
    cluster.start(1, Start::Alone(ServerId(1))).await;
    cluster.caught_up(1, next).await;
    let leader = cluster.server(next).clone();
    for member in leader.members().members.into_iter().filter(|m| m.number != ServerId(next)) {
        eventually("a committed membership", || leader.members().committed.then_some(())).await;
        leader.remove(leader.members().version, member.number).await.unwrap();
        cluster.stop(member.number.0).await;
    }
    propose(&cluster, next, "alone again").await;
    let last = leader.remove(leader.members().version, ServerId(next)).await.unwrap_err();
    assert!(matches!(last, Error::Membership(MembershipError::LastVoter(_))), "{last}");
    cluster.stop(next).await;
    cluster.start(next, Start::Wait).await;
    assert!(cluster.server(next).is_leader(), "a server alone leads at once");
    assert_eq!(cluster.servers[&next].journal.values(), ["alone", "three", "alone again"]);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_neither_votes_at_once_nor_for_another_cluster() {
    let mut cluster = Cluster::founded(2).await;
    let leader = cluster.leader(&[]).await;
    propose(&cluster, leader, "x").await;
    cluster.stop(1).await;
    cluster.start(1, Start::Wait).await;
    let header = |cluster: ClusterId, to: u64| {
        let numbers = [7u64.to_le_bytes(), to.to_le_bytes()].concat();
        Bytes::from([&[1][..], cluster.0.as_bytes(), &numbers].concat())
    };
    let handle = cluster.server(1);
    let ask = async |message| handle.receive(MessageKind::PreVote, message).await.unwrap_err();
    assert!(matches!(ask(header(cluster.id, 1)).await, Error::NoVoteYet));
    assert!(matches!(ask(header(cluster.id, 2)).await, Error::WrongServer { own: ServerId(1), .. }));
    assert!(matches!(ask(header(ClusterId(Uuid::nil()), 1)).await, Error::WrongCluster { .. }));
    assert!(matches!(ask(Bytes::new()).await, Error::Message { .. }));
    let leader = cluster.leader(&[]).await;
    propose(&cluster, leader, "y").await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn survivors_are_recovered_under_a_new_cluster_id() {
    let mut cluster = Cluster::founded(3).await;
    let leader = cluster.leader(&[]).await;
    for n in 0..30 {
        propose(&cluster, leader, &format!("{n}")).await;
    }
    for other in 1..=3 {
        cluster.caught_up(other, leader).await;
    }
    let values = cluster.servers[&leader].journal.values();
    for number in 1..=3 {
        cluster.stop(number).await;
    }
    let known = survivor(cluster.dir(1)).unwrap();
    assert_eq!(known.identity, Identity { cluster: Some(cluster.id), number: Some(ServerId(1)) });
    assert_eq!(known.members.len(), 3);
    assert!(known.last.is_some() && known.committed.is_some(), "{known:?}");

    // Two of three continue together, because their logs end equally.
    let peers: Vec<_> = [1, 2]
        .map(|number| RecoveryPeer {
            server: peer(number).server,
            address: peer(number).addr,
            non_voter: false,
        })
        .into();
    let foreign = recover_with(cluster.dir(1), Uuid::nil(), &peers).unwrap_err();
    assert!(matches!(foreign, Error::Membership(MembershipError::NotMember(_))), "{foreign}");
    let equal = known.last == survivor(cluster.dir(2)).unwrap().last;
    let ids = [1, 2].map(|number| recover_with(cluster.dir(number), peer(number).server, &peers).unwrap());
    assert_eq!(ids[0] == ids[1], equal);
    if equal {
        cluster.start(1, Start::Wait).await;
        cluster.start(2, Start::Wait).await;
        let leader = cluster.leader(&[]).await;
        assert_eq!(cluster.servers[&leader].journal.values(), values);
        assert_eq!(cluster.server(leader).members().voters().count(), 2);
        cluster.stop(1).await;
        cluster.stop(2).await;
    }

    // Server 3 continues alone.
    let alone = ClusterId(Uuid::new_v4());
    recover_alone(cluster.dir(3), alone).unwrap();
    cluster.start(3, Start::Wait).await;
    assert!(cluster.server(3).is_leader());
    assert_eq!(cluster.server(3).identity().cluster, Some(alone));
    assert_eq!(cluster.servers[&3].journal.values(), values);
    propose(&cluster, 3, "on").await;
    cluster.stop_all().await;
}
