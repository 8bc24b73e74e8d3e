//! Problems of jobs as data, next to texts that do not change.

use crate::harness::Api;
use caravan_api::{JobPath, JobProblem};
use http::Method;
use serde_json::{Value, json};

/// A job with faults on every level. Some are inherited, and a mount without a volume precedes the wrong one.
fn faulty() -> Value {
    json!({
        "ID": "broken", "Type": "service", "Priority": 500, "Update": {"Canary": -1},
        "Constraints": [{"LTarget": "${attr.a}", "RTarget": "[", "Operand": "regexp"}],
        "TaskGroups": [{
            "Name": "g", "Count": 1, "RestartPolicy": {"Mode": "never"},
            "Volumes": {"a.b": {"Type": "csi", "Source": "s", "AttachmentMode": "file-system"}},
            "Networks": [{"DynamicPorts": [{"Label": "x", "To": -2}]}],
            "Services": [{"Name": "bad_name!", "Provider": "nomad"}],
            "Tasks": [{
                "Name": "t", "Driver": "mock_driver", "Resources": {"MemoryMB": 1, "CPU": 0},
                "VolumeMounts": [{"Destination": "/x"}, {"Volume": "nope", "Destination": "/y"}],
                "Templates": [{"DestPath": "../../x", "EmbeddedTmpl": "x"}],
            }],
        }],
    })
}

fn problems(answer: &Value) -> Vec<JobProblem> {
    serde_json::from_value(answer["CaravanProblems"].clone()).unwrap()
}

#[tokio::test]
async fn a_refusal_is_text_unless_data_is_asked_for() {
    let api = Api::start().await;
    let body = json!({"Job": faulty()});
    for path in ["/v1/jobs", "/v1/job/broken", "/v1/job/broken/plan"] {
        let plain = api.web.put(path, &body).await;
        assert_eq!(plain.status, 500);
        assert_eq!(plain.headers["content-type"], "text/plain; charset=utf-8");
        assert!(
            plain.text().contains("errors occurred:\n\t* Constraint 1 validation failed"),
            "{}",
            plain.text()
        );
        let asked = api.web.put(&format!("{path}?caravan_problems=true"), &body).await;
        assert_eq!(
            (asked.status, &asked.headers["content-type"]),
            (plain.status, &"application/json".parse().unwrap())
        );
        assert_eq!(asked.json()["Error"], plain.text(), "the text is the same");
        assert!(problems(&asked.json()).len() >= 10, "{}", asked.text());
        let off = api.web.put(&format!("{path}?caravan_problems=false"), &body).await;
        assert_eq!(off.text(), plain.text());
    }
    let check = api.web.put("/v1/validate/job", &body).await.json();
    assert_eq!(check["Error"], api.web.put("/v1/jobs", &body).await.text());
    // Refusals that are not about the job stay text.
    let other = api.web.put("/v1/jobs?caravan_problems=true", &json!({"Job": {"ID": ""}})).await;
    assert_eq!((other.status.as_u16(), other.text().as_str()), (400, "Job ID hasn't been provided"));
}

#[tokio::test]
async fn every_problem_has_the_path_of_its_setting_in_the_request() {
    let api = Api::start().await;
    let job = faulty();
    let answer = api.web.put("/v1/validate/job", &json!({"Job": job})).await.json();
    let found = problems(&answer);
    let text = answer["Error"].as_str().unwrap().to_owned() + answer["Warnings"].as_str().unwrap();
    for problem in &found {
        assert!(text.contains(&problem.text), "{problem:?} is not in {text}");
        // A setting that is missing has a path, too; the block that would hold it is there.
        let path = problem.path.to_string();
        let block: JobPath = path.rsplit_once('.').map_or("", |(block, _)| block).parse().unwrap();
        assert!(block.resolve(&job).is_some(), "{path} of {problem:?}");
    }
    let all: Vec<String> = found.iter().map(|problem| format!("{} {}", problem.path, problem.code)).collect();
    for one in [
        "Priority above_maximum",
        "Update.Canary below_minimum",
        "Constraints[0].RTarget invalid_regexp",
        "TaskGroups[0].RestartPolicy.Mode unknown_word",
        "TaskGroups[0].Volumes[\"a.b\"].AccessMode missing",
        "TaskGroups[0].Networks[0].DynamicPorts[0].To below_minimum",
        "TaskGroups[0].Services[0].Name invalid_name",
        "TaskGroups[0].Tasks[0].Resources.MemoryMB below_minimum",
        "TaskGroups[0].Tasks[0].Resources.CPU below_minimum",
        "TaskGroups[0].Tasks[0].VolumeMounts[1].Volume undefined_reference",
        "TaskGroups[0].Tasks[0].Templates[0].DestPath path_escapes",
        "TaskGroups[0].ShutdownDelay abrupt_stop",
    ] {
        assert!(all.iter().any(|got| got == one), "{one} is not in {all:#?}");
    }
}

