//! Parses volume specifications (docs/reference/storage.md, section 10): HCL 1 or JSON, for CSI and host volumes.

mod tables;

use crate::ast::{Body, Name};
use crate::diag::{Diagnostic, Diagnostics};
use crate::duration::parse_size;
use crate::eval::{Evaluator, Scope};
use crate::parse::hcl1;
use crate::parse::json::{Member, Members};
use crate::schema::{Decoder, Header, Object, Schema};
use crate::source::{Source, Sources, Span};
pub use caravan_types::host_volume::{HostCapability, HostVolumeSpec};
use caravan_types::volume::VolumeRequestBody;
use serde::Serialize;
use serde_json::{Value as Json, json};

/// The specification of a volume to create or register.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum VolumeSpec {
    /// `type = "csi"`: an entry of `Volumes` in the request.
    Csi(Box<VolumeRequestBody>),
    /// `type = "host"`: the `Volume` of the request.
    Host(Box<HostVolumeSpec>),
}

/// Parses a volume specification.
///
/// # Errors
/// Syntax errors, a missing or unknown type, unknown arguments within blocks, invalid sizes, unknown modes.
pub fn parse(text: &str, filename: &str) -> Result<VolumeSpec, Diagnostics> {
    let mut sources = Sources::default();
    let id = sources.add(Source::new(filename, text));
    let mut items = Vec::new();
    let spec = match hcl1::parse_body(&sources, id) {
        Ok(body) => read(&body, &mut items),
        Err(errors) => {
            items = errors;
            None
        }
    };
    match spec {
        Some(spec) if items.is_empty() => Ok(spec),
        _ => Err(Diagnostics { items, sources }),
    }
}

fn read(body: &Body, items: &mut Vec<Diagnostic>) -> Option<VolumeSpec> {
    let evaluator = Evaluator::literals();
    let member = |schema: &'static Schema| {
        move |name: &str| match schema.blocks.iter().any(|b| same(b.name, name)) {
            true => Member::Block(&[]),
            false => Member::Unknown,
        }
    };
    let mut decoder = Decoder::literal(&evaluator);
    let kinds = decoder.native(body, Members::Table(&member(&tables::CSI))).into_owned();
    let kind = kinds.attributes.iter().find(|a| same("type", &a.name.text));
    let word = kind.and_then(|a| decoder.eval(&a.value, &Scope::default()));
    items.append(&mut decoder.errors);
    let schema: &'static Schema = match &word {
        Some(crate::value::Value::Str(s)) if &**s == "csi" => &tables::CSI,
        Some(crate::value::Value::Str(s)) if &**s == "host" => &tables::HOST,
        Some(other) => {
            let shown = other.to_json().as_str().unwrap_or_default().to_owned();
            items.push(Diagnostic::error(
                "E0501",
                kind.map(|a| a.value.span),
                "Unknown volume type",
                format!("The type {shown:?} is not known; a volume is of type \"csi\" or \"host\"."),
            ));
            return None;
        }
        None => {
            items.push(Diagnostic::error(
                "E0501",
                body.span.at_start(),
                "Missing volume type",
                "The argument \"type\" is required; a volume is of type \"csi\" or \"host\".",
            ));
            return None;
        }
    };
    let read = decoder.native(body, Members::Table(&member(schema))).into_owned();
    let root = normalized(read, schema);
    let header = Header { span: body.span.at_start(), labels: &[], arguments: &[] };
    let mut object = decoder.body(&root, schema, &header, &Scope::default());
    items.append(&mut decoder.errors);
    sizes(&mut object, &root, items);
    let at = |key: &str| place(&root, schema, key);
    if schema.name == tables::HOST.name {
        return typed(object, &at, items).map(|spec| VolumeSpec::Host(Box::new(spec)));
    }
    typed(object, &at, items).map(|spec| VolumeSpec::Csi(Box::new(spec)))
}

