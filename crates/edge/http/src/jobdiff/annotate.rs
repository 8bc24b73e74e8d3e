//! Annotations of a difference: its effects on allocations.

use super::walk::Parts;
use super::{FieldDiff, Kind, ObjectDiff};
use caravan_types::plan::DesiredUpdates;
use serde_json::{Value, json};

const CREATE: &str = "forces create";
const DESTROY: &str = "forces destroy";
const IN_PLACE: &str = "forces in-place update";
const REPLACE: &str = "forces create/destroy update";

/// Returns the counts under the names that clients print; omits zero counts.
pub(super) fn updates(updates: &DesiredUpdates) -> Value {
    let pairs = [
        ("ignore", updates.ignore),
        ("create", updates.place),
        ("destroy", updates.stop),
        ("migrate", updates.migrate),
        ("canary", updates.canary),
        ("in-place update", updates.in_place_update),
        ("create/destroy update", updates.destructive_update),
    ];
    pairs.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name.to_owned(), json!(n))).collect()
}

/// Annotates a changed count of a group.
pub(super) fn counts(fields: &mut [FieldDiff]) {
    for field in fields.iter_mut().filter(|field| field.name == "Count" && field.kind != Kind::None) {
        let count = |text: &str| text.parse::<i64>().unwrap_or(0);
        let grows = match field.kind {
            Kind::Added => true,
            Kind::Deleted => false,
            _ => count(&field.new) > count(&field.old),
        };
        field.annotation = Some(if grows { CREATE } else { DESTROY });
    }
}

/// Returns the effect on the allocations of a task (docs/reference/http-api.md, section 5.6, annotations).
pub(super) fn task(kind: Kind, group: Kind, parts: &Parts) -> Option<&'static str> {
    match (kind, group) {
        (Kind::None, _) => None,
        (_, Kind::Added) => Some(CREATE),
        (_, Kind::Deleted) => Some(DESTROY),
        _ if parts.fields.iter().all(keeps) && parts.objects.iter().all(object_keeps) => Some(IN_PLACE),
        _ => Some(REPLACE),
    }
}

fn keeps(field: &FieldDiff) -> bool {
    field.kind == Kind::None || field.name == "KillTimeout"
}

fn object_keeps(object: &ObjectDiff) -> bool {
    match object.name.as_str() {
        _ if object.kind == Kind::None => true,
        "Service" | "Constraint" | "Affinity" | "Spread" => true,
        "LogConfig" => !object.fields.iter().any(|f| f.name == "Disabled" && f.kind != Kind::None),
        _ => false,
    }
}
