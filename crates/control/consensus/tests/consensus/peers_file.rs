//! The file `peers.json` at the start of a server.

use crate::net::{Cluster, peer};
use caravan_consensus::{Error, PeersFile, ServerId, Start, apply_peers_file, survivor};
use std::fs;

/// Returns a stopped cluster of three with some entries.
async fn stopped() -> Cluster {
    let mut cluster = Cluster::founded(3).await;
    let leader = cluster.leader(&[]).await;
    for n in 0..30 {
        cluster.server(leader).propose(format!("{n}").into_bytes()).await.unwrap();
    }
    for number in 1..=3 {
        cluster.caught_up(number, leader).await;
    }
    for number in 1..=3 {
        cluster.stop(number).await;
    }
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peers_file_is_applied_once() {
    let mut cluster = stopped().await;
    let dir = cluster.dir(2).to_owned();
    let own = peer(2).server;
    assert_eq!(apply_peers_file(&dir, own).unwrap(), None);
    let before = survivor(&dir).unwrap();

    // A refused file stays, and nothing changes.
    for (text, words) in [
        ("[\"10.0.0.2:4647\", \"10.0.0.9:4647\"]".to_owned(), "entry 2: no member of this cluster had"),
        (format!("[{{\"id\": \"{}\", \"address\": \"a:1\"}}]", peer(1).server), "does not name this server"),
        (format!("[{{\"id\": \"{}\", \"address\": \"a:1\"}}]", peer(8).server), "entry 1: server"),
        ("[\"10.0.0.2:4647\", \"10.0.0.2:4647\"]".to_owned(), "is named twice"),
        (
            format!("[{{\"id\": \"{own}\", \"address\": \"a:1\", \"non_voter\": true}}]"),
            "no server that votes",
        ),
    ] {
        fs::write(dir.join("peers.json"), &text).unwrap();
        let error = apply_peers_file(&dir, own).unwrap_err();
        assert!(matches!(&error, Error::PeersFile { path, .. } if path.ends_with("peers.json")), "{error}");
        assert!(error.to_string().contains(words), "{text}: {error}");
        assert_eq!(survivor(&dir).unwrap(), before);
    }

    // A crash between the entry and the new name of the file: the second application changes nothing.
    let mut clusters = Vec::new();
    for _ in 0..2 {
        fs::write(dir.join("peers.json"), "[\"10.0.0.2:4647\"]").unwrap();
        let Some(PeersFile::Applied { cluster, members, renamed, .. }) = apply_peers_file(&dir, own).unwrap()
        else {
            panic!("it was not applied")
        };
        assert_eq!((members.len(), members[0].server), (1, own));
        assert!(renamed.exists() && !dir.join("peers.json").exists());
        clusters.push(cluster);
    }
    assert_eq!(clusters[0], clusters[1]);
    let after = survivor(&dir).unwrap();
    assert_eq!(after.identity.cluster, Some(clusters[0]));
    assert_eq!(after.members.keys().collect::<Vec<_>>(), [&ServerId(2)]);
    assert_eq!(after.last.map(|(_, index)| index), before.last.map(|(_, index)| index + 1));

    cluster.start(2, Start::Wait).await;
    assert!(cluster.server(2).is_leader());
    assert_eq!(cluster.servers[&2].journal.values().len(), 30);
    cluster.stop_all().await;
}

#[test]
fn a_server_without_a_log_ignores_the_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("peers.json"), "[\"10.0.0.2:4647\"]").unwrap();
    let done = apply_peers_file(dir.path(), peer(2).server).unwrap();
    let Some(PeersFile::Ignored { renamed }) = done else { panic!("{done:?}") };
    assert!(renamed.exists() && !dir.path().join("peers.json").exists());
}
