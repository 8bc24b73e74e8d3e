//! Volumes of the bundled plugin: claimed, mounted, shared, released.

use crate::plugins::{healthy, plugin};
use crate::support::{Agent, alloc, poll, shell};
use caravan_messages::{
    ClaimGrant, ClaimProgress, ClaimReportStep, ControllerAnswer, ControllerCall, ControllerOperation,
};
use caravan_types::VolumeKey;
use caravan_types::alloc::{Allocation, ClientStatus, event};
use caravan_types::job::{CsiPluginType, JobType, PropagationMode, VolumeMount, VolumeRequest};
use caravan_types::volume::{AccessMode, AttachmentMode, Capability, Claim, ClaimId, ClaimMode, ClaimPhase};
use std::sync::Arc;

const MODE: (AccessMode, AttachmentMode) = (AccessMode::MultiNodeMultiWriter, AttachmentMode::FileSystem);

pub async fn create(agent: &Agent, name: &str) -> (String, std::collections::BTreeMap<String, String>) {
    let operation = ControllerOperation::Create {
        name: name.into(),
        capacity_min: 0,
        capacity_max: 0,
        capabilities: vec![Capability { access_mode: MODE.0, attachment_mode: MODE.1 }],
        mount_options: None,
        parameters: Default::default(),
        secrets: Default::default(),
        clone_id: String::new(),
        snapshot_id: String::new(),
        topology: None,
    };
    let call = ControllerCall { plugin_id: "hostpath".into(), operation };
    match agent.handle.controller_call(call).await.unwrap() {
        ControllerAnswer::Created { external_id, context, .. } => (external_id, context),
        other => panic!("{other:?}"),
    }
}

pub fn claim(alloc: &str) -> ClaimId {
    ClaimId { volume: VolumeKey::new("default", "data"), alloc: alloc.into() }
}

pub fn grant(alloc: &str, volume: &(String, std::collections::BTreeMap<String, String>)) -> ClaimGrant {
    ClaimGrant {
        claim: Claim {
            id: claim(alloc),
            alias: "vol".into(),
            mode: ClaimMode::Write,
            access_mode: MODE.0,
            attachment_mode: MODE.1,
            plugin_id: "hostpath".into(),
            phase: ClaimPhase::Attached,
            ..Default::default()
        },
        external_volume_id: volume.0.clone(),
        volume_context: volume.1.clone(),
        ..Default::default()
    }
}

pub fn writer(id: &str, driver: &str) -> Allocation {
    let destination = "/srv/data".to_owned();
    let place = if driver == "raw_exec" { "srv/data" } else { "/srv/data" };
    let script = format!("while :; do echo {id} >> {place}/{id}; sleep 0.02; done");
    let mut task = shell("writer", driver, &script);
    task.volume_mounts = vec![VolumeMount {
        volume: "vol".into(),
        destination,
        propagation_mode: PropagationMode::Private,
        ..Default::default()
    }];
    let mut alloc = alloc(id, JobType::Service, vec![task]);
    let mut job = (*alloc.job.clone().unwrap()).clone();
    let request = VolumeRequest {
        name: "vol".into(),
        source: "data".into(),
        access_mode: MODE.0,
        attachment_mode: MODE.1,
        ..Default::default()
    };
    job.task_groups[0].volumes.insert("vol".into(), request);
    alloc.job = Some(Arc::new(job));
    alloc
}

/// Returns the number of mounts of volumes below the plugin roots.
pub fn mounts(agent: &Agent, part: &str) -> usize {
    let table = caravan_sys::mountinfo::MountTable::read().unwrap();
    table.under(&agent.dir.path().join("client/csi")).filter(|m| m.target.iter().any(|p| p == part)).count()
}

fn grown(agent: &Agent, alloc: &str) -> Option<u64> {
    let dir = agent.handle.alloc_dir(&alloc.into()).ok()?;
    let target = dir.join("writer/srv/data").join(alloc);
    let published = agent.dir.path().join("client/csi/monolith/hostpath/per-alloc").join(alloc).join("data");
    let inside = std::fs::read_dir(published).ok()?.flatten().next()?.path().join(alloc);
    target.metadata().or_else(|_| inside.metadata()).ok().map(|m| m.len())
}

pub async fn writes(agent: &Agent, alloc: &str) {
    let before = grown(agent, alloc).unwrap_or(0);
    poll(&format!("{alloc} writes"), || grown(agent, alloc).is_some_and(|now| now > before)).await;
}

