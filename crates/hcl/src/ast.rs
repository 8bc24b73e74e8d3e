//! The tree that every notation (HCL2, HCL-JSON, HCL1) is parsed to. Each node knows its place.

use std::sync::Arc;

use crate::parse::json::JsonBody;
use crate::source::Span;
use crate::value::Value;

/// What stands between braces, or a whole file.
#[derive(Debug, Clone, Default)]
pub struct Body {
    /// `name = expression`.
    pub attributes: Vec<Attribute>,
    /// `kind "label" { ... }`.
    pub blocks: Vec<Block>,
    /// With the braces.
    pub span: Span,
    /// Set where the notation is HCL-JSON: what is a block there only the schema tells.
    pub json: Option<Arc<JsonBody>>,
}

impl Body {
    /// Returns the place where a missing argument is reported.
    #[must_use]
    pub fn missing(&self) -> Span {
        self.json.as_ref().map_or_else(|| self.span.at_start(), |json| json.missing())
    }
}

/// A name and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The text, without quotes.
    pub text: String,
    /// With quotes, if any.
    pub span: Span,
}

/// `name = expression`.
#[derive(Debug, Clone)]
pub struct Attribute {
    /// The name.
    pub name: Name,
    /// The expression.
    pub value: Expr,
}

/// `kind "label" { ... }`.
#[derive(Debug, Clone)]
pub struct Block {
    /// The kind of block.
    pub kind: Name,
    /// Its labels.
    pub labels: Vec<Name>,
    /// What is inside.
    pub body: Body,
    /// The place that messages about the block name: from the kind to the last label, and in JSON the bracket or
    /// brace that opens the block.
    pub header: Span,
}

impl Block {
    /// Makes a block of the native notation.
    #[must_use]
    pub fn new(kind: Name, labels: Vec<Name>, body: Body) -> Self {
        let header = labels.last().map_or(kind.span, |label| kind.span.to(label.span));
        Self { kind, labels, body, header }
    }

    /// The opening brace.
    #[must_use]
    pub fn brace(&self) -> Span {
        let start = self.body.span.start;
        Span { start, end: (start + 1).min(self.body.span.end), ..self.body.span }
    }
}

/// An expression and its place.
#[derive(Debug, Clone)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// All of it.
    pub span: Span,
}

/// Kinds of expressions.
#[derive(Debug, Clone)]
pub enum ExprKind {
    /// A number, a truth value, null, or a whole string without templates.
    Literal(Value),
    /// A string or heredoc made of parts.
    Template(Vec<Part>),
    /// `"${x}"` alone: the value of `x`, whatever its type.
    Wrapped(Box<Expr>),
    /// A string of HCL-JSON and the template in it.
    Embedded(Box<Expr>),
    /// `root.step[0].step`.
    Traversal(Traversal),
    /// Steps after something that is not a name.
    Relative(Box<Expr>, Vec<Step>),
    /// `collection[key]` with a key that is not a literal.
    Index(Box<Expr>, Box<Expr>),
    /// `source.*` or `source[*]`, and what is done with each element.
    Splat(Box<Expr>, Box<Expr>),
    /// The element that the innermost splat is at.
    Item,
    /// `name(arguments)`, the last one perhaps with `...`.
    Call {
        /// The function.
        name: Name,
        /// The arguments.
        arguments: Vec<Expr>,
        /// Whether the last argument is spread.
        expand: bool,
        /// Name and opening parenthesis.
        open: Span,
    },
    /// `-x`, `!x`.
    Unary(Unary, Box<Expr>),
    /// `a + b`.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// `c ? a : b`.
    Conditional(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `[a, b]`.
    Tuple(Vec<Expr>),
    /// `{ k = v }`.
    Object(Vec<(Key, Expr)>),
    /// `[for ...]` and `{for ...}`.
    For(Box<For>),
    /// `(x)`.
    Paren(Box<Expr>),
}

/// The key of an object item.
#[derive(Debug, Clone)]
pub enum Key {
    /// A bare name stands for itself.
    Name(Name),
    /// Anything else is evaluated.
    Expr(Expr),
    /// A name in HCL-JSON, which stands once in its object.
    Json(Expr),
}

/// `[for k, v in c : k => v... if cond]`.
#[derive(Debug, Clone)]
pub struct For {
    /// First of two names.
    pub key: Option<Name>,
    /// The last name.
    pub value: Name,
    /// What is walked.
    pub collection: Expr,
    /// Present in the `{}` form.
    pub key_expr: Option<Expr>,
    /// The result.
    pub value_expr: Expr,
    /// `if`.
    pub condition: Option<Expr>,
    /// `...`.
    pub group: bool,
}

/// A name followed by steps.
#[derive(Debug, Clone)]
pub struct Traversal {
    /// The first name.
    pub root: Name,
    /// What follows.
    pub steps: Vec<Step>,
    /// What the reference becomes when it is one for run time (docs/reference/jobspec.md, section 2.5): its own source text.
    pub runtime: Box<str>,
}

/// One step of a traversal.
#[derive(Debug, Clone)]
pub enum Step {
    /// `.name`.
    Attribute(Name),
    /// `[literal]` or `.0`.
    Index(Value, Span),
}

impl Step {
    /// The place, with the dot or the brackets.
    #[must_use]
    pub fn span(&self) -> Span {
        match self {
            Self::Attribute(name) => name.span,
            Self::Index(_, span) => *span,
        }
    }
}

/// Unary operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unary {
    /// `-`
    Minus,
    /// `!`
    Not,
}

/// Binary operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Binary {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// A part of a template.
#[derive(Debug, Clone)]
pub enum Part {
    /// Text as it will be.
    Text(String, Span),
    /// `${x}`.
    Interpolation(Expr),
    /// `%{ if c }...%{ else }...%{ endif }`.
    If(Expr, Vec<Part>, Vec<Part>),
    /// `%{ for k, v in c }...%{ endfor }`.
    For {
        /// First of two names.
        key: Option<Name>,
        /// The last name.
        value: Name,
        /// What is walked.
        collection: Expr,
        /// What is repeated.
        body: Vec<Part>,
    },
}

impl Expr {
    /// The place that messages point at: the first token or so, as the reference does.
    #[must_use]
    pub fn start(&self) -> Span {
        match &self.kind {
            ExprKind::Template(parts) => match parts.first() {
                Some(Part::Text(_, span)) => *span,
                Some(Part::Interpolation(e)) => e.start(),
                _ => self.span,
            },
            ExprKind::Relative(source, _) | ExprKind::Index(source, _) | ExprKind::Splat(source, _) => {
                source.start()
            }
            ExprKind::Call { open, .. } => *open,
            ExprKind::Binary(_, first, _) | ExprKind::Paren(first) => first.start(),
            ExprKind::Conditional(condition, ..) => condition.start(),
            ExprKind::Unary(..) | ExprKind::Tuple(_) | ExprKind::Object(_) | ExprKind::For(_) => {
                Span { end: (self.span.start + 1).min(self.span.end), ..self.span }
            }
            // An empty string is behind its quotes.
            ExprKind::Literal(Value::Str(_)) if self.span.end - self.span.start == 2 => {
                Span { start: self.span.end, ..self.span }
            }
            ExprKind::Literal(Value::Str(_)) if self.span.end - self.span.start > 2 => {
                Span { start: self.span.start + 1, end: self.span.end - 1, ..self.span }
            }
            ExprKind::Literal(_)
            | ExprKind::Traversal(_)
            | ExprKind::Wrapped(_)
            | ExprKind::Embedded(_)
            | ExprKind::Item => self.span,
        }
    }
}
