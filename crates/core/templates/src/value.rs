//! The creation, the unpacking and the measurement of the values of templates.

use crate::limits;
use caravan_types::lookup::VariableStub;
use gotmpl::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The content of a map.
pub(crate) type Map = Arc<BTreeMap<Arc<str>, Value>>;

pub(crate) fn text(text: impl AsRef<str>) -> Value {
    Value::String(Arc::from(text.as_ref()))
}

pub(crate) fn texts<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> Value {
    Value::List(items.into_iter().map(text).collect())
}

pub(crate) fn map<K: AsRef<str>>(pairs: impl IntoIterator<Item = (K, Value)>) -> Value {
    Value::Map(Arc::new(pairs.into_iter().map(|(key, value)| (Arc::from(key.as_ref()), value)).collect()))
}

/// Returns an unsigned number as a value, which may be too large for a signed one.
pub(crate) fn number(n: u64) -> Value {
    i64::try_from(n).map_or(Value::Uint(n), Value::Int)
}

/// Returns the metadata of a variable as a value.
pub(crate) fn of_stub(stub: &VariableStub) -> Value {
    map([
        ("Namespace", text(stub.namespace.as_str())),
        ("Path", text(&stub.path)),
        ("CreateIndex", number(stub.create_index)),
        ("ModifyIndex", number(stub.modify_index)),
        ("CreateTime", Value::Int(stub.create_time.0)),
        ("ModifyTime", Value::Int(stub.modify_time.0)),
    ])
}

/// Subtracts the size of a value from `left`. The depth and `left` bound the work, even for a value that contains the
/// same part many times.
pub(crate) fn weigh(value: &Value, depth: usize, left: &mut u64) -> Result<(), &'static str> {
    let mut take = |bytes: usize| {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(16);
        *left = left.checked_sub(bytes).ok_or("a value is too large")?;
        Ok(())
    };
    if depth > limits::DEPTH {
        return Err("a value nests too deeply");
    }
    match value {
        Value::String(text) => take(text.len()),
        Value::List(items) => {
            take(0)?;
            items.iter().try_for_each(|item| weigh(item, depth + 1, left))
        }
        Value::Map(items) => {
            take(0)?;
            for (key, item) in items.iter() {
                weigh(&Value::String(Arc::clone(key)), depth + 1, left)?;
                weigh(item, depth + 1, left)?;
            }
            Ok(())
        }
        _ => take(0),
    }
}

/// Formats a value as it would be printed.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_string(),
        Value::Nil => String::new(),
        other => other.to_string(),
    }
}

/// Returns a text argument.
pub(crate) fn as_text(value: &Value) -> Result<&str, String> {
    match value {
        Value::String(text) => Ok(text),
        // A value that is still missing.
        Value::Nil => Ok(""),
        other => Err(format!("a string is needed, not a value of type {}", other.type_name())),
    }
}

/// Returns a list argument.
pub(crate) fn as_list(value: &Value) -> Result<Vec<Value>, String> {
    match value {
        Value::List(items) => Ok(items.to_vec()),
        Value::Nil => Ok(Vec::new()),
        other => Err(format!("a list is needed, not a value of type {}", other.type_name())),
    }
}

/// Returns a map argument.
pub(crate) fn as_map(value: &Value) -> Result<Map, String> {
    match value {
        Value::Map(items) => Ok(Arc::clone(items)),
        Value::Nil => Ok(Map::default()),
        other => Err(format!("a map is needed, not a value of type {}", other.type_name())),
    }
}

/// Returns an integer argument, which may be a text.
pub(crate) fn as_int(value: &Value) -> Result<i64, String> {
    let wrong = || "a whole number is needed".to_owned();
    match value {
        Value::Int(n) => Ok(*n),
        Value::Uint(n) => i64::try_from(*n).map_err(|_| wrong()),
        #[expect(clippy::cast_possible_truncation, reason = "just found to be whole and small enough")]
        Value::Float(f) if f.fract() == 0.0 && f.abs() < 9e15 => Ok(*f as i64),
        Value::String(text) => text.trim().parse().map_err(|_| wrong()),
        Value::Bool(b) => Ok(i64::from(*b)),
        Value::Nil => Ok(0),
        _ => Err(wrong()),
    }
}

/// Returns a number argument, which may be a text.
pub(crate) fn as_float(value: &Value) -> Result<f64, String> {
    let wrong = || "a number is needed".to_owned();
    match value {
        #[expect(clippy::cast_precision_loss, reason = "what Go's conversion does")]
        Value::Int(n) => Ok(*n as f64),
        #[expect(clippy::cast_precision_loss, reason = "what Go's conversion does")]
        Value::Uint(n) => Ok(*n as f64),
        Value::Float(f) => Ok(*f),
        Value::String(text) => text.trim().parse().map_err(|_| wrong()),
        Value::Nil => Ok(0.0),
        _ => Err(wrong()),
    }
}

/// Returns a length or count argument, limited to the maximum length of a list.
pub(crate) fn as_count(value: &Value) -> Result<usize, String> {
    let n = as_int(value)?;
    usize::try_from(n.max(0))
        .ok()
        .filter(|n| *n <= usize::try_from(limits::VALUE / 16).unwrap_or(usize::MAX))
        .ok_or_else(|| format!("{n} is too many"))
}

/// Returns whether two values are equal. Numbers of different types are compared as numbers.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (
            Value::Int(_) | Value::Uint(_) | Value::Float(_),
            Value::Int(_) | Value::Uint(_) | Value::Float(_),
        ) => as_int(a).ok().zip(as_int(b).ok()).map_or_else(|| as_float(a) == as_float(b), |(a, b)| a == b),
        _ => a == b,
    }
}
