//! The difference of two versions of a job, in the shape of `http-api` section 5.6.
//!
//! It is made from the JSON of both: scalars become fields, objects become objects, pairs of a map become
//! fields `Meta[owner]` of what holds them. Groups, tasks and other named things match by their names.

use caravan_types::job::Job;
use caravan_types::plan::DesiredUpdates;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Bookkeeping of the servers and what is shown elsewhere.
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

/// Changes of a task that need no new allocation.
const IN_PLACE_FIELDS: &[&str] = &["KillTimeout"];
const IN_PLACE_OBJECTS: &[&str] = &["Service", "Constraint", "Affinity", "Spread", "LogConfig"];

/// Names of the elements of lists and maps of objects.
fn singular(key: &str) -> &str {
    match key {
        "Constraints" => "Constraint",
        "Affinities" => "Affinity",
        "Spreads" => "Spread",
        "SpreadTarget" => "SpreadTarget",
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
        "ReservedPorts" => "Static Port",
        "DynamicPorts" => "Dynamic Port",
        "CSIPluginConfig" => "CSIPlugin",
        other => other,
    }
}

/// From `old` (none: there was no such job) to `new`. With the counts of a plan the groups tell what
/// happens to their allocations.
pub(crate) fn job(old: Option<&Job>, new: &Job, updates: Option<&BTreeMap<String, DesiredUpdates>>) -> Value {
    let map = |job: &Job| match serde_json::to_value(job) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    };
    let (old, new) = (old.map(map), map(new));
    let groups = named(old.as_ref(), Some(&new), "TaskGroups", |old, new| group(old, new, updates));
    let parts = Parts::of(old.as_ref(), Some(&new), NOT_OF_JOBS);
    let kind = kind(old.is_some(), true, parts.changed() || groups.iter().any(is_changed));
    json!({
        "Type": kind,
        "ID": new.get("ID"),
        "Fields": list(parts.fields),
        "Objects": list(parts.objects),
        "TaskGroups": list(groups),
    })
}

fn group(
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    updates: Option<&BTreeMap<String, DesiredUpdates>>,
) -> Value {
    let tasks = named(old, new, "Tasks", |o, n| task(o, n, old.is_some() && new.is_some()));
    let mut parts = Parts::of(old, new, &["Name", "Tasks"]);
    for field in parts.fields.iter_mut().filter(|field| field["Name"] == json!("Count")) {
        let count = |key: &str| field[key].as_str().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        let forced = if count("New") > count("Old") { "forces create" } else { "forces destroy" };
        field["Annotations"] = json!([forced]);
    }
    let kind = kind(old.is_some(), new.is_some(), parts.changed() || tasks.iter().any(is_changed));
    let name = new.or(old).and_then(|group| group.get("Name")).cloned().unwrap_or_default();
    let updates = updates.and_then(|all| all.get(name.as_str()?)).map(counted);
    json!({
        "Type": kind,
        "Name": name,
        "Fields": list(parts.fields),
        "Objects": list(parts.objects),
        "Tasks": list(tasks),
        "Updates": updates,
    })
}

