//! Figures in the text format of Prometheus: https://prometheus.io/docs/instrumenting/exposition_formats/.
//!
//! Gauges and counters keep their types. A sample becomes a summary: quantiles of its latest values, `_sum` and
//! `_count` under one type line.

use super::Figures;
use caravan_meters::QUANTILES;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The type of a family of series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Summary,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Summary => "summary",
        }
    }
}

/// The series of one name, in the order of insertion.
struct Family {
    kind: Kind,
    lines: Vec<String>,
}

#[derive(Default)]
struct Families(BTreeMap<String, Family>);

impl Families {
    /// Returns the family of a figure. A name has one type. A figure of another type with this name is omitted,
    /// because Prometheus would reject the whole answer.
    fn family_mut(&mut self, kind: Kind, name: &str) -> Option<&mut Vec<String>> {
        let family = self.0.entry(name.to_owned()).or_insert(Family { kind, lines: Vec::new() });
        debug_assert_eq!(family.kind, kind, "{name} has one type");
        (family.kind == kind).then_some(&mut family.lines)
    }

    fn value(&mut self, kind: Kind, row: &Value, value: &Value) {
        let name = plain(row);
        if let Some(lines) = self.family_mut(kind, &name) {
            lines.push(line(&name, row, None, number(value)));
        }
    }
}

/// Formats the figures for Prometheus.
pub(super) fn exposition(figures: &Figures) -> String {
    let mut families = Families::default();
    for row in &figures.gauges {
        families.value(Kind::Gauge, row, &row["Value"]);
    }
    for row in &figures.counters {
        families.value(Kind::Counter, row, &row["Sum"]);
    }
    for sample in &figures.samples {
        let (row, name) = (&sample.shape, plain(&sample.shape));
        let Some(lines) = families.family_mut(Kind::Summary, &name) else { continue };
        let values = sample.quantiles.unwrap_or([f64::NAN; QUANTILES.len()]);
        for (quantile, value) in QUANTILES.iter().zip(values) {
            lines.push(line(&name, row, Some(*quantile), value));
        }
        lines.push(line(&format!("{name}_sum"), row, None, number(&row["Sum"])));
        lines.push(line(&format!("{name}_count"), row, None, number(&row["Count"])));
    }
    let mut out = String::new();
    for (name, family) in families.0 {
        let (kind, lines) = (family.kind.as_str(), family.lines.join("\n"));
        // Writing to a string cannot fail.
        let _ = write!(out, "# HELP {name} {name}\n# TYPE {name} {kind}\n{lines}\n");
    }
    out
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

fn line(name: &str, row: &Value, quantile: Option<f64>, value: f64) -> String {
    format!("{name}{} {value}", labels(row["Labels"].as_object(), quantile))
}

/// Returns the name with only the characters that Prometheus allows.
fn plain(row: &Value) -> String {
    let name = row["Name"].as_str().unwrap_or_default();
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == ':' { c } else { '_' }).collect()
}

fn labels(labels: Option<&Map<String, Value>>, quantile: Option<f64>) -> String {
    let own = labels.into_iter().flatten().map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{name}=\"{text}\"")
    });
    let pairs: Vec<String> = own.chain(quantile.map(|q| format!("quantile=\"{q}\""))).collect();
    if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::super::Sample;
    use super::*;
    use serde_json::json;

    #[test]
    fn each_name_stands_once_with_its_type_and_all_its_lines() {
        let mut figures = Figures::default();
        figures.gauge("nomad.a-b.c", 1.0, &json!({"job": "x\"y"}));
        figures.gauge("nomad.a-b.c", 2.5, &json!({}));
        let sample = |labels: Value, quantiles| Sample {
            shape: json!({"Name": "nomad.s", "Sum": 3.0, "Count": 2, "Labels": labels}),
            quantiles,
        };
        figures.samples.push(sample(json!({"job": "x"}), Some([1.0, 2.0, 2.0])));
        figures.samples.push(sample(json!({}), None));
        let want = "\
# HELP nomad_a_b_c nomad_a_b_c
# TYPE nomad_a_b_c gauge
nomad_a_b_c{job=\"x\\\"y\"} 1
nomad_a_b_c 2.5
# HELP nomad_s nomad_s
# TYPE nomad_s summary
nomad_s{job=\"x\",quantile=\"0.5\"} 1
nomad_s{job=\"x\",quantile=\"0.9\"} 2
nomad_s{job=\"x\",quantile=\"0.99\"} 2
nomad_s_sum{job=\"x\"} 3
nomad_s_count{job=\"x\"} 2
nomad_s{quantile=\"0.5\"} NaN
nomad_s{quantile=\"0.9\"} NaN
nomad_s{quantile=\"0.99\"} NaN
nomad_s_sum 3
nomad_s_count 2
";
        assert_eq!(exposition(&figures), want);
    }
}
