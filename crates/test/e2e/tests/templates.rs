//! Parent jobs: dispatches and periodic launches.

use crate::{DRIVERS, id_of, run_job};
use anyhow::{Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, eventually};
use serde_json::{Value, json};
use std::fs;

fn job(id: &str, driver: &str, blocks: &str, more: &str, script: &str) -> String {
    format!(
        r#"
job "{id}" {{
  type = "batch"
  {blocks}
  meta {{
    profile = "default"
  }}
  group "g" {{
    task "t" {{
      driver = "{driver}"
      config {{
        command = "/bin/sh"
        args    = ["-c", "{script}"]
      }}
      {more}
      resources {{
        cpu    = 20
        memory = 16
      }}
    }}
  }}
}}
"#
    )
}

const PARAMETERS: &str = r#"
  parameterized {
    payload       = "optional"
    meta_required = ["input"]
    meta_optional = ["profile", "extra"]
  }
"#;

fn dispatched(text: &str) -> Result<String> {
    let line = text.lines().find(|line| line.starts_with("Dispatched Job ID"));
    match line.and_then(|line| line.split_once("= ")) {
        Some((_, id)) => Ok(id.to_owned()),
        None => bail!("no job was dispatched: {text}"),
    }
}

/// Returns the ids of the children of a job.
fn children(agent: &Agent, parent: &str) -> Result<Vec<String>> {
    let jobs = agent.get(&format!("/v1/jobs?prefix={parent}/"))?;
    Ok(jobs
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|job| job["ID"].as_str())
        .map(str::to_owned)
        .collect())
}

fn wait_output(agent: &Agent, job: &str, expected: &str) -> Result<Value> {
    let alloc = agent.wait_alloc(job, "complete")?;
    let text = agent.logs(&id_of(&alloc)?, "t", "stdout")?;
    ensure!(text == expected, "{text:?} instead of {expected:?}");
    Ok(alloc)
}

#[test]
fn a_dispatch_gives_a_task_its_payload_and_its_pairs() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    for driver in DRIVERS {
        let id = format!("encode-{}", driver.replace('_', "-"));
        let script = "cat $NOMAD_TASK_DIR/in/data.txt 2>&1 | head -n 1; echo $NOMAD_META_INPUT $NOMAD_META_profile \
                      [$NOMAD_META_EXTRA] $NOMAD_JOB_PARENT_ID";
        let file = "dispatch_payload {\n file = \"in/data.txt\"\n }";
        run_job(&agent, &id, &job(&id, driver, PARAMETERS, file, script))?;
        let status = agent.caravan(&["job", "status", &id])?.ok()?;
        ensure!(
            status.stdout.contains("No dispatched instances of parameterized job found"),
            "{}",
            status.stdout
        );
        ensure!(agent.get(&format!("/v1/job/{id}/evaluations"))? == json!([]), "a template is not evaluated");

        let payload = agent.dir().join("payload.txt");
        fs::write(&payload, "the payload\n")?;
        let payload = payload.to_string_lossy().into_owned();
        let done = agent.caravan(&["job", "dispatch", "-meta", "input=a.wav", &id, &payload])?.ok()?;
        ensure!(done.stdout.contains("finished with status \"complete\""), "{}", done.stdout);
        let first = dispatched(&done.stdout)?;
        ensure!(first.starts_with(&format!("{id}/dispatch-")), "{first}");
        wait_output(&agent, &first, &format!("the payload\na.wav default [] {id}\n"))?;
        let child = agent.get(&format!("/v1/job/{first}"))?;
        ensure!(child["ParentID"] == id && child["Dispatched"] == true, "{child}");
        ensure!(child["Payload"] == "dGhlIHBheWxvYWQK", "{child}");
        ensure!(child["Meta"] == json!({"input": "a.wav", "profile": "default"}), "{child}");

        // Without a payload, with all optional inputs; the same token returns the same child.
        let second = [
            "job",
            "dispatch",
            "-detach",
            "-meta",
            "input=b",
            "-meta",
            "profile=hq",
            "-id-prefix-template",
            "hq",
            "-priority",
            "80",
            "-idempotency-token",
            "once",
            &id,
        ];
        let made = dispatched(&agent.caravan(&second)?.ok()?.stdout)?;
        ensure!(made.starts_with(&format!("{id}/dispatch-hq-")), "{made}");
        ensure!(dispatched(&agent.caravan(&second)?.ok()?.stdout)? == made, "it was made before");
        ensure!(agent.get(&format!("/v1/job/{made}"))?["Priority"] == 80);
        agent.wait_alloc(&made, "complete")?;

        eventually("both children to be over", || {
            let summary = agent.get(&format!("/v1/job/{id}/summary"))?;
            let expected = json!({"Dead": 2, "Pending": 0, "Running": 0});
            if summary["Children"] == expected { Ok(()) } else { bail!("{summary}") }
        })?;
        let status = agent.caravan(&["job", "status", &id])?.ok()?;
        for words in ["Required Metadata = input", "Dispatched Jobs", &first, &made] {
            ensure!(status.stdout.contains(words), "{words}: {}", status.stdout);
        }
    }
    Ok(())
}

