//! Arithmetic, comparison and logic.

use super::{Evaluated, Evaluator, Scope, fail};
use crate::ast::{Binary, Expr, Unary};
use crate::diag::Diagnostic;
use crate::value::{MapKind, Number, SeqKind, Type, Value, convert};

const SUMMARY: &str = "Invalid operand";

/// Which operand it is, for messages.
#[derive(Clone, Copy)]
enum Side {
    Only,
    Left,
    Right,
}

pub(super) fn unary(operator: Unary, value: Value, at: &Expr) -> Evaluated<Value> {
    match operator {
        Unary::Minus => Ok(Value::Num(number(value, at, Side::Only)?.negate())),
        Unary::Not => Ok(Value::Bool(!truth(value, at, Side::Only)?)),
    }
}

fn number(value: Value, at: &Expr, side: Side) -> Evaluated<Number> {
    match convert(value, &Type::Num) {
        Ok(Value::Num(n)) => Ok(n),
        Ok(_) => Err(unsuitable(at, side, "argument must not be null")),
        Err(e) => Err(unsuitable(at, side, &e)),
    }
}

fn truth(value: Value, at: &Expr, side: Side) -> Evaluated<bool> {
    match convert(value, &Type::Bool) {
        Ok(Value::Bool(b)) => Ok(b),
        Ok(_) => Err(unsuitable(at, side, "argument must not be null")),
        Err(e) => Err(unsuitable(at, side, &e)),
    }
}

fn unsuitable(at: &Expr, side: Side, why: &str) -> Box<Diagnostic> {
    let which = match side {
        Side::Only => "unary operand",
        Side::Left => "left operand",
        Side::Right => "right operand",
    };
    fail("E0210", at.span, SUMMARY, format!("Unsuitable value for {which}: {why}."))
}

pub(super) fn binary(
    evaluator: &Evaluator,
    operator: Binary,
    (left, right): (&Expr, &Expr),
    whole: &Expr,
    scope: &Scope,
) -> Evaluated<Value> {
    let (a, b) = (evaluator.eval(left, scope)?, evaluator.eval(right, scope)?);
    match operator {
        Binary::Equal => return Ok(Value::Bool(equal(&a, &b))),
        Binary::NotEqual => return Ok(Value::Bool(!equal(&a, &b))),
        Binary::Or => return Ok(Value::Bool(truth(a, left, Side::Left)? | truth(b, right, Side::Right)?)),
        Binary::And => return Ok(Value::Bool(truth(a, left, Side::Left)? & truth(b, right, Side::Right)?)),
        _ => {}
    }
    let (a, b) = (number(a, left, Side::Left)?, number(b, right, Side::Right)?);
    let no_result = || {
        let detail = if a.is_infinite() || b.is_infinite() || b.is_zero() {
            "There is no such result: zeros or infinities cannot be computed with like this."
        } else {
            "The result is too large or too small for a number."
        };
        fail("E0211", whole.span, "Operation failed", detail)
    };
    Ok(match operator {
        Binary::Less => Value::Bool(a < b),
        Binary::LessEqual => Value::Bool(a <= b),
        Binary::Greater => Value::Bool(a > b),
        Binary::GreaterEqual => Value::Bool(a >= b),
        Binary::Add => Value::Num(a.plus(&b).ok_or_else(no_result)?),
        Binary::Subtract => Value::Num(a.minus(&b).ok_or_else(no_result)?),
        Binary::Multiply => Value::Num(a.times(&b).ok_or_else(no_result)?),
        Binary::Divide => Value::Num(a.over(&b).ok_or_else(no_result)?),
        Binary::Remainder => Value::Num(a.remainder(&b).ok_or_else(no_result)?),
        Binary::Equal | Binary::NotEqual | Binary::Or | Binary::And => Value::NULL,
    })
}

/// Equal in type and value; null is equal to null only.
pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Seq(k, _, x), Value::Seq(l, _, y)) => {
            // A tuple and a list never have the same type.
            (*k == SeqKind::Tuple) == (*l == SeqKind::Tuple)
                && x.len() == y.len()
                && x.iter().zip(y).all(|(p, q)| equal(p, q))
        }
        (Value::Map(k, _, x), Value::Map(l, _, y)) => {
            (*k == MapKind::Object) == (*l == MapKind::Object)
                && x.len() == y.len()
                && x.iter().zip(y).all(|((k, p), (l, q))| k == l && equal(p, q))
        }
        _ => a == b,
    }
}
