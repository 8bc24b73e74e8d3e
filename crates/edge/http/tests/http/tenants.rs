//! Attacks of one tenant on another: namespaces in bodies, rights that end, answers of writes.

use crate::harness::{Api, NODE, Node1};
use crate::rights::Tenants;
use caravan_http::HttpState;
use caravan_messages::{HttpPart, HttpRequest};
use caravan_rpc::{Channel, PeerIdentity, Router, RpcError, methods};
use caravan_types::AllocId;
use caravan_types::node::HostVolumeInfo;
use futures::stream;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Attaches a client with the allocation of `team-a` to the recorded node.
fn with_node(tenants: &Tenants, allocs: &[&str]) -> Box<dyn std::any::Any> {
    let api = &tenants.api;
    let allocs = allocs.iter().map(AllocId::new).collect();
    let node = Node1::new(allocs);
    let state = HttpState { client: Some(Arc::new(node)), info: api.info.clone(), ..HttpState::default() };
    let identity = PeerIdentity::server("s");
    let back = Channel::local(caravan_http::rpc(state).build(), identity);
    Box::new(api.registry.register(NODE.to_owned(), back))
}

#[tokio::test]
async fn a_snapshot_is_taken_in_the_namespace_that_was_checked() {
    let tenants = Tenants::start().await;
    let snapshot = json!({"SourceVolumeID": "secret-volume", "Name": "s"});
    for (query, body, status) in [
        ("?namespace=team-a", json!({"Snapshots": [snapshot]}), 403),
        ("", json!({"Namespace": "team-a", "Snapshots": [snapshot]}), 403),
        ("", json!({"NameSpace": "team-a", "Snapshots": [snapshot]}), 403),
        ("", json!({"Namespace": "team-b", "namespace": "team-a", "Snapshots": [snapshot]}), 403),
        // The query decides: the caller's own namespace has no such volume.
        ("?namespace=team-b", json!({"Namespace": "team-a", "Snapshots": [snapshot]}), 500),
    ] {
        let got = tenants.put(&format!("/v1/volumes/snapshot{query}"), &body, &tenants.b).await;
        assert_eq!(got.status, status, "{query} {body}: {}", got.text());
        if status == 500 {
            assert!(got.text().contains("no such volume"), "{}", got.text());
        }
    }
    for method in [Method::GET, Method::DELETE] {
        let asked = "/v1/volumes/snapshot?namespace=team-b&plugin_id=disk&snapshot_id=x";
        let got = tenants.ask(&method, asked, &Value::Null, &tenants.b).await.unwrap();
        assert_ne!(got.status, 200, "{method}: the plugin keeps no snapshots, {}", got.text());
    }
}

#[tokio::test]
async fn a_write_of_a_variable_shows_it_only_to_its_readers() {
    let tenants = Tenants::start().await;
    let rules =
        "namespace \"team-a\" { variables { path \"*\" { capabilities = [\"write\", \"destroy\"] } } }";
    let writer = tenants.token("writer", rules).await;
    let at = "/v1/var/secret";
    let reads = "password";
    let got = tenants.ask(&Method::GET, &format!("{at}?namespace=team-a"), &Value::Null, &writer).await;
    assert_eq!(got.unwrap().status, 403);
    let lock = json!({"Namespace": "team-a", "Lock": {}});
    let got = tenants.put(&format!("{at}?lock-acquire"), &lock, &writer).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(!got.text().contains("canary"), "{}", got.text());
    let held = got.json()["Lock"]["ID"].as_str().unwrap().to_owned();
    // A reader sees the stored items; the lock removed none.
    let read = tenants.ask(&Method::GET, &format!("{at}?namespace=team-a"), &Value::Null, &tenants.a).await;
    assert!(read.unwrap().json()["Items"][reads].as_str().unwrap().contains("canary"));
    let release = json!({"Namespace": "team-a", "Lock": {"ID": held}});
    let got = tenants.put(&format!("{at}?lock-release"), &release, &writer).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(!got.text().contains("canary"), "{}", got.text());
    // A conflict shows no stored items either.
    let body = json!({"Namespace": "team-a", "Items": {"password": "mine"}});
    let got = tenants.put(&format!("{at}?cas=1"), &body, &writer).await;
    assert_eq!(got.status, 409, "{}", got.text());
    assert!(!got.text().contains("canary"), "{}", got.text());
    let gone = format!("{at}?namespace=team-a&cas=1");
    let got = tenants.ask(&Method::DELETE, &gone, &Value::Null, &writer).await.unwrap();
    assert_eq!(got.status, 409, "{}", got.text());
    assert!(!got.text().contains("canary"), "{}", got.text());
    // The caller's own items are returned.
    let got = tenants.put(at, &body, &writer).await;
    assert_eq!((got.status.as_u16(), got.json()["Items"].clone()), (200, json!({"password": "mine"})));
}

