//! Allocations and nodes.

use super::build::{World, job, key, node, shared};
use crate::Table;
use caravan_types::alloc::{ClientStatus, DesiredStatus, DesiredTransition};
use caravan_types::command::{Change, DrainEnd, Refusal};
use caravan_types::job::JobType;
use caravan_types::node::{DrainStrategy, Eligibility, NodeStatus};
use std::collections::BTreeMap;
use std::sync::Arc;

fn world() -> World {
    let mut world = World::default();
    world.node(node("n1"));
    world.register(&job("web", JobType::Service, 1), "e1");
    world
}

#[test]
fn a_placement_gets_its_job_and_its_predecessor_a_link() {
    let mut world = world();
    let first = world.place("a1", &key("web"), "n1");
    let row = shared(world.root.alloc(&"a1".into()));
    assert_eq!((row.create_index, row.alloc_modify_index), (first, first));
    assert_eq!(row.job.as_ref().unwrap().id, "web");

    let mut commit = world.commit("a2", &key("web"), "n1", vec![]);
    commit.placements[0].previous_allocation = "a1".into();
    // On its way through the log, the job was decoded into a separate value.
    commit.job = commit.job.map(|job| Arc::new((*job).clone()));
    let second = world.apply(Change::Plan(Box::new(commit)));
    let old = shared(world.root.alloc(&"a1".into()));
    assert_eq!(old.next_allocation, "a2");
    assert_eq!((old.modify_index, old.alloc_modify_index), (second, first), "its client is not told");
    let placed = shared(world.root.alloc(&"a2".into())).job.as_ref().unwrap();
    assert!(Arc::ptr_eq(placed, world.root.job_version(&key("web"), 0).unwrap()), "one job in memory");
}

#[test]
fn an_update_in_place_keeps_the_client_status() {
    let mut world = world();
    world.place("a1", &key("web"), "n1");
    world.report("a1", ClientStatus::Running);
    world.register(&job("web", JobType::Service, 2), "e2");
    world.place("a1", &key("web"), "n1");
    let row = shared(world.root.alloc(&"a1".into()));
    assert_eq!(row.client_status, ClientStatus::Running);
    assert_eq!(row.task_states.len(), 1);
    assert_eq!(row.job.as_ref().unwrap().version, 1);
}

#[test]
fn reports_that_say_nothing_new_write_nothing() {
    let mut world = world();
    world.place("a1", &key("web"), "n1");
    let first = world.report("a1", ClientStatus::Running);
    world.report("a1", ClientStatus::Running);
    world.report("unknown", ClientStatus::Running);
    assert_eq!(world.root.table_index(Table::Allocs), first);
    let row = shared(world.root.alloc(&"a1".into()));
    assert!(row.alloc_modify_index < first, "a client's own words do not wake it");
}

#[test]
fn an_end_is_final_but_a_lost_one_may_still_tell_how_it_ended() {
    let mut world = world();
    world.place("a1", &key("web"), "n1");
    world.report("a1", ClientStatus::Failed);
    world.report("a1", ClientStatus::Running);
    assert_eq!(shared(world.root.alloc(&"a1".into())).client_status, ClientStatus::Failed);

    world.place("a2", &key("web"), "n1");
    world.stop("a2", Some(ClientStatus::Lost));
    let row = shared(world.root.alloc(&"a2".into()));
    assert_eq!((row.desired_status, row.client_status), (DesiredStatus::Stop, ClientStatus::Lost));
    assert_eq!(row.alloc_states[0].value, "lost");
    world.report("a2", ClientStatus::Running);
    assert_eq!(shared(world.root.alloc(&"a2".into())).client_status, ClientStatus::Lost);
    world.report("a2", ClientStatus::Complete);
    assert_eq!(shared(world.root.alloc(&"a2".into())).client_status, ClientStatus::Complete);
}

