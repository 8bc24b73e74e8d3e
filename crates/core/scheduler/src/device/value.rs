//! Conditions on devices: attributes and literals as values with units.

use caravan_lang::constraint::{Matcher, Operator, Targets, resolve};
use caravan_types::device::{DeviceAttribute, DeviceGroup, Unit};
use std::borrow::Cow;
use std::cmp::Ordering;

struct DeviceTargets<'a>(&'a DeviceGroup);

impl Targets for DeviceTargets<'_> {
    fn target(&self, name: &str) -> Option<Cow<'_, str>> {
        let group = self.0;
        match name {
            "device.vendor" => Some(Cow::Borrowed(group.vendor.as_str())),
            "device.type" => Some(Cow::Borrowed(group.kind.as_str())),
            "device.model" => Some(Cow::Borrowed(group.name.as_str())),
            "device.ids" => {
                let healthy = group.instances.iter().filter(|one| one.healthy);
                Some(Cow::Owned(healthy.map(|one| one.id.as_str()).collect::<Vec<_>>().join(",")))
            }
            _ => {
                let value = group.attributes.get(name.strip_prefix("device.attr.")?)?;
                Some(Cow::Owned(value.to_string()))
            }
        }
    }
}

/// A number with its unit.
#[derive(Clone, Copy, Debug)]
struct Number {
    /// The exact value of a whole number.
    whole: Option<i64>,
    value: f64,
    unit: Option<Unit>,
}

impl Number {
    fn whole(number: i64, unit: Option<Unit>) -> Self {
        #[expect(
            clippy::cast_precision_loss,
            reason = "exact numbers without units are compared as integers"
        )]
        Self { whole: Some(number), value: number as f64, unit }
    }

    /// Parses a number, followed by a unit if it has one.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let ends = |c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+'));
        let (number, unit) = text.split_at(text.find(ends).unwrap_or(text.len()));
        let unit = match unit.trim() {
            "" => None,
            name => Some(Unit::parse(name)?),
        };
        match number.parse::<i64>() {
            Ok(whole) => Some(Self::whole(whole, unit)),
            Err(_) => Some(Self { whole: None, value: number.parse().ok()?, unit }),
        }
    }

    /// Compares two numbers of one quantity. Numbers of different quantities have no order.
    fn compare(self, other: Self) -> Option<Ordering> {
        let (left, right) = match (self.unit, other.unit) {
            (None, None) => match (self.whole, other.whole) {
                (Some(left), Some(right)) => return Some(left.cmp(&right)),
                _ => (self.value, other.value),
            },
            (Some(left), Some(right)) if left.quantity == right.quantity => {
                (self.value * left.factor, other.value * right.factor)
            }
            _ => return None,
        };
        if (left - right).abs() <= f64::EPSILON * left.abs() {
            return Some(Ordering::Equal);
        }
        left.partial_cmp(&right)
    }
}

/// One side of a condition.
#[derive(Debug)]
enum Side<'a> {
    /// A number of the device's attribute.
    Number(Number),
    /// A flag of the device's attribute.
    Flag(bool),
    /// A text of the device, such as its vendor.
    Text(Cow<'a, str>),
    /// A text of the job file, which is parsed as the type of the other side.
    Literal(&'a str),
}

impl<'a> Side<'a> {
    fn parse(text: &'a str, targets: &'a DeviceTargets<'a>) -> Option<Self> {
        let Some(name) = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) else {
            return (!text.starts_with("${")).then_some(Self::Literal(text));
        };
        let Some(attribute) = name.strip_prefix("device.attr.") else {
            return targets.target(name).map(Self::Text);
        };
        let DeviceAttribute { float, int, string, bool, unit } = targets.0.attributes.get(attribute)?;
        let unit = if unit.is_empty() { None } else { Some(Unit::parse(unit)?) };
        match (int, float, bool, string) {
            (Some(number), ..) => Some(Self::Number(Number::whole(*number, unit))),
            (_, Some(number), ..) => Some(Self::Number(Number { whole: None, value: *number, unit })),
            (_, _, Some(flag), _) => Some(Self::Flag(*flag)),
            (_, _, _, Some(text)) => Some(Self::Text(Cow::Borrowed(text))),
            _ => None,
        }
    }

    /// Compares two sides, or returns `None` if they are not comparable.
    fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Number(left), Self::Number(right)) => left.compare(*right),
            (Self::Number(left), Self::Literal(right)) => left.compare(Number::parse(right)?),
            (Self::Literal(left), Self::Number(right)) => Number::parse(left)?.compare(*right),
            (Self::Flag(left), Self::Flag(right)) => Some(left.cmp(right)),
            (Self::Flag(left), Self::Literal(right)) => Some(left.cmp(&right.trim().parse().ok()?)),
            (Self::Literal(left), Self::Flag(right)) => Some(left.trim().parse::<bool>().ok()?.cmp(right)),
            (Self::Text(left), Self::Text(right)) => Some(left.cmp(right)),
            (Self::Text(left), Self::Literal(right)) => Some(left.as_ref().cmp(*right)),
            (Self::Literal(left), Self::Text(right)) => Some((*left).cmp(right.as_ref())),
            (Self::Literal(left), Self::Literal(right)) => {
                match (Number::parse(left), Number::parse(right)) {
                    (Some(left), Some(right)) => left.compare(right),
                    _ => Some(left.cmp(right)),
                }
            }
            _ => None,
        }
    }
}