/// Counts under the words that clients print; those that are zero are left out.
fn counted(updates: &DesiredUpdates) -> Value {
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

fn task(old: Option<&Map<String, Value>>, new: Option<&Map<String, Value>>, group_stays: bool) -> Value {
    let mut parts = Parts::of(old, new, &["Name", "Config"]);
    let config = |task: Option<&Map<String, Value>>| task.and_then(|t| t.get("Config")).cloned();
    parts.objects.extend(config_diff(config(old), config(new)));
    let kind = kind(old.is_some(), new.is_some(), parts.changed());
    let only = |all: &[Value], in_place: &[&str]| {
        all.iter()
            .filter(|d| is_changed(d))
            .all(|d| d["Name"].as_str().is_some_and(|n| in_place.contains(&n)))
    };
    let annotation = match kind {
        "None" => None,
        _ if !group_stays => Some("forces create"),
        "Edited" if only(&parts.fields, IN_PLACE_FIELDS) && only(&parts.objects, IN_PLACE_OBJECTS) => {
            Some("forces in-place update")
        }
        _ => Some("forces create/destroy update"),
    };
    json!({
        "Type": kind,
        "Name": new.or(old).and_then(|task| task.get("Name")),
        "Fields": list(parts.fields),
        "Objects": list(parts.objects),
        "Annotations": annotation.map(|text| [text]),
    })
}

/// A driver's configuration, flattened: `command`, `args[0]`, `mount[0][type]`. Unchanged values are
/// shown with the changed ones.
fn config_diff(old: Option<Value>, new: Option<Value>) -> Option<Value> {
    let flat = |value: Option<Value>| {
        let mut flat = BTreeMap::new();
        for (key, value) in value.as_ref().and_then(Value::as_object).into_iter().flatten() {
            flatten(key, value, &mut flat);
        }
        flat
    };
    let (old, new) = (flat(old), flat(new));
    if old == new {
        return None;
    }
    let all = fields(&old, &new, true);
    let kind = kind(!old.is_empty(), !new.is_empty(), true);
    Some(json!({"Type": kind, "Name": "Config", "Fields": list(all), "Objects": null}))
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

/// What differs between two objects.
#[derive(Default)]
struct Parts {
    fields: Vec<Value>,
    objects: Vec<Value>,
}

impl Parts {
    fn of(old: Option<&Map<String, Value>>, new: Option<&Map<String, Value>>, skip: &[&str]) -> Self {
        let keys: BTreeSet<&String> = old.into_iter().chain(new).flat_map(Map::keys).collect();
        let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
        let mut objects = Vec::new();
        for key in keys.into_iter().filter(|key| !skip.contains(&key.as_str())) {
            let get = |map: Option<&Map<String, Value>>| {
                map.and_then(|map| map.get(key)).filter(|value| !value.is_null()).cloned()
            };
            let (o, n) = (get(old), get(new));
            match o.as_ref().or(n.as_ref()) {
                None => {}
                Some(Value::Array(_)) => objects.extend(of_lists(key, o.as_ref(), n.as_ref())),
                Some(Value::Object(map)) if map.values().all(Value::is_string) && is_pairs(key) => {
                    for (side, value) in [(&mut before, &o), (&mut after, &n)] {
                        for (name, value) in value.as_ref().and_then(Value::as_object).into_iter().flatten() {
                            side.insert(format!("{key}[{name}]"), printed(value));
                        }
                    }
                }
                Some(Value::Object(_)) if key == "Volumes" => objects.extend(of_maps(key, &o, &n)),
                Some(Value::Object(_)) => {
                    let map = |value: &Option<Value>| value.as_ref().and_then(Value::as_object).cloned();
                    objects.extend(object(singular(key), map(&o).as_ref(), map(&n).as_ref()));
                }
                Some(_) => {
                    before.extend(o.as_ref().map(|value| (key.clone(), printed(value))));
                    after.extend(n.as_ref().map(|value| (key.clone(), printed(value))));
                }
            }
        }
        Self { fields: fields(&before, &after, false), objects }
    }

    fn changed(&self) -> bool {
        self.fields.iter().chain(&self.objects).any(is_changed)
    }
}

/// Maps of the user's own words, as opposed to objects with strings in them.
fn is_pairs(key: &str) -> bool {
    matches!(key, "Meta" | "Env" | "CanaryMeta" | "TaggedAddresses" | "GetterOptions" | "GetterHeaders")
}

fn object(name: &str, old: Option<&Map<String, Value>>, new: Option<&Map<String, Value>>) -> Option<Value> {
    let parts = Parts::of(old, new, &[]);
    let kind = kind(old.is_some(), new.is_some(), parts.changed());
    if kind == "None" {
        return None;
    }
    Some(json!({"Type": kind, "Name": name, "Fields": list(parts.fields), "Objects": list(parts.objects)}))
}

fn of_maps(key: &str, old: &Option<Value>, new: &Option<Value>) -> Vec<Value> {
    let get = |value: &Option<Value>| value.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
    let (old, new) = (get(old), get(new));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let element = |map: &Map<String, Value>, name: &str| map.get(name).and_then(Value::as_object).cloned();
    names
        .into_iter()
        .filter_map(|name| object(singular(key), element(&old, name).as_ref(), element(&new, name).as_ref()))
        .collect()
}

/// Lists of scalars are sets; lists of objects match by name, or else as wholes.
fn of_lists(key: &str, old: Option<&Value>, new: Option<&Value>) -> Vec<Value> {
    let items = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let (old, new) = (items(old), items(new));
    if old == new {
        return Vec::new();
    }
    if old.iter().chain(&new).all(|item| !item.is_object()) {
        return set(key, &old, &new).into_iter().collect();
    }
    let name = |item: &Value| {
        let id = ["Name", "Label"].iter().find_map(|key| item.get(*key).filter(|v| v.is_string()));
        id.map_or_else(|| item.to_string(), printed)
    };
    let names: BTreeSet<String> = old.iter().chain(&new).map(name).collect();
    let find = |items: &[Value], wanted: &str| {
        items.iter().find(|item| name(item) == wanted).and_then(Value::as_object).cloned()
    };
    let pair = |n: &String| object(singular(key), find(&old, n).as_ref(), find(&new, n).as_ref());
    names.iter().filter_map(pair).collect()
}

fn set(key: &str, old: &[Value], new: &[Value]) -> Option<Value> {
    let texts = |items: &[Value]| items.iter().map(printed).collect::<BTreeSet<String>>();
    let (old, new) = (texts(old), texts(new));
    let entry = |kind: &str, old: &str, new: &str| json!({"Type": kind, "Name": key, "Old": old, "New": new, "Annotations": null});
    let all: Vec<Value> = new
        .difference(&old)
        .map(|text| entry("Added", "", text))
        .chain(new.intersection(&old).map(|text| entry("None", text, text)))
        .chain(old.difference(&new).map(|text| entry("Deleted", text, "")))
        .collect();
    let kind = kind(!old.is_empty(), !new.is_empty(), old != new);
    (kind != "None").then(|| json!({"Type": kind, "Name": key, "Fields": list(all), "Objects": null}))
}

/// Fields by name. What is absent prints as nothing, so that an absent and an empty value are the same.
fn fields(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>, unchanged: bool) -> Vec<Value> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut all = Vec::new();
    for name in names {
        let (o, n) = (old.get(name), new.get(name));
        let (before, after) = (o.map_or("", String::as_str), n.map_or("", String::as_str));
        let kind = match (o, n) {
            _ if before == after => "None",
            (None, Some(_)) => "Added",
            (Some(_), None) => "Deleted",
            _ => "Edited",
        };
        if kind != "None" || unchanged {
            all.push(json!({"Type": kind, "Name": name, "Old": before, "New": after, "Annotations": null}));
        }
    }
    all
}

/// Elements of two lists, paired by name.
fn named(
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    key: &str,
    diff: impl Fn(Option<&Map<String, Value>>, Option<&Map<String, Value>>) -> Value,
) -> Vec<Value> {
    let elements = |map: Option<&Map<String, Value>>| {
        let items = map.and_then(|map| map.get(key)).and_then(Value::as_array).cloned().unwrap_or_default();
        let pair = |item: Value| match item {
            Value::Object(map) => Some((printed(map.get("Name")?), map)),
            _ => None,
        };
        items.into_iter().filter_map(pair).collect::<BTreeMap<String, Map<String, Value>>>()
    };
    let (old, new) = (elements(old), elements(new));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    names.into_iter().map(|name| diff(old.get(name), new.get(name))).collect()
}

fn kind(before: bool, after: bool, changed: bool) -> &'static str {
    match (before, after) {
        (false, true) => "Added",
        (true, false) => "Deleted",
        _ if changed => "Edited",
        _ => "None",
    }
}

