//! The functions of the language (docs/reference/jobspec.md, section 2.4).

mod cidr;
mod collections;
mod datetime;
mod digest;
mod encoding;
mod files;
mod format;
mod numeric;
mod plugins;
mod powers;
mod rsa;
mod strings;
mod yaml;

use super::{Evaluated, Evaluator, Scope, fail, weight};
use crate::ast::{Expr, Name};
use crate::diag::nearest;
use crate::source::Span;
use crate::types::type_constraint;
use crate::value::{Type, Value, convert};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The permission of file functions: disabled, or within a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Files {
    /// File functions fail with "filesystem function disabled".
    Off,
    /// Paths are relative to this directory. Paths outside are refused.
    Within(PathBuf),
}

/// The set of functions that an expression may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Library {
    /// No function.
    None,
    /// The functions of job files.
    Jobs,
    /// The functions of plugins (docs/reference/drivers.md, section 7).
    Plugins,
}

impl Library {
    /// Returns the function with this name, unless it evaluates its arguments itself.
    fn by_name(self, name: &str) -> Option<&'static Function> {
        match self {
            Self::None => None,
            Self::Jobs => by_name(name),
            Self::Plugins if plugins::SHARED.contains(&name) => by_name(name),
            Self::Plugins => plugins::TABLE.iter().find(|f| f.name == name),
        }
    }

    /// Returns the function with the most similar name.
    fn nearest(self, name: &str) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Jobs => nearest(name, names()),
            Self::Plugins => {
                let own = plugins::TABLE.iter().map(|f| f.name);
                nearest(name, own.chain(plugins::SHARED.iter().copied()))
            }
        }
    }
}

/// The type of values that a parameter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum P {
    Str,
    Num,
    /// A list, or a value convertible to one: all elements are converted to one type.
    List,
    /// A set, or a value convertible to one.
    Set,
    /// A list of strings.
    Strs,
    /// Any value except null.
    Some,
    /// Any value.
    Any,
}

type Result<T> = std::result::Result<T, Failure>;

/// The reason that a function returned no value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    /// The number of the argument that caused the failure, if one did.
    argument: Option<usize>,
    text: String,
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self { argument: None, text }
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

/// Returns a failure that one argument caused.
fn blame(argument: usize, text: impl Into<String>) -> Failure {
    Failure { argument: Some(argument), text: text.into() }
}

/// A function of the language.
struct Function {
    name: &'static str,
    parameters: &'static [(&'static str, P)],
    /// The type of any further arguments.
    rest: Option<(&'static str, P)>,
    run: fn(&Files, Vec<Value>) -> Result<Value>,
    /// The work of a call beyond reading its arguments, in steps.
    work: fn(&[Value]) -> u64,
}

/// Returns the function with this name.
fn by_name(name: &str) -> Option<&'static Function> {
    static INDEX: OnceLock<HashMap<&'static str, &'static Function>> = OnceLock::new();
    INDEX.get_or_init(|| tables().into_iter().flatten().map(|f| (f.name, f)).collect()).get(name).copied()
}

const fn f(
    name: &'static str,
    parameters: &'static [(&'static str, P)],
    run: fn(&Files, Vec<Value>) -> Result<Value>,
) -> Function {
    Function { name, parameters, rest: None, run, work: |_| 0 }
}

const fn v(
    name: &'static str,
    parameters: &'static [(&'static str, P)],
    rest: (&'static str, P),
    run: fn(&Files, Vec<Value>) -> Result<Value>,
) -> Function {
    Function { name, parameters, rest: Some(rest), run, work: |_| 0 }
}

/// Functions that evaluate their arguments themselves.
const SPECIAL: [&str; 3] = ["can", "convert", "try"];

fn tables() -> [&'static [Function]; 10] {
    [
        collections::TABLE,
        strings::TABLE,
        format::TABLE,
        numeric::TABLE,
        encoding::TABLE,
        digest::TABLE,
        rsa::TABLE,
        datetime::TABLE,
        cidr::TABLE,
        files::TABLE,
    ]
}

/// Returns the names of all functions.
pub fn names() -> impl Iterator<Item = &'static str> {
    SPECIAL.into_iter().chain(tables().into_iter().flatten().map(|f| f.name))
}