/// Returns whether a condition holds for a kind of device. Values that are not comparable meet no condition that
/// compares them, not even that they differ.
pub(super) fn holds(
    matcher: &mut Matcher,
    group: &DeviceGroup,
    left: &str,
    operand: &str,
    right: &str,
) -> bool {
    let Ok(operator) = Operator::parse(operand) else { return false };
    let targets = DeviceTargets(group);
    let test: fn(Ordering) -> bool = match operator {
        Operator::Equal => Ordering::is_eq,
        Operator::NotEqual => Ordering::is_ne,
        Operator::Less => Ordering::is_lt,
        Operator::LessEqual => Ordering::is_le,
        Operator::Greater => Ordering::is_gt,
        Operator::GreaterEqual => Ordering::is_ge,
        _ => {
            let (left, right) = (resolve(left, &targets), resolve(right, &targets));
            return matcher.check(left.as_deref(), operator, right.as_deref());
        }
    };
    match (Side::parse(left, &targets), Side::parse(right, &targets)) {
        (Some(left), Some(right)) => left.compare(&right).is_some_and(test),
        // A missing value differs from every value.
        (None, Some(_)) | (Some(_), None) => operator == Operator::NotEqual,
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu() -> DeviceGroup {
        let attributes = [
            ("memory", DeviceAttribute::int(8, "GiB")),
            ("clock", DeviceAttribute { float: Some(1.5), unit: "GHz".into(), ..Default::default() }),
            ("cores", DeviceAttribute::int(2048, "")),
            ("display", DeviceAttribute { bool: Some(true), ..Default::default() }),
            ("driver", DeviceAttribute::text("535.104.5")),
        ];
        DeviceGroup {
            vendor: "nvidia".into(),
            kind: "gpu".into(),
            name: "1080".into(),
            attributes: attributes.map(|(name, value)| (name.to_owned(), value)).into(),
            ..DeviceGroup::default()
        }
    }

    #[test]
    fn quantities_are_compared_with_their_units() {
        let check = |name: &str, operand: &str, value: &str| {
            holds(&mut Matcher::new(), &gpu(), &format!("${{device.attr.{name}}}"), operand, value)
        };
        for (name, operand, value) in [
            ("memory", "=", "8192 MiB"),
            ("memory", ">=", "8 GiB"),
            ("memory", "<", "8.6GB"),
            ("memory", "!=", "9 GiB"),
            ("clock", "=", "1500 MHz"),
            ("cores", ">", "2000"),
            ("cores", "<=", "2048.5"),
            ("display", "=", "true"),
            ("display", "!=", "false"),
            ("driver", "version", ">= 500"),
            ("driver", "regexp", "^535"),
            ("driver", "is_set", ""),
            ("absent", "!=", "1"),
            ("absent", "is_not_set", ""),
        ] {
            assert!(check(name, operand, value), "{name} {operand} {value}");
        }
        for (name, operand, value) in [
            ("memory", ">", "8192 MiB"),
            ("memory", ">", "10"),
            ("memory", "!=", "10"),
            ("memory", "!=", "10 W"),
            ("memory", "<", "10 GiB/s"),
            ("cores", "!=", "1 MiB"),
            ("cores", "=", "many"),
            ("display", "=", "1 GiB"),
            ("absent", "=", "1"),
            ("absent", "<", "1"),
        ] {
            assert!(!check(name, operand, value), "{name} {operand} {value}");
        }
    }

    #[test]
    fn names_are_texts_even_if_they_look_like_numbers() {
        let check =
            |left: &str, operand: &str, right: &str| holds(&mut Matcher::new(), &gpu(), left, operand, right);
        assert!(check("${device.model}", "=", "1080"));
        assert!(check("${device.vendor}", "!=", "amd"));
        assert!(check("gpu", "=", "${device.type}"));
        assert!(!check("${device.model}", "=", "1080.0"));
        assert!(!check("${device.nothing}", "=", "${device.neither}"));
    }
}
