//! Tests of the commands for volumes, snapshots and variables.

use super::agent::Agent;
use super::typed;

const VOLUMES: &str = r#"[{"ID":"db[0]","Namespace":"shop","PluginID":"disk"}]"#;
const SNAPSHOT: &str = r#"{"Snapshots":[{"ID":"snap-1","ExternalSourceVolumeID":"ext-db-0-and-more",
    "SizeBytes":10485760,"CreateTime":1795252866,"IsReady":true}],"NextToken":"t2"}"#;
const TABLE: &str = "Snapshot ID  Volume ID     Size    Create Time           Ready?\n\
    snap-1       ext-db-0-and  10 MiB  2026-11-21T09:21:06Z  true\n";
const VARIABLE: &str = r#"{"CreateIndex":217,"CreateTime":1795253000388392953,"Items":{"pass":"p","user":"u"},
    "ModifyIndex":217,"ModifyTime":1795253000388392953,"Namespace":"default","Path":"app/config"}"#;

#[tokio::test]
async fn snapshots_are_taken_listed_and_deleted() {
    let agent = Agent::start(|uri| match uri {
        uri if uri.starts_with("GET /v1/volumes?") => (200, 1, VOLUMES.into()),
        "PUT /v1/volumes/snapshot?namespace=shop" => (200, 1, SNAPSHOT.into()),
        uri if uri.starts_with("GET /v1/plugins?") && uri.contains("prefix=nope") => (200, 1, "[]".into()),
        uri if uri.starts_with("GET /v1/plugins?") => (200, 1, r#"[{"ID":"disk"}]"#.into()),
        "GET /v1/volumes/snapshot?per_page=30&plugin_id=disk" => (200, 1, SNAPSHOT.into()),
        "DELETE /v1/volumes/snapshot?plugin_id=disk&snapshot_id=snap-1" => (200, 1, String::new()),
        other => (500, 1, format!("unexpected: {other}")),
    })
    .await;
    let made = typed(&agent, "caravan volume snapshot create -secret k=v db[0] snap-1").await;
    assert_eq!((made.0, made.2.as_str()), (0, ""), "{}", made.1);
    assert!(made.1.starts_with(&TABLE[..40]), "{}", made.1);
    let listed = typed(&agent, "caravan volume snapshot list -plugin d").await;
    assert_eq!((listed.0, listed.2.as_str()), (0, ""));
    let hint = "\nResults have been paginated. To get the next page run with:\n\n-page-token t2\n";
    assert!(listed.1.ends_with(hint));
    let deleted = typed(&agent, "caravan volume snapshot delete disk snap-1").await;
    assert_eq!(deleted, (0, String::new(), String::new()));
    let none = typed(&agent, "caravan volume snapshot list -plugin nope").await;
    assert_eq!(none, (1, String::new(), "No plugins(s) with prefix or ID \"nope\" found\n".into()));
    let (status, _, error) = typed(&agent, "caravan volume snapshot create -secret hunter2 db[0] s").await;
    assert_eq!((status, error.as_str()), (1, "A secret must be of the form KEY=VALUE\n"));
    let (status, _, error) = typed(&agent, "caravan volume snapshot create db[0]").await;
    assert!(status == 1 && error.starts_with("This command takes two arguments: <vol id> <snapshot name>"));
}

/// Checks that a removed node is found through the claims that the node still has.
#[tokio::test]
async fn a_volume_is_detached_from_a_node_that_only_its_claims_know() {
    let agent = Agent::start(|uri| match uri {
        "GET /v1/volume/csi/data" => (
            200,
            1,
            r#"{"ID":"data","CaravanClaims":[{"NodeID":"63126d9d-dd5a-f032","AllocID":"a"}]}"#.into(),
        ),
        "DELETE /v1/volume/csi/data/detach?node=63126d9d-dd5a-f032" => (200, 1, String::new()),
        "DELETE /v1/volume/csi/nope/detach?node=63126d9d-dd5a-f032-b3e4-c1537acb6cc7" => {
            (500, 1, "no such volume".into())
        }
        other => (500, 1, format!("unexpected: {other}")),
    })
    .await;
    let done = typed(&agent, "caravan volume detach data 63126").await;
    assert_eq!(done, (0, String::new(), String::new()));
    let (status, _, error) =
        typed(&agent, "caravan volume detach nope 63126d9d-dd5a-f032-b3e4-c1537acb6cc7").await;
    assert_eq!(status, 1);
    assert_eq!(error, "Error detaching volume: Unexpected response code: 500 (no such volume)\n");
}

#[tokio::test]
async fn variables_are_shown_as_recorded() {
    let agent = Agent::start(|uri| match uri {
        "PUT /v1/var/app/config?cas=0" | "GET /v1/var/app/config" => (200, 217, VARIABLE.into()),
        "PUT /v1/var/app/taken?cas=0" => (409, 217, VARIABLE.into()),
        "PUT /v1/var/app/taken" => (200, 217, VARIABLE.into()),
        "GET /v1/vars" => (200, 217, format!("[{VARIABLE}]")),
        "GET /v1/vars?prefix=nothing%2F" => (200, 217, "[]".into()),
        "GET /v1/var/nope" => (404, 217, "variable not found".into()),
        "DELETE /v1/var/app/config" => (204, 218, String::new()),
        other => (500, 1, format!("unexpected: {other}")),
    })
    .await;
    let recorded = include_str!("../../../fixtures/var-put.txt");
    let put = typed(&agent, "caravan var put -out json app/config user=u pass=p").await;
    assert_eq!(put, (0, recorded.into(), String::new()));
    let get = typed(&agent, "caravan var get -out json app/config").await;
    assert_eq!(get, (0, recorded.into(), String::new()));
    let item = typed(&agent, "caravan var get -item user app/config").await;
    assert_eq!(item, (0, "u".into(), String::new()), "no newline at the end");
    let (status, _, error) = typed(&agent, "caravan var get -item nope app/config").await;
    assert_eq!((status, error.as_str()), (1, "Variable does not contain \"nope\" item\n"));
    let none = typed(&agent, "caravan var get nope").await;
    assert_eq!(none, (1, String::new(), "Variable not found\n".into()));
    let (status, data, error) = typed(&agent, "caravan var put app/taken user=u2").await;
    assert_eq!((status, data.as_str()), (1, ""));
    let lines = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&error).len(), lines(include_str!("../../../fixtures/var-conflict.txt")).len());
    assert!(error.contains("Your provided check-index (0) does not match the server-side index (217)."));
    assert_eq!(typed(&agent, "caravan var put -force -out none app/taken user=u2").await.0, 0);
    let list = typed(&agent, "caravan var list -out json").await;
    let want = include_str!("../../../fixtures/var-list.txt").replace("219", "217");
    assert_eq!(list.1, want.replace("1795253000518049118", "1795253000388392953"));
    let empty = typed(&agent, "caravan var list -out json nothing/").await;
    assert_eq!(empty, (0, "[]\n".into(), String::new()));
    let purged = typed(&agent, "caravan var purge app/config").await;
    assert_eq!(purged, (0, "Successfully purged variable \"app/config\"!\n".into(), String::new()));
    let (status, _, error) = typed(&agent, "caravan var put bad").await;
    assert_eq!(status, 1);
    assert_eq!(error, "Must supply data\nFor additional help try 'caravan var put -help'\n");
}
