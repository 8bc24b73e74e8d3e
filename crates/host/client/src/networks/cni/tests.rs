use super::*;
use caravan_types::node::Node;
use futures::FutureExt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A plugin that appends the command to the file `log` beside it.
const PLUGIN: &str = r#"#!/bin/sh
echo "$CNI_COMMAND" >> "${0%/*}/log"
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/x"}],"ips":[{"address":"10.99.0.7/24","interface":0}]}'
"#;

fn plugged(dir: &Path) -> Plugged {
    fs::write(dir.join("recorder"), PLUGIN).unwrap();
    fs::set_permissions(dir.join("recorder"), fs::Permissions::from_mode(0o755)).unwrap();
    let list = r#"{"name":"mynet","cniVersion":"1.0.0","plugins":[{"type":"recorder"}]}"#;
    fs::write(dir.join("a.conflist"), list).unwrap();
    let mut config = ClientConfig::new(dir, "n");
    config.cni_path = dir.display().to_string();
    config.cni_config_dir = dir.to_owned();
    let (store, _) = Store::open(None).unwrap();
    Plugged::open(&config, store, NodeState::new(Node::default()), Vec::new())
}

fn ask() -> Ask {
    Ask {
        alloc: "a1".into(),
        network: "mynet".into(),
        namespace: "/run/netns/absent".into(),
        arguments: Arguments::default(),
        forwards: Vec::new(),
    }
}

/// An allocation is stopped directly after its set-up began: the task of the set-up has not run yet.
#[tokio::test]
async fn a_release_waits_for_a_set_up_that_begins() {
    let dir = tempfile::tempdir().unwrap();
    let plugged = plugged(dir.path());
    let alloc = AllocId::new("a1");
    assert!(plugged.attach(ask(), |_| {}).now_or_never().is_none(), "the set-up takes a while");
    plugged.release(&alloc, |_| {}).await;
    // The task of the set-up runs now, if it did not before.
    tokio::task::yield_now().await;
    drop(plugged.alone(&alloc).await);
    assert!(plugged.record_of(&alloc).is_none());

    // The same allocation can have a network again, and its plugin is called to remove that network.
    plugged.attach(ask(), |_| {}).await.unwrap();
    assert!(plugged.record_of(&alloc).is_some());
    plugged.release(&alloc, |_| {}).await;
    assert!(plugged.record_of(&alloc).is_none());
    let log = fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(log.ends_with("ADD\nDEL\n"), "{log}");
}
