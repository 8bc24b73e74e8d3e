//! The decoder of request bodies: keys match without regard to case, unknown keys are ignored, `null` means unset.
//! Errors have the words that API clients expect (docs/reference/http-api.md, sections 1.8 and 2.3).

mod syntax;

use std::collections::BTreeMap;

pub use self::syntax::complaint;

use serde_json::{Map, Value};

/// The reason why a request body cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The body has only blanks.
    #[error("EOF")]
    Empty,
    /// The body is not JSON, or is cut short.
    #[error("{0}")]
    Syntax(String),
    /// The JSON of a field is of the wrong type.
    #[error("json: cannot unmarshal {found} into Go {target} of type {expected}")]
    Type {
        /// The found type or value: `string`, `number 1.5`, `object`, ...
        found: String,
        /// The place: `struct field Task.TaskGroups.Tasks.KillTimeout`, or `value`.
        target: String,
        /// The expected type, as the reference names it.
        expected: &'static str,
    },
    /// The text of a field is not base64.
    #[error("illegal base64 data in {0}")]
    Base64(String),
}

/// A type that can be read from a request body.
pub trait ApiValue: Sized {
    /// The name of the type in error texts.
    const TYPE: &'static str;

    /// Reads the value. The caller handles `null`, except inside lists and maps.
    ///
    /// # Errors
    /// Fails if the value is of another JSON type.
    fn read(value: &Value, at: &mut Place) -> Result<Self, DecodeError>;

    /// Reads a value that the caller does not need any more, so that its parts are moved.
    ///
    /// # Errors
    /// As [`ApiValue::read`].
    fn take(value: Value, at: &mut Place) -> Result<Self, DecodeError> {
        Self::read(&value, at)
    }
}

/// The position of the reader in the body, for error texts only.
#[derive(Debug, Default)]
pub struct Place {
    owner: &'static str,
    path: Vec<&'static str>,
}

impl Place {
    /// Runs `read` one field deeper.
    ///
    /// # Errors
    /// Returns the error of `read`.
    pub fn inside<T>(
        &mut self,
        owner: &'static str,
        key: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let outer = std::mem::replace(&mut self.owner, owner);
        self.path.push(key);
        let out = read(self)?;
        self.path.pop();
        self.owner = outer;
        Ok(out)
    }

    /// Returns the error for a value of another type than `expected`.
    #[must_use]
    pub fn mismatch(&self, value: &Value, expected: &'static str) -> DecodeError {
        let found = match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::Number(n) if matches!(expected, "string" | "bool") || expected.starts_with(['[', 'm']) => {
                let _ = n;
                "number".to_owned()
            }
            Value::Number(n) => format!("number {n}"),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        let target = if self.path.is_empty() {
            "value".to_owned()
        } else {
            format!("struct field {}.{}", self.owner, self.path.join("."))
        };
        DecodeError::Type { found, target, expected }
    }
}

/// Returns the declared spelling of a key: the exact one, otherwise one that differs only in case.
#[must_use]
pub fn known(fields: &'static [&'static str], key: &str) -> Option<&'static str> {
    fields.iter().find(|f| **f == key).copied().or_else(|| respelt(fields, key))
}

/// Returns the declared spelling that differs from a key only in case.
#[must_use]
pub fn respelt(fields: &'static [&'static str], key: &str) -> Option<&'static str> {
    fields.iter().find(|f| f.eq_ignore_ascii_case(key) && **f != key).copied()
}

/// Reads the first JSON value of a request body. Text after the value is ignored, as in the reference.
///
/// # Errors
/// Fails if the body is empty, is not JSON, or has a value of the wrong type.
pub fn decode<T: ApiValue>(body: &[u8]) -> Result<T, DecodeError> {
    let mut values = serde_json::Deserializer::from_slice(body).into_iter::<Value>();
    match values.next() {
        None => Err(DecodeError::Empty),
        Some(Ok(value)) => T::take(value, &mut Place::default()),
        Some(Err(error)) => Err(DecodeError::Syntax(syntax_message(body, &error))),
    }
}

