//! Jobs, evaluations, allocations, volumes: shapes, errors, blocking queries, pages.

use crate::harness::{Api, NOBODY};
use crate::shape::{assert_shape, exchanges, recorded};
use http::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Jobs without unsupported features.
const JOBS: [&str; 3] = ["crunch", "everywhere", "toobig"];

#[tokio::test]
async fn an_empty_cluster_answers_empty_lists_with_the_index_of_their_tables() {
    let api = Api::start().await;
    let tables = [
        ("/v1/jobs", 0),
        ("/v1/allocations", 0),
        ("/v1/evaluations", 0),
        ("/v1/deployments", 0),
        ("/v1/nodes", 0),
        ("/v1/volumes?type=csi", 0),
        ("/v1/plugins?type=csi", 0),
        ("/v1/job/nope/allocations", 0),
        ("/v1/job/nope/evaluations", 0),
        // Nomad raises the index of these tables without a write.
        ("/v1/vars", 1),
        ("/v1/services", 1),
        ("/v1/volumes?type=host", 1),
        ("/v1/scaling/policies", 1),
    ];
    for (path, index) in tables {
        let got = api.web.get(path).await;
        assert_eq!((got.status.as_u16(), got.text().as_str()), (200, "[]"), "{path}");
        assert_eq!(got.header("content-type"), Some("application/json"));
        assert_eq!(got.index(), index, "{path}");
        assert_eq!(got.header("x-nomad-knownleader"), Some("true"));
        assert_eq!(got.header("x-nomad-lastcontact"), Some("0"));
    }
}

#[tokio::test]
async fn jobs_have_their_recorded_shapes() {
    let api = Api::start().await;
    api.register_node().await;
    for id in JOBS {
        let got = api.register_job(id).await;
        assert_shape(&recorded_registration(), &got.json(), &[]);
        assert_eq!(got.index(), got.json()["Index"].as_u64().unwrap());
        assert_eq!(got.header("x-nomad-knownleader"), None, "writes tell the index only");
    }
    for id in ["crunch", "everywhere"] {
        let got = api.web.get(&format!("/v1/job/{id}")).await;
        assert_shape(&recorded("jobs", &format!("/v1/job/{id}")), &got.json(), &[]);
        assert_eq!(got.index(), got.json()["ModifyIndex"].as_u64().unwrap());
    }
    let list = api.web.get("/v1/jobs").await.json();
    let ids: Vec<&str> = list.as_array().unwrap().iter().filter_map(|job| job["ID"].as_str()).collect();
    assert_eq!(ids, JOBS);
    let recorded_list = exchanges("jobs")
        .into_iter()
        .filter(|e| e["method"] == "GET" && e["path"] == "/v1/jobs" && e.get("query").is_none())
        .find_map(|e| e["body"].as_array().filter(|list| !list.is_empty()).cloned())
        .unwrap();
    assert_shape(&Value::Array(recorded_list), &list, &[]);
    let summary = api.web.get("/v1/job/crunch/summary").await.json();
    assert_shape(&recorded("jobs", "/v1/job/crunch/summary"), &summary, &[]);
    let versions = api.web.get("/v1/job/crunch/versions").await.json();
    assert_eq!(versions["Versions"].as_array().unwrap().len(), 1);
    assert_eq!((&versions["Diffs"], &versions["KnownLeader"]), (&Value::Null, &json!(true)));
    assert_eq!(api.web.get("/v1/job/crunch/deployment").await.text(), "null");
}

fn recorded_registration() -> Value {
    let all = exchanges("jobs");
    all.iter().find(|e| e["path"] == "/v1/jobs" && e["method"] == "PUT").unwrap()["body"].clone()
}