#[tokio::test]
async fn writes_of_volumes_and_jobs_show_only_what_the_writer_may_read() {
    let tenants = Tenants::start().await;
    let rules = "namespace \"team-a\" { capabilities = [\"csi-write-volume\", \"plan-job\"] }";
    let writer = tenants.token("volumes", rules).await;
    let body = json!({"Volumes": [{
        "ID": "secret-volume", "Name": "secret-volume", "PluginID": "disk", "Namespace": "team-a",
        "RequestedCapabilities": [{"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}]
    }]});
    let got = tenants.put("/v1/volumes?namespace=team-a", &body, &writer).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let shown = &got.json()["Volumes"][0];
    assert_eq!((&shown["ID"], &shown["PluginID"]), (&json!("secret-volume"), &json!("disk")));
    assert!(shown["Context"].as_object().is_none_or(serde_json::Map::is_empty), "{shown}");
    assert!(shown["Parameters"].as_object().is_none_or(serde_json::Map::is_empty), "{shown}");
    // The difference of a plan would show the stored job.
    let job = json!({
        "ID": "secret-job", "Name": "secret-job", "Type": "service", "Datacenters": ["dc1"],
        "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "mock_driver", "Config": {"run_for": "1s"}}]}]
    });
    let plan = json!({"Job": job, "Diff": true});
    let at = "/v1/job/secret-job/plan?namespace=team-a";
    let got = tenants.put(at, &plan, &writer).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(got.json()["Diff"].is_null() && !got.text().contains("canary"), "{}", got.text());
    assert!(got.json()["Warnings"].as_str().unwrap().contains("needs read-job"));
    assert!(got.text().contains("\"Code\":\"hidden\""), "{}", got.text());
    let got = tenants.put(at, &plan, &tenants.a).await;
    assert!(got.json()["Diff"].is_object() && got.text().contains("canary"), "{}", got.text());
}

/// One storage is one volume. A refused registration names the other volume only to callers who may read it.
#[tokio::test]
async fn a_refusal_names_another_volume_to_those_who_may_see_it() {
    let tenants = Tenants::start().await;
    let body = |namespace: &str, id: &str, storage: &str| {
        json!({"Volumes": [{
            "ID": id, "Name": id, "PluginID": "disk", "Namespace": namespace, "ExternalID": storage,
            "RequestedCapabilities": [{"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}]
        }]})
    };
    let put = async |namespace: &str, id: &str, secret: &str| {
        let at = format!("/v1/volumes?namespace={namespace}");
        tenants.put(&at, &body(namespace, id, "the-storage"), secret).await
    };
    let got = put("team-a", "secret-plans", &tenants.a).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let writes = "namespace \"team-a\" { capabilities = [\"csi-write-volume\"] }";
    let writer = tenants.token("writer", writes).await;
    let lists = "namespace \"team-b\" { capabilities = [\"csi-write-volume\"] }
        namespace \"team-a\" { capabilities = [\"csi-list-volume\"] }";
    let lister = tenants.token("lister", lists).await;
    let name = "(volume \"secret-plans\" in namespace \"team-a\")";
    for (namespace, secret, named) in [
        ("team-a", &tenants.a, true),
        ("team-a", &tenants.root, true),
        ("team-b", &tenants.root, true),
        ("team-b", &lister, true),
        ("team-b", &tenants.b, false),
        ("team-a", &writer, false),
    ] {
        let got = put(namespace, "twin", secret).await;
        let text = got.text();
        assert_eq!(got.status, 500, "{text}");
        assert!(
            text.contains("storage \"the-storage\" of plugin \"disk\" is another volume's already"),
            "{text}"
        );
        assert_eq!(
            (text.contains(name), text.contains("secret-plans")),
            (named, named),
            "{namespace}: {text}"
        );
        // The route of one volume behaves the same.
        let at = format!("/v1/volume/csi/twin?namespace={namespace}");
        let got = tenants.put(&at, &body(namespace, "twin", "the-storage"), secret).await;
        assert_eq!((got.status.as_u16(), got.text().contains(name)), (500, named), "{}", got.text());
    }
}

#[tokio::test]
async fn nobody_says_whose_child_a_job_is() {
    let tenants = Tenants::start().await;
    let job = |more: Value| {
        let mut job = json!({
            "ID": "kid", "Name": "kid", "Type": "batch", "Datacenters": ["dc1"], "Namespace": "team-a",
            "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "mock_driver", "Config": {"run_for": "1s"}}]}]
        });
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"Job": job})
    };
    for more in [
        json!({"ParentID": "secret-job"}),
        json!({"parentid": "secret-job"}),
        json!({"Dispatched": true}),
        json!({"ParentID": "secret-job", "Dispatched": true}),
        json!({"DispatchIdempotencyToken": "x"}),
    ] {
        for path in ["/v1/jobs", "/v1/job/kid", "/v1/job/kid/plan"] {
            let got = tenants.put(path, &job(more.clone()), &tenants.a).await;
            assert_eq!(got.status, 500, "{path} {more}: {}", got.text());
        }
    }
    let got = tenants.put("/v1/jobs", &job(json!({"NomadTokenID": "forged"})), &tenants.a).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let kept = tenants.ask(&Method::GET, "/v1/job/kid?namespace=team-a", &Value::Null, &tenants.a).await;
    let kept = kept.unwrap().json();
    assert!(!kept["NomadTokenID"].as_str().unwrap().is_empty() && kept["NomadTokenID"] != "forged");
    // An existing job cannot be made a child job either.
    let got = tenants.put("/v1/jobs", &job(json!({"ParentID": "secret-job"})), &tenants.a).await;
    assert!(got.text().contains("'ParentID' is read-only"), "{}", got.text());
}

#[tokio::test]
async fn a_purge_needs_a_right_of_its_own() {
    let tenants = Tenants::start().await;
    let stops = tenants.token("stops", "namespace \"team-a\" { capabilities = [\"deregister-job\"] }").await;
    let purges = tenants.token("purges", "namespace \"team-a\" { capabilities = [\"purge-job\"] }").await;
    let delete = async |query: &str, secret: &str| {
        let asked = format!("/v1/job/secret-job?namespace=team-a{query}");
        tenants.ask(&Method::DELETE, &asked, &Value::Null, secret).await.unwrap().status.as_u16()
    };
    for query in
        ["&purge=true", "&purge=1", "&purge=t", "&purge=TRUE", "&purge=maybe", "&purge=true&purge=false"]
    {
        assert_eq!(delete(query, &stops).await, 403, "{query}");
    }
    assert_eq!(delete("&purge=false&purge=true", &stops).await, 200, "the first one counts");
    assert_eq!(delete("", &purges).await, 403);
    assert_eq!(delete("&purge=true", &purges).await, 200);
}

#[tokio::test]
async fn what_the_servers_do_not_know_belongs_to_nobody() {
    let tenants = Tenants::start().await;
    let ghost = "01234567-89ab-cdef-0123-456789abcdef";
    let api = &tenants.api;
    let allocs = vec![AllocId::new(ghost), AllocId::new(&tenants.alloc)];
    let node = Node1::new(allocs);
    // The agent is server and client: the node still has an allocation that the server has collected.
    let state = HttpState {
        server: Some(api.server.clone()),
        client: Some(Arc::new(node)),
        info: api.info.clone(),
        ..HttpState::default()
    };
    let web = crate::harness::serve(state, tokio_util::sync::CancellationToken::new()).await;
    for path in [
        "fs/cat/ID?path=web/local/words.txt",
        "fs/ls/ID",
        "fs/logs/ID?task=t&type=stdout",
        "allocation/ID/stats",
    ] {
        let asked = |alloc: &str| format!("/v1/client/{}", path.replace("ID", alloc));
        let get = async |alloc: &str, namespace: &str, secret: &str| {
            let joint = if path.contains('?') { '&' } else { '?' };
            let asked = format!("{}{joint}namespace={namespace}", asked(alloc));
            web.send_as(Method::GET, &asked, Vec::new(), secret).await
        };
        assert_eq!(get(&tenants.alloc, "team-a", &tenants.a).await.status, 200, "{path}");
        assert_eq!(get(&tenants.alloc, "team-b", &tenants.b).await.status, 403, "{path}");
        let got = get(ghost, "team-b", &tenants.b).await;
        assert_eq!(got.status, 404, "{path}: {}", got.text());
        assert_eq!(get(ghost, "team-a", &tenants.b).await.status, 403, "{path}");
        assert_eq!(get(ghost, "team-b", &tenants.root).await.status, 200, "{path}: management may look");
    }
}

#[tokio::test]
async fn a_question_about_nodes_shows_only_jobs_that_may_be_read() {
    let tenants = Tenants::start().await;
    let job = json!({
        "ID": "mine", "Name": "mine", "Type": "batch", "Datacenters": ["dc1"], "Namespace": "team-b",
        "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "mock_driver", "Config": {"run_for": "1s"}}]}]
    });
    let plan = json!({"Job": job});
    let asked = format!("/v1/job/mine/plan?what-if=node={NODE}:down");
    assert_eq!(tenants.put(&asked, &plan, &tenants.b).await.status, 403, "it is about nodes");
    let rules = "namespace \"team-b\" { policy = \"write\" }\nnode { policy = \"read\" }";
    let nodes = tenants.token("nodes", rules).await;
    let got = tenants.put(&asked, &plan, &nodes).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let reported = &got.json()["CaravanWhatIf"];
    assert!(!reported.to_string().contains("secret-job"), "{reported}");
    assert!(reported["Hidden"].as_u64().unwrap() > 0, "{reported}");
    let all = tenants.put(&asked, &plan, &tenants.root).await.json();
    assert!(all["CaravanWhatIf"].to_string().contains("secret-job"), "{all}");
    assert_eq!(all["CaravanWhatIf"]["Hidden"], 0);
}

fn host_job(source: &str, per_alloc: bool, count: u32) -> Value {
    json!({"Job": {
        "ID": "reader", "Name": "reader", "Type": "service", "Datacenters": ["dc1"], "Namespace": "team-b",
        "TaskGroups": [{
            "Name": "g", "Count": count,
            "Volumes": {"v": {"Name": "v", "Type": "host", "Source": source, "PerAlloc": per_alloc}},
            "Tasks": [{
                "Name": "t", "Driver": "mock_driver", "Config": {"run_for": "1h"},
                "Resources": {"CPU": 20, "MemoryMB": 20},
                "VolumeMounts": [{"Volume": "v", "Destination": "/v"}]
            }]
        }]
    }})
}

#[tokio::test]
async fn host_volumes_of_the_configuration_need_the_right_to_their_names() {
    let tenants = Tenants::start().await;
    tenants
        .api
        .register_node_as(|node| {
            for name in ["shared", "data[0]", "data[1]", "data[2]"] {
                let info =
                    HostVolumeInfo { name: name.into(), path: "/srv".into(), ..HostVolumeInfo::default() };
                node.host_volumes.insert(name.into(), info);
            }
        })
        .await;
    let write = "namespace \"team-b\" { policy = \"write\" }\n";
    let register =
        async |body: &Value, secret: &str| tenants.put("/v1/jobs", body, secret).await.status.as_u16();
    assert_eq!(register(&host_job("shared", false, 1), &tenants.b).await, 403);
    let reads = format!("{write}host_volume \"shared\" {{ policy = \"read\" }}");
    let reads = tenants.token("reads", &reads).await;
    assert_eq!(register(&host_job("shared", false, 1), &reads).await, 403, "it asks to write");
    let named = format!("{write}host_volume \"shared\" {{ policy = \"write\" }}");
    let named = tenants.token("named", &named).await;
    assert_eq!(register(&host_job("shared", false, 1), &named).await, 200);
    // Each allocation uses a different volume.
    assert_eq!(register(&host_job("data", true, 1), &named).await, 403);
    let base = format!("{write}host_volume \"data\" {{ policy = \"write\" }}");
    let base = tenants.token("base", &base).await;
    assert_eq!(
        register(&host_job("data", true, 1), &base).await,
        403,
        "the name without a number is another"
    );
    let first = format!(
        "{write}host_volume \"data[0]\" {{ policy = \"write\" }}\nhost_volume \"data[1]\" {{ policy = \"write\" }}"
    );
    let first = tenants.token("first", &first).await;
    assert_eq!(register(&host_job("data", true, 3), &first).await, 403);
    assert_eq!(register(&host_job("data", true, 2), &first).await, 200);
    let scale = json!({"Count": 3, "Target": {"Group": "g"}});
    let got = tenants.put("/v1/job/reader/scale?namespace=team-b", &scale, &first).await;
    assert_eq!(got.status, 403, "{}", got.text());
    // A kept count does not bypass the check either.
    let mut kept = host_job("data", true, 1);
    kept["PreserveCounts"] = json!(true);
    let one = tenants.token("one", &format!("{write}host_volume \"data[0]\" {{ policy = \"write\" }}")).await;
    assert_eq!(register(&kept, &one).await, 403, "the stored count is two");
}

#[tokio::test]
async fn a_volume_of_users_must_not_have_the_name_of_one_of_the_configuration() {
    let tenants = Tenants::start().await;
    tenants
        .api
        .register_node_as(|node| {
            let info =
                HostVolumeInfo { name: "shared".into(), path: "/srv".into(), ..HostVolumeInfo::default() };
            node.host_volumes.insert("shared".into(), info);
        })
        .await;
    let rules = "namespace \"team-b\" { capabilities = [\"host-volume-create\", \"host-volume-register\"] }";
    let maker = tenants.token("maker", rules).await;
    for (verb, more) in [("create", json!({})), ("register", json!({"HostPath": "/srv"}))] {
        let mut volume = json!({"Name": "shared", "NodeID": NODE, "Namespace": "team-b"});
        volume.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let path = format!("/v1/volume/host/{verb}?namespace=team-b");
        let got = tenants.put(&path, &json!({"Volume": volume}), &maker).await;
        assert_eq!(got.status, 500, "{verb}: {}", got.text());
        assert!(
            got.text().contains("name already exists") || got.text().contains("not feasible"),
            "{}",
            got.text()
        );
        // In another namespace the request is refused before any attempt, wherever the namespace is named.
        let path = format!("/v1/volume/host/{verb}");
        for body in [
            json!({"Volume": {"Name": "x", "NodeID": NODE, "HostPath": "/srv", "Namespace": "team-a"}}),
            json!({"Namespace": "team-a", "Volume": {"Name": "x", "NodeID": NODE, "HostPath": "/srv"}}),
        ] {
            assert_eq!(tenants.put(&path, &body, &maker).await.status, 403, "{body}");
        }
    }
}

/// Ends a right in the named way.
async fn end(tenants: &Tenants, name: &str, how: &str) {
    let list = tenants.ask(&Method::GET, "/v1/acl/tokens", &Value::Null, &tenants.root).await.unwrap().json();
    let row = list.as_array().unwrap().iter().find(|row| row["Name"] == name).unwrap().clone();
    let accessor = row["AccessorID"].as_str().unwrap();
    let got = match how {
        "deleted" => {
            let path = format!("/v1/acl/token/{accessor}");
            tenants.ask(&Method::DELETE, &path, &Value::Null, &tenants.root).await.unwrap()
        }
        "cut down" => {
            let rules = "namespace \"team-b\" { policy = \"read\" }";
            tenants
                .put(&format!("/v1/acl/policy/{name}"), &json!({"Name": name, "Rules": rules}), &tenants.root)
                .await
        }
        _ => {
            let body = json!({"AccessorID": accessor, "Name": name, "Type": "client", "Policies": ["b"]});
            tenants.put(&format!("/v1/acl/token/{accessor}"), &body, &tenants.root).await
        }
    };
    assert_eq!(got.status, 200, "{how}: {}", got.text());
}

const ENDS: [&str; 3] = ["deleted", "cut down", "given other policies"];

#[tokio::test]
async fn a_query_that_waits_ends_with_its_right() {
    let tenants = Arc::new(Tenants::start().await);
    let rules = "namespace \"team-a\" { policy = \"read\" }";
    for (at, how) in ENDS.iter().enumerate() {
        for (nth, path) in ["jobs", "job/secret-job", "allocations", "evaluations"].iter().enumerate() {
            let name = format!("waits-{at}-{nth}");
            let secret = tenants.token(&name, rules).await;
            let asked = format!("/v1/{path}?namespace=team-a&index=999999999&wait=5m");
            let (all, own) = (tenants.clone(), secret.clone());
            let waiting =
                tokio::spawn(async move { all.api.web.send_as(Method::GET, &asked, Vec::new(), &own).await });
            tokio::task::yield_now().await;
            end(&tenants, &name, how).await;
            let got = tokio::time::timeout(TIMEOUT, waiting).await.expect("it goes on waiting").unwrap();
            assert_eq!(got.status, 403, "{path} {how}: {}", got.text());
            assert!(!got.text().contains("secret"), "{path} {how}: {}", got.text());
        }
    }
}

#[tokio::test]
async fn a_stream_ends_with_its_right() {
    let tenants = Tenants::start().await;
    let _node = with_node(&tenants, &[&tenants.alloc]);
    let rules = "namespace \"team-a\" { policy = \"write\" }";
    let log = format!("/v1/client/fs/logs/{}?task=t&type=stdout&follow=true", tenants.alloc);
    let paths = [log.as_str(), "/v1/event/stream?topic=Job&namespace=team-a"];
    for (at, how) in ENDS.iter().enumerate() {
        for (nth, path) in paths.iter().enumerate() {
            let name = format!("streams-{at}-{nth}");
            let secret = tenants.token(&name, rules).await;
            let mut answer = tenants.api.web.open_as(path, &secret).await;
            assert_eq!(answer.status(), 200, "{path}");
            let first = tokio::time::timeout(TIMEOUT, answer.body_mut().frame()).await;
            assert!(first.unwrap().is_some(), "{path}");
            end(&tenants, &name, how).await;
            let rest = tokio::time::timeout(TIMEOUT, answer.into_body().collect()).await;
            rest.unwrap_or_else(|_| panic!("{path} goes on: {how}")).unwrap();
        }
    }
}

#[tokio::test]
async fn a_command_in_a_task_ends_with_its_right() {
    let tenants = Tenants::start().await;
    let _node = with_node(&tenants, &[&tenants.alloc]);
    let rules = "namespace \"team-a\" { policy = \"write\" }";
    for (at, how) in ENDS.iter().enumerate() {
        let name = format!("runs-{at}");
        let secret = tenants.token(&name, rules).await;
        let command = "%5B%22/bin/cat%22%5D";
        let path = format!(
            "/v1/client/allocation/{}/exec?task=t&command={command}&ws_handshake=true",
            tenants.alloc
        );
        let web = tenants.api.web.clone();
        let hello = json!({"version": 1, "auth_token": secret});
        let talking = tokio::spawn(async move { crate::streams::talk(&web, &path, &[hello]).await });
        tokio::task::yield_now().await;
        end(&tenants, &name, how).await;
        let reported = tokio::time::timeout(TIMEOUT, talking).await.expect("it goes on").unwrap();
        let last = reported.last().unwrap();
        assert_eq!(last["reason"], "Permission denied", "{how}: {reported:?}");
    }
}

#[tokio::test]
async fn a_token_that_expires_ends_what_waits() {
    let tenants = Tenants::start_with_ttl().await;
    let policy = json!({"Name": "brief", "Rules": "namespace \"team-a\" { policy = \"read\" }"});
    assert_eq!(tenants.put("/v1/acl/policy/brief", &policy, &tenants.root).await.status, 200);
    let body = json!({"Name": "brief", "Type": "client", "Policies": ["brief"], "ExpirationTTL": "1s"});
    let token = tenants.put("/v1/acl/token", &body, &tenants.root).await;
    assert_eq!(token.status, 200, "{}", token.text());
    let secret = token.json()["SecretID"].as_str().unwrap().to_owned();
    let asked = "/v1/jobs?namespace=team-a&index=999999999&wait=5m";
    let waiting = tenants.api.web.send_as(Method::GET, asked, Vec::new(), &secret);
    let got = tokio::time::timeout(TIMEOUT, waiting).await.expect("it goes on waiting");
    assert_eq!((got.status.as_u16(), got.text().as_str()), (403, "ACL token expired"));
}

#[tokio::test]
async fn a_node_gets_no_token_of_a_caller() {
    let api = Api::start().await;
    api.register_node().await;
    let seen: Arc<Mutex<Vec<HttpRequest>>> = Arc::default();
    let kept = seen.clone();
    let router = Router::builder().stream::<methods::Http, _, _, _>(move |_, request: HttpRequest| {
        kept.lock().unwrap().push(request);
        let head = HttpPart::Head { status: 200, headers: Vec::new() };
        let items: Vec<Result<HttpPart, RpcError>> = vec![Ok(head)];
        async move { Ok(stream::iter(items)) }
    });
    let back = Channel::local(router.build(), PeerIdentity::server("s"));
    let _entry = api.registry.register(NODE.to_owned(), back);
    let headers = [
        ("X-Nomad-Token", "hunter2"),
        ("Authorization", "Bearer hunter2"),
        ("Cookie", "token=hunter2"),
        ("X-Nomad-CSI-Secrets", "k=hunter2"),
        ("Accept", "application/json"),
    ];
    let asked = format!("/v1/client/stats?node_id={NODE}&token=hunter2&Token=hunter2&t%6fken=hunter2&pretty");
    let got = api.web.send_with(Method::GET, &asked, &headers).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 1);
    let reported = format!("{:?}", seen[0]);
    assert!(!reported.contains("hunter2"), "{reported}");
    assert!(reported.contains("pretty") && reported.contains("application/json"), "{reported}");
}
