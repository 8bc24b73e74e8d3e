//! Durations in Go's notation (`1h30m`), as some objects contain them (docs/reference/http-api.md, section 2.1).

use crate::time::Nanos;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration that is text in every encoding: `1h0m0s`, or empty for zero. A number is read as nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(pub Nanos);

impl GoDuration {
    /// Returns whether the duration is zero.
    pub fn is_zero(&self) -> bool {
        self.0.0 == 0
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_zero() { serializer.serialize_str("") } else { serializer.collect_str(&self.0) }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Input {
    Number(i64),
    Text(String),
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Option::<Input>::deserialize(deserializer)? {
            None => Ok(Self::default()),
            Some(Input::Number(n)) => Ok(Self(Nanos(n))),
            Some(Input::Text(text)) if text.is_empty() => Ok(Self::default()),
            Some(Input::Text(text)) => match parse(&text) {
                Some(duration) => Ok(Self(duration)),
                None => Err(de::Error::custom(invalid(&text))),
            },
        }
    }
}

/// Returns the error message for a text that is not a duration.
pub fn invalid(text: &str) -> String {
    format!("time: invalid duration \"{text}\"")
}

/// Parses a duration in Go's notation: `10s`, `1h30m`, `1.5ms`, `-2s`, `0`.
pub fn parse(text: &str) -> Option<Nanos> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(Nanos::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i64 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let scale: i64 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        total = total.checked_add(scaled(number, scale)?)?;
        rest = after;
    }
    Some(Nanos(if negative { -total } else { total }))
}

/// Returns `number` times `scale`. The number may have decimals.
fn scaled(number: &str, scale: i64) -> Option<i64> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && decimals.is_empty() {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = whole.checked_mul(scale)?;
    let mut unit = scale;
    for digit in decimals.chars() {
        unit /= 10;
        total = total.checked_add(unit.checked_mul(i64::from(digit.to_digit(10)?))?)?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_text_both_ways() {
        let hour: GoDuration = serde_json::from_str("\"60m\"").unwrap();
        assert_eq!(serde_json::to_string(&hour).unwrap(), "\"1h0m0s\"");
        assert_eq!(serde_json::from_str::<GoDuration>("3600000000000").unwrap(), hour);
        assert_eq!(serde_json::to_string(&GoDuration::default()).unwrap(), "\"\"");
        assert!(serde_json::from_str::<GoDuration>("null").unwrap().is_zero());
        let error = serde_json::from_str::<GoDuration>("\"abc\"").unwrap_err().to_string();
        assert!(error.starts_with("time: invalid duration \"abc\""), "{error}");
        let packed = rmp_serde::to_vec_named(&hour).unwrap();
        assert_eq!(rmp_serde::from_slice::<GoDuration>(&packed).unwrap(), hour);
    }
}
