//! Publishing, watching, waiting, the feed, and damaged snapshots.

use super::build::{World, job, key, node, update, volume};
use crate::{Arrivals, ChangeSet, Changed, FeedItem, SnapshotError, Store, Table, Topic, decode, encode};
use caravan_types::UnixNanos;
use caravan_types::alloc::ClientStatus;
use caravan_types::command::{Change, Command, PlanCommit};
use caravan_types::job::JobType;
use caravan_types::plan::StopAlloc;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

fn command(change: Change) -> Command {
    Command { now: UnixNanos(7), change }
}

fn register(id: &str) -> Command {
    command(Change::NodeRegister { node: Box::new(node(id)), evals: vec![] })
}

/// Returns whether a future is ready without a wake.
fn ready<F: Future>(future: F) -> bool {
    let mut future = pin!(future);
    matches!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(_))
}

#[test]
fn a_watch_wakes_for_what_it_named_only() {
    let store = Store::default();
    store.apply(1, &register("n1"));
    let mut one = store.watch().on(Topic::Node("n1".into())).start();
    let mut table = store.watch().table(Table::Nodes).table(Table::Volumes).start();
    assert!(!ready(one.changed()), "what was before the registration does not count");
    store.apply(2, &register("n2"));
    assert!(!ready(one.changed()));
    assert!(ready(table.changed()));
    assert!(!ready(table.changed()), "one change wakes once");
    let volume =
        Change::VolumeWrite { volume: Box::new(volume("v", "p")), expect_modify_index: 0, exclusive: true };
    store.apply(3, &command(volume));
    assert!(ready(table.changed()) && !ready(one.changed()));
    drop((one, table));
    assert!(store.nobody_watches());
}

#[test]
fn owners_are_woken_for_their_rows() {
    let store = Store::default();
    let web = job("web", JobType::Service, 1);
    let mut evals = store.watch().on(Topic::EvalsOfJob(web.key())).start();
    let mut others = store.watch().on(Topic::AllocsOfJob(web.key())).start();
    let eval = Some(super::build::eval("e1", &web));
    let register = Change::JobRegister { job: Box::new(web), expect_modify_index: None, eval, source: None };
    store.apply(1, &command(register));
    assert!(ready(evals.changed()) && !ready(others.changed()));
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "somebody has to wait meanwhile")]
async fn waiting_for_an_index_ends_when_it_is_applied() {
    let store = Arc::new(Store::default());
    let waiter = tokio::spawn({
        let store = store.clone();
        async move { store.wait_for_index(2).await.index() }
    });
    store.apply(1, &register("n1"));
    store.apply(2, &command(Change::Noop));
    assert_eq!(waiter.await.unwrap(), 2);
    assert_eq!(store.wait_for_index(1).await.index(), 2);
}

#[tokio::test]
async fn the_feed_tells_changes_and_when_to_read_anew() {
    let store = Store::default();
    let (mut feed, mut raw) = (store.feed(), store.subscribe());
    store.apply(1, &register("n1"));
    let expected = ChangeSet {
        index: 1,
        now: UnixNanos(7),
        kind: "NodeRegister",
        changes: vec![Changed::Node("n1".into())],
    };
    assert_eq!(feed.next().await, Some(FeedItem::Changes(Arc::new(expected.clone()))));
    assert_eq!(*raw.recv().await.unwrap(), expected);

    let bytes = encode(&store.snapshot());
    let mut watch = store.watch().on(Topic::Plugin("p".into())).start();
    store.restore(&bytes).unwrap();
    assert!(ready(watch.changed()), "a restore wakes everybody");
    assert_eq!(feed.next().await, Some(FeedItem::Resync));
    for index in 2..2_000 {
        store.apply(index, &command(Change::Noop));
    }
    assert_eq!(feed.next().await, Some(FeedItem::Resync));
    assert!(matches!(feed.next().await, Some(FeedItem::Changes(_))));
    drop(store);
    while let Some(item) = feed.next().await {
        assert!(matches!(item, FeedItem::Changes(_)));
    }
}

