//! Decodes bodies by tables.

use super::typed::{string_map, typed};
use super::{BlockType, Content, Header, Holder, Kind, Repeat, Schema, free, names};
use crate::ast::{self, Block, Body, Expr};
use crate::diag::Diagnostic;
use crate::eval::{Evaluator, Scope};
use crate::parse::MAX_DEPTH;
use crate::parse::json::{Members, Strings};
use crate::value::{Type, Value, convert};
use serde_json::{Map, Value as Json};
use std::borrow::Cow;

/// A decoded body, which contains only keys that were set.
pub type Object = Map<String, Json>;

/// The maximum number of errors to collect.
const MAX_ERRORS: usize = 50;

const UNSUITABLE: &str = "Unsuitable value type";

/// A decoder of bodies, which collects their errors.
#[derive(Debug)]
pub struct Decoder<'e> {
    /// The evaluator of the expressions of bodies.
    pub evaluator: &'e Evaluator,
    /// The errors found so far.
    pub errors: Vec<Diagnostic>,
    /// The warnings found so far: input that is valid but has no effect or an unexpected one.
    pub warnings: Vec<Diagnostic>,
    /// Whether strings of JSON texts are templates.
    strings: Strings,
    depth: usize,
}

impl<'e> Decoder<'e> {
    /// Creates a decoder that evaluates expressions with `evaluator`.
    #[must_use]
    pub fn new(evaluator: &'e Evaluator) -> Self {
        Self { evaluator, errors: Vec::new(), warnings: Vec::new(), strings: Strings::Templates, depth: 0 }
    }

    /// Creates a decoder for notations without expressions.
    #[must_use]
    pub fn literal(evaluator: &'e Evaluator) -> Self {
        Self { strings: Strings::Literal, ..Self::new(evaluator) }
    }

