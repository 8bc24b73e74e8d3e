//! Rules for single topics: their predecessors, the unrecorded events between the recorded exchanges,
//! and the intended differences.

use super::exchange::{self, Body, Exchange};
use super::jwt;
use super::session::Session;
use anyhow::{Context, Result, bail};
use caravan_testkit::{Agent, eventually_within};
use serde_json::{Value, json};
use std::time::Duration;

/// The node of the recordings, and the bootstrap token of the recordings with access control.
pub const NODE: &str = "01699b02-73ad-eed7-f6f4-9aa9612a238d";
pub const ROOT: &str = "24be8c5c-ba87-44a8-85a9-48e9b29696b1";
const ACL_NODE: &str = "087673b3-8ace-6e14-f9d2-75bc0b91526f";
const ACL_DEPLOYMENT: &str = "683eee1b-84a9-1843-4ac2-576d1a0d502a";
const ACL_ALLOC: &str = "1fc24f93-31a1-285e-95ce-a336ee90bccb";
/// Allocations of the job `logger`: the first one and its replacement.
const TALKER: &str = "d632206d-1b30-2495-9a4c-5c3e973b84d0";
const NEXT_TALKER: &str = "a9f545d2-a351-c7cd-9853-28df1f3ce83d";

/// Returns the topics that a topic builds on, each up to one of its exchanges.
pub fn before(topic: &str) -> &'static [(&'static str, usize)] {
    const ALL: usize = usize::MAX;
    match topic {
        "jobs" | "variables" => &[("namespaces", ALL)],
        "plan" | "deployments" | "dispatch_periodic" | "services" | "volumes_host" => {
            &[("namespaces", 2), ("jobs", ALL)]
        }
        "queries" | "search" | "system" => {
            &[("namespaces", 12), ("jobs", ALL), ("deployments", 11), ("dispatch_periodic", ALL)]
        }
        "versions" => &[("namespaces", 2), ("jobs", ALL), ("deployments", ALL)],
        "allocations" => &[("namespaces", 2), ("jobs", ALL), ("deployments", ALL)],
        "scaling" | "events" | "nodes" => &[("namespaces", 2), ("jobs", ALL)],
        "exec" | "client" | "client_fs" => &[("namespaces", 2), ("jobs", ALL)],
        "evaluations" => &[("namespaces", 2), ("jobs", ALL), ("deployments", 14)],
        "errors" => &[("namespaces", 2), ("jobs", ALL)],
        "node_pools" => &[("namespaces", 2), ("jobs", ALL), ("dispatch_periodic", ALL)],
        "operator" => &[("namespaces", 2), ("agent", 20), ("jobs", ALL)],
        "acl_policies" => &[("acl_bootstrap", 18)],
        "acl_tokens" => &[("acl_bootstrap", 18), ("acl_policies", ALL)],
        "acl_roles" => &[("acl_bootstrap", 18), ("acl_policies", ALL), ("acl_tokens", ALL)],
        "acl_auth" => {
            &[("acl_bootstrap", 18), ("acl_policies", ALL), ("acl_tokens", ALL), ("acl_roles", ALL)]
        }
        "acl_denied" => {
            &[("acl_bootstrap", 18), ("acl_policies", ALL), ("acl_tokens", ALL), ("acl_roles", ALL)]
        }
        _ => &[],
    }
}

/// Returns whether an id is from the recordings, and not one that is unknown on purpose.
pub fn is_recorded(id: &str) -> bool {
    !id.starts_with("11111111-2222")
}

/// Returns whether the exchange was recorded to show progress.
pub fn is_progress(exchange: &Exchange) -> bool {
    let parts: Vec<&str> = exchange.path.split('/').skip(2).collect();
    matches!(
        parts.as_slice(),
        ["deployment" | "allocation" | "node" | "evaluation", _] | ["job", _, "summary" | "allocations"]
    )
}

/// Returns whether only some keys of the answer were recorded.
pub fn is_cut(exchange: &Exchange) -> bool {
    matches!(
        (exchange.topic, exchange.at),
        ("queries", 28)
            | ("volumes_csi", 4 | 28 | 29)
            | ("volumes_host", 21 | 27)
            // The figures did not exist yet at the time of the recording.
            | ("acl_denied", 35 | 36 | 165 | 188)
    )
}

