//! Evaluates expressions. The same input gives the same value on every machine, except for the random functions and
//! the file functions.

pub mod functions;
mod operators;
mod template;

use self::functions::{Files, Library};
use crate::ast::{Expr, ExprKind, For, Key, Step, Traversal};
use crate::diag::{Diagnostic, nearest};
use crate::source::Span;
use crate::value::{MapKind, Number, SeqKind, Type, Value, convert, normal, unify};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A value, or the diagnostic of a failed evaluation.
pub type Evaluated<T> = Result<T, Box<Diagnostic>>;

/// The work that one evaluation may do, because files may come from untrusted users. A step, a copied element and 64
/// bytes of processed text count as one each.
const MAX_STEPS: u64 = 4_000_000;

/// The name that the element of a splat is bound to. No identifier of the language equals it.
const ITEM: &str = "*";

/// The work that reading one block counts as.
const BLOCK_STEPS: u64 = 64;

/// The longest string that an evaluation may create, in bytes.
pub(crate) const MAX_STRING: usize = 16 << 20;

/// Names bound by `for` and `dynamic`, innermost first.
#[derive(Clone, Debug, Default)]
pub struct Scope(Option<Arc<Frame>>);

#[derive(Debug)]
struct Frame {
    name: String,
    value: Value,
    outer: Scope,
}

impl Scope {
    /// Returns this scope with one more name.
    #[must_use]
    pub fn with(&self, name: &str, value: Value) -> Self {
        Self(Some(Arc::new(Frame { name: name.to_owned(), value, outer: self.clone() })))
    }

    fn get(&self, name: &str) -> Option<&Value> {
        let mut frame = self.0.as_deref();
        while let Some(f) = frame {
            if f.name == name {
                return Some(&f.value);
            }
            frame = f.outer.0.as_deref();
        }
        None
    }
}

/// The treatment of a reference to an unknown root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum References {
    /// The reference is for run time and evaluates to its own source text (docs/reference/jobspec.md, section 2.5).
    Runtime,
    /// The reference is an error.
    Refused,
}

/// The variables, functions and limits of an evaluation.
#[derive(Debug)]
pub struct Evaluator {
    roots: BTreeMap<String, Value>,
    references: References,
    library: Library,
    files: Files,
    steps: Cell<u64>,
}

impl Evaluator {
    /// Creates an evaluator for literals: without variables and functions.
    #[must_use]
    pub fn literals() -> Self {
        Self {
            roots: BTreeMap::new(),
            references: References::Refused,
            library: Library::None,
            files: Files::Off,
            steps: Cell::new(0),
        }
    }

    /// Creates an evaluator for job files.
    #[must_use]
    pub fn new(files: Files) -> Self {
        Self { references: References::Runtime, library: Library::Jobs, files, ..Self::literals() }
    }

    /// Creates an evaluator for the schemas of plugins: without variables, with the functions that plugins may use.
    #[must_use]
    pub fn plugins() -> Self {
        Self { library: Library::Plugins, ..Self::literals() }
    }

    /// Sets a root name such as `var`.
    pub fn set_root(&mut self, name: &str, value: Value) {
        self.roots.insert(name.to_owned(), value);
    }

    /// Adds an attribute to a root that is an object.
    pub fn set_attribute(&mut self, root: &str, name: &str, value: Value) {
        if let Some(Value::Map(.., map)) = self.roots.get_mut(root) {
            map.insert(name.to_owned(), value);
        }
    }

    /// Returns the value of a root name.
    #[must_use]
    pub fn root(&self, name: &str) -> Option<&Value> {
        self.roots.get(name)
    }

