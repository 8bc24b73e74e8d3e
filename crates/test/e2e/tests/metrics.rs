//! Metrics for dashboards: `/v1/metrics`.

use crate::{run_job, script_job};
use anyhow::{Context, Result, ensure};
use caravan_testkit::{Agent, AgentOptions, eventually};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Returns a batch job with a time limit of one second.
fn limited() -> String {
    let job = script_job("limited", "exec sleep 3600").replacen("\"service\"", "\"batch\"", 1);
    job.replacen("group \"g\" {", "group \"g\" {\n    max_run_duration = \"1s\"", 1)
}

/// Returns a job with two allocations that need more memory than any node has.
fn large() -> String {
    let job = script_job("waits", "true").replacen("memory = 16", "memory = 4000000", 1);
    job.replacen("group \"g\" {", "group \"g\" {\n    count = 2", 1)
}

fn find<'a>(metrics: &'a Value, list: &str, name: &str, labels: &Value) -> Option<&'a Value> {
    metrics[list].as_array()?.iter().find(|row| {
        let fits = |(key, value): (&String, &Value)| row["Labels"][key] == *value;
        row["Name"] == name && labels.as_object().is_some_and(|labels| labels.iter().all(fits))
    })
}

fn value(metrics: &Value, name: &str, labels: Value) -> Result<f64> {
    let row = find(metrics, "Gauges", name, &labels).with_context(|| format!("no gauge {name} {labels}"))?;
    row["Value"].as_f64().context("a gauge has a value")
}

fn times(metrics: &Value, list: &str, name: &str, labels: Value) -> u64 {
    find(metrics, list, name, &labels).and_then(|row| row["Count"].as_u64()).unwrap_or(0)
}

#[test]
fn what_runs_waits_and_ended_is_counted_and_measured() -> Result<()> {
    let extra = "telemetry {\n  publish_allocation_metrics = true\n  publish_node_metrics = true\n  prometheus_metrics = true\n}\n";
    let agent = Agent::with(AgentOptions { extra: extra.to_owned(), ..AgentOptions::default() })?;
    run_job(&agent, "web", &script_job("web", "exec sleep 3600"))?;
    let id = agent.wait_alloc("web", "running")?["ID"].clone();
    run_job(&agent, "limited", &limited())?;
    agent.wait_alloc("limited", "complete")?;
    run_job(&agent, "waits", &large())?;

    let node = agent.node_id()?;
    let metrics = eventually("all of it to be told", || {
        let metrics = agent.get("/v1/metrics")?;
        ensure!(value(&metrics, "nomad.nomad.blocked_evals.total_blocked", json!({}))? > 0.0);
        ensure!(value(&metrics, "nomad.client.allocs.memory.usage", json!({"alloc_id": id}))? > 0.0);
        Ok(metrics)
    })?;
    let of_node = json!({"node_id": node, "node_status": "ready", "node_scheduling_eligibility": "eligible"});
    ensure!(value(&metrics, "nomad.client.allocated.cpu", of_node.clone())? >= 20.0);
    ensure!(value(&metrics, "nomad.client.allocations.running", of_node.clone())? == 1.0);
    ensure!(value(&metrics, "nomad.client.allocations.terminal", of_node.clone())? == 1.0);
    ensure!(value(&metrics, "nomad.client.unallocated.memory", of_node)? > 0.0);
    ensure!(
        value(&metrics, "nomad.client.allocs.memory.allocated", json!({"task": "t", "job": "web"}))?
            == f64::from(16 << 20)
    );
    ensure!(value(&metrics, "nomad.client.host.cpu.idle", json!({"cpu": "cpu0"}))? <= 100.0);
    ensure!(value(&metrics, "nomad.nomad.blocked_evals.job.memory", json!({"job": "waits"}))? == 8_000_000.0);
    ensure!(value(&metrics, "nomad.nomad.heartbeat.active", json!({}))? == 1.0);
    ensure!(value(&metrics, "nomad.nomad.plan.queue_depth", json!({}))? == 0.0);
    ensure!(
        value(&metrics, "nomad.nomad.job_summary.running", json!({"job": "web", "task_group": "g"}))? == 1.0
    );
    for (name, job) in [
        ("start", "web"),
        ("start", "limited"),
        ("max_run_duration.exceeded", "limited"),
        ("complete", "limited"),
    ] {
        let name = format!("nomad.client.allocs.{name}");
        ensure!(
            times(&metrics, "Counters", &name, json!({"job": job, "node_id": node})) == 1,
            "{name} of {job}: {metrics}"
        );
    }
    let hook = json!({"hook_name": "alloc_dir", "namespace": "default"});
    ensure!(times(&metrics, "Counters", "nomad.client.alloc_hook.prerun.success", hook.clone()) == 2);
    ensure!(times(&metrics, "Samples", "nomad.client.alloc_hook.prerun.elapsed", hook) == 2);
    for name in [
        "worker.invoke_scheduler_service",
        "worker.invoke_scheduler_batch",
        "worker.submit_plan",
        "plan.evaluate",
        "plan.apply",
    ] {
        ensure!(times(&metrics, "Samples", &format!("nomad.nomad.{name}"), json!({})) > 0, "{name}");
    }

    let text = agent.request("GET", "/v1/metrics?format=prometheus", None)?;
    ensure!(text.status == 200, "{}", text.status);
    for name in [
        "nomad_client_allocs_cpu_total_percent",
        "nomad_nomad_broker_total_ready",
        "nomad_client_allocs_start",
    ] {
        ensure!(text.text().contains(&format!("# TYPE {name} ")), "{name}: {}", text.text());
    }
    let kinds = families(&text.text())?;
    for (name, kind) in [
        ("nomad_nomad_plan_evaluate", "summary"),
        ("nomad_http_request_time", "summary"),
        ("nomad_client_alloc_hook_prerun_elapsed", "summary"),
        ("nomad_client_allocs_start", "counter"),
        ("nomad_nomad_broker_total_ready", "gauge"),
    ] {
        ensure!(kinds.get(name).is_some_and(|own| own == kind), "{name}: {:?}", kinds.get(name));
    }
    Ok(())
}