/// Returns the token of a request whose recording names its caller only in the notes.
pub fn unrecorded_token(exchange: &Exchange) -> Option<&'static str> {
    if exchange.topic != "acl_denied" || exchange.path != "/v1/event/stream" {
        return None;
    }
    match exchange.note.split(':').next()? {
        "readonly" => Some("174a6f67-8e38-17c9-67c2-e8e5e07bd123"),
        "developer" => Some("996571d7-4e23-e745-dab4-aa61e072ecd8"),
        "management" => Some(ROOT),
        _ => None,
    }
}

/// Removes values that were recorded because of a defect (the nulls before the topologies of a volume).
pub fn left_out(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(left_out).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| match (key.as_str(), value) {
                ("Topologies", Value::Array(items)) => {
                    let real = items.iter().filter(|item| !item.is_null());
                    (key.clone(), real.map(left_out).collect())
                }
                _ => (key.clone(), left_out(value)),
            })
            .collect(),
        other => other.clone(),
    }
}

/// Adapts a request's body to this machine: the bundled plugin replaces the recorded one, and long
/// values were abbreviated.
pub fn adapted(agent: &Agent, body: &Value) -> Value {
    match body {
        Value::String(text) if text == "(70000 times x)" => json!("x".repeat(70_000)),
        Value::String(text) => json!(text.replace("/opt/nomad", &agent.dir().to_string_lossy())),
        Value::Array(items) => items.iter().map(|item| adapted(agent, item)).collect(),
        Value::Object(map) => {
            let mut out: serde_json::Map<String, Value> =
                map.iter().map(|(key, value)| (key.clone(), adapted(agent, value))).collect();
            let command = out.get("command").and_then(Value::as_str).unwrap_or_default();
            if command.ends_with("/hostpathplugin") {
                let state = agent.dir().join("volumes");
                out.insert("command".into(), json!("caravan"));
                let args = json!(["plugin", "hostpath", format!("--state-dir={}", state.display())]);
                out.insert("args".into(), args);
            }
            out.remove("StagePublishBaseDir");
            if let Some(token) = out.get("LoginToken").and_then(|token| jwt::signed_again(token.as_str()?)) {
                out.insert("LoginToken".into(), json!(token));
            }
            if let Some(Value::Array(keys)) = out.get_mut("JWTValidationPubKeys") {
                keys.fill(json!(jwt::public_key()));
            }
            // Ids have random prefixes: the search uses the prefix of an existing id.
            if out.get("Prefix").is_some_and(|prefix| prefix == "e")
                && let Some(first) =
                    out.get("Context").and_then(|context| beginning(agent, context.as_str()?))
            {
                out.insert("Prefix".into(), json!(first));
            }
            Value::Object(out)
        }
        other => other.clone(),
    }
}

/// Returns the prefix of the first id of a kind.
fn beginning(agent: &Agent, context: &str) -> Option<String> {
    let path = match context {
        "allocs" => "/v1/allocations",
        // The recording found none of these kinds.
        "evals" | "deployment" => return Some("eeeeeeee".to_owned()),
        "nodes" => "/v1/nodes",
        _ => return None,
    };
    // The recording found no node.
    let found = agent.get(path).ok()?[0]["ID"].as_str().map(|id| id[..1].to_owned());
    if context == "nodes" {
        found.map(|first| if first == "e" { "f".into() } else { "e".into() })
    } else {
        found
    }
}

/// Returns the id of the first element of a list that satisfies `is`.
fn id_where(list: &Value, is: impl Fn(&Value) -> bool) -> Option<String> {
    list.as_array()?.iter().find(|item| is(item))?["ID"].as_str().map(str::to_owned)
}

fn alloc_of(session: &mut Session, recorded: &str, job: &str, status: &str) -> Result<()> {
    session.learn(recorded, &format!("/v1/job/{job}/allocations"), |list| {
        id_where(list, |alloc| alloc["ClientStatus"] == status)
    })
}