    /// Evaluates an expression.
    ///
    /// # Errors
    /// The first problem, with its source range.
    pub fn eval(&self, expr: &Expr, scope: &Scope) -> Evaluated<Value> {
        self.charge(1, expr)?;
        match &expr.kind {
            ExprKind::Literal(value) => Ok(value.clone()),
            ExprKind::Paren(inner) | ExprKind::Wrapped(inner) | ExprKind::Embedded(inner) => {
                self.eval(inner, scope)
            }
            ExprKind::Template(parts) => template::render(self, parts, scope, expr),
            ExprKind::Traversal(traversal) => {
                let value = self.traversal(traversal, scope)?;
                self.charge(weight(&value), expr)?;
                Ok(value)
            }
            ExprKind::Relative(source, steps) => walk(self.eval(source, scope)?, steps),
            ExprKind::Index(source, key) => {
                let value = self.eval(source, scope)?;
                let index = self.eval(key, scope)?;
                step_index(value, &index, Span { start: source.span.end, ..expr.span })
            }
            ExprKind::Splat(source, each) => self.splat(source, each, scope),
            ExprKind::Item => {
                let item = scope.get(ITEM).cloned().unwrap_or(Value::NULL);
                self.charge(weight(&item), expr)?;
                Ok(item)
            }
            ExprKind::Call { name, arguments, expand, open } => {
                if self.library == Library::None {
                    return Err(fail(
                        "E0203",
                        name.span,
                        "Function calls not allowed",
                        "Functions may not be called here.",
                    ));
                }
                let call = functions::Call { name, arguments, expand: *expand, open: *open, whole: expr };
                functions::call(self, &call, scope)
            }
            ExprKind::Unary(operator, inner) => {
                operators::unary(*operator, self.eval(inner, scope)?, inner, expr)
            }
            ExprKind::Binary(operator, left, right) => {
                operators::binary(self, *operator, (left, right), expr, scope)
            }
            ExprKind::Conditional(condition, yes, no) => self.conditional(condition, yes, no, scope),
            ExprKind::Tuple(items) => {
                items.iter().map(|e| self.eval(e, scope)).collect::<Result<_, _>>().map(Value::tuple)
            }
            ExprKind::Object(items) => self.object(items, scope),
            ExprKind::For(inner) => self.for_expression(inner, scope),
        }
    }

    /// Counts work. Returns an error once the work exceeds the limit.
    fn charge(&self, work: u64, at: &Expr) -> Evaluated<()> {
        if self.spend(work) { Ok(()) } else { Err(Self::exhausted(at.start())) }
    }

    /// Counts the work of reading a block, whose result is larger than a value.
    pub(crate) fn charge_block(&self, at: Span) -> Evaluated<()> {
        if self.spend(BLOCK_STEPS) { Ok(()) } else { Err(Self::exhausted(at)) }
    }

    /// Counts work and returns whether it is within the limit.
    fn spend(&self, work: u64) -> bool {
        let steps = self.steps.get().saturating_add(work);
        self.steps.set(steps);
        steps <= MAX_STEPS
    }

    fn exhausted(at: Span) -> Box<Diagnostic> {
        fail(
            "E0209",
            at,
            "Evaluation too long",
            "This file takes too many evaluation steps; check its ranges and nested loops.",
        )
    }

    fn conditional(&self, condition: &Expr, yes: &Expr, no: &Expr, scope: &Scope) -> Evaluated<Value> {
        // Evaluate both sides for their types. An error in the side that is not chosen is ignored.
        let sides = (self.eval(yes, scope), self.eval(no, scope));
        let between = yes.span.to(no.span);
        let t = match &sides {
            // An untyped null takes the type of the other side.
            (Ok(Value::Null(Type::Any)), Ok(other)) | (Ok(other), Ok(Value::Null(Type::Any))) => Type::from_value(other),
            (Ok(yes), Ok(no)) => unify(&[Type::from_value(yes), Type::from_value(no)]).ok_or_else(|| {
                let detail = format!(
                    "The true and false result expressions must have consistent types. The results are {} and {}.",
                    yes.type_name(),
                    no.type_name(),
                );
                fail("E0204", between, "Inconsistent conditional result types", detail)
            })?,
            _ => Type::Any,
        };
        let which = self.truth(condition, scope, "Incorrect condition type", "Null condition")?;
        let value = if which { sides.0 } else { sides.1 }?;
        convert(value, &t).map_err(|e| fail("E0204", between, "Inconsistent conditional result types", e))
    }

