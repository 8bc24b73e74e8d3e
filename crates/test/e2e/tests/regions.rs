//! Several regions as processes: federation, requests for other regions, replication from the authoritative region.

use crate::{id_of, run_job, script_job};
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, Call, Reply, Servers, eventually};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

/// Starts two servers of a region.
fn region(name: &str, extra: &str) -> Result<Servers> {
    Servers::with(2, &format!("region = \"{name}\"\n{extra}"))
}

/// Joins the servers of one region to another, and waits until each server of both lists all servers.
fn federate(one: &Servers, other: &Servers, token: &str) -> Result<()> {
    let address = other.get(0).serf_address();
    let joined = one.get(0).caravan(&["server", "join", "-token", token, &address])?.ok()?;
    ensure!(joined.stdout.contains("Joined 1 servers"), "{joined:?}");
    for servers in [one, other] {
        for number in servers.running() {
            eventually("all members of both regions", || {
                let members = done(servers.get(number), token, "GET", "/v1/agent/members", None)?;
                let count = members["Members"].as_array().map_or(0, Vec::len);
                if count == 4 { Ok(()) } else { bail!("{members}") }
            })?;
        }
    }
    Ok(())
}

/// Waits until a request succeeds through an agent, and returns the answer.
fn answered(agent: &Agent, path: &str) -> Result<Value> {
    eventually(path, || agent.get(path))
}

#[test]
fn a_request_reaches_any_region_from_everywhere() -> Result<()> {
    let (east, mut west) = (region("east", "")?, region("west", "")?);
    federate(&east, &west, "")?;
    for servers in [&east, &west] {
        for number in servers.running() {
            ensure!(servers.get(number).get("/v1/regions")? == json!(["east", "west"]));
            // The answer has the members of all regions, whatever region the request names.
            let members = servers.get(number).get("/v1/agent/members?region=nowhere")?;
            ensure!(members["Members"].as_array().map(Vec::len) == Some(4), "{members}");
        }
    }
    let shown = east.get(1).caravan(&["server", "members"])?.ok()?;
    ensure!(shown.stdout.matches(" true ").count() == 2, "{shown:?}");

    // Each server of a region writes in the other region, and reads it there.
    for number in 0..2 {
        let path = format!("/v1/var/from/{number}?region=west");
        let written = east.get(number).request("PUT", &path, Some(&json!({"Items": {"v": "x"}})))?;
        ensure!(written.status == 200, "{} {}", written.status, written.text());
        ensure!(east.get(1 - number).get(&path)?["Items"]["v"] == "x");
        ensure!(west.get(number).get(&format!("/v1/var/from/{number}"))?["Items"]["v"] == "x");
        let here = east.get(number).request("GET", &format!("/v1/var/from/{number}"), None)?;
        ensure!(here.status == 404, "{}", here.text());
    }
    let unknown = east.get(0).request("GET", "/v1/jobs?region=north", None)?;
    ensure!((unknown.status, unknown.text().as_str()) == (500, "No path to region"), "{}", unknown.text());
    let refused = east.get(0).caravan(&["job", "status", "-region", "north"])?.failed()?;
    ensure!(refused.stderr.contains("No path to region"), "{refused:?}");

    // A node of the west runs a job that was registered in the east, in two ways.
    let node = Agent::with(AgentOptions {
        extra: "region = \"west\"\n".to_owned(),
        ..AgentOptions::client_of(west.get(0))
    })?;
    let script = "echo hello; exec sleep 1000";
    let path = east.get(0).dir().join("flag.nomad.hcl");
    fs::write(&path, script_job("flag", script))?;
    let path = path.to_string_lossy();
    east.get(0).caravan(&["job", "run", "-detach", "-region", "west", &path])?.ok()?;
    let in_file =
        script_job("file", script).replace("type = \"service\"", "type = \"service\"\n  region = \"west\"");
    run_job(east.get(1), "file", &in_file)?;
    // An agent of the east passes on whole requests, streams and sessions.
    let outsider = Agent::launch(AgentOptions {
        extra: "region = \"east\"\n".to_owned(),
        ..AgentOptions::client_of(east.get(1))
    })?;
    for job in ["flag", "file"] {
        let alloc = id_of(&west.get(0).wait_alloc(job, "running")?)?;
        ensure!(east.get(0).get("/v1/jobs")? == json!([]), "the job is in the wrong region");
        for agent in [east.get(0), east.get(1), &outsider] {
            eventually("the log of the task through the other region", || {
                let logs = agent.caravan(&["alloc", "logs", "-region", "west", &alloc])?.ok()?;
                if logs.stdout == "hello\n" { Ok(()) } else { bail!("{logs:?}") }
            })?;
            let exec = ["alloc", "exec", "-region", "west", "-i=false", &alloc, "/bin/echo", "inside"];
            let exec = agent.caravan(&exec)?.ok()?;
            ensure!(exec.stdout.contains("inside"), "{exec:?}");
        }
    }
    let events = east.get(0).send(&Call {
        method: "GET".to_owned(),
        path: "/v1/event/stream?region=west&topic=Job&index=1".to_owned(),
        patience: Some(Duration::from_secs(3)),
        ..Call::default()
    })?;
    ensure!(events.status == 200 && events.text().contains("\"flag\""), "{}", events.text());

    // A node stays in its region although its only configured server belongs to another region.
    let lost = Agent::launch(AgentOptions {
        extra: "region = \"east\"\n".to_owned(),
        ..AgentOptions::client_of(west.get(0))
    })?;
    lost.wait_log("region \"east\" is not served here")?;
    let nodes = west.get(0).get("/v1/nodes")?;
    ensure!(nodes.as_array().map(Vec::len) == Some(1), "{nodes}");
    drop(node);

    // A region without a majority has no leader. A region without any server has no path.
    west.get_mut(0).kill_9()?;
    west.get_mut(1).kill_9()?;
    let gone = east.get(0).request("GET", "/v1/jobs?region=west", None)?;
    ensure!(gone.status == 500 && gone.text().starts_with("No path to region"), "{}", gone.text());
    let shown = east.get(0).caravan(&["server", "members"])?.failed()?;
    ensure!(shown.stdout.contains("server-1.east") && shown.stderr.contains("region \"west\""), "{shown:?}");
    for number in 0..2 {
        west.get_mut(number).spawn()?;
    }
    answered(east.get(0), "/v1/job/flag?region=west")?;
    Ok(())
}

