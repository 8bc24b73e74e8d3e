//! Devices of nodes, their attributes and statistics (docs/reference/drivers.md, sections 9 and 10).

use crate::ser::{is_default, nil};
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Devices of one vendor, type and model, which have the same attributes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DeviceGroup {
    /// The vendor, such as `nvidia`.
    pub vendor: String,
    /// The type, such as `gpu`.
    #[serde(rename = "Type")]
    pub kind: String,
    /// The model; may contain slashes.
    pub name: String,
    /// The instances of the group.
    #[serde(with = "nil")]
    pub instances: Vec<DeviceInstance>,
    /// Attributes that every device of the group has, for constraints and affinities.
    #[serde(with = "nil")]
    pub attributes: BTreeMap<String, DeviceAttribute>,
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DeviceInstance {
    /// The id; unique within its group.
    #[serde(rename = "ID")]
    pub id: String,
    /// Whether the scheduler may assign the device.
    pub healthy: bool,
    /// The reason that the device is not healthy; may be empty.
    pub health_description: String,
    /// The place of the device in the machine; `None` while unknown.
    pub locality: Option<DeviceLocality>,
}

/// The place of a device in its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DeviceLocality {
    /// The address on the PCI bus, such as `0000:01:00.0`.
    #[serde(rename = "PciBusID")]
    pub pci_bus_id: String,
}

/// The value of an attribute: exactly one of the four fields, and the unit of a number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DeviceAttribute {
    /// A number with a fraction.
    pub float: Option<f64>,
    /// A whole number.
    pub int: Option<i64>,
    /// A text.
    pub string: Option<String>,
    /// A boolean.
    pub bool: Option<bool>,
    /// The unit of a number; empty if it has none.
    pub unit: String,
}

impl DeviceAttribute {
    /// Returns a text attribute.
    pub fn text(text: impl Into<String>) -> Self {
        Self { string: Some(text.into()), ..Self::default() }
    }

    /// Returns a whole number with a unit, or without one if the unit is empty.
    pub fn int(number: i64, unit: impl Into<String>) -> Self {
        Self { int: Some(number), unit: unit.into(), ..Self::default() }
    }

    /// Checks that the attribute has exactly one value, and a unit only if that is a number. The error is one
    /// sentence.
    ///
    /// # Errors
    /// If the attribute breaks one of these rules, or its unit is unknown.
    pub fn check(&self) -> Result<(), String> {
        let numbers = usize::from(self.float.is_some()) + usize::from(self.int.is_some());
        let values = numbers + usize::from(self.string.is_some()) + usize::from(self.bool.is_some());
        if values != 1 {
            return Err(format!("it has {values} values instead of one"));
        }
        if self.float.is_some_and(|number| !number.is_finite()) {
            return Err("it is not a finite number".to_owned());
        }
        if self.unit.is_empty() {
            return Ok(());
        }
        if numbers == 0 {
            return Err("it has a unit and is not a number".to_owned());
        }
        Unit::parse(&self.unit).map(drop).ok_or_else(|| format!("its unit \"{}\" is unknown", self.unit))
    }
}

impl fmt::Display for DeviceAttribute {
    /// Formats the value, followed by a space and the unit if it has one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.float, self.int, &self.string, self.bool) {
            (Some(number), ..) => f.write_str(&decimals(*number))?,
            (_, Some(number), ..) => number.fmt(f)?,
            (_, _, Some(text), _) => f.write_str(text)?,
            (_, _, _, Some(flag)) => flag.fmt(f)?,
            _ => f.write_str("<unknown>")?,
        }
        if self.unit.is_empty() { Ok(()) } else { write!(f, " {}", self.unit) }
    }
}

/// Formats a number with up to three decimals.
fn decimals(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The quantity that a unit measures. Numbers of different quantities are not comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Bytes.
    Size,
    /// Bytes per second.
    Rate,
    /// Hertz.
    Frequency,
    /// Watts.
    Power,
}

/// A unit of attributes and statistics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// The quantity that the unit measures.
    pub quantity: Quantity,
    /// The number of base units in the unit.
    pub factor: f64,
}

