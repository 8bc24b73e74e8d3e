//! `/v1/metrics`: figures derived from the state, figures of the process and its host, and counters and timers since
//! the start, as JSON or in the Prometheus format (docs/reference/http-api.md, section 5.11). Names begin with
//! `nomad.`, as dashboards expect.

mod client;
mod prometheus;
mod server;
mod volumes;

use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;
use caravan_meters::{Aggregate, Quantiles, Series};
use caravan_sys::time::wall_nanos;
use caravan_types::UnixNanos;
use http::{Method, StatusCode};
use serde_json::{Value, json};

const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

pub(crate) async fn route(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let prometheus = call.query.text("format") == "prometheus";
    if prometheus && !call.state.info.metrics.prometheus {
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Prometheus is not enabled"));
    }
    let mut figures = Figures { seconds: since(call.state.started), ..Figures::default() };
    let (requests, latest) = call.state.shared.requests.aggregate_and_quantiles();
    let none = json!({});
    figures.counter("nomad.http.request", &Aggregate::counted(requests.count), &none);
    figures.sample("nomad.http.request_time", &requests, latest, &none);
    if let Some(server) = &call.state.server {
        server::add(&mut figures, server);
    }
    if let Some(client) = &call.state.client {
        Box::pin(client::add(&mut figures, call, client.as_ref())).await;
    }
    of_process(&mut figures);
    Ok(if prometheus {
        Reply::raw(PROMETHEUS, prometheus::exposition(&figures))
    } else {
        Reply::value(figures.json())
    })
}

/// Returns the seconds since a time.
fn since(then: UnixNanos) -> f64 {
    UnixNanos(wall_nanos()).since(then).to_std().as_secs_f64()
}

/// Converts a count, which is far below the limit of exact floats.
fn count(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people and graphs")]
fn whole(n: u64) -> f64 {
    n as f64
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people and graphs")]
fn signed(n: i64) -> f64 {
    n as f64
}

/// The figures of an answer while they are collected.
#[derive(Default)]
struct Figures {
    /// The seconds over which all counters and samples were measured.
    seconds: f64,
    gauges: Vec<Value>,
    counters: Vec<Value>,
    samples: Vec<Sample>,
}

/// A sample: the JSON for clients, and the quantiles that only Prometheus reads.
struct Sample {
    shape: Value,
    quantiles: Quantiles,
}

impl Figures {
    fn gauge(&mut self, name: &str, value: f64, labels: &Value) {
        self.gauges.push(json!({"Name": name, "Value": value, "Labels": labels}));
    }

    fn counter(&mut self, name: &str, values: &Aggregate, labels: &Value) {
        self.counters.push(self.shape(name, values, labels));
    }

    fn sample(&mut self, name: &str, values: &Aggregate, quantiles: Quantiles, labels: &Value) {
        let shape = self.shape(name, values, labels);
        self.samples.push(Sample { shape, quantiles });
    }

    /// Adds the counters and timers of a part of the agent; their labels extend those of `base`.
    fn measured(&mut self, prefix: &str, reported: caravan_meters::Readings, base: &Value) {
        let labels = |series: &Series| {
            let mut labels = base.clone();
            for (name, value) in &series.labels {
                labels[*name] = json!(value);
            }
            labels
        };
        for series in reported.counters {
            self.counter(&format!("{prefix}{}", series.name), &series.values, &labels(&series));
        }
        for series in reported.samples {
            let name = format!("{prefix}{}", series.name);
            self.sample(&name, &series.values, series.quantiles, &labels(&series));
        }
    }

    /// Returns the JSON of a counter or sample.
    fn shape(&self, name: &str, values: &Aggregate, labels: &Value) -> Value {
        json!({
            "Name": name,
            "Count": values.count,
            "Rate": if self.seconds > 0.0 { values.sum / self.seconds } else { 0.0 },
            "Sum": values.sum,
            "Min": values.min,
            "Max": values.max,
            "Mean": values.mean(),
            "Stddev": values.deviation(),
            "Labels": labels,
        })
    }

    fn json(self) -> Value {
        let now = UnixNanos(wall_nanos()).as_secs();
        // The figures are current; Nomad's intervals begin at multiples of ten seconds.
        let begun = now - now % 10;
        let stamp = caravan_types::Time(begun.saturating_mul(1_000_000_000)).to_string();
        json!({
            "Timestamp": format!("{} +0000 UTC", stamp.replace('T', " ").trim_end_matches('Z')),
            "Gauges": self.gauges,
            "Points": [],
            "PrecisionGauges": [],
            "Counters": self.counters,
            "Samples": self.samples.into_iter().map(|sample| sample.shape).collect::<Vec<_>>(),
        })
    }
}

fn of_process(figures: &mut Figures) {
    let none = json!({});
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = kib.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
    let resident = kib.saturating_mul(1024);
    figures.gauge("nomad.runtime.sys_bytes", whole(resident), &none);
    figures.gauge("nomad.runtime.alloc_bytes", whole(resident), &none);
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    figures.gauge("nomad.runtime.num_threads", count(threads), &none);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_time_is_a_full_ten_seconds() {
        let json = Figures::default().json();
        assert!(json["Timestamp"].as_str().unwrap().ends_with("0 +0000 UTC"));
    }

    #[test]
    fn what_was_measured_has_its_own_labels_on_top() {
        let meters = caravan_meters::Meters::default();
        meters.count("allocs.start", &[("job", "web")]);
        for millis in [2, 4] {
            meters.time("worker.submit_plan", Duration::from_millis(millis), &[]);
        }
        let mut figures = Figures { seconds: 3.0, ..Figures::default() };
        figures.measured("nomad.x.", meters.readings(), &json!({"node_id": "n"}));
        assert_eq!(figures.counters[0]["Name"], "nomad.x.allocs.start");
        assert_eq!(figures.counters[0]["Labels"], json!({"node_id": "n", "job": "web"}));
        let reported = &figures.samples[0].shape;
        assert_eq!(
            (&reported["Count"], &reported["Sum"], &reported["Rate"]),
            (&json!(2), &json!(6.0), &json!(2.0))
        );
        assert_eq!(
            (&reported["Min"], &reported["Max"], &reported["Mean"]),
            (&json!(2.0), &json!(4.0), &json!(3.0))
        );
    }
}