#[test]
fn wrong_dispatches_are_refused_in_known_words() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    run_job(&agent, "encode", &job("encode", "raw_exec", PARAMETERS, "", "true"))?;
    run_job(&agent, "plain", &job("plain", "raw_exec", "", "", "true"))?;
    let dispatch =
        |id: &str, body: &Value| agent.request("PUT", &format!("/v1/job/{id}/dispatch"), Some(body));
    for (id, body, status, text) in [
        ("encode", json!({}), 500, "Dispatch did not provide required meta keys: [input]"),
        (
            "encode",
            json!({"Meta": {"input": "x", "other": "y"}}),
            500,
            "Dispatch request included unpermitted metadata keys: [other]",
        ),
        (
            "encode",
            json!({"Payload": "%%%", "Meta": {"input": "x"}}),
            400,
            "illegal base64 data at input byte 0",
        ),
        ("plain", json!({"Meta": {}}), 500, "Specified job \"plain\" is not a parameterized job"),
    ] {
        let reply = dispatch(id, &body)?;
        ensure!((reply.status, reply.text().as_str()) == (status, text), "{} {}", reply.status, reply.text());
    }
    let large = "A".repeat(4 * (16 * 1024 / 3 + 1));
    let reply = dispatch("encode", &json!({"Payload": large, "Meta": {"input": "x"}}))?;
    ensure!(reply.text().contains("Payload exceeds maximum size; 16386 > 16384"), "{}", reply.text());
    let none = agent.caravan(&["job", "dispatch", "plain"])?.failed()?;
    ensure!(
        none.all().contains("No parameterized job(s) with prefix or ID \"plain\" found"),
        "{}",
        none.all()
    );
    let force = agent.request("PUT", "/v1/job/plain/periodic/force", None)?;
    ensure!(
        (force.status, force.text().as_str()) == (500, "can't force launch non-periodic job"),
        "{}",
        force.text()
    );
    let method = agent.request("GET", "/v1/job/encode/dispatch/payload", None)?;
    ensure!(method.status == 405, "{}", method.status);

    // A job keeps its kind, and a stopped one creates no children.
    let path = agent.dir().join("encode.nomad.hcl");
    fs::write(&path, job("encode", "raw_exec", "", "", "true"))?;
    let refused = agent.caravan(&["job", "run", "-detach", &path.to_string_lossy()])?.failed()?;
    let words = "cannot update parameterized job to being non-parameterized";
    ensure!(refused.all().contains(words), "{}", refused.all());
    agent.caravan(&["job", "stop", "-detach", "encode"])?.ok()?;
    let stopped = dispatch("encode", &json!({"Meta": {"input": "x"}}))?;
    ensure!(stopped.text() == "Specified job \"encode\" is stopped", "{}", stopped.text());
    ensure!(children(&agent, "encode")?.is_empty(), "nothing was made");
    Ok(())
}

