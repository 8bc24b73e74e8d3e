//! Builds bodies and expressions from JSON values.

use super::{Json, JsonKind};
use crate::ast::{Attribute, Block, Body, Expr, ExprKind, Key, Name};
use crate::diag::Diagnostic;
use crate::parse::native::parse_template_text;
use crate::source::Span;
use crate::value::Value;
use std::sync::Arc;

/// The meaning of strings: templates, or literal text (as in variable files).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strings {
    /// Strings are templates: `${}` is evaluated.
    Templates,
    /// Strings are literal text.
    Literal,
}

/// Returns the value as an expression.
///
/// # Errors
/// A string is not a valid template.
pub fn expression(json: &Json, strings: Strings) -> Result<Expr, Vec<Diagnostic>> {
    let kind = match &json.kind {
        JsonKind::Scalar(value) => ExprKind::Literal(value.clone()),
        JsonKind::Text(text) if strings == Strings::Templates => {
            ExprKind::Embedded(Box::new(parse_template_text(text, json.span)?))
        }
        JsonKind::Text(text) => ExprKind::Literal(Value::str(text)),
        JsonKind::Array(items) => {
            ExprKind::Tuple(items.iter().map(|j| expression(j, strings)).collect::<Result<_, _>>()?)
        }
        JsonKind::Object(object) => ExprKind::Object(
            object
                .members
                .iter()
                .map(|(name, value)| {
                    let key = match strings {
                        Strings::Templates => parse_template_text(&name.text, name.span)?,
                        Strings::Literal => {
                            Expr { kind: ExprKind::Literal(Value::str(&name.text)), span: name.span }
                        }
                    };
                    let key = Key::Json(Expr { span: name.span, ..key });
                    Ok((key, expression(value, strings)?))
                })
                .collect::<Result<_, Vec<Diagnostic>>>()?,
        ),
    };
    Ok(Expr { kind, span: json.span })
}

/// A JSON body, which only a table can interpret.
#[derive(Clone, Debug)]
pub struct JsonBody {
    /// The value, which should be an object.
    pub value: Json,
}

/// The interpretation of the members of an object.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a function cannot be shown")]
pub enum Members<'a> {
    /// All members are arguments.
    Arguments,
    /// A table gives the role of each name.
    Table(&'a dyn Fn(&str) -> Member),
}

/// The role that a table gives to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// An argument, which is set once.
    Argument,
    /// A block with these labels.
    Block(&'static [&'static str]),
    /// An argument that may also be written as a block: repeated, it is a block.
    ArgumentOrBlock,
    /// A name that the table does not have.
    Unknown,
}

impl JsonBody {
    /// Returns the place where a missing argument is reported: the closing brace.
    #[must_use]
    pub fn missing(&self) -> Span {
        match &self.value.kind {
            JsonKind::Object(object) => Span { start: object.span.end.saturating_sub(1), ..object.span },
            _ => self.value.start(),
        }
    }

    /// Reads the value as a body and adds its errors to `found`. Names that the table does not have become arguments
    /// of the body.
    #[must_use]
    pub fn read(&self, strings: Strings, members: Members<'_>, found: &mut Vec<Diagnostic>) -> Body {
        let mut out = Body { span: self.value.span, ..Body::default() };
        let all = match members {
            Members::Arguments => arguments(&self.value, found),
            Members::Table(_) => flat(&self.value, None, found),
        };
        let all: Vec<_> = all.into_iter().filter(|(name, _)| name.text != "//").collect();
        for (name, value) in &all {
            let member = match members {
                Members::Arguments => Member::Argument,
                Members::Table(member) => match member(&name.text) {
                    Member::ArgumentOrBlock
                        if all.iter().filter(|(n, _)| n.text == name.text).count() == 1 =>
                    {
                        Member::Argument
                    }
                    Member::ArgumentOrBlock => Member::Block(&[]),
                    member => member,
                },
            };
            match member {
                Member::Block(labels) => {
                    unpack(name, value, labels, &mut Vec::new(), &mut out.blocks, found);
                    continue;
                }
                Member::Argument if out.attributes.iter().any(|a| a.name.text == name.text) => {
                    let summary = match members {
                        Members::Arguments => "Duplicate attribute definition",
                        Members::Table(_) => "Duplicate argument",
                    };
                    found.push(Diagnostic::error(
                        "E0107",
                        name.span,
                        summary,
                        format!("The argument {:?} was already set.", name.text),
                    ));
                    continue;
                }
                _ => {}
            }
            match expression(value, strings) {
                Ok(value) => out.attributes.push(Attribute { name: name.clone(), value }),
                Err(errors) => found.extend(errors),
            }
        }
        out
    }
}

fn wrong(value: &Json, detail: String) -> Diagnostic {
    Diagnostic::error("E0131", value.start(), "Incorrect JSON value type", detail)
}

/// Returns the members of a value that must be one object.
fn arguments<'j>(value: &'j Json, found: &mut Vec<Diagnostic>) -> Vec<&'j (Name, Json)> {
    match &value.kind {
        JsonKind::Object(object) => object.members.iter().collect(),
        _ => {
            found.push(wrong(value, "An object is required here: names with values.".to_owned()));
            Vec::new()
        }
    }
}

/// Returns the members of an object, or of all objects of an array; null has none. `label` names the label that the
/// keys represent, if they are no arguments.
fn flat<'j>(value: &'j Json, label: Option<&str>, found: &mut Vec<Diagnostic>) -> Vec<&'j (Name, Json)> {
    let purpose = || match label {
        Some(label) => format!("whose names are the {label} of blocks"),
        None => "with arguments and blocks".to_owned(),
    };
    match &value.kind {
        JsonKind::Scalar(Value::Null(_)) => Vec::new(),
        JsonKind::Object(object) => object.members.iter().collect(),
        JsonKind::Array(items) => {
            let mut out = Vec::new();
            for item in items {
                match &item.kind {
                    JsonKind::Object(object) => out.extend(&object.members),
                    _ => found.push(wrong(item, format!("An object {} is required here.", purpose()))),
                }
            }
            out
        }
        _ => {
            let detail = format!("An object or an array of objects {} is required here.", purpose());
            found.push(wrong(value, detail));
            Vec::new()
        }
    }
}

/// Builds the blocks that a value represents, below nested objects whose keys are the labels.
fn unpack(
    kind: &Name,
    value: &Json,
    missing: &[&str],
    labels: &mut Vec<Name>,
    out: &mut Vec<Block>,
    found: &mut Vec<Diagnostic>,
) {
    if let [label, missing @ ..] = missing {
        let members = flat(value, Some(label), found);
        if members.is_empty() {
            found.push(Diagnostic::error(
                "E0403",
                value.start(),
                "Missing block label",
                format!("At least one name is required here: it is the {label} of the {} block.", kind.text),
            ));
        }
        for (name, value) in members {
            labels.push(name.clone());
            unpack(kind, value, missing, labels, out, found);
            labels.pop();
        }
        return;
    }
    let mut push = |value: &Json, header: Span| {
        let json = Some(Arc::new(JsonBody { value: value.clone() }));
        let body = Body { span: value.span, json, ..Body::default() };
        out.push(Block { kind: kind.clone(), labels: labels.clone(), body, header });
    };
    match &value.kind {
        JsonKind::Scalar(Value::Null(_)) => {}
        JsonKind::Object(_) => push(value, value.start()),
        JsonKind::Array(items) => items.iter().for_each(|item| push(item, value.start())),
        _ => {
            let detail = format!("An object or an array is required here: {:?} is a block.", kind.text);
            found.push(wrong(value, detail));
        }
    }
}
