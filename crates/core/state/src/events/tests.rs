//! The events of each change, and their subscribers.

mod coalesced;
mod kept;

use super::*;
use crate::Store;
use caravan_types::UnixNanos;
use caravan_types::admin::AdminChange;
use caravan_types::command::{Change, Command};

fn write(store: &Store, index: u64, id: &str) {
    let job = Job {
        id: id.into(),
        // A registration that changes nothing writes no job.
        name: index.to_string(),
        namespace: "default".into(),
        node_pool: "default".into(),
        ..Default::default()
    };
    let change = Change::JobRegister {
        job: Box::new(job),
        expect_modify_index: None,
        eval: Some(Evaluation {
            id: format!("e{index}").into(),
            namespace: "default".into(),
            job_id: id.into(),
            ..Default::default()
        }),
        source: None,
    };
    let outcome = store.apply(index, &Command { now: UnixNanos(1), change });
    assert_eq!(outcome.refused, None);
}

#[tokio::test]
async fn registration_events_have_the_name_of_the_command() {
    let store = Store::default();
    write(&store, 5, "web");
    let batch = store.events().follow(0).next().await.unwrap();
    assert_eq!(batch.index, 5);
    let reported: Vec<_> = batch.events.iter().map(|e| (e.row.topic(), e.kind, e.row.key())).collect();
    assert!(reported.contains(&("Job", "JobRegistered", "web".into())), "{reported:?}");
    assert!(reported.contains(&("Evaluation", "JobRegistered", "e5".into())), "{reported:?}");
    let eval = batch.events.iter().find(|e| e.row.topic() == "Evaluation").unwrap();
    assert_eq!(eval.row.filter_keys(), Some(vec!["web".to_owned(), String::new()]));
    assert_eq!(eval.row.namespace(), "default");
}

#[tokio::test]
async fn changes_of_operator_tables_are_events() {
    let store = Store::default();
    let reported = async |index: u64| {
        let batch = store.events().follow(index).next().await.unwrap();
        let event = &batch.events[0];
        (event.row.topic(), event.kind, event.row.key(), event.row.filter_keys())
    };
    let write = |index: u64, change: AdminChange| {
        let outcome = store.apply(index, &Command { now: UnixNanos(1), change: Change::Admin(change) });
        assert_eq!(outcome.refused, None);
    };
    let pool = NodePool { name: "gpu".into(), ..NodePool::default() };
    write(5, AdminChange::NodePoolWrite(Box::new(pool)));
    assert_eq!(reported(5).await, ("NodePool", "NodePoolUpserted", "gpu".into(), None));
    write(6, AdminChange::NodePoolDelete { name: "gpu".into(), region: "global".into() });
    assert_eq!(reported(6).await, ("NodePool", "NodePoolDeleted", "gpu".into(), None));
    write(
        8,
        AdminChange::NamespaceWrite(Box::new(NamespaceSpec { name: "team".into(), ..Default::default() })),
    );
    assert_eq!(reported(8).await, ("Namespace", "NamespaceUpserted", "team".into(), None));
    write(9, AdminChange::NamespaceDelete { name: "team".into(), region: "global".into() });
    assert_eq!(reported(9).await, ("Namespace", "NamespaceDeleted", "team".into(), None));
    let role = Role { id: "r1".into(), name: "ops".into(), ..Role::default() };
    write(10, AdminChange::RoleWrite(Box::new(role)));
    assert_eq!(reported(10).await, ("ACLRole", "ACLRoleUpserted", "r1".into(), Some(vec!["ops".into()])));
}

fn node(store: &Store, index: u64) {
    // A report with nothing new changes nothing.
    let node = Node {
        id: "n1".into(),
        name: format!("n1-{index}").into(),
        status: NodeStatus::Ready,
        ..Node::default()
    };
    let change = Change::NodeRegister { node: Box::new(node), evals: Vec::new() };
    assert_eq!(store.apply(index, &Command { now: UnixNanos(1), change }).refused, None);
}

fn kinds(events: &[Event]) -> Vec<(&'static str, &'static str)> {
    events.iter().map(|event| (event.row.topic(), event.kind)).collect()
}

#[tokio::test]
async fn a_node_event_appears_when_its_status_becomes_ready() {
    let store = Store::default();
    node(&store, 5);
    node(&store, 6);
    let mut reader = store.events().follow(5);
    let batch = reader.next().await.unwrap();
    assert_eq!(kinds(&batch.events), [("Node", "NodeRegistration"), ("Node", "NodeStreamEvent")]);
    assert_eq!(kinds(&reader.next().await.unwrap().events), [("Node", "NodeRegistration")]);
}

#[test]
fn a_node_appears_once_when_its_allocations_are_updated() {
    let store = Store::default();
    node(&store, 5);
    let alloc =
        |id: &str| Arc::new(Allocation { id: id.into(), node_id: "n1".into(), ..Allocation::default() });
    let mut out: Vec<Event> = ["a", "b"]
        .map(|id| Event { kind: "AllocationUpdated", row: EventRow::Allocation(alloc(id)) })
        .into_iter()
        .collect();
    let root = store.snapshot();
    out.extend(
        root.node(&"n1".into())
            .map(|row| Event { kind: "AllocationUpdated", row: EventRow::Node(row.clone()) }),
    );
    reports(9, &root, &mut out);
    let updated = "AllocationUpdated";
    assert_eq!(kinds(&out), [("Allocation", updated), ("Allocation", updated), ("Node", updated)]);
    assert!(matches!(&out[2].row, EventRow::NodeReport { index: 9, .. }));
}

#[tokio::test]
async fn readers_begin_where_they_ask_and_hear_of_what_comes() {
    let store = Arc::new(Store::default());
    for index in 2..6 {
        write(&store, index, "web");
    }
    let mut from_four = store.events().follow(4);
    assert_eq!(from_four.next().await.unwrap().index, 4);
    assert_eq!(from_four.next().await.unwrap().index, 5);
    let mut later = store.events().follow(100);
    let (received, ()) = tokio::join!(later.next(), async { write(&store, 9, "web") });
    assert_eq!(received.map(|batch| batch.index), Ok(9));
}

#[tokio::test]
async fn a_slow_reader_is_reported() {
    let store = Store::with_events(Root::default(), EventLimit::Indexes(2));
    write(&store, 2, "a");
    let mut slow = store.events().follow(0);
    for index in 3..6 {
        write(&store, index, "a");
    }
    assert_eq!(slow.next().await.unwrap_err(), EventsMissed::Behind);
    let mut current = store.events().follow(0);
    assert_eq!(current.next().await.unwrap().index, 4);
    store.replace(Root::default());
    assert_eq!(current.next().await.unwrap_err(), EventsMissed::Replaced);
}
