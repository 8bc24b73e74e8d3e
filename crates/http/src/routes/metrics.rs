//! `/v1/metrics`: the figures that follow from the state, of the process and its host, and what calls to storage
//! plugins and answers to requests took since the start, as JSON or as Prometheus reads it (`http-api` section 5.11).

use super::volume_metrics;
use crate::call::Call;
use crate::error::ApiError;
use crate::figures::Aggregate;
use crate::reply::Reply;
use caravan_state::Root;
use caravan_types::UnixNanos;
use caravan_types::alloc::ClientStatus;
use caravan_types::job::JobStatus;
use http::Method;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

pub(crate) fn route(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let mut figures = Figures::default();
    let seconds = since(call.state.started);
    let requests = call.state.shared.requests.told();
    let none = json!({});
    figures.counters.push(Aggregate::counted(requests.count).shape("nomad.http.request", seconds, &none));
    figures.samples.push(requests.shape("nomad.http.request_time", seconds, &none));
    if let Some(server) = &call.state.server {
        let depth = server.broker_depth();
        for (name, n) in [
            ("nomad.nomad.broker.total_ready", depth.ready),
            ("nomad.nomad.broker.total_unacked", depth.in_flight),
            ("nomad.nomad.broker.total_waiting", depth.delayed),
            ("nomad.nomad.blocked_evals.total_blocked", depth.blocked),
        ] {
            figures.gauge(name, count(n), json!({}));
        }
        let log = server.log_metrics();
        figures.gauge("nomad.raft.appliedIndex", whole(log.applied_index), json!({}));
        figures.gauge("nomad.raft.lastIndex", whole(log.last_log_index), json!({}));
        figures.gauge("nomad.raft.term", whole(log.term), json!({}));
        figures.gauge("nomad.raft.isLeader", if log.is_leader { 1.0 } else { 0.0 }, json!({}));
        let root = server.store().snapshot();
        figures.of_state(&root);
        let volumes = volume_metrics::shape(&server.volume_figures(), seconds);
        figures.gauges.extend(volumes.gauges);
        figures.counters.extend(volumes.counters);
        figures.samples.extend(volumes.samples);
    }
    if let Some(client) = &call.state.client {
        figures.of_node(call, client.node_id().as_ref(), client.alloc_count());
    }
    figures.of_process();
    Ok(match call.query.text("format") {
        "prometheus" => Reply::raw(PROMETHEUS, figures.prometheus()),
        _ => Reply::value(figures.json()),
    })
}

/// Seconds since then.
fn since(then: UnixNanos) -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let then = u64::try_from(then.0).unwrap_or(0) / 1_000_000_000;
    (now - whole(then)).max(0.0)
}

