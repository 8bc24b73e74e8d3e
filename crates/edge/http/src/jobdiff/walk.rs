//! Walks two objects and collects their differences.

use super::{FieldDiff, Kind, Object, ObjectDiff, lists, policies};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The level of an object, which determines the compared keys and the order of nested objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Job,
    Group,
    Task,
    /// An object within a job, group or task; the key names it.
    Inner(&'static str),
}

/// Keys that the servers maintain, and keys that are shown elsewhere.
const NOT_OF_JOBS: &[&str] = &[
    "ID",
    "Status",
    "StatusDescription",
    "Version",
    "Stable",
    "CreateIndex",
    "ModifyIndex",
    "JobModifyIndex",
    "Update",
    "SubmitTime",
    "NomadTokenID",
    "VersionTag",
    "TaskGroups",
];

/// The order in which objects are shown; other objects follow by name.
const ORDER: &[&str] = &[
    "Datacenters",
    "Constraints",
    "Affinities",
    "Spreads",
    "Config",
    "Resources",
    "RestartPolicy",
    "Disconnect",
    "Migrate",
    "ReschedulePolicy",
    "EphemeralDisk",
    "Update",
    "LogConfig",
    "DispatchPayload",
    "Artifacts",
    "Scaling",
    "Networks",
    "Tags",
    "CanaryTags",
    "Checks",
    "Services",
    "Volumes",
    "VolumeMounts",
    "Vault",
    "Consul",
    "Templates",
    "Identity",
    "Identities",
    "Actions",
];

impl Level {
    fn skips(self, key: &str, both: bool) -> bool {
        match self {
            Self::Job => NOT_OF_JOBS.contains(&key),
            Self::Group => matches!(key, "Name" | "Tasks"),
            // A task that is added or deleted includes its policies.
            Self::Task => key == "Name" || (!both && matches!(key, "RestartPolicy" | "ScalingPolicies")),
            Self::Inner("Update") => key == "Stagger",
            Self::Inner("Scaling" | "ScalingPolicies") => {
                let ours =
                    ["ID", "Namespace", "Target", "Type", "CreateIndex", "ModifyIndex", policies::MARK];
                ours.contains(&key)
            }
            // The servers' own records of a volume are not part of its specification.
            Self::Inner(_) => key == "CaravanHostAccess",
        }
    }
}

/// Returns the name of a key as an object.
pub(super) fn object_name(key: &str) -> &str {
    match key {
        "Constraints" => "Constraint",
        "Affinities" => "Affinity",
        "Spreads" => "Spread",
        "Services" => "Service",
        "Templates" => "Template",
        "Artifacts" => "Artifact",
        "VolumeMounts" => "VolumeMount",
        "Volumes" => "Volume",
        "Networks" => "Network",
        "Devices" => "Device",
        "Checks" => "Check",
        "Actions" => "Action",
        "Identities" => "Identity",
        "Secrets" => "Secret",
        "ScalingPolicies" => "Scaling",
        "ReservedPorts" => "Static Port",
        "DynamicPorts" => "Dynamic Port",
        "Connect" => "ConsulConnect",
        "Proxy" => "ConsulProxy",
        "Upstreams" => "ConsulUpstreams",
        "CNI" => "CNIConfig",
        "Links" => "Link",
        "Listeners" => "Listener",
        "Regions" => "Region",
        "Paths" => "Path",
        other => other,
    }
}

/// The differences between two objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    pub(super) fields: Vec<FieldDiff>,
    pub(super) objects: Vec<ObjectDiff>,
}

impl Parts {
    pub(super) fn new(old: Option<&Object>, new: Option<&Object>, level: Level) -> Self {
        let keys: BTreeSet<&str> =
            old.into_iter().chain(new).flat_map(|map| map.keys().map(String::as_str)).collect();
        let both = old.is_some() && new.is_some();
        let mut keys: Vec<&str> = keys.into_iter().filter(|key| !level.skips(key, both)).collect();
        keys.sort_by_key(|key| ORDER.iter().position(|o| o == key).unwrap_or(ORDER.len()));
        let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
        let mut objects = Vec::new();
        for key in keys {
            let get =
                |map: Option<&'_ Object>| map.and_then(|map| map.get(key)).filter(|v| !v.is_null()).cloned();
            let (o, n) = (get(old), get(new));
            let shape = Shape::new(key, o.as_ref().or(n.as_ref()));
            let map = |value: &Option<Value>| value.as_ref().and_then(Value::as_object).cloned();
            match shape {
                Shape::Nothing => {}
                Shape::Scalar => {
                    before.extend(o.as_ref().map(|value| (key.to_owned(), printed(value))));
                    after.extend(n.as_ref().map(|value| (key.to_owned(), printed(value))));
                }
                Shape::Pairs => {
                    for (side, value) in [(&mut before, map(&o)), (&mut after, map(&n))] {
                        for (name, value) in value.into_iter().flatten() {
                            side.insert(format!("{key}[{name}]"), printed(&value));
                        }
                    }
                }
                Shape::Free => objects.extend(free(object_name(key), o.as_ref(), n.as_ref())),
                Shape::List => objects.extend(lists::compare(key, o.as_ref(), n.as_ref())),
                Shape::Named => objects.extend(lists::by_key(key, map(&o), map(&n))),
                Shape::Object => objects.extend(object(key, map(&o).as_ref(), map(&n).as_ref())),
            }
        }
        let everything = matches!(level, Level::Inner(_));
        Self { fields: fields(&before, &after, everything), objects }
    }

