//! Values and types of the language, conversions and common types.

mod convert;
mod number;
mod order;
mod unify;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use unicode_normalization::{IsNormalized, UnicodeNormalization as _, is_nfc_quick};

pub use self::convert::convert;
pub use self::number::Number;
pub use self::unify::unify;

/// A value of the language.
///
/// Strings and keys are in Unicode normalization form C; [`Value::str`], [`Value::object`] and [`Value::map`]
/// normalize them.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Null, with its type.
    Null(Type),
    /// `true`, `false`.
    Bool(bool),
    /// A number.
    Num(Number),
    /// A string.
    Str(Arc<str>),
    /// A tuple, a list or a set (sorted, without duplicates). The type is that of list and set elements.
    Seq(SeqKind, Type, Vec<Value>),
    /// An object or a map. The type is that of map values.
    Map(MapKind, Type, BTreeMap<String, Value>),
}

/// Kinds of sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeqKind {
    /// Each element has its own type.
    Tuple,
    /// All elements have one type.
    List,
    /// All elements have one type; sorted, without duplicates.
    Set,
}

/// Kinds of keyed collections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Each attribute has its own type.
    Object,
    /// All values have one type.
    Map,
}

/// A type of the language.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Unknown, or any type.
    Any,
    /// `string`
    Str,
    /// `number`
    Num,
    /// `bool`
    Bool,
    /// `list(T)`
    List(Box<Type>),
    /// `set(T)`
    Set(Box<Type>),
    /// `map(T)`
    Map(Box<Type>),
    /// `tuple([T, ...])`
    Tuple(Vec<Type>),
    /// `object({k = T})`
    Object(BTreeMap<String, Type>),
}

impl Type {
    /// Returns whether the type is `string`, `number` or `bool`.
    #[must_use]
    pub fn is_primitive(&self) -> bool {
        matches!(self, Self::Str | Self::Num | Self::Bool)
    }

    /// Returns whether the type contains no `Any`.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        match self {
            Self::Any => false,
            Self::Str | Self::Num | Self::Bool => true,
            Self::List(t) | Self::Set(t) | Self::Map(t) => t.is_exact(),
            Self::Tuple(types) => types.iter().all(Self::is_exact),
            Self::Object(types) => types.values().all(Self::is_exact),
        }
    }

    /// Returns the type of a value.
    #[must_use]
    pub fn from_value(value: &Value) -> Self {
        match value {
            Value::Null(t) => t.clone(),
            Value::Bool(_) => Self::Bool,
            Value::Num(_) => Self::Num,
            Value::Str(_) => Self::Str,
            Value::Seq(SeqKind::Tuple, _, items) => Self::Tuple(items.iter().map(Self::from_value).collect()),
            Value::Seq(SeqKind::List, t, _) => Self::List(Box::new(t.clone())),
            Value::Seq(SeqKind::Set, t, _) => Self::Set(Box::new(t.clone())),
            Value::Map(MapKind::Object, _, map) => {
                Self::Object(map.iter().map(|(k, v)| (k.clone(), Self::from_value(v))).collect())
            }
            Value::Map(MapKind::Map, t, _) => Self::Map(Box::new(t.clone())),
        }
    }

    /// Returns the name of the type in messages: `string`, `tuple`, `list of number`, ...
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Any => "dynamic".to_owned(),
            Self::Str => "string".to_owned(),
            Self::Num => "number".to_owned(),
            Self::Bool => "bool".to_owned(),
            Self::List(t) => format!("list of {}", t.name()),
            Self::Set(t) => format!("set of {}", t.name()),
            Self::Map(t) => format!("map of {}", t.name()),
            Self::Tuple(_) => "tuple".to_owned(),
            Self::Object(_) => "object".to_owned(),
        }
    }
}

impl Value {
    /// Null without a particular type.
    pub const NULL: Self = Self::Null(Type::Any);

    /// Returns whether the value is null.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null(_))
    }

    /// Creates a string in normalization form C.
    #[must_use]
    pub fn str(text: impl AsRef<str>) -> Self {
        Self::Str(Arc::from(&*normal(text.as_ref())))
    }

    /// Creates a whole number.
    #[must_use]
    pub fn int(n: i64) -> Self {
        Self::Num(Number::from(n))
    }

    /// Creates a tuple.
    #[must_use]
    pub fn tuple(items: Vec<Self>) -> Self {
        Self::Seq(SeqKind::Tuple, Type::Any, items)
    }

    /// Creates a list of strings.
    #[must_use]
    pub fn strings(items: impl IntoIterator<Item = String>) -> Self {
        Self::Seq(SeqKind::List, Type::Str, items.into_iter().map(Self::str).collect())
    }

    /// Creates a list whose elements have the type `t`.
    #[must_use]
    pub fn list(t: Type, items: Vec<Self>) -> Self {
        Self::Seq(SeqKind::List, t, items)
    }

    /// Creates an object.
    #[must_use]
    pub fn object(map: BTreeMap<String, Self>) -> Self {
        Self::Map(MapKind::Object, Type::Any, normal_keys(map))
    }

    /// Creates a map whose values have the type `t`.
    #[must_use]
    pub fn map(t: Type, map: BTreeMap<String, Self>) -> Self {
        Self::Map(MapKind::Map, t, normal_keys(map))
    }

    /// Creates a set: sorted, without duplicates.
    #[must_use]
    pub fn set(t: Type, items: Vec<Self>) -> Self {
        Self::Seq(SeqKind::Set, t, order::sorted(items))
    }

    /// Returns the name of the value's type in messages.
    #[must_use]
    pub fn type_name(&self) -> String {
        Type::from_value(self).name()
    }

    /// Converts to JSON: whole numbers that fit 64 bits become integers, others floating point.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as J;
        match self {
            Self::Null(_) => J::Null,
            Self::Bool(b) => J::Bool(*b),
            Self::Num(n) => n.to_json(),
            Self::Str(s) => J::String(s.to_string()),
            Self::Seq(.., items) => J::Array(items.iter().map(Self::to_json).collect()),
            Self::Map(.., map) => J::Object(map.iter().map(|(k, v)| (k.clone(), v.to_json())).collect()),
        }
    }

    /// Converts from JSON: arrays become tuples, objects become objects.
    #[must_use]
    pub fn from_json(json: &serde_json::Value) -> Self {
        use serde_json::Value as J;
        match json {
            J::Null => Self::NULL,
            J::Bool(b) => Self::Bool(*b),
            J::Number(n) => n.to_string().parse().map_or(Self::NULL, Self::Num),
            J::String(s) => Self::str(s),
            J::Array(items) => Self::tuple(items.iter().map(Self::from_json).collect()),
            J::Object(map) => {
                Self::object(map.iter().map(|(k, v)| (k.clone(), Self::from_json(v))).collect())
            }
        }
    }
}

/// Returns a text in normalization form C (Unicode, annex 15).
pub(crate) fn normal(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || is_nfc_quick(text.chars()) == IsNormalized::Yes {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(text.nfc().collect())
    }
}

fn normal_keys(map: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    if map.keys().all(|key| matches!(normal(key), Cow::Borrowed(_))) {
        return map;
    }
    map.into_iter().map(|(key, value)| (normal(&key).into_owned(), value)).collect()
}

impl From<bool> for Value {
    fn from(b: bool) -> Self {
        Self::Bool(b)
    }
}

impl From<Number> for Value {
    fn from(n: Number) -> Self {
        Self::Num(n)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}
