//! Functions that read data from outside the template: environment, files, variables and services. Also `scratch`,
//! the storage of a template during one render.

use super::{Function, f, v};
use crate::Need;
use crate::session::{Answer, Session};
use crate::value::{Map, as_count, as_int, as_map, as_text, map, of_stub, shown, text, texts};
use caravan_types::Namespace;
use caravan_types::lookup::{Found, Lookup, VariableFound};
use caravan_types::service::ServiceRegistration;
use gotmpl::Value;
use sha2::{Digest, Sha256};
use std::sync::Arc;

pub(super) const TABLE: &[Function] = &[
    f("env", 1, |s, a| Ok(text(s.inputs.env.get(as_text(&a[0])?).map_or("", String::as_str)))),
    f("mustEnv", 1, |s, a| {
        let name = as_text(&a[0])?;
        let value = s.inputs.env.get(name);
        value.map(text).ok_or_else(|| format!("the environment has no variable \"{name}\""))
    }),
    f("envOrDefault", 2, |s, a| {
        let value = s.inputs.env.get(as_text(&a[0])?).filter(|value| !value.is_empty());
        Ok(value.map_or_else(|| a[1].clone(), text))
    }),
    f("file", 1, |s, a| Ok(text(s.file(as_text(&a[0])?).unwrap_or_default()))),
    f("nomadVar", 1, |s, a| variable(s, as_text(&a[0])?)),
    f("nomadVarExists", 1, |s, a| {
        let lookup = variable_lookup(s, as_text(&a[0])?)?;
        Ok(Value::Bool(matches!(s.look_up(lookup), Some(Found::Variable(Some(_))))))
    }),
    v("nomadVarList", 0, 1, |s, a| Ok(list(s, a)?.1)),
    v("nomadVarListSafe", 0, 1, |s, a| {
        // Unlike `nomadVarList`, this function waits until the list is not empty.
        let (lookup, found) = list(s, a)?;
        if matches!(&found, Value::List(items) if items.is_empty()) {
            s.need(Need::Lookup(lookup), true);
        }
        Ok(found)
    }),
    v("nomadService", 1, 3, service),
    v("nomadServices", 0, 1, |s, a| {
        if let Some(place) = a.first() {
            home(s, as_text(place)?.trim_start_matches('@'))?;
        }
        let lookup = Lookup::Services { namespace: s.inputs.namespace.clone() };
        let Some(Found::Services(names)) = s.look_up(lookup) else { return Ok(texts::<&str>([])) };
        let of = |stub: &caravan_types::lookup::ServiceStub| {
            map([("Name", text(&stub.name)), ("Tags", texts(&stub.tags))])
        };
        Ok(Value::List(names.iter().map(of).collect()))
    }),
    f("\u{0}scratchKey", 1, |s, a| {
        let key = as_text(&a[0])?;
        Ok(Value::Bool(s.scratch(|kept| kept.contains_key(key))))
    }),
    f("\u{0}scratchGet", 1, |s, a| {
        let key = as_text(&a[0])?;
        Ok(s.scratch(|kept| kept.get(key).cloned()).unwrap_or(Value::Nil))
    }),
    f("\u{0}scratchSet", 2, |s, a| keep(s, &a[0], a[1].clone(), true)),
    f("\u{0}scratchSetX", 2, |s, a| keep(s, &a[0], a[1].clone(), false)),
    f("\u{0}scratchMapSet", 3, |s, a| keep_in_map(s, a, true)),
    f("\u{0}scratchMapSetX", 3, |s, a| keep_in_map(s, a, false)),
    f("\u{0}scratchMapValues", 1, |s, a| {
        let key = as_text(&a[0])?;
        let kept = s.scratch(|kept| kept.get(key).cloned()).unwrap_or(Value::Nil);
        Ok(Value::List(as_map(&kept)?.values().cloned().collect()))
    }),
];

/// The methods of `scratch` and their functions.
pub(super) const SCRATCH: [(&str, &str); 7] = [
    ("Key", "\u{0}scratchKey"),
    ("Get", "\u{0}scratchGet"),
    ("Set", "\u{0}scratchSet"),
    ("SetX", "\u{0}scratchSetX"),
    ("MapSet", "\u{0}scratchMapSet"),
    ("MapSetX", "\u{0}scratchMapSetX"),
    ("MapValues", "\u{0}scratchMapValues"),
];

/// The maximum number of values in `scratch`.
const KEPT: usize = 10_000;

fn keep(session: &Session, key: &Value, value: Value, replace: bool) -> Answer {
    let key: Arc<str> = Arc::from(as_text(key)?);
    session.scratch(|kept| {
        if kept.len() >= KEPT && !kept.contains_key(&key) {
            return Err("too much is kept".to_owned());
        }
        if replace || !kept.contains_key(&key) {
            kept.insert(key, value);
        }
        Ok(text(""))
    })
}

fn keep_in_map(session: &Session, args: &[Value], replace: bool) -> Answer {
    let (key, inner) = (as_text(&args[0])?, Arc::<str>::from(as_text(&args[1])?));
    let kept = session.scratch(|kept| kept.get(key).cloned()).unwrap_or(Value::Nil);
    let mut items = (*as_map(&kept)?).clone();
    if replace || !items.contains_key(&inner) {
        items.insert(inner, args[2].clone());
    }
    let whole = Value::Map(Arc::new(items));
    session.measure(&whole)?;
    keep(session, &args[0], whole, true)
}

