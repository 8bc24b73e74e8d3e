//! Plugin rows, derived from nodes and jobs.

use super::build::{World, info, job, key, node, plugin_job, plugin_node, shared};
use crate::Table;
use crate::events::{EventRow, events};
use caravan_types::alloc::ClientStatus;
use caravan_types::command::{Change, Command};
use caravan_types::eval::EvalStatus;
use caravan_types::job::{CsiPluginType, JobType, TaskGroup};
use caravan_types::node::NodeStatus;
use caravan_types::plugin::{CsiInfo, Plugin};
use caravan_types::{NodeId, Time, UnixNanos};
use std::collections::BTreeMap;
use std::sync::Arc;

fn row(world: &World) -> &Plugin {
    shared(world.root.plugin(&"p".into()))
}

fn status(node: &str, status: NodeStatus) -> Change {
    Change::NodeStatus { node: node.into(), status, event: None, evals: vec![] }
}

#[test]
fn health_follows_reports_and_the_nodes_themselves() {
    let mut world = World::default();
    world.node(plugin_node("n1", "p", true));
    world.node(plugin_node("n2", "p", false));
    let plugin = row(&world);
    assert_eq!((plugin.nodes_healthy, plugin.controllers_healthy, plugin.nodes.len()), (1, 1, 2));
    assert!(plugin.controller_required);
    assert_eq!((plugin.provider.as_str(), plugin.version.as_str()), ("org.example.csi", "1.0"));
    world.apply(status("n1", NodeStatus::Disconnected));
    assert_eq!((row(&world).nodes_healthy, row(&world).nodes.len()), (0, 2));
    world.apply(status("n1", NodeStatus::Down));
    assert_eq!(row(&world).nodes.len(), 1);
    world.apply(status("n1", NodeStatus::Ready));
    assert_eq!(row(&world).nodes_healthy, 1);
    for id in ["n1", "n2"] {
        world.apply(Change::NodeDelete { node: id.into(), evals: vec![] });
    }
    assert!(world.root.plugin(&"p".into()).is_none());
}

/// The cost of a report must not grow with the number of nodes.
#[test]
fn a_report_leaves_those_of_other_nodes_as_they_are() {
    let mut world = World::default();
    for id in ["n1", "n2", "n3"] {
        world.node(plugin_node(id, "p", true));
    }
    let (before, old) = (world.root.clone(), row(&world).clone());
    let node = Box::new(plugin_node("n2", "p", false));
    let command = Command { now: UnixNanos(9), change: Change::NodeRegister { node, evals: vec![] } };
    let (after, _, changes, allocs) = before.apply_with_rows(before.index() + 1, &command);
    let new = shared(after.plugin(&"p".into())).clone();
    for (old, new) in [(&old.nodes, &new.nodes), (&old.controllers, &new.controllers)] {
        let kept = |id: &str| Arc::ptr_eq(&old[&NodeId::from(id)], &new[&NodeId::from(id)]);
        assert_eq!(["n1", "n2", "n3"].map(kept), [true, false, true]);
    }
    assert_eq!((new.nodes_healthy, new.controllers_healthy), (2, 2));
    let events = events(&changes, &before, &Arc::new(after), &allocs);
    let written = events.iter().find_map(|event| match event.row {
        EventRow::CsiPlugin { written, .. } => Some(written),
        _ => None,
    });
    assert_eq!(written, Some(2), "the controller and the node service of one node");
}

#[test]
fn a_report_is_written_only_when_it_says_something_new() {
    let mut world = World::default();
    world.node(plugin_node("n1", "p", true));
    let at = world.root.table_index(Table::Plugins);
    let mut again = plugin_node("n1", "p", true);
    again.csi_node_plugins.values_mut().for_each(|info| info.update_time = Time(5));
    world.node(again);
    world.node(node("n2"));
    world.register(&job("web", JobType::Service, 1), "e1");
    assert_eq!(world.root.table_index(Table::Plugins), at);
}

#[test]
fn a_node_service_alone_tells_that_a_controller_is_needed() {
    let mut world = World::default();
    let mut only = plugin_node("n1", "p", true);
    only.csi_controller_plugins = BTreeMap::new();
    world.node(only);
    assert!(row(&world).controller_required);
    assert_eq!(row(&world).attaches(), None);
}

#[test]
fn a_plugin_that_did_not_answer_yet_has_no_known_capabilities() {
    let mut world = World::default();
    let mute = CsiInfo { provider: String::new(), ..info("p", false) };
    let mut starting = node("n1");
    starting.csi_node_plugins = BTreeMap::from([("p".into(), mute)]);
    world.node(starting);
    assert!(world.root.plugin(&"p".into()).is_none());
}

#[test]
fn groups_of_one_job_add_up() {
    let mut world = World::default();
    let mut two = plugin_job("ctl", JobType::Service, 2, "p", CsiPluginType::Controller);
    let second = TaskGroup { name: "h".into(), count: 3, ..two.task_groups[0].clone() };
    two.task_groups.push(second);
    world.register(&two, "e1");
    assert_eq!((row(&world).controllers_expected, row(&world).nodes_expected), (5, 0));
    assert_eq!(row(&world).controller_jobs["default"]["ctl"].expected, 5);
    world.apply(Change::JobDeregister { key: key("ctl"), purge: false, eval: None });
    assert!(world.root.plugin(&"p".into()).is_none());
}

#[test]
fn a_system_job_expects_what_runs_and_what_is_queued() {
    let mut world = World::default();
    for id in ["n1", "n2"] {
        world.node(node(id));
    }
    let mut elsewhere = node("n3");
    elsewhere.datacenter = "west".into();
    world.node(elsewhere);
    world.register(&plugin_job("sys", JobType::System, 1, "p", CsiPluginType::Monolith), "e1");
    assert_eq!((row(&world).nodes_expected, row(&world).controllers_expected), (2, 2), "no decision yet");
    world.place("a1", &key("sys"), "n1");
    assert_eq!(row(&world).nodes_expected, 2);
    world.end_eval("e1", EvalStatus::Complete, &[]);
    assert_eq!(row(&world).nodes_expected, 1, "the scheduler found one node to be enough");
    // A changed specification does not make the count drop meanwhile.
    let mut changed = plugin_job("sys", JobType::System, 1, "p", CsiPluginType::Monolith);
    changed.priority = 60;
    world.register(&changed, "e2");
    assert_eq!(row(&world).nodes_expected, 1);
    world.report("a1", ClientStatus::Failed);
    assert!(world.root.plugin(&"p".into()).is_none());
}

#[test]
fn a_plugin_that_nothing_runs_and_nothing_expects_goes_with_its_last_allocation() {
    let mut world = World::default();
    world.node(node("n1"));
    world.register(&plugin_job("sys", JobType::System, 1, "p", CsiPluginType::Monolith), "e1");
    world.place("a1", &key("sys"), "n1");
    world.report("a1", ClientStatus::Running);
    let report = |healthy| {
        let mut node = plugin_node("n1", "p", healthy);
        let infos = node.csi_node_plugins.values_mut().chain(node.csi_controller_plugins.values_mut());
        infos.for_each(|info| info.alloc_id = "a1".into());
        node
    };
    world.node(report(true));
    world.apply(Change::JobDeregister { key: key("sys"), purge: false, eval: None });
    world.node(report(false));
    assert_eq!((row(&world).nodes.len(), row(&world).nodes_healthy), (1, 0), "it still ends");
    world.report("a1", ClientStatus::Complete);
    assert!(world.root.plugin(&"p".into()).is_none());
}