#[test]
fn damaged_snapshots_are_refused_with_a_reason() {
    let store = Store::default();
    store.apply(1, &register("n1"));
    let bytes = encode(&store.snapshot());
    assert_eq!(decode(&bytes).unwrap(), *store.snapshot());
    assert!(matches!(decode(b"hello"), Err(SnapshotError::NotASnapshot)));
    assert!(matches!(decode(&bytes[..bytes.len() - 1]), Err(SnapshotError::Length { .. })));
    let mut flipped = bytes.clone();
    *flipped.last_mut().unwrap() ^= 1;
    assert!(matches!(decode(&flipped), Err(SnapshotError::Checksum)));
    let mut later = bytes;
    later[8] = 9;
    let error = decode(&later).unwrap_err().to_string();
    assert_eq!(error, "the snapshot has format version 9, and this program reads version 1 at most");
    assert!(store.restore(b"hello").is_err());
    assert_eq!(store.snapshot().index(), 1, "a refused restore leaves the state alone");
}

#[tokio::test]
async fn indexes_continue_after_those_of_a_restored_snapshot() {
    let old = Store::default();
    for index in 1..=60 {
        old.apply(index, &register("n1"));
    }
    let snapshot = encode(&old.snapshot());
    let new = Store::default();
    assert_eq!(new.apply(1, &register("n2")).index, 1);
    let mut feed = new.subscribe();
    let restored = new.apply(2, &command(Change::Restore { snapshot: snapshot.clone() }));
    assert_eq!((restored.index, new.snapshot().index()), (61, 61));
    assert_eq!(feed.recv().await.unwrap().index, 61);
    assert_eq!(new.apply(3, &register("n4")).index, 62);
    assert_eq!(new.snapshot().node(&"n4".into()).unwrap().modify_index, 62);
    assert_eq!(new.wait_for_index(62).await.index(), 62);

    // Another server receives the state as a snapshot of the log, and the log continues.
    let other = Store::default();
    other.restore(&encode(&new.snapshot())).unwrap();
    assert_eq!(other.apply(4, &register("n3")).index, new.apply(4, &register("n3")).index);
    assert_eq!(*other.snapshot(), *new.snapshot());

    // A snapshot with lower indexes does not change the difference of the indexes.
    let low = new.apply(5, &command(Change::Restore { snapshot }));
    assert_eq!((low.index, new.snapshot().index_of(6)), (64, 65));
}

#[tokio::test]
async fn a_follower_of_a_node_hears_what_the_servers_write_there() {
    let store = Store::default();
    let mut world = World::default();
    world.node(node("n1"));
    world.node(node("n2"));
    let web = job("web", JobType::Service, 2);
    world.register(&web, "e");
    store.replace(world.root.clone());
    let mut work = store.follow_node("n1".into());
    let apply = |change: Change| {
        let index = store.snapshot().index() + 1;
        assert_eq!(store.apply(index, &command(change)).refused, None);
    };
    apply(Change::Plan(Box::new(world.commit("there", &key("web"), "n2", vec![]))));
    apply(Change::Plan(Box::new(world.commit("here", &key("web"), "n1", vec![]))));
    let update =
        |id| Change::AllocUpdates { updates: vec![update(id, ClientStatus::Running)], evals: vec![] };
    // The client has sent this report itself, so it is not notified.
    apply(update("here"));
    assert_eq!(work.next().await, Arrivals::Some(vec!["here".into()]));
    let stop = StopAlloc { alloc_id: "here".into(), ..StopAlloc::default() };
    apply(Change::Plan(Box::new(PlanCommit { stops: vec![stop], ..PlanCommit::default() })));
    assert_eq!(work.next().await, Arrivals::Some(vec!["here".into()]));
    store.replace(world.root.clone());
    assert_eq!(work.next().await, Arrivals::All);
    drop(work);
    assert!(store.nobody_watches());
}