/// Normalizes names at the root, which ignore case and underscores, and drops unknown ones
/// (docs/reference/storage.md, section 10).
fn normalized(mut body: Body, schema: &'static Schema) -> Body {
    let names: Vec<&'static str> =
        schema.attributes.iter().map(|a| a.name).chain(schema.blocks.iter().map(|b| b.name)).collect();
    let fix = |name: &mut Name| match names.iter().find(|n| same(n, &name.text)) {
        Some(known) => {
            name.text = (*known).to_owned();
            true
        }
        None => false,
    };
    body.attributes.retain_mut(|a| fix(&mut a.name));
    body.blocks.retain_mut(|b| fix(&mut b.kind));
    body
}

fn same(known: &str, supplied: &str) -> bool {
    let plain = |s: &str| s.replace('_', "").to_ascii_lowercase();
    plain(known) == plain(supplied)
}

/// Converts sizes with units to bytes.
fn sizes(object: &mut Object, body: &Body, items: &mut Vec<Diagnostic>) {
    for (name, from, to) in tables::SIZES {
        let Some(value) = object.remove(from) else { continue };
        match parse_size(value.as_str().unwrap_or_default()) {
            Ok(bytes) => {
                for key in to {
                    object.insert((*key).to_owned(), json!(bytes));
                }
            }
            Err(e) => {
                let span = body.attributes.iter().find(|a| a.name.text == name).map(|a| a.value.span);
                items.push(Diagnostic::error(
                    "E0502",
                    span,
                    format!("Invalid {name}"),
                    format!("could not parse value as bytes: {e}."),
                ));
            }
        }
    }
}

/// Returns the range of the argument or block with a JSON key.
fn place(body: &Body, schema: &'static Schema, key: &str) -> Option<Span> {
    let name = schema.attributes.iter().find(|a| a.key == key).map(|a| a.name);
    let name = name.or_else(|| schema.blocks.iter().find(|b| b.key == key).map(|b| b.name))?;
    let attribute = body.attributes.iter().find(|a| a.name.text == name).map(|a| a.value.span);
    attribute.or_else(|| body.blocks.iter().find(|b| b.kind.text == name).map(|b| b.kind.span))
}

