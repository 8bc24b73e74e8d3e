//! Nodes out of contact: which allocations are lost or unknown, and which are kept when a node returns.

use crate::world::{NOW, World, job, placed, stopped};
use caravan_scheduler::{Params, Passed, absent_since, schedule};
use caravan_types::alloc::{Allocation, ClientStatus, LEASE_EXPIRED, TaskRunState, TaskState};
use caravan_types::eval::{EvalStatus, Evaluation, Trigger};
use caravan_types::job::{DisconnectStrategy, Job, JobType};
use caravan_types::node::NodeStatus;
use caravan_types::plan::Decision;
use caravan_types::{AllocId, Nanos, Time, UnixNanos};
use std::collections::BTreeMap;
use std::sync::Arc;

const MINUTE: Nanos = Nanos::from_secs(60);

fn with(kind: JobType, block: DisconnectStrategy) -> Job {
    let mut job = job("web", kind, 1);
    job.task_groups[0].disconnect = Some(block);
    job
}

fn keeping() -> DisconnectStrategy {
    DisconnectStrategy { lost_after: MINUTE, ..DisconnectStrategy::default() }
}

fn run_at(world: &mut World, now: UnixNanos) -> Decision {
    let eval = world.eval("web", Trigger::NodeUpdate);
    let decision = schedule(world, &eval, &Params::new(now, 1));
    world.apply(&decision);
    decision
}

/// Returns the allocation of a job on one of two nodes, whose node then gets `status`.
fn cut_off(block: DisconnectStrategy, status: NodeStatus) -> (World, Arc<Allocation>) {
    let mut world = World::with_nodes(&["n1", "n2"]);
    world.register(with(JobType::Service, block));
    world.run("web");
    world.client("web.g[0]", ClientStatus::Running);
    let alloc = world.alloc_named("web.g[0]");
    world.change_node(alloc.node_id.clone().as_str(), |node| node.status = status);
    (world, alloc)
}

fn follow_up(decision: &Decision, trigger: Trigger) -> &Evaluation {
    let found = decision.follow_ups.iter().find(|e| e.triggered_by == trigger);
    found.unwrap_or_else(|| panic!("{:?}", decision.follow_ups))
}

#[test]
fn what_may_come_back_is_unknown_replaced_and_lost_when_its_time_is_up() {
    let (mut world, alloc) = cut_off(keeping(), NodeStatus::Disconnected);
    let decision = run_at(&mut world, NOW);
    let unknown = world.allocs[&alloc.id].clone();
    assert_eq!(unknown.client_status, ClientStatus::Unknown);
    assert_eq!(unknown.client_description, "alloc is unknown since its node is disconnected");
    assert_eq!(unknown.alloc_states[0].value, "unknown");
    let later = follow_up(&decision, Trigger::MaxDisconnectTimeout);
    assert_eq!(later.wait_until, NOW.plus(MINUTE).to_time());
    assert_eq!(later.status_description, "created for delayed disconnect timeout");
    assert_eq!((later.status, &unknown.followup_eval_id), (EvalStatus::Pending, &later.id));
    let counts = &decision.plan.annotations.as_ref().unwrap().desired_tg_updates["g"];
    assert_eq!((counts.disconnect, counts.place, counts.stop), (1, 1, 0));
    let replacement = world.alloc_named("web.g[0]");
    assert_eq!((&replacement.previous_allocation, replacement.node_id != alloc.node_id), (&alloc.id, true));

    // A second evaluation changes nothing and creates no follow-up twice.
    let again = run_at(&mut world, NOW.plus(Nanos::from_secs(59)));
    assert!(again.plan.is_empty() && again.follow_ups.is_empty(), "{again:?}");
    let end = run_at(&mut world, NOW.plus(MINUTE));
    assert_eq!(stopped(&world, &end), ["web.g[0]: alloc is lost since its node is down"]);
    assert_eq!(world.allocs[&alloc.id].client_status, ClientStatus::Lost);
    assert!(placed(&end).is_empty());
}

#[test]
fn without_replacement_the_place_is_kept() {
    let (mut world, alloc) =
        cut_off(DisconnectStrategy { replace: Some(false), ..keeping() }, NodeStatus::Disconnected);
    run_at(&mut world, NOW);
    assert_eq!(world.allocs.len(), 1);
    // The node has returned and has not yet reported its allocations.
    world.change_node(alloc.node_id.clone().as_str(), |node| node.status = NodeStatus::Ready);
    assert!(run_at(&mut world, NOW).plan.is_empty());
    let end = run_at(&mut world, NOW.plus(MINUTE));
    assert_eq!(stopped(&world, &end).len(), 1);
    assert_eq!(placed(&end).len(), 1);
}

