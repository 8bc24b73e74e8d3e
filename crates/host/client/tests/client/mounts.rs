//! Mounts that break, are sealed, get owners, expand or report usage, and plugins that misbehave.

use crate::fake::{Fake, PLUGIN, What};
use crate::support::{Agent, alloc, kinds, poll, shell};
use caravan_client::CsiFault;
use caravan_messages::{ClaimGrant, ClaimReportStep, NodeExpand};
use caravan_proto::csi::node_service_capability::rpc::Type as Can;
use caravan_sys::mount::{Unmount, is_mount_point, unmount};
use caravan_types::VolumeKey;
use caravan_types::alloc::{Allocation, ClientStatus, TaskState};
use caravan_types::job::{BrokenMount, JobType, VolumeMount, VolumeRequest};
use caravan_types::volume::{AccessMode, AttachmentMode, Claim, ClaimId, ClaimMode, ClaimPhase};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

fn claim(alloc: &str, volume: &str) -> ClaimId {
    ClaimId { volume: VolumeKey::new("default", volume), alloc: alloc.into() }
}

/// Returns a volume request for a single writer of a file system.
fn request(volume: &str) -> VolumeRequest {
    VolumeRequest {
        name: "vol".into(),
        source: volume.into(),
        access_mode: AccessMode::MultiNodeMultiWriter,
        attachment_mode: AttachmentMode::FileSystem,
        ..Default::default()
    }
}

/// Returns an allocation that only uses a volume.
fn consumer(id: &str, driver: &str, request: &VolumeRequest) -> Allocation {
    let mut task = shell("user", driver, "exec sleep 600");
    task.volume_mounts =
        vec![VolumeMount { volume: "vol".into(), destination: "/srv/data".into(), ..Default::default() }];
    let mut alloc = alloc(id, JobType::Service, vec![task]);
    let mut job = (*alloc.job.clone().unwrap()).clone();
    job.task_groups[0].volumes.insert("vol".into(), request.clone());
    alloc.job = Some(Arc::new(job));
    alloc
}

fn grant(id: &str, request: &VolumeRequest) -> ClaimGrant {
    ClaimGrant {
        claim: Claim {
            id: claim(id, &request.source),
            alias: "vol".into(),
            mode: if request.read_only { ClaimMode::Read } else { ClaimMode::Write },
            access_mode: request.access_mode,
            attachment_mode: request.attachment_mode,
            plugin_id: PLUGIN.into(),
            phase: ClaimPhase::Attached,
            ..Default::default()
        },
        external_volume_id: request.source.clone(),
        ..Default::default()
    }
}

async fn run(agent: &Agent, id: &str, driver: &str, request: &VolumeRequest) {
    agent.servers.grant(grant(id, request));
    agent.servers.run(consumer(id, driver, request));
    agent.servers.status(id, ClientStatus::Running).await;
}

/// Returns the path at which a volume is published to an allocation.
fn published(agent: &Agent, alloc: &str, volume: &str) -> PathBuf {
    let dir =
        agent.dir.path().join("client/csi/node").join(PLUGIN).join("per-alloc").join(alloc).join(volume);
    std::fs::read_dir(dir).unwrap().flatten().next().unwrap().path()
}

/// Returns the path at which a task without a separate root sees the volume.
fn seen(agent: &Agent, alloc: &str) -> PathBuf {
    agent.handle.alloc_dir(&alloc.into()).unwrap().join("user/srv/data")
}

fn says(task: &TaskState, kind: &str, words: &str) -> bool {
    task.events.iter().any(|e| e.kind == kind && e.display().contains(words))
}

async fn broken(policy: BrokenMount, driver: &str) -> Option<(Agent, Fake, TaskState)> {
    if !std::path::Path::new("/dev/fuse").exists() {
        return None;
    }
    let agent = Agent::start();
    let fake = Fake::start(&agent, &[]).await;
    fake.is("data", What::Fuse);
    run(&agent, "c1", driver, &VolumeRequest { broken_mount: policy, ..request("data") }).await;
    fake.crash();
    let reported = agent
        .servers
        .task("c1", "the broken mount is an event", |t| {
            let words = format!("not connected (broken_mount: {})", policy.as_str());
            says(t, "Volume mount broken", &words)
        })
        .await;
    agent.servers.node_event("Volume mount broken").await;
    Some((agent, fake, reported))
}

