//! Changes of allocations when jobs and nodes change.

use crate::world::{World, job, node, placed, stopped};
use caravan_types::alloc::ClientStatus;
use caravan_types::eval::{EvalStatus, Trigger};
use caravan_types::job::{Constraint, CsiPluginConfig, CsiPluginType, JobType};
use caravan_types::node::{DrainStrategy, Eligibility, NodeStatus};
use caravan_types::{JobKey, Nanos};
use serde_json::json;

#[test]
fn a_new_service_is_placed_and_names_are_counted() {
    let mut world = World::with_nodes(&["n1", "n2"]);
    world.register(job("web", JobType::Service, 2));
    let decision = world.run("web");
    // The two allocations run on different nodes.
    assert_eq!(world.running().len(), 2);
    assert_ne!(world.alloc_named("web.g[0]").node_id, world.alloc_named("web.g[1]").node_id);
    assert_eq!(decision.eval.status, EvalStatus::Complete);
    assert_eq!(decision.eval.queued_allocations["g"], 0);
    let counts = &decision.eval.plan_annotations.as_ref().unwrap().desired_tg_updates["g"];
    assert_eq!(counts.place, 2);
    let alloc = world.alloc_named("web.g[0]");
    assert_eq!(alloc.node_name, format!("host-{}", alloc.node_id));
    let supplied = alloc.allocated_resources.as_ref().unwrap();
    assert_eq!(supplied.tasks["t"].cpu.cpu_shares, 500);
    assert_eq!(supplied.shared.disk_mb, 300);
    let metric = alloc.metrics.as_ref().unwrap();
    assert_eq!((metric.nodes_evaluated, metric.nodes_in_pool, metric.nodes_available["dc1"]), (2, 2, 2));
    assert_eq!(metric.score_meta_data.len(), 2);
    assert!(world.run("web").plan.is_empty());
}

#[test]
fn count_changes_stop_the_highest_and_fill_the_gaps() {
    let mut world = World::with_nodes(&["n1"]);
    world.register(job("web", JobType::Service, 3));
    world.run("web");
    world.register(job("web", JobType::Service, 1));
    let decision = world.run("web");
    assert_eq!(
        stopped(&world, &decision),
        ["web.g[1]: alloc not needed due to job update", "web.g[2]: alloc not needed due to job update"]
    );
    // The allocation that is kept is updated in place.
    assert_eq!(placed(&decision), ["web.g[0] on n1"]);
    assert_eq!(world.alloc_named("web.g[0]").job.as_ref().unwrap().version, 1);
    world.register(job("web", JobType::Service, 2));
    world.run("web");
    assert_eq!(world.running(), ["web.g[0] on n1", "web.g[1] on n1"]);
}

#[test]
fn a_stopped_or_purged_job_stops_its_allocations() {
    for purge in [false, true] {
        let mut world = World::with_nodes(&["n1"]);
        world.register(job("web", JobType::Service, 2));
        world.run("web");
        if purge {
            world.jobs.remove(&JobKey::new("default", "web"));
        } else {
            let mut stopped = job("web", JobType::Service, 2);
            stopped.stop = true;
            world.register(stopped);
        }
        let decision = world.run("web");
        assert_eq!(stopped(&world, &decision).len(), 2, "purge {purge}");
        assert!(world.running().is_empty());
        assert!(world.run("web").plan.is_empty());
    }
}

#[test]
fn a_destructive_update_replaces_even_on_a_full_node() {
    let mut world = World::with_nodes(&["n1"]);
    let mut v0 = job("web", JobType::Service, 1);
    v0.task_groups[0].tasks[0].resources.memory_mb = 3000;
    world.register(v0.clone());
    world.run("web");
    let old = world.alloc_named("web.g[0]").id.clone();
    v0.task_groups[0].tasks[0].env.insert("A".into(), "b".into());
    world.register(v0);
    let decision = world.run("web");
    assert_eq!(stopped(&world, &decision), ["web.g[0]: alloc is being updated due to job update"]);
    let new = world.alloc_named("web.g[0]");
    assert_eq!(new.previous_allocation, old);
    assert_eq!(world.running(), ["web.g[0] on n1"]);
}

