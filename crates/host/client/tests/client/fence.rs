//! The lease of the node: tasks that use single-writer volumes end with it, all others continue.

use crate::plugins::{healthy, plugin};
use crate::support::{Agent, alloc, poll, shell};
use crate::volumes::{create, grant, mounts, writer, writes};
use caravan_messages::{ClaimGrant, ClaimReportStep};
use caravan_types::Nanos;
use caravan_types::alloc::{Allocation, ClientStatus, LEASE_EXPIRED, event};
use caravan_types::job::{CsiPluginType, DisconnectStrategy, JobType};
use caravan_types::volume::AccessMode;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const LEASE: Duration = Duration::from_millis(1500);

/// Returns an allocation that writes to a single-writer volume.
fn only_writer(id: &str, driver: &str) -> Allocation {
    let mut alloc = writer(id, driver);
    let mut job = (*alloc.job.clone().unwrap()).clone();
    job.task_groups[0].volumes.get_mut("vol").unwrap().access_mode = AccessMode::SingleNodeWriter;
    alloc.job = Some(Arc::new(job));
    alloc
}

fn fenced(id: &str, volume: &(String, BTreeMap<String, String>)) -> ClaimGrant {
    let mut grant = grant(id, volume);
    grant.claim.access_mode = AccessMode::SingleNodeWriter;
    grant.fenced = true;
    grant
}

/// Starts an agent with short leases, a volume, a plain task, and a single writer of the volume.
async fn world(driver: &str) -> Agent {
    let agent = Agent::start();
    agent.servers.set_lease(LEASE);
    let agent = agent.restart().await;
    agent.servers.run(plugin(&agent, "p1", "raw_exec", CsiPluginType::Monolith));
    agent.servers.node("the plugin is healthy", healthy).await;
    let volume = create(&agent, "data").await;
    agent.servers.run(alloc("plain", JobType::Service, vec![shell("t", "raw_exec", "sleep 1000")]));
    agent.servers.status("plain", ClientStatus::Running).await;
    agent.servers.grant(fenced("w1", &volume));
    agent.servers.run(only_writer("w1", driver));
    agent.servers.status("w1", ClientStatus::Running).await;
    writes(&agent, "w1").await;
    agent
}

fn shims(agent: &Agent, alloc: &str) -> bool {
    agent.dir.path().join("client/tasks").join(alloc).join("writer/control.sock").exists()
}

/// Checks that the allocation ended as a fenced one, and that no other allocation ended.
async fn fenced_off(agent: &Agent) {
    let over = agent.servers.status("w1", ClientStatus::Failed).await;
    assert_eq!(over.client_description, LEASE_EXPIRED);
    let task = &over.task_states["writer"];
    assert!(task.failed && task.restarts == 0, "{task:?}");
    let reported = task.events.iter().find(|e| e.kind == event::LEASE_EXPIRED);
    assert!(reported.is_some_and(|e| e.display().contains("out of contact")), "{task:?}");
    agent.servers.reported("w1", |s| *s == ClaimReportStep::Unstaged).await;
    poll("nothing is mounted", || mounts(agent, "per-alloc") + mounts(agent, "staging") == 0).await;
    let plain = agent.servers.status("plain", ClientStatus::Running).await;
    assert_eq!(plain.task_states["t"].restarts, 0);
}

async fn cut_off(driver: &str) {
    let agent = world(driver).await;
    agent.servers.set_down(true);
    poll("the writer is ended without the servers", || !shims(&agent, "w1")).await;
    poll("and its volume let go", || mounts(&agent, "per-alloc") == 0).await;
    agent.servers.set_down(false);
    fenced_off(&agent).await;
    agent.clean().await;
}

#[tokio::test]
async fn a_writer_ends_without_contact_to_the_servers_raw_exec() {
    cut_off("raw_exec").await;
}

#[tokio::test]
async fn a_writer_ends_without_contact_to_the_servers_exec() {
    cut_off("exec").await;
}

#[tokio::test]
async fn a_writer_ends_with_the_lease_when_no_agent_is_there() {
    let agent = world("raw_exec").await;
    let dir = Arc::clone(&agent.dir);
    let socket = dir.path().join("client/tasks/w1/writer/control.sock");
    let (servers, dir) = agent.end().await;
    poll("the writer is ended without an agent", || !socket.exists()).await;
    let agent = Agent::resume(servers, dir);
    fenced_off(&agent).await;
    agent.clean().await;
}

#[tokio::test]
async fn an_agent_that_comes_back_in_time_keeps_the_writer() {
    let agent = Agent::start();
    agent.servers.set_lease(Duration::from_secs(20));
    let agent = agent.restart().await;
    agent.servers.run(plugin(&agent, "p1", "raw_exec", CsiPluginType::Monolith));
    agent.servers.node("the plugin is healthy", healthy).await;
    let volume = create(&agent, "data").await;
    agent.servers.grant(fenced("w1", &volume));
    agent.servers.run(only_writer("w1", "raw_exec"));
    let before = agent.servers.status("w1", ClientStatus::Running).await;
    let agent = agent.restart().await;
    agent.servers.node("the plugin is healthy", healthy).await;
    writes(&agent, "w1").await;
    let after = agent.servers.status("w1", ClientStatus::Running).await;
    assert_eq!(before.task_states["writer"].started_at, after.task_states["writer"].started_at);
    assert_eq!(after.task_states["writer"].restarts, 0);
    agent.clean().await;
}

#[tokio::test]
async fn a_group_stops_by_itself_after_the_silence_that_its_job_allows() {
    let agent = Agent::start();
    let mut quiet = alloc("quiet", JobType::Service, vec![shell("t", "raw_exec", "sleep 1000")]);
    let mut job = (*quiet.job.clone().unwrap()).clone();
    job.task_groups[0].disconnect = Some(DisconnectStrategy {
        stop_on_client_after: Some(Nanos::from_secs(1)),
        ..DisconnectStrategy::default()
    });
    quiet.job = Some(Arc::new(job));
    agent.servers.set_lease(LEASE);
    let agent = agent.restart().await;
    agent.servers.run(quiet);
    agent.servers.status("quiet", ClientStatus::Running).await;
    agent.servers.set_down(true);
    let socket = agent.dir.path().join("client/tasks/quiet/t/control.sock");
    poll("the task is stopped without the servers", || !socket.exists()).await;
    agent.servers.set_down(false);
    let over = agent.servers.status("quiet", ClientStatus::Complete).await;
    let events = &over.task_states["t"].events;
    assert!(events.iter().any(|e| e.display().contains("no contact with the servers for 1s")), "{events:?}");
    agent.clean().await;
}
