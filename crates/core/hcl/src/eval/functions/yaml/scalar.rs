//! Interprets YAML scalars.

use super::Result;
use super::scan::Style;
use crate::value::{Number, Type, Value, convert};

/// The prefix that `!!` stands for.
pub(super) const CORE: &str = "tag:yaml.org,2002:";

/// Converts a scalar with an optional tag to a value.
pub(super) fn scalar(text: &str, style: Style, tag: Option<&str>) -> Result<Value> {
    let kind = match tag {
        None if style == Style::Plain => return plain(text),
        // As in Nomad, a block is interpreted like a plain scalar first and then converted to a string: "yes" becomes
        // "true".
        None if matches!(style, Style::Literal | Style::Folded) => return convert(plain(text)?, &Type::Str),
        None => return Ok(Value::str(text)),
        Some(tag) => tag.strip_prefix(CORE).ok_or_else(|| unsupported(tag))?,
    };
    match kind {
        "str" => return Ok(Value::str(text)),
        "binary" => {
            let bytes: String = text.chars().filter(|c| !c.is_whitespace()).collect();
            let valid =
                super::super::encoding::base64_text(&bytes).is_some() && bytes.len() == text.trim().len();
            return if valid { Ok(Value::str(bytes)) } else { Err(format!("{text:?} is not valid base64")) };
        }
        "null" if style == Style::Plain => return Ok(Value::NULL),
        "int" | "float" | "bool" | "timestamp" | "null" => {}
        _ => return Err(unsupported(tag.unwrap_or_default())),
    }
    // The other tags never change a value; they only reject scalars of another type.
    match plain(text)? {
        Value::Str(_) if kind != "timestamp" || timestamp(text).is_none() => {
            Err(format!("cannot parse {text:?} as {kind}"))
        }
        _ if matches!(style, Style::Single | Style::Double) => Ok(Value::str(text)),
        value => Ok(value),
    }
}

pub(super) fn unsupported(tag: &str) -> String {
    format!("unsupported tag {tag:?}")
}

/// Interprets a plain scalar: the booleans of YAML 1.1, and the numbers of YAML 1.2.
fn plain(s: &str) -> Result<Value> {
    match s {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::NULL),
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Ok(Value::Bool(true));
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Ok(Value::Bool(false));
        }
        _ => {}
    }
    match s.strip_prefix(['+', '-']).unwrap_or(s) {
        ".inf" | ".Inf" | ".INF" => {
            let text = if s.starts_with('-') { "-Inf" } else { "+Inf" };
            return Number::from_text(text).map(Value::Num).map_err(|e| e.to_string());
        }
        ".nan" | ".NaN" | ".NAN" if s.starts_with('.') => {
            return Err("floating point NaN is not supported".to_owned());
        }
        _ => {}
    }
    for (prefix, base) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = s.strip_prefix(prefix)
            && !digits.is_empty()
            && digits.chars().all(|c| c.is_digit(base))
        {
            return match u64::from_str_radix(digits, base) {
                Ok(n) => Ok(Value::Num(Number::from(i128::from(n)))),
                Err(_) => Err(format!("{s:?} is too large a number")),
            };
        }
    }
    if is_decimal(s) {
        return s.parse().map(Value::Num).map_err(|_| format!("{s:?} is out of range"));
    }
    Ok(timestamp(s).map_or_else(|| Value::str(s), Value::str))
}

/// Returns whether a text is a decimal number with a point or an exponent.
fn is_decimal(s: &str) -> bool {
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let s = s.strip_prefix(['+', '-']).unwrap_or(s);
    let (mantissa, exponent) = match s.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (s, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    exponent.is_none_or(|e| !e.is_empty() && digits(e))
        && digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
}

/// Converts a date or time in YAML's notations to RFC 3339 with whole seconds.
fn timestamp(s: &str) -> Option<String> {
    let number = |text: &str, most: usize| {
        (1..=most).contains(&text.len()).then_some(text)?.bytes().all(|b| b.is_ascii_digit()).then_some(())?;
        text.parse::<u32>().ok()
    };
    let (date, time) = match s.find(['T', 't', ' ']) {
        Some(at) => (&s[..at], Some((s.as_bytes()[at], &s[at + 1..]))),
        None => (s, None),
    };
    let mut parts = date.splitn(3, '-');
    let (year, month, day) = (parts.next()?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let year = (year.len() == 4).then(|| number(year, 4)).flatten()?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=days).contains(&day) {
        return None;
    }
    let Some((separator, time)) = time else {
        return Some(format!("{year:04}-{month:02}-{day:02}T00:00:00Z"));
    };
    // A time after a space has no zone; a time after a letter must have one.
    let end =
        time.find(|c: char| !(c.is_ascii_digit() || matches!(c, ':' | '.' | ','))).unwrap_or(time.len());
    let (clock, zone) = (&time[..end], &time[end..]);
    let mut parts = clock.splitn(3, ':');
    let (hour, minute, second) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?, parts.next()?);
    let (second, fraction) = match second.split_once(['.', ',']) {
        Some((second, fraction)) => (second, Some(fraction)),
        None => (second, None),
    };
    if fraction.is_some_and(|f| f.is_empty() || !f.bytes().all(|b| b.is_ascii_digit())) {
        return None;
    }
    let second = number(second, 2)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let zone = match (separator, zone) {
        (b' ', "") | (b'T' | b't', "Z") => "Z".to_owned(),
        (b'T' | b't', zone) => {
            let (sign, rest) = zone.split_at_checked(1).filter(|(sign, _)| matches!(*sign, "+" | "-"))?;
            let (hours, minutes) = rest.split_once(':').filter(|(h, m)| h.len() == 2 && m.len() == 2)?;
            let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
            match (hours, minutes) {
                (0, 0) => "Z".to_owned(),
                (..=24, ..=60) => format!("{sign}{hours:02}:{minutes:02}"),
                _ => return None,
            }
        }
        _ => return None,
    };
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{zone}"))
}
