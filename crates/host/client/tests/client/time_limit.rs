//! Run time limits end allocations, also across restarts of the agent.

use crate::support::{Agent, alloc, kinds, poll, shell};
use caravan_types::Nanos;
use caravan_types::alloc::{Allocation, ClientStatus, TIMED_OUT};
use caravan_types::job::{JobType, Lifecycle, Task};
use std::sync::Arc;

fn limited(tasks: Vec<Task>, limit: Nanos) -> Allocation {
    let mut work = alloc("a1", JobType::Batch, tasks);
    set_limit(&mut work, limit);
    work
}

fn set_limit(work: &mut Allocation, limit: Nanos) {
    let mut job = (*work.job.clone().unwrap()).clone();
    job.task_groups[0].max_run_duration = Some(limit);
    work.job = Some(Arc::new(job));
}

fn cleaner() -> Task {
    let mut clean = shell("clean", "raw_exec", "echo clean > $NOMAD_ALLOC_DIR/data/clean");
    clean.lifecycle = Some(Lifecycle { hook: "poststop".into(), sidecar: false });
    clean
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_ran_so_long_is_ended_and_counts_as_complete() {
    let agent = Agent::start();
    let tasks = vec![shell("work", "raw_exec", "exec sleep 1000"), cleaner()];
    agent.servers.run(limited(tasks, Nanos::from_millis(300)));
    let over = agent.servers.status("a1", ClientStatus::Complete).await;
    assert_eq!(over.client_description, TIMED_OUT);
    let work = &over.task_states["work"];
    assert!(!work.failed, "{work:?}");
    let killing = work.events.iter().find(|e| e.kind == "Killing").unwrap();
    assert_eq!(killing.display(), TIMED_OUT);
    // Poststop tasks do not run.
    assert_eq!(kinds(&over.task_states["clean"]), ["Received"]);
    assert!(agent.handle.fs(&"a1".into()).unwrap().read_at("alloc/data/clean", 0, None).is_err());
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_in_time_is_as_ever_and_the_limit_may_change_meanwhile() {
    let agent = Agent::start();
    let script = "while [ ! -e $NOMAD_TASK_DIR/go ]; do sleep 0.01; done";
    let hour = Nanos::from_secs(3600);
    agent.servers.run(limited(vec![shell("work", "raw_exec", script), cleaner()], hour));
    agent.servers.status("a1", ClientStatus::Running).await;
    let dir = agent.handle.alloc_dir(&"a1".into()).unwrap();
    std::fs::write(dir.join("work/local/go"), "").unwrap();
    let over = agent.servers.status("a1", ClientStatus::Complete).await;
    assert_eq!(over.client_description, "All tasks have completed");
    assert!(kinds(&over.task_states["clean"]).contains(&"Started"));

    let mut next = limited(vec![shell("work", "raw_exec", "exec sleep 1000")], hour);
    next.id = "a2".into();
    agent.servers.run(next.clone());
    agent.servers.status("a2", ClientStatus::Running).await;
    set_limit(&mut next, Nanos::from_millis(1));
    agent.servers.run(next);
    let over = agent.servers.status("a2", ClientStatus::Complete).await;
    assert_eq!(over.client_description, TIMED_OUT);
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn time_goes_on_while_the_agent_is_away() {
    let agent = Agent::start();
    let limit = Nanos::from_secs(2);
    agent.servers.run(limited(vec![shell("work", "raw_exec", "exec sleep 1000"), cleaner()], limit));
    let running = agent.servers.status("a1", ClientStatus::Running).await;
    let received = running.task_states["work"].events[0].time;
    let (servers, dir) = agent.end().await;
    let over = move || caravan_sys::time::wall_nanos() > received.0 + limit.0;
    poll("its time is over", over).await;
    let agent = Agent::resume(servers, dir);
    let over = agent.servers.status("a1", ClientStatus::Complete).await;
    assert_eq!(over.client_description, TIMED_OUT);
    assert_eq!(kinds(&over.task_states["clean"]), ["Received"]);
    agent.clean().await;
}
