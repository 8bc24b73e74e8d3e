//! `format` and `formatlist`.

use super::encoding::to_json_text;
use super::strings::{bounded, clusters};
use super::{Function, P, Result, blame, num, text, v};
use crate::eval::MAX_STRING;
use crate::value::{Number, Type, Value, convert};
use num_bigint::Sign;

pub(super) const TABLE: &[Function] = &[
    v("format", &[("format", P::Str)], ("args", P::Any), |_, a| {
        let arguments: Vec<&Value> = a[1..].iter().collect();
        bounded(format(&text(&a[0]), &arguments)?)
    }),
    v("formatlist", &[("format", P::Str)], ("args", P::Any), |_, a| formatlist(&a)),
];

/// The maximum field width and precision.
const MAX_WIDTH: usize = 1_000_000;

fn formatlist(a: &[Value]) -> Result<Value> {
    let mut rows = None;
    for (i, value) in a.iter().enumerate().skip(1) {
        if let Value::Seq(.., list) = value {
            match rows {
                Some((n, other)) if n != list.len() => {
                    let length = list.len();
                    let why = format!("argument {i} has length {length}, and argument {other} length {n}");
                    return Err(blame(i, why));
                }
                Some(_) => {}
                None => rows = Some((list.len(), i)),
            }
        }
    }
    let pattern = text(&a[0]);
    let mut out = Vec::new();
    for row in 0..rows.map_or(1, |(n, _)| n) {
        let arguments: Vec<&Value> = a[1..]
            .iter()
            .map(|v| match v {
                Value::Seq(.., list) => list.get(row).unwrap_or(v),
                other => other,
            })
            .collect();
        let line = format(&pattern, &arguments);
        out.push(line.map_err(|e| format!("error on format iteration {row}: {}", e.text))?);
    }
    Ok(Value::strings(out))
}

#[derive(Default)]
struct Verb {
    plus: bool,
    minus: bool,
    zero: bool,
    sharp: bool,
    space: bool,
    width: usize,
    precision: Option<usize>,
}

/// The remaining characters of a format.
struct Pattern<'p> {
    chars: std::iter::Peekable<std::str::CharIndices<'p>>,
}

impl Pattern<'_> {
    fn peek(&mut self) -> Option<char> {
        self.chars.peek().map(|(_, c)| *c)
    }

    fn eat(&mut self, desired: char) -> bool {
        self.chars.next_if(|(_, c)| *c == desired).is_some()
    }

    /// Parses a number.
    fn number(&mut self) -> Result<Option<usize>> {
        let mut out: Option<usize> = None;
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
            self.chars.next();
            let next = out.unwrap_or(0) * 10 + digit as usize;
            if next > MAX_WIDTH {
                return Err(format!("a number in the format string is larger than {MAX_WIDTH}").into());
            }
            out = Some(next);
        }
        Ok(out)
    }

    fn unexpected<T>(&mut self) -> Result<T> {
        Err(match self.chars.next() {
            Some((at, c)) => format!("unrecognized format character {c:?} at offset {at}").into(),
            None => "the format string ends within a verb".into(),
        })
    }

    /// Parses the verb after `%`, with the number of the argument that it selects.
    fn verb(&mut self) -> Result<(Verb, Option<usize>, char)> {
        let mut verb = Verb::default();
        while let Some(flag) = self.peek() {
            match flag {
                '+' => verb.plus = true,
                '-' => verb.minus = true,
                '0' => verb.zero = true,
                '#' => verb.sharp = true,
                ' ' => verb.space = true,
                _ => break,
            }
            self.chars.next();
        }
        verb.width = self.number()?.unwrap_or(0);
        if self.eat('.') {
            verb.precision = Some(self.number()?.unwrap_or(0));
        }
        let mut index = None;
        if self.eat('[') {
            if self.peek() == Some('0') {
                return self.unexpected();
            }
            index = self.number()?;
            if index.is_none() || !self.eat(']') {
                return self.unexpected();
            }
        }
        match self.peek() {
            Some(kind) if kind.is_ascii_alphabetic() => {
                self.chars.next();
                Ok((verb, index, kind))
            }
            _ => self.unexpected(),
        }
    }
}

