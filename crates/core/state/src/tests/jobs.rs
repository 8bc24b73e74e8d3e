//! Jobs: versions, indexes, status, summaries.

use super::build::{World, eval, job, key, node, shared};
use crate::{Root, Table};
use caravan_types::alloc::ClientStatus;
use caravan_types::command::{Change, JobSource, Refusal};
use caravan_types::eval::EvalStatus;
use caravan_types::job::{JobStatus, JobType};

#[test]
fn a_version_is_made_only_by_a_different_specification() {
    let mut world = World::default();
    let web = job("web", JobType::Service, 1);
    let first = world.register(&web, "e1");
    let row = shared(world.root.job(&key("web")));
    assert_eq!((row.version, row.create_index, row.job_modify_index), (0, first, first));
    assert_eq!(shared(world.root.eval(&"e1".into())).job_modify_index, first);

    world.register(&web, "e2");
    let row = shared(world.root.job(&key("web")));
    assert_eq!((row.version, row.job_modify_index, row.modify_index), (0, first, first));
    assert!(world.root.eval(&"e2".into()).is_some());

    let second = world.register(&job("web", JobType::Service, 2), "e3");
    let row = shared(world.root.job(&key("web")));
    assert_eq!((row.version, row.create_index, row.job_modify_index), (1, first, second));
    let versions: Vec<u64> = world.root.job_versions(&key("web")).map(|j| j.version).collect();
    assert_eq!(versions, [1, 0]);
}

/// A later registration does not change the outcome of an earlier one.
#[test]
fn the_outcome_holds_the_index_of_its_own_registration() {
    let mut world = World::default();
    let register = |count, expect_modify_index| Change::JobRegister {
        job: Box::new(job("web", JobType::Service, count)),
        expect_modify_index,
        eval: None,
        source: None,
    };
    let first = world.try_apply(register(1, None));
    let second = world.try_apply(register(2, None));
    assert_eq!(first.job_modify_index, Some(first.index));
    assert_eq!(second.job_modify_index, Some(second.index));
    let same = world.try_apply(register(2, None));
    assert!(same.index > second.index, "only the command is new");
    assert_eq!(same.job_modify_index, Some(second.index));
    let refused = world.try_apply(register(3, Some(first.index)));
    assert!(refused.refused.is_some());
    assert_eq!(refused.job_modify_index, None);
    assert_eq!(world.try_apply(Change::Noop).job_modify_index, None);
}

#[test]
fn six_versions_and_their_texts_are_kept() {
    let mut world = World::default();
    for count in 1..=9 {
        let source = Some(JobSource { source: format!("count = {count}"), ..Default::default() });
        let job = Box::new(job("web", JobType::Service, count));
        world.apply(Change::JobRegister { job, expect_modify_index: None, eval: None, source });
    }
    let versions: Vec<u64> = world.root.job_versions(&key("web")).map(|j| j.version).collect();
    assert_eq!(versions, [8, 7, 6, 5, 4, 3]);
    assert_eq!(versions.len(), Root::KEPT_VERSIONS);
    assert!(world.root.submission(&key("web"), 2).is_none());
    assert_eq!(shared(world.root.submission(&key("web"), 3)).source, "count = 4");
}

#[test]
fn an_expected_index_that_does_not_match_refuses() {
    let mut world = World::default();
    let register = |expect: u64, count| Change::JobRegister {
        job: Box::new(job("web", JobType::Service, count)),
        expect_modify_index: Some(expect),
        eval: None,
        source: None,
    };
    let text = |refused: Option<Refusal>| refused.unwrap().to_string();
    let missing = world.try_apply(register(7, 1));
    assert_eq!(text(missing.refused), "Enforcing job modify index 7: job does not exist");
    let at = world.apply(register(0, 1));
    let exists = world.try_apply(register(0, 2));
    assert_eq!(text(exists.refused), "Enforcing job modify index 0: job already exists");
    world.apply(register(at, 2));
    assert_eq!(shared(world.root.job(&key("web"))).version, 1);
}

#[test]
fn a_stop_is_a_version_and_starting_again_another() {
    let mut world = World::default();
    let web = job("web", JobType::Service, 1);
    let first = world.register(&web, "e1");
    world.end_eval("e1", EvalStatus::Complete, &[]);
    let stop = |id: &str| Change::JobDeregister { key: key("web"), purge: false, eval: Some(eval(id, &web)) };
    world.apply(stop("e2"));
    assert_eq!(shared(world.root.job(&key("web"))).version, 1);
    world.apply(stop("e3"));
    assert_eq!(shared(world.root.job(&key("web"))).version, 1, "it was stopped already");
    world.register(&web, "e4");
    let row = shared(world.root.job(&key("web")));
    assert_eq!((row.version, row.stop, row.create_index), (2, false, first));
    let gone = Change::JobDeregister { key: key("other"), purge: false, eval: None };
    assert!(matches!(world.try_apply(gone).refused, Some(Refusal::NotFound { .. })));
}