#[tokio::test]
async fn a_blocked_evaluation_explains_itself() {
    let api = Api::start().await;
    api.register_node().await;
    api.register_job("toobig").await;
    let blocked = |evals: &Value| {
        evals.as_array().is_some_and(|evals| evals.iter().any(|eval| eval["Status"] == "blocked"))
    };
    let evals = api.web.until("/v1/job/toobig/evaluations", "a blocked evaluation", blocked).await;
    let find = |evals: &Value| {
        evals.as_array().unwrap().iter().find(|eval| eval["Status"] == "blocked").unwrap().clone()
    };
    let (want, got) = (find(&recorded("jobs", "/v1/job/toobig/evaluations")), find(&evals));
    let metric = |eval: &Value, group: &str| eval["FailedTGAllocs"][group].clone();
    for group in ["huge", "picky"] {
        let keys = |value: Value| {
            value.as_object().unwrap().keys().cloned().collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(keys(metric(&got, group)), keys(metric(&want, group)), "{got:#}");
    }
    let id = got["ID"].as_str().unwrap();
    let one = api.web.get(&format!("/v1/evaluation/{id}?related=true")).await;
    assert_eq!(one.json()["RelatedEvals"].as_array().unwrap().len(), 1, "{}", one.text());
    assert_eq!(one.json()["RelatedEvals"][0]["ID"], got["PreviousEval"]);
    assert_eq!(api.web.get(&format!("/v1/evaluation/{id}/allocations")).await.text(), "[]");
    let count = api.web.get("/v1/evaluations/count").await.json();
    assert_shape(&recorded("evaluations", "/v1/evaluations/count"), &count, &[]);
}

#[tokio::test]
async fn allocations_have_their_recorded_shapes() {
    let api = Api::start().await;
    api.register_node().await;
    api.register_job("crunch").await;
    let one = |list: &Value| list.as_array().is_some_and(|list| list.len() == 1);
    let list = api.web.until("/v1/job/crunch/allocations", "an allocation", one).await;
    api.run(&list[0]).await;
    let runs = |list: &Value| list[0]["ClientStatus"] == "running";
    let list = api.web.until("/v1/allocations", "a running allocation", runs).await;
    let want = recorded("allocations", "/v1/allocations");
    let want = want.as_array().unwrap().iter().find(|a| a["JobID"] == "crunch").unwrap();
    // The recorded task has ended.
    assert_shape(want, &list[0], &[".TaskStates[].FinishedAt is null instead of string"]);
    assert_eq!(list[0]["TaskStates"]["once"]["Events"][0]["DisplayMessage"], "Task started by client");

    let path = format!("/v1/allocation/{}", list[0]["ID"].as_str().unwrap());
    let got = api.web.get(&path).await;
    let want = exchanges("allocations");
    let want = want.iter().find(|e| e["body"]["JobID"] == "crunch" && e["body"].get("Job").is_some());
    if let Some(want) = want {
        let found = crate::shape::differences(&want["body"], &got.json());
        let allowed = |d: &String| {
            [".Job", "NetworkStatus", "SigningKeyID", "FinishedAt", ".Metrics"].iter().any(|k| d.contains(k))
        };
        assert!(found.iter().all(allowed), "{found:?}");
    }
    let alloc = got.json();
    assert_eq!(alloc["Resources"]["CPU"], 20);
    assert_eq!(alloc["Resources"]["MemoryMaxMB"], 16);
    assert_eq!(alloc["TaskResources"]["once"]["MemoryMB"], 16);
    assert_eq!(alloc["SharedResources"]["DiskMB"], 10);
    assert!(alloc.get("NextAllocation").is_none() && alloc.get("DesiredTransition").is_none());
    assert_eq!(got.index(), alloc["ModifyIndex"].as_u64().unwrap());

    let stubs = api.web.get("/v1/allocations?resources=true&task_states=false").await.json();
    assert!(stubs[0]["AllocatedResources"].is_object() && stubs[0]["TaskStates"].is_null());
    let stop = api.web.put(&format!("{path}/stop"), &Value::Null).await;
    assert_eq!(stop.status, 200, "{}", stop.text());
    assert_eq!(stop.json()["Index"].as_u64().unwrap(), stop.index());
    assert_eq!(stop.json()["EvalID"].as_str().unwrap().len(), 36);
}

#[tokio::test]
async fn missing_objects_have_the_recorded_errors() {
    let api = Api::start().await;
    for topic in ["errors", "evaluations", "allocations", "nodes", "volumes_csi_no_plugin"] {
        for exchange in exchanges(topic) {
            let path = exchange["path"].as_str().unwrap();
            let method: Method = exchange["method"].as_str().unwrap().parse().unwrap();
            if exchange["status"] != 404 && exchange["status"] != 400 || method != Method::GET {
                continue;
            }
            if exchange.get("query").is_some_and(|q| !q.is_null()) {
                continue;
            }
            let got = api.web.send(method, path, Vec::new()).await;
            let want = exchange.get("body_text").and_then(Value::as_str).unwrap_or_default();
            if !want.contains("not found") {
                continue;
            }
            assert_eq!((got.status.as_u16(), got.text().as_str()), (404, want), "{topic} {path}");
            assert_eq!(got.header("content-type"), Some("text/plain; charset=utf-8"));
        }
    }
}

/// Jobs that Nomad refuses and this server accepts, because admission lacks the rule. The list
/// may only shrink.
const ACCEPTED: &[&str] = &[];

#[tokio::test]
async fn bad_jobs_are_refused_in_the_recorded_words() {
    let api = Api::start().await;
    let (mut compared, mut accepted) = (0, Vec::new());
    for exchange in exchanges("errors") {
        let is_put = exchange["method"] == "PUT" && exchange["path"] == "/v1/jobs";
        if !is_put || exchange["status"] == 200 || exchange["status"] == 403 {
            continue;
        }
        let body = match &exchange["request_body"] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let got = api.web.send(Method::PUT, "/v1/jobs", body.into_bytes()).await;
        if got.status == 200 {
            accepted.push(exchange["request_body"]["Job"]["ID"].as_str().unwrap().to_owned());
            continue;
        }
        // Admission's own test compares the texts about parsed jobs.
        let want = exchange["body_text"].as_str().unwrap();
        assert_eq!(
            u64::from(got.status.as_u16()),
            exchange["status"].as_u64().unwrap(),
            "{want} / {}",
            got.text()
        );
        if got.status == 400 {
            assert_eq!(got.text(), want);
            compared += 1;
        }
    }
    assert!(compared > 5);
    assert_eq!(accepted, ACCEPTED);
}

#[tokio::test]
async fn volumes_without_a_plugin_answer_as_recorded() {
    let api = Api::start().await;
    for exchange in exchanges("volumes_csi_no_plugin") {
        let path = exchange["path"].as_str().unwrap();
        let query: Vec<String> = exchange["query"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap()))
            .collect();
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) };
        let body = exchange.get("request_body").filter(|body| !body.is_null());
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let method: Method = exchange["method"].as_str().unwrap().parse().unwrap();
        let got = api.web.send(method, &target, body).await;
        let want = match exchange.get("body") {
            Some(body) => body.to_string(),
            None => exchange["body_text"].as_str().unwrap_or_default().to_owned(),
        };
        assert_eq!(
            (u64::from(got.status.as_u16()), got.text()),
            (exchange["status"].as_u64().unwrap(), want),
            "{} {target}",
            exchange["method"]
        );
        let wants_meta = exchange["headers"].get("X-Nomad-Index").is_some();
        assert_eq!(got.header("x-nomad-index").is_some(), wants_meta, "{target}");
    }
}