#[test]
fn an_update_that_fits_nowhere_leaves_the_old_one_running() {
    let mut world = World::with_nodes(&["n1"]);
    world.register(job("web", JobType::Service, 1));
    world.run("web");
    let mut v1 = job("web", JobType::Service, 1);
    v1.task_groups[0].tasks[0].resources.cpu = 99_999;
    world.register(v1);
    let decision = world.run("web");
    assert!(decision.plan.is_empty());
    assert_eq!(decision.eval.queued_allocations["g"], 1);
    assert_eq!(decision.eval.failed_tg_allocs["g"].dimension_exhausted["cpu"], 1);
    assert_eq!(world.running(), ["web.g[0] on n1"]);
    assert_eq!(world.blocked().len(), 1);
}

#[test]
fn allocations_of_lost_nodes_are_declared_lost_and_replaced() {
    let mut world = World::with_nodes(&["n1"]);
    world.register(job("web", JobType::Service, 1));
    world.run("web");
    world.set_node(node("n2"));
    world.change_node("n1", |n| n.status = NodeStatus::Down);
    let old = world.alloc_named("web.g[0]").id.clone();
    let decision = world.run("web");
    assert_eq!(stopped(&world, &decision), ["web.g[0]: alloc is lost since its node is down"]);
    assert_eq!(world.allocs[&old].client_status, ClientStatus::Lost);
    assert_eq!(placed(&decision), ["web.g[0] on n2"]);
    assert_eq!(world.alloc_named("web.g[0]").previous_allocation, old);
    assert!(world.run("web").plan.is_empty());
}

#[test]
fn stopping_allocations_of_lost_nodes_are_declared_lost_too() {
    let mut world = World::with_nodes(&["n1"]);
    world.register(job("web", JobType::Service, 1));
    world.run("web");
    world.jobs.clear();
    world.run("web");
    world.nodes.clear();
    let decision = world.run("web");
    assert_eq!(stopped(&world, &decision), ["web.g[0]: alloc is lost since its node is down"]);
}

#[test]
fn what_a_drain_sends_away_leaves_and_nothing_else_does() {
    let mut world = World::with_nodes(&["n1"]);
    world.register(job("web", JobType::Service, 1));
    world.register(job("sys", JobType::System, 1));
    world.run("web");
    world.run("sys");
    world.set_node(node("n2"));
    world.change_node("n1", |n| {
        n.drain_strategy = Some(DrainStrategy { deadline: Nanos(1), ..DrainStrategy::default() });
        n.scheduling_eligibility = Eligibility::Ineligible;
    });
    // The drain decides which allocations stop, and when.
    assert!(world.run("web").plan.is_empty());
    let old = world.alloc_named("web.g[0]").id.clone();
    world.change_alloc(&old, |a| a.desired_transition.migrate = Some(true));
    let decision = world.run("web");
    assert_eq!(stopped(&world, &decision), ["web.g[0]: alloc is being migrated"]);
    assert_eq!(placed(&decision), ["web.g[0] on n2"]);
    let old = world.alloc_named("sys.g[0]").id.clone();
    world.change_alloc(&old, |a| a.desired_transition.migrate = Some(true));
    let decision = world.run("sys");
    assert_eq!(stopped(&world, &decision), ["sys.g[0]: alloc not needed as node is tainted"]);
    assert_eq!(placed(&decision), ["sys.g[0] on n2"]);
}

#[test]
fn a_user_moves_an_allocation() {
    let mut world = World::with_nodes(&["n1"]);
    world.register(job("web", JobType::Service, 1));
    world.run("web");
    let old = world.alloc_named("web.g[0]").id.clone();
    world.change_alloc(&old, |a| a.desired_transition.migrate = Some(true));
    let decision = world.run("web");
    assert_eq!(stopped(&world, &decision), ["web.g[0]: alloc is being migrated"]);
    assert_eq!(world.alloc_named("web.g[0]").previous_allocation, old);
    assert!(world.run("web").plan.is_empty());
}