#[test]
fn a_purge_removes_the_job_and_leaves_its_allocations() {
    let mut world = World::default();
    let web = job("web", JobType::Service, 1);
    world.node(node("n1"));
    world.register(&web, "e1");
    world.place("a1", &key("web"), "n1");
    world.apply(Change::JobDeregister { key: key("web"), purge: true, eval: Some(eval("e2", &web)) });
    assert!(world.root.job(&key("web")).is_none());
    assert_eq!(world.root.job_versions(&key("web")).count(), 0);
    assert_eq!(world.root.allocs_by_job(&key("web")).count(), 1);
    world.stop("a1", None);
    world.report("a1", ClientStatus::Complete);
    world.apply(Change::Collect { evals: vec!["e1".into()], allocs: vec!["a1".into()] });
    assert!(world.root.alloc(&"a1".into()).is_none());
    assert!(world.root.eval(&"e1".into()).is_some(), "an evaluation that is not over stays");
}

#[test]
fn the_status_follows_the_records() {
    let mut world = World::default();
    world.node(node("n1"));
    let status = |world: &World| shared(world.root.job(&key("crunch"))).status;
    let registered = world.register(&job("crunch", JobType::Batch, 1), "e1");
    assert_eq!(status(&world), JobStatus::Pending);
    let placed = world.place("a1", &key("crunch"), "n1");
    assert_eq!(status(&world), JobStatus::Running);
    let row = shared(world.root.job(&key("crunch")));
    assert_eq!((row.modify_index, row.job_modify_index), (placed, registered));
    assert_eq!(shared(world.root.job_version(&key("crunch"), 0)), row);
    world.end_eval("e1", EvalStatus::Complete, &[]);
    world.report("a1", ClientStatus::Running);
    assert_eq!(world.root.table_index(Table::Jobs), placed, "the status did not move");
    world.report("a1", ClientStatus::Complete);
    assert_eq!(status(&world), JobStatus::Dead);
    world.apply(Change::Collect { evals: vec!["e1".into()], allocs: vec!["a1".into()] });
    assert_eq!(status(&world), JobStatus::Dead, "what was collected had been there");

    world.register(&job("every", JobType::System, 1), "e2");
    assert_eq!(shared(world.root.job(&key("every"))).status, JobStatus::Running);
}

#[test]
fn the_summary_counts_allocations_and_what_is_queued() {
    let mut world = World::default();
    world.node(node("n1"));
    world.register(&job("web", JobType::Service, 3), "e1");
    world.place("a1", &key("web"), "n1");
    world.place("a2", &key("web"), "n1");
    world.report("a1", ClientStatus::Running);
    world.end_eval("e1", EvalStatus::Complete, &[("g", 1)]);
    let summary = world.root.job_summary(&key("web")).unwrap();
    let group = summary.summary["g"];
    assert_eq!((group.running, group.starting, group.queued, group.failed), (1, 1, 1, 0));
    assert_eq!(summary.modify_index, world.root.index());
    assert!(world.root.job_summary(&key("none")).is_none());
}

#[test]
fn children_are_found_and_counted() {
    let mut world = World::default();
    let mut child = job("cron/periodic-1", JobType::Batch, 1);
    child.parent_id = "cron".into();
    world.register(&job("cron", JobType::Batch, 1), "e1");
    world.register(&job("cron-other", JobType::Batch, 1), "e2");
    world.register(&child, "e3");
    let children: Vec<&str> = world.root.children(&key("cron")).map(|j| j.id.as_str()).collect();
    assert_eq!(children, ["cron/periodic-1"]);
    assert_eq!(world.root.job_summary(&key("cron")).unwrap().children.pending, 1);
    let found = |ns: Option<&str>, prefix: &str| {
        world.root.jobs_with_prefix(ns.map(Into::into).as_ref(), prefix).count()
    };
    assert_eq!((found(Some("default"), "cron"), found(None, "cron-"), found(Some("else"), "")), (3, 1, 0));
}

#[test]
fn an_evaluation_that_placed_everything_cancels_blocked_ones() {
    let mut world = World::default();
    world.register(&job("web", JobType::Service, 1), "e1");
    world.end_eval("e1", EvalStatus::Blocked, &[("g", 1)]);
    world.register(&job("web", JobType::Service, 1), "e2");
    world.end_eval("e2", EvalStatus::Complete, &[("g", 0)]);
    let old = shared(world.root.eval(&"e1".into()));
    assert_eq!(old.status, EvalStatus::Canceled);
    assert_eq!(old.status_description, "evaluation \"e2\" successful");
    assert_eq!(world.root.job_summary(&key("web")).unwrap().summary["g"].queued, 0);
}
