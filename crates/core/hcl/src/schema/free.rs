//! Decodes free-form bodies (docs/reference/jobspec.md, section 3). A nested block becomes an array of objects, and
//! so does an argument that the native notation writes as an object.

use super::decode::{Decoder, Object};
use crate::ast::{Block, Body, Expr, ExprKind};
use crate::diag::Diagnostic;
use crate::eval::Scope;
use crate::parse::MAX_DEPTH;
use crate::parse::json::Members;
use crate::value::{MapKind, Type, Value};
use serde_json::Value as Json;

pub(super) fn body(decoder: &mut Decoder<'_>, body: &Body, scope: &Scope) -> Object {
    nested(decoder, body, scope, 0)
}

fn nested(decoder: &mut Decoder<'_>, body: &Body, scope: &Scope, depth: usize) -> Object {
    let mut out = Object::new();
    let is_native = body.json.is_none();
    let body = decoder.native(body, Members::Arguments);
    for attribute in &body.attributes {
        let Some(value) = decoder.eval(&attribute.value, scope) else { continue };
        // As in Nomad, null at the top level deletes the key; at deeper levels, null is a value.
        if value.is_null() && depth == 0 {
            continue;
        }
        let Some(json) = plain(decoder, &attribute.value, &value) else { continue };
        let wrapped = is_native && matches!(attribute.value.kind, ExprKind::Object(_));
        out.insert(attribute.name.text.clone(), if wrapped { Json::Array(vec![json]) } else { json });
    }
    let mut blocks = Object::new();
    for block in &body.blocks {
        if depth > MAX_DEPTH {
            decoder.report(Diagnostic::error(
                "E0109",
                block.kind.span,
                "Nesting too deep",
                "The blocks are nested too deeply.",
            ));
            return out;
        }
        if let Err(error) = decoder.evaluator.charge_block(block.kind.span) {
            decoder.report(*error);
            return out;
        }
        let value = labelled(decoder, block, scope, depth);
        if let Json::Array(all) =
            blocks.entry(block.kind.text.as_str()).or_insert_with(|| Json::Array(Vec::new()))
        {
            all.push(value);
        }
    }
    // A block replaces an argument of the same name.
    out.extend(blocks);
    out
}

/// Wraps the body in objects whose keys are the labels.
fn labelled(decoder: &mut Decoder<'_>, block: &Block, scope: &Scope, depth: usize) -> Json {
    let inner = Json::Object(nested(decoder, &block.body, scope, depth + 1));
    block.labels.iter().rev().fold(inner, |inner, label| {
        let mut outer = Object::new();
        outer.insert(label.text.clone(), Json::Array(vec![inner]));
        Json::Object(outer)
    })
}

/// Returns the value as drivers receive it, or `None` after recording an error.
fn plain(decoder: &mut Decoder<'_>, expr: &Expr, value: &Value) -> Option<Json> {
    match value {
        Value::Seq(.., items) => items.iter().map(|item| plain(decoder, expr, item)).collect(),
        // Like a list or a set of maps, a map of maps becomes an array of them.
        Value::Map(MapKind::Map, Type::Map(_) | Type::Object(_), items) => {
            items.values().map(|item| plain(decoder, expr, item)).collect()
        }
        Value::Map(.., items) => {
            items.iter().map(|(key, item)| Some((key.clone(), plain(decoder, expr, item)?))).collect()
        }
        Value::Num(n) if n.is_infinite() => {
            decoder.report(Diagnostic::error(
                "E0405",
                expr.start(),
                "Unsuitable value type",
                "Unsuitable value: an infinite number cannot be part of a job.",
            ));
            None
        }
        other => Some(other.to_json()),
    }
}
