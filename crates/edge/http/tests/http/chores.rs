//! Deletion of evaluations by operators, identities of nodes, archives of allocations, logs of services.

use crate::harness::{Api, NOBODY};
use http::Method;
use serde_json::{Value, json};

async fn delete(api: &Api, body: Value) -> (u16, String) {
    let got = api.web.send(Method::DELETE, "/v1/evaluations", body.to_string().into_bytes()).await;
    (got.status.as_u16(), got.text())
}

async fn pause(api: &Api, paused: bool) {
    let config = json!({"SchedulerAlgorithm": "binpack", "PauseEvalBroker": paused, "PreemptionConfig": {}});
    assert_eq!(api.web.put("/v1/operator/scheduler/configuration", &config).await.status, 200);
}

#[tokio::test]
async fn evaluations_are_deleted_while_scheduling_is_paused() {
    let api = Api::start().await;
    api.register_node().await;
    api.register_job("toobig").await;
    let done = |evals: &Value| {
        evals.as_array().is_some_and(|all| all.iter().any(|eval| eval["Status"] == "blocked"))
    };
    let evals = api.web.until("/v1/job/toobig/evaluations", "a blocked evaluation", done).await;
    let id = evals.as_array().unwrap().iter().find(|e| e["Status"] == "blocked").unwrap()["ID"].clone();
    let paused = "eval broker is enabled; eval broker must be paused to delete evals";
    assert_eq!(delete(&api, json!({"EvalIDs": [id]})).await, (500, paused.into()));
    assert_eq!(delete(&api, json!({"Filter": "JobID == toobig"})).await, (500, paused.into()));
    let neither = "evals must be deleted by either ID or filter";
    assert_eq!(delete(&api, json!({"EvalIDs": [], "Filter": ""})).await, (400, neither.into()));
    let both = delete(&api, json!({"EvalIDs": [id], "Filter": "JobID == toobig"})).await;
    assert_eq!(both.0, 400, "{}", both.1);
    pause(&api, true).await;
    assert_eq!(delete(&api, json!({"EvalIDs": [NOBODY]})).await, (500, "eval not found".into()));
    assert_eq!(delete(&api, json!({"Filter": "Nope == 1"})).await.0, 400);
    let (status, text) = delete(&api, json!({"EvalIDs": [id]})).await;
    assert_eq!((status, serde_json::from_str::<Value>(&text).unwrap()["Count"].clone()), (200, json!(1)));
    let gone = api.web.get(&format!("/v1/evaluation/{}", id.as_str().unwrap())).await;
    assert_eq!(gone.status, 404);
    // Pending evaluations are deleted too: that is the purpose of the pause.
    api.register_job("crunch").await;
    let (_, text) = delete(&api, json!({"Filter": "JobID == crunch and Status == pending"})).await;
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["Count"], 1, "{text}");
    let (_, text) = delete(&api, json!({"Filter": "JobID == crunch"})).await;
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["Count"], 0, "{text}");
    // The scheduler continues with later evaluations.
    pause(&api, false).await;
    api.register_job("crunch").await;
    let one = |list: &Value| list.as_array().is_some_and(|list| list.len() == 1);
    api.web.until("/v1/job/crunch/allocations", "an allocation", one).await;
}

#[tokio::test]
async fn evaluations_that_something_depends_on_stay() {
    let api = Api::start().await;
    api.register_node().await;
    api.register_job("crunch").await;
    let one = |list: &Value| list.as_array().is_some_and(|list| list.len() == 1);
    let list = api.web.until("/v1/job/crunch/allocations", "an allocation", one).await;
    pause(&api, true).await;
    let (status, text) = delete(&api, json!({"EvalIDs": [list[0]["EvalID"]]})).await;
    assert_eq!((status, text.contains("cannot be deleted")), (500, true), "{text}");
    let (_, text) = delete(&api, json!({"Filter": "JobID == crunch"})).await;
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["Count"], 0, "{text}");
}

#[tokio::test]
async fn logs_of_services_are_asked_for_in_one_way() {
    let api = Api::start().await;
    let status =
        async |query: &str| api.web.get(&format!("/v1/agent/monitor/export{query}")).await.status.as_u16();
    assert_eq!(status("").await, 400);
    assert_eq!(status("?on_disk=true").await, 400);
    assert_eq!(status("?on_disk=true&service_name=a").await, 400);
    assert_eq!(status("?service_name=a%20b").await, 422);
    assert_eq!(status("?service_name=a&logs_since=never").await, 400);
}

#[tokio::test]
async fn numbers_that_users_made_up_come_back_as_floats_and_change_nothing() {
    let api = Api::start().await;
    api.register_job("crunch").await;
    let mut job = api.web.get("/v1/job/crunch").await.json();
    job["TaskGroups"][0]["Tasks"][0]["Config"]["exit_code"] = json!(7);
    assert_eq!(api.web.put("/v1/jobs", &json!({"Job": job})).await.status, 200);
    let got = api.web.get("/v1/job/crunch").await;
    assert!(got.text().contains("\"exit_code\":7.0"), "{}", got.text());
    // The received job is registered again.
    assert_eq!(api.web.put("/v1/jobs", &json!({"Job": got.json()})).await.status, 200);
    assert_eq!(api.web.get("/v1/job/crunch").await.json()["Version"], got.json()["Version"]);
}
