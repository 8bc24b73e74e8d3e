//! Free-form bodies (jobspec.md 3): a nested block becomes an array of objects, and so does an argument that
//! is written as an object.

use serde_json::Value as Json;

use super::decode::{Decoder, Object};
use crate::ast::{Block, Body, ExprKind};
use crate::diag::Diagnostic;
use crate::eval::Scope;
use crate::parse::MAX_DEPTH;

pub(super) fn body(decoder: &mut Decoder<'_>, body: &Body, scope: &Scope) -> Object {
    nested(decoder, body, scope, 0)
}

fn nested(decoder: &mut Decoder<'_>, body: &Body, scope: &Scope, depth: usize) -> Object {
    let mut out = Object::new();
    let body = decoder.native(body, &|_| None);
    for attribute in &body.attributes {
        let Some(value) = decoder.eval(&attribute.value, scope) else { continue };
        if value.is_null() {
            continue;
        }
        let written_as_object = matches!(attribute.value.kind, ExprKind::Object(_));
        let json = value.to_json();
        out.insert(
            attribute.name.text.clone(),
            if written_as_object { Json::Array(vec![json]) } else { json },
        );
    }
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
        match out.entry(block.kind.text.clone()).or_insert_with(|| Json::Array(Vec::new())) {
            Json::Array(items) => items.push(value),
            other => *other = Json::Array(vec![other.take(), value]),
        }
    }
    out
}

/// Labels become keys of objects around the body.
fn labelled(decoder: &mut Decoder<'_>, block: &Block, scope: &Scope, depth: usize) -> Json {
    let inner = Json::Object(nested(decoder, &block.body, scope, depth + 1));
    block.labels.iter().rev().fold(inner, |inner, label| {
        let mut outer = Object::new();
        outer.insert(label.text.clone(), Json::Array(vec![inner]));
        Json::Object(outer)
    })
}