impl Unit {
    /// Returns the unit with a name, such as `GiB`, `MB/s` or `kW`.
    pub fn parse(name: &str) -> Option<Self> {
        let (base, quantity) = match name.strip_suffix("/s") {
            Some(base) => (base, Quantity::Rate),
            None => (name, Quantity::Size),
        };
        let power = |base: f64, exponent: i32| base.powi(exponent);
        let (factor, quantity) = match base {
            "kB" | "KB" => (power(1000.0, 1), quantity),
            "MB" => (power(1000.0, 2), quantity),
            "GB" => (power(1000.0, 3), quantity),
            "TB" => (power(1000.0, 4), quantity),
            "PB" => (power(1000.0, 5), quantity),
            "EB" => (power(1000.0, 6), quantity),
            "KiB" => (power(1024.0, 1), quantity),
            "MiB" => (power(1024.0, 2), quantity),
            "GiB" => (power(1024.0, 3), quantity),
            "TiB" => (power(1024.0, 4), quantity),
            "PiB" => (power(1024.0, 5), quantity),
            "EiB" => (power(1024.0, 6), quantity),
            _ if quantity == Quantity::Rate => return None,
            "MHz" => (power(1000.0, 2), Quantity::Frequency),
            "GHz" => (power(1000.0, 3), Quantity::Frequency),
            "mW" => (0.001, Quantity::Power),
            "W" => (1.0, Quantity::Power),
            "kW" => (power(1000.0, 1), Quantity::Power),
            "MW" => (power(1000.0, 2), Quantity::Power),
            "GW" => (power(1000.0, 3), Quantity::Power),
            _ => return None,
        };
        Some(Self { quantity, factor })
    }
}

/// The statistics of one group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DeviceGroupStats {
    /// The vendor.
    pub vendor: String,
    /// The type.
    #[serde(rename = "Type")]
    pub kind: String,
    /// The model.
    pub name: String,
    /// The statistics by the instance's id.
    #[serde(rename = "InstanceStats", deserialize_with = "crate::ser::null_default")]
    pub instances: BTreeMap<String, DeviceStats>,
}

/// The statistics of one instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DeviceStats {
    /// The most important value, shown in lists.
    pub summary: Option<StatValue>,
    /// All values of the instance.
    pub stats: Option<StatObject>,
    /// The time of the measurement.
    pub timestamp: Time,
}

/// Values and groups of values, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct StatObject {
    /// The groups of values, by name.
    #[serde(with = "nil")]
    pub nested: BTreeMap<String, StatObject>,
    /// The values, by name.
    #[serde(with = "nil")]
    pub attributes: BTreeMap<String, StatValue>,
}

impl StatObject {
    /// Returns all values by name. The names of their groups precede the name, joined by dots.
    pub fn flat(&self) -> BTreeMap<String, &StatValue> {
        let mut out: BTreeMap<String, &StatValue> =
            self.attributes.iter().map(|(name, value)| (name.clone(), value)).collect();
        for (group, nested) in &self.nested {
            out.extend(nested.flat().into_iter().map(|(name, value)| (format!("{group}.{name}"), value)));
        }
        out
    }
}

/// One measured value: a number, a fraction, a text or a flag.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct StatValue {
    /// A number with a fraction, or the part of a total.
    #[serde(rename = "FloatNumeratorVal", skip_serializing_if = "is_default")]
    pub float_numerator: Option<f64>,
    /// The total of `float_numerator`.
    #[serde(rename = "FloatDenominatorVal", skip_serializing_if = "is_default")]
    pub float_denominator: Option<f64>,
    /// A whole number, or the part of a total.
    #[serde(rename = "IntNumeratorVal", skip_serializing_if = "is_default")]
    pub int_numerator: Option<i64>,
    /// The total of `int_numerator`.
    #[serde(rename = "IntDenominatorVal", skip_serializing_if = "is_default")]
    pub int_denominator: Option<i64>,
    /// A text.
    #[serde(rename = "StringVal", skip_serializing_if = "is_default")]
    pub string: Option<String>,
    /// A boolean.
    #[serde(rename = "BoolVal", skip_serializing_if = "is_default")]
    pub bool: Option<bool>,
    /// The unit of the numbers; empty if they have none.
    #[serde(skip_serializing_if = "is_default")]
    pub unit: String,
    /// The meaning of the value.
    #[serde(skip_serializing_if = "is_default")]
    pub desc: String,
}

