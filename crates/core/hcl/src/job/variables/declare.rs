//! Reads `variable` and `variables` blocks.

use super::super::references::{each_traversal, first_name};
use super::super::tables::{VALIDATION, VARIABLE};
use crate::ast::{Block, Body, Expr, ExprKind};
use crate::diag::Diagnostic;
use crate::eval::{Evaluated, Evaluator, Scope};
use crate::parse::json::{Members, Strings};
use crate::parse::native::{begins_name, continues_name, parse_expression};
use crate::schema::{Schema, unexpected};
use crate::source::Span;
use crate::types::type_expression;
use crate::value::{Type, Value, convert};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A declared variable.
#[derive(Debug)]
pub(super) struct Variable {
    pub name: String,
    /// The source range of the declaration.
    pub span: Span,
    /// The declared type, or the type of the default; `None` without either.
    pub kind: Option<Type>,
    pub value: Option<Value>,
    /// The source of the value and its range.
    pub origin: Option<(Origin, Span)>,
    /// Whether an error about the value was reported, so that the missing value is no further error.
    pub failed: bool,
    pub rules: Vec<Rule>,
}

/// The source of a value. Messages name it as Nomad does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Default,
    Environment,
    File,
    Argument,
}

impl Origin {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Environment => "env",
            Self::File => "varfile",
            Self::Argument => "cmd",
        }
    }
}

/// A `validation` block.
#[derive(Debug)]
pub(super) struct Rule {
    pub condition: Expr,
    pub message: String,
    pub span: Span,
    /// Whether a reference to another variable was reported.
    pub refers_elsewhere: bool,
}

pub(super) fn declarations(body: &Body, items: &mut Vec<Diagnostic>) -> BTreeMap<String, Variable> {
    let mut out: BTreeMap<String, Variable> = BTreeMap::new();
    for block in &body.blocks {
        let found = match block.kind.text.as_str() {
            "variable" => one(block, items).into_iter().collect(),
            "variables" => many(block, items),
            _ => continue,
        };
        for variable in found {
            if let Some(first) = out.get(&variable.name) {
                items.push(
                    Diagnostic::error(
                        "E0302",
                        variable.span,
                        "Duplicate variable",
                        format!("Duplicate {} variable definition found.", variable.name),
                    )
                    .label(first.span, "the first definition"),
                );
            } else {
                out.insert(variable.name.clone(), variable);
            }
        }
    }
    out
}

fn many(block: &Block, items: &mut Vec<Diagnostic>) -> Vec<Variable> {
    let body = match &block.body.json {
        Some(json) => Cow::Owned(json.read(Strings::Literal, Members::Arguments, items)),
        None => Cow::Borrowed(&block.body),
    };
    if let Some(inner) = body.blocks.first() {
        items.push(Diagnostic::error(
            "E0402",
            inner.kind.span,
            format!("Unexpected {:?} block", inner.kind.text),
            "Blocks are not allowed here; variables are arguments.",
        ));
    }
    let mut out = Vec::new();
    for attribute in &body.attributes {
        match Evaluator::literals().eval(&attribute.value, &Scope::default()) {
            Ok(value) => out.push(Variable {
                name: attribute.name.text.clone(),
                span: attribute.name.span,
                kind: Some(Type::from_value(&value)),
                value: Some(value),
                origin: Some((Origin::Default, attribute.value.span)),
                failed: false,
                rules: Vec::new(),
            }),
            Err(error) => items.push(*error),
        }
    }
    out
}

fn one(block: &Block, items: &mut Vec<Diagnostic>) -> Option<Variable> {
    let [label] = block.labels.as_slice() else {
        items.push(Diagnostic::error(
            "E0403",
            block.labels.get(1).map_or(block.brace(), |extra| extra.span),
            if block.labels.is_empty() {
                "Missing name for variable"
            } else {
                "Extraneous label for variable"
            },
            "All variable blocks must have 1 labels (name).",
        ));
        return None;
    };
    if !is_identifier(&label.text) {
        items.push(Diagnostic::error(
            "E0309",
            label.span,
            "Invalid variable name",
            "A name begins with a letter or an underscore, followed by letters, digits, underscores and dashes.",
        ));
    }
    let mut out = Variable {
        name: label.text.clone(),
        span: block.header,
        kind: None,
        value: None,
        origin: None,
        failed: false,
        rules: Vec::new(),
    };
    let body = body(&block.body, &VARIABLE, Strings::Literal, items);
    let argument = |name: &str| body.attributes.iter().find(|a| a.name.text == name);
    if let Some(description) = argument("description") {
        text(&description.value, items);
    }
    if let Some(kind) = argument("type") {
        match read_type(&kind.value, block.body.json.is_some()) {
            Ok(t) => out.kind = Some(t),
            Err(error) => {
                out.failed = true;
                items.push(*error);
            }
        }
    }
    if let Some(default) = argument("default") {
        match Evaluator::literals().eval(&default.value, &Scope::default()) {
            Ok(value) => {
                let kind = out.kind.get_or_insert_with(|| Type::from_value(&value)).clone();
                match convert(value, &kind) {
                    Ok(value) => {
                        out.value = Some(value);
                        out.origin = Some((Origin::Default, default.value.span));
                    }
                    Err(e) => {
                        out.failed = true;
                        items.push(Diagnostic::error("E0306", default.value.span, "Invalid default value for variable", format!("This default value is not compatible with the variable's type constraint: {e}.")));
                    }
                }
            }
            Err(error) => {
                out.failed = true;
                items.push(*error);
            }
        }
    }
    for inner in body.blocks.iter().filter(|b| b.kind.text == "validation") {
        out.rules.extend(rule(inner, &out.name, items));
    }
    Some(out)
}

