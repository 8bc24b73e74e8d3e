//! The syntax tree of every notation (HCL2, HCL-JSON, HCL1). Each node has its source span.

use crate::parse::json::JsonBody;
use crate::source::Span;
use crate::value::Value;
use std::sync::Arc;

/// The content of a block or of a whole file.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// The arguments, in source order.
    pub attributes: Vec<Attribute>,
    /// The blocks, in source order.
    pub blocks: Vec<Block>,
    /// The source range, including the braces.
    pub span: Span,
    /// The JSON value, if the notation is HCL-JSON: only a schema distinguishes blocks from arguments there.
    pub json: Option<Arc<JsonBody>>,
}

impl Body {
    /// Returns the place where a missing argument is reported.
    #[must_use]
    pub fn missing(&self) -> Span {
        self.json.as_ref().map_or_else(|| self.span.at_start(), |json| json.missing())
    }
}

/// A name with its source range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The text, without quotes.
    pub text: String,
    /// The source range, including quotes.
    pub span: Span,
}

/// `name = expression`.
#[derive(Clone, Debug)]
pub struct Attribute {
    /// The argument's name.
    pub name: Name,
    /// The expression that the argument is set to.
    pub value: Expr,
}

/// `kind "label" { ... }`.
#[derive(Clone, Debug)]
pub struct Block {
    /// The kind of block.
    pub kind: Name,
    /// The labels, in source order.
    pub labels: Vec<Name>,
    /// The content between the braces.
    pub body: Body,
    /// The range that messages about the block point at: from the kind to the last label. In JSON, the bracket or
    /// brace that opens the block.
    pub header: Span,
}

impl Block {
    /// Creates a block of the native notation.
    #[must_use]
    pub fn new(kind: Name, labels: Vec<Name>, body: Body) -> Self {
        let header = labels.last().map_or(kind.span, |label| kind.span.to(label.span));
        Self { kind, labels, body, header }
    }

    /// Returns the range of the opening brace.
    #[must_use]
    pub fn brace(&self) -> Span {
        let start = self.body.span.start;
        Span { start, end: (start + 1).min(self.body.span.end), ..self.body.span }
    }
}

/// An expression with its source range.
#[derive(Clone, Debug)]
pub struct Expr {
    /// The kind of expression, with its parts.
    pub kind: ExprKind,
    /// The source range of the whole expression.
    pub span: Span,
}

/// Kinds of expressions.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// A number, a boolean, null, or a string without templates.
    Literal(Value),
    /// A string or heredoc with template parts.
    Template(Vec<Part>),
    /// `"${x}"` alone: the value of `x`, whatever its type.
    Wrapped(Box<Expr>),
    /// The template in a string of HCL-JSON.
    Embedded(Box<Expr>),
    /// `root.step[0].step`.
    Traversal(Traversal),
    /// Traversal steps after an expression that is not a name.
    Relative(Box<Expr>, Vec<Step>),
    /// `collection[key]` with a key that is not a literal.
    Index(Box<Expr>, Box<Expr>),
    /// `source.*` or `source[*]`: the source, and the expression for each element.
    Splat(Box<Expr>, Box<Expr>),
    /// The element of the innermost splat.
    Item,
    /// `name(arguments)`; the last argument may be followed by `...`.
    Call {
        /// The function's name.
        name: Name,
        /// The arguments.
        arguments: Vec<Expr>,
        /// Whether `...` expands the last argument.
        expand: bool,
        /// The range of the name and the opening parenthesis.
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
#[derive(Clone, Debug)]
pub enum Key {
    /// A bare name stands for itself.
    Name(Name),
    /// Any other key is evaluated.
    Expr(Expr),
    /// A property name in HCL-JSON, which must be unique in its object.
    Json(Expr),
}

/// `[for k, v in c : k => v... if cond]`.
#[derive(Clone, Debug)]
pub struct For {
    /// The first of two names, which is bound to the key.
    pub key: Option<Name>,
    /// The last name, which is bound to the value.
    pub value: Name,
    /// The collection to iterate over.
    pub collection: Expr,
    /// The key expression, present in the `{}` form.
    pub key_expr: Option<Expr>,
    /// The expression for each value.
    pub value_expr: Expr,
    /// The `if` condition.
    pub condition: Option<Expr>,
    /// Whether `...` groups values with the same key.
    pub group: bool,
}

/// A name followed by steps.
#[derive(Clone, Debug)]
pub struct Traversal {
    /// The first name, which selects a root such as `var`.
    pub root: Name,
    /// The steps after the root.
    pub steps: Vec<Step>,
    /// The value of a run time reference (docs/reference/jobspec.md, section 2.5): its own source text.
    pub runtime: Box<str>,
}

/// One step of a traversal.
#[derive(Clone, Debug)]
pub enum Step {
    /// `.name`.
    Attribute(Name),
    /// `[literal]` or `.0`.
    Index(Value, Span),
}

impl Step {
    /// Returns the source range, including the dot or the brackets.
    #[must_use]
    pub fn span(&self) -> Span {
        match self {
            Self::Attribute(name) => name.span,
            Self::Index(_, span) => *span,
        }
    }
}

/// Unary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// `-`
    Minus,
    /// `!`
    Not,
}

/// Binary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug)]
pub enum Part {
    /// Literal text, unescaped.
    Text(String, Span),
    /// `${x}`.
    Interpolation(Expr),
    /// `%{ if c }...%{ else }...%{ endif }`.
    If(Expr, Vec<Part>, Vec<Part>),
    /// `%{ for k, v in c }...%{ endfor }`.
    For {
        /// The first of two names, which is bound to the key.
        key: Option<Name>,
        /// The last name, which is bound to the value.
        value: Name,
        /// The collection to iterate over.
        collection: Expr,
        /// The parts to repeat.
        body: Vec<Part>,
    },
}

impl Expr {
    /// Returns the range that messages point at, usually the first token, as in Nomad.
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
            // An empty string starts after its opening quote.
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
