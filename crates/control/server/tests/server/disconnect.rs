//! Nodes that lose contact while their allocations may return.

use crate::make;
use crate::world::{Cluster, Setup, until};
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::eval::{EvalStatus, Trigger};
use caravan_types::job::DisconnectStrategy;
use caravan_types::node::NodeStatus;
use caravan_types::{AllocId, Nanos};
use std::sync::Arc;

async fn status(cluster: &Cluster, id: &AllocId, status: ClientStatus) -> Arc<Allocation> {
    let what = format!("allocation {id} {}", status.as_str());
    until(&what, || cluster.root().alloc(id).filter(|a| a.client_status == status).cloned()).await
}

fn kept(span: Nanos) -> caravan_types::job::Job {
    let mut job = make::job("web");
    job.task_groups[0].disconnect =
        Some(DisconnectStrategy { lost_after: span, replace: Some(false), ..DisconnectStrategy::default() });
    job
}

#[tokio::test]
async fn a_node_that_comes_back_tells_before_it_is_ready() {
    let cluster = Setup::memory().impatient().start().await;
    let node = cluster.plain("n").await;
    cluster.run_job(kept(Nanos::from_secs(3600))).await;
    let alloc = cluster.placed("web").await;
    node.status(&alloc, ClientStatus::Running).await;
    cluster.node_status(&node.row.id, NodeStatus::Disconnected).await;
    let unknown = status(&cluster, &alloc.id, ClientStatus::Unknown).await;
    assert_eq!(unknown.client_description, "alloc is unknown since its node is disconnected");
    let later = cluster.root().eval(&unknown.followup_eval_id).cloned().unwrap();
    assert_eq!((later.triggered_by, later.status), (Trigger::MaxDisconnectTimeout, EvalStatus::Pending));

    let contact = node.beat().await.unwrap();
    assert_eq!(contact.status, NodeStatus::Initializing);
    let _alive = node.stay_alive();
    // A heartbeat is no report about allocations.
    assert_eq!(node.beat().await.unwrap().status, NodeStatus::Initializing);
    node.status(&alloc, ClientStatus::Running).await;
    cluster.node_status(&node.row.id, NodeStatus::Ready).await;
    let back = status(&cluster, &alloc.id, ClientStatus::Running).await;
    let values: Vec<&str> = back.alloc_states.iter().map(|s| s.value.as_str()).collect();
    assert_eq!(values, ["unknown", "running"]);
    let key = make::job_key("web");
    assert!(cluster.root().evals_by_job(&key).any(|e| e.triggered_by == Trigger::Reconnect));
}

#[tokio::test]
async fn what_stays_away_is_lost_and_its_node_is_down() {
    let cluster = Setup::memory().impatient().start().await;
    let node = cluster.plain("n").await;
    cluster.run_job(kept(Nanos::from_secs(2))).await;
    let alloc = cluster.placed("web").await;
    node.status(&alloc, ClientStatus::Running).await;
    cluster.node_status(&node.row.id, NodeStatus::Disconnected).await;
    let lost = status(&cluster, &alloc.id, ClientStatus::Lost).await;
    let values: Vec<&str> = lost.alloc_states.iter().map(|s| s.value.as_str()).collect();
    assert_eq!(values, ["unknown", "lost"]);
    cluster.node_status(&node.row.id, NodeStatus::Down).await;
    assert_eq!(node.beat().await.unwrap().status, NodeStatus::Ready);
}

#[tokio::test]
async fn a_node_without_such_allocations_is_down_at_once() {
    let cluster = Setup::memory().impatient().start().await;
    let node = cluster.plain("n").await;
    cluster.run_job(make::job("web")).await;
    let alloc = cluster.placed("web").await;
    node.status(&alloc, ClientStatus::Running).await;
    let missed = until("the node to be missed", || {
        cluster.root().node(&node.row.id).filter(|n| n.status != NodeStatus::Ready).cloned()
    })
    .await;
    assert_eq!(missed.status, NodeStatus::Down);
    status(&cluster, &alloc.id, ClientStatus::Lost).await;
}
