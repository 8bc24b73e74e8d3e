//! Volumes with a plugin that has no controller: lists, pages, ids with brackets, secrets.

use crate::harness::{Api, NODE, Web};
use caravan_types::VolumeKey;
use caravan_types::plugin::{CsiInfo, CsiNodeInfo};
use caravan_types::volume::ClaimId;
use serde_json::{Value, json};
use std::time::Duration;

/// A text that occurs nowhere else.
const SECRET: &str = "hunter2-in-no-other-place";

async fn storage() -> Api {
    let api = Api::start().await;
    api.register_node_as(|node| {
        for plugin in ["disk", "other"] {
            let info = CsiInfo {
                plugin_id: plugin.into(),
                healthy: true,
                provider: "disk.example".into(),
                node_info: Some(CsiNodeInfo { id: "n".into(), max_volumes: i64::MAX, ..Default::default() }),
                ..Default::default()
            };
            node.csi_node_plugins.insert(plugin.into(), info);
        }
    })
    .await;
    api
}

fn volume(id: &str, plugin: &str) -> Value {
    json!({
        "ID": id, "Name": id, "PluginID": plugin, "Secrets": {"token": SECRET},
        "MountOptions": {"FSType": "ext4", "MountFlags": [format!("password={SECRET}")]},
        "RequestedCapabilities": [{"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}]
    })
}

async fn register(web: &Web, volumes: Vec<Value>) {
    let got = web.put("/v1/volumes", &json!({"Volumes": volumes})).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(!got.text().contains(SECRET));
}

/// Returns a job with two allocations, each of which uses its own volume.
fn per_alloc_job() -> Value {
    json!({"Job": {
        "ID": "db", "Name": "db", "Type": "service", "Datacenters": ["dc1"],
        "TaskGroups": [{
            "Name": "g", "Count": 2,
            "Volumes": {"data": {
                "Name": "data", "Type": "csi", "Source": "db", "PerAlloc": true,
                "AccessMode": "single-node-writer", "AttachmentMode": "file-system"
            }},
            "Tasks": [{
                "Name": "t", "Driver": "mock_driver", "Config": {"run_for": "60s"},
                "Resources": {"CPU": 20, "MemoryMB": 20}
            }]
        }]
    }})
}

fn ids(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|row| row["ID"].as_str().unwrap().to_owned()).collect()
}

async fn list(api: &Api, query: &str) -> (Vec<String>, String) {
    let got = api.web.get(&format!("/v1/volumes?type=csi{query}")).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(!got.text().contains(SECRET));
    (ids(&got.json()), got.header("x-nomad-nexttoken").unwrap_or_default().to_owned())
}

#[tokio::test]
async fn storage_is_shared_by_volumes_that_say_so() {
    let api = storage().await;
    let reads = |id: &str, more: Value| {
        let mut body = volume(id, "disk");
        body["ExternalID"] = json!("golden");
        body["RequestedCapabilities"][0]["AccessMode"] = json!("multi-node-reader-only");
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let put = async |body: Value| api.web.put("/v1/volumes", &json!({"Volumes": [body]})).await;
    let shares = || json!({"CaravanSharedStorage": true});
    register(&api.web, vec![reads("one", json!({}))]).await;
    let got = api.web.get("/v1/volume/csi/one").await.json();
    assert_eq!(got.get("CaravanSharedStorage"), None, "only volumes that share have the field");
    for more in [json!({}), shares()] {
        let got = put(reads("two", more)).await;
        assert_eq!(got.status, 500);
        assert!(got.text().ends_with("(volume \"one\" in namespace \"default\")"), "{}", got.text());
    }
    // Field names are case-insensitive, as in Nomad.
    register(&api.web, vec![reads("one", shares())]).await;
    register(&api.web, vec![reads("two", json!({"caravansharedstorage": true}))]).await;
    for id in ["one", "two"] {
        let got = api.web.get(&format!("/v1/volume/csi/{id}")).await.json();
        assert_eq!(got["CaravanSharedStorage"], true);
    }
    let mut writes = reads("three", shares());
    writes["RequestedCapabilities"][0]["AccessMode"] = json!("single-node-writer");
    let got = put(writes).await;
    assert_eq!(got.status, 500);
    assert!(got.text().contains("CaravanSharedStorage") && got.text().contains("single-node-writer"));
    let got = put(reads("one", json!({}))).await;
    assert!(got.status == 500 && got.text().contains("(volume \"two\""), "{}", got.text());
}

#[tokio::test]
async fn ids_that_cannot_name_a_directory_are_refused() {
    let api = storage().await;
    for id in [&*"x".repeat(300), "a\0b", "..", "a/b"] {
        let got = api.web.put("/v1/volumes", &json!({"Volumes": [volume(id, "disk")]})).await;
        let text = got.text();
        assert_eq!(got.status, 500, "{text}");
        assert!(
            text.starts_with("validation: volume id ") && text.contains("cannot name a directory"),
            "{text}"
        );
    }
    register(&api.web, vec![volume(&"x".repeat(250), "disk")]).await;
}

/// Filters combine, every volume of a node is listed, the order is by id (docs/design/rough-edges.md, 31).
#[tokio::test]
async fn lists_take_every_filter_at_once() {
    let api = storage().await;
    let other = ["alone", "db-other"].map(|id| volume(id, "other"));
    let names = ["db[0]", "db[1]", "db-a", "db-b"];
    register(&api.web, names.iter().map(|id| volume(id, "disk")).chain(other).collect()).await;
    let all = ["alone", "db-a", "db-b", "db-other", "db[0]", "db[1]"];
    assert_eq!(list(&api, "").await.0, all);
    assert_eq!(
        list(&api, "&reverse=true&per_page=2").await,
        (vec!["db[1]".into(), "db[0]".into()], "default.db-other".into())
    );
    let (page, next) = list(&api, "&per_page=4").await;
    assert_eq!((page.as_slice(), next.as_str()), (&all.map(str::to_owned)[..4], "default.db[0]"));
    assert_eq!(list(&api, &format!("&per_page=4&next_token={next}")).await.0, all[4..]);
    assert_eq!(list(&api, "&plugin_id=disk&prefix=db-").await.0, ["db-a", "db-b"]);
    assert_eq!(list(&api, "&plugin_id=other&namespace=*").await.0, ["alone", "db-other"]);
    assert_eq!(list(&api, "&plugin_id=disk&namespace=elsewhere").await.0, Vec::<String>::new());
    assert_eq!(list(&api, "&plugin_id=disk&per_page=1").await.1, "default.db-b");

    let got = api.web.put("/v1/jobs", &per_alloc_job()).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let two = |list: &Value| list.as_array().is_some_and(|list| list.len() == 2);
    let on_node = format!("/v1/volumes?type=csi&node_id={NODE}");
    let found = api.web.until(&on_node, "both volumes of the node", two).await;
    assert_eq!(ids(&found), ["db[0]", "db[1]"]);
    assert_eq!(list(&api, &format!("&node_id={NODE}&plugin_id=disk&prefix=db[1")).await.0, ["db[1]"]);
    assert_eq!(list(&api, &format!("&node_id={NODE}&plugin_id=other")).await.0, Vec::<String>::new());
    assert_eq!(list(&api, &format!("&node_id={NODE}&per_page=1&namespace=*")).await.1, "default.db[1]");
}

#[tokio::test]
async fn ids_with_brackets_are_found_raw_and_escaped() {
    let api = storage().await;
    register(&api.web, vec![volume("db[0]", "disk")]).await;
    for path in ["/v1/volume/csi/db[0]", "/v1/volume/csi/db%5B0%5D"] {
        let got = api.web.get(path).await;
        assert_eq!((got.status.as_u16(), &got.json()["ID"]), (200, &json!("db[0]")), "{path}");
        let options = json!({"FSType": "ext4", "MountFlags": ["[REDACTED]"]});
        assert_eq!((&got.json()["MountOptions"], &got.json()["Secrets"]), (&options, &Value::Null));
    }
    assert_eq!(api.web.delete("/v1/volume/csi/db[0]").await.status, 200);
    let gone = api.web.delete("/v1/volume/csi/db%5B0%5D").await;
    assert_eq!((gone.status.as_u16(), gone.text().as_str()), (500, "volume not found: db[0]"));
}

/// Reads change nothing: after ten thousand reads the secret is still delivered, and no answer ever contained it.
#[tokio::test]
async fn secrets_outlast_ten_thousand_reads() {
    let api = storage().await;
    register(&api.web, vec![volume("db[0]", "disk"), volume("db[1]", "disk")]).await;
    let before = api.server.store().snapshot().index();
    let paths =
        ["/v1/volume/csi/db[0]", "/v1/volumes?type=csi", "/v1/volume/csi/db[0]", "/v1/plugin/csi/disk"];
    for round in 0..10_000 {
        if round % 100 == 0 {
            api.beat().await;
        }
        let got = api.web.get(paths[round % paths.len()]).await;
        assert_eq!(got.status, 200);
        assert!(round % 1000 > 4 || !got.text().contains(SECRET));
    }
    assert_eq!(api.server.store().snapshot().index(), before, "a read wrote something");
    api.web.put("/v1/jobs", &per_alloc_job()).await;
    let two = |list: &Value| list.as_array().is_some_and(|list| list.len() == 2);
    let allocs = api.web.until("/v1/job/db/allocations", "allocations", two).await;
    for alloc in allocs.as_array().unwrap() {
        let name = alloc["Name"].as_str().unwrap();
        let suffix = &name[name.find('[').unwrap()..];
        let volume = VolumeKey::new("default", format!("db{suffix}").as_str());
        let claim = ClaimId { volume, alloc: alloc["ID"].as_str().unwrap().into() };
        let grant = tokio::time::timeout(std::time::Duration::from_secs(20), api.claim(claim)).await.unwrap();
        assert_eq!(grant.secrets.expose()["token"], SECRET);
        assert_eq!(grant.mount_options.unwrap().mount_flags, [format!("password={SECRET}")]);
    }
    for path in ["/v1/volume/csi/db[0]", "/v1/job/db/allocations", "/v1/jobs", "/v1/nodes", "/v1/metrics"] {
        assert!(!api.web.get(path).await.text().contains(SECRET), "{path}");
    }
}

#[tokio::test]
async fn a_read_that_waits_for_a_volume_sees_a_plugin_that_appears_meanwhile() {
    let api = storage().await;
    register(&api.web, vec![volume("data", "disk")]).await;
    api.register_node().await;
    let first = api.web.get("/v1/volume/csi/data").await;
    assert_eq!((first.status.as_u16(), &first.json()["NodesHealthy"]), (200, &json!(0)), "{}", first.text());
    let path = format!("/v1/volume/csi/data?index={}&wait=60s", first.index());
    let web = api.web.clone();
    let waiting = tokio::spawn(async move { web.get(&path).await });

    api.register_node_as(|node| {
        let info = CsiInfo {
            plugin_id: "disk".into(),
            healthy: true,
            provider: "disk.example".into(),
            node_info: Some(CsiNodeInfo { id: "n".into(), max_volumes: i64::MAX, ..Default::default() }),
            ..Default::default()
        };
        node.csi_node_plugins.insert("disk".into(), info);
    })
    .await;
    let got = tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap().unwrap().json();
    assert_eq!((&got["NodesHealthy"], &got["Schedulable"]), (&json!(1), &json!(true)), "{got}");
}

/// A reason of a wait is in the leader's memory. Its change is an event although no row changes.
#[tokio::test]
async fn a_changed_reason_is_an_event() {
    let api = storage().await;
    register(&api.web, vec![volume("db[0]", "disk"), volume("db[1]", "disk")]).await;
    api.web.put("/v1/jobs", &per_alloc_job()).await;
    let two = |list: &Value| list.as_array().is_some_and(|list| list.len() == 2);
    let allocs = api.web.until("/v1/job/db/allocations", "allocations", two).await;
    for alloc in allocs.as_array().unwrap() {
        let name = alloc["Name"].as_str().unwrap();
        let volume = VolumeKey::new("default", format!("db{}", &name[name.find('[').unwrap()..]).as_str());
        api.claim(ClaimId { volume, alloc: alloc["ID"].as_str().unwrap().into() }).await;
    }
    let path = "topic=CSIVolume:db[1]&caravan=true&coalesce=10ms";
    let mut lines = crate::events::Lines::open(&api, path).await;
    // The allocations are to stop, and the claims wait for their client.
    assert_eq!(api.web.delete("/v1/job/db").await.status, 200);
    let mut last = 0;
    loop {
        let (index, events) = lines.events().await;
        assert!(index >= last, "{index} after {last}");
        last = index;
        assert!(events.iter().all(|event| event["Key"] == "db[1]"), "{events:?}");
        if let Some(event) = events.iter().find(|event| event["Type"] == "CSIVolumeReason") {
            let claims = &event["Payload"]["Volume"]["CaravanClaims"];
            assert_eq!(claims.as_array().map(Vec::len), Some(1), "{claims}");
            break;
        }
    }
}