impl fmt::Display for StatValue {
    /// Formats the value: `a / b unit` for a fraction, `a unit`, a text or a flag, `<unknown>` without a value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (part, total) = match (self.float_numerator, self.int_numerator) {
            (Some(part), _) => (decimals(part), self.float_denominator.map(decimals)),
            (_, Some(part)) => (part.to_string(), self.int_denominator.map(|total| total.to_string())),
            _ => {
                return match (&self.string, self.bool) {
                    (Some(text), _) => f.write_str(text),
                    (_, Some(flag)) => flag.fmt(f),
                    _ => f.write_str("<unknown>"),
                };
            }
        };
        f.write_str(&part)?;
        if let Some(total) = total {
            write!(f, " / {total}")?;
        }
        if self.unit.is_empty() { Ok(()) } else { write!(f, " {}", self.unit) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_group_has_the_shape_of_the_reference() {
        let group = DeviceGroup {
            vendor: "nvidia".into(),
            kind: "gpu".into(),
            name: "t4".into(),
            instances: vec![DeviceInstance {
                id: "a".into(),
                healthy: true,
                locality: Some(DeviceLocality { pci_bus_id: "0000:01:00.0".into() }),
                ..DeviceInstance::default()
            }],
            attributes: [("memory".to_owned(), DeviceAttribute::int(16, "GiB"))].into(),
        };
        let shape = json!({
            "Vendor": "nvidia", "Type": "gpu", "Name": "t4",
            "Instances": [{
                "ID": "a", "Healthy": true, "HealthDescription": "",
                "Locality": {"PciBusID": "0000:01:00.0"},
            }],
            "Attributes": {
                "memory": {"Float": null, "Int": 16, "String": null, "Bool": null, "Unit": "GiB"},
            },
        });
        assert_eq!(serde_json::to_value(&group).unwrap(), shape);
        assert_eq!(serde_json::from_value::<DeviceGroup>(shape).unwrap(), group);
    }

    #[test]
    fn statistics_have_the_shape_of_the_reference() {
        let value = StatValue { int_numerator: Some(0), unit: "MiB".into(), ..StatValue::default() };
        let inner =
            StatObject { attributes: [("used".to_owned(), value.clone())].into(), ..Default::default() };
        let stats = StatObject { nested: [("memory".to_owned(), inner)].into(), ..Default::default() };
        assert_eq!(stats.flat().keys().collect::<Vec<_>>(), ["memory.used"]);
        let group = DeviceGroupStats {
            vendor: "v".into(),
            kind: "t".into(),
            name: "n".into(),
            instances: [(
                "a".to_owned(),
                DeviceStats { summary: Some(value), stats: Some(stats), timestamp: Time(1_000_000_000) },
            )]
            .into(),
        };
        let used = json!({"IntNumeratorVal": 0, "Unit": "MiB"});
        let shape = json!({
            "Vendor": "v", "Type": "t", "Name": "n",
            "InstanceStats": {"a": {
                "Summary": used,
                "Stats": {
                    "Nested": {"memory": {"Nested": null, "Attributes": {"used": used}}},
                    "Attributes": null,
                },
                "Timestamp": "1970-01-01T00:00:01Z",
            }},
        });
        assert_eq!(serde_json::to_value(&group).unwrap(), shape);
        assert_eq!(serde_json::from_value::<DeviceGroupStats>(shape).unwrap(), group);
    }

    #[test]
    fn values_read_like_those_of_the_reference() {
        let value = |part, total| StatValue {
            int_numerator: Some(part),
            int_denominator: total,
            unit: "MiB".into(),
            ..StatValue::default()
        };
        assert_eq!(value(128, None).to_string(), "128 MiB");
        assert_eq!(value(1, Some(4)).to_string(), "1 / 4 MiB");
        let float = StatValue { float_numerator: Some(1.23456), ..StatValue::default() };
        assert_eq!(float.to_string(), "1.235");
        assert_eq!(StatValue { bool: Some(true), ..StatValue::default() }.to_string(), "true");
        assert_eq!(StatValue::default().to_string(), "<unknown>");
    }

    #[test]
    fn an_attribute_has_one_value_and_a_known_unit() {
        assert_eq!(DeviceAttribute::int(8, "GiB/s").check(), Ok(()));
        assert_eq!(DeviceAttribute::text("x").check(), Ok(()));
        assert!(DeviceAttribute::default().check().is_err());
        assert!(DeviceAttribute { bool: Some(true), ..DeviceAttribute::int(8, "") }.check().is_err());
        assert!(DeviceAttribute { unit: "GiB".into(), ..DeviceAttribute::text("x") }.check().is_err());
        for unknown in ["furlong", "B", "MHz/s", "W/s"] {
            assert!(DeviceAttribute::int(8, unknown).check().is_err(), "{unknown}");
        }
    }
}
