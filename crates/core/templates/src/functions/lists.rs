//! Functions for lists and maps.

use super::{Function, f, v};
use crate::session::Answer;
use crate::value::{Map, as_count, as_int, as_list, as_map, as_text, map, same, text};
use gotmpl::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const TABLE: &[Function] = &[
    f("in", 2, |_, a| contains(&a[1], &a[0])),
    f("contains", 2, |_, a| contains(&a[0], &a[1])),
    f("containsAll", 2, |_, a| count(&a[0], &a[1]).map(|(all, found)| Value::Bool(found == all))),
    f("containsAny", 2, |_, a| count(&a[0], &a[1]).map(|(_, found)| Value::Bool(found > 0))),
    f("containsNone", 2, |_, a| count(&a[0], &a[1]).map(|(_, found)| Value::Bool(found == 0))),
    f("containsNotAll", 2, |_, a| count(&a[0], &a[1]).map(|(all, found)| Value::Bool(found < all))),
    v("loop", 1, 2, |_, a| {
        let (from, to) = match a {
            [to] => (0, as_int(to)?),
            [from, to] => (as_int(from)?, as_int(to)?),
            _ => (0, 0),
        };
        as_count(&Value::Int(to.saturating_sub(from)))?;
        Ok(Value::List((from..to).map(Value::Int).collect()))
    }),
    f("byTag", 1, |_, a| {
        let mut groups: BTreeMap<Arc<str>, Vec<Value>> = BTreeMap::new();
        for service in as_list(&a[0])? {
            for tag in as_list(service.field("Tags").unwrap_or(&Value::Nil))? {
                groups.entry(Arc::from(as_text(&tag)?)).or_default().push(service.clone());
            }
        }
        Ok(map(groups.into_iter().map(|(tag, services)| (tag, Value::List(services.into())))))
    }),
    f("byKey", 1, |_, a| {
        // Group pairs by the first segment of their keys.
        let mut groups: BTreeMap<String, BTreeMap<Arc<str>, Value>> = BTreeMap::new();
        for pair in as_list(&a[0])? {
            let field = |name| pair.field(name).cloned().unwrap_or(Value::Nil);
            let key =
                ["Key", "K"].into_iter().find_map(|name| pair.field(name)).unwrap_or(&Value::Nil).clone();
            let key = as_text(&key)?;
            let (group, rest) = key.split_once('/').unwrap_or(("", key));
            let value = if pair.field("Value").is_some() { field("Value") } else { field("V") };
            groups.entry(group.to_owned()).or_default().insert(Arc::from(rest), value);
        }
        Ok(map(groups.into_iter().map(|(group, items)| (group, Value::Map(Arc::new(items))))))
    }),
    f("explodeMap", 1, |_, a| {
        let mut root = Tree::default();
        for (key, value) in as_map(&a[0])?.iter() {
            let parts: Vec<&str> = key.split('/').filter(|part| !part.is_empty()).collect();
            if parts.len() > 64 {
                return Err(format!("the key \"{key}\" nests too deeply"));
            }
            root.put(&parts, value)
                .map_err(|()| format!("\"{key}\" is a key and the beginning of others"))?;
        }
        Ok(root.value())
    }),
    f("mergeMap", 2, |_, a| Ok(Value::Map(merged(&as_map(&a[1])?, &as_map(&a[0])?, false, 0)?))),
    f("mergeMapWithOverride", 2, |_, a| Ok(Value::Map(merged(&as_map(&a[1])?, &as_map(&a[0])?, true, 0)?))),
];

/// Returns whether a list contains an element, a map a key, or a text a substring.
pub(super) fn contains(element: &Value, of: &Value) -> Answer {
    Ok(Value::Bool(match of {
        Value::List(items) => items.iter().any(|item| same(item, element)),
        Value::Map(items) => items.contains_key(as_text(element)?),
        Value::String(whole) => whole.contains(as_text(element)?),
        Value::Nil => false,
        other => return Err(format!("nothing is in a value of type {}", other.type_name())),
    }))
}

/// Returns the length of the first list, and the number of its elements that the second list contains.
fn count(desired: &Value, of: &Value) -> Result<(usize, usize), String> {
    let desired = as_list(desired)?;
    let mut found = 0;
    for element in &desired {
        found += usize::from(matches!(contains(element, of)?, Value::Bool(true)));
    }
    Ok((desired.len(), found))
}

/// The nested map that a map becomes if its keys are paths.
#[derive(Default)]
struct Tree {
    leaf: Option<Value>,
    below: BTreeMap<String, Tree>,
}

impl Tree {
    fn put(&mut self, parts: &[&str], value: &Value) -> Result<(), ()> {
        match parts {
            [] if self.below.is_empty() => {
                self.leaf = Some(value.clone());
                Ok(())
            }
            [first, rest @ ..] if self.leaf.is_none() => {
                self.below.entry((*first).to_owned()).or_default().put(rest, value)
            }
            _ => Err(()),
        }
    }

    fn value(self) -> Value {
        match self.leaf {
            Some(leaf) => leaf,
            None => map(self.below.into_iter().map(|(key, tree)| (key, tree.value()))),
        }
    }
}

/// Merges two maps, recursively for keys whose values are maps in both.
pub(super) fn merged(into: &Map, from: &Map, replace: bool, depth: usize) -> Result<Map, String> {
    if depth > crate::limits::DEPTH {
        return Err("a value nests too deeply".to_owned());
    }
    let mut out = (**into).clone();
    for (key, value) in from.iter() {
        let value = match (out.get(key), value) {
            (Some(Value::Map(old)), Value::Map(new)) => Value::Map(merged(old, new, replace, depth + 1)?),
            (Some(old), _) if !replace => old.clone(),
            _ => value.clone(),
        };
        out.insert(Arc::clone(key), value);
    }
    Ok(Arc::new(out))
}

/// Returns the keys of a map.
pub(super) fn keys(items: &Map) -> Value {
    Value::List(items.keys().map(text).collect())
}
