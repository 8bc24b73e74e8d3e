//! Finds the values of unset arguments. Arguments with these values are not written.

use caravan_api as api;
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;

/// The path of an object, represented as a job that contains nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Path(Vec<(String, Step)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Object,
    Element,
    Entry,
}

impl Path {
    pub(super) fn root() -> Self {
        Self(Vec::new())
    }

    fn step(&self, key: &str, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push((key.to_owned(), step));
        Self(steps)
    }

    /// Returns the path of the object under a key.
    pub(super) fn one(&self, key: &str) -> Self {
        self.step(key, Step::Object)
    }

    /// Returns the path of an element of the array under a key.
    pub(super) fn many(&self, key: &str) -> Self {
        self.step(key, Step::Element)
    }

    /// Returns the path of an entry of the map under a key.
    pub(super) fn by_label(&self, key: &str) -> Self {
        self.step(key, Step::Entry)
    }
}

/// The objects that empty blocks parse to, by path.
#[derive(Debug, Default)]
pub(super) struct Defaults(HashMap<Path, Map<String, Json>>);

impl Defaults {
    /// Returns the object that an empty block at this path parses to.
    pub(super) fn at(&mut self, path: &Path) -> &Map<String, Json> {
        self.0.entry(path.clone()).or_insert_with(|| read(path).unwrap_or_default())
    }
}

fn read(path: &Path) -> Option<Map<String, Json>> {
    let mut whole = json!({});
    for (key, step) in path.0.iter().rev() {
        whole = match step {
            Step::Object => json!({ key.as_str(): whole }),
            Step::Element => json!({ key.as_str(): [whole] }),
            Step::Entry => json!({ key.as_str(): { "x": whole } }),
        };
    }
    let job: api::Job = api::from_value(&whole).ok()?;
    let mut at = serde_json::to_value(job).ok()?;
    for (key, step) in &path.0 {
        let inner = at.get_mut(key.as_str())?;
        at = match step {
            Step::Object => inner.take(),
            Step::Element => inner.get_mut(0)?.take(),
            Step::Entry => inner.get_mut("x")?.take(),
        };
    }
    match at {
        Json::Object(object) => Some(object),
        _ => None,
    }
}
