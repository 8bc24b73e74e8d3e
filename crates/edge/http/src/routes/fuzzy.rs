//! Search for names by any part of them (docs/reference/http-api.md, section 3.7).

use super::search::{CONTEXTS, context_error, found, may_search, newest};
use crate::blocking;
use crate::body::{bodies, required};
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;
use caravan_server::{Caller, NsCap};
use caravan_state::{Root, Table};
use caravan_types::Namespace;
use caravan_types::job::Job;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

bodies! {
    /// The search request.
    FuzzyBody("FuzzySearchRequest") {
        text: String = "Text";
        context: String = "Context";
    }
}

/// Minimum length of the text, maximum matches collected for one kind of object, and maximum matches returned.
const SHORTEST: usize = 2;
const QUERIED: usize = 20;
const ANSWERED: usize = 100;

/// Kinds without names: they are found by the prefix of their ids.
const BY_ID: [&str; 6] = ["evals", "deployment", "volumes", "scaling_policy", "host_volumes", "vars"];

/// Kinds that are parts of jobs.
const OF_JOBS: [&str; 5] = ["groups", "services", "tasks", "images", "commands"];

/// A match: its position in the name, the name, and the scope of the name.
type Match = (usize, String, Vec<String>);

/// The matches by kind, in the end best first.
#[derive(Default)]
struct Found {
    text: String,
    kinds: BTreeMap<&'static str, Vec<Match>>,
}

impl Found {
    fn offer(&mut self, kind: &'static str, name: &str, scope: impl FnOnce() -> Vec<String>) {
        if let Some(at) = name.to_lowercase().find(&self.text) {
            self.kinds.entry(kind).or_default().push((at, name.to_owned(), scope()));
        }
    }

    /// Adds the matches of each kind, and marks the kinds whose matches were truncated.
    fn answer(self, matches: &mut Map<String, Value>, truncations: &mut Map<String, Value>) {
        for (kind, mut all) in self.kinds {
            // A match near the beginning of a short name is most likely the intended one.
            all.sort_by(|a, b| (a.0, a.1.len(), &a.1, &a.2).cmp(&(b.0, b.1.len(), &b.1, &b.2)));
            if all.len() > ANSWERED {
                truncations.insert(kind.into(), json!(true));
            }
            let of_kind =
                all.into_iter().take(ANSWERED).map(|(_, name, scope)| shown(&name, &scope)).collect();
            matches.insert(kind.into(), of_kind);
        }
    }
}

fn shown(name: &str, scope: &[String]) -> Value {
    match scope {
        [] => json!({"ID": name}),
        scope => json!({"ID": name, "Scope": scope}),
    }
}

pub(crate) async fn route(call: &Call) -> Result<Reply, ApiError> {
    call.put()?;
    let body: FuzzyBody = required(&call.body)?;
    let length = body.text.chars().count();
    if length < SHORTEST {
        let text = format!("fuzzy search query must be at least {SHORTEST} characters, got {length}");
        return Err(ApiError::internal(text));
    }
    let all = matches!(body.context.as_str(), "" | "all");
    let desired: Vec<_> = CONTEXTS.iter().filter(|(name, _)| all || *name == body.context).collect();
    let sub = OF_JOBS.contains(&body.context.as_str()) || body.context == "classes";
    if desired.is_empty() && !sub {
        return Err(context_error(&body.context));
    }
    let namespace = call.list_namespace();
    let allowed = |kind: &str| may_search(&call.caller(), kind, namespace.as_ref());
    let (meta, (matches, truncations)) = blocking::read(call, |reads| {
        let (mut matches, mut truncations) = (Map::new(), Map::new());
        for (kind, _) in desired.iter().filter(|(kind, _)| allowed(kind)) {
            truncations.insert((*kind).into(), json!(false));
            if BY_ID.contains(kind) {
                let ids = by_id(&call.caller(), reads.snapshot(), kind, namespace.as_ref(), &body.text);
                // Variables have no names; only the prefixes of their paths are searched.
                if *kind != "vars" || !ids.is_empty() {
                    truncations.insert((*kind).into(), json!(ids.len() > QUERIED));
                    let ids = ids.iter().take(QUERIED).map(|id| shown(id, &[])).collect();
                    matches.insert((*kind).into(), ids);
                }
            }
        }
        let asks = |kind: &str| {
            allowed(kind)
                && (all || body.context == kind || (body.context == "jobs" && OF_JOBS.contains(&kind)))
        };
        by_name(&call.caller(), reads.snapshot(), &asks, namespace.as_ref(), &body.text)
            .answer(&mut matches, &mut truncations);
        let seen = desired.iter().filter(|(kind, _)| allowed(kind));
        let mut tables: Vec<Table> = seen.filter_map(|(_, table)| *table).collect();
        if sub {
            // Names of these kinds are parts of other tables' rows.
            tables.push(if body.context == "classes" { Table::Nodes } else { Table::Jobs });
        }
        Ok((newest(reads, tables), (matches, truncations)))
    })
    .await?;
    let body = json!({"Matches": matches, "Truncations": truncations});
    Ok(Reply::value(meta.merge_into(body)).meta(meta))
}

