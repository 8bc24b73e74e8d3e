//! Changes of nodes, and plans, that were made from a state that is no longer the newest.

use super::build::*;
use caravan_types::command::{Change, NodeChange, Outcome, Refusal};
use caravan_types::job::{Job, JobType};
use caravan_types::node::{DrainStrategy, Eligibility, NodeStatus};
use std::collections::BTreeMap;

fn world(jobs: &[Job]) -> World {
    let mut world = World::default();
    world.node(node("n1"));
    world.node(node("n2"));
    for job in jobs {
        world.register(job, &format!("first-{}", job.id));
    }
    world
}

fn stale(outcome: &Outcome) -> bool {
    matches!(outcome.refused, Some(Refusal::Changed { .. }))
}

#[test]
fn nothing_new_is_placed_on_a_node_that_takes_nothing() {
    let status = |status| Change::NodeStatus { node: "n1".into(), status, event: None, evals: vec![] };
    let eligible = |eligibility| Change::NodeEligibility { node: "n1".into(), eligibility, evals: vec![] };
    let drain = Change::NodeDrain {
        node: "n1".into(),
        drain: Some(DrainStrategy::default()),
        mark_eligible: false,
        meta: BTreeMap::new(),
        accessor: String::new(),
        end: None,
        evals: vec![],
    };
    let out = [
        status(NodeStatus::Down),
        status(NodeStatus::Disconnected),
        eligible(Eligibility::Ineligible),
        drain,
    ];
    for change in out {
        let web = job("web", JobType::Service, 2);
        let mut world = world(&[web]);
        world.place("before", &key("web"), "n1");
        let plan = world.commit("after", &key("web"), "n1", vec![]);
        let update = world.commit("before", &key("web"), "n1", vec![]);
        world.apply(change.clone());
        assert!(stale(&world.try_apply(Change::Plan(Box::new(plan)))), "{change:?}");
        // An existing allocation may be written: it is already on the node.
        world.apply(Change::Plan(Box::new(update)));
        assert!(world.root.alloc(&"after".into()).is_none());
    }
}

#[test]
fn a_node_goes_only_with_an_evaluation_of_each_job_that_it_concerns() {
    let jobs =
        [job("web", JobType::Service, 1), job("late", JobType::Service, 1), job("all", JobType::System, 1)];
    let mut world = world(&jobs);
    world.place("a", &key("web"), "n1");
    let evals = vec![eval("e1", &jobs[0]), eval("e2", &jobs[2])];
    let down = |evals| {
        let change =
            NodeChange::NodeStatus { node: "n1".into(), status: NodeStatus::Down, event: None, evals };
        Change::NodeWhole { node: "n1".into(), change: Box::new(change) }
    };
    // The allocation is placed after the evaluations were created.
    world.place("b", &key("late"), "n1");
    assert!(stale(&world.try_apply(down(evals.clone()))));
    assert_eq!(world.root.node(&"n1".into()).unwrap().status, NodeStatus::Ready);
    assert!(world.root.eval(&"e1".into()).is_none(), "nothing of a refused change is written");
    world.apply(down([evals, vec![eval("e3", &jobs[1])]].concat()));
    assert_eq!(world.root.node(&"n1".into()).unwrap().status, NodeStatus::Down);
    assert!(world.root.eval(&"e3".into()).is_some());
}

#[test]
fn a_node_that_joins_reaches_the_jobs_that_want_every_node() {
    let jobs =
        [job("all", JobType::System, 1), job("once", JobType::Sysbatch, 1), job("web", JobType::Service, 1)];
    let mut world = world(&jobs);
    let join = |evals| {
        let change = NodeChange::NodeRegister { node: Box::new(node("n3")), evals };
        Change::NodeWhole { node: "n3".into(), change: Box::new(change) }
    };
    assert!(stale(&world.try_apply(join(vec![eval("e1", &jobs[0])]))));
    world.apply(join(vec![eval("e1", &jobs[0]), eval("e2", &jobs[1])]));
    let stop = |id: &str| Change::JobDeregister { key: key(id), purge: false, eval: None };
    world.apply(stop("once"));
    let expected: Vec<_> = world.root.jobs_of_node(&"n3".into()).into_iter().collect();
    assert_eq!(expected, [key("all")]);
}

#[test]
fn of_two_first_registrations_the_first_one_has_the_id() {
    use caravan_types::node::{Node, NodeSecret};
    let register = |secret: &str| Change::NodeRegister {
        node: Box::new(Node { secret_id: NodeSecret::new(secret), ..node("n1") }),
        evals: vec![],
    };
    let mut world = World::default();
    world.apply(register("first"));
    let refused = world.try_apply(register("second")).refused;
    assert!(matches!(refused, Some(Refusal::NodeSecret { .. })), "{refused:?}");
    assert!(!format!("{refused:?}").contains("second"));
    assert_eq!(world.root.node(&"n1".into()).unwrap().secret_id, NodeSecret::new("first"));
    world.apply(register("first"));
    world.apply(Change::NodeDelete { node: "n1".into(), evals: vec![] });
    world.apply(register("second"));
}
