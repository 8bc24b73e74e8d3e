//! Attributes of nodes and devices, and values of statistics.

use caravan_proto::plugins::structs;
use std::collections::BTreeMap;

/// A fact about a node or a device, which jobs may constrain.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// The value.
    pub value: AttributeValue,
    /// The unit of a number, such as `MiB`, `MHz` or `GB/s`; empty without one.
    pub unit: String,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// A text. An empty one removes the attribute of a driver from the node.
    String(String),
}

impl Attribute {
    /// Sets the unit.
    #[must_use]
    pub fn unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = unit.into();
        self
    }

    pub(crate) fn into_message(self) -> structs::Attribute {
        use structs::attribute::Value;
        let value = match self.value {
            AttributeValue::Bool(value) => Value::BoolVal(value),
            AttributeValue::Int(value) => Value::IntVal(value),
            AttributeValue::Float(value) => Value::FloatVal(value),
            AttributeValue::String(value) => Value::StringVal(value),
        };
        structs::Attribute { value: Some(value), unit: self.unit }
    }
}

impl From<AttributeValue> for Attribute {
    fn from(value: AttributeValue) -> Self {
        Self { value, unit: String::new() }
    }
}

impl From<bool> for Attribute {
    fn from(value: bool) -> Self {
        AttributeValue::Bool(value).into()
    }
}

impl From<i64> for Attribute {
    fn from(value: i64) -> Self {
        AttributeValue::Int(value).into()
    }
}

impl From<f64> for Attribute {
    fn from(value: f64) -> Self {
        AttributeValue::Float(value).into()
    }
}

impl From<&str> for Attribute {
    fn from(value: &str) -> Self {
        AttributeValue::String(value.to_owned()).into()
    }
}

impl From<String> for Attribute {
    fn from(value: String) -> Self {
        AttributeValue::String(value).into()
    }
}

pub(crate) fn attributes(all: BTreeMap<String, Attribute>) -> BTreeMap<String, structs::Attribute> {
    all.into_iter().map(|(name, attribute)| (name, attribute.into_message())).collect()
}

/// One statistic: a text, a truth value, or a number that may have a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct StatValue {
    value: Stat,
    unit: String,
    description: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Stat {
    Bool(bool),
    String(String),
    Int(i64, Option<i64>),
    Float(f64, Option<f64>),
}

impl StatValue {
    /// Returns a truth value.
    pub fn bool(value: bool) -> Self {
        Stat::Bool(value).into()
    }

    /// Returns a text.
    pub fn string(value: impl Into<String>) -> Self {
        Stat::String(value.into()).into()
    }

    /// Returns a whole number.
    pub fn int(value: i64) -> Self {
        Stat::Int(value, None).into()
    }

    /// Returns a whole number of a limit, shown as `value / limit`.
    pub fn int_of(value: i64, limit: i64) -> Self {
        Stat::Int(value, Some(limit)).into()
    }

    /// Returns a number.
    pub fn float(value: f64) -> Self {
        Stat::Float(value, None).into()
    }

    /// Returns a number of a limit, shown as `value / limit`.
    pub fn float_of(value: f64, limit: f64) -> Self {
        Stat::Float(value, Some(limit)).into()
    }

    /// Sets the unit.
    #[must_use]
    pub fn unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = unit.into();
        self
    }

    /// Sets the description.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    pub(crate) fn into_message(self) -> structs::StatValue {
        let mut message =
            structs::StatValue { unit: self.unit, desc: self.description, ..structs::StatValue::default() };
        match self.value {
            Stat::Bool(value) => message.bool_val = Some(value),
            Stat::String(value) => message.string_val = Some(value),
            Stat::Int(value, limit) => {
                message.int_numerator_val = Some(value);
                message.int_denominator_val = limit;
            }
            Stat::Float(value, limit) => {
                message.float_numerator_val = Some(value);
                message.float_denominator_val = limit;
            }
        }
        message
    }
}

impl From<Stat> for StatValue {
    fn from(value: Stat) -> Self {
        Self { value, unit: String::new(), description: String::new() }
    }
}

/// A tree of statistics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatObject {
    /// Statistics of this level, by name.
    pub values: BTreeMap<String, StatValue>,
    /// Groups of statistics, by name.
    pub nested: BTreeMap<String, StatObject>,
}

impl StatObject {
    pub(crate) fn into_message(self) -> structs::StatObject {
        structs::StatObject {
            attributes: self.values.into_iter().map(|(name, value)| (name, value.into_message())).collect(),
            nested: self.nested.into_iter().map(|(name, object)| (name, object.into_message())).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_one_value_and_a_unit() {
        let message = Attribute::from(8).unit("GiB").into_message();
        assert_eq!(message.value, Some(structs::attribute::Value::IntVal(8)));
        assert_eq!(message.unit, "GiB");
    }

    #[test]
    fn statistics_have_a_limit_only_where_one_is_set() {
        let message = StatValue::int_of(1, 4).unit("MiB").description("memory").into_message();
        assert_eq!((message.int_numerator_val, message.int_denominator_val), (Some(1), Some(4)));
        assert_eq!((message.unit.as_str(), message.desc.as_str()), ("MiB", "memory"));
        assert_eq!(StatValue::float(0.5).into_message().float_denominator_val, None);
        assert_eq!(StatValue::bool(true).into_message().bool_val, Some(true));
        assert_eq!(StatValue::string("x").into_message().string_val.as_deref(), Some("x"));
    }

    #[test]
    fn trees_of_statistics_keep_their_shape() {
        let leaf = StatObject {
            values: BTreeMap::from([("used".to_owned(), StatValue::int(3))]),
            ..StatObject::default()
        };
        let tree =
            StatObject { nested: BTreeMap::from([("memory".to_owned(), leaf)]), ..StatObject::default() };
        let message = tree.into_message();
        assert_eq!(message.nested["memory"].attributes["used"].int_numerator_val, Some(3));
    }
}
