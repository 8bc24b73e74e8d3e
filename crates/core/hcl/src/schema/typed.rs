//! Converts values to the types of arguments.

use super::decode::Object;
use super::{Attribute, Holder, Kind};
use crate::duration::parse_duration;
use crate::value::{Number, Type, Value, convert};
use serde_json::Value as Json;
use std::ops::RangeInclusive;

const NULL: &str = "Unsuitable value: null value is not allowed";

/// Converts a value to the argument's type. Returns `None` for null, which means unset.
pub(super) fn typed(spec: &Attribute, value: Value) -> Result<Option<Json>, String> {
    let unsuitable = |e: String| format!("Unsuitable value: {e}");
    if spec.kind == Kind::Str
        && let Value::Str(text) = &value
    {
        return Ok(Some(Json::String(text.as_ref().to_owned())));
    }
    if spec.kind == Kind::Duration {
        return duration(value).map(Some);
    }
    if value.is_null() {
        return if spec.holder == Holder::Plain { Err(NULL.to_owned()) } else { Ok(None) };
    }
    let number = |v: Value| match convert(v, &Type::Num).map_err(unsuitable)? {
        Value::Num(n) => Ok(n),
        _ => Err(unsuitable("a number is required".to_owned())),
    };
    let json = match spec.kind {
        Kind::Str => convert(value, &Type::Str).map_err(unsuitable)?.to_json(),
        Kind::Bool => convert(value, &Type::Bool).map_err(unsuitable)?.to_json(),
        Kind::Int => whole(&number(value)?, i64::MIN..=i64::MAX)?,
        Kind::SmallInt => whole(&number(value)?, i64::from(i8::MIN)..=i64::from(i8::MAX))?,
        Kind::LowByte => {
            let [low, ..] = number(value)?.saturated().to_le_bytes();
            Json::from(i8::from_le_bytes([low]))
        }
        Kind::Byte => unsigned(&number(value)?, u64::from(u8::MAX))?,
        Kind::Port => unsigned(&number(value)?, u64::from(u16::MAX))?,
        Kind::Unsigned32 => unsigned(&number(value)?, u64::from(u32::MAX))?,
        Kind::Unsigned => unsigned(&number(value)?, u64::MAX)?,
        Kind::Duration => return duration(value).map(Some),
        Kind::Strings => elements(value, Type::Str, |item| Ok(item.to_json()))?,
        Kind::Ports => elements(value, Type::Num, |item| match item {
            Value::Num(n) => unsigned(n, u64::from(u16::MAX)),
            other => Ok(other.to_json()),
        })?,
        Kind::StringMap => match string_map(value)? {
            Some(map) => Json::Object(map),
            None => return Ok(None),
        },
    };
    Ok(Some(json))
}

fn duration(value: Value) -> Result<Json, String> {
    match value {
        Value::Null(_) => Err(NULL.to_owned()),
        Value::Str(s) => {
            parse_duration(&s).map(Json::from).map_err(|e| format!("Unsuitable duration value: {e}"))
        }
        Value::Num(n) => n.to_i64().map(Json::from).ok_or_else(|| {
            "Unsuitable value: a duration without a unit must be a whole number of nanoseconds".to_owned()
        }),
        other => Err(format!(
            "Unsuitable value: expected a duration such as \"30s\" but found {}",
            other.type_name()
        )),
    }
}

fn whole(n: &Number, range: RangeInclusive<i64>) -> Result<Json, String> {
    n.to_i64().filter(|n| range.contains(n)).map(Json::from).ok_or_else(|| {
        format!(
            "Unsuitable value: value must be a whole number, between {} and {}",
            range.start(),
            range.end()
        )
    })
}

fn unsigned(n: &Number, max: u64) -> Result<Json, String> {
    n.to_unsigned().filter(|n| *n <= max).map(Json::from).ok_or_else(|| {
        format!("Unsuitable value: value must be a whole number, between 0 and {max} inclusive")
    })
}

/// Reads a list whose elements are not null.
fn elements(value: Value, element: Type, read: fn(&Value) -> Result<Json, String>) -> Result<Json, String> {
    match convert(value, &Type::List(Box::new(element))).map_err(|e| format!("Unsuitable value: {e}"))? {
        Value::Seq(.., items) => {
            items.iter().map(|item| if item.is_null() { Err(NULL.to_owned()) } else { read(item) }).collect()
        }
        other => Ok(other.to_json()),
    }
}

/// Reads a map of strings. Returns `None` for null.
pub(super) fn string_map(value: Value) -> Result<Option<Object>, String> {
    match convert(value, &Type::Map(Box::new(Type::Str))).map_err(|e| format!("Unsuitable value: {e}"))? {
        Value::Map(.., map) => map
            .into_iter()
            .map(
                |(key, value)| {
                    if value.is_null() { Err(NULL.to_owned()) } else { Ok((key, value.to_json())) }
                },
            )
            .collect::<Result<_, _>>()
            .map(Some),
        _ => Ok(None),
    }
}
