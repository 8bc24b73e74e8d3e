//! Counts, version tags, statuses and actions of jobs.

use crate::harness::Api;
use http::Method;
use serde_json::{Value, json};

fn job(count: u32, text: &str) -> Value {
    json!({"Job": {"ID": "web", "Type": "service", "Datacenters": ["dc1"], "Meta": {"text": text}, "TaskGroups": [{
        "Name": "web", "Count": count, "Update": {"MaxParallel": 0},
        "Scaling": {"Min": 1, "Max": 5, "Enabled": true, "Policy": {"check": [{"target": 70}]}},
        "Tasks": [{"Name": "server", "Driver": "mock_driver", "Resources": {"CPU": 50, "MemoryMB": 48},
            "Actions": [{"Name": "hello", "Command": "/bin/echo", "Args": ["hi"]}]}],
    }]}})
}

#[tokio::test]
async fn a_payload_that_is_none_is_refused() {
    let api = Api::start().await;
    let got = api.web.put("/v1/jobs", &json!({"Job": {"ID": "a", "Payload": "%%%"}})).await;
    assert_eq!((got.status.as_u16(), got.text().as_str()), (400, "illegal base64 data at input byte 0"));
}

#[tokio::test]
async fn a_group_is_scaled_within_its_bounds_and_tells_its_story() {
    let api = Api::start().await;
    assert_eq!(api.web.put("/v1/jobs", &job(2, "a")).await.status, 200);
    let policies = api.web.get("/v1/scaling/policies").await.json();
    let policy = &policies[0];
    assert_eq!(policy["Target"], json!({"Namespace": "default", "Job": "web", "Group": "web"}));
    let id = policy["ID"].as_str().unwrap();
    assert_eq!(api.web.get(&format!("/v1/scaling/policy/{id}")).await.json()["Max"], 5);
    assert_eq!(api.web.get("/v1/scaling/policies?job=other").await.text(), "[]");
    let unknown = api.web.get("/v1/scaling/policy/11111111-2222-3333-4444-555555555555").await;
    assert_eq!((unknown.status.as_u16(), unknown.text().as_str()), (404, "policy not found"));

    let scaled = api
        .web
        .put(
            "/v1/job/web/scale",
            &json!({"Count": 3, "Target": {"Group": "web"}, "Message": "more", "Meta": {"n": 1}}),
        )
        .await;
    assert_eq!(scaled.status, 200, "{}", scaled.text());
    assert_eq!(scaled.json()["EvalID"].as_str().unwrap().len(), 36);
    let reported = json!({"Target": {"Group": "web"}, "Message": "no metrics", "Error": true});
    let event = api.web.put("/v1/job/web/scale", &reported).await.json();
    assert_eq!((event["EvalID"].as_str(), event["EvalCreateIndex"].as_u64()), (Some(""), Some(0)));
    let refused = api.web.put("/v1/job/web/scale", &json!({"Count": 9, "Target": {"Group": "web"}})).await;
    assert_eq!(
        (refused.status.as_u16(), refused.text().as_str()),
        (400, "group count was greater than scaling policy maximum: 9 > 5")
    );
    let status = api.web.get("/v1/job/web/scale").await.json();
    let group = &status["TaskGroups"]["web"];
    assert_eq!((group["Desired"].as_u64(), status["JobStopped"].as_bool()), (Some(3), Some(false)));
    assert_eq!(group["Events"][0]["Message"], "no metrics");
    assert_eq!(
        (group["Events"][1]["PreviousCount"].as_u64(), group["Events"][1]["Count"].as_u64()),
        (Some(2), Some(3))
    );
    assert!(group["Events"][1]["Meta"]["n"].is_f64() && group["Events"][0]["EvalID"].is_null());
    assert_eq!(api.web.get("/v1/job/web").await.json()["TaskGroups"][0]["Count"], 3);
    // A new version keeps the policy's id; a stopped job has no policy.
    assert_eq!(api.web.put("/v1/jobs", &job(3, "b")).await.status, 200);
    assert_eq!(api.web.get("/v1/scaling/policies").await.json()[0]["ID"], id);
    api.web.delete("/v1/job/web").await;
    assert_eq!(api.web.get("/v1/scaling/policies").await.text(), "[]");
}

#[tokio::test]
async fn a_tagged_version_is_kept_and_compared_with() {
    let api = Api::start().await;
    for text in ["a", "b"] {
        assert_eq!(api.web.put("/v1/jobs", &job(1, text)).await.status, 200);
    }
    let tag = "/v1/job/web/versions/golden/tag";
    let tagged = api.web.put(tag, &json!({"Version": 0, "Description": "keep"})).await;
    assert_eq!((tagged.json()["Name"].as_str(), tagged.header("x-nomad-index")), (Some("golden"), None));
    let again = api.web.put(tag, &json!({"Version": 1})).await;
    assert_eq!(again.text(), "tag \"golden\" already exists on a different version of job \"web\"");
    for n in 0..8 {
        api.web.put("/v1/jobs", &job(1, &n.to_string())).await;
    }
    let versions = api.web.get("/v1/job/web/versions?diffs=true&diff_tag=golden").await.json();
    let kept = versions["Versions"].as_array().unwrap();
    let last = kept.last().unwrap();
    assert_eq!(
        (last["Version"].as_u64(), last["VersionTag"]["Description"].as_str()),
        (Some(0), Some("keep"))
    );
    let diffs = versions["Diffs"].as_array().unwrap();
    assert_eq!((diffs.len(), diffs.last().unwrap()["Type"].as_str()), (kept.len(), Some("None")));
    let missing = api.web.put("/v1/job/web/versions/t/tag", &json!({"Version": 77})).await;
    assert_eq!((missing.status.as_u16(), missing.text().as_str()), (500, "job \"web\" version 77 not found"));
    assert_eq!(api.web.delete(tag).await.json()["Name"], "");
    let gone = api.web.delete(tag).await;
    assert_eq!(
        (gone.status.as_u16(), gone.text().as_str()),
        (500, "tag \"golden\" not found on job \"web\"")
    );
    let versions = api.web.get("/v1/job/web/versions").await.json();
    assert_eq!(versions["Versions"].as_array().unwrap().len(), 6);
    versions_have_pages(&api, &versions["Versions"]).await;
}

