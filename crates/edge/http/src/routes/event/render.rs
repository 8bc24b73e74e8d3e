//! Events as lines of JSON.

use super::lines::line;
use crate::access;
use crate::routes::{allocs, evals, volume, volumes};
use bytes::Bytes;
use caravan_server::{Caller, Handle, VarCap};
use caravan_state::{Event, EventBatch, EventRow};
use caravan_types::alloc::TIMED_OUT;
use caravan_types::node::Node;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Returns whether the caller may see the row of an event.
fn hears(caller: &Caller, row: &EventRow) -> bool {
    match row {
        EventRow::Namespace { row, .. } => caller.acl.sees_namespace(row.name.as_str()),
        EventRow::Variable { row, .. } => {
            caller.variable(row.key.namespace.as_str(), row.key.path.as_str(), VarCap::List)
        }
        row => access::event_topic(caller, row.topic(), row.namespace()),
    }
}

/// The type of events that have a line each. Nomad writes every updated evaluation on its own line, and clients
/// expect that.
const ALONE: &str = "EvaluationUpdated";

/// Returns the lines for a batch; `None` if no event concerns the subscriber. With `facts`, rows have the facts that
/// only Caravan has.
pub(super) fn render(
    batch: &EventBatch,
    takes: &dyn Fn(&Event) -> bool,
    caller: &Caller,
    facts: Option<&Handle>,
) -> Option<Bytes> {
    let events: Vec<Value> = batch
        .events
        .iter()
        .filter(|event| takes(event) && hears(caller, &event.row))
        .map(|event| {
            json!({
                "Topic": event.row.topic(),
                "Type": event.kind,
                "Key": event.row.key(),
                "Namespace": event.row.namespace(),
                "FilterKeys": event.row.filter_keys(),
                "Index": batch.index,
                "Payload": payload(&event.row, facts),
            })
        })
        .collect();
    let mut out = Vec::new();
    for together in events.chunk_by(|one, next| one["Type"] != ALONE && next["Type"] != ALONE) {
        out.extend_from_slice(&line(&json!({"Index": batch.index, "Events": together})));
    }
    (!out.is_empty()).then(|| out.into())
}

fn shaped<T: Serialize + ?Sized>(row: &T) -> Value {
    // All shapes have string keys, so encoding cannot fail.
    serde_json::to_value(row).unwrap_or_default()
}

fn node(row: &Node) -> Value {
    let mut value = shaped(row);
    value["Drain"] = json!(row.drain_strategy.is_some());
    value
}

fn payload(row: &EventRow, facts: Option<&Handle>) -> Value {
    let mut out = Map::new();
    let mut put = |name: &str, value: Value| out.insert(name.to_owned(), value);
    match row {
        EventRow::Job { row, deleted } => {
            put("Job", shaped(&**row));
            if *deleted {
                put("Deleted", json!(true));
            }
        }
        EventRow::Evaluation(row) => {
            put("Evaluation", shaped(&*evals::shown(row)));
        }
        EventRow::Allocation(row) => {
            let mut value = allocs::full(row).unwrap_or_default();
            if let Value::Object(map) = &mut value {
                map.shift_remove("Job");
            }
            put("Allocation", value);
            if row.client_description == TIMED_OUT {
                put("Timeout", json!(true));
                put("TimeoutReason", json!(TIMED_OUT));
            }
        }
        EventRow::Deployment(row) => {
            put("Deployment", shaped(&**row));
        }
        EventRow::Node(row) => {
            put("Node", node(row));
        }
        EventRow::NodeReport { row, index } => {
            let mut value = node(row);
            value["LastAllocUpdateIndex"] = json!(index);
            put("Node", value);
        }
        EventRow::Service(row) => {
            put("Service", shaped(&**row));
        }
        EventRow::HostVolume(row) => {
            put("Volume", shaped(&**row));
        }
        EventRow::CsiVolume { row, used } => {
            let mut value = shaped(&volumes::shown(row, used));
            if let Some(server) = facts {
                value["CaravanPhase"] = json!(row.phase);
                value["CaravanLastError"] = json!(row.last_error);
                value["CaravanClaims"] =
                    volume::claims(server, used.claims.iter().map(|(claim, _)| &**claim));
            }
            put("Volume", value);
        }
        EventRow::CsiPlugin { row, .. } => {
            put("Plugin", shaped(&**row));
        }
        EventRow::Variable { row, deleted } => {
            put("Metadata", shaped(&row.metadata()));
            put("Deleted", json!(deleted));
        }
        EventRow::Namespace { row, deleted } => {
            put("Namespace", shaped(&**row));
            if *deleted {
                put("Deleted", json!(true));
            }
        }
        EventRow::NodePool(row) => {
            put("NodePool", shaped(&**row));
        }
        EventRow::AclPolicy(row) => {
            put("ACLPolicy", shaped(&**row));
        }
        EventRow::AclToken(row) => {
            let mut value = shaped(&**row);
            value["SecretID"] = json!("");
            put("ACLToken", value);
        }
        EventRow::AclRole(row) => {
            put("ACLRole", shaped(&**row));
        }
        EventRow::AclAuthMethod(row) => {
            put("AuthMethod", shaped(&row.shown()));
        }
        EventRow::AclBindingRule(row) => {
            put("ACLBindingRule", shaped(&**row));
        }
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::eval::Evaluation;
    use std::sync::Arc;

    #[test]
    fn evaluations_that_changed_stand_alone() {
        let eval =
            |id: &str| EventRow::Evaluation(Arc::new(Evaluation { id: id.into(), ..Evaluation::default() }));
        let lines = |kind: &'static str| {
            let events = vec![Event { kind, row: eval("a") }, Event { kind, row: eval("b") }];
            let batch = EventBatch { index: 7, events };
            let text = render(&batch, &|_| true, &Caller::unrestricted(), None).unwrap();
            let text = String::from_utf8(text.to_vec()).unwrap();
            let count = |line: &str| {
                let line: Value = serde_json::from_str(line).unwrap();
                assert_eq!(line["Index"], 7);
                line["Events"].as_array().map_or(0, Vec::len)
            };
            text.lines().map(count).collect::<Vec<_>>()
        };
        assert_eq!(lines("EvaluationUpdated"), [1, 1]);
        assert_eq!(lines("PlanResult"), [2]);
    }
}
