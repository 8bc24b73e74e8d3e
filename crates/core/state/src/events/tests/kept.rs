//! The memory of the kept events.

use super::{Store, write};
use crate::events::weight::Weights;
use crate::events::*;

fn alloc(id: &str, job: &Arc<Job>) -> Event {
    let row = Allocation { id: id.into(), job: Some(job.clone()), ..Allocation::default() };
    Event { kind: "PlanResult", row: EventRow::Allocation(Arc::new(row)) }
}

fn large_job() -> Arc<Job> {
    Arc::new(Job { name: "x".repeat(100_000), ..Job::default() })
}

#[test]
fn a_shared_value_counts_once() {
    let mut weights = Weights::default();
    let job = large_job();
    let first = [alloc("a", &job), alloc("b", &job)];
    weights.add(&first);
    let one = weights.total();
    assert!((100_000..120_000).contains(&one), "{one}");
    let second = [alloc("c", &job)];
    weights.add(&second);
    assert!((1..10_000).contains(&(weights.total() - one)), "{}", weights.total());
    weights.remove(&first);
    assert!((100_000..110_000).contains(&weights.total()), "{}", weights.total());
    weights.remove(&second);
    assert_eq!(weights.total(), 0);
}

#[test]
fn each_new_value_counts() {
    let mut weights = Weights::default();
    let mut kept = Vec::new();
    for number in 1..10 {
        // Only the event refers to the job, so it keeps the job's memory.
        kept.push([alloc(&number.to_string(), &large_job())]);
        weights.add(kept.last().unwrap());
        assert!(weights.total() > number * 100_000, "{}", weights.total());
    }
}

#[test]
fn the_log_is_bounded_by_bytes() {
    let limit = 200_000;
    let store = Store::with_events(Root::default(), EventLimit::Bytes(limit));
    let id = "j".repeat(1000);
    for index in 2..2000 {
        write(&store, index, &id);
        let (bytes, indexes) = store.events().kept();
        assert!(bytes <= limit && indexes >= 1, "{bytes} bytes, {indexes} indexes");
    }
    let (bytes, indexes) = store.events().kept();
    assert!(bytes > limit / 2 && indexes > 10, "{bytes} bytes, {indexes} indexes");
    // A command larger than the limit is kept until the next one.
    store.events().limit(EventLimit::Bytes(1));
    assert_eq!(store.events().kept().1, 1);
    write(&store, 2000, &id);
    assert_eq!(store.events().kept().1, 1);
    store.events().limit(EventLimit::Indexes(3));
    for index in 2001..2010 {
        write(&store, index, &id);
    }
    assert_eq!(store.events().kept().1, 3);
}

#[tokio::test]
async fn a_busy_cluster_is_remembered_longer_than_a_hundred_indexes() {
    let store = Store::default();
    let mut reader = store.events().follow(0);
    for index in 2..1002 {
        write(&store, index, "web");
    }
    for index in 2..1002 {
        assert_eq!(reader.next().await.unwrap().index, index);
    }
    // A reader without an index begins at the same position as with a limit of indexes.
    assert_eq!(store.events().follow(0).next().await.unwrap().index, 902);
    assert_eq!(store.events().follow(1).next().await.unwrap().index, 2);
}