#[test]
fn transitions_are_merged() {
    let mut world = world();
    world.place("a1", &key("web"), "n1");
    for asked in [
        DesiredTransition { migrate: Some(true), ..Default::default() },
        DesiredTransition { no_shutdown_delay: Some(true), ..Default::default() },
    ] {
        let transitions = BTreeMap::from([("a1".into(), asked)]);
        world.apply(Change::AllocTransitions { transitions, evals: vec![] });
    }
    let expected = &shared(world.root.alloc(&"a1".into())).desired_transition;
    assert_eq!(
        (expected.migrate, expected.no_shutdown_delay, expected.reschedule),
        (Some(true), Some(true), None)
    );
}

#[test]
fn a_plan_for_a_node_that_is_gone_changes_nothing() {
    let mut world = world();
    let commit = world.commit("a1", &key("web"), "n2", vec![]);
    let outcome = world.try_apply(Change::Plan(Box::new(commit)));
    assert_eq!(outcome.refused, Some(Refusal::NotFound { what: "node n2".into() }));
    assert_eq!(world.root.allocs().count(), 0);
}

#[test]
fn a_node_keeps_operator_settings_when_it_reregisters() {
    let mut world = World::default();
    let first = world.node(node("n1"));
    assert_eq!(world.root.node(&"n1".into()).unwrap().events[0].message, "Node registered");
    let drain = Some(DrainStrategy::default());
    let set = |drain: Option<DrainStrategy>, mark_eligible| Change::NodeDrain {
        node: "n1".into(),
        drain,
        mark_eligible,
        meta: BTreeMap::new(),
        accessor: "token:a".to_owned(),
        end: None,
        evals: vec![],
    };
    world.apply(set(drain.clone(), false));
    let eligible =
        Change::NodeEligibility { node: "n1".into(), eligibility: Eligibility::Eligible, evals: vec![] };
    assert!(matches!(world.try_apply(eligible).refused, Some(Refusal::Invalid(_))));
    world.node(node("n1"));
    let row = shared(world.root.node(&"n1".into()));
    assert_eq!((row.scheduling_eligibility, row.create_index), (Eligibility::Ineligible, first));
    assert_eq!(row.drain_strategy, drain);
    assert_eq!(row.modify_index, first + 1, "the second report said nothing new");

    world.apply(set(None, false));
    let row = shared(world.root.node(&"n1".into()));
    assert_eq!(row.last_drain.as_ref().unwrap().status, "canceled");
    assert_eq!(row.scheduling_eligibility, Eligibility::Ineligible);
    world.apply(set(drain, false));
    let mut end = set(None, false);
    if let Change::NodeDrain { end, accessor, .. } = &mut end {
        *end = Some(DrainEnd { deadline_reached: true });
        accessor.clear();
    }
    world.apply(end);
    let row = shared(world.root.node(&"n1".into()));
    let last = row.last_drain.as_ref().unwrap();
    assert_eq!((last.status.as_str(), last.accessor_id.as_str()), ("complete", "token:a"));
    let last = row.events.last().unwrap();
    assert_eq!(
        (last.message.as_str(), last.details["deadline_reached"].as_str()),
        ("Node drain complete", "true")
    );
    world.apply(set(None, true));
    assert_eq!(shared(world.root.node(&"n1".into())).scheduling_eligibility, Eligibility::Eligible);
}

#[test]
fn missed_heartbeats_are_remembered_until_the_allocations_are_in_step() {
    let mut world = world();
    world.place("a1", &key("web"), "n1");
    let status = |status| Change::NodeStatus { node: "n1".into(), status, event: None, evals: vec![] };
    let missed = world.apply(status(NodeStatus::Disconnected));
    let row = shared(world.root.node(&"n1".into()));
    assert_eq!((row.last_missed_heartbeat_index, row.last_alloc_update_index), (missed, 0));
    world.apply(status(NodeStatus::Initializing));
    let reported = world.report("a1", ClientStatus::Running);
    assert_eq!(shared(world.root.node(&"n1".into())).last_alloc_update_index, reported);
    world.report("a1", ClientStatus::Failed);
    assert_eq!(shared(world.root.node(&"n1".into())).last_alloc_update_index, reported);
}