#[test]
fn batch_work_that_completed_never_runs_again_but_a_new_version_does() {
    let mut world = World::with_nodes(&["n1"]);
    world.register(job("crunch", JobType::Batch, 2));
    world.run("crunch");
    world.client("crunch.g[0]", ClientStatus::Complete);
    world.client("crunch.g[1]", ClientStatus::Failed);
    assert!(world.run("crunch").plan.is_empty());
    let mut v1 = job("crunch", JobType::Batch, 2);
    v1.meta.insert("again".into(), "yes".into());
    world.register(v1);
    assert_eq!(placed(&world.run("crunch")), ["crunch.g[0] on n1", "crunch.g[1] on n1"]);
}

#[test]
fn failed_services_stay_failed_until_forced() {
    let mut world = World::with_nodes(&["n1"]);
    world.register(job("web", JobType::Service, 1));
    world.run("web");
    world.client("web.g[0]", ClientStatus::Failed);
    assert!(world.run("web").plan.is_empty());
    let id = world.alloc_named("web.g[0]").id.clone();
    world.change_alloc(&id, |a| a.desired_transition.force_reschedule = Some(true));
    let decision = world.run("web");
    assert_eq!(placed(&decision), ["web.g[0] on n1"]);
    assert_eq!(stopped(&world, &decision), ["web.g[0]: alloc was rescheduled because it failed"]);
    assert_eq!(world.alloc_named("web.g[0]").previous_allocation, id);
    assert!(world.run("web").plan.is_empty());
}

#[test]
fn system_jobs_run_once_on_every_node_that_suits_them() {
    let mut world = World::with_nodes(&["n1", "n2", "n3"]);
    world.change_node("n3", |n| n.drivers.clear());
    world.register(job("sys", JobType::System, 1));
    let decision = world.run("sys");
    assert_eq!(world.running(), ["sys.g[0] on n1", "sys.g[0] on n2"]);
    assert!(decision.eval.failed_tg_allocs.is_empty());
    assert!(world.blocked().is_empty());
    world.set_node(node("n4"));
    assert_eq!(placed(&world.run("sys")), ["sys.g[0] on n4"]);
    // A failed allocation is replaced at the next evaluation, and completed sysbatch work is not.
    world.client("sys.g[0]", ClientStatus::Failed);
    assert_eq!(placed(&world.run("sys")).len(), 1);

    world.register(job("sweep", JobType::Sysbatch, 2));
    assert_eq!(placed(&world.run("sweep")).len(), 6);
    for id in world.allocs.keys().cloned().collect::<Vec<_>>() {
        world.change_alloc(&id, |a| a.client_status = ClientStatus::Complete);
    }
    assert!(world.run("sweep").plan.is_empty());
}

#[test]
fn a_system_job_that_suits_no_node_says_why() {
    let mut world = World::with_nodes(&["n1"]);
    let mut sys = job("sys", JobType::System, 1);
    sys.task_groups[0].tasks[0].driver = "exec".into();
    world.register(sys);
    let decision = world.run("sys");
    assert_eq!(decision.eval.failed_tg_allocs["g"].constraint_filtered["missing drivers"], 1);
    assert!(world.blocked().is_empty());
    assert_eq!(decision.eval.queued_allocations["g"], 0);
}