/// docs/design/rough-edges.md, 8: a restarted agent still has the users of a stage recorded, so that the first
/// release does not unstage the volume while others use it.
async fn life_of_a_volume(plugin_driver: &str, task_driver: &str) {
    let agent = Agent::start();
    agent.servers.run(plugin(&agent, "p1", plugin_driver, CsiPluginType::Monolith));
    agent.servers.node("the plugin is healthy", healthy).await;
    let volume = create(&agent, "data").await;

    agent.servers.say(claim("c1"), ClaimProgress::Waiting { reason: "the volume is in use".into() });
    agent.servers.run(writer("c1", task_driver));
    let waiting = |t: &caravan_types::alloc::TaskState| {
        t.events.iter().any(|e| e.kind == event::WAITING_FOR_VOLUME && e.display() == "the volume is in use")
    };
    agent.servers.task("c1", "the reason of the wait is an event", waiting).await;
    agent.servers.grant(grant("c1", &volume));
    agent.servers.status("c1", ClientStatus::Running).await;
    agent.servers.reported("c1", |s| matches!(s, ClaimReportStep::Mounted { .. })).await;
    writes(&agent, "c1").await;
    agent.servers.grant(grant("c2", &volume));
    agent.servers.run(writer("c2", task_driver));
    agent.servers.status("c2", ClientStatus::Running).await;
    writes(&agent, "c2").await;
    assert_eq!(mounts(&agent, "staging"), 1, "the stage is shared");
    let published = mounts(&agent, "per-alloc");

    let agent = agent.restart().await;
    writes(&agent, "c1").await;
    assert_eq!((mounts(&agent, "staging"), mounts(&agent, "per-alloc")), (1, published));
    agent.servers.stop("c1");
    agent.servers.status("c1", ClientStatus::Complete).await;
    agent.servers.reported("c1", |s| *s == ClaimReportStep::Unstaged).await;
    assert_eq!(mounts(&agent, "staging"), 1, "the other still uses the stage");
    writes(&agent, "c2").await;

    // The plugin outlives its last mount.
    agent.servers.stop("p1");
    let seen = |t: &caravan_types::alloc::TaskState| {
        t.events.iter().any(|e| e.display().contains("1 volumes are still mounted"))
    };
    agent.servers.task("p1", "the plugin says why it waits", seen).await;
    agent.servers.stop("c2");
    agent.servers.status("c2", ClientStatus::Complete).await;
    agent.servers.reported("c2", |s| *s == ClaimReportStep::Unstaged).await;
    agent.servers.status("p1", ClientStatus::Complete).await;
    assert_eq!((mounts(&agent, "staging"), mounts(&agent, "per-alloc")), (0, 0));
    let steps = agent.servers.reports("c2");
    assert_eq!(steps[steps.len() - 2..], [ClaimReportStep::Unpublished, ClaimReportStep::Unstaged]);
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_lives_under_raw_exec() {
    life_of_a_volume("raw_exec", "raw_exec").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_lives_with_consumers_under_exec() {
    life_of_a_volume("raw_exec", "exec").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_lives_with_a_plugin_under_exec() {
    life_of_a_volume("exec", "raw_exec").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_claim_fails_the_allocation_in_a_sentence() {
    let agent = Agent::start();
    agent.servers.say(claim("c1"), ClaimProgress::Denied { reason: "volume not found: data".into() });
    agent.servers.run(writer("c1", "raw_exec"));
    let update = agent.servers.status("c1", ClientStatus::Failed).await;
    let last = update.task_states["writer"].events.last().unwrap();
    assert_eq!(last.kind, "Setup Failure");
    assert_eq!(
        last.display(),
        "failed to setup alloc: pre-run hook \"csi_hook\" failed: claiming volumes: could not claim volume data: volume not found: data"
    );
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allocation_that_waits_for_its_volume_can_be_stopped() {
    let agent = Agent::start();
    agent.servers.say(claim("c1"), ClaimProgress::Waiting { reason: "busy".into() });
    agent.servers.run(writer("c1", "raw_exec"));
    agent.servers.task("c1", "it waits", |t| !t.events.is_empty()).await;
    agent.servers.stop("c1");
    agent.servers.status("c1", ClientStatus::Complete).await;
    agent.servers.reported("c1", |s| *s == ClaimReportStep::Unstaged).await;
    agent.clean().await;
}

/// The next version of a plugin takes over the mounts of the last one.
async fn a_plugin_is_updated_under_a_mount(driver: &str) {
    let agent = Agent::start();
    agent.servers.run(plugin(&agent, "p1", driver, CsiPluginType::Monolith));
    agent.servers.node("the plugin is healthy", healthy).await;
    let volume = create(&agent, "data").await;
    agent.servers.grant(grant("c1", &volume));
    agent.servers.run(writer("c1", "raw_exec"));
    writes(&agent, "c1").await;
    agent.servers.stop("p1");
    agent.servers.run(plugin(&agent, "p2", driver, CsiPluginType::Monolith));
    agent.servers.status("p1", ClientStatus::Complete).await;
    agent
        .servers
        .node("the new one serves", |n| {
            healthy(n) && n.csi_node_plugins.values().all(|i| i.alloc_id == *"p2")
        })
        .await;
    writes(&agent, "c1").await;
    agent.servers.stop("c1");
    agent.servers.reported("c1", |s| *s == ClaimReportStep::Unstaged).await;
    assert_eq!((mounts(&agent, "staging"), mounts(&agent, "per-alloc")), (0, 0));
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_under_raw_exec_is_updated_under_a_mount() {
    a_plugin_is_updated_under_a_mount("raw_exec").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_under_exec_is_updated_under_a_mount() {
    a_plugin_is_updated_under_a_mount("exec").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_task_starts_without_the_mount_that_was_made() {
    let agent = Agent::start();
    agent.servers.run(plugin(&agent, "p1", "raw_exec", CsiPluginType::Monolith));
    agent.servers.node("the plugin is healthy", healthy).await;
    let volume = create(&agent, "data").await;
    agent.servers.grant(grant("c1", &volume));
    agent.servers.run(writer("c1", "raw_exec"));
    agent.servers.status("c1", ClientStatus::Running).await;
    let table = caravan_sys::mountinfo::MountTable::read().unwrap();
    let csi = agent.dir.path().join("client/csi");
    let published =
        table.under(&csi).find(|m| m.target.iter().any(|p| p == "per-alloc")).unwrap().target.clone();
    caravan_sys::mount::unmount(&published, caravan_sys::mount::Unmount::Lazy).unwrap();
    agent.handle.signal(&"c1".into(), Some("writer"), "SIGKILL").await.unwrap();
    let update = agent.servers.status("c1", ClientStatus::Failed).await;
    let words: Vec<_> = update.task_states["writer"].events.iter().map(|e| e.display()).collect();
    let refused = "prestart hook \"volumes\" failed: volume \"data\" is not mounted as it was published";
    assert!(words.iter().any(|w| w.starts_with(refused)), "{words:?}");
    agent.servers.reported("c1", |s| *s == ClaimReportStep::Unstaged).await;
    agent.clean().await;
}

/// The agent ends at every step of the start of an allocation with a volume: the task is started once, on one mount.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_ends_at_any_step_of_a_start_doubles_nothing() {
    let mut agent = Agent::start();
    agent.servers.run(plugin(&agent, "p1", "raw_exec", CsiPluginType::Monolith));
    agent.servers.node("the plugin is healthy", healthy).await;
    let volume = create(&agent, "data").await;
    for step in 1..10 {
        let id = format!("c{step}");
        let begun = agent.servers.count();
        agent.servers.grant(grant(&id, &volume));
        agent.servers.run(writer(&id, "raw_exec"));
        agent.servers.counted(begun + step, &id).await;
        agent = agent.restart().await;
        let update = agent.servers.status(&id, ClientStatus::Running).await;
        writes(&agent, &id).await;
        assert_eq!(update.task_states["writer"].restarts, 0, "step {step}");
        assert_eq!(processes_of(&agent, &id), 1, "step {step}");
        assert_eq!(mounts(&agent, "staging"), 1, "step {step}");
        agent.servers.stop(&id);
        agent.servers.counted(agent.servers.count() + step % 4, "none").await;
        agent = agent.restart().await;
        agent.servers.reported(&id, |s| *s == ClaimReportStep::Unstaged).await;
        agent.servers.status(&id, ClientStatus::Complete).await;
        assert_eq!((mounts(&agent, "staging"), mounts(&agent, "per-alloc")), (0, 0), "step {step}");
        assert_eq!(processes_of(&agent, &id), 0, "step {step}");
    }
    agent.clean().await;
}

/// Counts the processes of an allocation whose parent is not one of them.
fn processes_of(agent: &Agent, alloc: &str) -> usize {
    let mark = format!("NOMAD_ALLOC_DIR={}/alloc/{alloc}/alloc\0", agent.dir.path().display());
    let mut parents = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1).map(str::to_owned));
        if String::from_utf8_lossy(&environment).contains(&mark) {
            parents.insert(entry.file_name().to_string_lossy().into_owned(), parent.unwrap_or_default());
        }
    }
    parents.values().filter(|parent| !parents.contains_key(*parent)).count()
}

#[tokio::test]
async fn an_allocation_that_is_lost_before_its_start_frees_its_volume() {
    let agent = Agent::start();
    let mut lost = writer("w1", "raw_exec");
    lost.client_status = ClientStatus::Lost;
    agent.servers.run(lost);
    agent.servers.reported("w1", |s| *s == ClaimReportStep::Unstaged).await;
    agent.clean().await;
}
