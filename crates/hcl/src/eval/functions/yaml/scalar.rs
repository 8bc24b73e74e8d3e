//! Scalars of YAML.

use super::Result;
use crate::value::{Number, Value};

/// A scalar by YAML 1.2's rules, with dates as the reference writes them.
pub(super) fn scalar(s: &str) -> Result<Value> {
    let unquoted = match s.as_bytes() {
        [b'"', .., b'"'] => Some(serde_json::from_str::<String>(s).map_err(|e| e.to_string())?),
        [b'\'', .., b'\''] => Some(s[1..s.len() - 1].replace("''", "'")),
        _ => None,
    };
    if let Some(s) = unquoted {
        return Ok(Value::str(s));
    }
    match s {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::NULL),
        "true" | "True" | "TRUE" => return Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Value::Bool(false)),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "-.inf" | ".nan" | ".NaN" | ".NAN" => {
            return Err(format!("{s} has no counterpart in this language"));
        }
        _ => {}
    }
    let based =
        |digits: &str, base| i128::from_str_radix(digits, base).ok().map(|n| Value::Num(Number::from(n)));
    if let Some(value) = s.strip_prefix("0x").and_then(|d| based(d, 16)) {
        return Ok(value);
    }
    if let Some(value) = s.strip_prefix("0o").and_then(|d| based(d, 8)) {
        return Ok(value);
    }
    if let Some(value) = s.strip_prefix("0b").and_then(|d| based(d, 2)) {
        return Ok(value);
    }
    if s.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
        && s.bytes().any(|b| b.is_ascii_digit())
        && let Ok(n) = s.parse()
    {
        return Ok(Value::Num(n));
    }
    Ok(match timestamp(s) {
        Some(stamp) => Value::str(stamp),
        None => Value::str(s),
    })
}

/// A plain scalar as a tag wants it.
pub(super) fn tagged(tag: &str, s: &str) -> Result<Value> {
    let value = scalar(s)?;
    let plain = match &value {
        Value::Str(text) if s.starts_with(['"', '\'']) => text.to_string(),
        _ => s.to_owned(),
    };
    let wrong = || format!("{s:?} is no {}", tag.trim_start_matches('!'));
    match tag {
        "!!str" | "!" | "!!binary" => Ok(Value::str(plain)),
        "!!int" => match scalar(&plain)? {
            Value::Num(n) if n.is_whole() => Ok(Value::Num(n)),
            _ => Err(wrong()),
        },
        "!!float" => match scalar(&plain)? {
            Value::Num(n) => Ok(Value::Num(n)),
            _ => Err(wrong()),
        },
        "!!bool" => match scalar(&plain)? {
            Value::Bool(b) => Ok(Value::Bool(b)),
            _ => Err(wrong()),
        },
        "!!null" => match scalar(&plain)? {
            Value::Null(_) => Ok(Value::NULL),
            _ => Err(wrong()),
        },
        "!!timestamp" => timestamp(&plain).map(Value::str).ok_or_else(wrong),
        _ => Err(unsupported(tag)),
    }
}

pub(super) fn unsupported(tag: &str) -> String {
    format!("unsupported tag {tag:?}")
}

/// Dates and times in the notations of YAML, as RFC 3339 with whole seconds.
fn timestamp(s: &str) -> Option<String> {
    let number = |text: &str, most: usize| {
        (1..=most).contains(&text.len()).then_some(text)?.bytes().all(|b| b.is_ascii_digit()).then_some(())?;
        text.parse::<u32>().ok()
    };
    let (date, time) = match s.find(['T', 't', ' ']) {
        Some(at) => (&s[..at], Some(s[at + 1..].trim_start())),
        None => (s, None),
    };
    let mut parts = date.splitn(3, '-');
    let (year, month, day) = (parts.next()?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    if year.len() != 4 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = number(year, 4)?;
    let Some(time) = time else { return Some(format!("{year:04}-{month:02}-{day:02}T00:00:00Z")) };
    let end = time.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.')).unwrap_or(time.len());
    let (clock, zone) = (&time[..end], time[end..].trim());
    let mut parts = clock.splitn(3, ':');
    let (hour, minute, second) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?, parts.next()?);
    let second = number(second.split('.').next()?, 2)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let zone = match zone {
        "" | "Z" => "Z".to_owned(),
        zone => {
            let (sign, rest) = zone.split_at_checked(1).filter(|(sign, _)| matches!(*sign, "+" | "-"))?;
            let (hours, minutes) = rest.split_once(':').unwrap_or((rest, "00"));
            format!("{sign}{:02}:{:02}", number(hours, 2)?, number(minutes, 2)?)
        }
    };
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{zone}"))
}
