//! Decoded values and their encodings.

use crate::spec::Fault;
use crate::types::{reason, reasons};
use caravan_hcl::eval::{Evaluator, Scope};
use caravan_hcl::parse::native::parse_expression;
use caravan_hcl::source::SourceId;
use caravan_hcl::value::{self as hcl, Number};
use rmp::encode::{self, ByteBuf};
use std::collections::BTreeMap;

/// A value of a configuration or of a literal, as plugins receive it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The value of an argument or block that is absent.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A number without a fraction, within 64 bits.
    Int(i64),
    /// A number with a fraction, or a large one. It is never NaN.
    Float(f64),
    /// A number that neither an integer nor floating point represents, as decimal digits.
    Decimal(String),
    /// A text, without interpolation.
    String(String),
    /// A list, a set or a tuple.
    List(Vec<Value>),
    /// An object or a map.
    Map(BTreeMap<String, Value>),
}

impl Value {
    /// Evaluates a literal: an expression without variables, with the functions of plugins.
    ///
    /// # Errors
    /// The text is no expression, or its evaluation fails.
    pub fn parse_literal(text: &str) -> Result<Self, Fault> {
        let invalid = |why: String| Fault::Literal { text: text.to_owned(), why };
        let expr =
            parse_expression(text.trim_start(), SourceId::default()).map_err(|e| invalid(reasons(&e)))?;
        let value = Evaluator::plugins().eval(&expr, &Scope::default());
        value.map(Self::from).map_err(|e| invalid(reason(&e)))
    }

    /// Returns whether the value is null.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Encodes the value as MessagePack. A decimal becomes a string.
    #[must_use]
    pub fn to_msgpack(&self) -> Vec<u8> {
        let mut out = ByteBuf::new();
        self.write(&mut out);
        out.into_vec()
    }

    fn write(&self, out: &mut ByteBuf) {
        // Writing to memory cannot fail: the error type has no values.
        match self {
            Self::Null => {
                let Ok(()) = encode::write_nil(out);
            }
            Self::Bool(b) => {
                let Ok(()) = encode::write_bool(out, *b);
            }
            Self::Int(n) => {
                let Ok(_) = encode::write_sint(out, *n);
            }
            Self::Float(f) => {
                let Ok(()) = encode::write_f64(out, *f);
            }
            Self::Decimal(text) | Self::String(text) => {
                let Ok(()) = encode::write_str(out, text);
            }
            Self::List(items) => {
                let Ok(_) = encode::write_array_len(out, length(items.len()));
                items.iter().for_each(|item| item.write(out));
            }
            Self::Map(map) => {
                let Ok(_) = encode::write_map_len(out, length(map.len()));
                for (key, value) in map {
                    let Ok(()) = encode::write_str(out, key);
                    value.write(out);
                }
            }
        }
    }

    /// Converts to JSON. A decimal becomes the nearest number, an infinity becomes null.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as J;
        match self {
            Self::Null => J::Null,
            Self::Bool(b) => J::Bool(*b),
            Self::Int(n) => J::from(*n),
            Self::Float(f) => J::from(*f),
            Self::Decimal(text) => serde_json::from_str(text).unwrap_or_else(|_| J::String(text.clone())),
            Self::String(s) => J::String(s.clone()),
            Self::List(items) => J::Array(items.iter().map(Self::to_json).collect()),
            Self::Map(map) => J::Object(map.iter().map(|(k, v)| (k.clone(), v.to_json())).collect()),
        }
    }
}

/// Returns a length as MessagePack has it. No collection in memory is longer.
fn length(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl From<hcl::Value> for Value {
    fn from(value: hcl::Value) -> Self {
        match value {
            hcl::Value::Null(_) => Self::Null,
            hcl::Value::Bool(b) => Self::Bool(b),
            hcl::Value::Num(n) => number(&n),
            hcl::Value::Str(s) => Self::String(s.to_string()),
            hcl::Value::Seq(.., items) => Self::List(items.into_iter().map(Self::from).collect()),
            hcl::Value::Map(.., map) => Self::Map(map.into_iter().map(|(k, v)| (k, Self::from(v))).collect()),
        }
    }
}

/// Converts a number: to an integer, else to floating point, else to text.
fn number(n: &Number) -> Value {
    if let Some(whole) = n.to_i64() {
        return Value::Int(whole);
    }
    let float = n.to_f64();
    // 0.1 has no exact representation, but its shortest digits read back to the same number. Go programs require a
    // float here.
    let exact = Number::from_f64(float).as_ref() == Some(n);
    if exact || format!("{float:e}").parse().as_ref() == Ok(n) {
        Value::Float(float)
    } else {
        Value::Decimal(n.to_string())
    }
}