/// A CSI node plugin has root on the node, so under exec it runs only where the node allows it.
#[test]
fn a_privileged_plugin_goes_only_where_the_node_allows_it() {
    let mut world = World::with_nodes(&["n1", "n2"]);
    for node in ["n1", "n2"] {
        world.change_node(node, |n| {
            let exec = n.drivers["raw_exec"].clone();
            n.drivers.insert("exec".into(), exec);
        });
    }
    let attribute = "driver.exec.privileged_plugins".to_owned();
    world.change_node("n2", |n| drop(n.attributes.insert(attribute, "true".into())));
    let plugin = |id: &str, driver: &str, kind: CsiPluginType| {
        let mut job = job(id, JobType::Service, 3);
        let task = &mut job.task_groups[0].tasks[0];
        task.driver = driver.into();
        task.csi_plugin_config = Some(CsiPluginConfig { id: "p".into(), kind, ..Default::default() });
        job
    };
    for kind in [CsiPluginType::Node, CsiPluginType::Monolith] {
        let id = format!("privileged-{kind:?}");
        world.register(plugin(&id, "exec", kind));
        let placed = placed(&world.run(&id));
        assert!(placed.len() == 3 && placed.iter().all(|alloc| alloc.ends_with("on n2")), "{placed:?}");
        world.change_node("n2", |n| n.status = NodeStatus::Down);
        let id = format!("refused-{kind:?}");
        world.register(plugin(&id, "exec", kind));
        let failed = world.run(&id).eval.failed_tg_allocs;
        assert_eq!(failed["g"].constraint_filtered["node does not allow privileged plugins"], 1);
        world.change_node("n2", |n| n.status = NodeStatus::Ready);
    }
    world.change_node("n2", |n| n.status = NodeStatus::Down);
    world.register(plugin("controller", "exec", CsiPluginType::Controller));
    assert_eq!(placed(&world.run("controller")).len(), 3);
}

#[test]
fn a_task_that_adds_capabilities_goes_only_where_the_node_allows_them() {
    let mut world = World::with_nodes(&["n1", "n2"]);
    for node in ["n1", "n2"] {
        world.change_node(node, |n| {
            let exec = n.drivers["raw_exec"].clone();
            n.drivers.insert("exec".into(), exec);
        });
    }
    let allow = |world: &mut World, node: &str, names: Option<&str>| {
        world.change_node(node, |n| {
            n.attributes.remove("driver.exec.allow_caps");
            n.attributes.extend(names.map(|names| ("driver.exec.allow_caps".to_owned(), names.to_owned())));
        });
    };
    let mut count = 0;
    let mut run = |world: &mut World, driver: &str, add: serde_json::Value| {
        count += 1;
        let mut job = job(&format!("adds-{count}"), JobType::Service, 2);
        let task = &mut job.task_groups[0].tasks[0];
        task.driver = driver.into();
        task.config.insert("cap_add".into(), add);
        world.register(job);
        let decision = world.run(&format!("adds-{count}"));
        let mut nodes: Vec<String> = placed(&decision)
            .iter()
            .filter_map(|alloc| alloc.rsplit(' ').next().map(str::to_owned))
            .collect();
        nodes.dedup();
        let failed = decision.eval.failed_tg_allocs.get("g").map(|metric| metric.constraint_filtered.clone());
        (nodes, failed.unwrap_or_default())
    };
    allow(&mut world, "n1", Some("chown,kill"));
    allow(&mut world, "n2", Some("chown,kill,net_admin"));
    for name in ["net_admin", "NET_ADMIN", "CAP_NET_ADMIN", "cap_net_admin"] {
        assert_eq!(run(&mut world, "exec", json!(["chown", name])).0, ["n2"], "{name}");
    }
    let (nodes, failed) = run(&mut world, "exec", json!(["CAP_SYS_TIME", "net_admin", "kill"]));
    assert!(nodes.is_empty());
    assert_eq!(failed["node does not allow the capabilities net_admin, sys_time"], 1);
    assert_eq!(failed["node does not allow the capabilities sys_time"], 1);
    allow(&mut world, "n1", Some("all"));
    assert_eq!(run(&mut world, "exec", json!(["sys_time"])).0, ["n1"]);
    // An older client does not report capabilities, and its driver decides.
    allow(&mut world, "n1", None);
    assert_eq!(run(&mut world, "exec", json!(["sys_time"])).0, ["n1"]);
    // The node allows no capability. In this case, `all` requests none, and only the client knows the value of a
    // variable.
    for node in ["n1", "n2"] {
        allow(&mut world, node, Some(""));
    }
    assert_eq!(run(&mut world, "exec", json!(["all"])).1.len(), 0);
    assert_eq!(run(&mut world, "exec", json!(["${meta.capability}"])).1.len(), 0);
    assert_eq!(run(&mut world, "raw_exec", json!(["sys_time"])).1.len(), 0);
    let failed = run(&mut world, "exec", json!(["chown"])).1;
    assert_eq!(failed["node does not allow the capabilities chown"], 2);
}

