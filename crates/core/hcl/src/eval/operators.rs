//! Arithmetic, comparison and logical operators.

use super::{Evaluated, Evaluator, Scope, fail};
use crate::ast::{Binary, Expr, Unary};
use crate::diag::Diagnostic;
use crate::value::{MapKind, SeqKind, Type, Value, convert};

const SUMMARY: &str = "Invalid operand";

/// The operand that a message is about.
#[derive(Clone, Copy)]
enum Side {
    Only,
    Left,
    Right,
}

pub(super) fn unary(operator: Unary, value: Value, at: &Expr, whole: &Expr) -> Evaluated<Value> {
    let desired = if operator == Unary::Minus { Type::Num } else { Type::Bool };
    match operand(value, &desired, at, Side::Only)? {
        Value::Num(n) => Ok(Value::Num(n.negate())),
        Value::Bool(b) => Ok(Value::Bool(!b)),
        _ => Err(null(whole)),
    }
}

/// Converts an operand to the type of its operator. Null is checked later, because a wrong type is reported first.
fn operand(value: Value, desired: &Type, at: &Expr, side: Side) -> Evaluated<Value> {
    convert(value, desired).map_err(|e| unsuitable(at, side, &e))
}

/// Returns the error for a null operand, which points at the whole operation.
fn null(whole: &Expr) -> Box<Diagnostic> {
    fail("E0210", whole.span, "Operation failed", "An operand must not be null.")
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
        _ => {}
    }
    let desired = if matches!(operator, Binary::Or | Binary::And) { Type::Bool } else { Type::Num };
    let (a, b) = (operand(a, &desired, left, Side::Left)?, operand(b, &desired, right, Side::Right)?);
    let (a, b) = match (a, b) {
        (Value::Num(a), Value::Num(b)) => (a, b),
        (Value::Bool(a), Value::Bool(b)) => {
            return Ok(Value::Bool(if operator == Binary::Or { a | b } else { a & b }));
        }
        _ => return Err(null(whole)),
    };
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

/// Returns whether two values are equal in type and value. Null equals only null.
pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Seq(k, t, x), Value::Seq(l, u, y)) => {
            k == l
                && (*k == SeqKind::Tuple || t == u)
                && x.len() == y.len()
                && x.iter().zip(y).all(|(p, q)| equal(p, q))
        }
        (Value::Map(k, t, x), Value::Map(l, u, y)) => {
            k == l
                && (*k == MapKind::Object || t == u)
                && x.len() == y.len()
                && x.iter().zip(y).all(|((k, p), (l, q))| k == l && equal(p, q))
        }
        (Value::Null(_), Value::Null(_)) => true,
        _ => a == b,
    }
}