#[tokio::test]
async fn a_blocking_query_waits_for_its_own_object_only() {
    let api = Api::start().await;
    api.register_job("crunch").await;
    let first = api.web.get("/v1/job/crunch").await;
    let path = format!("/v1/job/crunch?index={}&wait=60s", first.index());
    let web = api.web.clone();
    let waiting = tokio::spawn(async move { web.get(&path).await });
    api.register_job("everywhere").await;
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished(), "another job woke it");
    let stopped = api.web.delete("/v1/job/crunch").await;
    let stopped_at = stopped.index();
    let got = tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap().unwrap();
    assert!(got.index() >= stopped_at);
    assert_eq!(got.json()["Stop"], true);
    // A wait that times out returns the current state.
    let again = format!("/v1/job/crunch?index={}&wait=50ms", got.index() + 1000);
    let late = api.web.get(&again).await;
    assert_eq!((late.status.as_u16(), &late.json()["ID"]), (200, &json!("crunch")));
    // A wait for an object that is never created times out too.
    let before = Instant::now();
    let absent = api.web.get("/v1/job/nope?index=99999&wait=50ms").await;
    assert_eq!((absent.status.as_u16(), absent.text().as_str()), (404, "job not found"));
    assert!(before.elapsed() >= Duration::from_millis(50));
}

#[tokio::test]
async fn lists_come_in_pages() {
    let api = Api::start().await;
    for id in JOBS {
        api.register_job(id).await;
    }
    let first = api.web.get("/v1/jobs?per_page=2").await;
    assert_eq!(first.json().as_array().unwrap().len(), 2);
    assert_eq!(first.header("x-nomad-nexttoken"), Some("default.toobig"));
    let second = api.web.get("/v1/jobs?per_page=2&next_token=default.toobig").await;
    assert_eq!(second.json()[0]["ID"], "toobig");
    assert_eq!(second.header("x-nomad-nexttoken"), None);
    let back = api.web.get("/v1/jobs?per_page=1&reverse=true&namespace=*").await;
    assert_eq!(back.json()[0]["ID"], "toobig");
    assert_eq!(api.web.get("/v1/jobs?prefix=cr").await.json().as_array().unwrap().len(), 1);
    assert_eq!(api.web.get("/v1/jobs?namespace=other").await.text(), "[]");
    let filtered = api.web.get("/v1/jobs?filter=ID%20matches%20%22%5Ecr%22").await;
    assert_eq!(filtered.json().as_array().unwrap().len(), 1);
    let wrong = api.web.get("/v1/jobs?filter=Nope%20==%201").await;
    assert_eq!(
        (wrong.status.as_u16(), wrong.text().as_str()),
        (
            400,
            "failed to read result page: error finding value in datum: /Nope at part 0: couldn't find key: struct field with name \"Nope\""
        )
    );
    let evals = api.web.get("/v1/evaluations?per_page=1").await;
    let (index, id) = evals.header("x-nomad-nexttoken").unwrap().split_once('.').unwrap();
    assert!(index.parse::<u64>().is_ok() && id.len() == 36);
}

