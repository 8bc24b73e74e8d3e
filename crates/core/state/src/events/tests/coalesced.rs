//! Readers of the newest row of each object.

use super::{Store, write};
use crate::events::*;
use caravan_types::node::Node;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A change of a job in a random history: its number, and its value afterwards.
#[derive(Clone, Debug)]
struct Step {
    object: u8,
    value: Option<u32>,
}

fn step() -> impl Strategy<Value = Step> {
    (0..6_u8, prop::option::of(any::<u32>())).prop_map(|(object, value)| Step { object, value })
}

fn event(step: &Step) -> Event {
    let job = Job {
        id: format!("job-{}", step.object).as_str().into(),
        namespace: if step.object.is_multiple_of(2) { "default".into() } else { "team".into() },
        create_index: step.value.map_or(0, u64::from),
        ..Job::default()
    };
    let deleted = step.value.is_none();
    let kind = if deleted { "JobDeregistered" } else { "JobRegistered" };
    Event { kind, row: EventRow::Job { row: Arc::new(job), deleted } }
}

/// The state of a reader that applies the events: the value of each job, or `None` after a delete.
type Replayed = BTreeMap<(String, String), Option<u64>>;

fn replay(state: &mut Replayed, events: &[Event]) {
    for event in events {
        let EventRow::Job { row, deleted } = &event.row else { continue };
        let value = (!deleted).then_some(row.create_index);
        state.insert((row.namespace.to_string(), row.id.to_string()), value);
    }
}

proptest! {
    /// The coalesced events lead to the state of all events for every pace of the reader.
    #[test]
    fn coalesced_events_lead_to_the_same_state(
        history in prop::collection::vec((prop::collection::vec(step(), 1..4), any::<bool>()), 0..40),
    ) {
        let (mut all, mut coalesced) = (Replayed::new(), Replayed::new());
        let mut pending = Pending::default();
        let mut newest = 0;
        let mut flush = |pending: &mut Pending| {
            let mut seen = std::collections::HashSet::new();
            for batch in pending.take() {
                assert!(batch.index > newest, "indexes grow: {} after {newest}", batch.index);
                newest = batch.index;
                for event in &batch.events {
                    assert!(seen.insert(event.row.object()), "one event for each object: {event:?}");
                }
                replay(&mut coalesced, &batch.events);
            }
            assert!(pending.is_empty());
        };
        for (index, (steps, flushes)) in (1..).zip(&history) {
            let events: Vec<Event> = steps.iter().map(event).collect();
            replay(&mut all, &events);
            events.iter().for_each(|event| pending.add(index, event));
            prop_assert!(pending.len() <= 6, "one for each object");
            if *flushes {
                flush(&mut pending);
            }
        }
        flush(&mut pending);
        prop_assert_eq!(all, coalesced);
    }

    /// A reader of any pace receives each object through the log, which drops batches before the reader receives
    /// them.
    #[test]
    fn a_reader_of_any_pace_receives_each_object(
        writes in prop::collection::vec((0..5_u8, any::<bool>()), 1..60),
        remembered in 1..6_usize,
    ) {
        let store = Store::with_events(Root::default(), EventLimit::Indexes(remembered));
        let mut reader = store.events().follow_coalesced(0, |event| event.row.topic() == "Job");
        let mut expected = BTreeMap::new();
        let mut received = BTreeMap::new();
        for (index, (job, takes)) in (2..).zip(&writes) {
            let id = format!("job-{job}");
            write(&store, index, &id);
            expected.insert(id, index);
            if *takes {
                collect(&mut reader, &mut received);
            }
        }
        collect(&mut reader, &mut received);
        prop_assert_eq!(received, expected);
    }
}

fn collect(reader: &mut CoalescedReader, received: &mut BTreeMap<String, u64>) {
    let batches = reader.take().unwrap();
    assert!(batches.iter().map(|batch| batch.events.len()).sum::<usize>() <= 5, "one for each object");
    for batch in batches {
        for event in batch.events {
            let before = received.insert(event.row.key(), batch.index);
            assert!(before < Some(batch.index), "indexes grow: {before:?}, {}", batch.index);
        }
    }
}

#[tokio::test]
async fn a_slow_reader_of_the_newest_rows_loses_nothing() {
    let store = Arc::new(Store::with_events(Root::default(), EventLimit::Indexes(2)));
    let mut reader = store.events().follow_coalesced(0, |event| event.row.topic() == "Job");
    write(&store, 2, "once");
    for index in 3..500 {
        write(&store, index, "busy");
    }
    reader.changed().await;
    let batches = reader.take().unwrap();
    let found: Vec<_> = batches.iter().map(|batch| (batch.index, batch.events[0].row.key())).collect();
    assert_eq!(found, [(2, "once".to_owned()), (499, "busy".to_owned())]);
    // The reader receives nothing new, then one more event.
    assert!(reader.take().unwrap().is_empty());
    let ((), ()) = tokio::join!(reader.changed(), async { write(&store, 500, "busy") });
    assert_eq!(reader.take().unwrap().len(), 1);
    // The events of the replaced state are dropped, and the reader must read everything again.
    store.replace(Root::default());
    reader.changed().await;
    assert_eq!(reader.take().unwrap_err(), EventsMissed::Replaced);
}

#[test]
fn a_reader_that_ended_is_removed() {
    let store = Store::with_events(Root::default(), EventLimit::Indexes(1));
    let seen = Arc::new(());
    let kept = seen.clone();
    let reader = store.events().follow_coalesced(0, move |_| Arc::strong_count(&kept) > 0);
    write(&store, 2, "a");
    write(&store, 3, "b");
    drop(reader);
    write(&store, 4, "c");
    assert_eq!(Arc::strong_count(&seen), 1, "the log keeps nothing of the reader");
}

#[test]
fn large_batches_are_cut() {
    let mut pending = Pending::default();
    for number in 0..600 {
        let row = Arc::new(Node { id: format!("n{number}").as_str().into(), ..Node::default() });
        pending.add(7, &Event { kind: "NodeDrain", row: EventRow::Node(row) });
    }
    let lengths: Vec<_> = pending.take().iter().map(|batch| (batch.index, batch.events.len())).collect();
    assert_eq!(lengths, [(7, 256), (7, 256), (7, 88)]);
}