    /// Applies `each` to all elements of a sequence. A value that is no sequence counts as one element, and null as
    /// none.
    fn splat(&self, source: &Expr, each: &Expr, scope: &Scope) -> Evaluated<Value> {
        let (kind, items) = match self.eval(source, scope)? {
            Value::Null(Type::List(_) | Type::Set(_) | Type::Tuple(_)) => {
                return Err(fail(
                    "E0201",
                    source.span,
                    "Splat of null value",
                    "Splat expressions (with the * symbol) cannot be applied to null sequences.",
                ));
            }
            Value::Null(_) => return Ok(Value::tuple(Vec::new())),
            Value::Seq(kind, t, items) => (Some((kind, t)), items),
            single => (None, vec![single]),
        };
        let mut out = Vec::with_capacity(items.len());
        for item in items {
            out.push(self.eval(each, &scope.with(ITEM, item))?);
        }
        match kind {
            Some((SeqKind::List | SeqKind::Set, t)) => {
                // Elements of one type give results of one type.
                let t = match out.first() {
                    Some(first) => Type::from_value(first),
                    None => self
                        .eval(each, &scope.with(ITEM, Value::Null(t.clone())))
                        .map_or(t, |v| Type::from_value(&v)),
                };
                Ok(Value::list(t, out))
            }
            _ => Ok(Value::tuple(out)),
        }
    }

    /// Evaluates a condition to a boolean.
    pub(crate) fn truth(&self, expr: &Expr, scope: &Scope, summary: &str, null: &str) -> Evaluated<bool> {
        let value = self.eval(expr, scope)?;
        if value.is_null() {
            let detail = "The condition value is null. Conditions must either be true or false.";
            return Err(fail("E0205", expr.span, null, detail));
        }
        match convert(value, &Type::Bool) {
            Ok(value) => Ok(value == Value::Bool(true)),
            Err(e) => Err(fail(
                "E0205",
                expr.span,
                summary,
                format!("The condition expression must be of type bool: {e}."),
            )),
        }
    }

    fn object(&self, items: &[(Key, Expr)], scope: &Scope) -> Evaluated<Value> {
        let mut out = BTreeMap::new();
        for (key, value) in items {
            let name = match key {
                Key::Name(name) => name.text.clone(),
                Key::Expr(expr) | Key::Json(expr) => {
                    self.key(expr, scope, value.span, ["Incorrect key type", "Null value as key"])?
                }
            };
            if let Key::Json(key) = key
                && out.contains_key(&name)
            {
                return Err(fail(
                    "E0208",
                    key.span,
                    "Duplicate object attribute",
                    format!("The object has an attribute {name:?} already."),
                ));
            }
            out.insert(name, self.eval(value, scope)?);
        }
        Ok(Value::object(out))
    }

    /// Evaluates a key. Messages about null point at `at`; the two summaries are for wrong types and for null.
    fn key(&self, expr: &Expr, scope: &Scope, at: Span, [wrong, null]: [&str; 2]) -> Evaluated<String> {
        let value = self.eval(expr, scope)?;
        if value.is_null() {
            return Err(fail("E0206", at, null, "Can't use a null value as a key."));
        }
        match convert(value, &Type::Str) {
            Ok(Value::Str(s)) => Ok(s.to_string()),
            Ok(_) => Ok(String::new()),
            Err(e) => Err(fail("E0206", expr.span, wrong, format!("Can't use this value as a key: {e}."))),
        }
    }