/// Searches by id prefix. UUIDs have hexadecimal digits only, so other texts match nothing.
fn by_id(caller: &Caller, root: &Root, kind: &str, namespace: Option<&Namespace>, text: &str) -> Vec<String> {
    let is_hex = text.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    if is_hex || matches!(kind, "volumes" | "vars") {
        found(caller, root, kind, namespace, text)
    } else {
        Vec::new()
    }
}

fn by_name(
    caller: &Caller,
    root: &Root,
    asks: &impl Fn(&str) -> bool,
    namespace: Option<&Namespace>,
    text: &str,
) -> Found {
    let mut found = Found { text: text.to_lowercase(), kinds: BTreeMap::new() };
    let here = |own: &Namespace| {
        namespace.is_none_or(|desired| own == desired) && caller.may(own.as_str(), NsCap::ReadJob)
    };
    if asks("nodes") {
        root.nodes().for_each(|node| found.offer("nodes", &node.name, || vec![node.id.to_string()]));
    }
    if asks("classes") {
        root.nodes().for_each(|node| found.offer("classes", &node.node_class, || vec![node.id.to_string()]));
    }
    if asks("allocs") {
        for alloc in root.allocs().filter(|alloc| here(&alloc.namespace)) {
            let scope = || vec![alloc.namespace.to_string(), alloc.id.to_string()];
            found.offer("allocs", &alloc.name, scope);
        }
    }
    if asks("plugins") {
        root.plugins().for_each(|plugin| found.offer("plugins", plugin.id.as_str(), Vec::new));
    }
    for kind in ["namespaces", "node_pools"] {
        if asks(kind) {
            for name in super::search::found(caller, root, kind, None, "") {
                found.offer(kind, &name, Vec::new);
            }
        }
    }
    for job in root.jobs().filter(|job| here(&job.namespace)) {
        if asks("jobs") {
            found.offer("jobs", &job.name, || vec![job.namespace.to_string(), job.id.to_string()]);
        }
        if OF_JOBS.iter().any(|kind| asks(kind)) {
            parts(&mut found, asks, job);
        }
    }
    found
}

fn parts(found: &mut Found, asks: &impl Fn(&str) -> bool, job: &Job) {
    let of_job = [job.namespace.to_string(), job.id.to_string()];
    let scope = |more: &[&str]| of_job.iter().cloned().chain(more.iter().map(|s| (*s).to_owned())).collect();
    for group in &job.task_groups {
        if asks("groups") {
            found.offer("groups", &group.name, || scope(&[]));
        }
        if asks("services") {
            for service in &group.services {
                found.offer("services", &service.name, || scope(&[&group.name]));
            }
        }
        for task in &group.tasks {
            if asks("tasks") {
                found.offer("tasks", &task.name, || scope(&[&group.name]));
            }
            if asks("services") {
                for service in &task.services {
                    found.offer("services", &service.name, || scope(&[&group.name, &task.name]));
                }
            }
            for (kind, key) in [("images", "image"), ("commands", "command")] {
                if let Some(value) = task.config.get(key).and_then(Value::as_str).filter(|_| asks(kind)) {
                    found.offer(kind, value, || scope(&[&group.name, &task.name]));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_match_comes_first() {
        let mut found = Found { text: "web".into(), kinds: BTreeMap::new() };
        for name in ["my-web", "website", "Web", "other"] {
            found.offer("jobs", name, Vec::new);
        }
        let (mut matches, mut truncations) = (Map::new(), Map::new());
        found.answer(&mut matches, &mut truncations);
        assert_eq!(matches["jobs"], json!([{"ID": "Web"}, {"ID": "website"}, {"ID": "my-web"}]));
        assert!(truncations.is_empty());
    }
}
