//! Parses lists, objects and `for` expressions.

use super::native::{Failed, Parsed, Parser, continues_name};
use crate::ast::{Expr, ExprKind, For, Key, Name};
use crate::source::Span;
use crate::value::Value;

impl Parser<'_> {
    pub(super) fn unterminated(&mut self, open: usize, what: &str, bracket: &str) -> Failed {
        let span = self.span(open, open + 1);
        self.error(
            "E0116",
            span,
            &format!("Unterminated {what}"),
            format!("There is no corresponding closing {bracket} before the end of the file. This may be caused by incorrect {bracket} nesting elsewhere in this file."),
        )
    }

    pub(super) fn tuple(&mut self) -> Parsed<Expr> {
        let start = self.pos;
        self.pos += 1;
        self.newlines.push(true);
        self.blanks();
        if self.for_ahead() {
            return self.for_expression(start, false);
        }
        let mut items = Vec::new();
        loop {
            self.blanks();
            if self.eat("]") {
                break;
            }
            let open = self.span(start, start + 1);
            items.push(self.argument(open)?);
            self.blanks();
            if self.eat(",") || self.at("]") {
                continue;
            }
            if self.pos >= self.limit {
                return Err(self.unterminated(start, "tuple constructor expression", "bracket"));
            }
            let span = self.next_span();
            return Err(self.error(
                "E0116",
                span,
                "Missing item separator",
                "Expected a comma to mark the beginning of the next item.",
            ));
        }
        self.newlines.pop();
        let span = self.span(start, self.pos);
        Ok(Expr { kind: ExprKind::Tuple(items), span })
    }

    pub(super) fn for_ahead(&self) -> bool {
        self.at("for") && !self.rest()[3..].starts_with(continues_name)
    }

    pub(super) fn object(&mut self) -> Parsed<Expr> {
        let start = self.pos;
        self.pos += 1;
        self.newlines.push(false);
        self.blank_lines();
        if self.for_ahead() {
            self.newlines.pop();
            self.newlines.push(true);
            return self.for_expression(start, true);
        }
        let mut items = Vec::new();
        loop {
            self.blank_lines();
            if self.eat("}") {
                break;
            }
            let at_end = self.pos >= self.limit;
            let key = self.object_key();
            if key.is_err() && at_end {
                let open = self.span(start, start + 1);
                self.label_last(open, "what begins here is not closed");
            }
            let key = key?;
            self.blanks();
            if self.pos >= self.limit {
                return Err(self.unterminated(start, "object constructor expression", "brace"));
            }
            let separated = self.at(":") || (self.at("=") && !self.at("=="));
            if !separated {
                let span = self.next_span();
                let newline = matches!(self.peek(), Some('\n' | '\r'));
                return Err(self.error(
                    "E0117",
                    span,
                    if newline { "Missing attribute value" } else { "Missing key/value separator" },
                    "Expected an equals sign (\"=\") to mark the beginning of the attribute value.",
                ));
            }
            self.pos += 1;
            self.blanks();
            let value = self.expression()?;
            items.push((key, value));
            self.blanks();
            if self.eat(",") || matches!(self.peek(), Some('\n' | '\r' | '}')) {
                continue;
            }
            if self.pos >= self.limit {
                return Err(self.unterminated(start, "object constructor expression", "brace"));
            }
            let span = self.next_span();
            return Err(self.error(
                "E0117",
                span,
                "Missing attribute separator",
                "Expected a newline or comma to mark the beginning of the next attribute.",
            ));
        }
        self.newlines.pop();
        let span = self.span(start, self.pos);
        Ok(Expr { kind: ExprKind::Object(items), span })
    }

    fn object_key(&mut self) -> Parsed<Key> {
        let key = self.expression()?;
        match key.kind {
            ExprKind::Traversal(t) if t.steps.is_empty() => Ok(Key::Name(t.root)),
            ExprKind::Literal(Value::Bool(b)) => Ok(Key::Name(Name { text: b.to_string(), span: key.span })),
            ExprKind::Literal(Value::Null(_)) => {
                Ok(Key::Name(Name { text: "null".to_owned(), span: key.span }))
            }
            ExprKind::Traversal(_) => {
                let span = key.span;
                Err(self.error("E0117", span, "Ambiguous attribute key", "If this expression is intended to be a reference, wrap it in parentheses. If it's instead intended as a literal name containing periods, wrap it in quotes to create a string literal."))
            }
            kind => Ok(Key::Expr(Expr { kind, span: key.span })),
        }
    }

    fn word(&mut self, word: &str, span: Span) -> Parsed<()> {
        self.blanks();
        match self.identifier() {
            Some(name) if name.text == word => Ok(()),
            _ => Err(self.error(
                "E0118",
                span,
                "Invalid 'for' expression",
                format!("The keyword {word:?} is expected here."),
            )),
        }
    }

    fn for_name(&mut self) -> Parsed<Name> {
        self.blanks();
        match self.identifier() {
            Some(name) => Ok(name),
            None => {
                let span = self.next_span();
                Err(self.error(
                    "E0118",
                    span,
                    "Invalid 'for' expression",
                    "For expression requires variable name after 'for'.",
                ))
            }
        }
    }

    /// Parses `k, v in collection`, also for the template directive.
    pub(super) fn for_intro(&mut self) -> Parsed<(Option<Name>, Name, Expr)> {
        let mut value = self.for_name()?;
        let mut key = None;
        self.blanks();
        if self.eat(",") {
            key = Some(std::mem::replace(&mut value, self.for_name()?));
        }
        self.blanks();
        let span = self.next_span();
        self.word("in", span)?;
        self.blanks();
        Ok((key, value, self.expression()?))
    }

    /// Parses a `for` expression. The cursor is at `for`, after the opening bracket.
    fn for_expression(&mut self, start: usize, object: bool) -> Parsed<Expr> {
        self.pos += 3;
        let (key, value, collection) = self.for_intro()?;
        self.blanks();
        if !self.eat(":") {
            let span = self.next_span();
            return Err(self.error(
                "E0118",
                span,
                "Invalid 'for' expression",
                "For expression requires a colon after the collection expression.",
            ));
        }
        self.blanks();
        let mut value_expr = self.expression()?;
        let (mut key_expr, mut group) = (None, false);
        self.blanks();
        if self.eat("=>") {
            self.blanks();
            key_expr = Some(std::mem::replace(&mut value_expr, self.expression()?));
            self.blanks();
            group = self.eat("...");
            self.blanks();
        }
        let close = if object { "}" } else { "]" };
        match &key_expr {
            None if object => {
                let detail = "A key (\"key => value\") is required when building an object.";
                return Err(self.error("E0118", value_expr.span, "Invalid 'for' expression", detail));
            }
            Some(key) if !object => {
                let detail = "A key is not valid when building a list.";
                return Err(self.error("E0118", key.span, "Invalid 'for' expression", detail));
            }
            _ => {}
        }
        let mut condition = None;
        if self.at("if") && !self.rest()[2..].starts_with(continues_name) {
            self.pos += 2;
            self.blanks();
            condition = Some(self.expression()?);
            self.blanks();
        }
        if !self.eat(close) {
            let span = self.next_span();
            return Err(self.error(
                "E0118",
                span,
                "Invalid 'for' expression",
                "Extra characters after the end of the 'for' expression.",
            ));
        }
        self.newlines.pop();
        let span = self.span(start, self.pos);
        let inner = For { key, value, collection, key_expr, value_expr, condition, group };
        Ok(Expr { kind: ExprKind::For(Box::new(inner)), span })
    }
}