    fn for_expression(&self, f: &For, scope: &Scope) -> Evaluated<Value> {
        let collection = self.eval(&f.collection, scope)?;
        if collection.is_null() {
            return Err(fail(
                "E0207",
                f.collection.span,
                "Iteration over null value",
                "A null value cannot be used as the collection in a 'for' expression.",
            ));
        }
        let items = elements(collection).ok_or_else(|| {
            fail(
                "E0207",
                f.collection.span,
                "Iteration over non-iterable value",
                "A value of this type cannot be used as the collection in a 'for' expression.",
            )
        })?;
        let mut list = Vec::new();
        let mut map: BTreeMap<String, Value> = BTreeMap::new();
        let mut groups: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for (key, value) in items {
            let mut inner = scope.clone();
            if let Some(name) = &f.key {
                inner = inner.with(&name.text, key);
            }
            inner = inner.with(&f.value.text, value);
            if let Some(condition) = &f.condition
                && !self.truth(condition, &inner, "Invalid 'for' condition", "Condition is null")?
            {
                continue;
            }
            let Some(key_expr) = &f.key_expr else {
                list.push(self.eval(&f.value_expr, &inner)?);
                continue;
            };
            let key = self.key(key_expr, &inner, key_expr.span, ["Invalid object key"; 2])?;
            let value = self.eval(&f.value_expr, &inner)?;
            if f.group {
                groups.entry(key).or_default().push(value);
            } else if map.insert(key.clone(), value).is_some() {
                return Err(fail(
                    "E0208",
                    key_expr.span,
                    "Duplicate object key",
                    format!(
                        "Two different items produced the key {key:?} in this 'for' expression. If duplicates are expected, use the ellipsis (...) after the value expression to enable grouping by key."
                    ),
                ));
            }
        }
        Ok(match (&f.key_expr, f.group) {
            (None, _) => Value::tuple(list),
            (Some(_), true) => Value::object(groups.into_iter().map(|(k, v)| (k, Value::tuple(v))).collect()),
            (Some(_), false) => Value::object(map),
        })
    }

    fn traversal(&self, t: &Traversal, scope: &Scope) -> Evaluated<Value> {
        let root = scope.get(&t.root.text).or_else(|| self.roots.get(&t.root.text));
        match root {
            Some(mut value) => {
                // Follow as many steps as possible without copying, because roots hold large values.
                let mut steps = t.steps.as_slice();
                while let Some((step, rest)) = steps.split_first() {
                    let inner = match (value, step) {
                        (Value::Map(.., map), Step::Attribute(name)) => match map.get(&*normal(&name.text)) {
                            Some(inner) => inner,
                            None => return Err(missing(value, &name.text, name.span)),
                        },
                        (Value::Map(.., map), Step::Index(Value::Str(key), _)) => match map.get(&**key) {
                            Some(inner) => inner,
                            None => break,
                        },
                        _ => break,
                    };
                    (value, steps) = (inner, rest);
                }
                walk(value.clone(), steps)
            }
            None if self.references == References::Runtime => Ok(Value::str(&t.runtime)),
            None => {
                Err(fail("E0202", t.root.span, "Variables not allowed", "Variables may not be used here."))
            }
        }
    }
}

/// Returns the work of copying a value.
fn weight(value: &Value) -> u64 {
    match value {
        Value::Null(_) | Value::Bool(_) => 1,
        Value::Num(n) => 1 + n.digits_to_print() / 16,
        Value::Str(s) => 1 + s.len() as u64 / 64,
        Value::Seq(.., items) => items.iter().fold(1, |sum, v| sum + weight(v)),
        Value::Map(.., map) => map.iter().fold(1, |sum, (k, v)| sum + 1 + k.len() as u64 / 64 + weight(v)),
    }
}

/// Returns an evaluation error with a source range.
pub(crate) fn fail(
    code: &'static str,
    span: Span,
    summary: &str,
    detail: impl Into<String>,
) -> Box<Diagnostic> {
    Box::new(Diagnostic::error(code, span, summary, detail))
}