/// Calls a function with one text, for languages that offer the same functions. File functions are disabled.
///
/// # Errors
/// No function has this name, or the function fails.
pub fn of_text(name: &str, text: &str) -> std::result::Result<Value, String> {
    match by_name(name) {
        Some(function) if matches!(function.parameters, [(_, P::Str)]) => {
            (function.run)(&Files::Off, vec![Value::str(text)]).map_err(|e| e.text)
        }
        _ => Err(format!("there is no function of one text named {name:?}")),
    }
}

/// A function call in the source.
pub(super) struct Call<'e> {
    pub name: &'e Name,
    pub arguments: &'e [Expr],
    pub expand: bool,
    pub open: Span,
    pub whole: &'e Expr,
}

pub(super) fn call(evaluator: &Evaluator, call: &Call<'_>, scope: &Scope) -> Evaluated<Value> {
    let Call { name, open, whole, .. } = *call;
    if evaluator.library == Library::Jobs && SPECIAL.contains(&name.text.as_str()) {
        return special(evaluator, call, scope);
    }
    let Some(function) = evaluator.library.by_name(&name.text) else {
        let mut error = fail(
            "E0220",
            name.span,
            "Call to unknown function",
            format!("There is no function named {:?}.", name.text),
        );
        error.hint = evaluator.library.nearest(&name.text).map(|n| format!("did you mean {n:?}?"));
        return Err(error);
    };
    let supplied = arguments(evaluator, call, scope)?;
    let names: Vec<&str> = function.parameters.iter().map(|p| p.0).collect();
    count(call, &supplied, &names, function.rest.is_none().then_some(names.len()))?;
    let spans: Vec<Span> = supplied.iter().map(Argument::start).collect();
    let parameter = |i: usize| function.parameters.get(i).copied().or(function.rest);
    let unsuitable = |i: usize, why: &str| {
        let (name, _) = parameter(i).unwrap_or(("", P::Any));
        let span = spans.get(i).copied().unwrap_or(open);
        let detail = format!("Invalid value for {name:?} parameter: {why}.");
        fail("E0223", span, "Invalid function argument", detail)
    };
    let mut ready = Vec::with_capacity(supplied.len());
    for (i, argument) in supplied.into_iter().enumerate() {
        let value = match argument {
            Argument::Expr(expr) => evaluator.eval(expr, scope)?,
            Argument::Value(value, _) => value,
        };
        let (_, desired) = parameter(i).unwrap_or(("", P::Any));
        ready.push(converted(value, desired).map_err(|e| unsuitable(i, &e))?);
    }
    for (i, value) in ready.iter().enumerate() {
        if value.is_null() && parameter(i).is_some_and(|(_, p)| p != P::Any) {
            return Err(unsuitable(i, "argument must not be null"));
        }
    }
    let work = ready.iter().fold(0, |sum, value| sum + weight(value));
    evaluator.charge(work + (function.work)(&ready), whole)?;
    (function.run)(&evaluator.files, ready).map_err(|e| match e.argument {
        Some(i) => unsuitable(i, &e.text),
        None => fail(
            "E0224",
            open,
            "Error in function call",
            format!("Call to function {:?} failed: {}.", name.text, e.text),
        ),
    })
}

/// An argument: an expression, or an element of an expanded argument.
enum Argument<'e> {
    Expr(&'e Expr),
    Value(Value, Span),
}

impl Argument<'_> {
    fn start(&self) -> Span {
        match self {
            Self::Expr(expr) => expr.start(),
            Self::Value(_, span) => *span,
        }
    }
}

/// Returns the arguments of a call, with the last one expanded if requested.
fn arguments<'e>(evaluator: &Evaluator, call: &Call<'e>, scope: &Scope) -> Evaluated<Vec<Argument<'e>>> {
    let mut supplied: Vec<Argument<'_>> = call.arguments.iter().map(Argument::Expr).collect();
    if call.expand
        && let Some(Argument::Expr(last)) = supplied.pop()
    {
        match evaluator.eval(last, scope)? {
            Value::Seq(.., items) => {
                supplied.extend(items.into_iter().map(|v| Argument::Value(v, last.span)))
            }
            _ => {
                return Err(fail(
                    "E0221",
                    last.span,
                    "Invalid expanding argument value",
                    "The expanding argument (indicated by ...) must be of a tuple, list, or set type.",
                ));
            }
        }
    }
    Ok(supplied)
}

