//! Figures about volumes in the shape of `/v1/metrics` (`http-api` section 3.7).

use crate::figures::Aggregate;
use caravan_server::{CallFigures, VolumeFigures};
use caravan_types::volume::VolumeUsage;
use serde_json::{Value, json};

/// What is added to the answer.
#[derive(Debug, Default)]
pub(crate) struct Shaped {
    pub(crate) gauges: Vec<Value>,
    pub(crate) counters: Vec<Value>,
    pub(crate) samples: Vec<Value>,
}

impl Shaped {
    fn gauge(&mut self, name: &str, value: impl Into<f64>, labels: Value) {
        self.gauges.push(json!({"Name": name, "Value": value.into(), "Labels": labels}));
    }
}

/// The figures as gauges, counters and samples of so many seconds. Times are milliseconds, but for the oldest wait:
/// seconds.
pub(crate) fn shape(figures: &VolumeFigures, seconds: f64) -> Shaped {
    let mut out = Shaped::default();
    for (phase, n) in &figures.volumes {
        out.gauge("nomad.volumes.volumes", count(*n), json!({ "phase": phase }));
    }
    for (phase, n) in &figures.claims {
        out.gauge("nomad.volumes.claims", count(*n), json!({ "phase": phase }));
    }
    out.gauge("nomad.volumes.claims_backlog", count(figures.backlog), json!({}));
    let oldest = figures.oldest_wait.to_std().as_secs_f64();
    out.gauge("nomad.volumes.claims_oldest_wait", oldest, json!({}));
    for ((plugin, name), call) in &figures.calls {
        let labels = json!({ "plugin": plugin, "call": name });
        out.gauge("nomad.volumes.calls_in_flight", count(call.in_flight), labels.clone());
        if call.count > 0 {
            out.samples.push(measured(call).shape("nomad.volumes.call", seconds, &labels));
            let errors = Aggregate::counted(call.errors);
            out.counters.push(errors.shape("nomad.volumes.call_errors", seconds, &labels));
        }
    }
    for (volume, node, usage) in &figures.usage {
        let labels = json!({ "namespace": volume.namespace, "volume": volume.id, "node_id": node });
        for (name, bytes) in of_usage(usage) {
            out.gauge(name, bytes, labels.clone());
        }
    }
    out
}

fn of_usage(usage: &VolumeUsage) -> [(&'static str, f64); 5] {
    let abnormal = usage.condition.as_ref().is_some_and(|c| c.abnormal);
    [
        ("nomad.volumes.used_bytes", size(usage.used_bytes)),
        ("nomad.volumes.available_bytes", size(usage.available_bytes)),
        ("nomad.volumes.total_bytes", size(usage.total_bytes)),
        ("nomad.volumes.available_inodes", size(usage.available_inodes)),
        ("nomad.volumes.abnormal", f64::from(u8::from(abnormal))),
    ]
}

fn measured(call: &CallFigures) -> Aggregate {
    Aggregate {
        count: call.count,
        sum: call.sum,
        sum_of_squares: call.sum_of_squares,
        min: call.min,
        max: call.max,
    }
}

/// Counts of rows are far below what a float holds exactly.
fn count(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "beyond 8 PiB the last bytes of a size say nothing")]
fn size(bytes: i64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn calls_are_samples_and_counters_by_plugin_and_name() {
        let call = CallFigures {
            count: 2,
            errors: 1,
            sum: 6.0,
            sum_of_squares: 20.0,
            min: 2.0,
            max: 4.0,
            in_flight: 3,
        };
        let figures = VolumeFigures {
            claims: BTreeMap::from([("mounted", 7)]),
            calls: BTreeMap::from([(("p".into(), "DeleteVolume"), call)]),
            ..Default::default()
        };
        let shaped = shape(&figures, 10.0);
        let labels = json!({ "plugin": "p", "call": "DeleteVolume" });
        let gauge = |name: &str| shaped.gauges.iter().find(|g| g["Name"] == name).unwrap().clone();
        assert_eq!(gauge("nomad.volumes.claims")["Value"], 7.0);
        assert_eq!(gauge("nomad.volumes.calls_in_flight")["Labels"], labels);
        assert_eq!(shaped.samples[0]["Mean"], 3.0);
        assert_eq!(shaped.samples[0]["Stddev"], 2f64.sqrt());
        assert_eq!((&shaped.counters[0]["Count"], &shaped.counters[0]["Labels"]), (&json!(1), &labels));
    }
}
