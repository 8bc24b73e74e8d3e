//! Values as the kinds of arguments want them.

use serde_json::Value as Json;

use super::decode::Object;
use super::{Attribute, Kind};
use crate::duration::parse_duration;
use crate::value::{Number, Type, Value, convert};

/// The value as the argument's kind wants it; `None` for null, which means unset.
pub(super) fn typed(spec: &Attribute, value: Value) -> Result<Option<Json>, String> {
    let unsuitable = |e: String| format!("Unsuitable value: {e}");
    if spec.kind == Kind::Str
        && let Value::Str(text) = &value
    {
        return Ok(Some(Json::String(text.as_ref().to_owned())));
    }
    if value.is_null() {
        return match spec.kind {
            Kind::Duration => Err(unsuitable("null value is not allowed".to_owned())),
            _ => Ok(None),
        };
    }
    let number = |v: Value| match convert(v, &Type::Num).map_err(unsuitable)? {
        Value::Num(n) => Ok(n),
        _ => Err(unsuitable("a number is required".to_owned())),
    };
    let json = match spec.kind {
        Kind::Str => convert(value, &Type::Str).map_err(unsuitable)?.to_json(),
        Kind::Bool => convert(value, &Type::Bool).map_err(unsuitable)?.to_json(),
        Kind::Int => number(value)?.to_i64().map(Json::from).ok_or_else(|| {
            unsuitable(format!("value must be a whole number, between {} and {}", i64::MIN, i64::MAX))
        })?,
        Kind::Byte => {
            number(value)?.to_i64().and_then(|n| u8::try_from(n).ok()).map(Json::from).ok_or_else(|| {
                unsuitable("value must be a whole number, between 0 and 255 inclusive".to_owned())
            })?
        }
        Kind::SmallInt => {
            let n = number(value)?.truncate().to_i64();
            let n = n.ok_or_else(|| unsuitable("value must be a whole number".to_owned()))?;
            let [low, ..] = n.to_le_bytes();
            Json::from(i8::from_le_bytes([low]))
        }
        Kind::Unsigned => unsigned(number(value)?).ok_or_else(|| {
            unsuitable(format!("value must be a whole number, between 0 and {} inclusive", u64::MAX))
        })?,
        Kind::Duration => match value {
            Value::Str(s) => {
                Json::from(parse_duration(&s).map_err(|e| format!("Unsuitable duration value: {e}"))?)
            }
            Value::Num(n) => Json::from(n.to_i64().ok_or_else(|| {
                unsuitable("a duration without a unit must be a whole number of nanoseconds".to_owned())
            })?),
            other => {
                return Err(unsuitable(format!(
                    "expected a duration such as \"30s\" but found {}",
                    other.type_name()
                )));
            }
        },
        Kind::Strings => {
            let list = convert(value, &Type::List(Box::new(Type::Str))).map_err(unsuitable)?;
            if let Value::Seq(.., items) = &list
                && items.iter().any(Value::is_null)
            {
                return Err(unsuitable("null value is not allowed in a list of strings".to_owned()));
            }
            list.to_json()
        }
        Kind::UnsignedList => match convert(value, &Type::List(Box::new(Type::Num))).map_err(unsuitable)? {
            Value::Seq(.., items) => items
                .into_iter()
                .map(|v| match v {
                    Value::Num(n) => unsigned(n),
                    _ => None,
                })
                .collect::<Option<Vec<_>>>()
                .map(Json::Array)
                .ok_or_else(|| unsuitable("values must be whole numbers, not negative".to_owned()))?,
            other => other.to_json(),
        },
        Kind::StringMap => match string_map(value)? {
            Some(map) => Json::Object(map),
            None => return Ok(None),
        },
    };
    Ok(Some(json))
}

fn unsigned(n: Number) -> Option<Json> {
    n.to_i128().and_then(|n| u64::try_from(n).ok()).map(Json::from)
}

pub(super) fn string_map(value: Value) -> Result<Option<Object>, String> {
    match value {
        Value::Null(_) => Ok(None),
        Value::Map(.., map) => map
            .into_iter()
            .map(|(k, v)| match convert(v, &Type::Str) {
                Ok(Value::Null(_)) => Err("Unsuitable value: null value is not allowed".to_owned()),
                Ok(v) => Ok((k, v.to_json())),
                Err(e) => Err(format!("Unsuitable value: {e}")),
            })
            .collect::<Result<_, _>>()
            .map(Some),
        other => Err(format!("Unsuitable value: map of string required, but have {}", other.type_name())),
    }
}
