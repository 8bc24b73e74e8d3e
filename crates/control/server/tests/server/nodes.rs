//! Nodes: their identity, and the detection of missing heartbeats.

use crate::make;
use crate::plugin::Plugin;
use crate::world::{Setup, until};
use caravan_rpc::Code;
use caravan_server::HeartbeatConfig;
use caravan_types::node::{Node, NodeSecret, NodeStatus};
use futures::StreamExt;
use std::time::Duration;

#[tokio::test]
async fn a_node_registers_and_its_stream_begins_with_everything() {
    let cluster = Setup::memory().start().await;
    let client = cluster.connect(make::node("a"), &Plugin::default());
    let contact = client.register().await.unwrap();
    assert_eq!(contact.status, NodeStatus::Ready);
    assert!(!contact.unknown && contact.heartbeat_ttl.0 > 0);
    assert_eq!(contact.servers, ["127.0.0.1:4647"]);
    let first = client.watch().next().await.unwrap().unwrap();
    assert!(first.full && first.allocs.is_empty());
    assert_eq!(client.beat().await.unwrap().status, NodeStatus::Ready);
}

#[tokio::test]
async fn a_registration_without_a_name_is_refused_by_field() {
    let cluster = Setup::memory().start().await;
    for (row, field) in [
        (Node { name: "".into(), ..make::node("a") }, "Name"),
        (Node { datacenter: String::new(), ..make::node("a") }, "Datacenter"),
        (Node { secret_id: NodeSecret::default(), ..make::node("a") }, "SecretID"),
        (Node { id: "".into(), ..make::node("a") }, "ID"),
    ] {
        let error = cluster.connect(row, &Plugin::default()).register().await.unwrap_err();
        assert_eq!(error.code, Code::Invalid);
        assert_eq!(error.to_string(), format!("missing node {field} for client registration"));
    }
}

#[tokio::test]
async fn nobody_speaks_for_a_node_without_its_secret() {
    let cluster = Setup::memory().start().await;
    let _owner = cluster.plain("a").await;
    let thief = Node { secret_id: NodeSecret::new("guessed"), ..make::node("a") };
    let thief = cluster.connect(thief, &Plugin::default());
    assert_eq!(thief.register().await.unwrap_err().code, Code::Permission);
    let refused = thief.beat().await.unwrap_err();
    assert_eq!(refused.code, Code::Permission);
    assert!(!refused.message.contains("guessed") && !refused.message.contains("a-secret"));
    assert_eq!(thief.watch().next().await.unwrap().unwrap_err().code, Code::Permission);
    let alloc = caravan_types::alloc::Allocation::default();
    let claim = crate::world::claim_id(&make::volume_key("v"), &alloc);
    assert_eq!(thief.ask_for(&claim).next().await.unwrap().unwrap_err().code, Code::Permission);
    assert_eq!(cluster.handle.is_node(&"a-node".into(), "guessed"), Some(false));
    assert_eq!(cluster.handle.is_node(&"a-node".into(), "a-secret"), Some(true));
    assert_eq!(cluster.handle.is_node(&"b-node".into(), "a-secret"), None);
}

#[tokio::test]
async fn a_report_that_says_nothing_new_writes_nothing() {
    let cluster = Setup::memory().start().await;
    let mut client = cluster.plain("a").await;
    cluster.quiet().await;
    let before = cluster.root().index();
    client.register().await.unwrap();
    client.beat().await.unwrap();
    assert_eq!(cluster.root().index(), before);
    let mut row = client.row.clone();
    row.meta.insert("rack".into(), "1".into());
    let contact = client.report(row).await;
    assert!(contact.index > before);
}

#[tokio::test]
async fn a_silent_node_is_down_until_it_sends_a_heartbeat() {
    let cluster = Setup::memory().impatient().start().await;
    let client = cluster.plain("a").await;
    let down = cluster.node_status(&client.row.id, NodeStatus::Down).await;
    assert_eq!(down.events.last().unwrap().message, "Node heartbeat missed");
    let contact = client.beat().await.unwrap();
    assert_eq!(contact.status, NodeStatus::Ready);
    let up = cluster.node_status(&client.row.id, NodeStatus::Ready).await;
    assert_eq!(up.events.last().unwrap().message, "Node reregistered by heartbeat");
}

#[tokio::test]
async fn the_servers_say_so_when_they_do_not_know_a_node() {
    let cluster = Setup::memory().start().await;
    let client = cluster.connect(make::node("a"), &Plugin::default());
    assert!(client.beat().await.unwrap().unknown);
}

#[tokio::test]
async fn after_a_restart_the_first_heartbeat_sets_the_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Setup::dir(dir.path()).start().await;
    let row = cluster.plain("a").await.row;
    cluster.stop().await;
    let heartbeat = HeartbeatConfig {
        min_ttl: Duration::from_millis(50),
        grace: Duration::from_millis(50),
        failover: Duration::from_secs(3600),
    };
    let cluster = Setup { heartbeat, ..Setup::dir(dir.path()) }.start().await;
    let client = cluster.connect(row, &Plugin::default());
    client.beat().await.unwrap();
    until("the node down", || {
        cluster.root().node(&client.row.id).filter(|n| n.status == NodeStatus::Down).cloned()
    })
    .await;
    cluster.stop().await;
}
