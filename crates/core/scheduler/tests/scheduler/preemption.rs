//! Preemption: which allocations are evicted for which jobs.

use crate::world::{World, job, node, placed, stopped};
use caravan_scheduler::Preemption;
use caravan_types::alloc::DesiredStatus;
use caravan_types::job::{Job, JobType};

fn sized(id: &str, kind: JobType, count: u32, priority: i64, cpu: i64) -> Job {
    let mut made = job(id, kind, count);
    made.priority = priority;
    made.task_groups[0].tasks[0].resources.cpu = cpu;
    made
}

fn world() -> World {
    let mut world = World::default();
    let mut small = node("n1");
    small.node_resources.cpu.cpu_shares = 1000;
    world.set_node(small);
    world
}

#[test]
fn system_jobs_preempt_by_default_and_others_by_configuration() {
    let mut world = world();
    world.register(sized("low", JobType::Service, 2, 20, 500));
    world.run("low");
    world.register(sized("web", JobType::Service, 1, 70, 400));
    assert!(placed(&world.run("web")).is_empty());
    world.register(sized("agent", JobType::System, 1, 70, 400));
    let decision = world.run("agent");
    assert_eq!(placed(&decision), ["agent.g[0] on n1"]);
    assert_eq!(stopped(&world, &decision).len(), 1);
    let alloc = world.alloc_named("agent.g[0]");
    let victim = &world.allocs[&alloc.preempted_allocations[0]];
    assert_eq!(victim.desired_status, DesiredStatus::Evict);
    assert_eq!(victim.desired_description, format!("Preempted by alloc ID {}", alloc.id));
    assert_eq!(victim.preempted_by_allocation, alloc.id);
    let annotations = decision.plan.annotations.unwrap();
    assert_eq!(annotations.desired_tg_updates["g"].preemptions, 1);
    assert_eq!(annotations.preempted_allocs[0].id, victim.id);
    let scores = &alloc.metrics.as_ref().unwrap().score_meta_data[0].scores;
    assert!(scores.iter().any(|(scorer, _)| scorer.as_str() == "preemption"));

    world.settle();
    world.rules.preemption = Preemption { service: true, ..Preemption::default() };
    assert_eq!(placed(&world.run("web")), ["web.g[0] on n1"]);
}

#[test]
fn the_least_important_go_and_no_more_than_needed() {
    let mut world = world();
    world.rules.preemption.service = true;
    for (id, priority, cpu) in [("p10", 10, 100), ("p20", 20, 300), ("p21", 20, 200), ("p40", 40, 400)] {
        world.register(sized(id, JobType::Service, 1, priority, cpu));
        assert_eq!(placed(&world.run(id)).len(), 1);
    }
    // The allocation of 300 suffices. Neither the least important allocation of 100 nor the allocation of 40 is
    // evicted with it.
    world.register(sized("web", JobType::Service, 1, 50, 300));
    let decision = world.run("web");
    let gone = stopped(&world, &decision);
    assert_eq!(gone.len(), 1);
    assert!(gone[0].starts_with("p20.g[0]: Preempted by alloc ID"), "{gone:?}");
}

#[test]
fn neighbours_in_priority_stay() {
    let mut world = world();
    world.rules.preemption.service = true;
    world.register(sized("near", JobType::Service, 2, 45, 500));
    world.run("near");
    world.register(sized("web", JobType::Service, 1, 50, 300));
    let decision = world.run("web");
    assert!(placed(&decision).is_empty());
    assert_eq!(decision.eval.failed_tg_allocs["g"].dimension_exhausted["cpu"], 1);
    world.register(sized("web", JobType::Service, 1, 55, 300));
    assert_eq!(placed(&world.run("web")).len(), 1);
}