#[tokio::test]
async fn warnings_are_data_beside_their_text() {
    let api = Api::start().await;
    api.register_node().await;
    let job = |warned: bool| {
        let update = if warned { json!({"MaxParallel": 3}) } else { Value::Null };
        json!({"ID": "warned", "Datacenters": ["*"], "TaskGroups": [
            {"Name": "g", "Count": 2, "Update": update, "Tasks": [{"Name": "t", "Driver": "mock_driver"}]}]})
    };
    for path in ["/v1/validate/job", "/v1/job/warned/plan", "/v1/jobs"] {
        let calm = api.web.put(path, &json!({"Job": job(false)})).await.json();
        assert!(calm.get("CaravanProblems").is_none(), "{path}: {calm}");
        let warned = api.web.put(path, &json!({"Job": job(true)})).await.json();
        let [problem] = &problems(&warned)[..] else { panic!("{path}: {warned}") };
        assert_eq!(problem.path.to_string(), "TaskGroups[0].Update.MaxParallel");
        assert_eq!(problem.code, "disruptive");
        assert_eq!(problem.severity, caravan_api::Severity::Warning);
        assert!(warned["Warnings"].as_str().unwrap().contains(&problem.text), "{path}: {warned}");
    }
}

#[tokio::test]
async fn problems_that_take_the_state_have_codes_too() {
    let api = Api::start().await;
    let spec = json!({"Name": "strict", "Capabilities": {"DisabledTaskDrivers": ["mock_driver"]}});
    assert_eq!(api.web.put("/v1/namespace/strict", &spec).await.status, 200);
    let job = json!({"ID": "j", "Datacenters": ["*"], "NodePool": "none",
        "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "mock_driver"}]}]});
    let answer = api.web.put("/v1/validate/job?namespace=strict", &json!({"Job": job})).await.json();
    let all: Vec<String> = problems(&answer).iter().map(|p| format!("{} {}", p.path, p.code)).collect();
    assert_eq!(
        all,
        ["NodePool nonexistent", "TaskGroups[0].Tasks[0].Driver not_allowed_in_namespace"],
        "{answer}"
    );
    let asked = json!({"Job": {"ID": "j", "ParentID": "p", "Datacenters": ["*"],
        "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "mock_driver"}]}]}});
    let answer = api.web.put("/v1/jobs?caravan_problems=true", &asked).await.json();
    let all: Vec<String> = problems(&answer).iter().map(|p| format!("{} {}", p.path, p.code)).collect();
    assert_eq!(all, ["ParentID immutable"], "{answer}");
}

#[tokio::test]
async fn reasons_that_clients_act_on_are_named() {
    let api = Api::start().await;
    let job = json!({"ID": "j", "Datacenters": ["*"],
        "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "mock_driver"}]}]});
    let enforced = json!({"Job": job, "EnforceIndex": true, "JobModifyIndex": 7});
    let refused = api.web.put("/v1/jobs", &enforced).await;
    assert_eq!(refused.headers["x-caravan-reason"], "modify_index");
    assert!(refused.text().starts_with("Enforcing job modify index 7"), "{}", refused.text());
    let other = api.web.put("/v1/jobs", &json!({"Job": faulty()})).await;
    assert!(other.headers.get("x-caravan-reason").is_none());
}

#[tokio::test]
async fn a_setting_that_cannot_be_read_is_one_problem() {
    let api = Api::start().await;
    let job = json!({"ID": "j", "Datacenters": ["*"], "TaskGroups": [{
        "Name": "g",
        "Volumes": {"v": {"Type": "csi", "Source": "s", "AttachmentMode": "file-system", "AccessMode": "both"}},
        "Tasks": [{"Name": "t", "Driver": "mock_driver"}],
    }]});
    let answer = api.web.put("/v1/validate/job", &json!({"Job": job})).await.json();
    let path = "TaskGroups[0].Volumes[\"v\"].AccessMode";
    let found: Vec<JobProblem> =
        problems(&answer).into_iter().filter(|problem| problem.path.to_string() == path).collect();
    let [problem] = &found[..] else { panic!("{answer}") };
    assert_eq!((&*problem.code, &*problem.text), ("unknown_word", "unknown volume access mode: both"));
}

#[tokio::test]
async fn a_scaling_policy_without_a_maximum_is_refused() {
    let api = Api::start().await;
    let job = |scaling: Value, of_task: Value| {
        json!({"Job": {"ID": "j", "Datacenters": ["*"], "TaskGroups": [{
            "Name": "g", "Count": 1, "Scaling": scaling,
            "Tasks": [{"Name": "t", "Driver": "mock_driver", "ScalingPolicies": of_task}],
        }]}})
    };
    let vertical = |max: Value| json!([{"Type": "vertical_cpu", "Min": 1, "Max": max}]);
    for (body, path, text) in [
        (job(json!({"Min": 1}), Value::Null), "TaskGroups[0].Scaling.Max", "maximum count must be specified"),
        (
            job(Value::Null, vertical(Value::Null)),
            "TaskGroups[0].Tasks[0].ScalingPolicies[0].Max",
            "maximum must be specified",
        ),
    ] {
        let refused = api.web.put("/v1/jobs?caravan_problems=true", &body).await;
        assert_eq!(refused.status, 500, "{}", refused.text());
        let found = problems(&refused.json());
        let [problem] = &found[..] else { panic!("{}", refused.text()) };
        assert_eq!((problem.path.to_string().as_str(), &*problem.code), (path, "missing"));
        assert!(problem.text.contains(text), "{}", problem.text);
    }
    let accepted = job(json!({"Min": 1, "Max": 2}), vertical(json!(500)));
    assert_eq!(api.web.put("/v1/jobs", &accepted).await.status, 200);
}

#[tokio::test]
async fn problems_have_places_in_the_submitted_file() {
    let api = Api::start().await;
    let file = "job \"broken\" {\n  priority = 500\n  group \"g\" {\n    task \"t\" {\n      driver = \"mock_driver\"\n    }\n  }\n}\n";
    let parsed = api.web.put("/v1/jobs/parse", &json!({"JobHCL": file, "Canonicalize": true})).await.json();
    let body = json!({"Job": parsed, "Submission": {"Source": file, "Format": "hcl2"}});
    let of_priority = |answer: &Value| {
        let all = answer["CaravanProblems"].as_array().unwrap().clone();
        all.into_iter().find(|problem| problem["Path"] == "Priority").unwrap()
    };
    let checked = of_priority(&api.web.put("/v1/validate/job", &body).await.json());
    assert_eq!((&checked["StartLine"], &checked["StartColumn"]), (&json!(2), &json!(3)), "{checked}");
    let planned = of_priority(&api.web.put("/v1/job/broken/plan?diagnostics=true", &body).await.json());
    assert_eq!(planned, checked);
    let plain = of_priority(&api.web.put("/v1/validate/job", &json!({"Job": parsed})).await.json());
    assert_eq!(plain.get("StartLine"), None, "without the file there is no place");
    let parse = api.web.put("/v1/jobs/parse?diagnostics=true", &json!({"JobHCL": "job \"x\" {\n"})).await;
    assert!(
        parse.json()["CaravanDiagnostics"].as_array().is_some_and(|all| !all.is_empty()),
        "{}",
        parse.text()
    );
}

/// A caller that names JSON as the form of its answer receives the problems of a file as data, with the same status.
#[tokio::test]
async fn a_caller_that_accepts_json_only_gets_problems_as_data() {
    let api = Api::start().await;
    let body = json!({"JobHCL": "job \"x\" {\n  priority = \n}\n"}).to_string();
    for (accepts, code) in [
        ("application/json", "E0110"),
        ("application/json; charset=utf-8", "E0110"),
        ("*/*", ""),
        ("text/plain", ""),
    ] {
        let got = api
            .web
            .send_body(Method::PUT, "/v1/jobs/parse", body.clone().into_bytes(), &[("Accept", accepts)])
            .await;
        assert_eq!(got.status, 400, "{accepts}");
        let answer = serde_json::from_slice::<Value>(&got.body).unwrap_or_default();
        assert_eq!(answer["CaravanDiagnostics"][0]["Code"].as_str().unwrap_or_default(), code, "{accepts}");
    }
}

#[tokio::test]
async fn an_error_code_has_a_page() {
    let api = Api::start().await;
    let page = api.web.get("/v1/caravan/errors/e0110").await.json();
    assert_eq!((&page["Code"], &page["Title"]), (&json!("E0110"), &json!("Expression expected")));
    assert!(page["Text"].as_str().is_some_and(|text| text.contains("```")), "{page}");
    let missing = api.web.get("/v1/caravan/errors/E9999").await;
    assert_eq!((missing.status.as_u16(), missing.text().contains("E9999")), (404, true));
}
