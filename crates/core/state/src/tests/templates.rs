//! Jobs that create other jobs.

use super::build::{World, eval, job, key, periodic};
use crate::{Root, decode, encode};
use caravan_types::UnixNanos;
use caravan_types::command::{Change, Refusal};
use caravan_types::job::{Job, JobStatus, JobType};

fn child(id: &str, parent: &str) -> Job {
    Job { parent_id: parent.into(), ..job(id, JobType::Batch, 1) }
}

fn make(job: &Job, launched: Option<UnixNanos>) -> Change {
    Change::JobChild { job: Box::new(job.clone()), eval: Some(eval(job.id.as_str(), job)), launched }
}

fn register(world: &mut World, job: Job) {
    let job = Box::new(job);
    world.apply(Change::JobRegister { job, expect_modify_index: None, eval: None, source: None });
}

#[test]
fn the_last_launch_is_kept_as_long_as_there_are_launches() {
    let mut world = World::default();
    register(&mut world, periodic("cron", true));
    let registered = world.root.periodic_launch(&key("cron")).unwrap();
    assert_eq!(registered, UnixNanos(1_001), "nothing that was due before is made up for");
    let one = child("cron/periodic-7", "cron");
    let at = UnixNanos(7_000_000_000);
    world.apply(make(&one, Some(at)));
    assert_eq!(world.root.periodic_launch(&key("cron")), Some(at));
    assert_eq!(world.root.job(&one.key()).unwrap().status, JobStatus::Pending);
    assert_eq!(world.root.job(&key("cron")).unwrap().status, JobStatus::Running);
    assert_eq!(decode(&encode(&world.root)).unwrap().periodic_launch(&key("cron")), Some(at));

    // A new specification keeps the launch time, a stop removes it.
    register(&mut world, Job { priority: 70, ..periodic("cron", true) });
    assert_eq!(world.root.periodic_launch(&key("cron")), Some(at));
    world.apply(Change::JobDeregister { key: key("cron"), purge: false, eval: None });
    assert_eq!(world.root.periodic_launch(&key("cron")), None);
    register(&mut world, periodic("cron", true));
    assert_ne!(world.root.periodic_launch(&key("cron")), Some(at), "from its new beginning on");
    register(&mut world, periodic("cron", false));
    assert_eq!(world.root.periodic_launch(&key("cron")), None);
    let late = world.try_apply(make(&child("cron/periodic-8", "cron"), Some(at))).refused;
    assert!(late.is_some(), "it was switched off meanwhile");
    world.apply(Change::JobDeregister { key: key("cron"), purge: true, eval: None });
    assert!(world.root.job(&one.key()).is_some(), "children live their own lives");
    assert_eq!(Root::default().periodic_launch(&key("cron")), None);
}

#[test]
fn a_child_is_made_once_and_by_a_parent_that_runs() {
    let mut world = World::default();
    let one = child("cron/periodic-7", "cron");
    let orphan = world.try_apply(make(&one, None)).refused.unwrap();
    assert!(matches!(orphan, Refusal::NotFound { .. }), "{orphan}");
    register(&mut world, periodic("cron", true));
    world.apply(make(&one, None));
    let twice = world.try_apply(make(&one, None)).refused.unwrap();
    assert!(matches!(twice, Refusal::JobModifyIndex { expected: 0, .. }), "{twice}");

    let with = |id: &str, token: &str| Job {
        dispatch_idempotency_token: token.into(),
        ..child(&format!("cron/dispatch-{id}"), "cron")
    };
    world.apply(make(&with("1", "once"), None));
    let same = world.try_apply(make(&with("2", "once"), None)).refused.unwrap();
    assert!(matches!(same, Refusal::Changed { .. }), "{same}");
    world.apply(make(&with("3", "other"), None));
    world.apply(make(&with("4", ""), None));
    world.apply(make(&with("5", ""), None));
    let found = world.root.dispatched_with(&key("cron"), "once").unwrap();
    assert_eq!(found.id, "cron/dispatch-1");
    assert!(world.root.dispatched_with(&key("cron"), "").is_none());
    world.apply(Change::JobDeregister { key: key("cron"), purge: false, eval: None });
    assert!(world.try_apply(make(&child("cron/periodic-9", "cron"), None)).refused.is_some());
}
