//! Secrets: sealed in stored data, opened for the plugin's calls only, literal or references.

use crate::make;
use crate::plugin::{CREATE, PUBLISH, Plugin, UNPUBLISH, VALIDATE};
use crate::world::{Client, Cluster, Setup, claim_id, mounted, soon, until};
use caravan_messages::{ClaimProgress, ClaimReportStep, ControllerOperation};
use caravan_server::{Kind, VariableWritten};
use caravan_types::alloc::ClientStatus;
use caravan_types::job::MountOptions;
use caravan_types::ser::Secrets;
use caravan_types::variable::VariableKey;
use caravan_types::volume::{ClaimPhase, VolumePhase, VolumeRequestBody};
use futures::StreamExt;
use std::collections::BTreeMap;
use std::path::Path;

/// A secret text that occurs nowhere else.
const SECRET: &str = "hunter2-in-no-other-place";

fn secrets(name: &str, value: &str) -> Secrets {
    Secrets::new(BTreeMap::from([(name.to_owned(), value.to_owned())]))
}

fn sealed(id: &str) -> VolumeRequestBody {
    VolumeRequestBody { secrets: secrets("token", SECRET), ..make::volume(id) }
}

/// Returns a volume whose secret is an item of a variable.
fn referring(id: &str) -> VolumeRequestBody {
    let secrets_from = BTreeMap::from([("token".to_owned(), "storage/array#key".to_owned())]);
    VolumeRequestBody { secrets_from, ..make::volume(id) }
}

fn variable() -> VariableKey {
    VariableKey::new("default", "storage/array")
}

async fn write(cluster: &Cluster, items: &Secrets) {
    let written = cluster.handle.variables().write(variable(), items, None, None).await.unwrap();
    assert!(matches!(written, VariableWritten::Done { .. }));
}

fn secrets_sent(operation: &ControllerOperation) -> BTreeMap<String, String> {
    use ControllerOperation as Op;
    match operation {
        Op::Create { secrets, .. }
        | Op::Publish { secrets, .. }
        | Op::Unpublish { secrets, .. }
        | Op::Validate { secrets, .. } => secrets.expose().clone(),
        other => panic!("{} has no secrets here", other.name()),
    }
}

fn holds(dir: &Path, needle: &str) -> bool {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
        if path.is_dir() {
            return holds(&path, needle);
        }
        let bytes = std::fs::read(&path).unwrap();
        bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
    })
}

async fn storage(setup: Setup) -> (Cluster, Plugin, Client) {
    let (cluster, plugin) = (setup.start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    (cluster, plugin, client)
}

/// Neither the log nor the snapshots nor the state contain the text of a secret, and the secret can be opened after a
/// restart.
#[tokio::test]
async fn what_is_kept_holds_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let setup = || {
        let mut setup = Setup::dir(dir.path());
        setup.log.snapshot_after_entries = 8;
        setup
    };
    let (cluster, plugin, client) = storage(setup()).await;
    cluster.create(sealed("data")).await.unwrap();
    assert_eq!(secrets_sent(&plugin.last(CREATE))["token"], SECRET);
    write(&cluster, &secrets("key", SECRET)).await;
    for _ in 0..24 {
        cluster.handle.barrier().await.unwrap();
    }
    let state = caravan_state::encode(&cluster.root());
    assert!(!state.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()));
    let row = cluster.root().volume(&make::volume_key("data")).cloned().unwrap();
    assert!(!format!("{row:?}").contains(SECRET) && !row.secrets.is_empty());
    let row = client.row.clone();
    cluster.stop().await;
    assert!(holds(dir.path(), "ext-data"), "the log is kept as plain bytes");
    assert!(!holds(dir.path(), SECRET), "a secret is kept in the clear");

    let cluster = setup().start().await;
    let client = cluster.join(row, &plugin).await;
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let (_, grant) = client.obtain(&claim_id(&make::volume_key("data"), &alloc)).await;
    assert_eq!(grant.unwrap().secrets.expose()["token"], SECRET);
    assert_eq!(secrets_sent(&plugin.last(PUBLISH))["token"], SECRET);
    cluster.stop().await;
}

/// docs/design/rough-edges.md, 16 and 30: every call gets its secrets and options. Detaches get secrets, and the
/// validation gets mount options.
#[tokio::test]
async fn every_call_gets_the_secrets_and_the_options() {
    let (cluster, plugin, client) = storage(Setup::memory()).await;
    let options = MountOptions { fs_type: "ext4".into(), mount_flags: vec!["noatime".into()] };
    let body = VolumeRequestBody { mount_options: Some(options.clone()), ..sealed("data") };
    cluster.handle.volumes().register(&"default".into(), vec![body]).await.unwrap();
    let ControllerOperation::Validate { mount_options, .. } = plugin.last(VALIDATE) else { panic!() };
    assert_eq!(mount_options, Some(options));
    assert_eq!(secrets_sent(&plugin.last(VALIDATE))["token"], SECRET);
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let claim = client.start(&alloc, &make::volume_key("data")).await;
    cluster.stop_job("one").await;
    client.finish(&alloc, &claim).await;
    cluster.phase(&claim.id, ClaimPhase::Gone).await;
    assert_eq!(secrets_sent(&plugin.last(UNPUBLISH))["token"], SECRET);
}

/// Writing the same volume file again changes nothing, although sealing draws a new nonce each time.
#[tokio::test]
async fn the_same_secrets_are_no_change() {
    let (cluster, plugin, _client) = storage(Setup::memory()).await;
    let first = cluster.create(sealed("data")).await.unwrap();
    let again = cluster.create(sealed("data")).await.unwrap();
    assert_eq!(again, first);
    let other = VolumeRequestBody { secrets: secrets("token", "other"), ..make::volume("data") };
    assert_ne!(cluster.create(other).await.unwrap().secrets, first.secrets);
    assert_eq!(plugin.count(CREATE), 1);
}