/// Learns the allocations of the jobs, once they have made the recorded progress.
fn allocs_of_jobs(session: &mut Session) -> Result<()> {
    alloc_of(session, TALKER, "logger", "running")?;
    // The replacement of the first allocation.
    session.learn("e5173734-d3f4-3b41-bc8a-f324d50f0600", "/v1/job/crash/allocations", |list| {
        id_where(list, |alloc| alloc["ClientStatus"] == "failed" && alloc["RescheduleTracker"].is_object())
    })?;
    alloc_of(session, "e3ef9f52-53b0-6bf4-2f6a-eb10c0ec4aa6", "stages", "complete")?;
    alloc_of(session, "143de2de-8825-4ab6-f967-b683ddb7f2c6", "crunch", "complete")?;
    // The replacement of another allocation, if there is one.
    let web = session.get("/v1/job/web/allocations")?;
    let replaced =
        |id: &Value| web.as_array().is_some_and(|all| all.iter().any(|a| a["NextAllocation"] == *id));
    let runs = |alloc: &Value| {
        alloc["ClientStatus"] == "running"
            && alloc["DesiredStatus"] == "run"
            && alloc["DeploymentStatus"]["Healthy"] == true
    };
    let ours = id_where(&web, |alloc| runs(alloc) && replaced(&alloc["ID"]));
    if let Some(ours) = ours.or_else(|| id_where(&web, runs)) {
        session.ids.set("30a5ccf9-8180-01ea-396e-184945e02e67", &ours);
    }
    Ok(())
}

/// Learns the evaluation of a job with this trigger.
fn eval_of(session: &mut Session, recorded: &str, job: &str, trigger: &str) -> Result<()> {
    session.learn(recorded, &format!("/v1/job/{job}/evaluations"), |list| {
        id_where(list, |eval| eval["TriggeredBy"] == trigger && eval["Status"] == "complete")
    })
}

fn newest_deployment(session: &mut Session, recorded: &str, version: u64) -> Result<()> {
    session
        .learn(recorded, "/v1/job/web/deployments", |list| id_where(list, |row| row["JobVersion"] == version))
}

/// Returns a small batch job, in place of jobs of which only the traces were recorded.
fn small(id: &str, priority: i64) -> Value {
    json!({ "Job": {
        "ID": id, "Name": id, "Type": "batch", "Datacenters": ["dc1"], "Priority": priority,
        "TaskGroups": [{ "Name": "work", "Tasks": [{
            "Name": "work", "Driver": "mock_driver", "Config": { "run_for": "100ms", "stdout_string": "done\n" },
            "Resources": { "CPU": 20, "MemoryMB": 16 }, "LogConfig": { "MaxFiles": 1, "MaxFileSizeMB": 1 },
        }], "EphemeralDisk": { "SizeMB": 10 } }],
    }})
}