fn format(pattern: &str, arguments: &[&Value]) -> Result<String> {
    let mut out = String::new();
    let mut pattern = Pattern { chars: pattern.char_indices().peekable() };
    // Argument numbers begin with 1.
    let (mut next, mut highest) = (1, 0);
    while let Some((_, c)) = pattern.chars.next() {
        if c != '%' || pattern.eat('%') {
            out.push(c);
            continue;
        }
        let (verb, index, kind) = pattern.verb()?;
        let at = index.unwrap_or(next);
        highest = highest.max(at);
        let Some(argument) = arguments.get(at - 1) else {
            let total = arguments.len();
            return Err(format!(
                "not enough arguments for \"%{kind}\": need index {at} but have {total} total"
            )
            .into());
        };
        next = at + 1;
        out.push_str(&one(kind, &verb, argument)?);
        if out.len() > MAX_STRING {
            return Err(format!("the result is longer than {MAX_STRING} bytes").into());
        }
    }
    if highest < arguments.len() {
        return Err(blame(highest + 1, format!("too many arguments; only {highest} used by format string")));
    }
    Ok(out)
}

/// Pads a text to the width of its field, with spaces or zeros.
fn pad(s: String, verb: &Verb) -> String {
    let missing = verb.width.saturating_sub(clusters(&s).len());
    let padding = if verb.zero { "0" } else { " " }.repeat(missing);
    if verb.minus { s + &padding } else { padding + &s }
}

fn one(kind: char, verb: &Verb, value: &Value) -> Result<String> {
    let unsupported = |e: &str| format!("unsupported value for \"%{kind}\": {e}");
    if kind != 'v' && value.is_null() {
        return Err(unsupported("null value cannot be formatted").into());
    }
    let converted = |t: Type| convert(value.clone(), &t).map_err(|e| unsupported(&e));
    match kind {
        'v' => Ok(pad(
            match value {
                Value::Str(s) if !verb.sharp => s.to_string(),
                Value::Num(n) if !verb.sharp && !n.is_infinite() => n.general(None),
                Value::Num(n) if !verb.sharp => n.to_string(),
                other => to_json_text(other).map_err(|e| unsupported(&e.text))?,
            },
            verb,
        )),
        't' => Ok(text(&converted(Type::Bool)?)),
        's' | 'q' => {
            let s = text(&converted(Type::Str)?);
            let s = match verb.precision {
                Some(most @ 1..) => clusters(&s).into_iter().take(most).collect(),
                _ => s,
            };
            Ok(pad(if kind == 'q' { to_json_text(&Value::str(s))? } else { s }, verb))
        }
        'b' | 'd' | 'o' | 'x' | 'X' => whole(kind, verb, &num(&converted(Type::Num)?))
            .ok_or_else(|| unsupported("an integer is required").into()),
        'e' | 'E' | 'f' | 'g' | 'G' => Ok(fraction(kind, verb, &num(&converted(Type::Num)?))),
        other => Err(format!("unsupported format verb \"%{other}\"").into()),
    }
}

/// Returns the sign to print before a number.
fn sign(negative: bool, verb: &Verb) -> &'static str {
    match (negative, verb.plus, verb.space) {
        (true, ..) => "-",
        (_, true, _) => "+",
        (_, _, true) => " ",
        _ => "",
    }
}