#[test]
fn a_full_node_blocks_a_system_job() {
    let mut world = World::with_nodes(&["n1", "n2"]);
    world.change_node("n1", |n| n.node_resources.memory.memory_mb = 100);
    world.register(job("sys", JobType::System, 1));
    let decision = world.run("sys");
    assert_eq!(placed(&decision), ["sys.g[0] on n2"]);
    assert_eq!(decision.eval.failed_tg_allocs["g"].dimension_exhausted["memory"], 1);
    assert_eq!(world.blocked().len(), 1);
}

#[test]
fn a_system_update_goes_where_it_still_suits() {
    let mut world = World::with_nodes(&["n1", "n2"]);
    world.change_node("n2", |n| drop(n.meta.insert("rack".into(), "r2".into())));
    world.register(job("sys", JobType::System, 1));
    world.run("sys");
    let mut v1 = job("sys", JobType::System, 1);
    v1.constraints.push(Constraint {
        l_target: "${meta.rack}".into(),
        operand: "=".into(),
        r_target: "r2".into(),
    });
    world.register(v1);
    let decision = world.run("sys");
    assert_eq!(stopped(&world, &decision), ["sys.g[0]: alloc not needed due to job update"]);
    assert_eq!(world.running(), ["sys.g[0] on n2"]);
}

#[test]
fn ineligible_nodes_keep_what_runs() {
    let mut world = World::with_nodes(&["n1"]);
    world.register(job("sys", JobType::System, 1));
    world.run("sys");
    world.change_node("n1", |n| n.scheduling_eligibility = Eligibility::Ineligible);
    assert!(world.run("sys").plan.is_empty());
}

#[test]
fn what_was_left_over_is_put_back_and_older_waits_are_cancelled() {
    let mut world = World::with_nodes(&["n1"]);
    world.register(job("web", JobType::Service, 20));
    let first = world.run("web");
    let left = first.eval.queued_allocations["g"];
    assert!(left > 0 && left < 20);
    let blocked = world.blocked()[0].as_ref().clone();
    assert_eq!(first.eval.blocked_eval, blocked.id);
    assert_eq!(blocked.triggered_by, Trigger::QueuedAllocs);
    assert_eq!(blocked.status_description, "created to place remaining allocations");
    assert!(blocked.class_eligibility[&world.nodes["n1"].computed_class]);
    assert_eq!(blocked.failed_tg_allocs["g"].coalesced_failures, left - 1);
    // The evaluation was unblocked without success, so the same evaluation is blocked again.
    let again = world.decide(&blocked, 2);
    assert_eq!((again.eval.id.clone(), again.eval.status), (blocked.id.clone(), EvalStatus::Blocked));
    assert!(again.follow_ups.is_empty());
    // A new registration replaces the blocked evaluation.
    world.register(job("web", JobType::Service, 1));
    world.run("web");
    assert_eq!(world.evals[&blocked.id].status, EvalStatus::Canceled);
    assert!(world.blocked().is_empty());
}

#[test]
fn all_at_once_places_all_or_none() {
    let mut world = World::with_nodes(&["n1"]);
    let mut big = job("web", JobType::Batch, 20);
    big.all_at_once = true;
    world.register(big);
    let decision = world.run("web");
    assert!(decision.plan.placements.is_empty());
    assert_eq!(decision.eval.queued_allocations["g"], 20);
    world.register({
        let mut small = job("web", JobType::Batch, 3);
        small.all_at_once = true;
        small
    });
    assert_eq!(placed(&world.run("web")).len(), 3);
}
