//! Writes jobs in the job language, with the tables that parse it, so that the text parses to the same job.

mod defaults;
mod free;
mod text;

use self::defaults::{Defaults, Path};
use crate::job::tables::JOB;
use crate::schema::{Attribute, BlockType, Content, Kind, Repeat, Schema};
use caravan_api as api;
use caravan_types::time::Nanos;
use serde_json::{Map, Value as Json};

/// The reason that a job cannot be written in the job language.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The name of an entry is no valid argument name: letters, digits, `_` and `-`.
    #[error("{place} has an entry {name:?}, which is no name of an argument in the job language")]
    Name {
        /// The block that contains the entry.
        place: &'static str,
        /// The name of the entry.
        name: String,
    },
    /// The job cannot be represented as a JSON object. Contains the reason.
    #[error("the job cannot be written: {0}")]
    Json(String),
}

type Done = Result<(), WriteError>;
type Object = Map<String, Json>;

/// Writes a job. Omits members that only servers set (status, indexes, versions).
///
/// # Errors
/// The job was not written in the language and contains names that the language cannot express.
pub fn job(job: &api::Job) -> Result<String, WriteError> {
    let json = serde_json::to_value(job).map_err(|e| WriteError::Json(e.to_string()))?;
    let Json::Object(object) = json else {
        return Err(WriteError::Json("it is no object".to_owned()));
    };
    let mut writer = Writer { out: String::new(), defaults: Defaults::default() };
    let id = string(&object, "ID");
    writer.out.push_str("job ");
    text::quoted(&mut writer.out, id, text::References::Escaped);
    writer.out.push_str(" {\n");
    writer.body(&JOB, &object, &Path::root())?;
    writer.out.push_str("}\n");
    Ok(crate::fmt::text(&writer.out))
}

fn string<'o>(object: &'o Object, key: &str) -> &'o str {
    object.get(key).and_then(Json::as_str).unwrap_or_default()
}

/// Returns whether a word is valid before an equals sign.
fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

struct Writer {
    out: String,
    defaults: Defaults,
}

impl Writer {
    fn body(&mut self, schema: &'static Schema, object: &Object, path: &Path) -> Done {
        let start = self.out.len();
        for attribute in ordered(schema.attributes, |a| attribute_rank(a.name)) {
            self.attribute(schema, attribute, object, path);
        }
        for block in ordered(schema.blocks, |b| block_rank(b.name)) {
            let before = self.out.len();
            self.blocks(schema, block, object, path)?;
            // Separate different blocks by a blank line.
            if before > start && self.out.len() > before {
                self.out.insert(before, '\n');
            }
        }
        Ok(())
    }

    fn attribute(&mut self, schema: &'static Schema, attribute: &Attribute, object: &Object, path: &Path) {
        let value = object.get(attribute.key).unwrap_or(&Json::Null);
        let implicit = value.is_null() || self.defaults.at(path).get(attribute.key) == Some(value);
        // A required argument may be null, which is the same as unset.
        if implicit && !attribute.required || implied(schema.name, attribute, value, object) {
            return;
        }
        if schema.name == "constraint" && object.get("Operand").is_some_and(|o| o == "distinct_hosts") {
            let plain = string(object, "LTarget").is_empty() && string(object, "RTarget") == "true";
            if plain {
                if attribute.key == "Operand" {
                    self.out.push_str("distinct_hosts = true\n");
                }
                return;
            }
        }
        self.out.push_str(attribute.name);
        self.out.push_str(" = ");
        match (attribute.kind, value) {
            (Kind::Duration, Json::Number(n)) => {
                let duration = Nanos(n.as_i64().unwrap_or_default()).to_string();
                text::quoted(&mut self.out, &duration, text::References::Escaped);
            }
            (_, Json::String(value)) => text::value(&mut self.out, value),
            _ => free::expression(&mut self.out, value),
        }
        self.out.push('\n');
    }