/// Returns an error if a call has fewer arguments than parameters, or more than `most`.
fn count(
    call: &Call<'_>,
    supplied: &[Argument<'_>],
    parameters: &[&str],
    most: Option<usize>,
) -> Evaluated<()> {
    let (name, whole, fixed) = (&call.name.text, call.whole, parameters.len());
    if let Some(missing) = parameters.get(supplied.len()) {
        let close = Span { start: whole.span.end.saturating_sub(1), ..whole.span };
        let least = if most.is_none() { "at least " } else { "" };
        return Err(fail(
            "E0222",
            close,
            "Not enough function arguments",
            format!("Function {name:?} expects {least}{fixed} argument(s). Missing value for {missing:?}."),
        ));
    }
    match supplied.get(most.unwrap_or(usize::MAX)) {
        Some(extra) => Err(fail(
            "E0222",
            extra.start(),
            "Too many function arguments",
            format!("Function {name:?} expects only {fixed} argument(s)."),
        )),
        None => Ok(()),
    }
}

fn converted(value: Value, desired: P) -> std::result::Result<Value, String> {
    match desired {
        P::Str => convert(value, &Type::Str),
        P::Num => convert(value, &Type::Num),
        P::List => convert(value, &Type::List(Box::new(Type::Any))),
        P::Set => convert(value, &Type::Set(Box::new(Type::Any))),
        P::Strs => convert(value, &Type::List(Box::new(Type::Str))),
        P::Some | P::Any => Ok(value),
    }
}

/// Calls a function that evaluates its arguments itself.
fn special(evaluator: &Evaluator, call: &Call<'_>, scope: &Scope) -> Evaluated<Value> {
    let Call { name, open, .. } = *call;
    let supplied = arguments(evaluator, call, scope)?;
    let parameters: &[&str] = match name.text.as_str() {
        "can" => &["expression"],
        "convert" => &["value", "type"],
        _ => &[],
    };
    let variadic = parameters.is_empty();
    count(call, &supplied, parameters, (!variadic).then_some(parameters.len()))?;
    let value = |supplied: &Argument<'_>| match supplied {
        Argument::Expr(expr) => evaluator.eval(expr, scope),
        Argument::Value(value, _) => Ok(value.clone()),
    };
    match (name.text.as_str(), supplied.as_slice()) {
        ("can", [one]) => Ok(Value::Bool(value(one).is_ok())),
        ("convert", [from, Argument::Expr(to)]) => {
            let to = type_constraint(to)?;
            convert(value(from)?, &to).map_err(|e| {
                fail(
                    "E0223",
                    from.start(),
                    "Invalid function argument",
                    format!("Invalid value for \"value\" parameter: {e}."),
                )
            })
        }
        ("convert", [_, Argument::Value(_, at)]) => {
            Err(fail("E0301", *at, "Invalid type specification", "A type expression is required here."))
        }
        (_, all) => {
            let mut reasons = Vec::new();
            for argument in all {
                match value(argument) {
                    Ok(value) => return Ok(value),
                    Err(e) => reasons.push(e.detail),
                }
            }
            let why = match reasons.as_slice() {
                [] => "at least one argument is required".to_owned(),
                reasons => format!("no expression succeeded: {}", reasons.join("; ")),
            };
            Err(fail(
                "E0224",
                open,
                "Error in function call",
                format!("Call to function \"try\" failed: {why}"),
            ))
        }
    }
}

// Helpers with which the modules unpack arguments, whose types `argument` has checked.

fn text(value: &Value) -> String {
    match value {
        Value::Str(s) => s.to_string(),
        other => match convert(other.clone(), &Type::Str) {
            Ok(Value::Str(s)) => s.to_string(),
            _ => String::new(),
        },
    }
}

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Seq(.., items) => items,
        _ => Vec::new(),
    }
}

fn num(value: &Value) -> crate::value::Number {
    match value {
        Value::Num(n) => n.clone(),
        _ => crate::value::Number::ZERO,
    }
}

fn whole(value: &Value) -> Result<i64> {
    let wrong = || format!("value must be a whole number, between {} and {}", i64::MIN, i64::MAX);
    num(value).to_i64().ok_or_else(|| wrong().into())
}
