//! Reading `variable` and `variables` blocks.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::super::references::{each_traversal, first_name};
use crate::ast::{Block, Body, Expr, ExprKind};
use crate::diag::{Diagnostic, nearest};
use crate::eval::{Evaluated, Evaluator, Scope};
use crate::parse::json::{Strings, body as json_body};
use crate::parse::native::parse_expression;
use crate::source::Span;
use crate::types::type_expression;
use crate::value::{Type, Value, convert};

/// A declared variable.
#[derive(Debug)]
pub(super) struct Variable {
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// Given, or that of the default; `None` when there is neither.
    pub kind: Option<Type>,
    pub value: Option<Value>,
    /// Where that value was given, and how.
    pub origin: Option<(Origin, Span)>,
    /// Whether null is a value.
    pub nullable: bool,
    /// An error about its value was reported, so that it being unset is no news.
    pub failed: bool,
    pub rules: Vec<Rule>,
}

/// How a value was given; messages name it as the reference does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

const ARGUMENTS: [&str; 5] = ["default", "description", "nullable", "sensitive", "type"];

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

fn native<'b>(
    body: &'b Body,
    labels_of: &dyn Fn(&str) -> Option<usize>,
    items: &mut Vec<Diagnostic>,
) -> Cow<'b, Body> {
    let Some(objects) = &body.json else { return Cow::Borrowed(body) };
    // Defaults in JSON are literal text.
    match json_body(objects, body.span, Strings::Literal, labels_of) {
        Ok(read) => Cow::Owned(read),
        Err(errors) => {
            items.extend(errors);
            Cow::Owned(Body { span: body.span, ..Body::default() })
        }
    }
}

fn many(block: &Block, items: &mut Vec<Diagnostic>) -> Vec<Variable> {
    let body = native(&block.body, &|_| None, items);
    let mut out = Vec::new();
    for attribute in &body.attributes {
        match Evaluator::literals().eval(&attribute.value, &Scope::default()) {
            Ok(value) => out.push(Variable {
                name: attribute.name.text.clone(),
                span: attribute.name.span,
                kind: Some(Type::of(&value)),
                value: Some(value),
                origin: Some((Origin::Default, attribute.value.span)),
                nullable: true,
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
        span: block.header(),
        kind: None,
        value: None,
        origin: None,
        nullable: true,
        failed: false,
        rules: Vec::new(),
    };
    let body = native(&block.body, &|name| (name == "validation").then_some(0), items);
    for attribute in &body.attributes {
        let name = attribute.name.text.as_str();
        if !ARGUMENTS.contains(&name) {
            let near = nearest(name, ARGUMENTS).map(|n| format!(" Did you mean {n:?}?")).unwrap_or_default();
            items.push(Diagnostic::error(
                "E0401",
                attribute.name.span,
                "Unsupported argument",
                format!("An argument named {name:?} is not expected here.{near}"),
            ));
        }
        let plain = match name {
            "description" => Some(Type::Str),
            "nullable" | "sensitive" => Some(Type::Bool),
            _ => None,
        };
        if let Some(wanted) = plain {
            let value = Evaluator::literals().eval(&attribute.value, &Scope::default());
            match value.map(|v| convert(v, &wanted)) {
                Ok(Ok(value)) if name == "nullable" => out.nullable = value != Value::Bool(false),
                Ok(Ok(_)) => {}
                Ok(Err(e)) => items.push(Diagnostic::error(
                    "E0405",
                    attribute.value.start(),
                    "Unsuitable value type",
                    format!("Unsuitable value: {e}"),
                )),
                Err(error) => items.push(*error),
            }
        }
        if name == "type" {
            match read_type(&attribute.value, block.body.json.is_some()) {
                Ok(t) => out.kind = Some(t),
                Err(error) => {
                    out.failed = true;
                    items.push(*error);
                }
            }
        }
    }
    if let Some(default) = body.attributes.iter().find(|a| a.name.text == "default") {
        match Evaluator::literals().eval(&default.value, &Scope::default()) {
            Ok(value) => {
                let kind = out.kind.get_or_insert_with(|| Type::of(&value)).clone();
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
    for inner in &body.blocks {
        if inner.kind.text == "validation" {
            out.rules.extend(rule(inner, &out.name, items));
        } else {
            items.push(Diagnostic::error(
                "E0402",
                inner.kind.span,
                "Unsupported block type",
                format!("Blocks of type {:?} are not expected here.", inner.kind.text),
            ));
        }
    }
    Some(out)
}

/// A type; JSON has it in a string.
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
    let body = match &block.body.json {
        None => Cow::Borrowed(&block.body),
        Some(objects) => match json_body(objects, block.body.span, Strings::Templates, &|_| None) {
            Ok(read) => Cow::Owned(read),
            Err(errors) => {
                items.extend(errors);
                return None;
            }
        },
    };
    let mut wanted = |name: &str| {
        let found = body.attributes.iter().find(|a| a.name.text == name).map(|a| a.value.clone());
        if found.is_none() {
            items.push(Diagnostic::error(
                "E0404",
                block.body.span.at_start(),
                "Missing required argument",
                format!("The argument {name:?} is required, but no definition was found."),
            ));
        }
        found
    };
    let (condition, message) = (wanted("condition"), wanted("error_message"));
    for attribute in &body.attributes {
        if !matches!(attribute.name.text.as_str(), "condition" | "error_message") {
            let detail = format!("An argument named {:?} is not expected here.", attribute.name.text);
            items.push(Diagnostic::error("E0401", attribute.name.span, "Unsupported argument", detail));
        }
    }
    if condition.is_none() {
        let detail = "validation requires a condition.";
        let error =
            Diagnostic::error("E0404", block.header(), "Invalid variable validation specification", detail);
        items.push(error.echo());
    }
    let (condition, message) = (condition?, message?);
    let mut refers = false;
    each_traversal(&condition, &mut |_, t| {
        refers |= t.root.text == "var" && first_name(t).is_some_and(|n| n.text == variable);
    });
    let mut foreign = false;
    each_traversal(&condition, &mut |_, t| foreign |= t.root.text == "var");
    if !refers && !foreign {
        items.push(Diagnostic::error(
            "E0307",
            condition.span,
            "Invalid variable validation condition",
            format!("The condition for variable {variable:?} must refer to var.{variable}, or it would check nothing."),
        ));
        return None;
    }
    const SUMMARY: &str = "Invalid validation error message";
    let text = match Evaluator::literals().eval(&message, &Scope::default()).map(|v| convert(v, &Type::Str)) {
        Ok(Ok(Value::Str(text))) => text,
        Ok(Ok(_)) => {
            items.push(Diagnostic::error("E0310", message.span, SUMMARY, "The message must not be null."));
            return None;
        }
        Ok(Err(e)) => {
            let detail = format!("Unsuitable value: {e}");
            items.push(Diagnostic::error("E0405", message.start(), "Unsuitable value type", detail));
            return None;
        }
        Err(error) => {
            items.push(*error);
            return None;
        }
    };
    if !is_sentence(&text) {
        items.push(Diagnostic::error(
            "E0310",
            message.span,
            SUMMARY,
            "The message must be at least one full sentence: it begins with a capital letter and ends with a period or a question mark.",
        ));
        return None;
    }
    Some(Rule { condition, message: text.to_string(), span: block.header() })
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

/// What the reference takes for sentences.
fn is_sentence(text: &str) -> bool {
    let first = text.chars().next();
    first.is_some_and(|c| c.is_uppercase() || !c.is_alphabetic()) && text.ends_with(['.', '?', '!'])
}