/// Returns the keys and values of a collection, or `None` for other values.
#[must_use]
pub fn elements(value: Value) -> Option<Vec<(Value, Value)>> {
    match value {
        Value::Seq(SeqKind::Set, _, items) => Some(items.into_iter().map(|v| (v.clone(), v)).collect()),
        Value::Seq(.., items) => {
            Some(items.into_iter().enumerate().map(|(i, v)| (Value::Num(Number::from(i)), v)).collect())
        }
        Value::Map(.., map) => Some(map.into_iter().map(|(k, v)| (Value::str(k), v)).collect()),
        _ => None,
    }
}

fn walk(mut value: Value, steps: &[Step]) -> Evaluated<Value> {
    for step in steps {
        value = match step {
            Step::Attribute(name) => step_attribute(value, &normal(&name.text), name.span)?,
            Step::Index(key, span) => step_index(value, key, *span)?,
        };
    }
    Ok(value)
}

/// Returns the error for a missing element of a map or object.
fn missing(value: &Value, name: &str, span: Span) -> Box<Diagnostic> {
    match value {
        Value::Map(MapKind::Object, _, map) => {
            let mut error = fail(
                "E0201",
                span,
                "Unsupported attribute",
                format!("This object does not have an attribute named {name:?}."),
            );
            if let Some(near) = nearest(name, map.keys().map(String::as_str)) {
                error.hint = Some(format!("there is one named {near:?}"));
            }
            error
        }
        _ => fail(
            "E0201",
            span,
            "Missing map element",
            format!("This map does not have an element with the key {name:?}."),
        ),
    }
}

fn step_attribute(value: Value, name: &str, span: Span) -> Evaluated<Value> {
    const SUMMARY: &str = "Unsupported attribute";
    match value {
        Value::Map(kind, t, mut map) => match map.remove(name) {
            Some(value) => Ok(value),
            None => Err(missing(&Value::Map(kind, t, map), name, span)),
        },
        Value::Null(_) => Err(fail(
            "E0201",
            span,
            "Attempt to get attribute from null value",
            "This value is null, so it does not have any attributes.",
        )),
        Value::Seq(..) => Err(fail(
            "E0201",
            span,
            SUMMARY,
            "This value is a list or tuple; take one element with an index, or use [*].",
        )),
        other => Err(fail(
            "E0201",
            span,
            SUMMARY,
            format!("Can't access attributes on a primitive-typed value ({}).", other.type_name()),
        )),
    }
}

fn step_index(value: Value, key: &Value, span: Span) -> Evaluated<Value> {
    const SUMMARY: &str = "Invalid index";
    match value {
        Value::Null(_) => Err(fail("E0201", span, "Attempt to index null value", "This value is null, so it does not have any indices.")),
        Value::Seq(SeqKind::Set, ..) => Err(fail("E0201", span, SUMMARY, "Elements of a set are identified only by their value and don't have any separate index or key to select with.")),
        Value::Seq(.., mut items) => {
            let index = match convert(key.clone(), &Type::Num) {
                Ok(Value::Num(n)) => n.to_i64(),
                _ => return Err(fail("E0201", span, SUMMARY, "The given key does not identify an element in this collection value: a number is required.")),
            };
            match index.and_then(|i| usize::try_from(i).ok()).filter(|i| *i < items.len()) {
                Some(i) => Ok(items.swap_remove(i)),
                None => Err(fail("E0201", span, SUMMARY, format!("The given key does not identify an element in this collection value: it has {} elements.", items.len()))),
            }
        }
        Value::Map(_, _, mut map) => match convert(key.clone(), &Type::Str) {
            Ok(Value::Str(name)) => map.remove(&*name).ok_or_else(|| {
                fail("E0201", span, SUMMARY, format!("The given key does not identify an element in this collection value: there is no {name:?}."))
            }),
            _ => Err(fail("E0201", span, SUMMARY, "The given key does not identify an element in this collection value: a string is required.")),
        },
        other => Err(fail("E0201", span, SUMMARY, format!("This value does not have any indices: it is a {}.", other.type_name()))),
    }
}

#[cfg(test)]
mod tests;
