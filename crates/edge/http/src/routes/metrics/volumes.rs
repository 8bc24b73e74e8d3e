//! Metrics of volumes in the shape of `/v1/metrics` (docs/reference/http-api.md, section 3.7).

use super::{Figures, count, signed};
use caravan_meters::Aggregate;
use caravan_server::VolumeFigures;
use caravan_types::volume::VolumeUsage;
use serde_json::json;
use std::time::Instant;

/// Adds the figures as gauges, counters and samples. Times are milliseconds, except the oldest wait in seconds.
pub(super) fn add(out: &mut Figures, figures: &VolumeFigures) {
    let none = json!({});
    for (phase, n) in &figures.volumes {
        out.gauge("nomad.volumes.volumes", count(*n), &json!({ "phase": phase }));
    }
    for (phase, n) in &figures.claims {
        out.gauge("nomad.volumes.claims", count(*n), &json!({ "phase": phase }));
    }
    out.gauge("nomad.volumes.claims_backlog", count(figures.backlog), &none);
    for (reason, n) in &figures.waits {
        out.gauge("nomad.volumes.claims_waiting", count(*n), &json!({ "reason": reason }));
    }
    let oldest = figures.oldest_wait.to_std().as_secs_f64();
    out.gauge("nomad.volumes.claims_oldest_wait", oldest, &none);
    for ((plugin, name), call) in &figures.calls {
        let labels = json!({ "plugin": plugin, "call": name });
        out.gauge("nomad.volumes.calls_in_flight", count(call.in_flight), &labels);
        if call.times.count > 0 {
            out.sample("nomad.volumes.call", &call.times, call.recent.quantiles(Instant::now()), &labels);
            out.counter("nomad.volumes.call_errors", &Aggregate::counted(call.errors), &labels);
        }
    }
    for (volume, node, usage) in &figures.usage {
        let labels = json!({ "namespace": volume.namespace, "volume": volume.id, "node_id": node });
        for (name, bytes) in of_usage(usage) {
            out.gauge(name, bytes, &labels);
        }
    }
}

fn of_usage(usage: &VolumeUsage) -> [(&'static str, f64); 5] {
    let abnormal = usage.condition.as_ref().is_some_and(|c| c.abnormal);
    [
        ("nomad.volumes.used_bytes", signed(usage.used_bytes)),
        ("nomad.volumes.available_bytes", signed(usage.available_bytes)),
        ("nomad.volumes.total_bytes", signed(usage.total_bytes)),
        ("nomad.volumes.available_inodes", signed(usage.available_inodes)),
        ("nomad.volumes.abnormal", f64::from(u8::from(abnormal))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_server::CallFigures;
    use std::collections::BTreeMap;

    #[test]
    fn calls_are_samples_and_counters_by_plugin_and_name() {
        let times = Aggregate { count: 2, sum: 6.0, sum_of_squares: 20.0, min: 2.0, max: 4.0 };
        let call = CallFigures { times, errors: 1, in_flight: 3, ..CallFigures::default() };
        let figures = VolumeFigures {
            claims: BTreeMap::from([("mounted", 7)]),
            waits: BTreeMap::from([("node_silent", 2)]),
            calls: BTreeMap::from([(("p".into(), "DeleteVolume"), call)]),
            ..Default::default()
        };
        let mut shaped = Figures { seconds: 10.0, ..Figures::default() };
        add(&mut shaped, &figures);
        let labels = json!({ "plugin": "p", "call": "DeleteVolume" });
        let gauge = |name: &str| shaped.gauges.iter().find(|g| g["Name"] == name).unwrap().clone();
        assert_eq!(gauge("nomad.volumes.claims")["Value"], 7.0);
        assert_eq!(gauge("nomad.volumes.claims_waiting")["Value"], 2.0);
        assert_eq!(gauge("nomad.volumes.claims_waiting")["Labels"], json!({ "reason": "node_silent" }));
        assert_eq!(gauge("nomad.volumes.calls_in_flight")["Labels"], labels);
        assert_eq!(shaped.samples[0].shape["Mean"], 3.0);
        assert_eq!(shaped.samples[0].shape["Stddev"], 2f64.sqrt());
        assert_eq!((&shaped.counters[0]["Count"], &shaped.counters[0]["Labels"]), (&json!(1), &labels));
    }
}
