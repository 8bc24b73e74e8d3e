//! Parses expressions of the native notation.

use super::MAX_LINKS;
use super::native::{Failed, Parsed, Parser, begins_name};
use super::scan::{heredoc_width, number_width, token_width};
use crate::ast::{Binary, Expr, ExprKind, Name, Step, Traversal, Unary};
use crate::source::Span;
use crate::value::{Number, Value};

const OPERATORS: [(&str, Binary, u8); 13] = [
    ("||", Binary::Or, 1),
    ("&&", Binary::And, 2),
    ("==", Binary::Equal, 3),
    ("!=", Binary::NotEqual, 3),
    ("<=", Binary::LessEqual, 4),
    (">=", Binary::GreaterEqual, 4),
    ("<", Binary::Less, 4),
    (">", Binary::Greater, 4),
    ("+", Binary::Add, 5),
    ("-", Binary::Subtract, 5),
    ("*", Binary::Multiply, 6),
    ("/", Binary::Divide, 6),
    ("%", Binary::Remainder, 6),
];

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Parsed<Expr> {
        self.deeper()?;
        let out = self.conditional();
        self.depth -= 1;
        out
    }

    fn conditional(&mut self) -> Parsed<Expr> {
        let condition = self.binary(0)?;
        self.blanks();
        if !self.eat("?") {
            return Ok(condition);
        }
        self.blanks();
        let yes = self.expression()?;
        self.blanks();
        if !self.eat(":") {
            let span = self.next_span();
            return Err(self.error(
                "E0111",
                span,
                "Missing false expression in conditional",
                "The conditional operator (...?...:...) requires a false expression, delimited by a colon.",
            ));
        }
        self.blanks();
        let no = self.expression()?;
        let span = condition.span.to(no.span);
        Ok(Expr { kind: ExprKind::Conditional(Box::new(condition), Box::new(yes), Box::new(no)), span })
    }

    fn binary(&mut self, minimum: u8) -> Parsed<Expr> {
        let mut left = self.unary()?;
        loop {
            self.blanks();
            // Check the first byte before all operators, because most expressions have none.
            let first = self.rest().as_bytes().first();
            if !first.is_some_and(|b| b"|&=!<>+-*/%".contains(b)) {
                return Ok(left);
            }
            // "~}" and "%}" end a template sequence, and "..." is no operator either.
            let found = OPERATORS.iter().find(|(token, _, level)| self.at(token) && *level > minimum);
            let Some((token, operator, level)) = found else { return Ok(left) };
            if *token == "%" && self.at("%{") || *token == "<" && heredoc_width(self.rest()) > 0 {
                return Ok(left);
            }
            self.link()?;
            self.pos += token.len();
            self.blanks();
            self.deeper()?;
            let right = self.binary(*level);
            self.depth -= 1;
            let right = right?;
            let span = left.span.to(right.span);
            left = Expr { kind: ExprKind::Binary(*operator, Box::new(left), Box::new(right)), span };
        }
    }

    /// Counts one more level of a left-recursive tree.
    fn link(&mut self) -> Parsed<()> {
        self.links += 1;
        if self.links > MAX_LINKS { Err(self.too_long()) } else { Ok(()) }
    }

    fn too_long(&mut self) -> Failed {
        let span = self.next_span();
        self.error(
            "E0109",
            span,
            "Expression too long",
            format!(
                "At most {MAX_LINKS} operators or steps may follow each other; use locals for the parts."
            ),
        )
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let start = self.pos;
        let operator = match self.peek() {
            Some('-') => Unary::Minus,
            Some('!') if !self.at("!=") => Unary::Not,
            _ => return self.term(),
        };
        self.pos += 1;
        self.blanks();
        self.deeper()?;
        let inner = self.unary();
        self.depth -= 1;
        let inner = inner?;
        let span = self.span(start, start).to(inner.span);
        Ok(Expr { kind: ExprKind::Unary(operator, Box::new(inner)), span })
    }

    fn term(&mut self) -> Parsed<Expr> {
        let start = self.pos;
        let first = self.primary()?;
        self.postfix(first, start)
    }

    fn postfix(&mut self, mut expr: Expr, start: usize) -> Parsed<Expr> {
        loop {
            let here = self.pos;
            self.blanks();
            if !(self.at(".") && !self.at("...") || self.at("[")) {
                self.pos = here;
                break;
            }
            let from = self.pos;
            let dot = self.at(".");
            self.pos += 1;
            self.blanks_within(!dot);
            if self.at("*") {
                if let ExprKind::Traversal(traversal) = &mut expr.kind {
                    traversal.runtime = self.runtime_text(start, here).into();
                }
                expr = self.splat(expr, from, dot)?;
            } else if dot {
                let token = self.next_span();
                let step = self.dot_step(from, token)?;
                expr = self.step(expr, step, start);
            } else {
                expr = self.index(expr, start, from)?;
            }
        }
        if let ExprKind::Traversal(traversal) = &mut expr.kind {
            traversal.runtime = self.runtime_text(start, self.pos).into();
        }
        Ok(expr)
    }

    /// Skips spaces, and also line ends if `brackets` is set, because they have no meaning within brackets.
    fn blanks_within(&mut self, brackets: bool) {
        if brackets {
            self.blank_lines();
        } else {
            self.blanks();
        }
    }

    /// Parses the rest of a splat after the star; `from` is the position of the dot or bracket before it.
    fn splat(&mut self, source: Expr, from: usize, dot: bool) -> Parsed<Expr> {
        self.link()?;
        let star = self.next_span();
        self.pos += 1;
        if !dot {
            self.blank_lines();
            if !self.eat("]") {
                let span = self.next_span();
                return Err(self.error(
                    "E0112",
                    span,
                    "Missing close bracket on splat index",
                    "The star for a full splat operator must be immediately followed by a closing bracket (\"]\").",
                ));
            }
        }
        let marker = self.span(from, self.pos);
        let item = Expr { kind: ExprKind::Item, span: marker };
        let each = if dot {
            self.attribute_steps(item, from, star)?
        } else {
            self.deeper()?;
            let each = self.postfix(item, from);
            self.depth -= 1;
            each?
        };
        let span = source.span.to(each.span);
        Ok(Expr { kind: ExprKind::Splat(Box::new(source), Box::new(each)), span })
    }

    fn step(&self, expr: Expr, step: Step, start: usize) -> Expr {
        let span = expr.span.to(self.span(start, self.pos));
        let kind = match expr.kind {
            ExprKind::Traversal(mut t) => {
                t.steps.push(step);
                ExprKind::Traversal(t)
            }
            ExprKind::Relative(source, mut steps) => {
                steps.push(step);
                ExprKind::Relative(source, steps)
            }
            kind => ExprKind::Relative(Box::new(Expr { kind, span: expr.span }), vec![step]),
        };
        Expr { kind, span }
    }

    /// Parses a name or an index after the dot at `from`. Errors point at `place`.
    fn dot_step(&mut self, from: usize, place: Span) -> Parsed<Step> {
        if let Some(name) = self.identifier() {
            return Ok(Step::Attribute(Name { text: name.text, span: self.span(from, self.pos) }));
        }
        if !self.peek().is_some_and(|c| c.is_ascii_digit()) {
            return Err(self.error(
                "E0112",
                place,
                "Invalid attribute name",
                "An attribute name is required after a dot.",
            ));
        }
        let start = self.pos;
        self.pos += number_width(self.rest().as_bytes());
        let digits = &self.text[start..self.pos];
        if let Some((first, second)) = digits.split_once('.') {
            let detail = format!(
                "Two indexes behind each other cannot be written with dots. Use brackets instead: [{first}][{second}]."
            );
            return Err(self.error("E0112", place, "Invalid legacy index syntax", detail));
        }
        let number: Result<Number, _> = digits.parse();
        let span = self.span(from, self.pos);
        Ok(Step::Index(number.map_or(Value::NULL, Value::Num), span))
    }

    /// Parses the attributes after `.*`: neither brackets nor a further star.
    fn attribute_steps(&mut self, mut expr: Expr, start: usize, star: Span) -> Parsed<Expr> {
        loop {
            let here = self.pos;
            self.blanks();
            let from = self.pos;
            if !self.at(".") || self.at("...") {
                self.pos = here;
                return Ok(expr);
            }
            self.pos += 1;
            self.blanks();
            if self.at("*") {
                let span = self.next_span();
                return Err(self.error(
                    "E0112",
                    span,
                    "Nested splat expression not allowed",
                    "A splat expression (*) cannot be used inside another attribute-only splat expression; use [*].",
                ));
            }
            let step = self.dot_step(from, star)?;
            expr = self.step(expr, step, start);
        }
    }

    /// Parses `[key]`. The cursor is after the bracket, which is at `from`.
    fn index(&mut self, expr: Expr, start: usize, from: usize) -> Parsed<Expr> {
        self.newlines.push(true);
        self.blanks();
        let key = self.expression()?;
        self.blanks();
        if !self.eat("]") {
            let opening = self.span(from, from + 1);
            let here = self.next_span();
            let found = self.next_bracket();
            let failed = self.report(
                "E0112",
                found,
                "Missing close bracket on index",
                "The index operator must end with a closing bracket (\"]\").",
            );
            self.label_last(opening, "the index begins here");
            self.label_last(here, "it ends before this");
            return Err(failed);
        }
        self.newlines.pop();
        if let ExprKind::Literal(value) = key.kind {
            let step = Step::Index(value, self.span(from, self.pos));
            return Ok(self.step(expr, step, start));
        }
        self.link()?;
        let span = expr.span.to(self.span(from, self.pos));
        let mut expr = expr;
        if let ExprKind::Traversal(traversal) = &mut expr.kind {
            traversal.runtime = self.runtime_text(start, from).into();
        }
        Ok(Expr { kind: ExprKind::Index(Box::new(expr), Box::new(key)), span })
    }

    /// Moves to the closing bracket that the index seems to have, or to the end, where Nomad reports a missing
    /// bracket. Skips the token at the cursor.
    fn next_bracket(&mut self) -> Span {
        let errors = self.errors.len();
        let mut open = 0_usize;
        let mut skip = true;
        loop {
            self.blank_lines();
            let span = self.next_span();
            match self.peek() {
                None => {
                    self.errors.truncate(errors);
                    return span;
                }
                Some(']') if open == 0 && !skip => {
                    self.errors.truncate(errors);
                    return span;
                }
                Some('[') if !skip => open += 1,
                Some(']') if !skip => open -= 1,
                _ => {}
            }
            skip = false;
            let before = self.pos;
            if self.at("\"") && self.quoted_template().is_ok() {
                continue;
            }
            self.pos = before + token_width(self.rest_from(before)).max(1);
        }
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let start = self.pos;
        match self.peek() {
            Some('"') => self.quoted_template(),
            Some('<') if self.at("<<") => self.heredoc(),
            Some('(') => {
                self.pos += 1;
                self.newlines.push(true);
                self.blanks();
                let inner = self.expression()?;
                self.blanks();
                if !self.eat(")") {
                    let span = self.next_span();
                    return Err(self.error(
                        "E0113",
                        span,
                        "Unbalanced parentheses",
                        "Expected a closing parenthesis to terminate the expression.",
                    ));
                }
                self.newlines.pop();
                let span = self.span(start, self.pos);
                Ok(Expr { kind: ExprKind::Paren(Box::new(inner)), span })
            }
            Some('[') => self.tuple(),
            Some('{') => self.object(),
            Some(c) if c.is_ascii_digit() => self.number(),
            Some(c) if begins_name(c) => self.named(),
            Some('\n' | '\r') => {
                let span = self.next_span();
                Err(self.error(
                    "E0110",
                    span,
                    "Invalid expression",
                    "Expected the start of an expression, but found the end of the line.",
                ))
            }
            None => {
                let span = self.next_span();
                Err(self.error(
                    "E0110",
                    span,
                    "Missing expression",
                    "Expected the start of an expression, but found the end of the file.",
                ))
            }
            Some(_) => {
                if let Some(failed) = self.strange() {
                    return Err(failed);
                }
                let span = self.next_span();
                Err(self.error(
                    "E0110",
                    span,
                    "Invalid expression",
                    "Expected the start of an expression, but found an invalid expression token.",
                ))
            }
        }
    }

    fn number(&mut self) -> Parsed<Expr> {
        let start = self.pos;
        self.pos += number_width(self.rest().as_bytes());
        let span = self.span(start, self.pos);
        match self.text[start..self.pos].parse::<Number>() {
            Ok(number) => Ok(Expr { kind: ExprKind::Literal(Value::Num(number)), span }),
            Err(_) => Err(self.error(
                "E0114",
                span,
                "Invalid number literal",
                "This number is too large or too small.",
            )),
        }
    }

    fn named(&mut self) -> Parsed<Expr> {
        let start = self.pos;
        let Some(name) = self.identifier() else {
            let span = self.next_span();
            return Err(self.error("E0110", span, "Invalid expression", "Expected a name."));
        };
        let here = self.pos;
        self.blanks();
        if self.at("(") || self.at("::") {
            return self.call(name, start);
        }
        self.pos = here;
        let span = name.span;
        let literal = |value| Ok(Expr { kind: ExprKind::Literal(value), span });
        match name.text.as_str() {
            "true" => literal(Value::Bool(true)),
            "false" => literal(Value::Bool(false)),
            "null" => literal(Value::NULL),
            _ => {
                // The run time text is set after all steps are read.
                let traversal = Traversal { root: name, steps: Vec::new(), runtime: Box::default() };
                Ok(Expr { kind: ExprKind::Traversal(traversal), span })
            }
        }
    }

    fn call(&mut self, mut name: Name, start: usize) -> Parsed<Expr> {
        // Names may have namespaces, which contain no functions.
        while self.eat("::") {
            self.blanks();
            let Some(inner) = self.identifier() else {
                let span = self.next_span();
                return Err(self.error(
                    "E0115",
                    span,
                    "Missing function name",
                    "A function name is expected behind \"::\".",
                ));
            };
            name = Name { text: format!("{}::{}", name.text, inner.text), span: name.span.to(inner.span) };
            self.blanks();
        }
        if !self.eat("(") {
            let span = self.next_span();
            return Err(self.error(
                "E0115",
                span,
                "Missing open parenthesis",
                "An open parenthesis must follow the name of a function.",
            ));
        }
        let open = self.span(start, self.pos);
        self.newlines.push(true);
        let (mut arguments, mut expand) = (Vec::new(), false);
        loop {
            self.blanks();
            if self.eat(")") {
                break;
            }
            arguments.push(self.argument(open)?);
            self.blanks();
            let dots = self.next_span();
            if self.eat("...") {
                expand = true;
                self.blanks();
                if !self.eat(")") {
                    return Err(self.error("E0113", dots, "Missing closing parenthesis", "An expanded function argument (with ...) must be immediately followed by closing parentheses."));
                }
                break;
            }
            if self.eat(",") {
                continue;
            }
            if self.pos >= self.limit {
                return Err(self.error("E0113", open, "Unterminated function call", "There is no closing parenthesis for this function call before the end of the file. This may be caused by incorrect parenthesis nesting elsewhere in this file."));
            }
            if !self.at(")") {
                let span = self.next_span();
                return Err(self.error(
                    "E0113",
                    span,
                    "Missing argument separator",
                    "A comma is required to separate each function argument from the next.",
                ));
            }
        }
        self.newlines.pop();
        let span = self.span(start, self.pos);
        Ok(Expr { kind: ExprKind::Call { name, arguments, expand, open }, span })
    }

    /// Parses one argument of a call, or an element of a list. If the text ends instead, the error points at the open
    /// bracket too.
    pub(super) fn argument(&mut self, open: Span) -> Parsed<Expr> {
        let at_end = self.pos >= self.limit;
        let out = self.expression();
        if out.is_err() && at_end {
            self.label_last(open, "what begins here is not closed");
        }
        out
    }

    /// Returns the value of a run time reference (docs/reference/jobspec.md, section 2.5). It is the source text in
    /// `${}`, with its spaces if the reference is the whole interpolation.
    fn runtime_text(&self, start: usize, end: usize) -> String {
        let source = &self.text[start..end];
        let before = self.text[..start].trim_end_matches([' ', '\t']);
        let after = self.text[end..self.limit].trim_start_matches([' ', '\t']);
        if !before.ends_with("${") || before.ends_with("$${") || !after.starts_with('}') {
            return format!("${{{source}}}");
        }
        let open = before.len() - 2;
        let close = self.limit - after.len() + 1;
        // Nomad appends braces if more of them follow: one for the first, two for the second and so on. Existing jobs
        // depend on this, so it is kept.
        let more = self.text[close..self.limit].bytes().take_while(|b| *b == b'}').take(32).count();
        format!("{}{}", &self.text[open..close], "}".repeat(more * (more + 1) / 2))
    }
}