/// Converts the object to the request's type, key by key, so that a wrong value has a source range.
fn typed<T: serde::de::DeserializeOwned>(
    object: Object,
    at: &dyn Fn(&str) -> Option<Span>,
    items: &mut Vec<Diagnostic>,
) -> Option<T> {
    let before = items.len();
    for (key, value) in &object {
        let alone: Object = [(key.clone(), value.clone())].into_iter().collect();
        if let Err(e) = serde_json::from_value::<T>(Json::Object(alone)) {
            items.push(Diagnostic::error("E0503", at(key), "Invalid value", format!("{e}.")));
        }
    }
    if items.len() > before {
        return None;
    }
    match serde_json::from_value(Json::Object(object)) {
        Ok(spec) => Some(spec),
        Err(e) => {
            items.push(Diagnostic::error("E0503", None, "Invalid volume specification", format!("{e}.")));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csi_volume() {
        let text = r#"
# csi volume, create
type         = "csi"
id           = "orders-db[0]"
Name         = "orders-db-0"
PluginID     = "blockstore"
unknown      = 1
capacity_min = "2GiB"
capacity_max = "8GiB"
capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}
capability { access_mode = "single-node-reader-only" attachment_mode = "file-system" }
mount_options { fs_type = "xfs" mount_flags = ["noatime"] }
topology_request {
  required  { topology { segments { zone = "z1" } } }
  preferred { topology { segments { zone = "z1" rack = "r7" } } }
}
secrets    { token = "not-a-real-token" }
parameters = { tier  = "fast" }
"#;
        let json = serde_json::to_value(parse(text, "v.hcl").unwrap()).unwrap();
        assert_eq!(json["ID"], "orders-db[0]");
        assert_eq!(json["PluginID"], "blockstore");
        assert_eq!(json["RequestedCapacityMin"], 2_147_483_648_i64);
        assert_eq!(json["RequestedCapacityMax"], 8_589_934_592_i64);
        assert_eq!(
            json["RequestedCapabilities"],
            json!([
                {"AttachmentMode": "file-system", "AccessMode": "single-node-writer"},
                {"AttachmentMode": "file-system", "AccessMode": "single-node-reader-only"},
            ])
        );
        assert_eq!(json["MountOptions"], json!({"FSType": "xfs", "MountFlags": ["noatime"]}));
        assert_eq!(
            json["RequestedTopologies"],
            json!({
                "Required": [{"Segments": {"zone": "z1"}}],
                "Preferred": [{"Segments": {"rack": "r7", "zone": "z1"}}],
            })
        );
        assert_eq!(json["Secrets"], json!({"token": "not-a-real-token"}));
        assert_eq!(json["Parameters"], json!({"tier": "fast"}));
        assert_eq!(json["ExternalID"], "");
    }

    #[test]
    fn storage_is_shared_where_the_file_says_so() {
        let shared = |line: &str| {
            let spec = parse(&format!("type = \"csi\"\nid = \"a\"\n{line}\n"), "v.hcl");
            spec.map(|spec| serde_json::to_value(spec).unwrap()["CaravanSharedStorage"].clone())
        };
        assert_eq!(shared("shared_storage = true").unwrap(), true);
        assert_eq!(shared("SharedStorage = true").unwrap(), true);
        assert_eq!(shared("shared_storage = false").unwrap(), Json::Null);
        assert_eq!(shared("").unwrap(), Json::Null);
        let wrong = shared("shared_storage = \"perhaps\"").unwrap_err().to_string();
        assert!(wrong.starts_with("v.hcl:3,"), "{wrong}");
        let json = r#"{"type": "csi", "id": "a", "shared_storage": true}"#;
        let spec = serde_json::to_value(parse(json, "v.json").unwrap()).unwrap();
        assert_eq!(spec["CaravanSharedStorage"], true);
    }

    #[test]
    fn csi_volume_in_json() {
        let text = r#"{"type": "csi", "id": "a", "plugin_id": "p", "capacity_min": "1G",
            "capability": [{"access_mode": "multi-node-multi-writer", "attachment_mode": "block-device"}],
            "parameters": {"odd": "${not.a.template}"}}"#;
        let json = serde_json::to_value(parse(text, "v.json").unwrap()).unwrap();
        assert_eq!(json["RequestedCapacityMin"], 1_000_000_000);
        assert_eq!(json["RequestedCapabilities"][0]["AccessMode"], "multi-node-multi-writer");
        assert_eq!(json["Parameters"]["odd"], "${not.a.template}");
    }

    #[test]
    fn host_volume() {
        let text = r#"
type      = "host"
name      = "scratch"
plugin_id = "mkdir"
node_pool = "default"
capacity  = "10MB"
capability {
  access_mode     = "single-node-single-writer"
  attachment_mode = "file-system"
}
constraint {
  attribute = "${attr.kernel.name}"
  value     = "linux"
}
constraint { attribute = "${attr.cpu.arch}" regexp = "amd|arm" }
parameters { mode = "0750" }
"#;
        let json = serde_json::to_value(parse(text, "h.hcl").unwrap()).unwrap();
        assert_eq!(json["Name"], "scratch");
        assert_eq!(json["CapacityBytes"], 10_000_000);
        assert_eq!(
            json["Constraints"][0],
            json!({"LTarget": "${attr.kernel.name}", "RTarget": "linux", "Operand": "="})
        );
        assert_eq!(json["Constraints"][1]["Operand"], "regexp");
        assert_eq!(json["Parameters"], json!({"mode": "0750"}));
    }

    #[test]
    fn mistakes_name_their_place() {
        let error = |text: &str| parse(text, "v.hcl").unwrap_err().to_string();
        assert!(
            error("type = \"csi\"\ncapacity_min = \"lots\"\n")
                .starts_with("v.hcl:2,16-22: Invalid capacity_min; could not parse value as bytes")
        );
        assert!(error("type = \"nfs\"").contains("Unknown volume type"));
        assert!(error("id = \"a\"").contains("Missing volume type"));
        assert!(
            error("type = \"csi\"\ncapability {\n  acces_mode = \"x\"\n}")
                .contains("v.hcl:3,3-13: Unsupported argument")
        );
        let wrong = error("type = \"csi\"\ncapability {\n  access_mode = \"both\"\n}");
        assert!(wrong.contains("unknown volume access mode: both"), "{wrong}");
        assert!(error("type = \"csi").contains("not closed"));
    }
}