/// Formats a whole number; the precision is the minimum number of digits.
fn whole(kind: char, verb: &Verb, n: &Number) -> Option<String> {
    let (negative, digits) = n.to_whole()?.into_parts();
    let base = match kind {
        'b' => 2,
        'o' => 8,
        'd' => 10,
        _ => 16,
    };
    let mut digits = digits.to_str_radix(base);
    if kind == 'X' {
        digits.make_ascii_uppercase();
    }
    if digits == "0" && verb.precision == Some(0) {
        return Some(String::new());
    }
    let prefix = match kind {
        _ if !verb.sharp => "",
        'b' => "0b",
        'o' => "0",
        'x' => "0x",
        'X' => "0X",
        _ => "",
    };
    let sign = sign(negative == Sign::Minus, verb);
    let mut zeros = verb.precision.unwrap_or(0).saturating_sub(digits.len());
    let missing = verb.width.saturating_sub(sign.len() + prefix.len() + zeros + digits.len());
    let (mut left, mut right) = (0, 0);
    if verb.minus {
        right = missing;
    } else if verb.zero && verb.precision.is_none() {
        zeros = missing;
    } else {
        left = missing;
    }
    Some([&" ".repeat(left), sign, prefix, &"0".repeat(zeros), &digits, &" ".repeat(right)].concat())
}

/// Formats a number with a decimal point or an exponent.
fn fraction(kind: char, verb: &Verb, n: &Number) -> String {
    let mut digits = match (kind, n.is_infinite()) {
        (_, true) => "Inf".to_owned(),
        ('f', _) => n.abs().fixed(verb.precision.unwrap_or(6)),
        ('e' | 'E', _) => n.abs().scientific(verb.precision.unwrap_or(6)),
        _ => n.abs().general(verb.precision),
    };
    if kind.is_ascii_uppercase() && !n.is_infinite() {
        digits.make_ascii_uppercase();
    }
    // Positive infinity always has a sign.
    let sign = match sign(n.has_sign(), verb) {
        "" if n.is_infinite() => "+",
        "+" if n.is_infinite() && verb.space => " ",
        sign => sign,
    };
    let missing = verb.width.saturating_sub(sign.len() + digits.len());
    if verb.minus {
        format!("{sign}{digits}{}", " ".repeat(missing))
    } else if verb.zero && !n.is_infinite() {
        format!("{sign}{}{digits}", "0".repeat(missing))
    } else {
        format!("{}{sign}{digits}", " ".repeat(missing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_mean_what_they_mean_in_the_reference() {
        let n = |text: &str| Value::Num(text.parse().unwrap());
        for (pattern, argument, want) in [
            ("% d", n("5"), " 5"),
            ("%#x", n("255"), "0xff"),
            ("%#o|%#[1]b|%#[1]X", n("10"), "012|0b1010|0XA"),
            ("%+08.3d", n("5"), "    +005"),
            ("%.0d|", n("0"), "|"),
            ("%-6d|", n("-3"), "-3    |"),
            ("%06.2f", n("-1.5"), "-01.50"),
            ("%v", n("1000000"), "1e+06"),
            ("%.2s|", Value::str("e\u{301}a\u{301}b"), "éá|"),
            ("%6s", Value::str("👩‍👩‍👧"), "     👩‍👩‍👧"),
            ("%06s", Value::str("ab"), "0000ab"),
            ("%6v", Value::NULL, "  null"),
            ("%#v", Value::str("<"), "\"\\u003c\""),
            ("100%%%s", Value::str(""), "100%"),
        ] {
            assert_eq!(format(pattern, &[&argument]).map_err(|e| e.text).as_deref(), Ok(want), "{pattern}");
        }
        for (pattern, argument, want) in [
            ("%d", n("1.5"), "an integer is required"),
            ("%s", Value::NULL, "null value"),
            ("%F", n("1"), "unsupported format verb"),
            ("% %", n("1"), "unrecognized format character '%'"),
            ("%", n("1"), "ends within a verb"),
            ("%[0]d", n("1"), "unrecognized format character '0'"),
            ("%d%d", n("1"), "need index 2 but have 1"),
            ("x", n("1"), "too many arguments"),
            ("%é", n("1"), "unrecognized format character"),
            ("%9999999d", n("1"), "larger than"),
        ] {
            let error = format(pattern, &[&argument]).unwrap_err();
            assert!(error.text.contains(want), "{pattern}: {}", error.text);
        }
    }
}