/// Performs the unrecorded events before an exchange.
pub fn prepare(session: &mut Session, exchange: &Exchange) -> Result<()> {
    match (exchange.topic, exchange.at) {
        ("jobs", 9 | 17) => {
            settled(session, "web", "running")?;
            settled(session, "crunch", "complete")
        }
        ("jobs", 19) => soon("the blocked evaluation", || {
            let evals = session.get("/v1/job/toobig/evaluations")?;
            let blocked = evals.as_array().is_some_and(|all| all.iter().any(|e| e["Status"] == "blocked"));
            if blocked { Ok(()) } else { bail!("{evals}") }
        }),
        ("jobs", 24) => deployed(session, 0),
        ("deployments", 2) => newest_deployment(session, "4c8d0602-0233-c263-18ba-70464766e89e", 1),
        ("deployments", 5) => healthy(session, "4c8d0602-0233-c263-18ba-70464766e89e", 1),
        ("deployments", 8) => deployed(session, 1),
        ("deployments", 11) => {
            newest_deployment(session, "fdd435bb-0341-1455-31dd-45e798fb0d68", 2)?;
            session.learn("9ba1699f-d118-88db-cfdc-3ec529fc664f", "/v1/job/web/allocations", |list| {
                id_where(list, |alloc| alloc["JobVersion"] == 2)
            })?;
            healthy(session, "fdd435bb-0341-1455-31dd-45e798fb0d68", 1)
        }
        ("deployments", 17) => newest_deployment(session, "9fecb745-f2df-def5-a19c-bdbd7d97836e", 3),
        ("allocations" | "exec" | "client", 0) => allocs_of_jobs(session),
        // The previous signal has ended the task, and it is restarted.
        ("allocations", 14) => {
            let id = session.ids.text(TALKER);
            soon("the task to run again", || {
                let alloc = session.get(&format!("/v1/allocation/{id}"))?;
                let task = &alloc["TaskStates"]["talker"];
                let again = task["State"] == "running" && task["Restarts"].as_u64() > Some(0);
                if again { Ok(()) } else { bail!("{task}") }
            })
        }
        ("client_fs", 0) => {
            allocs_of_jobs(session)?;
            // In the replay the first allocation was not stopped.
            let ours = session.ids.known(TALKER).context("the allocation of logger is not known")?.to_owned();
            session.ids.set(NEXT_TALKER, &ours);
            soon("eight lines of output", || {
                let lines = session.agent.logs(&ours, "talker", "stdout")?.lines().count();
                if lines >= 8 { Ok(()) } else { bail!("{lines} lines") }
            })
        }
        ("queries", 0) => {
            for n in 0..6 {
                session.send("PUT", "/v1/jobs", Some(&small(&format!("page-{n}"), 40 + n)))?;
            }
            (0..6).try_for_each(|n| settled(session, &format!("page-{n}"), "complete"))
        }
        // The deployment must have ended.
        ("scaling", 13) => soon("the deployment of logger to end", || {
            let newest = session.get("/v1/job/logger/deployment")?;
            if newest["Status"] == "running" { bail!("{newest}") } else { Ok(()) }
        }),
        ("scaling", 16) => soon("the next deployment of logger", || {
            let newest = session.get("/v1/job/logger/deployment")?;
            if newest["Status"] == "running" { Ok(()) } else { bail!("{newest}") }
        }),
        ("volumes_host", 32) => soon("the end of what uses the volumes", || {
            let allocs = session.get("/v1/allocations?prefix=")?;
            let live = |a: &Value| a["JobID"] == "uses-volume" && a["ClientStatus"] == "running";
            if allocs.as_array().is_some_and(|all| all.iter().any(live)) { bail!("{allocs}") } else { Ok(()) }
        }),
        ("queries", 28) => {
            let address = session.agent.address();
            let job = session.get("/v1/job/page-0")?;
            session.ids.learn_index(239, job["ModifyIndex"].as_u64().unwrap_or(1));
            session.meanwhile = Some(Box::new(move || {
                // The query is already waiting then. A failure shows in its answer.
                let _ = caravan_testkit::request(&address, "PUT", "/v1/jobs", Some(&small("page-0", 55)));
            }));
            Ok(())
        }
        // Users had changed the metadata by then.
        ("nodes", 0) => changed_once(session),
        ("nodes", 15) => soon("the drain to end", || {
            let node = session.get(&format!("/v1/node/{}", session.ids.text(NODE)))?;
            if node["DrainStrategy"].is_null() { Ok(()) } else { bail!("{}", node["DrainStrategy"]) }
        }),
        ("services", 7) => {
            session.learn("03e2a116-446b-0be4-761f-410d0a1b93e2", "/v1/service/web-plain", |list| {
                list[0]["AllocID"].as_str().map(str::to_owned)
            })
        }
        ("evaluations", 5) => {
            eval_of(session, "13950975-f14d-e716-23c4-f189d4c1b55e", "web", "deployment-watcher")
        }
        ("evaluations", 13) => {
            eval_of(session, "00651bfa-f265-26fd-9ac5-6774c53ba200", "crash", "alloc-reschedule")
        }
        ("volumes_csi", 3) => session.agent.wait_plugin("hostpath").map(drop),
        ("volumes_csi", 26) => settled(session, "csi-user", "running"),
        ("volumes_csi", 37) => session.agent.wait_no_claims("data"),
        ("volumes_csi", 47) => soon("the plugin to be gone", || {
            let plugins = session.get("/v1/plugins?type=csi")?;
            if plugins == json!([]) { Ok(()) } else { bail!("{plugins}") }
        }),
        ("volumes_host", 20) => settled(session, "uses-volume", "running"),
        ("events", 2) => {
            drained_once(session)?;
            changed_once(session)?;
            let mut job = small("for-plans", 50);
            job["Job"]["Type"] = json!("service");
            let task = &mut job["Job"]["TaskGroups"][0]["Tasks"][0];
            // Answers about allocations contain task names, so the task has the recorded one.
            (task["Name"], task["Config"]["run_for"]) = (json!("t"), json!("600s"));
            session.send("PUT", "/v1/jobs", Some(&job))?;
            settled(session, "for-plans", "running")
        }
        ("events", 3) => {
            session.send("PUT", "/v1/jobs", Some(&small("for-events", 50)))?;
            settled(session, "for-events", "complete")
        }
        ("volumes_host", 10) => Ok(std::fs::create_dir_all(session.agent.dir().join("hostvol"))?),
        // The deployment was still running.
        ("acl_denied", 48) => deployed_again(session),
        ("acl_denied", 1) => {
            let token = session.ids.text(ROOT);
            session.learn_with(&token, ACL_ALLOC, "/v1/job/web/allocations")?;
            session.learn_with(&token, ACL_NODE, "/v1/nodes")
        }
        _ => Ok(()),
    }
}

