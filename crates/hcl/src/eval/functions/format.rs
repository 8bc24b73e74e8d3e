//! `format` and `formatlist`.

use super::encoding::to_json_text;
use super::strings::bounded;
use super::{Function, P, Result, items, num, text, v};
use crate::value::{Number, Type, Value, convert};

pub(super) const TABLE: &[Function] = &[
    v("format", &[("format", P::Str)], ("args", P::Any), |_, a| bounded(format(&text(&a[0]), &a[1..])?)),
    v("formatlist", &[("format", P::Str)], ("args", P::Any), |_, a| formatlist(&a)),
];

fn formatlist(a: &[Value]) -> Result<Value> {
    let mut length = None;
    for (i, value) in a.iter().enumerate().skip(1) {
        if let Value::Seq(.., list) = value {
            match length {
                Some(n) if n != list.len() => {
                    return Err(format!(
                        "argument {i} has length {}, which is inconsistent with the others of length {n}",
                        list.len()
                    ));
                }
                _ => length = Some(list.len()),
            }
        }
    }
    let pattern = text(&a[0]);
    let mut out = Vec::new();
    for i in 0..length.unwrap_or(1) {
        let row: Vec<Value> = a[1..]
            .iter()
            .map(|v| match v {
                Value::Seq(..) => items(v.clone()).into_iter().nth(i).unwrap_or(Value::Null),
                other => other.clone(),
            })
            .collect();
        out.push(format(&pattern, &row)?);
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
    index: Option<usize>,
}

fn format(pattern: &str, arguments: &[Value]) -> Result<String> {
    let mut out = String::new();
    let mut chars = pattern.chars().peekable();
    let mut next = 0;
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut verb = Verb::default();
        while let Some(flag) = chars.peek().copied() {
            match flag {
                '+' => verb.plus = true,
                '-' => verb.minus = true,
                '0' => verb.zero = true,
                '#' => verb.sharp = true,
                ' ' => verb.space = true,
                _ => break,
            }
            chars.next();
        }
        let digits = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| {
            let mut n: Option<usize> = None;
            while let Some(d) = chars.peek().and_then(|c| c.to_digit(10)) {
                chars.next();
                n = Some(n.unwrap_or(0).saturating_mul(10).saturating_add(d as usize));
            }
            n
        };
        verb.width = digits(&mut chars).unwrap_or(0).min(4096);
        if chars.peek() == Some(&'.') {
            chars.next();
            verb.precision = Some(digits(&mut chars).unwrap_or(0).min(4096));
        }
        if chars.peek() == Some(&'[') {
            chars.next();
            verb.index = digits(&mut chars).and_then(|n| n.checked_sub(1));
            if chars.next() != Some(']') {
                return Err("unrecognized format: an argument index must be closed with ]".to_owned());
            }
        }
        let Some(kind) = chars.next() else {
            return Err("unterminated format sequence at the end".to_owned());
        };
        if kind == '%' {
            out.push('%');
            continue;
        }
        let at = verb.index.unwrap_or(next);
        let Some(argument) = arguments.get(at) else {
            return Err(format!("not enough arguments for {kind:?}: need index {}", at + 1).replace('\'', ""));
        };
        next = at + 1;
        out.push_str(&pad(
            one(kind, &verb, argument)?,
            &verb,
            matches!(kind, 'd' | 'f' | 'F' | 'e' | 'E' | 'g' | 'G' | 'x' | 'X' | 'o' | 'b'),
        ));
    }
    if next < arguments.len() && !arguments.is_empty() && !pattern.contains("%[") {
        return Err(format!("too many arguments; only {next} used by format string"));
    }
    Ok(out)
}

fn pad(s: String, verb: &Verb, numeric: bool) -> String {
    let missing = verb.width.saturating_sub(s.chars().count());
    if missing == 0 {
        return s;
    }
    if verb.minus {
        return s + &" ".repeat(missing);
    }
    if verb.zero && numeric {
        let (sign, digits) = s.split_at(usize::from(s.starts_with(['-', '+'])));
        return format!("{sign}{}{digits}", "0".repeat(missing));
    }
    " ".repeat(missing) + &s
}

fn one(kind: char, verb: &Verb, value: &Value) -> Result<String> {
    let unsupported = |e: String| format!("unsupported value for \"%{kind}\": {e}");
    let number = || -> Result<Number> {
        convert(value.clone(), &Type::Num).map_err(unsupported).and_then(|v| match v {
            Value::Null => Err(unsupported("null value".to_owned())),
            v => Ok(num(&v)),
        })
    };
    let whole = || -> Result<i128> {
        number()?.truncate().to_i128().ok_or_else(|| unsupported("the number is too large".to_owned()))
    };
    let signed = |s: String| if verb.plus && !s.starts_with('-') { format!("+{s}") } else { s };
    let based = |n: i128, digits: String| if n < 0 { format!("-{digits}") } else { signed(digits) };
    match kind {
        'v' if verb.sharp => Ok(to_json_text(value)),
        'v' => match value {
            Value::Str(s) => Ok(s.to_string()),
            Value::Num(n) => Ok(n.to_string()),
            Value::Bool(b) => Ok(b.to_string()),
            other => Ok(to_json_text(other)),
        },
        't' => match convert(value.clone(), &Type::Bool).map_err(unsupported)? {
            Value::Bool(b) => Ok(b.to_string()),
            _ => Err(unsupported("null value".to_owned())),
        },
        's' | 'q' => {
            let s = match convert(value.clone(), &Type::Str).map_err(unsupported)? {
                Value::Str(s) => s.to_string(),
                _ => return Err(unsupported("null value".to_owned())),
            };
            let s = match verb.precision {
                Some(p) => s.chars().take(p).collect(),
                None => s,
            };
            Ok(if kind == 'q' { to_json_text(&Value::str(s)) } else { s })
        }
        'd' => Ok(signed(number()?.truncate().to_string())),
        'b' => whole().map(|n| based(n, format!("{:b}", n.unsigned_abs()))),
        'o' => whole().map(|n| based(n, format!("{:o}", n.unsigned_abs()))),
        'x' => whole().map(|n| based(n, format!("{:x}", n.unsigned_abs()))),
        'X' => whole().map(|n| based(n, format!("{:X}", n.unsigned_abs()))),
        'f' | 'F' => Ok(signed(number()?.fixed(verb.precision.unwrap_or(6)))),
        'e' => Ok(signed(number()?.scientific(verb.precision.unwrap_or(6)))),
        'E' => Ok(signed(number()?.scientific(verb.precision.unwrap_or(6)).to_uppercase())),
        'g' => Ok(signed(number()?.general(verb.precision))),
        'G' => Ok(signed(number()?.general(verb.precision).to_uppercase())),
        other => Err(format!("unsupported format verb \"%{other}\"")),
    }
}