#[test]
fn what_may_not_come_back_is_lost_at_once() {
    for (block, status) in
        [(DisconnectStrategy::default(), NodeStatus::Disconnected), (keeping(), NodeStatus::Down)]
    {
        let (mut world, alloc) = cut_off(block, status);
        let decision = run_at(&mut world, NOW);
        assert_eq!(world.allocs[&alloc.id].client_status, ClientStatus::Lost);
        assert_eq!(placed(&decision).len(), 1);
    }
    let (mut world, alloc) = cut_off(keeping(), NodeStatus::Disconnected);
    // The allocation does not run yet, so nothing would return.
    world.change_alloc(&alloc.id, |alloc| alloc.client_status = ClientStatus::Pending);
    run_at(&mut world, NOW);
    assert_eq!(world.allocs[&alloc.id].client_status, ClientStatus::Lost);
}

fn runs_since(world: &mut World, id: &AllocId, since: i64, score: f64) {
    world.change_alloc(id, |alloc| {
        alloc.client_status = ClientStatus::Running;
        let task =
            TaskState { state: TaskRunState::Running, started_at: Time(since), ..TaskState::default() };
        alloc.task_states.insert("t".into(), task);
        let node = alloc.node_id.clone();
        let metrics = Arc::make_mut(alloc.metrics.as_mut().unwrap());
        metrics.score_meta_data.iter_mut().filter(|s| s.node_id == node).for_each(|s| s.norm_score = score);
    });
}

/// Returns whether the original is kept when its node returns. `original` and `other` are start time and score.
fn original_stays(strategy: &str, original: (i64, f64), other: (i64, f64)) -> bool {
    let block = DisconnectStrategy { reconcile: strategy.into(), ..keeping() };
    let (mut world, alloc) = cut_off(block, NodeStatus::Disconnected);
    run_at(&mut world, NOW);
    let replacement = world.alloc_named("web.g[0]").id.clone();
    runs_since(&mut world, &replacement, other.0, other.1);
    world.change_node(alloc.node_id.clone().as_str(), |node| node.status = NodeStatus::Ready);
    runs_since(&mut world, &alloc.id, original.0, original.1);
    let decision = run_at(&mut world, NOW.plus(Nanos::from_secs(5)));
    let stops: Vec<_> = decision.plan.stops.values().flatten().collect();
    assert_eq!(stops.len(), 1, "{stops:?}");
    assert_eq!(stops[0].description, "alloc not needed due to disconnected client reconnect");
    assert!(placed(&decision).is_empty());
    stops[0].alloc_id == replacement
}

#[test]
fn the_job_says_who_stays() {
    assert!(original_stays("keep_original", (9, 0.1), (1, 0.9)));
    assert!(!original_stays("keep_replacement", (1, 0.9), (9, 0.1)));
    assert!(original_stays("longest_running", (1, 0.1), (9, 0.9)));
    assert!(!original_stays("longest_running", (9, 0.9), (1, 0.1)));
    assert!(original_stays("best_score", (9, 0.9), (1, 0.1)));
    assert!(!original_stays("", (1, 0.1), (9, 0.9)));
}

#[test]
fn a_replacement_that_does_not_run_yet_goes() {
    let (mut world, alloc) = cut_off(keeping(), NodeStatus::Disconnected);
    run_at(&mut world, NOW);
    world.change_node(alloc.node_id.clone().as_str(), |node| node.status = NodeStatus::Ready);
    runs_since(&mut world, &alloc.id, 9, -1.0);
    let decision = run_at(&mut world, NOW);
    assert_ne!(decision.plan.stops.values().flatten().next().unwrap().alloc_id, alloc.id);
    // An original of an old version is replaced.
    let (mut world, alloc) = cut_off(keeping(), NodeStatus::Disconnected);
    run_at(&mut world, NOW);
    let replacement = world.alloc_named("web.g[0]").id.clone();
    let mut next = with(JobType::Service, keeping());
    next.meta.insert("version".into(), "1".into());
    world.register(next);
    let newest = world.jobs.values().next().cloned();
    world.change_alloc(&replacement, |alloc| alloc.job = newest);
    world.change_node(alloc.node_id.clone().as_str(), |node| node.status = NodeStatus::Ready);
    runs_since(&mut world, &alloc.id, 1, 1.0);
    let decision = run_at(&mut world, NOW);
    assert_eq!(decision.plan.stops.values().flatten().next().unwrap().alloc_id, alloc.id);
}

#[test]
fn a_system_job_is_kept_and_not_replaced() {
    let mut world = World::with_nodes(&["n1", "n2"]);
    world.register(with(JobType::System, keeping()));
    world.run("web");
    let ids: Vec<AllocId> = world.allocs.keys().cloned().collect();
    for id in &ids {
        world.change_alloc(id, |alloc| alloc.client_status = ClientStatus::Running);
    }
    world.change_node("n1", |node| node.status = NodeStatus::Disconnected);
    let decision = run_at(&mut world, NOW);
    assert_eq!(world.allocs.len(), 2);
    let unknown: Vec<_> =
        world.allocs.values().filter(|a| a.client_status == ClientStatus::Unknown).collect();
    assert!(unknown.len() == 1 && unknown[0].node_id == "n1", "{unknown:?}");
    follow_up(&decision, Trigger::MaxDisconnectTimeout);
    world.change_node("n1", |node| node.status = NodeStatus::Ready);
    assert!(run_at(&mut world, NOW).plan.is_empty());
}