/// Counts are far below what a float holds exactly.
fn count(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people and graphs")]
fn whole(n: u64) -> f64 {
    n as f64
}

#[derive(Default)]
struct Figures {
    gauges: Vec<Value>,
    counters: Vec<Value>,
    samples: Vec<Value>,
}

impl Figures {
    fn gauge(&mut self, name: &str, value: f64, labels: Value) {
        self.gauges.push(json!({"Name": name, "Value": value, "Labels": labels}));
    }

    fn of_state(&mut self, root: &Root) {
        self.gauge("nomad.state.nodes", count(root.nodes().count()), json!({}));
        self.gauge("nomad.state.jobs", count(root.jobs().count()), json!({}));
        self.gauge("nomad.state.allocations", count(root.allocs().count()), json!({}));
        let mut statuses: BTreeMap<&str, usize> = BTreeMap::new();
        for job in root.jobs() {
            let status = match job.status {
                JobStatus::Pending => "nomad.nomad.job_status.pending",
                JobStatus::Running => "nomad.nomad.job_status.running",
                JobStatus::Dead => "nomad.nomad.job_status.dead",
            };
            *statuses.entry(status).or_default() += 1;
            let Some(summary) = root.job_summary(&job.key()) else { continue };
            for (group, counts) in &summary.summary {
                let labels = json!({"job": job.id, "task_group": group, "namespace": job.namespace, "exported_job": job.id});
                for (name, n) in [
                    ("queued", counts.queued),
                    ("complete", counts.complete),
                    ("failed", counts.failed),
                    ("running", counts.running),
                    ("starting", counts.starting),
                    ("lost", counts.lost),
                    ("unknown", counts.unknown),
                ] {
                    let name = format!("nomad.nomad.job_summary.{name}");
                    self.gauge(&name, count(usize::try_from(n).unwrap_or(usize::MAX)), labels.clone());
                }
            }
        }
        for (name, n) in statuses {
            self.gauge(name, count(n), json!({}));
        }
    }

    fn of_node(&mut self, call: &Call, node: &str, known: usize) {
        let root = call.state.server.as_ref().map(|server| server.store().snapshot());
        let row = root.as_ref().and_then(|root| root.node(&node.into()));
        let labels = json!({
            "node_id": node,
            "datacenter": call.state.info.datacenter,
            "node_class": row.map_or("none", |row| row.node_class.as_str()),
            "node_pool": row.map_or("default", |row| row.node_pool.as_str()),
            "host": call.state.info.name,
        });
        self.gauge("nomad.client.allocations.known", count(known), labels.clone());
        if let Some(root) = &root {
            let mut states: BTreeMap<&str, usize> = [
                "nomad.client.allocations.pending",
                "nomad.client.allocations.running",
                "nomad.client.allocations.terminal",
            ]
            .map(|name| (name, 0))
            .into();
            for alloc in root.allocs_by_node(&node.into()) {
                let name = match alloc.client_status {
                    ClientStatus::Pending => "nomad.client.allocations.pending",
                    ClientStatus::Running => "nomad.client.allocations.running",
                    _ => "nomad.client.allocations.terminal",
                };
                *states.entry(name).or_default() += 1;
            }
            for (name, n) in states {
                self.gauge(name, count(n), labels.clone());
            }
        }
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = |name: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        let (total, available) = (kib("MemTotal"), kib("MemAvailable"));
        for (name, kib) in [
            ("nomad.client.host.memory.total", total),
            ("nomad.client.host.memory.available", available),
            ("nomad.client.host.memory.used", total.saturating_sub(available)),
            ("nomad.client.host.memory.free", kib("MemFree")),
        ] {
            self.gauge(name, whole(kib.saturating_mul(1024)), labels.clone());
        }
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
        let uptime = uptime.split('.').next().and_then(|secs| secs.parse::<u64>().ok()).unwrap_or(0);
        self.gauge("nomad.client.uptime", whole(uptime), labels);
    }

    fn of_process(&mut self) {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = kib.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
        let resident = kib.saturating_mul(1024);
        self.gauge("nomad.runtime.sys_bytes", whole(resident), json!({}));
        self.gauge("nomad.runtime.alloc_bytes", whole(resident), json!({}));
        let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
        self.gauge("nomad.runtime.num_threads", count(threads), json!({}));
    }

    fn json(self) -> Value {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        // The figures are of now; intervals of the reference begin at full ten seconds.
        let begun = i64::try_from(now - now % 10).unwrap_or(0);
        let stamp = caravan_types::Time(begun.saturating_mul(1_000_000_000)).to_string();
        json!({
            "Timestamp": format!("{} +0000 UTC", stamp.replace('T', " ").trim_end_matches('Z')),
            "Gauges": self.gauges,
            "Points": [],
            "PrecisionGauges": [],
            "Counters": self.counters,
            "Samples": self.samples,
        })
    }

    fn prometheus(&self) -> String {
        let mut by_name: BTreeMap<String, (&str, Vec<String>)> = BTreeMap::new();
        let mut add = |kind: &'static str, name: String, row: &Value, value: &Value| {
            let value = value.as_f64().unwrap_or(0.0);
            let line = format!("{name}{} {value}", labels(row["Labels"].as_object()));
            by_name.entry(name).or_insert((kind, Vec::new())).1.push(line);
        };
        for row in &self.gauges {
            add("gauge", plain(row), row, &row["Value"]);
        }
        for row in &self.counters {
            add("counter", plain(row), row, &row["Sum"]);
        }
        for row in &self.samples {
            add("counter", format!("{}_sum", plain(row)), row, &row["Sum"]);
            add("counter", format!("{}_count", plain(row)), row, &row["Count"]);
        }
        let mut out = String::new();
        for (name, (kind, lines)) in by_name {
            // Writing to a string cannot fail.
            let _ = write!(out, "# HELP {name} {name}\n# TYPE {name} {kind}\n{}\n", lines.join("\n"));
        }
        out
    }
}

/// The name with the letters that Prometheus knows.
fn plain(row: &Value) -> String {
    let name = row["Name"].as_str().unwrap_or_default();
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == ':' { c } else { '_' }).collect()
}

fn labels(labels: Option<&Map<String, Value>>) -> String {
    let pairs: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            format!("{name}=\"{text}\"")
        })
        .collect();
    if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_reads_each_name_once_with_all_its_lines() {
        let mut figures = Figures::default();
        figures.gauge("nomad.a-b.c", 1.0, json!({"job": "x\"y"}));
        figures.gauge("nomad.a-b.c", 2.5, json!({}));
        figures.samples.push(json!({"Name": "nomad.s", "Sum": 3.0, "Count": 2, "Labels": {}}));
        assert_eq!(
            figures.prometheus(),
            "# HELP nomad_a_b_c nomad_a_b_c\n# TYPE nomad_a_b_c gauge\nnomad_a_b_c{job=\"x\\\"y\"} 1\nnomad_a_b_c 2.5\n\
             # HELP nomad_s_count nomad_s_count\n# TYPE nomad_s_count counter\nnomad_s_count 2\n\
             # HELP nomad_s_sum nomad_s_sum\n# TYPE nomad_s_sum counter\nnomad_s_sum 3\n"
        );
        let json = figures.json();
        assert!(json["Timestamp"].as_str().unwrap().ends_with("0 +0000 UTC"));
    }
}
