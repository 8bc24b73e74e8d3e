//! CSI plugins as tasks: registration, takeover, deregistration.

use crate::support::{Agent, alloc, helper, kinds, poll, task};
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::job::{CsiPluginConfig, CsiPluginType, JobType};
use caravan_types::node::Node;
use caravan_types::{Nanos, PluginId};
use serde_json::json;

/// Returns an allocation of the bundled plugin.
pub fn plugin(agent: &Agent, id: &str, driver: &str, kind: CsiPluginType) -> Allocation {
    let state = agent.dir.path().join("volumes");
    std::fs::create_dir_all(&state).unwrap();
    let mut args = vec!["plugin".to_owned(), "--node-id".to_owned(), "n1".to_owned()];
    // In a separate root the task sees the allocation's directory, which contains the program. The volumes are in the
    // plugin root, the plugin's default.
    let command = if driver == "raw_exec" {
        args.extend(["--state-dir".to_owned(), state.display().to_string()]);
        helper()
    } else {
        let shared = agent.dir.path().join("alloc").join(id).join("alloc");
        std::fs::create_dir_all(&shared).unwrap();
        std::fs::copy(helper(), shared.join("helper")).unwrap();
        "/alloc/helper".into()
    };
    let mut task = task("plugin", driver, json!({"command": command, "args": args}));
    task.csi_plugin_config = Some(CsiPluginConfig {
        id: "hostpath".into(),
        kind,
        mount_dir: "/csi".into(),
        stage_publish_base_dir: "/local/csi".into(),
        health_timeout: Nanos::from_secs(15),
    });
    alloc(id, JobType::System, vec![task])
}

pub fn healthy(node: &Node) -> bool {
    let id = PluginId::new("hostpath");
    let well = |map: &std::collections::BTreeMap<PluginId, caravan_types::plugin::CsiInfo>| {
        map.get(&id).is_some_and(|i| i.healthy)
    };
    well(&node.csi_node_plugins) && well(&node.csi_controller_plugins)
}

fn served_by(node: &Node, alloc: &str) -> bool {
    healthy(node) && node.csi_node_plugins.values().all(|i| i.alloc_id == *alloc)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_monolith_registers_and_takes_both_registrations_away() {
    let agent = Agent::start();
    agent.servers.run(plugin(&agent, "p1", "raw_exec", CsiPluginType::Monolith));
    let node = agent.servers.node("the plugin is healthy", healthy).await;
    let info = &node.csi_node_plugins[&PluginId::new("hostpath")];
    assert_eq!((info.alloc_id.as_str(), info.node_info.as_ref().unwrap().id.as_str()), ("p1", "n1"));
    let reported =
        agent.servers.task("p1", "healthy event", |t| kinds(t).contains(&"Plugin became healthy")).await;
    assert_eq!(reported.events.last().unwrap().display(), "plugin: hostpath");
    agent.servers.stop("p1");
    agent.servers.status("p1", ClientStatus::Complete).await;
    let gone = |n: &Node| n.csi_node_plugins.is_empty() && n.csi_controller_plugins.is_empty();
    agent.servers.node("both registrations are gone", gone).await;
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_allocations_of_a_plugin_come_and_go_in_every_order() {
    for (first_out, left) in [("p1", "p2"), ("p2", "p1")] {
        let agent = Agent::start();
        agent.servers.run(plugin(&agent, "p1", "raw_exec", CsiPluginType::Monolith));
        agent.servers.node("the first serves", |n| served_by(n, "p1")).await;
        agent.servers.run(plugin(&agent, "p2", "raw_exec", CsiPluginType::Monolith));
        agent.servers.node("the newer serves", |n| served_by(n, "p2")).await;
        agent.servers.stop(first_out);
        agent.servers.status(first_out, ClientStatus::Complete).await;
        agent.servers.node("the one that is left serves", |n| served_by(n, left)).await;
        agent.servers.stop(left);
        agent.servers.status(left, ClientStatus::Complete).await;
        agent.servers.node("none is left", |n| n.csi_node_plugins.is_empty()).await;
        agent.clean().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_agent_knows_its_plugins_at_once() {
    let agent = Agent::start();
    agent.servers.run(plugin(&agent, "p1", "raw_exec", CsiPluginType::Monolith));
    agent.servers.node("the plugin is healthy", healthy).await;
    let agent = agent.restart().await;
    poll("the plugin is healthy again", || healthy(&agent.handle.node())).await;
    let (_, tasks) = agent.handle.status(&"p1".into()).unwrap();
    let events = kinds(&tasks["plugin"]).into_iter().filter(|k| *k == "Plugin became healthy").count();
    assert_eq!(events, 1, "nothing changed for the plugin");
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_never_answers_is_restarted_and_fails() {
    let agent = Agent::start();
    let mut work =
        alloc("p1", JobType::System, vec![crate::support::shell("plugin", "raw_exec", "exec sleep 1000")]);
    let mut job = (*work.job.clone().unwrap()).clone();
    job.task_groups[0].tasks[0].csi_plugin_config = Some(CsiPluginConfig {
        id: "silent".into(),
        kind: CsiPluginType::Node,
        health_timeout: Nanos::from_millis(200),
        ..Default::default()
    });
    work.job = Some(std::sync::Arc::new(job));
    agent.servers.run(work);
    let update = agent.servers.status("p1", ClientStatus::Failed).await;
    let task = &update.task_states["plugin"];
    let words: Vec<_> = task.events.iter().map(caravan_types::alloc::TaskEvent::display).collect();
    assert!(words.iter().any(|w| w.starts_with("Error: CSI plugin failed probe:")), "{words:?}");
    let timeout = "CSI plugin did not become healthy before configured 200ms health timeout";
    assert!(words.iter().any(|w| w == timeout), "{words:?}");
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_crashes_is_started_again_and_serves() {
    let agent = Agent::start();
    agent.servers.run(plugin(&agent, "p1", "raw_exec", CsiPluginType::Monolith));
    agent.servers.node("the plugin is healthy", healthy).await;
    agent.handle.signal(&"p1".into(), Some("plugin"), "SIGKILL").await.unwrap();
    agent.servers.task("p1", "it was started again", |t| t.restarts == 1).await;
    let twice = |t: &caravan_types::alloc::TaskState| {
        kinds(t).into_iter().filter(|k| *k == "Plugin became healthy").count() == 2
    };
    agent.servers.task("p1", "it is healthy again", twice).await;
    agent.servers.node("the node says so", healthy).await;
    agent.clean().await;
}