fn is_changed(diff: &Value) -> bool {
    diff["Type"] != json!("None")
}

fn printed(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn list(items: Vec<Value>) -> Value {
    if items.is_empty() { Value::Null } else { Value::Array(items) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::job::{Constraint, Task, TaskGroup};

    fn sample() -> Job {
        let config = BTreeMap::from([
            ("command".to_owned(), json!("/bin/sh")),
            ("args".to_owned(), json!(["-c", "true"])),
        ]);
        let task = Task {
            name: "server".into(),
            config,
            env: BTreeMap::from([("RELEASE".to_owned(), "one".to_owned())]),
            ..Task::default()
        };
        let group = TaskGroup { name: "web".into(), count: 2, tasks: vec![task], ..TaskGroup::default() };
        Job { id: "web".into(), task_groups: vec![group], ..Job::default() }
    }

    #[test]
    fn equal_jobs_do_not_differ() {
        let diff = job(Some(&sample()), &sample(), None);
        assert_eq!(diff["Type"], "None");
        assert!(diff["Fields"].is_null() && diff["Objects"].is_null());
        assert_eq!(diff["TaskGroups"][0]["Tasks"][0]["Type"], "None");
        assert!(diff["TaskGroups"][0]["Tasks"][0]["Annotations"].is_null());
    }

    #[test]
    fn every_kind_of_change_has_its_place() {
        let mut new = sample();
        new.meta.insert("new".into(), "x".into());
        new.version = 7;
        let group = &mut new.task_groups[0];
        group.count = 3;
        group.constraints.push(Constraint {
            l_target: "${attr.kernel.name}".into(),
            r_target: "linux".into(),
            operand: "=".into(),
        });
        group.tasks[0].env.insert("RELEASE".into(), "two".into());
        group.tasks[0].config.insert("args".into(), json!(["-c", "true", "x"]));
        let updates = DesiredUpdates { place: 1, destructive_update: 2, ..DesiredUpdates::default() };
        let diff = job(Some(&sample()), &new, Some(&BTreeMap::from([("web".to_owned(), updates)])));
        let field = |name: &str, kind: &str, old: &str, new: &str| json!({"Annotations": null, "Name": name, "Type": kind, "Old": old, "New": new});
        assert_eq!(diff["Type"], "Edited");
        assert_eq!(diff["Fields"], json!([field("Meta[new]", "Added", "", "x")]));
        let group = &diff["TaskGroups"][0];
        assert_eq!(group["Updates"], json!({"create": 1, "create/destroy update": 2}));
        assert_eq!(group["Fields"][0]["Annotations"], json!(["forces create"]));
        assert_eq!(group["Objects"][0]["Name"], "Constraint");
        assert_eq!(group["Objects"][0]["Fields"][0], field("LTarget", "Added", "", "${attr.kernel.name}"));
        let task = &group["Tasks"][0];
        assert_eq!(task["Annotations"], json!(["forces create/destroy update"]));
        assert_eq!(task["Fields"], json!([field("Env[RELEASE]", "Edited", "one", "two")]));
        let config = &task["Objects"][0];
        assert_eq!((&config["Name"], &config["Type"]), (&json!("Config"), &json!("Edited")));
        assert_eq!(config["Fields"][2], field("args[2]", "Added", "", "x"));
        assert_eq!(config["Fields"][3], field("command", "None", "/bin/sh", "/bin/sh"));
    }

    #[test]
    fn a_new_job_is_added_whole() {
        let diff = job(None, &sample(), None);
        assert_eq!((&diff["Type"], &diff["ID"]), (&json!("Added"), &json!("web")));
        assert_eq!(diff["TaskGroups"][0]["Tasks"][0]["Annotations"], json!(["forces create"]));
    }

    #[test]
    fn small_changes_of_a_task_stay_in_place() {
        let mut new = sample();
        new.task_groups[0].tasks[0].kill_timeout = caravan_types::Nanos(9);
        let diff = job(Some(&sample()), &new, None);
        assert_eq!(diff["TaskGroups"][0]["Tasks"][0]["Annotations"], json!(["forces in-place update"]));
    }
}
