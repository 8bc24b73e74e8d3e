//! Numbers.

use num_bigint::BigInt;

use super::{Function, P, Result, f, num, text, v, whole};
use crate::value::{Number, Value};

const NUM: &[(&str, P)] = &[("num", P::Num)];

pub(super) const TABLE: &[Function] = &[
    f("abs", NUM, |_, a| Ok(num(&a[0]).abs().into())),
    f("ceil", NUM, |_, a| Ok(num(&a[0]).ceil().into())),
    f("floor", NUM, |_, a| Ok(num(&a[0]).floor().into())),
    f("signum", NUM, |_, a| {
        let n = num(&a[0]);
        Ok(Value::int(if n.is_zero() {
            0
        } else if n.is_negative() {
            -1
        } else {
            1
        }))
    }),
    v("max", &[], ("numbers", P::Num), |_, a| {
        a.iter().map(num).max().map(Value::Num).ok_or_else(|| "must pass at least one number".to_owned())
    }),
    v("min", &[], ("numbers", P::Num), |_, a| {
        a.iter().map(num).min().map(Value::Num).ok_or_else(|| "must pass at least one number".to_owned())
    }),
    f("log", &[("num", P::Num), ("base", P::Num)], |_, a| {
        float(num(&a[0]).to_f64().ln() / num(&a[1]).to_f64().ln())
    }),
    f("pow", &[("num", P::Num), ("power", P::Num)], |_, a| {
        let (base, power) = (num(&a[0]), num(&a[1]));
        if let Some(out) = power.to_i64().and_then(|p| u32::try_from(p).ok()).and_then(|p| base.power(p)) {
            return float(out.to_f64());
        }
        float(base.to_f64().powf(power.to_f64()))
    }),
    f("parseint", &[("number", P::Str), ("base", P::Num)], |_, a| {
        let base = u32::try_from(whole(&a[1])?).ok().filter(|b| (2..=62).contains(b));
        let base = base.ok_or("base must be a whole number between 2 and 62 inclusive")?;
        parse(&text(&a[0]), base)
            .map(Value::Num)
            .ok_or_else(|| format!("cannot parse {:?} as a base {base} integer", text(&a[0])))
    }),
];

fn float(f: f64) -> Result<Value> {
    Number::from_f64(f).map(Value::Num).ok_or_else(|| "the result is not a finite number".to_owned())
}

fn parse(s: &str, base: u32) -> Option<Number> {
    let (negative, digits) = match s.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, s.strip_prefix('+').unwrap_or(s)),
    };
    if digits.is_empty() {
        return None;
    }
    if digits.len() > 1000 {
        return None;
    }
    let mut value = BigInt::ZERO;
    for c in digits.chars() {
        let digit = match c {
            '0'..='9' => u32::from(c) - u32::from('0'),
            'a'..='z' => u32::from(c) - u32::from('a') + 10,
            // Up to base 36 the cases are one; beyond, capitals follow the small letters.
            'A'..='Z' if base <= 36 => u32::from(c) - u32::from('A') + 10,
            'A'..='Z' => u32::from(c) - u32::from('A') + 36,
            _ => return None,
        };
        if digit >= base {
            return None;
        }
        value = value * base + digit;
    }
    Number::from_whole(if negative { -value } else { value })
}