/// Reads a value that is already parsed.
///
/// # Errors
/// Fails if a value is of the wrong type.
pub fn from_value<T: ApiValue>(value: &Value) -> Result<T, DecodeError> {
    T::read(value, &mut Place::default())
}

/// Reads a parsed value that the caller does not need any more.
///
/// # Errors
/// Fails if a value is of the wrong type.
pub fn from_owned<T: ApiValue>(value: Value) -> Result<T, DecodeError> {
    T::take(value, &mut Place::default())
}

/// Returns the message for a syntax error. Errors that only this parser reports (nesting, numbers out of range) have
/// its texts.
fn syntax_message(body: &[u8], error: &serde_json::Error) -> String {
    complaint(body).unwrap_or_else(|| format!("invalid JSON: {error}"))
}

macro_rules! integers {
    ($($ty:ty = $name:literal, $get:ident);*) => {$(
        impl ApiValue for $ty {
            const TYPE: &'static str = $name;
            fn read(value: &Value, at: &mut Place) -> Result<Self, DecodeError> {
                value
                    .$get()
                    .and_then(|n| Self::try_from(n).ok())
                    .ok_or_else(|| at.mismatch(value, Self::TYPE))
            }
        }
    )*};
}
integers!(i64 = "int", as_i64; u64 = "uint64", as_u64; i8 = "int8", as_i64; u8 = "uint8", as_u64);

impl ApiValue for bool {
    const TYPE: &'static str = "bool";
    fn read(value: &Value, at: &mut Place) -> Result<Self, DecodeError> {
        value.as_bool().ok_or_else(|| at.mismatch(value, Self::TYPE))
    }
}

impl ApiValue for String {
    const TYPE: &'static str = "string";
    fn read(value: &Value, at: &mut Place) -> Result<Self, DecodeError> {
        match value {
            Value::String(s) => Ok(s.clone()),
            other => Err(at.mismatch(other, Self::TYPE)),
        }
    }
    fn take(value: Value, at: &mut Place) -> Result<Self, DecodeError> {
        match value {
            Value::String(s) => Ok(s),
            other => Err(at.mismatch(&other, Self::TYPE)),
        }
    }
}

impl ApiValue for Value {
    const TYPE: &'static str = "interface {}";
    fn read(value: &Value, _at: &mut Place) -> Result<Self, DecodeError> {
        Ok(value.clone())
    }
    fn take(value: Value, _at: &mut Place) -> Result<Self, DecodeError> {
        Ok(value)
    }
}

/// The size below which every whole number has its own float.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Returns a value of users with its whole numbers as integers. Answers contain such numbers as floats, and a value
/// that a client sends back must be the same as before.
fn whole(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => match number.as_f64() {
            #[expect(clippy::cast_possible_truncation, reason = "it is whole and small enough")]
            Some(float) if float.fract() == 0.0 && float.abs() < EXACT => Value::from(float as i64),
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(whole).collect(),
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, whole(value))).collect(),
        other => other,
    }
}

impl ApiValue for Map<String, Value> {
    const TYPE: &'static str = "map[string]interface {}";
    fn read(value: &Value, at: &mut Place) -> Result<Self, DecodeError> {
        match value {
            Value::Object(map) => {
                Ok(map.iter().map(|(key, value)| (key.clone(), whole(value.clone()))).collect())
            }
            other => Err(at.mismatch(other, Self::TYPE)),
        }
    }
    fn take(value: Value, at: &mut Place) -> Result<Self, DecodeError> {
        match value {
            Value::Object(map) => Ok(map.into_iter().map(|(key, value)| (key, whole(value))).collect()),
            other => Err(at.mismatch(&other, Self::TYPE)),
        }
    }
}

impl<T: ApiValue> ApiValue for Option<T> {
    const TYPE: &'static str = T::TYPE;
    fn read(value: &Value, at: &mut Place) -> Result<Self, DecodeError> {
        if value.is_null() { Ok(None) } else { T::read(value, at).map(Some) }
    }
    fn take(value: Value, at: &mut Place) -> Result<Self, DecodeError> {
        if value.is_null() { Ok(None) } else { T::take(value, at).map(Some) }
    }
}