/// Sends a request with a token.
fn with_token(agent: &Agent, token: &str, method: &str, path: &str, body: Option<Value>) -> Result<Reply> {
    agent.send(&Call {
        method: method.to_owned(),
        path: path.to_owned(),
        headers: vec![("X-Nomad-Token".to_owned(), token.to_owned())],
        body: body.map(|body| body.to_string().into_bytes()).unwrap_or_default(),
        ..Call::default()
    })
}

/// Sends a request as [`with_token`] does, and fails unless the request succeeds.
fn done(agent: &Agent, token: &str, method: &str, path: &str, body: Option<Value>) -> Result<Value> {
    let reply = with_token(agent, token, method, path, body)?;
    ensure!(reply.status == 200, "{method} {path}: {} {}", reply.status, reply.text());
    Ok(serde_json::from_slice(&reply.body).unwrap_or_default())
}

/// Waits until a row has, or no longer has, this status for a reader.
fn status(agent: &Agent, token: &str, path: &str, expected: u16) -> Result<Reply> {
    eventually(path, || {
        let reply = with_token(agent, token, "GET", path, None)?;
        if reply.status == expected { Ok(reply) } else { bail!("{} {}", reply.status, reply.text()) }
    })
}

const READ: &str = "namespace \"default\" {\n  policy = \"read\"\n}\n";

