//! The functions of the language (jobspec.md 2.4).

mod bcrypt;
mod cidr;
mod collections;
mod datetime;
mod digest;
mod encoding;
mod files;
mod format;
mod numeric;
mod rsa;
mod strings;
mod yaml;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use super::{Evaluated, Evaluator, Scope, fail, weight};
use crate::ast::{Expr, Name};
use crate::diag::nearest;
use crate::source::Span;
use crate::types::type_expression;
use crate::value::{Type, Value, convert};

/// Whether file functions work, and where they may look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Files {
    /// They fail with "filesystem function disabled".
    Off,
    /// Relative to this directory, and never out of it.
    Within(PathBuf),
}

/// What a parameter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum P {
    Str,
    Num,
    /// A list, set or tuple.
    Seq,
    /// A list, or what can be made one: all elements get one type.
    List,
    /// A set, or what can be made one.
    Set,
    /// A list of strings.
    Strs,
    /// A map or an object.
    Map,
    /// Anything but null.
    Some,
    /// Anything.
    Any,
}

type Result<T> = std::result::Result<T, String>;

/// One function.
struct Function {
    name: &'static str,
    parameters: &'static [(&'static str, P)],
    /// Any number more of these.
    rest: Option<(&'static str, P)>,
    run: fn(&Files, Vec<Value>) -> Result<Value>,
    /// What it takes beyond going through its arguments, in steps.
    work: fn(&[Value]) -> u64,
}

/// The function of a name.
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

/// Functions whose arguments are not evaluated first.
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

/// The names of all functions.
pub fn names() -> impl Iterator<Item = &'static str> {
    SPECIAL.into_iter().chain(tables().into_iter().flatten().map(|f| f.name))
}

/// Calls a function of one text, for languages that offer the same ones; file functions are off.
///
/// # Errors
/// If there is no such function, or what it says.
pub fn of_text(name: &str, text: &str) -> Result<Value> {
    match by_name(name) {
        Some(function) if matches!(function.parameters, [(_, P::Str)]) => {
            (function.run)(&Files::Off, vec![Value::str(text)])
        }
        _ => Err(format!("there is no function of one text named {name:?}")),
    }
}

/// A call as it is written.
pub(super) struct Call<'e> {
    pub name: &'e Name,
    pub arguments: &'e [Expr],
    pub expand: bool,
    pub open: Span,
    pub whole: &'e Expr,
}

pub(super) fn call(evaluator: &Evaluator, call: &Call<'_>, scope: &Scope) -> Evaluated<Value> {
    let Call { name, arguments, expand, open, whole } = *call;
    if SPECIAL.contains(&name.text.as_str()) {
        return special(evaluator, name, arguments, open, scope);
    }
    let Some(function) = by_name(&name.text) else {
        let mut error = fail(
            "E0220",
            name.span,
            "Call to unknown function",
            format!("There is no function named {:?}.", name.text),
        );
        error.hint = nearest(&name.text, names()).map(|n| format!("did you mean {n:?}?"));
        return Err(error);
    };
    let mut values = Vec::with_capacity(arguments.len());
    for (i, argument) in arguments.iter().enumerate() {
        let value = evaluator.eval(argument, scope)?;
        match value {
            Value::Seq(.., items) if expand && i + 1 == arguments.len() => {
                values.extend(items.into_iter().map(|v| (v, argument.start())));
            }
            _ if expand && i + 1 == arguments.len() => {
                return Err(fail(
                    "E0221",
                    argument.span,
                    "Invalid expanding argument value",
                    "The expanding argument (indicated by ...) must be of a tuple, list, or set type.",
                ));
            }
            value => values.push((value, argument.start())),
        }
    }
    let fixed = function.parameters.len();
    if values.len() < fixed {
        let missing = function.parameters.get(values.len()).map_or("", |p| p.0);
        let close = Span { start: whole.span.end.saturating_sub(1), ..whole.span };
        let least = if function.rest.is_some() { "at least " } else { "" };
        return Err(fail(
            "E0222",
            close,
            "Not enough function arguments",
            format!(
                "Function {:?} expects {least}{fixed} argument(s). Missing value for {missing:?}.",
                name.text
            ),
        ));
    }
    if values.len() > fixed && function.rest.is_none() {
        return Err(fail(
            "E0222",
            values[fixed].1,
            "Too many function arguments",
            format!("Function {:?} expects only {fixed} argument(s).", name.text),
        ));
    }
    let mut ready = Vec::with_capacity(values.len());
    for (i, (value, span)) in values.into_iter().enumerate() {
        let Some((parameter, wanted)) = function.parameters.get(i).copied().or(function.rest) else {
            continue;
        };
        ready.push(argument(value, wanted).map_err(|e| {
            fail(
                "E0223",
                span,
                "Invalid function argument",
                format!("Invalid value for {parameter:?} parameter: {e}."),
            )
        })?);
    }
    let work = ready.iter().fold(0, |sum, value| sum + weight(value));
    evaluator.charge(work + (function.work)(&ready), whole)?;
    (function.run)(&evaluator.files, ready).map_err(|e| {
        fail(
            "E0224",
            open,
            "Error in function call",
            format!("Call to function {:?} failed: {e}.", name.text),
        )
    })
}