#[tokio::test]
async fn a_job_goes_through_its_routes() {
    let api = Api::start().await;
    api.register_node().await;
    let text = "job \"sourced\" {\n  type = \"batch\"\n  group \"g\" {\n    task \"t\" {\n      driver = \"mock_driver\"\n      config { run_for = \"100ms\" }\n    }\n  }\n}\n";
    for canonicalize in [false, true] {
        let parsed =
            api.web.put("/v1/jobs/parse", &json!({"JobHCL": text, "Canonicalize": canonicalize})).await;
        assert_eq!(parsed.status, 200, "{}", parsed.text());
        assert_eq!(
            (&parsed.json()["ID"], parsed.json()["Priority"].is_null()),
            (&json!("sourced"), !canonicalize)
        );
    }
    let job = api.web.put("/v1/jobs/parse", &json!({"JobHCL": text})).await.json();
    let wrong = api.web.put("/v1/jobs/parse", &json!({"JobHCL": "job \"x\" {"})).await;
    assert_eq!(wrong.status, 400);
    assert!(wrong.text().starts_with("Failed to parse job: input.hcl:1"), "{}", wrong.text());

    let valid = api.web.put("/v1/validate/job", &json!({"Job": job})).await;
    assert_eq!((&valid.json()["Error"], &valid.json()["ValidationErrors"]), (&json!(""), &Value::Null));
    let plan = api.web.put("/v1/job/sourced/plan", &json!({"Job": job, "Diff": true})).await;
    assert_eq!(plan.status, 200, "{}", plan.text());
    assert_eq!((&plan.json()["Diff"]["Type"], &plan.json()["JobModifyIndex"]), (&json!("Added"), &json!(0)));
    assert_eq!(plan.json()["Annotations"]["DesiredTGUpdates"]["g"]["Place"], 1);

    let body = json!({"Job": job, "Submission": {
        "Source": text, "Format": "hcl2", "Variables": "y = 1", "VariableFlags": {"x": "a b&c"}}});
    assert_eq!(api.web.put("/v1/job/other", &body).await.status, 400);
    assert_eq!(api.web.put("/v1/job/sourced", &body).await.status, 200);
    let plan = api.web.put("/v1/job/sourced/plan", &json!({"Job": job, "Diff": true})).await.json();
    assert_eq!(plan["Diff"]["Type"], "None", "what the servers filled in is no difference: {}", plan["Diff"]);
    let source = api.web.get("/v1/job/sourced/submission?version=0").await.json();
    let want = exchanges("jobs");
    let want = want.iter().find(|e| e["path"] == "/v1/job/sourced/submission").unwrap();
    assert_shape(&want["body"], &source, &[]);
    assert_eq!((&source["Source"], &source["VariableFlags"]["x"]), (&json!(text), &json!("a b&c")));
    let again = api.web.put("/v1/job/sourced/evaluate", &json!({"JobID": "sourced"})).await;
    assert_eq!(again.json()["EvalID"].as_str().unwrap().len(), 36);
    let enforced = json!({"Job": job, "EnforceIndex": true, "JobModifyIndex": 1});
    let refused = api.web.put("/v1/jobs", &enforced).await;
    assert_eq!(refused.status, 500);
    assert!(refused.text().starts_with("Enforcing job modify index 1: job exists with conflicting"));

    let found = api.web.put("/v1/search", &json!({"Prefix": "sour", "Context": "jobs"})).await.json();
    assert_eq!(found["Matches"], json!({"jobs": ["sourced"]}));
    let gone = api.web.delete("/v1/job/sourced?purge=true").await.json();
    assert_eq!((&gone["VolumeEvalID"], &gone["VolumeEvalIndex"]), (&json!(""), &json!(0)));
    let nothing = api.web.delete("/v1/job/no-such-job").await;
    assert_eq!((nothing.status.as_u16(), &nothing.json()["EvalID"]), (200, &json!("")));
    let bad = api.web.delete("/v1/job/web?global=notabool").await;
    assert_eq!(bad.status, 500);
    assert_eq!(
        bad.text(),
        "Failed to parse value of \"global\" (notabool) as a bool: strconv.ParseBool: parsing \"notabool\": invalid syntax"
    );
    assert_eq!(api.web.put("/v1/job/nope/evaluate", &Value::Null).await.text(), "job not found");
    let alloc = api.web.put(&format!("/v1/allocation/{NOBODY}/stop"), &Value::Null).await;
    assert_eq!((alloc.status.as_u16(), alloc.text().as_str()), (404, "allocation not found"));
    assert_eq!(api.web.put("/v1/system/gc", &Value::Null).await.status, 200);
    assert_eq!(api.web.send(Method::POST, "/v1/system/gc", Vec::new()).await.status, 405);
}