/// Reads all versions in pages of two, with their differences.
async fn versions_have_pages(api: &Api, all: &Value) {
    let (mut seen, mut differences, mut token) = (Vec::new(), 0, String::new());
    loop {
        let path = format!("/v1/job/web/versions?diffs=true&count=true&per_page=2&next_token={token}");
        let page = api.web.get(&path).await;
        assert_eq!((page.status.as_u16(), page.header("x-caravan-total")), (200, Some("6")));
        let rows = page.json();
        seen.extend(rows["Versions"].as_array().unwrap().clone());
        differences += rows["Diffs"].as_array().unwrap().len();
        match page.header("x-nomad-nexttoken") {
            Some(next) => token = next.to_owned(),
            None => break,
        }
        assert_eq!(differences, seen.len(), "each version has its difference");
    }
    assert_eq!((&Value::Array(seen), differences), (all, 5), "nothing is older than the last version");
    let sorted = api.web.get("/v1/job/web/versions?sort=version").await;
    assert_eq!(sorted.status, 400, "{}", sorted.text());
}

#[tokio::test]
async fn statuses_come_newest_first_in_pages() {
    let api = Api::start().await;
    api.register_node().await;
    assert_eq!(api.web.put("/v1/jobs", &job(2, "a")).await.status, 200);
    for id in ["crunch", "everywhere"] {
        api.register_job(id).await;
    }
    let first = api.web.get("/v1/jobs/statuses?per_page=2").await;
    let rows = first.json();
    assert!(rows[0]["ModifyIndex"].as_u64() >= rows[1]["ModifyIndex"].as_u64());
    let token = first.header("x-nomad-nexttoken").unwrap();
    let second = api.web.get(&format!("/v1/jobs/statuses?per_page=2&next_token={token}")).await.json();
    assert_eq!(second.as_array().unwrap().len(), 1);
    let named = json!({"Jobs": [{"ID": "web", "Namespace": "default"}]});
    let named = api.web.send(Method::POST, "/v1/jobs/statuses", named.to_string().into_bytes()).await.json();
    assert_eq!((named[0]["ID"].as_str(), named[0]["GroupCountSum"].as_u64()), (Some("web"), Some(2)));
    let wrong = api.web.get("/v1/jobs/statuses?filter=Nope%20==%201").await;
    assert_eq!(wrong.status, 500);
}

#[tokio::test]
async fn allocations_of_jobs_are_counted() {
    let api = Api::start().await;
    api.register_node().await;
    assert_eq!(api.web.put("/v1/jobs", &job(2, "a")).await.status, 200);
    let web = |rows: Value| rows.as_array().unwrap().iter().find(|row| row["ID"] == "web").cloned().unwrap();
    let path = "/v1/jobs/statuses?allocs=counts";
    let is_pending = |rows: &Value| web(rows.clone())["CaravanAllocs"] == json!({"pending": 2});
    let found = web(api.web.until(path, "two allocations", is_pending).await);
    assert_eq!((&found["CaravanAllocs"], &found["Allocs"]), (&json!({"pending": 2}), &Value::Null));
    let listed = web(api.web.get("/v1/jobs/statuses").await.json());
    assert_eq!(listed["Allocs"].as_array().unwrap().len(), 2);
    assert!(listed.get("CaravanAllocs").is_none(), "{listed}");
    let wrong = api.web.get("/v1/jobs/statuses?allocs=some").await;
    assert_eq!(wrong.status, 400);
    assert!(wrong.text().contains("`allocs` must be"), "{}", wrong.text());
}

#[tokio::test]
async fn actions_are_listed_and_resources_preserved() {
    let api = Api::start().await;
    assert_eq!(api.web.put("/v1/jobs", &job(1, "a")).await.status, 200);
    let actions = api.web.get("/v1/job/web/actions").await.json();
    let want = json!([{"Name": "hello", "Command": "/bin/echo", "Args": ["hi"], "TaskName": "server", "TaskGroupName": "web"}]);
    assert_eq!(actions, want);
    let unknown = api.web.get("/v1/job/nope/actions").await;
    assert_eq!((unknown.status.as_u16(), unknown.text().as_str()), (500, "Unknown job \"nope\""));
    let mut bigger = job(4, "b");
    bigger["Job"]["TaskGroups"][0]["Tasks"][0]["Resources"] = json!({"CPU": 500, "MemoryMB": 480});
    bigger["PreserveResources"] = json!(true);
    bigger["PreserveCounts"] = json!(true);
    assert_eq!(api.web.put("/v1/jobs", &bigger).await.status, 200);
    let group = &api.web.get("/v1/job/web").await.json()["TaskGroups"][0];
    assert_eq!(
        (group["Count"].as_u64(), group["Tasks"][0]["Resources"]["CPU"].as_u64()),
        (Some(1), Some(50))
    );
    let evaluated = json!({"JobID": "web", "EvalOptions": {"ForceReschedule": true}});
    assert_eq!(api.web.put("/v1/job/web/evaluate", &evaluated).await.status, 200);
}