    pub(super) fn changed(&self) -> bool {
        self.fields.iter().any(|f| f.kind != Kind::None) || self.objects.iter().any(|o| o.kind != Kind::None)
    }
}

/// The form in which a value is shown.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Nothing,
    Scalar,
    /// A map with the users' own keys and text values: shown as fields of the enclosing object.
    Pairs,
    /// An object of any depth, flattened.
    Free,
    List,
    /// An object whose keys are names of objects.
    Named,
    Object,
}

impl Shape {
    fn new(key: &str, value: Option<&Value>) -> Self {
        match value {
            None => Self::Nothing,
            Some(Value::Array(_)) => Self::List,
            Some(Value::Object(_)) => match key {
                "Meta" | "Env" | "CanaryMeta" | "TaggedAddresses" | "GetterOptions" | "GetterHeaders"
                | "Args" => Self::Pairs,
                "Config" | "Policy" | "Header" | "RequestHeaders" | "ResponseHeaders" => Self::Free,
                "Volumes" | "EnvoyGatewayBindAddresses" => Self::Named,
                _ => Self::Object,
            },
            Some(_) => Self::Scalar,
        }
    }
}

/// Compares one object; returns `None` if it did not change.
pub(super) fn object(key: &str, old: Option<&Object>, new: Option<&Object>) -> Option<ObjectDiff> {
    let level = match key {
        "Update" => "Update",
        "Scaling" | "ScalingPolicies" => "Scaling",
        _ => "",
    };
    let mut parts = Parts::new(old, new, Level::Inner(level));
    let mut changed = parts.changed();
    if !changed && policies::moved(old, new) {
        // Only the servers' indexes differ, so no part of the policy is shown.
        (changed, parts) = (true, Parts::default());
    }
    let kind = Kind::new(old.is_some(), new.is_some(), changed);
    let name = object_name(key).to_owned();
    (kind != Kind::None).then_some(ObjectDiff { kind, name, fields: parts.fields, objects: parts.objects })
}

/// Flattens and compares a free-form object: `command`, `args[0]`, `mount[0][type]`.
fn free(name: &str, old: Option<&Value>, new: Option<&Value>) -> Option<ObjectDiff> {
    let flat = |value: Option<&Value>| {
        let mut flat = BTreeMap::new();
        for (key, value) in value.and_then(Value::as_object).into_iter().flatten() {
            flatten(key, value, &mut flat);
        }
        flat
    };
    let (before, after) = (flat(old), flat(new));
    if before == after {
        return None;
    }
    let kind = Kind::new(!before.is_empty(), !after.is_empty(), true);
    let fields = fields(&before, &after, true);
    Some(ObjectDiff { kind, name: name.to_owned(), fields, objects: Vec::new() })
}

fn flatten(path: &str, value: &Value, out: &mut BTreeMap<String, String>) {
    match value {
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                flatten(&format!("{path}[{at}]"), item, out);
            }
        }
        Value::Object(map) => {
            for (key, item) in map {
                flatten(&format!("{path}[{key}]"), item, out);
            }
        }
        scalar => {
            out.insert(path.to_owned(), printed(scalar));
        }
    }
}

/// Compares fields by name; `everything` includes unchanged fields.
fn fields(
    old: &BTreeMap<String, String>,
    new: &BTreeMap<String, String>,
    everything: bool,
) -> Vec<FieldDiff> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let text = |map: &BTreeMap<String, String>, name: &str| map.get(name).cloned().unwrap_or_default();
    let all = names.into_iter().map(|name| FieldDiff::new(name, &text(old, name), &text(new, name)));
    all.filter(|field| everything || field.kind != Kind::None).collect()
}

pub(super) fn printed(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
