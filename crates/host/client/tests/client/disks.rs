//! Data that an allocation takes over from its predecessor.

use crate::support::{Agent, alloc, shell};
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::job::{EphemeralDisk, JobType};
use std::sync::Arc;

const WRITES: &str =
    "echo mine > $NOMAD_TASK_DIR/own; echo all > $NOMAD_ALLOC_DIR/data/shared; exec sleep 1000";
const READS: &str = "test $(cat $NOMAD_TASK_DIR/own) = mine && test $(cat $NOMAD_ALLOC_DIR/data/shared) = all && exec sleep 1000";

fn with_disk(id: &str, script: &str, sticky: bool, migrate: bool) -> Allocation {
    let mut alloc = alloc(id, JobType::Service, vec![shell("web", "raw_exec", script)]);
    let job = Arc::make_mut(alloc.job.as_mut().unwrap());
    job.task_groups[0].ephemeral_disk = Some(EphemeralDisk { sticky, migrate, size_mb: 300 });
    alloc
}

fn after(previous: &str, alloc: Allocation) -> Allocation {
    Allocation { previous_allocation: previous.into(), ..alloc }
}

/// Runs the first allocation until it has written.
async fn written(agent: &Agent, first: Allocation) {
    let id = first.id.clone();
    agent.servers.run(first);
    agent.servers.status(id.as_str(), ClientStatus::Running).await;
    let shared = agent.handle.alloc_dir(&id).unwrap().join("alloc/data/shared");
    crate::support::poll("it has written", || shared.metadata().is_ok_and(|file| file.len() > 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sticky_disk_goes_to_the_successor_on_the_node() {
    let agent = Agent::start();
    written(&agent, with_disk("a1", WRITES, true, false)).await;
    agent.servers.stop("a1");
    agent.servers.run(after("a1", with_disk("a2", READS, true, false)));
    agent.servers.status("a2", ClientStatus::Running).await;
    let of = |id: &str| agent.handle.alloc_dir(&id.into()).unwrap();
    assert!(of("a2").join("web/local/own").exists() && !of("a1").join("web/local/own").exists());
    // Without a sticky disk the next allocation starts with an empty one.
    agent.servers.stop("a2");
    agent.servers.run(after("a2", with_disk("a3", "exec sleep 1000", false, false)));
    agent.servers.status("a3", ClientStatus::Running).await;
    assert!(!of("a3").join("web/local/own").exists());
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_migrates_follows_to_another_node() {
    let (old, new) = (Agent::start(), Agent::start());
    written(&old, with_disk("a1", WRITES, true, true)).await;
    new.servers.set_neighbour(&old.handle);
    old.servers.stop("a1");
    old.servers.status("a1", ClientStatus::Complete).await;
    new.servers.run(after("a1", with_disk("a2", READS, true, true)));
    new.servers.status("a2", ClientStatus::Running).await;
    let moved = new.handle.alloc_dir(&"a2".into()).unwrap();
    assert!(moved.join("web/local/own").exists() && !moved.join(".disk").exists());
    // A restarted agent does not fetch existing data again.
    std::fs::write(moved.join("web/local/own"), "newer").unwrap();
    let new = new.restart().await;
    assert_eq!(std::fs::read_to_string(moved.join("web/local/own")).unwrap(), "newer");
    old.clean().await;
    new.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_cannot_be_moved_is_replaced_and_reported() {
    let agent = Agent::start();
    agent.servers.run(after("a1", with_disk("a2", "exec sleep 1000", true, true)));
    let update = agent.servers.status("a2", ClientStatus::Running).await;
    let words: Vec<String> = update.task_states["web"].events.iter().map(|event| event.display()).collect();
    assert!(words.iter().any(|text| text.contains("could not be taken over: the node is gone")), "{words:?}");
    agent.clean().await;
}
