//! Generates the JSON Schema of jobs in API JSON (draft 2020-12).

use super::{Place, places};
use crate::job::tables::JOB;
use crate::schema::{Attribute, BlockType, Content, Kind, Repeat, Schema};
use caravan_api as api;
use serde_json::{Map, Value as Json, json};

/// Returns a schema of a job, bare or as `{"Job": ...}`.
///
/// Every member may be null. Members that only servers set are allowed but not described. Unknown members are
/// rejected, so that editors can mark them.
#[must_use]
pub fn json_schema() -> Json {
    let all = places();
    let definitions: Map<String, Json> =
        all.iter().map(|place| (name(place, &all), object(place.schema, &all))).collect();
    let job = reference(&JOB, &all);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A job",
        "anyOf": [
            {
                "type": "object",
                "required": ["Job"],
                "properties": {"Job": job},
            },
            job,
        ],
        "$defs": definitions,
    })
}

/// Returns the name of a definition: the block's name, and its parent's if several blocks share the name.
fn name(place: &Place, all: &[Place]) -> String {
    let way = &place.ways[0];
    let last = way.last().copied().unwrap_or_default();
    let same = all.iter().filter(|other| other.ways[0].last() == way.last()).count();
    match way.len().checked_sub(2).and_then(|at| way.get(at)) {
        Some(parent) if same > 1 => format!("{parent}_{last}"),
        _ => last.to_owned(),
    }
}

fn reference(schema: &'static Schema, all: &[Place]) -> Json {
    let found = all.iter().find(|place| std::ptr::eq(place.schema, schema));
    match found {
        Some(place) => json!({"$ref": format!("#/$defs/{}", name(place, all))}),
        None => json!({}),
    }
}

fn object(schema: &'static Schema, all: &[Place]) -> Json {
    let mut properties = Map::new();
    for attribute in schema.attributes.iter().filter(|a| !a.key.starts_with('~')) {
        properties.insert(attribute.key.to_owned(), member(attribute));
    }
    for block in schema.blocks {
        for (key, value) in block_members(schema, block, all) {
            properties.insert(key, value);
        }
    }
    for (key, value) in of_servers(schema) {
        properties.entry(key).or_insert(value);
    }
    json!({"type": ["object", "null"], "properties": properties, "additionalProperties": false})
}

fn member(attribute: &Attribute) -> Json {
    let or_null = |kind: &str| json!({"type": [kind, "null"]});
    let mut out = match attribute.kind {
        Kind::Str if attribute.values.is_empty() => or_null("string"),
        // The enum is for completion only: servers validate values, and some values are templates.
        Kind::Str => json!({"anyOf": [{"enum": attribute.values}, {"type": ["string", "null"]}]}),
        Kind::Bool => or_null("boolean"),
        Kind::Int => or_null("integer"),
        Kind::SmallInt | Kind::LowByte => {
            json!({"type": ["integer", "null"], "minimum": -128, "maximum": 127})
        }
        Kind::Byte => json!({"type": ["integer", "null"], "minimum": 0, "maximum": 255}),
        Kind::Port => json!({"type": ["integer", "null"], "minimum": 0, "maximum": u16::MAX}),
        Kind::Unsigned32 => json!({"type": ["integer", "null"], "minimum": 0, "maximum": u32::MAX}),
        Kind::Unsigned => json!({"type": ["integer", "null"], "minimum": 0}),
        // A text such as "30s", or nanoseconds.
        Kind::Duration => json!({"type": ["integer", "string", "null"]}),
        Kind::Strings => json!({"type": ["array", "null"], "items": {"type": "string"}}),
        Kind::Ports => json!({
            "type": ["array", "null"],
            "items": {"type": "integer", "minimum": 0, "maximum": u16::MAX},
        }),
        Kind::StringMap => strings(),
    };
    if !attribute.doc.is_empty() {
        out["description"] = json!(attribute.doc);
    }
    if attribute.deprecated.is_some() {
        out["deprecated"] = json!(true);
    }
    out
}

fn strings() -> Json {
    json!({"type": ["object", "null"], "additionalProperties": {"type": "string"}})
}

/// Returns the members that a block becomes.
fn block_members(schema: &'static Schema, block: &'static BlockType, all: &[Place]) -> Vec<(String, Json)> {
    let content = match block.content {
        Content::Schema(inner) => reference(inner, all),
        Content::Free => json!({"type": ["object", "null"]}),
        Content::Strings | Content::StringsOrAttribute => strings(),
        Content::StringLists => json!({
            "type": ["object", "null"],
            "additionalProperties": {"type": ["array", "null"], "items": {"type": "string"}},
        }),
    };
    let described = |mut value: Json| {
        if !block.doc.is_empty() {
            value["description"] = json!(block.doc);
        }
        value
    };
    let many = |content: Json| json!({"type": ["array", "null"], "items": content});
    match (schema.name, block.name) {
        ("network", "port") => {
            let ports = |key: &str| (key.to_owned(), described(many(content.clone())));
            return vec![ports("ReservedPorts"), ports("DynamicPorts")];
        }
        ("task", "identity") => {
            let default = ("Identity".to_owned(), described(content.clone()));
            return vec![default, (block.key.to_owned(), described(many(content)))];
        }
        _ if block.key.starts_with('~') => return Vec::new(),
        _ => {}
    }
    let value = match block.repeat {
        Repeat::One => content,
        Repeat::Many | Repeat::Distinct => many(content),
        Repeat::ByLabel => json!({"type": ["object", "null"], "additionalProperties": content}),
    };
    vec![(block.key.to_owned(), described(value))]
}

/// Returns members that no file sets: labels of blocks, and members that only servers write.
fn of_servers(schema: &'static Schema) -> Vec<(String, Json)> {
    let any = |keys: &[&str]| keys.iter().map(|key| ((*key).to_owned(), json!({}))).collect::<Vec<_>>();
    let text = |key: &str| vec![(key.to_owned(), json!({"type": ["string", "null"]}))];
    match schema.name {
        "job" => any(api::Job::FIELDS),
        "scaling" => any(api::ScalingPolicy::FIELDS),
        "periodic" => text("SpecType"),
        "port" => text("Label"),
        "expose" => any(api::Expose::FIELDS),
        "proxy" => any(&["ExposeConfig"]),
        "service" => any(&["Namespace"]),
        "group"
        | "task"
        | "action"
        | "region"
        | "secret"
        | "device"
        | "volume"
        | "envoy_gateway_bind_addresses" => text("Name"),
        _ => Vec::new(),
    }
}
