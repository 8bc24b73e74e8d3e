//! The difference of two versions of a job, in the shape of docs/reference/http-api.md, section 5.6.
//!
//! The JSON of both versions is compared: scalars become fields, objects become objects, pairs of a map become
//! fields `Meta[owner]` of the enclosing object. Jobs, groups and tasks omit unchanged fields; a changed object
//! within them shows all its fields.

mod annotate;
mod lists;
mod policies;
#[cfg(test)]
mod tests;
mod walk;

use self::walk::{Level, Parts};
use caravan_types::job::Job;
use caravan_types::plan::DesiredUpdates;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) type Object = Map<String, Value>;

/// The counts of a plan by group.
pub(crate) type Updates = BTreeMap<String, DesiredUpdates>;

/// The kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    None,
    Added,
    Deleted,
    Edited,
}

impl Kind {
    fn new(before: bool, after: bool, changed: bool) -> Self {
        match (before, after) {
            (false, true) => Self::Added,
            (true, false) => Self::Deleted,
            _ if changed => Self::Edited,
            _ => Self::None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Added => "Added",
            Self::Deleted => "Deleted",
            Self::Edited => "Edited",
        }
    }
}

/// The difference of a scalar.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldDiff {
    kind: Kind,
    name: String,
    old: String,
    new: String,
    annotation: Option<&'static str>,
}

impl FieldDiff {
    /// Creates the difference of two printed values. An absent value prints as empty text, so absent and empty are
    /// equal.
    fn new(name: &str, old: &str, new: &str) -> Self {
        let kind = Kind::new(!old.is_empty(), !new.is_empty(), old != new);
        Self { kind, name: name.to_owned(), old: old.to_owned(), new: new.to_owned(), annotation: None }
    }

    fn json(&self) -> Value {
        json!({
            "Type": self.kind.as_str(),
            "Name": self.name,
            "Old": self.old,
            "New": self.new,
            "Annotations": self.annotation.map(|text| [text]),
        })
    }
}

/// The difference of an object within a job, a group, a task or another object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ObjectDiff {
    kind: Kind,
    name: String,
    fields: Vec<FieldDiff>,
    objects: Vec<ObjectDiff>,
}

impl ObjectDiff {
    fn json(&self) -> Value {
        json!({
            "Type": self.kind.as_str(),
            "Name": self.name,
            "Fields": list(self.fields.iter().map(FieldDiff::json)),
            "Objects": list(self.objects.iter().map(Self::json)),
        })
    }
}

/// Returns a list, or null if the list is empty.
fn list(items: impl Iterator<Item = Value>) -> Value {
    let items: Vec<Value> = items.collect();
    if items.is_empty() { Value::Null } else { Value::Array(items) }
}

/// Returns the difference from `old` (`None`: the job did not exist) to `new`. With the counts of a plan, groups and
/// tasks are annotated with the effects on their allocations.
pub(crate) fn job(old: Option<&Job>, new: &Job, updates: Option<&Updates>) -> Value {
    let map = |job: &Job| match serde_json::to_value(job) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    };
    objects(old.map(map), map(new), updates)
}

fn objects(old: Option<Object>, new: Object, updates: Option<&Updates>) -> Value {
    let (old, new) = (old.map(policies::marked), policies::marked(new));
    let (old, new) = (old.as_ref(), &new);
    let groups: Vec<(Kind, Value)> = named(old, Some(new), "TaskGroups", |o, n| group(o, n, updates));
    let parts = Parts::new(old, Some(new), Level::Job);
    let changed = parts.changed() || groups.iter().any(|(kind, _)| *kind != Kind::None);
    json!({
        "Type": Kind::new(old.is_some(), true, changed).as_str(),
        "ID": new.get("ID"),
        "Fields": list(parts.fields.iter().map(FieldDiff::json)),
        "Objects": list(parts.objects.iter().map(ObjectDiff::json)),
        "TaskGroups": list(groups.into_iter().map(|(_, value)| value)),
    })
}

fn group(old: Option<&Object>, new: Option<&Object>, updates: Option<&Updates>) -> (Kind, Value) {
    let whole = Kind::new(old.is_some(), new.is_some(), true);
    let annotated = updates.is_some();
    let tasks: Vec<(Kind, Value)> = named(old, new, "Tasks", |o, n| task(o, n, annotated.then_some(whole)));
    let mut parts = Parts::new(old, new, Level::Group);
    if annotated {
        annotate::counts(&mut parts.fields);
    }
    let changed = parts.changed() || tasks.iter().any(|(kind, _)| *kind != Kind::None);
    let kind = Kind::new(old.is_some(), new.is_some(), changed);
    let name = new.or(old).and_then(|group| group.get("Name")).cloned().unwrap_or_default();
    let counts = updates.and_then(|all| all.get(name.as_str()?)).map(annotate::updates);
    let value = json!({
        "Type": kind.as_str(),
        "Name": name,
        "Fields": list(parts.fields.iter().map(FieldDiff::json)),
        "Objects": list(parts.objects.iter().map(ObjectDiff::json)),
        "Tasks": list(tasks.into_iter().map(|(_, value)| value)),
        "Updates": counts,
    });
    (kind, value)
}

/// Compares two tasks. `group` is the kind of the group's difference if the task is to be annotated.
fn task(old: Option<&Object>, new: Option<&Object>, group: Option<Kind>) -> (Kind, Value) {
    let parts = Parts::new(old, new, Level::Task);
    let kind = Kind::new(old.is_some(), new.is_some(), parts.changed());
    let annotation = group.and_then(|group| annotate::task(kind, group, &parts));
    let value = json!({
        "Type": kind.as_str(),
        "Name": new.or(old).and_then(|task| task.get("Name")),
        "Fields": list(parts.fields.iter().map(FieldDiff::json)),
        "Objects": list(parts.objects.iter().map(ObjectDiff::json)),
        "Annotations": annotation.map(|text| [text]),
    });
    (kind, value)
}

/// Pairs the elements of two lists by name, in the order of the names.
fn named<T>(
    old: Option<&Object>,
    new: Option<&Object>,
    key: &str,
    diff: impl Fn(Option<&Object>, Option<&Object>) -> T,
) -> Vec<T> {
    fn elements<'o>(map: Option<&'o Object>, key: &str) -> BTreeMap<&'o str, &'o Object> {
        let items = map.and_then(|map| map.get(key)).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_object).filter_map(|o| Some((o.get("Name")?.as_str()?, o))).collect()
    }
    let (old, new) = (elements(old, key), elements(new, key));
    let names: BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
    names.into_iter().map(|name| diff(old.get(name).copied(), new.get(name).copied())).collect()
}
