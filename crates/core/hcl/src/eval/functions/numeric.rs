//! Functions for numbers.

use super::powers::{ln, power};
use super::{Function, P, Result, blame, f, num, text, v, whole};
use crate::value::{Number, Value};
use num_bigint::BigInt;

const NUM: &[(&str, P)] = &[("num", P::Num)];

/// The maximum number of digits to parse, because the work grows with their square.
const MAX_DIGITS: usize = 1000;

pub(super) const TABLE: &[Function] = &[
    f("abs", NUM, |_, a| Ok(num(&a[0]).abs().into())),
    f("ceil", NUM, |_, a| Ok(num(&a[0]).ceil().into())),
    f("floor", NUM, |_, a| Ok(num(&a[0]).floor().into())),
    f("signum", NUM, |_, a| Ok(Value::int(whole(&a[0])?.signum()))),
    v("max", &[], ("numbers", P::Num), |_, a| extreme(&a, |x, best| x > best)),
    v("min", &[], ("numbers", P::Num), |_, a| extreme(&a, |x, best| x < best)),
    f("log", &[("num", P::Num), ("base", P::Num)], |_, a| {
        float(ln(num(&a[0]).to_f64()) / ln(num(&a[1]).to_f64()))
    }),
    f("pow", &[("num", P::Num), ("power", P::Num)], |_, a| {
        float(power(num(&a[0]).to_f64(), num(&a[1]).to_f64()))
    }),
    f("parseint", &[("number", P::Some), ("base", P::Num)], |_, a| {
        let Value::Str(digits) = &a[0] else {
            return Err(blame(0, format!("first argument must be a string, not {}", a[0].type_name())));
        };
        let base = whole(&a[1]).map_err(|e| blame(1, e.text))?;
        let base = u32::try_from(base).ok().filter(|b| (2..=62).contains(b));
        let base = base.ok_or_else(|| blame(1, "base must be a whole number between 2 and 62 inclusive"))?;
        let wrong = || blame(0, format!("cannot parse {:?} as a base {base} integer", text(&a[0])));
        parse(digits, base).map(Value::Num).ok_or_else(wrong)
    }),
];

/// Returns the best argument, the first one if several are equal.
fn extreme(a: &[Value], better: fn(&Number, &Number) -> bool) -> Result<Value> {
    let mut best: Option<Number> = None;
    for x in a.iter().map(num) {
        if best.as_ref().is_none_or(|best| better(&x, best)) {
            best = Some(x);
        }
    }
    best.map(Value::Num).ok_or_else(|| "must pass at least one number".into())
}

fn float(f: f64) -> Result<Value> {
    Number::from_f64(f).map(Value::Num).ok_or_else(|| "the result is not a number".into())
}

fn parse(s: &str, base: u32) -> Option<Number> {
    let (negative, digits) = match s.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, s.strip_prefix('+').unwrap_or(s)),
    };
    if digits.is_empty() || digits.len() > MAX_DIGITS {
        return None;
    }
    let mut value = BigInt::ZERO;
    for c in digits.chars() {
        let digit = match c {
            '0'..='9' => u32::from(c) - u32::from('0'),
            'a'..='z' => u32::from(c) - u32::from('a') + 10,
            // Up to base 36, letters are case-insensitive. In larger bases, capitals follow the small letters.
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