impl<T: ApiValue> ApiValue for Box<T> {
    const TYPE: &'static str = T::TYPE;
    fn read(value: &Value, at: &mut Place) -> Result<Self, DecodeError> {
        T::read(value, at).map(Self::new)
    }
    fn take(value: Value, at: &mut Place) -> Result<Self, DecodeError> {
        T::take(value, at).map(Self::new)
    }
}

impl<T: ApiValue + Default> ApiValue for Vec<T> {
    const TYPE: &'static str = "[]string";
    fn read(value: &Value, at: &mut Place) -> Result<Self, DecodeError> {
        match value {
            Value::Array(items) => {
                items.iter().map(|v| if v.is_null() { Ok(T::default()) } else { T::read(v, at) }).collect()
            }
            other => Err(at.mismatch(other, Self::TYPE)),
        }
    }
    fn take(value: Value, at: &mut Place) -> Result<Self, DecodeError> {
        match value {
            Value::Array(items) => items
                .into_iter()
                .map(|v| if v.is_null() { Ok(T::default()) } else { T::take(v, at) })
                .collect(),
            other => Err(at.mismatch(&other, Self::TYPE)),
        }
    }
}

impl<T: ApiValue + Default> ApiValue for BTreeMap<String, T> {
    const TYPE: &'static str = "map[string]string";
    fn read(value: &Value, at: &mut Place) -> Result<Self, DecodeError> {
        match value {
            Value::Object(map) => map
                .iter()
                .map(|(k, v)| {
                    let v = if v.is_null() { T::default() } else { T::read(v, at)? };
                    Ok((k.clone(), v))
                })
                .collect(),
            other => Err(at.mismatch(other, Self::TYPE)),
        }
    }
    fn take(value: Value, at: &mut Place) -> Result<Self, DecodeError> {
        match value {
            Value::Object(map) => map
                .into_iter()
                .map(|(k, v)| Ok((k, if v.is_null() { T::default() } else { T::take(v, at)? })))
                .collect(),
            other => Err(at.mismatch(&other, Self::TYPE)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Job, Nanos};

    #[test]
    fn keys_match_without_case_and_unknown_ones_are_ignored() {
        let job: Job = decode(
            br#"{"id":"a","NAME":null,"strange":1,"taskgroups":[{"Name":"g","tasks":[{"killtimeout":7000000000}]}]} trailing"#,
        )
        .unwrap();
        assert_eq!(job.id.as_deref(), Some("a"));
        assert_eq!(job.name, None);
        let groups = job.task_groups.unwrap();
        assert_eq!(groups[0].tasks.as_ref().unwrap()[0].kill_timeout, Some(Nanos(7_000_000_000)));
    }

    #[test]
    fn whole_numbers_of_users_making_are_whole_however_they_are_written() {
        let job: Job =
            decode(br#"{"TaskGroups":[{"Tasks":[{"Config":{"a":7.0,"b":[1e3,2.5],"c":{"d":-1.0}}}]}]}"#)
                .unwrap();
        let config = job.task_groups.unwrap().remove(0).tasks.unwrap().remove(0).config.unwrap();
        assert_eq!(Value::Object(config), serde_json::json!({"a": 7, "b": [1000, 2.5], "c": {"d": -1}}));
    }

    #[test]
    fn a_wrong_type_names_the_field() {
        let error =
            decode::<Job>(br#"{"TaskGroups":[{"Tasks":[{"KillTimeout":"5s"}]}]}"#).unwrap_err().to_string();
        assert_eq!(
            error,
            "json: cannot unmarshal string into Go struct field Task.TaskGroups.Tasks.KillTimeout of type time.Duration"
        );
        let error = decode::<Job>(br#"{"Priority": 1.5}"#).unwrap_err().to_string();
        assert_eq!(error, "json: cannot unmarshal number 1.5 into Go struct field Job.Priority of type int");
        assert_eq!(decode::<Job>(b"  ").unwrap_err(), DecodeError::Empty);
        assert_eq!(
            decode::<Job>(b"x").unwrap_err().to_string(),
            "invalid character 'x' looking for beginning of value"
        );
        assert_eq!(decode::<Job>(b"{\"ID\":").unwrap_err().to_string(), "unexpected EOF");
    }
}