    /// Records an error.
    pub fn report(&mut self, error: Diagnostic) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        }
    }

    /// Evaluates an expression. Returns `None` after recording an error.
    pub fn eval(&mut self, expr: &Expr, scope: &Scope) -> Option<Value> {
        match self.evaluator.eval(expr, scope) {
            Ok(value) => Some(value),
            Err(error) => {
                self.report(*error);
                None
            }
        }
    }

    /// Evaluates a value. If `is_required`, a second error reports that the value is unknown.
    fn eval_known(&mut self, expr: &Expr, scope: &Scope, is_required: bool) -> Option<Value> {
        let value = self.eval(expr, scope);
        if value.is_none() && is_required {
            let detail = "Unsuitable value: value must be known";
            self.report(Diagnostic::error("E0405", expr.start(), UNSUITABLE, detail).echo());
        }
        value
    }

    /// Returns the body in native form; the schema interprets JSON.
    pub(crate) fn native<'b>(&mut self, body: &'b Body, members: Members<'_>) -> Cow<'b, Body> {
        let Some(json) = &body.json else { return Cow::Borrowed(body) };
        let mut found = Vec::new();
        let body = json.read(self.strings, members, &mut found);
        found.into_iter().for_each(|e| self.report(e));
        Cow::Owned(body)
    }

    /// Decodes a body by its table.
    pub fn body(
        &mut self,
        body: &Body,
        schema: &'static Schema,
        header: &Header<'_>,
        scope: &Scope,
    ) -> Object {
        let is_json = body.json.is_some();
        let missing = body.missing();
        let body = self.native(body, Members::Table(&|name| schema.member(name)));
        let mut out =
            Object::with_capacity(body.attributes.len() + body.blocks.len().min(schema.blocks.len()));
        let mut seen = Seen::default();
        for attribute in &body.attributes {
            self.attribute((attribute, &body, is_json), schema, &mut out, &mut seen, scope);
        }
        for desired in schema.attributes.iter().filter(|a| a.required) {
            if !body.attributes.iter().any(|a| a.name.text == desired.name) {
                self.report(Diagnostic::error(
                    "E0404",
                    missing,
                    "Missing required argument",
                    format!("The argument {:?} is required, but no definition was found.", desired.name),
                ));
            }
        }
        for block in &body.blocks {
            self.block(block, schema, &mut out, &mut seen, scope);
        }
        let header = Header { arguments: &body.attributes, ..*header };
        if let Some(finish) = schema.finish
            && let Err(error) = finish(&mut out, &header)
        {
            self.report(*error);
        }
        out
    }

    fn attribute(
        &mut self,
        (attribute, body, is_json): (&ast::Attribute, &Body, bool),
        schema: &'static Schema,
        out: &mut Object,
        seen: &mut Seen,
        scope: &Scope,
    ) {
        let name = attribute.name.text.as_str();
        if let Some(spec) = schema.attributes.iter().find(|a| a.name == name) {
            if let Some(instead) = spec.deprecated
                && self.warnings.len() < MAX_ERRORS
            {
                self.warnings.push(Diagnostic::warning(
                    "E0408",
                    attribute.name.span,
                    "Deprecated argument",
                    format!("The argument {name:?} is only kept for older files: {instead}."),
                ));
            }
            let specified = spec.holder == Holder::Specified;
            let is_required = spec.kind != Kind::Duration && !specified;
            if let Some(value) = self.eval_known(&attribute.value, scope, is_required) {
                match typed(spec, value) {
                    Ok(Some(json)) => {
                        out.insert(spec.key.to_owned(), json);
                    }
                    Ok(None) => {}
                    Err(detail) if specified => {
                        let detail = detail.strip_prefix("Unsuitable value: ").unwrap_or(&detail);
                        self.report(Diagnostic::error(
                            "E0405",
                            attribute.value.span,
                            "Incorrect attribute value type",
                            format!("Inappropriate value for attribute {name:?}: {detail}."),
                        ));
                    }
                    Err(detail) => {
                        self.report(Diagnostic::error("E0405", attribute.value.start(), UNSUITABLE, detail));
                    }
                }
            }
            return;
        }
        let block = schema.blocks.iter().find(|b| b.name == name);
        if let Some(block @ BlockType { content: Content::StringsOrAttribute, .. }) = block {
            seen.0.push((block.name, String::new(), attribute.name.span));
            if let Some(value) = self.eval(&attribute.value, scope) {
                match string_map(value) {
                    Ok(Some(map)) => {
                        out.insert(block.key.to_owned(), Json::Object(map));
                    }
                    Ok(None) => {}
                    Err(detail) => {
                        self.report(Diagnostic::error("E0405", attribute.value.start(), UNSUITABLE, detail));
                    }
                }
            }
            return;
        }
        self.report(names::argument(attribute, body, schema, is_json));
    }

    pub(super) fn block(
        &mut self,
        block: &Block,
        schema: &'static Schema,
        out: &mut Object,
        seen: &mut Seen,
        scope: &Scope,
    ) {
        let name = block.kind.text.as_str();
        if name == "dynamic" && !schema.blocks.is_empty() {
            self.dynamic(block, schema, out, seen, scope);
            return;
        }
        match schema.blocks.iter().find(|b| b.name == name) {
            Some(spec) => self.known_block(block, spec, out, seen, scope),
            None => self.report(names::block(block, schema)),
        }
    }

    fn known_block(
        &mut self,
        block: &Block,
        spec: &'static BlockType,
        out: &mut Object,
        seen: &mut Seen,
        scope: &Scope,
    ) {
        if !self.labels(block, spec) {
            return;
        }
        if matches!(spec.repeat, Repeat::One | Repeat::Distinct) {
            let label = match spec.repeat {
                Repeat::Distinct => block.labels.first().map(|l| l.text.to_lowercase()),
                _ => None,
            };
            let label = label.unwrap_or_default();
            if let Some((.., first)) =
                seen.0.iter().find(|(name, other, _)| *name == spec.name && *other == label)
            {
                let (quoted, name) = match label.as_str() {
                    "" => (String::new(), spec.name.to_owned()),
                    label => (format!("{label:?} "), format!("{} {label}", spec.name)),
                };
                let error = Diagnostic::error(
                    "E0406",
                    block.header,
                    format!("Duplicate {} {quoted}block", spec.name),
                    format!("Only one {name} block is allowed."),
                )
                .label(*first, "the first one");
                self.report(error);
                return;
            }
            seen.0.push((spec.name, label, block.header));
        }
        if let Err(error) = self.evaluator.charge_block(block.kind.span) {
            self.report(*error);
            return;
        }
        if self.depth > MAX_DEPTH {
            self.report(Diagnostic::error(
                "E0109",
                block.kind.span,
                "Nesting too deep",
                "The blocks are nested too deeply.",
            ));
            return;
        }
        self.depth += 1;
        let mut value = self.content(block, spec.content, scope);
        self.depth -= 1;
        let label = block.labels.first().map(|l| l.text.clone());
        if let Some(label) = &label {
            value.entry("Name").or_insert_with(|| Json::String(label.clone()));
        }
        match spec.repeat {
            Repeat::One => {
                out.insert(spec.key.to_owned(), Json::Object(value));
            }
            Repeat::Many | Repeat::Distinct => {
                if let Json::Array(items) = out.entry(spec.key).or_insert_with(|| Json::Array(Vec::new())) {
                    items.push(Json::Object(value));
                }
            }
            Repeat::ByLabel => {
                if let Json::Object(items) =
                    out.entry(spec.key).or_insert_with(|| Json::Object(Object::new()))
                {
                    items.insert(label.unwrap_or_default(), Json::Object(value));
                }
            }
        }
    }

    fn labels(&mut self, block: &Block, spec: &BlockType) -> bool {
        let (name, desired) = (spec.name, spec.labels.len());
        if let Some(extra) = block.labels.get(desired) {
            let detail = if desired == 0 {
                format!("No labels are expected for {name} blocks.")
            } else {
                format!("Only {desired} labels ({}) are expected for {name} blocks.", spec.labels.join(", "))
            };
            self.report(Diagnostic::error(
                "E0403",
                extra.span,
                format!("Extraneous label for {name}"),
                detail,
            ));
            return false;
        }
        if let Some(missing) = spec.labels.get(block.labels.len()) {
            let error = Diagnostic::error(
                "E0403",
                block.brace(),
                format!("Missing {missing} for {name}"),
                format!("All {name} blocks must have {desired} labels ({}).", spec.labels.join(", ")),
            );
            self.report(error);
            return false;
        }
        true
    }

    fn content(&mut self, block: &Block, content: Content, scope: &Scope) -> Object {
        match content {
            Content::Schema(schema) => {
                let header = Header { span: block.header, labels: &block.labels, arguments: &[] };
                self.body(&block.body, schema, &header, scope)
            }
            Content::Free => free::body(self, &block.body, scope),
            Content::Strings | Content::StringsOrAttribute => {
                self.strings(&block.body, scope, |v| match convert(v, &Type::Str) {
                    Ok(Value::Null(_)) => Err("Unsuitable value: null value is not allowed".to_owned()),
                    Ok(v) => Ok(v.to_json()),
                    Err(e) => Err(format!("Unsuitable value: {e}")),
                })
            }
            Content::StringLists => self.strings(&block.body, scope, |v| {
                convert(v, &Type::List(Box::new(Type::Str)))
                    .map(|v| v.to_json())
                    .map_err(|e| format!("Unsuitable value: {e}"))
            }),
        }
    }

    fn strings(&mut self, body: &Body, scope: &Scope, read: fn(Value) -> Result<Json, String>) -> Object {
        let body = self.native(body, Members::Arguments);
        let mut out = Object::new();
        for attribute in &body.attributes {
            if let Some(value) = self.eval_known(&attribute.value, scope, true) {
                match read(value) {
                    Ok(json) => {
                        out.insert(attribute.name.text.clone(), json);
                    }
                    Err(detail) => {
                        self.report(Diagnostic::error("E0405", attribute.value.start(), UNSUITABLE, detail));
                    }
                }
            }
        }
        for block in &body.blocks {
            let detail = format!(
                "Blocks of type {:?} are not expected here; only names with values are.",
                block.kind.text
            );
            let summary = format!("Unexpected {:?} block", block.kind.text);
            self.report(Diagnostic::error("E0402", block.kind.span, summary, detail));
        }
        out
    }
}

/// Blocks that may occur only once, with a label if one per label is allowed, and the range of the first.
#[derive(Debug, Default)]
pub(super) struct Seen(Vec<(&'static str, String, crate::source::Span)>);