/// The daemon of a FUSE file system dies: the failure is detected and reported, but tasks keep running; no task is
/// started on the dead mount.
#[tokio::test(flavor = "multi_thread")]
async fn a_mount_that_broke_is_held() {
    let Some((agent, fake, reported)) = broken(BrokenMount::Hold, "raw_exec").await else { return };
    assert_eq!(reported.restarts, 0);
    // An agent that starts meanwhile does not start tasks on it either.
    let agent = agent.restart().await;
    let still = "the next agent tells it again";
    let reported = |t: &TaskState| {
        t.events.iter().filter(|e| e.kind == "Volume mount broken").count() == 2 && t.restarts == 0
    };
    agent.servers.task("c1", still, reported).await;
    assert_eq!(fake.calls("Publish", "data"), 1);
    agent.handle.signal(&"c1".into(), Some("user"), "SIGKILL").await.unwrap();
    let update = agent.servers.status("c1", ClientStatus::Failed).await;
    assert!(says(&update.task_states["user"], "Task hook failed", "is not mounted as it was published"));
    agent.servers.reported("c1", |s| *s == ClaimReportStep::Unstaged).await;
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_started_anew_on_a_new_mount() {
    let Some((agent, fake, _)) = broken(BrokenMount::Restart, "raw_exec").await else { return };
    let renewed = |t: &TaskState| kinds(t).ends_with(&["Started"]) && says(t, "Volume mounted again", "vol");
    let either = |t: &TaskState| {
        renewed(t)
            || (says(t, "Volume mounted again", "vol") && says(t, "Restart Signaled", "Volume mount broken"))
    };
    agent.servers.task("c1", "it runs on a new mount", either).await;
    poll("the new mount is seen", || seen(&agent, "c1").join("generation-2").exists()).await;
    assert_eq!(fake.calls("Publish", "data"), 2);
    let update = agent.servers.status("c1", ClientStatus::Running).await;
    assert_eq!(update.task_states["user"].restarts, 1);
    agent.servers.stop("c1");
    agent.servers.reported("c1", |s| *s == ClaimReportStep::Unstaged).await;
    agent.clean().await;
}

/// The task continues, and files that it opens next are on the new mount.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_mount_is_made_beneath_a_task_on_the_host() {
    let Some((agent, _, _)) = broken(BrokenMount::Remount, "raw_exec").await else { return };
    let reported =
        agent.servers.task("c1", "mounted again", |t| says(t, "Volume mounted again", "vol")).await;
    assert_eq!(reported.restarts, 0, "{:?}", kinds(&reported));
    assert!(seen(&agent, "c1").join("generation-2").exists());
    agent.servers.stop("c1");
    agent.servers.reported("c1", |s| *s == ClaimReportStep::Unstaged).await;
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_mount_is_made_beneath_a_task_in_a_root_of_its_own() {
    let Some((agent, _, _)) = broken(BrokenMount::Remount, "exec").await else { return };
    let reported =
        agent.servers.task("c1", "mounted again", |t| says(t, "Volume mounted again", "vol")).await;
    assert_eq!(reported.restarts, 0, "{:?}", reported.events);
    let look = ["/bin/ls", "-d", "/srv/data/generation-2"].map(str::to_owned);
    let output = agent.handle.exec(&"c1".into(), "user", &look, Duration::from_secs(10)).await.unwrap();
    assert_eq!(output.exit_code, 0, "{output:?}");
    agent.servers.stop("c1");
    agent.servers.reported("c1", |s| *s == ClaimReportStep::Unstaged).await;
    agent.clean().await;
}

/// Design rule 1: the directory beneath a mount point is unwritable, also for root; an unmount by another program is
/// detected.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_where_a_mount_was() {
    let agent = Agent::start();
    let fake = Fake::start(&agent, &[Can::StageUnstageVolume]).await;
    run(&agent, "c1", "raw_exec", &request("data")).await;
    let target = published(&agent, "c1", "data");
    std::fs::write(target.join("kept"), "x").unwrap();
    assert!(fake.data("data").join("kept").exists());
    let staging = agent.dir.path().join("client/csi/node/fake/staging/default/data");
    let stage = std::fs::read_dir(staging).unwrap().flatten().next().unwrap().path();
    for place in [&target, &stage, &seen(&agent, "c1")] {
        assert!(unmount(place, Unmount::Lazy).unwrap(), "{}", place.display());
        assert!(std::fs::write(place.join("lost"), "x").is_err(), "{}", place.display());
    }
    let reported = |t: &TaskState| says(t, "Volume mount broken", "nothing is mounted at");
    agent.servers.task("c1", "the end of the mount is an event", reported).await;
    agent.servers.stop("c1");
    agent.servers.reported("c1", |s| *s == ClaimReportStep::Unstaged).await;
    assert!(!target.exists() && !stage.exists());
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_that_somebody_ended_is_made_anew() {
    let agent = Agent::start();
    let fake = Fake::start(&agent, &[Can::StageUnstageVolume]).await;
    let wish = VolumeRequest { broken_mount: BrokenMount::Remount, ..request("data") };
    run(&agent, "c1", "raw_exec", &wish).await;
    let target = published(&agent, "c1", "data");
    unmount(&target, Unmount::Lazy).unwrap();
    agent.servers.task("c1", "mounted again", |t| says(t, "Volume mounted again", "vol")).await;
    assert!(is_mount_point(&target).unwrap());
    assert_eq!((fake.calls("Unstage", "data"), fake.calls("Publish", "data")), (0, 2), "the stage was well");
    agent.servers.stop("c1");
    agent.servers.reported("c1", |s| *s == ClaimReportStep::Unstaged).await;
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_and_mode_are_set_once() {
    let agent = Agent::start();
    let fake = Fake::start(&agent, &[]).await;
    let wish =
        VolumeRequest { user: "nobody".into(), group: "4711".into(), mode: "2770".into(), ..request("data") };
    run(&agent, "c1", "raw_exec", &wish).await;
    let meta = std::fs::metadata(fake.data("data")).unwrap();
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (65534, 4711, 0o2770));
    assert_eq!(fake.groups(), [""]);
    // A restarted agent or task does not revert later changes of the owner.
    std::os::unix::fs::chown(fake.data("data"), Some(7), None).unwrap();
    agent.handle.restart(&"c1".into(), Some("user"), false).unwrap();
    agent.servers.task("c1", "it is started again", |t| t.restarts == 1).await;
    agent.servers.status("c1", ClientStatus::Running).await;
    assert_eq!(std::fs::metadata(fake.data("data")).unwrap().uid(), 7);

    let bad = VolumeRequest { user: "no-such-user".into(), ..request("other") };
    agent.servers.grant(grant("c2", &bad));
    agent.servers.run(consumer("c2", "raw_exec", &bad));
    let update = agent.servers.status("c2", ClientStatus::Failed).await;
    let words = "volume \"vol\" cannot have this user: unknown user \"no-such-user\"";
    assert!(says(&update.task_states["user"], "Setup Failure", words), "{:?}", update.task_states);
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_group_is_the_plugins_where_it_can_do_that() {
    let agent = Agent::start();
    let fake = Fake::start(&agent, &[Can::VolumeMountGroup]).await;
    std::fs::create_dir_all(fake.data("data")).unwrap();
    let before = std::fs::metadata(fake.data("data")).unwrap().gid();
    let wish = VolumeRequest { group: "4711".into(), mode: "0711".into(), ..request("data") };
    run(&agent, "c1", "raw_exec", &wish).await;
    let meta = std::fs::metadata(fake.data("data")).unwrap();
    assert_eq!((meta.gid(), meta.mode() & 0o7777), (before, 0o711));
    assert_eq!(fake.groups(), ["4711"]);
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mounted_volume_grows_where_the_plugin_can_do_that() {
    for can in [true, false] {
        let agent = Agent::start();
        let both = [Can::StageUnstageVolume, Can::ExpandVolume];
        let fake = Fake::start(&agent, if can { &both } else { &both[..1] }).await;
        run(&agent, "c1", "raw_exec", &request("data")).await;
        let ask = |alloc: &str, generation| NodeExpand {
            claim: claim(alloc, "data"),
            generation,
            capacity_min: 1000,
            capacity_max: 0,
            mount_options: None,
            secrets: Default::default(),
        };
        let answer = agent.handle.node_expand(ask("c1", 0)).await;
        if can {
            assert_eq!(answer.unwrap().capacity_bytes, 1001);
            for unknown in [ask("c2", 0), ask("c1", 1)] {
                let error = agent.handle.node_expand(unknown).await.unwrap_err();
                assert!(matches!(error, CsiFault::Unknown(_)), "{error}");
            }
        } else {
            let words = answer.unwrap_err().to_string();
            assert!(words.contains("does not grow volumes on the node"), "{words}");
            assert_eq!(fake.calls("Expand", "data"), 0);
        }
        agent.clean().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_hear_how_full_volumes_are() {
    let agent = Agent::start();
    let fake = Fake::start(&agent, &[Can::GetVolumeStats, Can::VolumeCondition]).await;
    fake.abnormal("a disk is missing");
    run(&agent, "c1", "raw_exec", &request("data")).await;
    let reported = |all: &[(VolumeKey, caravan_types::volume::VolumeUsage)]| {
        all.iter().any(|(volume, usage)| {
            *volume == VolumeKey::new("default", "data")
                && (usage.total_bytes, usage.used_bytes, usage.available_inodes) == (100, 1, 9)
                && usage.condition.as_ref().is_some_and(|c| c.abnormal)
        })
    };
    agent.servers.usage("the use of the volume is told", reported).await;
    let event = agent.servers.node_event("Volume condition abnormal").await;
    assert_eq!(event.details["error"], "a disk is missing");
    agent.servers.stop("c1");
    agent.servers.usage("the volume is not there any more", <[_]>::is_empty).await;
    agent.clean().await;
}

/// docs/design/rough-edges.md, 14: block devices are usable, within the task's control group, and only as the job
/// allows.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_device_is_a_device_in_the_task() {
    let agent = Agent::start();
    let image = agent.dir.path().join("image");
    std::fs::write(&image, vec![b'x'; 1 << 20]).unwrap();
    let made = Command::new("losetup").args(["--find", "--show"]).arg(&image).output();
    let Some(device) = made.ok().filter(|o| o.status.success()) else { return agent.clean().await };
    let device = PathBuf::from(String::from_utf8(device.stdout).unwrap().trim());
    let fake = Fake::start(&agent, &[]).await;
    fake.is("data", What::Device(device.clone()));
    for (id, driver, read_only) in [("c1", "exec", false), ("c2", "exec", true), ("c3", "raw_exec", false)] {
        let wish =
            VolumeRequest { attachment_mode: AttachmentMode::BlockDevice, read_only, ..request("data") };
        let mut alloc = consumer(id, driver, &wish);
        let mut job = (*alloc.job.clone().unwrap()).clone();
        job.task_groups[0].tasks[0].user = "root".into();
        alloc.job = Some(Arc::new(job));
        agent.servers.grant(grant(id, &wish));
        agent.servers.run(alloc);
        agent.servers.status(id, ClientStatus::Running).await;
        let place = if driver == "exec" { PathBuf::from("/srv/data") } else { seen(&agent, id) };
        let dd = |from: String, to: String| {
            let script = format!("dd {from} {to} bs=512 count=1 2>&1");
            vec!["/bin/sh".to_owned(), "-c".to_owned(), script]
        };
        let path = place.display();
        let read = dd(format!("if={path}"), "of=/dev/null".into());
        let write = dd("if=/dev/zero".into(), format!("of={path} conv=notrunc"));
        for (command, allowed) in [(read, true), (write, !read_only)] {
            let output =
                agent.handle.exec(&id.into(), "user", &command, Duration::from_secs(10)).await.unwrap();
            assert_eq!(output.exit_code == 0, allowed, "{id} {command:?} {output:?}");
        }
        if driver == "raw_exec" {
            assert!(unmount(&place, Unmount::Lazy).unwrap());
            assert!(std::fs::write(&place, "lost").is_err(), "nothing is written where the device was");
        }
        agent.servers.stop(id);
        agent.servers.reported(id, |s| *s == ClaimReportStep::Unstaged).await;
    }
    agent.clean().await;
    assert!(Command::new("losetup").arg("--detach").arg(&device).status().unwrap().success());
}

/// docs/design/rough-edges.md, 7 and 13: a plugin that hangs for one volume does not delay other volumes.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_hangs_delays_no_other_volume() {
    let agent = Agent::start();
    let fake = Fake::start(&agent, &[Can::StageUnstageVolume]).await;
    fake.hang("Stage", "slow");
    let slow = request("slow");
    agent.servers.grant(grant("c1", &slow));
    agent.servers.run(consumer("c1", "raw_exec", &slow));
    fake.called("Stage", "slow").await;
    run(&agent, "c2", "raw_exec", &request("data")).await;
    // The release of the hanging mount does not overtake the mount: it waits for the plugin's response.
    agent.servers.stop("c1");
    run(&agent, "c3", "raw_exec", &request("more")).await;
    assert_eq!(fake.calls("Unstage", "slow"), 0);
    fake.let_go();
    agent.servers.reported("c1", |s| *s == ClaimReportStep::Unstaged).await;
    agent.clean().await;
}

/// docs/design/rough-edges.md, 10: a volume that was staged for a failed publish is unstaged, and no directory is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_publish_that_fails_leaves_no_stage_behind() {
    let agent = Agent::start();
    let fake = Fake::start(&agent, &[Can::StageUnstageVolume]).await;
    fake.fail("Publish", "data", true);
    let wish = request("data");
    agent.servers.grant(grant("c1", &wish));
    agent.servers.run(consumer("c1", "raw_exec", &wish));
    let update = agent.servers.status("c1", ClientStatus::Failed).await;
    assert!(says(&update.task_states["user"], "Setup Failure", "Publish fails today"));
    agent.servers.reported("c1", |s| *s == ClaimReportStep::Unstaged).await;
    assert_eq!(fake.calls("Unstage", "data"), 1);
    let root = agent.dir.path().join("client/csi/node/fake");
    assert!(!root.join("staging").exists() && !root.join("per-alloc").exists());
    agent.clean().await;
}

/// docs/design/rough-edges.md, 11 and 12: until the node has unmounted the volume, the servers receive no proof, so
/// they never detach. The unmount is retried until it succeeds, also by the next agent.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_unmount_is_never_taken_for_an_end() {
    let agent = Agent::start();
    let fake = Fake::start(&agent, &[]).await;
    run(&agent, "c1", "raw_exec", &request("data")).await;
    fake.fail("Unpublish", "data", true);
    agent.servers.stop("c1");
    let failed = |s: &ClaimReportStep| matches!(s, ClaimReportStep::Failed { error, tries } if *tries >= 2 && error.contains("Unpublish fails today"));
    agent.servers.reported("c1", failed).await;
    let ended = |s: &ClaimReportStep| matches!(s, ClaimReportStep::Unpublished | ClaimReportStep::Unstaged);
    assert!(!agent.servers.reports("c1").iter().any(ended));
    let agent = agent.restart().await;
    fake.fail("Unpublish", "data", false);
    agent.servers.reported("c1", |s| *s == ClaimReportStep::Unstaged).await;
    agent.clean().await;
}

/// The remains of a killed agent: a mount without a record is unmounted, and sealed directories are removed.
#[tokio::test(flavor = "multi_thread")]
async fn left_over_mounts_and_directories_are_ended_at_start() {
    let agent = Agent::start();
    let fake = Fake::start(&agent, &[]).await;
    run(&agent, "c1", "raw_exec", &request("data")).await;
    let (servers, dir) = agent.end().await;
    let root = dir.path().join("client/csi/node/fake");
    let (mounted, sealed) = (root.join("per-alloc/gone/old/rw"), root.join("staging/default/old/rw"));
    for path in [&mounted, &sealed] {
        std::fs::create_dir_all(path).unwrap();
        caravan_sys::seal::seal_beneath(path).unwrap();
    }
    caravan_sys::mount::mount_tmpfs(&mounted, 1 << 20, 0o700).unwrap();
    let agent = Agent::resume(servers, dir);
    agent.servers.node_event("Ended a mount that no claim knows").await;
    poll("the directories are removed", || !mounted.exists() && !sealed.exists()).await;
    assert!(!root.join("per-alloc/gone").exists());
    let target = published(&agent, "c1", "data");
    assert!(is_mount_point(&target).unwrap(), "what is live stays");
    assert_eq!(fake.calls("Publish", "data"), 1);
    agent.clean().await;
}
