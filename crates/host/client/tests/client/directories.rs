//! Directories of tasks under a restarted agent, and disks whose data is a link.

use crate::support::{Agent, alloc, poll, shell};
use caravan_sys::mountinfo::MountTable;
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::job::{EphemeralDisk, JobType};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Arc;

const NOBODY: u32 = 65534;

fn seen(path: &Path) -> (u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.mode() & 0o7777)
}

/// Gives the directories of an allocation the owners and modes of earlier agents.
fn make_old(dir: &Path) {
    for (path, uid) in [
        ("alloc", NOBODY),
        ("alloc/data", NOBODY),
        ("alloc/logs", NOBODY),
        ("alloc/tmp", NOBODY),
        ("web", NOBODY),
        ("web/local", NOBODY),
        ("web/secrets", 0),
    ] {
        let path = dir.join(path);
        chown(&path, Some(uid), Some(uid)).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_of_a_running_task_get_owners_and_modes_at_an_upgrade() {
    let agent = Agent::start();
    let mut web = shell("web", "raw_exec", "exec sleep 1000");
    web.user = "nobody".into();
    agent.servers.run(alloc("a1", JobType::Service, vec![web]));
    agent.servers.status("a1", ClientStatus::Running).await;
    let dir = agent.handle.alloc_dir(&"a1".into()).unwrap();
    make_old(&dir);
    let canary = dir.parent().unwrap().join("canary");
    fs::create_dir(&canary).unwrap();
    fs::set_permissions(&canary, Permissions::from_mode(0o700)).unwrap();
    // While the older agent ran, the task put a link there.
    fs::remove_dir(dir.join("web/tmp")).unwrap();
    symlink(&canary, dir.join("web/tmp")).unwrap();
    let mounts = || MountTable::read().unwrap().under(&dir.canonicalize().unwrap()).count();
    let before = mounts();

    let agent = agent.restart().await;
    poll("the task's directory is root's", || seen(&dir.join("web/local")) == (0, 0o777)).await;
    let reported = agent.servers.task("a1", "an event about the link", |task| {
        task.events.iter().any(|event| event.display().contains("web/tmp"))
    });
    let reported = reported.await;
    assert_eq!(reported.restarts, 0);
    fs::remove_file(dir.join("web/tmp")).unwrap();
    fs::create_dir(dir.join("web/tmp")).unwrap();

    let agent = agent.restart().await;
    poll("the secrets are the task's", || seen(&dir.join("web/secrets")) == (NOBODY, 0o700)).await;
    for (path, access) in [
        ("alloc", (0, 0o1777)),
        ("alloc/data", (0, 0o777)),
        ("alloc/logs", (0, 0o777)),
        ("web", (0, 0o1777)),
        ("web/tmp", (0, 0o1777)),
        ("web/private", (0, 0o700)),
    ] {
        poll(path, || seen(&dir.join(path)) == access).await;
    }
    assert_eq!((mounts(), seen(&canary)), (before, (0, 0o700)));
    let (status, tasks) = agent.handle.status(&"a1".into()).unwrap();
    assert_eq!((status, tasks["web"].restarts), (ClientStatus::Running, 0));
    agent.clean().await;
}

fn with_disk(id: &str, previous: &str, script: &str) -> Allocation {
    let mut alloc = alloc(id, JobType::Service, vec![shell("web", "raw_exec", script)]);
    let job = Arc::make_mut(alloc.job.as_mut().unwrap());
    job.task_groups[0].ephemeral_disk = Some(EphemeralDisk { sticky: true, migrate: true, size_mb: 1 });
    Allocation { previous_allocation: previous.into(), ..alloc }
}

/// Runs an allocation until its script wrote `done`, and stops it.
async fn ran(agent: &Agent, first: Allocation) {
    let id = first.id.clone();
    agent.servers.run(first);
    agent.servers.status(id.as_str(), ClientStatus::Running).await;
    let done = agent.handle.alloc_dir(&id).unwrap().join("web/done");
    poll("the task is done", || done.exists()).await;
    agent.servers.stop(id.as_str());
    agent.servers.status(id.as_str(), ClientStatus::Complete).await;
}

async fn words(agent: &Agent, id: &str) -> String {
    let update = agent.servers.status(id, ClientStatus::Running).await;
    let events = update.task_states["web"].events.iter();
    events.map(|event| event.display()).collect::<Vec<_>>().join("\n")
}

/// The data of the first allocation is a link to a directory of the host. No successor receives its content, neither
/// on the same node nor on another.
#[tokio::test(flavor = "multi_thread")]
async fn data_that_is_a_link_is_neither_moved_nor_packed() {
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("canary"), "precious content").unwrap();
    let plant = format!(
        "rm -rf $NOMAD_ALLOC_DIR/data; ln -s {} $NOMAD_ALLOC_DIR/data; touch done; exec sleep 1000",
        host.path().display()
    );
    let (old, new) = (Agent::start(), Agent::start());
    ran(&old, with_disk("a1", "", &plant)).await;
    let sleep = "exec sleep 1000";
    old.servers.run(with_disk("a2", "a1", sleep));
    let reported = words(&old, "a2").await;
    assert!(reported.contains("could not be taken over") && reported.contains("alloc/data"), "{reported}");
    new.servers.set_neighbour(&old.handle);
    new.servers.run(with_disk("a3", "a1", sleep));
    let reported = words(&new, "a3").await;
    assert!(reported.contains("could not be taken over") && reported.contains("alloc/data"), "{reported}");
    for (agent, id) in [(&old, "a2"), (&new, "a3")] {
        let data = agent.handle.alloc_dir(&id.into()).unwrap().join("alloc/data");
        assert!(data.symlink_metadata().unwrap().is_dir() && fs::read_dir(data).unwrap().count() == 0);
    }
    assert_eq!(seen(&host.path().join("canary")), (0, 0o644));
    old.clean().await;
    new.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_larger_than_the_job_says_stays_where_it_is() {
    let fill = "head -c 2000000 /dev/zero > $NOMAD_ALLOC_DIR/data/large; touch done; exec sleep 1000";
    let (old, new) = (Agent::start(), Agent::start());
    ran(&old, with_disk("a1", "", fill)).await;
    new.servers.set_neighbour(&old.handle);
    new.servers.run(with_disk("a2", "a1", "exec sleep 1000"));
    let reported = words(&new, "a2").await;
    assert!(reported.contains("ephemeral_disk, whose size is 1 MiB"), "{reported}");
    let dir = new.handle.alloc_dir(&"a2".into()).unwrap();
    assert!(!dir.join("alloc/data/large").exists() && !dir.join(".disk").exists());
    old.clean().await;
    new.clean().await;
}
