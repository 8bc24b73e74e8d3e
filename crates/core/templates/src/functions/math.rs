//! Arithmetic functions. The second argument is the operand, so that it can be piped: `{{ 5 | subtract 2 }}` is 3.

use super::{Function, f};
use crate::session::Answer;
use crate::value::{as_float, as_int};
use gotmpl::Value;

pub(super) const TABLE: &[Function] = &[
    f("add", 2, |_, a| work(&a[1], &a[0], i64::checked_add, |x, y| x + y)),
    f("subtract", 2, |_, a| work(&a[1], &a[0], i64::checked_sub, |x, y| x - y)),
    f("multiply", 2, |_, a| work(&a[1], &a[0], i64::checked_mul, |x, y| x * y)),
    f("divide", 2, |_, a| work(&a[1], &a[0], i64::checked_div, |x, y| x / y)),
    f("modulo", 2, |_, a| {
        let (x, y) = (as_int(&a[1])?, as_int(&a[0])?);
        x.checked_rem(y).map(Value::Int).ok_or_else(|| "it cannot be divided by that".to_owned())
    }),
    f("minimum", 2, |_, a| work(&a[1], &a[0], |x, y| Some(x.min(y)), f64::min)),
    f("maximum", 2, |_, a| work(&a[1], &a[0], |x, y| Some(x.max(y)), f64::max)),
];

/// Computes with integers if both arguments are integers, otherwise with floating point.
fn work(x: &Value, y: &Value, whole: fn(i64, i64) -> Option<i64>, broken: fn(f64, f64) -> f64) -> Answer {
    if matches!(x, Value::Float(_)) || matches!(y, Value::Float(_)) {
        return Ok(Value::Float(broken(as_float(x)?, as_float(y)?)));
    }
    let (x, y) = (as_int(x)?, as_int(y)?);
    whole(x, y).map(Value::Int).ok_or_else(|| "the numbers have no such result".to_owned())
}