    fn blocks(
        &mut self,
        schema: &'static Schema,
        block: &'static BlockType,
        object: &Object,
        path: &Path,
    ) -> Done {
        match (schema.name, block.name) {
            ("network", "port" | "reserved_ports") => return self.ports(block, object, path),
            ("task", "identity") => {
                // Write the default identity first; parsing distinguishes identities by their names.
                if let Some(Json::Object(identity)) = object.get("Identity") {
                    self.block(block, identity, None, &path.one("Identity"))?;
                }
            }
            ("job", "update") if object.get("Update").is_some_and(is_zero) => return Ok(()),
            _ => {}
        }
        match (block.repeat, object.get(block.key)) {
            (Repeat::One, Some(Json::Object(inner))) => {
                self.block(block, inner, None, &path.one(block.key))?;
            }
            (Repeat::Many | Repeat::Distinct, Some(Json::Array(items))) => {
                let path = path.many(block.key);
                for inner in items.iter().filter_map(Json::as_object) {
                    self.block(block, inner, None, &path)?;
                }
            }
            (Repeat::ByLabel, Some(Json::Object(items))) => {
                let path = path.by_label(block.key);
                for (label, inner) in items {
                    if let Json::Object(inner) = inner {
                        self.block(block, inner, Some(label), &path)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Writes `port` blocks, in which a number makes a port reserved. If a reserved port has no number, writes all
    /// reserved ports as `reserved_ports` blocks instead, in order.
    fn ports(&mut self, block: &'static BlockType, object: &Object, path: &Path) -> Done {
        let list = |key: &str| object.get(key).and_then(Json::as_array).cloned().unwrap_or_default();
        let fixed = |port: &Json| port.get("Value").and_then(Json::as_i64).is_some_and(|n| n > 0);
        let all_fixed = list("ReservedPorts").iter().all(fixed);
        let keys: &[&str] = match (block.name, all_fixed) {
            ("port", true) => &["ReservedPorts", "DynamicPorts"],
            ("port", false) => &["DynamicPorts"],
            (_, true) => &[],
            (_, false) => &["ReservedPorts"],
        };
        for key in keys {
            for port in list(key) {
                if let Json::Object(port) = &port {
                    self.block(block, port, Some(string(port, "Label")), &path.many(key))?;
                }
            }
        }
        Ok(())
    }

    fn block(
        &mut self,
        block: &'static BlockType,
        object: &Object,
        label: Option<&str>,
        path: &Path,
    ) -> Done {
        let odd_names = || object.keys().any(|key| !is_name(key));
        if matches!(block.content, Content::StringsOrAttribute) && odd_names() {
            self.out.push_str(block.name);
            self.out.push_str(" = ");
            free::expression(&mut self.out, &Json::Object(object.clone()));
            self.out.push('\n');
            return Ok(());
        }
        self.out.push_str(block.name);
        if !block.labels.is_empty() {
            self.out.push(' ');
            let label = label.unwrap_or_else(|| own_label(block.name, object));
            text::quoted(&mut self.out, label, text::References::Escaped);
        }
        self.out.push_str(" {");
        let before = self.out.len();
        self.out.push('\n');
        match block.content {
            Content::Schema(schema) => self.body(schema, object, path)?,
            Content::Free => free::body(&mut self.out, block.name, object)?,
            Content::Strings | Content::StringsOrAttribute | Content::StringLists => {
                for (name, value) in object {
                    free::named(&mut self.out, block.name, name)?;
                    match value {
                        Json::String(value) => text::value(&mut self.out, value),
                        value => free::expression(&mut self.out, value),
                    }
                    self.out.push('\n');
                }
            }
        }
        if self.out.len() == before + 1 {
            self.out.pop();
        }
        self.out.push_str("}\n");
        Ok(())
    }
}

/// Returns the label of a block whose JSON has its name inside.
fn own_label<'o>(block: &str, object: &'o Object) -> &'o str {
    match block {
        "target" => string(object, "Value"),
        "scaling" => match string(object, "Type") {
            "vertical_mem" => "mem",
            _ => "cpu",
        },
        _ => string(object, "Name"),
    }
}

/// Returns whether the label or a default implies the argument.
fn implied(schema: &str, attribute: &Attribute, value: &Json, object: &Object) -> bool {
    match (schema, attribute.key) {
        ("job", "ID") | ("target", "Value") | ("scaling", "Type") => true,
        ("job", "Name") => object.get("ID") == Some(value),
        ("constraint" | "affinity", "Operand") => value == "=",
        _ => false,
    }
}

/// Returns whether an `update` block sets nothing, because servers keep only a part of it at the job.
fn is_zero(value: &Json) -> bool {
    value.as_object().is_some_and(|object| {
        object.values().all(|v| matches!(v, Json::Bool(false)) || v == "" || v.as_i64() == Some(0))
    })
}

fn ordered<T, R: Ord>(rows: &'static [T], rank: impl Fn(&T) -> R) -> Vec<&'static T> {
    let mut rows: Vec<&T> = rows.iter().collect();
    rows.sort_by_key(|row| rank(row));
    rows
}

/// Ranks the arguments that readers look for first; the others keep the order of the tables.
fn attribute_rank(name: &str) -> usize {
    const FIRST: [&str; 12] = [
        "name",
        "region",
        "namespace",
        "datacenters",
        "node_pool",
        "type",
        "driver",
        "source",
        "attribute",
        "operator",
        "count",
        "command",
    ];
    FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len())
}

/// Ranks blocks: small blocks first, blocks that contain others last.
fn block_rank(name: &str) -> usize {
    match name {
        "config" => 0,
        "env" => 1,
        "service" => 3,
        "task" => 4,
        "group" => 5,
        _ => 2,
    }
}

#[cfg(test)]
mod tests;