/// Reads a body by its table, without its values. Reports names that the table does not have.
fn body<'b>(
    body: &'b Body,
    schema: &'static Schema,
    strings: Strings,
    items: &mut Vec<Diagnostic>,
) -> Cow<'b, Body> {
    let is_json = body.json.is_some();
    let body = match &body.json {
        Some(json) => Cow::Owned(json.read(strings, Members::Table(&|name| schema.member(name)), items)),
        None => Cow::Borrowed(body),
    };
    items.extend(unexpected(&body, schema, is_json));
    body
}

/// Evaluates a text without references.
fn text(expr: &Expr, items: &mut Vec<Diagnostic>) -> Option<Arc<str>> {
    let detail = match Evaluator::literals().eval(expr, &Scope::default()).map(|v| convert(v, &Type::Str)) {
        Ok(Ok(Value::Str(text))) => return Some(text),
        Ok(Ok(_)) => "Unsuitable value: null value is not allowed".to_owned(),
        Ok(Err(e)) => format!("Unsuitable value: {e}"),
        Err(error) => {
            items.push(*error);
            "Unsuitable value: value must be known".to_owned()
        }
    };
    items.push(Diagnostic::error("E0405", expr.start(), "Unsuitable value type", detail));
    None
}

/// Reads a type; in JSON it is a string.
fn read_type(expr: &Expr, json: bool) -> Evaluated<Type> {
    if json
        && let ExprKind::Literal(Value::Str(text)) = &expr.kind
        && let Ok(inner) = parse_expression(text, expr.span.source)
    {
        return type_expression(&inner).map_err(|mut e| {
            e.span = Some(expr.span);
            e
        });
    }
    type_expression(expr)
}

fn rule(block: &Block, variable: &str, items: &mut Vec<Diagnostic>) -> Option<Rule> {
    let templates = body(&block.body, &VALIDATION, Strings::Templates, items);
    let missing = block.body.missing();
    let mut argument = |name: &str| {
        let found = templates.attributes.iter().find(|a| a.name.text == name).map(|a| a.value.clone());
        if found.is_none() {
            items.push(Diagnostic::error(
                "E0404",
                missing,
                "Missing required argument",
                format!("The argument {name:?} is required, but no definition was found."),
            ));
        }
        found
    };
    let (condition, message) = (argument("condition"), argument("error_message"));
    if condition.is_none() {
        let detail = "validation requires a condition.";
        let error =
            Diagnostic::error("E0404", block.header, "Invalid variable validation specification", detail);
        items.push(error.echo());
    }
    let (condition, message) = (condition?, message?);
    let (mut refers, mut foreign) = (false, Vec::new());
    each_traversal(&condition, &mut |expr, t| {
        if t.root.text == "var" && first_name(t).is_some_and(|n| n.text == variable) {
            refers = true;
        } else {
            foreign.push(expr.span);
        }
    });
    items.extend(foreign.iter().map(|span| {
        let detail = format!(
            "The condition for variable {variable:?} can only refer to the variable itself, using var.{variable}."
        );
        Diagnostic::error("E0307", *span, "Invalid reference in variable validation", detail)
    }));
    if !refers {
        items.push(Diagnostic::error(
            "E0307",
            condition.span,
            "Invalid variable validation condition",
            format!("The condition for variable {variable:?} must refer to var.{variable}, or it would check nothing."),
        ));
        return None;
    }
    // In both notations, a message is no template.
    let literal = match (&block.body.json, &message.kind) {
        (Some(json), ExprKind::Embedded(_)) => {
            let members = Members::Table(&|name| VALIDATION.member(name));
            let read = json.read(Strings::Literal, members, &mut Vec::new());
            read.attributes.into_iter().find(|a| a.name.text == "error_message").map(|a| a.value)
        }
        _ => None,
    };
    let place = message.span;
    let message = text(&literal.unwrap_or(message), items)?;
    if message.trim().is_empty() {
        items.push(Diagnostic::error(
            "E0310",
            place,
            "Invalid validation error message",
            "The message must not be empty: it is what people read when the value is wrong.",
        ));
        return None;
    }
    let refers_elsewhere = !foreign.is_empty();
    Some(Rule { condition, message: message.to_string(), span: block.header, refers_elsewhere })
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(begins_name) && chars.all(continues_name)
}