/// Parses `namespace.region`, where both parts are optional.
fn home(session: &Session, place: &str) -> Result<Namespace, String> {
    let (namespace, region) = place.split_once('.').unwrap_or((place, ""));
    if !region.is_empty() && region != session.inputs.region {
        return Err(format!("region \"{region}\" cannot be read from region \"{}\"", session.inputs.region));
    }
    Ok(if namespace.is_empty() { session.inputs.namespace.clone() } else { namespace.into() })
}

/// Parses `path@namespace.region`.
fn path(session: &Session, supplied: &str) -> Result<(Namespace, String), String> {
    let (path, place) = supplied.split_once('@').unwrap_or((supplied, ""));
    Ok((home(session, place)?, path.to_owned()))
}

fn variable_lookup(session: &Session, supplied: &str) -> Result<Lookup, String> {
    let (namespace, path) = path(session, supplied)?;
    caravan_types::variable::check_path(&path)?;
    Ok(Lookup::Variable { namespace, path })
}

fn variable(session: &Session, supplied: &str) -> Answer {
    let lookup = variable_lookup(session, supplied)?;
    let VariableFound { stub, items } = match session.look_up(lookup.clone()) {
        Some(Found::Variable(Some(found))) => *found,
        Some(_) => {
            // The variable does not exist. The render waits until it exists.
            session.need(Need::Lookup(lookup), true);
            VariableFound::default()
        }
        None => VariableFound::default(),
    };
    let items = items.expose().iter().map(|(key, value)| (Arc::from(key.as_str()), text(value)));
    let items: Map = Arc::new(items.collect());
    Ok(session.remember(items, stub))
}

fn list(session: &Session, args: &[Value]) -> Result<(Lookup, Value), String> {
    let (namespace, prefix) = path(session, args.first().map_or(Ok(""), as_text)?)?;
    let lookup = Lookup::Variables { namespace, prefix };
    let stubs = match session.look_up(lookup.clone()) {
        Some(Found::Variables(stubs)) => stubs,
        _ => Vec::new(),
    };
    Ok((lookup, Value::List(stubs.iter().map(of_stub).collect())))
}

/// Lists the instances of `[tag.]name[@region]`. With a number and a key before the name, returns that many
/// instances, as stable as possible for the same key.
fn service(session: &Session, args: &[Value]) -> Answer {
    let (choice, supplied) = match args {
        [name] => (None, name),
        [count, key, name] if as_int(count)? > 0 => (Some((as_count(count)?, shown(key))), name),
        [_, _, _] => return Err("the number of services must be positive".to_owned()),
        _ => return Err("a name, or a number, a key and a name are needed".to_owned()),
    };
    let (name, region) = as_text(supplied)?.split_once('@').unwrap_or((as_text(supplied)?, ""));
    home(session, &format!(".{region}"))?;
    let (tag, name) = name.rsplit_once('.').map_or((None, name), |(tag, name)| (Some(tag), name));
    if name.is_empty() {
        return Err("the name of a service is empty".to_owned());
    }
    let lookup = Lookup::Service { namespace: session.inputs.namespace.clone(), name: name.to_owned() };
    let Some(Found::Service(mut rows)) = session.look_up(lookup) else { return Ok(texts::<&str>([])) };
    rows.retain(|row| tag.is_none_or(|tag| row.tags.iter().any(|has| has == tag)));
    if let Some((count, key)) = choice {
        rows = chosen(rows, count, &key);
    }
    Ok(Value::List(rows.iter().map(of_registration).collect()))
}

fn of_registration(row: &ServiceRegistration) -> Value {
    map([
        ("ID", text(row.id.as_str())),
        ("Name", text(&row.service_name)),
        ("Namespace", text(row.namespace.as_str())),
        ("Node", text(row.node_id.as_str())),
        ("NodeID", text(row.node_id.as_str())),
        ("Datacenter", text(&row.datacenter)),
        ("DC", text(&row.datacenter)),
        ("JobID", text(row.job_id.as_str())),
        ("AllocID", text(row.alloc_id.as_str())),
        ("Tags", texts(&row.tags)),
        ("Address", text(&row.address)),
        ("Port", Value::Int(row.port)),
    ])
}

/// Selects instances by rendezvous hashing, like the HTTP API: a key receives the same instances as long as they
/// exist.
fn chosen(rows: Vec<ServiceRegistration>, count: usize, key: &str) -> Vec<ServiceRegistration> {
    let weight = |row: &ServiceRegistration| {
        let mut hash = Sha256::new();
        hash.update(key.as_bytes());
        hash.update([0]);
        hash.update(row.id.as_str().as_bytes());
        <[u8; 32]>::from(hash.finalize())
    };
    let mut weighed: Vec<_> = rows.into_iter().map(|row| (weight(&row), row)).collect();
    weighed.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    weighed.truncate(count);
    weighed.into_iter().map(|(_, row)| row).collect()
}
