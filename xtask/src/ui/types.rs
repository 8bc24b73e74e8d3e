//! The types of the API for the web page: `ui/src/api/generated.ts`, made from the Rust types.

use super::trace::{Shape, Type, Types};
use anyhow::{Context as _, ensure};
use caravan_sdk as sdk;
use caravan_types as types;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const HEAD: &str = "\
// The types of the API, made from the Rust types by `cargo xtask ui`. Changes belong there, and in xtask/src/ui/types.rs,
// which lists the types.
";

/// The default, as JSON, of each type that servers write, by the name of the type.
type Defaults = BTreeMap<&'static str, Value>;

/// Adds types that servers write. Fields that a default omits may be absent.
macro_rules! written {
    ($types:ident, $defaults:ident, $($type:ty),* $(,)?) => {
        $(add_written::<$type>(&$types, &mut $defaults)?;)*
    };
}

/// Adds types that `caravan-sdk` only reads: every field is present.
macro_rules! read {
    ($types:ident, $($type:ty),* $(,)?) => {
        $($types.trace::<$type>()?;)*
    };
}

fn add_written<T: Default + Serialize + for<'de> Deserialize<'de>>(
    all: &Types,
    defaults: &mut Defaults,
) -> anyhow::Result<()> {
    let name = all.trace::<T>()?;
    defaults.insert(name, serde_json::to_value(T::default())?);
    Ok(())
}

/// Returns the file.
pub(super) fn file() -> anyhow::Result<String> {
    let all = Types::default();
    let mut defaults = Defaults::new();
    // Types within these are in the file too. They are listed here if their JSON omits fields.
    written!(
        all,
        defaults,
        types::acl::Token,
        types::acl::TokenStub,
        types::alloc::AllocDeploymentStatus,
        types::alloc::AllocListStub,
        types::alloc::AllocatedResources,
        types::alloc::Allocation,
        types::alloc::TaskEvent,
        types::alloc::TaskState,
        types::deployment::Deployment,
        types::deployment::DeploymentState,
        types::eval::Evaluation,
        types::host_volume::HostVolume,
        types::host_volume::HostVolumeStub,
        types::job::Job,
        types::job::JobListStub,
        types::job::JobSummary,
        types::job::Resources,
        types::job::Task,
        types::job::TaskGroup,
        types::job::VolumeRequest,
        types::eval::AllocMetric,
        types::node::DriverInfo,
        types::node::HostVolumeInfo,
        types::node::Node,
        types::node::NodeEvent,
        types::node::NodeListStub,
        types::node_pool::NodePool,
        types::plugin::CsiInfo,
        types::plugin::Plugin,
        types::plugin::PluginListStub,
        types::service::ServiceRegistration,
        types::variable::VariableMetadata,
        types::volume::ClaimExplain,
        types::volume::CsiVolume,
        types::volume::CsiVolumeStub,
        types::volume::VolumeExplain,
        sdk::Submission,
    );
    read!(
        all,
        sdk::Capabilities,
        sdk::ClaimRow,
        sdk::HostVolumeExplain,
        sdk::HostVolumeRow,
        sdk::JobStatusRow,
        sdk::NodeColumns,
        sdk::Overview,
        sdk::PluginExplain,
        sdk::ServerList,
        sdk::StorageMap,
        sdk::WhatIf,
    );
    let (all, renamed) = all.into_inner();
    let name = |found: &'static str| renamed.get(found).copied().unwrap_or(found);
    let mut sorted: Vec<(&str, &str, &Type)> =
        all.iter().map(|(found, kind)| (name(found), *found, kind)).collect();
    sorted.sort_by_key(|(name, ..)| *name);
    let mut out = HEAD.to_owned();
    for (own, found, kind) in sorted {
        write(&mut out, own, kind, defaults.get(found), &name);
    }
    ensure!(!all.is_empty(), "no types");
    Ok(out)
}

/// Adds a type to the file.
fn write(
    out: &mut String,
    own: &str,
    kind: &Type,
    default: Option<&Value>,
    name: &impl Fn(&'static str) -> &'static str,
) {
    // Writing to a string cannot fail.
    match kind {
        Type::Words(words) => {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            let _ = writeln!(out, "\nexport type {own} = {};", words.join(" | "));
        }
        Type::Struct(fields) => {
            let _ = writeln!(out, "\nexport interface {own} {{");
            for (field, shape) in fields {
                let written = default.map(|default| default.get(field));
                let _ = writeln!(out, "  {};", member(field, shape, written, name));
            }
            out.push_str("}\n");
        }
    }
}

/// Returns the line of a field. `written` is the value in the default of a type that servers write: `Some(None)`
/// means that the field is omitted there.
fn member(
    name: &str,
    shape: &Shape,
    written: Option<Option<&Value>>,
    named: &impl Fn(&'static str) -> &'static str,
) -> String {
    let key = match name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        true => name.to_owned(),
        false => quoted(name),
    };
    match (written, shape) {
        (Some(None), _) => format!("{key}?: {}", text(shape, named)),
        // Readers accept null where servers never write it.
        (Some(Some(value)), Shape::Nullable(inner)) if !value.is_null() => {
            format!("{key}: {}", text(inner, named))
        }
        _ => format!("{key}: {}", text(shape, named)),
    }
}

/// Returns a shape in TypeScript.
fn text(shape: &Shape, named: &impl Fn(&'static str) -> &'static str) -> String {
    match shape {
        Shape::Unknown => "unknown".to_owned(),
        Shape::Bool => "boolean".to_owned(),
        Shape::Number => "number".to_owned(),
        Shape::Text => "string".to_owned(),
        Shape::Nullable(inner) => format!("{} | null", text(inner, named)),
        Shape::List(inner) => match **inner {
            Shape::Nullable(_) => format!("({})[]", text(inner, named)),
            _ => format!("{}[]", text(inner, named)),
        },
        Shape::Map(inner) => format!("Record<string, {}>", text(inner, named)),
        Shape::Tuple(items) => {
            format!("[{}]", items.iter().map(|item| text(item, named)).collect::<Vec<_>>().join(", "))
        }
        Shape::Named(name) => named(name).to_owned(),
    }
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Writes the file, or compares it with the checked-in one.
pub(super) fn update(path: &std::path::Path, check: bool) -> anyhow::Result<()> {
    let new = file()?;
    if !check {
        return std::fs::write(path, new).with_context(|| format!("writing {}", path.display()));
    }
    let kept = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    ensure!(kept == new, "{} differs from the Rust types: run `cargo xtask ui`", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_become_members() {
        let list = Shape::Nullable(Box::new(Shape::List(Box::new(Shape::Named("Port")))));
        let same = |name| name;
        assert_eq!(member("Ports", &list, Some(Some(&json!(null))), &same), "Ports: Port[] | null");
        assert_eq!(member("Ports", &list, Some(Some(&json!([]))), &same), "Ports: Port[]");
        assert_eq!(member("Ports", &list, Some(None), &same), "Ports?: Port[] | null");
        assert_eq!(member("Ports", &list, None, &|_| "Gate"), "Ports: Gate[] | null");
        let map = Shape::Map(Box::new(Shape::Nullable(Box::new(Shape::Number))));
        assert_eq!(member("a-b", &map, None, &same), "'a-b': Record<string, number | null>");
    }

    #[test]
    fn the_types_of_the_page_can_be_written() {
        let file = file().unwrap();
        assert!(file.contains("export interface Allocation {"), "{file}");
        assert!(file.contains("export type JobStatus = 'pending' | 'running' | 'dead';"), "{file}");
    }
}
