//! Differences of lists: pairs the elements of the old and the new list.

use super::walk::{object, object_name, printed};
use super::{FieldDiff, Kind, Object, ObjectDiff};
use serde_json::Value;
use std::collections::BTreeSet;

/// Compares two lists. Lists of scalars are sets. Objects are paired by their identifying key; objects without such a
/// key are compared as a whole.
pub(super) fn compare(key: &str, old: Option<&Value>, new: Option<&Value>) -> Vec<ObjectDiff> {
    let items = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let (old, new) = (items(old), items(new));
    if old == new {
        return Vec::new();
    }
    if !old.iter().chain(&new).any(Value::is_object) {
        return set(key, &old, &new).into_iter().collect();
    }
    let objects = |items: Vec<Value>| -> Vec<Object> {
        items
            .into_iter()
            .filter_map(|item| if let Value::Object(o) = item { Some(o) } else { None })
            .collect()
    };
    let (old, new) = (objects(old), objects(new));
    let pairs = match key {
        "Services" => best(&old, &new, service),
        "Templates" => best(&old, &new, template),
        "Checks" | "Identities" | "Actions" | "Secrets" | "ScalingPolicies" | "Regions" => {
            same(&old, &new, "Name")
        }
        "ReservedPorts" | "DynamicPorts" => same(&old, &new, "Label"),
        "SpreadTarget" => same(&old, &new, "Value"),
        _ => whole(&old, &new),
    };
    let mut gone: Vec<usize> = (0..old.len()).collect();
    let mut come: Vec<usize> = (0..new.len()).collect();
    let mut out = Vec::new();
    for (o, n) in pairs {
        gone.retain(|at| *at != o);
        come.retain(|at| *at != n);
        out.extend(object(key, Some(&old[o]), Some(&new[n])));
    }
    out.extend(gone.into_iter().filter_map(|at| object(key, Some(&old[at]), None)));
    out.extend(come.into_iter().filter_map(|at| object(key, None, Some(&new[at]))));
    out
}

/// Compares maps of objects by their keys.
pub(super) fn by_key(key: &str, old: Option<Object>, new: Option<Object>) -> Vec<ObjectDiff> {
    let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let element = |map: &Object, name: &str| map.get(name).and_then(Value::as_object).cloned();
    let pair = |name: &String| object(key, element(&old, name).as_ref(), element(&new, name).as_ref());
    names.into_iter().filter_map(pair).collect()
}

/// Pairs elements with the same text under a key.
fn same(old: &[Object], new: &[Object], key: &str) -> Vec<(usize, usize)> {
    let mut free: Vec<usize> = (0..new.len()).collect();
    let mut out = Vec::new();
    for (o, object) in old.iter().enumerate() {
        if let Some(at) = free.iter().position(|n| new[*n].get(key) == object.get(key)) {
            out.push((o, free.remove(at)));
        }
    }
    out
}

/// Pairs elements that are equal.
fn whole(old: &[Object], new: &[Object]) -> Vec<(usize, usize)> {
    let mut free: Vec<usize> = (0..new.len()).collect();
    let mut out = Vec::new();
    for (o, object) in old.iter().enumerate() {
        if let Some(at) = free.iter().position(|n| new[*n] == *object) {
            out.push((o, free.remove(at)));
        }
    }
    out
}

/// Pairs each old element with the most similar new one. An element below the least similarity has no pair.
fn best(old: &[Object], new: &[Object], score: fn(&Object, &Object, bool) -> u32) -> Vec<(usize, usize)> {
    /// The least score of a pair.
    const ENOUGH: u32 = 3;
    if let ([_], [_]) = (old, new) {
        return vec![(0, 0)];
    }
    let mut free: Vec<usize> = (0..new.len()).collect();
    let mut out = Vec::new();
    for (o, object) in old.iter().enumerate() {
        let scored = free.iter().map(|n| (score(object, &new[*n], *n == o), *n));
        // The first element with the highest score wins.
        let found = scored
            .filter(|(points, _)| *points >= ENOUGH)
            .max_by_key(|(points, n)| (*points, usize::MAX - n));
        if let Some((_, n)) = found {
            free.retain(|at| *at != n);
            out.push((o, n));
        }
    }
    out
}

fn equal(a: &Object, b: &Object, key: &str) -> bool {
    a.get(key) == b.get(key)
}

/// Scores two services. Names and ports are not unique and may change: both count, and the position in the list
/// counts less.
fn service(a: &Object, b: &Object, place: bool) -> u32 {
    u32::from(place) + 2 * u32::from(equal(a, b, "PortLabel")) + 3 * u32::from(equal(a, b, "Name"))
}

fn template(a: &Object, b: &Object, place: bool) -> u32 {
    let text = equal(a, b, "EmbeddedTmpl") && equal(a, b, "SourcePath");
    u32::from(place) + 2 * u32::from(text) + 3 * u32::from(equal(a, b, "DestPath"))
}

/// Compares two sets of scalars; the result includes unchanged elements.
fn set(key: &str, old: &[Value], new: &[Value]) -> Option<ObjectDiff> {
    let texts = |items: &[Value]| items.iter().map(printed).collect::<BTreeSet<String>>();
    let (old, new) = (texts(old), texts(new));
    let kind = Kind::new(!old.is_empty(), !new.is_empty(), old != new);
    if kind == Kind::None {
        return None;
    }
    let mut fields: Vec<FieldDiff> = new.difference(&old).map(|text| FieldDiff::new(key, "", text)).collect();
    fields.extend(new.intersection(&old).map(|text| FieldDiff::new(key, text, text)));
    fields.extend(old.difference(&new).map(|text| FieldDiff::new(key, text, "")));
    fields.sort_by(|a, b| (&a.old, &a.new).cmp(&(&b.old, &b.new)));
    Some(ObjectDiff { kind, name: object_name(key).to_owned(), fields, objects: Vec::new() })
}
