//! Expands `dynamic "kind" { for_each iterator labels content {} }`, which generates blocks in a loop.

use super::Schema;
use super::decode::{Decoder, Object, Seen};
use crate::ast::{Attribute, Block, Body, Expr, ExprKind, Name};
use crate::diag::{Diagnostic, nearest};
use crate::eval::{Scope, elements};
use crate::parse::json::{Member, Members};
use crate::source::Span;
use crate::value::{Type, Value, convert};

/// The arguments of a `dynamic` block, without its content.
struct Plan<'b> {
    for_each: &'b Expr,
    iterator: String,
    /// One expression for each label of the generated blocks.
    labels: &'b [Expr],
}

impl Decoder<'_> {
    /// Generates the blocks of a `dynamic` block and decodes them as if written out.
    pub(super) fn dynamic(
        &mut self,
        block: &Block,
        schema: &'static Schema,
        out: &mut Object,
        seen: &mut Seen,
        scope: &Scope,
    ) {
        let [kind] = block.labels.as_slice() else {
            let span = block.labels.get(1).map_or(block.brace(), |extra| extra.span);
            self.wrong(
                span,
                "Missing type for dynamic",
                "A dynamic block has one label: the type of the blocks that it makes.",
            );
            return;
        };
        let Some(spec) = schema.blocks.iter().find(|b| b.name == kind.text) else {
            let near = nearest(&kind.text, schema.blocks.iter().map(|b| b.name));
            let near = near.map(|n| format!(" Did you mean {n:?}?")).unwrap_or_default();
            let detail = format!("Blocks of type {:?} are not expected here.{near}", kind.text);
            self.report(Diagnostic::error("E0402", kind.span, "Unsupported block type", detail));
            return;
        };
        let body = self.native(&block.body, Members::Table(&member));
        let Some(plan) = self.plan(&body, kind, spec.labels) else { return };
        let Some(content) = self.dynamic_content(&body) else { return };
        let Some(collection) = self.eval(plan.for_each, scope) else { return };
        let type_name = collection.type_name();
        let null = collection.is_null();
        let Some(items) = elements(collection) else {
            let detail = if null {
                "Cannot use a null value in for_each.".to_owned()
            } else {
                format!("Cannot use a {type_name} value in for_each. An iterable collection is required.")
            };
            self.wrong(plan.for_each.span, "Invalid dynamic for_each value", detail);
            return;
        };
        for (key, value) in items {
            let before = self.errors.len();
            let pair = [("key".to_owned(), key), ("value".to_owned(), value)].into();
            let inner = scope.with(&plan.iterator, Value::object(pair));
            let labels: Option<Vec<Name>> =
                plan.labels.iter().map(|expr| self.dynamic_label(expr, &inner)).collect();
            if let Some(labels) = labels {
                let made = Block { kind: kind.clone(), labels, body: content.clone(), header: block.header };
                self.block(&made, schema, out, seen, &inner);
            }
            if self.errors.len() > before {
                // Report an error only once, not for every iteration.
                return;
            }
        }
    }

    fn wrong(&mut self, span: Span, summary: &str, detail: impl Into<String>) {
        self.report(Diagnostic::error("E0407", span, summary, detail));
    }

    fn missing(&mut self, body: &Body, name: &str) {
        self.report(Diagnostic::error(
            "E0404",
            body.span.at_start(),
            "Missing required argument",
            format!("The argument {name:?} is required, but no definition was found."),
        ));
    }

    fn plan<'b>(&mut self, body: &'b Body, kind: &Name, labels: &'static [&'static str]) -> Option<Plan<'b>> {
        let before = self.errors.len();
        let known: &[&str] =
            if labels.is_empty() { &["for_each", "iterator"] } else { &["for_each", "iterator", "labels"] };
        for attribute in body.attributes.iter().filter(|a| !known.contains(&a.name.text.as_str())) {
            let name = &attribute.name.text;
            let detail =
                format!("An argument named {name:?} is not expected here; there are {}.", known.join(", "));
            self.report(Diagnostic::error("E0401", attribute.name.span, "Unsupported argument", detail));
        }
        let find =
            |name: &str| body.attributes.iter().find(|a| a.name.text == name).map(|a: &Attribute| &a.value);
        let for_each = find("for_each");
        if for_each.is_none() {
            self.missing(body, "for_each");
        }
        let iterator = match find("iterator") {
            None => kind.text.clone(),
            Some(expr) => match iterator_name(expr) {
                Some(name) => name,
                None => {
                    self.wrong(
                        expr.start(),
                        "Invalid dynamic iterator name",
                        "An iterator is one name, without quotes.",
                    );
                    String::new()
                }
            },
        };
        let mut supplied: &[Expr] = &[];
        match find("labels") {
            None if !labels.is_empty() => self.missing(body, "labels"),
            None => {}
            Some(Expr { kind: ExprKind::Tuple(all), span }) => {
                supplied = all;
                if let Some(extra) = all.get(labels.len()) {
                    let detail = format!("Blocks of type {:?} have {} label(s).", kind.text, labels.len());
                    self.wrong(extra.span, "Extraneous dynamic block label", detail);
                } else if all.len() < labels.len() {
                    let detail = format!("Blocks of type {:?} have {} label(s).", kind.text, labels.len());
                    self.wrong(*span, "Insufficient dynamic block labels", detail);
                }
            }
            Some(other) => {
                self.wrong(
                    other.start(),
                    "Invalid expression",
                    "Labels are a list in brackets, with an expression for each.",
                );
            }
        }
        let found = self.errors.len() > before;
        for_each.filter(|_| !found).map(|for_each| Plan { for_each, iterator, labels: supplied })
    }

    fn dynamic_content<'b>(&mut self, body: &'b Body) -> Option<&'b Body> {
        for other in body.blocks.iter().filter(|b| b.kind.text != "content") {
            let detail =
                format!("Blocks of type {:?} are not expected here; there is \"content\".", other.kind.text);
            self.report(Diagnostic::error("E0402", other.kind.span, "Unsupported block type", detail));
        }
        let mut all = body.blocks.iter().filter(|b| b.kind.text == "content");
        let first = all.next();
        if first.is_none() {
            self.wrong(
                body.span.at_start(),
                "Missing dynamic content block",
                "A dynamic block must have a nested block of type \"content\" to describe the body of each generated block.",
            );
        }
        if let Some(second) = all.next() {
            self.wrong(
                second.header,
                "Extraneous dynamic content block",
                "Only one nested content block is allowed.",
            );
        }
        first.map(|b| &b.body)
    }

    fn dynamic_label(&mut self, expr: &Expr, scope: &Scope) -> Option<Name> {
        let value = self.eval(expr, scope)?;
        let detail = match convert(value, &Type::Str) {
            Ok(Value::Str(s)) => return Some(Name { text: s.to_string(), span: expr.start() }),
            Ok(_) => "A label must not be null.".to_owned(),
            Err(e) => format!("A label must be a string: {e}."),
        };
        self.wrong(expr.span, "Invalid dynamic block label", detail);
        None
    }
}

/// Returns the role of a name in a `dynamic` block of HCL-JSON.
fn member(name: &str) -> Member {
    match name {
        "for_each" | "iterator" | "labels" => Member::Argument,
        "content" => Member::Block(&[]),
        _ => Member::Unknown,
    }
}

/// Returns a bare name; in JSON it is a string.
fn iterator_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Traversal(t) if t.steps.is_empty() => Some(t.root.text.clone()),
        ExprKind::Embedded(inner) => match &inner.kind {
            ExprKind::Literal(Value::Str(s)) => Some(s.to_string()),
            _ => None,
        },
        _ => None,
    }
}