#[test]
fn no_other_comes_before_the_node_has_certainly_stopped_the_first() {
    let block = DisconnectStrategy { stop_on_client_after: Some(MINUTE), ..DisconnectStrategy::default() };
    let (mut world, alloc) = cut_off(block, NodeStatus::Down);
    let decision = run_at(&mut world, NOW);
    assert_eq!(world.allocs[&alloc.id].client_status, ClientStatus::Lost);
    assert!(placed(&decision).is_empty());
    let later = follow_up(&decision, Trigger::AllocReschedule);
    assert_eq!(later.wait_until, NOW.plus(MINUTE).to_time());
    let early = run_at(&mut world, NOW.plus(Nanos::from_secs(30)));
    assert!(placed(&early).is_empty() && early.follow_ups.is_empty(), "{early:?}");
    assert_eq!(placed(&run_at(&mut world, NOW.plus(MINUTE))).len(), 1);
}

/// Evaluates the job after the server measured this absence of the allocation, for any wall clock.
fn run_after(world: &mut World, wall: UnixNanos, alloc: &AllocId, waited: Nanos) -> Decision {
    let eval = world.eval("web", Trigger::NodeUpdate);
    let passed = Passed::Measured(BTreeMap::from([(alloc.clone(), waited)]));
    let decision = schedule(world, &eval, &Params { passed, ..Params::new(wall, 1) });
    world.apply(&decision);
    decision
}

const HOUR: Nanos = Nanos::from_secs(3600);

#[test]
fn a_wall_clock_that_steps_ends_no_wait_and_prolongs_none() {
    let almost = Nanos(MINUTE.0 - 1);
    let kept = || {
        let (mut world, alloc) = cut_off(keeping(), NodeStatus::Disconnected);
        run_at(&mut world, NOW);
        assert_eq!(absent_since(&world.allocs[&alloc.id]), Some(NOW));
        (world, alloc.id.clone())
    };
    let stopping = || {
        let block =
            DisconnectStrategy { stop_on_client_after: Some(MINUTE), ..DisconnectStrategy::default() };
        let (mut world, alloc) = cut_off(block, NodeStatus::Down);
        run_at(&mut world, NOW);
        assert_eq!(absent_since(&world.allocs[&alloc.id]), Some(NOW));
        (world, alloc.id.clone())
    };
    for wall in [NOW, NOW.plus(HOUR), NOW.plus(Nanos(-HOUR.0))] {
        let (mut world, alloc) = kept();
        assert!(run_after(&mut world, wall, &alloc, almost).plan.is_empty());
        let end = run_after(&mut world, wall, &alloc, MINUTE);
        assert_eq!(stopped(&world, &end).len(), 1);

        let (mut world, alloc) = stopping();
        assert!(placed(&run_after(&mut world, wall, &alloc, almost)).is_empty());
        assert_eq!(placed(&run_after(&mut world, wall, &alloc, MINUTE)).len(), 1);
    }
}

#[test]
fn a_look_that_comes_too_early_is_followed_by_another_and_only_one() {
    let (mut world, alloc) = cut_off(keeping(), NodeStatus::Disconnected);
    let first = run_at(&mut world, NOW);
    // The follow-up itself comes early, because its server started the wait again.
    let eval = follow_up(&first, Trigger::MaxDisconnectTimeout).clone();
    let params = |wall| Params { passed: Passed::Measured(BTreeMap::new()), ..Params::new(wall, 2) };
    let wall = NOW.plus(Nanos::from_secs(40));
    let decision = schedule(&world, &eval, &params(wall));
    let again = follow_up(&decision, Trigger::MaxDisconnectTimeout);
    assert_eq!(again.wait_until, wall.plus(MINUTE).to_time());
    world.apply(&decision);
    let later = world.eval("web", Trigger::NodeUpdate);
    let decision = schedule(&world, &later, &params(wall.plus(Nanos::from_millis(500))));
    assert!(decision.follow_ups.is_empty(), "{:?}", decision.follow_ups);
    assert_eq!(world.allocs[&alloc.id].client_status, ClientStatus::Unknown);
}

#[test]
fn what_ended_with_its_nodes_lease_is_replaced_and_other_failures_are_not() {
    for (words, replaced) in [(LEASE_EXPIRED, true), ("Failed tasks", false)] {
        let (mut world, alloc) = cut_off(DisconnectStrategy::default(), NodeStatus::Ready);
        world.change_alloc(&alloc.id, |alloc| {
            alloc.client_status = ClientStatus::Failed;
            alloc.client_description = words.into();
        });
        let decision = run_at(&mut world, NOW);
        assert_eq!(placed(&decision).len(), usize::from(replaced), "{words}");
    }
}