#[tokio::test]
async fn a_claim_waits_for_its_variable_and_goes_on_by_itself() {
    let (cluster, plugin, client) = storage(Setup::memory()).await;
    write(&cluster, &secrets("key", "first")).await;
    cluster.create(referring("data")).await.unwrap();
    assert_eq!(secrets_sent(&plugin.last(CREATE))["token"], "first");
    cluster.handle.variables().delete(variable(), None).await.unwrap();
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let id = claim_id(&make::volume_key("data"), &alloc);
    let mut progress = client.ask_for(&id);
    let mut waits = async |what: &str| loop {
        match progress.next().await.unwrap().unwrap() {
            ClaimProgress::Waiting { reason } if reason.contains(what) => return reason,
            ClaimProgress::Waiting { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    let reason = soon("the wait", waits("waits for variable \"storage/array\"")).await;
    assert!(reason.contains("secret \"token\""), "{reason}");
    write(&cluster, &secrets("another", "x")).await;
    soon("the other wait", waits("waits for item \"key\"")).await;
    assert_eq!(plugin.count(PUBLISH), 0);
    assert_eq!(cluster.claim(&id).unwrap().tries, 0, "a wait is no failure");
    write(&cluster, &secrets("key", "second")).await;
    let (_, grant) = client.obtain(&id).await;
    let grant = grant.unwrap();
    assert_eq!(grant.secrets.expose()["token"], "second");
    assert_eq!(secrets_sent(&plugin.last(PUBLISH))["token"], "second");
    // The reference is resolved again at each call.
    write(&cluster, &secrets("key", "third")).await;
    client.prove(&grant.claim, mounted()).await.unwrap();
    cluster.stop_job("one").await;
    client.status(&alloc, ClientStatus::Complete).await;
    cluster.phase(&id, ClaimPhase::Releasing).await;
    client.prove(&grant.claim, ClaimReportStep::Unpublished).await.unwrap();
    client.prove(&grant.claim, ClaimReportStep::Unstaged).await.unwrap();
    cluster.phase(&id, ClaimPhase::Gone).await;
    assert_eq!(secrets_sent(&plugin.last(UNPUBLISH))["token"], "third");
}

#[tokio::test]
async fn a_creation_waits_for_its_variable_and_goes_on_by_itself() {
    let (cluster, plugin, _client) = storage(Setup::memory()).await;
    let key = make::volume_key("data");
    let error = cluster.create(referring("data")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("* waits for variable \"storage/array\""), "{error}");
    let row = cluster.root().volume(&key).cloned().unwrap();
    assert_eq!((row.phase, row.tries, plugin.count(CREATE)), (VolumePhase::Creating, 0, 0));
    assert!(row.last_error.contains("storage/array"));
    write(&cluster, &secrets("key", "v")).await;
    let ready = until("the volume ready", || {
        cluster.root().volume(&key).filter(|v| v.phase == VolumePhase::Ready).cloned()
    })
    .await;
    assert_eq!(ready.last_error, "");
    assert_eq!((secrets_sent(&plugin.last(CREATE))["token"].as_str(), plugin.volumes().1), ("v", 1));
}

#[tokio::test]
async fn references_that_are_none_are_refused() {
    let (cluster, _plugin, _client) = storage(Setup::memory()).await;
    let mut body = referring("data");
    body.secrets = secrets("token", SECRET);
    body.secrets_from.insert("user".into(), "no-item".into());
    let error = cluster.create(body).await.unwrap_err();
    assert!(error.to_string().contains("secret \"token\" is given both itself and by reference"), "{error}");
    assert!(error.to_string().contains("\"no-item\" is no reference") && !error.to_string().contains(SECRET));
}

#[tokio::test]
async fn variables_are_checked_and_set() {
    let cluster = Setup::memory().start().await;
    let put = async |value: &str, check| {
        cluster.handle.variables().write(variable(), &secrets("k", value), check, None).await.unwrap()
    };
    let VariableWritten::Done { variable: Some(first), index } = put("one", Some(0)).await else { panic!() };
    assert_eq!((first.metadata.create_index, first.metadata.modify_index), (index, index));
    let VariableWritten::Conflict { variable: found, .. } = put("two", Some(0)).await else { panic!() };
    assert_eq!(found, first);
    let VariableWritten::Done { variable: Some(second), .. } = put("two", Some(index)).await else {
        panic!()
    };
    assert_eq!(second.metadata.create_index, index);
    assert_eq!(second.items.expose()["k"], "two");
    let gone = cluster.handle.variables().delete(variable(), Some(index)).await.unwrap();
    assert!(matches!(gone, VariableWritten::Conflict { .. }));
    for check in [Some(second.metadata.modify_index), None, Some(7)] {
        let gone = cluster.handle.variables().delete(variable(), check).await.unwrap();
        assert!(
            matches!(gone, VariableWritten::Done { variable: None, .. }),
            "what is not there is as wished"
        );
    }
    let VariableWritten::Conflict { variable: none, .. } = put("three", Some(7)).await else { panic!() };
    assert_eq!(none.metadata.modify_index, 0);
    let error =
        cluster.handle.variables().write(variable(), &Secrets::default(), None, None).await.unwrap_err();
    assert_eq!(
        (error.kind(), &*error.to_string()),
        (Kind::BadRequest, "variable missing required Items object")
    );
    let big = secrets("k", &"x".repeat(64 * 1024));
    assert!(cluster.handle.variables().write(variable(), &big, None, None).await.is_err());
    assert_eq!(caravan_state::check(&cluster.root()), Vec::<String>::new());
}