#[test]
fn a_periodic_job_makes_children_one_at_a_time_and_after_a_crash() -> Result<()> {
    let mut agent = Agent::start()?;
    let blocks = r#"
  periodic {
    crons            = ["* * * * * * *"]
    prohibit_overlap = true
    time_zone        = "UTC"
  }
"#;
    run_job(&agent, "tick", &job("tick", "raw_exec", blocks, "", "exec sleep 600"))?;
    let first = eventually("the first launch", || match children(&agent, "tick")?.as_slice() {
        [one] => Ok(one.clone()),
        other => bail!("{other:?}"),
    })?;
    agent.wait_alloc(&first, "running")?;
    let child = agent.get(&format!("/v1/job/{first}"))?;
    ensure!(child["ParentID"] == "tick" && child["Periodic"].is_null(), "{child}");
    let evals = agent.get(&format!("/v1/job/{first}/evaluations"))?;
    ensure!(evals[0]["TriggeredBy"] == "periodic-job", "{evals}");

    // Many seconds have passed: while the child lives, only a forced launch creates a second one.
    let forced = agent.caravan(&["job", "periodic", "force", "tick"])?.ok()?;
    ensure!(forced.stdout.contains("finished with status \"complete\""), "{}", forced.stdout);
    let both = children(&agent, "tick")?;
    ensure!(both.len() == 2 && both.contains(&first), "{both:?}");
    let status = agent.caravan(&["job", "status", "tick"])?.ok()?;
    for words in ["Next Periodic Launch", "Previously Launched Jobs", &first] {
        ensure!(status.stdout.contains(words), "{words}: {}", status.stdout);
    }

    // After their end the launches continue, also with an agent that was killed in the meantime.
    agent.kill_9()?;
    agent.run()?;
    ensure!(children(&agent, "tick")?.len() == 2, "they live");
    for child in &both {
        agent.caravan(&["job", "stop", "-detach", child])?.ok()?;
    }
    eventually("the next launch", || {
        let now = children(&agent, "tick")?;
        if now.len() == 3 { Ok(()) } else { bail!("{now:?}") }
    })?;
    agent.caravan(&["job", "stop", "-detach", "tick"])?.ok()?;
    let stopped = agent.get("/v1/job/tick")?;
    ensure!(stopped["Status"] == "dead" && stopped["Stop"] == true, "{stopped}");
    let force = agent.request("PUT", "/v1/job/tick/periodic/force", None)?;
    ensure!(force.text().contains("can't force run non-tracked job"), "{}", force.text());
    let summary = agent.get("/v1/job/tick/summary")?;
    ensure!(summary["Children"]["Running"].as_u64().is_some_and(|n| n <= 1), "{summary}");
    for child in children(&agent, "tick")? {
        agent.caravan(&["job", "stop", "-detach", "-purge", &child])?.ok()?;
    }
    ensure!(children(&agent, "tick")?.is_empty(), "a stopped job makes no more");
    Ok(())
}

#[test]
fn times_are_checked_and_told_before_they_come() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let path = agent.dir().join("nightly.nomad.hcl");
    let periodic = |times: &str| job("nightly", "raw_exec", &format!("periodic {{\n{times}\n}}"), "", "true");
    fs::write(&path, periodic("crons = [\"not a cron\"]"))?;
    let refused = agent.caravan(&["job", "run", "-detach", &path.to_string_lossy()])?.failed()?;
    ensure!(
        refused.all().contains("Invalid cron spec \"not a cron\": missing field(s)"),
        "{}",
        refused.all()
    );
    fs::write(&path, periodic("crons = [\"0 3 * * *\"]\ntime_zone = \"Mars/Olympus\""))?;
    let refused = agent.caravan(&["job", "run", "-detach", &path.to_string_lossy()])?.failed()?;
    ensure!(refused.all().contains("Invalid time zone \"Mars/Olympus\""), "{}", refused.all());
    fs::write(&path, periodic("cron = \"0 0 1 1 *\""))?;
    let done = agent.caravan(&["job", "run", &path.to_string_lossy()])?.ok()?;
    for words in ["cron is deprecated", "Job registration successful", "Approximate next launch time: 2"] {
        ensure!(done.all().contains(words), "{words}: {}", done.all());
    }
    let job = agent.get("/v1/job/nightly")?;
    ensure!(job["Status"] == "running", "{job}");
    let plan = agent.request("PUT", "/v1/job/nightly/plan", Some(&json!({"Job": job})))?.json()?;
    ensure!(plan["NextPeriodicLaunch"].as_str().is_some_and(|at| at.ends_with("-01-01T00:00:00Z")), "{plan}");
    let error = agent.request("PUT", "/v1/job/nightly/evaluate", Some(&json!({})))?;
    ensure!(error.text() == "can't evaluate periodic job", "{}", error.text());
    Ok(())
}