fn argument(value: Value, wanted: P) -> Result<Value> {
    if value == Value::Null && wanted != P::Any {
        return Err("argument must not be null".to_owned());
    }
    match wanted {
        P::Str => convert(value, &Type::Str),
        P::Num => convert(value, &Type::Num),
        P::Seq => match value {
            Value::Seq(..) => Ok(value),
            other => Err(format!("list required, but have {}", other.type_name())),
        },
        P::List => convert(value, &Type::List(Box::new(Type::Any))),
        P::Set => convert(value, &Type::Set(Box::new(Type::Any))),
        P::Strs => convert(value, &Type::List(Box::new(Type::Str))),
        P::Map => match value {
            Value::Map(..) => Ok(value),
            other => Err(format!("map required, but have {}", other.type_name())),
        },
        P::Some | P::Any => Ok(value),
    }
}

fn special(
    evaluator: &Evaluator,
    name: &Name,
    arguments: &[Expr],
    open: Span,
    scope: &Scope,
) -> Evaluated<Value> {
    let wrong = |n: &str| {
        fail(
            "E0222",
            open,
            "Wrong number of function arguments",
            format!("Function {:?} expects {n}.", name.text),
        )
    };
    match (name.text.as_str(), arguments) {
        ("can", [one]) => Ok(Value::Bool(evaluator.eval(one, scope).is_ok())),
        ("can", _) => Err(wrong("one argument")),
        ("convert", [value, to]) => {
            let to = type_expression(to)?;
            let from = evaluator.eval(value, scope)?;
            convert(from, &to).map_err(|e| {
                fail(
                    "E0223",
                    value.start(),
                    "Invalid function argument",
                    format!("Invalid value for \"value\" parameter: {e}."),
                )
            })
        }
        ("convert", _) => Err(wrong("a value and a type")),
        (_, []) => Err(wrong("at least one argument")),
        (_, all) => {
            let mut reasons = Vec::new();
            for argument in all {
                match evaluator.eval(argument, scope) {
                    Ok(value) => return Ok(value),
                    Err(e) => reasons.push(e.detail),
                }
            }
            Err(fail(
                "E0224",
                open,
                "Error in function call",
                format!("Call to function \"try\" failed: no expression succeeded: {}", reasons.join("; ")),
            ))
        }
    }
}

// What the modules share to take their arguments apart. Types were checked by `argument`.

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
    num(value).to_i64().ok_or_else(|| "a whole number is required".to_owned())
}

/// Elements as strings.
fn string_items(value: Value) -> Result<Vec<String>> {
    items(value)
        .into_iter()
        .map(|v| match convert(v, &Type::Str) {
            Ok(Value::Str(s)) => Ok(s.to_string()),
            Ok(_) => Err("elements must not be null".to_owned()),
            Err(e) => Err(e),
        })
        .collect()
}