/// Starts a deployment of `web` that runs until it is ended, in place of the recorded one.
fn deployed_again(session: &mut Session) -> Result<()> {
    let Some(Body::Json(mut body)) =
        exchange::load("acl_denied")?.into_iter().next().map(|first| first.request)
    else {
        bail!("the first exchange registers a job");
    };
    // The deployment waits for the promotion of its canary.
    body["Job"]["TaskGroups"][0]["Tasks"][0]["Env"]["RELEASE"] = json!("two");
    session.send_as(ROOT, "PUT", "/v1/jobs", &adapted(&session.agent, &body))?;
    let mut found = None;
    soon("the next deployment of web", || {
        let newest = session.get_as(ROOT, "/v1/job/web/deployment")?;
        match newest["ID"].as_str().filter(|_| newest["JobVersion"] == 1 && newest["Status"] == "running") {
            Some(id) => found = Some(id.to_owned()),
            None => bail!("{newest}"),
        }
        Ok(())
    })?;
    if let Some(ours) = found {
        session.ids.set(ACL_DEPLOYMENT, &ours);
    }
    Ok(())
}

/// Drains the node and ends the drain, as in an earlier topic.
fn drained_once(session: &mut Session) -> Result<()> {
    let path = format!("/v1/node/{}", session.ids.text(NODE));
    session.send(
        "PUT",
        &format!("{path}/drain"),
        Some(&json!({"DrainSpec": {"Deadline": 1_000_000_000}})),
    )?;
    soon("the drain to end", || {
        let node = session.get(&path)?;
        let over = node["DrainStrategy"].is_null() && node["LastDrain"]["Status"] == "complete";
        if over { Ok(()) } else { bail!("{}", node["LastDrain"]) }
    })?;
    session.send("PUT", &format!("{path}/eligibility"), Some(&json!({"Eligibility": "eligible"})))?;
    settled(session, "web", "running")
}

/// Changes the node's attributes, which registers it again.
fn changed_once(session: &mut Session) -> Result<()> {
    session.send("POST", "/v1/client/metadata", Some(&json!({"Meta": {"n": "1"}})))?;
    soon("the changed node", || {
        let node = session.get(&format!("/v1/node/{}", session.ids.text(NODE)))?;
        if node["Meta"]["n"] == "1" { Ok(()) } else { bail!("{}", node["Meta"]) }
    })
}

/// Waits until a job has an allocation with this status.
fn settled(session: &Session, job: &str, status: &str) -> Result<()> {
    soon(&format!("an allocation of {job} to be {status}"), || {
        let allocs = session.get(&format!("/v1/job/{job}/allocations"))?;
        let there = allocs.as_array().is_some_and(|all| all.iter().any(|a| a["ClientStatus"] == status));
        if there { Ok(()) } else { bail!("{allocs}") }
    })
}

/// Waits until a deployment has this many healthy allocations.
fn healthy(session: &Session, deployment: &str, count: u64) -> Result<()> {
    let id = session.ids.text(deployment);
    soon("the deployment to be healthy", || {
        let row = session.get(&format!("/v1/deployment/{id}"))?;
        let healthy = row["TaskGroups"]["web"]["HealthyAllocs"].as_u64();
        if healthy >= Some(count) { Ok(()) } else { bail!("{row}") }
    })
}

/// Waits until the deployment of a version of `web` succeeded.
fn deployed(session: &Session, version: u64) -> Result<()> {
    soon("the deployment to succeed", || {
        let rows = session.get("/v1/job/web/deployments")?;
        let done = |row: &Value| row["JobVersion"] == version && row["Status"] == "successful";
        if rows.as_array().is_some_and(|all| all.iter().any(done)) { Ok(()) } else { bail!("{rows}") }
    })
}

/// Waits with a timeout for a busy machine.
fn soon(what: &str, look: impl FnMut() -> Result<()>) -> Result<()> {
    eventually_within(Duration::from_secs(40), what, look)
}
