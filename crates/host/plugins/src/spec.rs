//! Schemas as plugins send them, for [`caravan_schema`].

use crate::PluginError;
use caravan_proto::plugins::hclspec::{self, spec::Block};
use caravan_schema::{MAX_DEPTH, RawSpec, Spec, Value, decode};

/// Reads and checks a schema. `what` names the configuration in errors.
pub(crate) fn read(what: &'static str, spec: hclspec::Spec) -> Result<Spec, PluginError> {
    let invalid = |reason: String| PluginError::Schema { what, reason };
    let raw =
        convert(spec, 0).ok_or_else(|| invalid(format!("it is nested deeper than {MAX_DEPTH} levels")))?;
    Spec::new(&raw).map_err(|error| invalid(error.to_string()))
}

/// Decodes a configuration. A plugin without schema accepts only an empty one.
pub(crate) fn configure(spec: Option<&Spec>, config: &serde_json::Value) -> Result<Value, PluginError> {
    let Some(spec) = spec else {
        let is_empty = config.is_null() || config.as_object().is_some_and(serde_json::Map::is_empty);
        return if is_empty { Ok(Value::Null) } else { Err(PluginError::NoConfig) };
    };
    decode(spec, config).map_err(PluginError::Misfit)
}

fn convert(spec: hclspec::Spec, depth: usize) -> Option<RawSpec> {
    if depth > MAX_DEPTH {
        return None;
    }
    let nested = |spec: Option<Box<hclspec::Spec>>| -> Option<Box<RawSpec>> {
        Some(Box::new(match spec {
            Some(spec) => convert(*spec, depth + 1)?,
            None => RawSpec::Missing,
        }))
    };
    Some(match spec.block {
        None => RawSpec::Missing,
        Some(Block::Object(object)) => RawSpec::Object(
            object
                .attributes
                .into_iter()
                .map(|(key, spec)| Some((key, convert(spec, depth + 1)?)))
                .collect::<Option<_>>()?,
        ),
        Some(Block::Array(array)) => RawSpec::Array(
            array.values.into_iter().map(|spec| convert(spec, depth + 1)).collect::<Option<_>>()?,
        ),
        Some(Block::Attr(attr)) => {
            RawSpec::Attr { name: attr.name, ty: attr.r#type, required: attr.required }
        }
        Some(Block::BlockValue(block)) => {
            RawSpec::Block { name: block.name, required: block.required, nested: nested(block.nested)? }
        }
        Some(Block::BlockAttrs(block)) => {
            RawSpec::BlockAttrs { name: block.name, ty: block.r#type, required: block.required }
        }
        Some(Block::BlockList(block)) => RawSpec::BlockList {
            name: block.name,
            min: block.min_items,
            max: block.max_items,
            nested: nested(block.nested)?,
        },
        Some(Block::BlockSet(block)) => RawSpec::BlockSet {
            name: block.name,
            min: block.min_items,
            max: block.max_items,
            nested: nested(block.nested)?,
        },
        Some(Block::BlockMap(block)) => {
            RawSpec::BlockMap { name: block.name, labels: block.labels, nested: nested(block.nested)? }
        }
        Some(Block::Default(default)) => {
            RawSpec::Default { primary: nested(default.primary)?, default: nested(default.default)? }
        }
        Some(Block::Literal(literal)) => RawSpec::Literal(literal.value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(block: Block) -> hclspec::Spec {
        hclspec::Spec { block: Some(block) }
    }

    fn attr(name: &str, ty: &str, required: bool) -> hclspec::Spec {
        spec(Block::Attr(hclspec::Attr { name: name.into(), r#type: ty.into(), required }))
    }

    #[test]
    fn a_schema_is_read_and_its_defaults_apply() {
        let literal = spec(Block::Literal(hclspec::Literal { value: "\"5m\"".into() }));
        let interval = spec(Block::Default(Box::new(hclspec::Default {
            primary: Some(Box::new(attr("interval", "string", false))),
            default: Some(Box::new(literal)),
        })));
        let object = hclspec::Object {
            attributes: [("interval".into(), interval), ("dir".into(), attr("dir", "string", true))].into(),
        };
        let schema = read("the plugin", spec(Block::Object(object))).expect("a schema");
        let value = configure(Some(&schema), &json!({ "dir": "/d" })).expect("a configuration");
        assert_eq!(value.to_json(), json!({ "dir": "/d", "interval": "5m" }));
        let error = configure(Some(&schema), &json!({ "dirs": 1 })).expect_err("a wrong key").to_string();
        assert!(error.contains("dirs") && error.contains("dir"), "{error}");
    }

    #[test]
    fn a_schema_without_end_is_refused() {
        let mut deep = attr("a", "string", false);
        for _ in 0..200 {
            deep = spec(Block::Array(hclspec::Array { values: vec![deep] }));
        }
        assert!(matches!(read("the plugin", deep), Err(PluginError::Schema { .. })));
    }

    #[test]
    fn a_plugin_without_schema_accepts_only_an_empty_configuration() {
        assert!(configure(None, &json!({})).is_ok());
        assert!(configure(None, &json!({ "a": 1 })).is_err());
    }
}
