//! Detaches whose response was lost, at a plugin that refuses to repeat them.

use crate::make;
use crate::plugin::{LIST, PUBLISH, Plugin, Reply, UNPUBLISH};
use crate::world::{Cluster, Setup, until};
use caravan_rpc::Code;
use caravan_types::node::Node;
use caravan_types::volume::{Claim, ClaimId, ClaimPhase};

/// Detaches a volume with these first replies, at a plugin that refuses to detach a removed attachment. Returns the
/// claim once it has ended.
async fn detached(node: Node, replies: Vec<Reply>) -> (Claim, Plugin) {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    plugin.refuse_unknown_attachments();
    let client = cluster.join(node, &plugin).await;
    cluster.create(make::volume("data")).await.unwrap();
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let claim = client.start(&alloc, &make::volume_key("data")).await;
    plugin.script(UNPUBLISH, replies);
    cluster.stop_job("one").await;
    client.finish(&alloc, &claim).await;
    let claim = gone(&cluster, &claim.id).await;
    plugin.assert_one_at_a_time();
    (claim, plugin)
}

async fn gone(cluster: &Cluster, id: &ClaimId) -> Claim {
    let claim =
        until("the end of the claim", || cluster.claim(id).filter(|claim| claim.phase == ClaimPhase::Gone));
    Claim::clone(&*claim.await)
}

fn notes(claim: &Claim) -> String {
    claim.history.iter().map(|entry| format!("{}\n", entry.note)).collect()
}

#[tokio::test]
async fn a_refused_repetition_is_settled_by_attaching_again() {
    let (claim, plugin) = detached(make::storage_node("a", true), vec![Reply::DoneButLost]).await;
    assert_eq!(plugin.published(), []);
    assert_eq!((plugin.count(LIST), plugin.count(PUBLISH), plugin.count(UNPUBLISH)), (0, 2, 3));
    let notes = notes(&claim);
    assert!(notes.contains("INTERNAL: the attachment is not known"), "{notes}");
    assert!(notes.contains("was attached to node \"csi-a\" again and then detached"), "{notes}");
}

#[tokio::test]
async fn a_plugin_that_lists_its_nodes_is_asked() {
    let node = make::with_listed_nodes(make::storage_node("a", true));
    let (claim, plugin) = detached(node, vec![Reply::DoneButLost]).await;
    assert_eq!((plugin.count(LIST), plugin.count(PUBLISH), plugin.count(UNPUBLISH)), (1, 1, 2));
    let notes = notes(&claim);
    assert!(notes.contains("lists no attachment to node \"csi-a\""), "{notes}");
}

/// Refusals while the volume is attached do not end the claim: the plugin itself detaches in the end.
#[tokio::test]
async fn a_listed_attachment_is_kept_until_the_plugin_detaches() {
    let node = make::with_listed_nodes(make::storage_node("a", true));
    let busy = || Reply::Fail(Code::Unavailable, "INTERNAL: the array is busy");
    let (claim, plugin) = detached(node, vec![busy(), busy()]).await;
    assert_eq!((plugin.count(LIST), plugin.count(PUBLISH), plugin.count(UNPUBLISH)), (1, 1, 3));
    assert_eq!(plugin.published(), []);
    let notes = notes(&claim);
    assert!(notes.contains("lists the volume as attached to node \"csi-a\""), "{notes}");
}

/// The repair may fail as well. All of it is then repeated.
#[tokio::test]
async fn a_repair_that_fails_is_repeated() {
    let busy = || Reply::Fail(Code::Unavailable, "INTERNAL: the array is busy");
    let (claim, plugin) = detached(make::storage_node("a", true), vec![busy(), busy(), busy()]).await;
    assert_eq!(plugin.published(), []);
    assert_eq!((plugin.count(PUBLISH), plugin.count(UNPUBLISH)), (2, 4));
    let notes = notes(&claim);
    assert!(notes.contains("attaching the volume to the node again, to let the plugin detach it"), "{notes}");
}