#[test]
fn the_authoritative_region_is_replicated_across_leader_changes() -> Result<()> {
    let acl = "acl {\n  enabled = true\n}\n";
    let east = region("east", acl)?;
    let first = east.get(1).request("PUT", "/v1/acl/bootstrap", None)?;
    ensure!(first.status == 200, "{}", first.text());
    let root = first.json()?["SecretID"].as_str().context("a secret")?.to_owned();
    let mut west = region(
        "west",
        &format!(
            "acl {{\n  enabled = true\n  replication_token = \"{root}\"\n}}\nserver {{\n  authoritative_region = \"east\"\n}}\n"
        ),
    )?;
    // Before the regions are federated, the status shows the reason.
    let leader = west.wait_leader()?;
    federate(&east, &west, &root)?;

    // The token of the first region is valid in the second one, whose own bootstrap is the first region's.
    status(west.get(0), &root, "/v1/acl/tokens", 200)?;
    let again = west.get(0).request("PUT", "/v1/acl/bootstrap", None)?;
    ensure!(again.status == 400 && again.text().contains("already done"), "{}", again.text());
    let own = eventually("the status of the replication", || {
        let own = done(west.get(leader), &root, "GET", "/v1/agent/self", None)?;
        let group = &own["stats"]["replication"];
        let is_done = group["policies_state"] == "following" && group["tokens_rows"] == "1";
        if is_done { Ok(group.clone()) } else { bail!("{group}") }
    })?;
    ensure!(own["authoritative_region"] == "east", "{own}");

    // Writes in the second region reach the first one, whatever region they name, and are replicated back.
    let (at, rules) = (west.follower()?, json!({"Name": "reader", "Rules": READ}));
    done(west.get(at), &root, "PUT", "/v1/acl/policy/reader?region=west", Some(rules.clone()))?;
    done(east.get(0), &root, "GET", "/v1/acl/policy/reader", None)?;
    for (path, body) in [
        ("/v1/namespace/apps", json!({"Name": "apps"})),
        ("/v1/node/pool/gpu", json!({"Name": "gpu"})),
        ("/v1/acl/role", json!({"Name": "readers", "Policies": [{"Name": "reader"}]})),
    ] {
        done(west.get(at), &root, "PUT", path, Some(body))?;
    }
    let make = |agent: &Agent, global: bool| {
        let body = json!({"Name": "t", "Type": "client", "Policies": ["reader"], "Global": global});
        done(agent, &root, "PUT", "/v1/acl/token", Some(body))
    };
    let (global, local) = (make(west.get(at), true)?, make(west.get(at), false)?);
    let text = |token: &Value, key: &str| token[key].as_str().unwrap_or_default().to_owned();
    for path in
        ["/v1/acl/policy/reader", "/v1/namespace/apps", "/v1/node/pool/gpu", "/v1/acl/role/name/readers"]
    {
        for number in 0..2 {
            status(west.get(number), &root, path, 200)?;
            status(east.get(number), &root, path, 200)?;
        }
    }
    // The global token is valid in both regions, the local one only where it was created.
    status(west.get(0), &text(&global, "SecretID"), "/v1/jobs", 200)?;
    status(east.get(0), &text(&global, "SecretID"), "/v1/jobs", 200)?;
    status(west.get(0), &text(&local, "SecretID"), "/v1/jobs", 200)?;
    let secret = text(&local, "SecretID");
    let refused = with_token(east.get(0), &secret, "GET", "/v1/jobs", None)?;
    ensure!(refused.status == 403, "{}", refused.text());
    let refused = with_token(west.get(0), &secret, "GET", "/v1/jobs?region=east", None)?;
    ensure!(refused.status == 403, "the token is judged by the region of the request: {}", refused.text());
    let reached = with_token(east.get(0), &secret, "GET", "/v1/jobs?region=west", None)?;
    ensure!(reached.status == 200, "{}", reached.text());

    // The next leader of the region continues, and receives the missed changes.
    west.get_mut(leader).kill_9()?;
    done(east.get(0), &root, "PUT", "/v1/acl/policy/later", Some(json!({"Name": "later", "Rules": READ})))?;
    done(east.get(1), &root, "DELETE", "/v1/namespace/apps", None)?;
    let accessor = text(&global, "AccessorID");
    done(east.get(0), &root, "DELETE", &format!("/v1/acl/token/{accessor}"), None)?;
    west.get_mut(leader).spawn()?;
    west.wait_leader()?;
    for number in 0..2 {
        status(west.get(number), &root, "/v1/acl/policy/later", 200)?;
        status(west.get(number), &root, "/v1/namespace/apps", 404)?;
        status(west.get(number), &text(&global, "SecretID"), "/v1/jobs", 403)?;
        status(west.get(number), &secret, "/v1/jobs", 200)?;
    }
    for servers in [&east, &west] {
        for number in servers.running() {
            ensure!(!servers.get(number).log().contains(&root), "a log has the replication token");
        }
    }
    Ok(())
}

#[test]
fn namespaces_are_replicated_without_access_control_too() -> Result<()> {
    let east = region("east", "")?;
    let west = region("west", "server {\n  authoritative_region = \"east\"\n}\n")?;
    let leader = west.wait_leader()?;
    eventually("the reason why nothing is replicated", || {
        let own = west.get(leader).get("/v1/agent/self")?;
        let error = own["stats"]["replication"]["namespaces_error"].clone();
        if error == "No path to region" { Ok(()) } else { bail!("{error}") }
    })?;
    let refused = west.get(0).request("PUT", "/v1/namespace/apps", Some(&json!({"Name": "apps"})))?;
    ensure!(refused.status == 500 && refused.text() == "No path to region", "{}", refused.text());
    federate(&west, &east, "")?;
    let written = west.get(0).request("PUT", "/v1/namespace/apps", Some(&json!({"Name": "apps"})))?;
    ensure!(written.status == 200, "{}", written.text());
    for number in 0..2 {
        answered(east.get(number), "/v1/namespace/apps")?;
        answered(west.get(number), "/v1/namespace/apps")?;
    }
    Ok(())
}