/// Reads the text format of Prometheus as strictly as a scraper. Each family has one type line before its series, and
/// each series occurs once and has a number. Only summaries have quantiles, sums and counts. Returns the types.
fn families(text: &str) -> Result<BTreeMap<String, String>> {
    let mut kinds = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').with_context(|| line.to_owned())?;
            ensure!(["gauge", "counter", "summary"].contains(&kind), "{line}");
            ensure!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} has two types");
            name.clone_into(&mut current);
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (series, value) = line.rsplit_once(' ').with_context(|| line.to_owned())?;
        ensure!(seen.insert(series.to_owned()), "{series} stands twice");
        let value: f64 = value.parse().with_context(|| line.to_owned())?;
        let name = series.split('{').next().unwrap_or_default();
        let kind = kinds.get(&current).map(String::as_str).unwrap_or_default();
        let part =
            name.strip_prefix(current.as_str()).with_context(|| format!("{line} is not of {current}"))?;
        let quantile = series.contains("quantile=\"");
        let fits = match (kind, part) {
            ("summary", "") => quantile,
            ("summary", "_sum" | "_count") => !quantile && value >= 0.0,
            ("counter", "") => !quantile && value >= 0.0,
            ("gauge", "") => !quantile && !name.ends_with("_count") && !name.ends_with("_sum"),
            _ => false,
        };
        ensure!(fits, "{line} does not fit a {kind}");
    }
    Ok(kinds)
}

#[test]
fn metrics_that_are_not_configured_are_absent() -> Result<()> {
    let agent = Agent::start()?;
    run_job(&agent, "web", &script_job("web", "exec sleep 3600"))?;
    agent.wait_alloc("web", "running")?;
    let metrics = agent.get("/v1/metrics")?;
    ensure!(value(&metrics, "nomad.client.allocs.memory.usage", json!({})).is_err());
    ensure!(value(&metrics, "nomad.client.host.memory.total", json!({})).is_err());
    let text = agent.request("GET", "/v1/metrics?format=prometheus", None)?;
    ensure!(
        text.status == 415 && text.text().trim() == "Prometheus is not enabled",
        "{} {}",
        text.status,
        text.text()
    );
    Ok(())
}
