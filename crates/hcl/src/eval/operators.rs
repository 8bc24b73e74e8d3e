//! Arithmetic, comparison and logic.

use super::{Evaluated, Evaluator, Scope, fail};
use crate::ast::{Binary, Expr, Unary};
use crate::diag::Diagnostic;
use crate::value::{MapKind, Number, SeqKind, Type, Value, convert};

const SUMMARY: &str = "Invalid operand";

pub(super) fn unary(operator: Unary, value: Value, at: &Expr) -> Evaluated<Value> {
    match operator {
        Unary::Minus => Ok(Value::Num(number(value, at)?.negate())),
        Unary::Not => Ok(Value::Bool(!truth(value, at)?)),
    }
}

fn number(value: Value, at: &Expr) -> Evaluated<Number> {
    match convert(value, &Type::Num) {
        Ok(Value::Num(n)) => Ok(n),
        Ok(_) => Err(null(at)),
        Err(e) => Err(fail("E0210", at.start(), SUMMARY, format!("Unsuitable value for operand: {e}."))),
    }
}

fn truth(value: Value, at: &Expr) -> Evaluated<bool> {
    match convert(value, &Type::Bool) {
        Ok(Value::Bool(b)) => Ok(b),
        Ok(_) => Err(null(at)),
        Err(e) => Err(fail("E0210", at.start(), SUMMARY, format!("Unsuitable value for operand: {e}."))),
    }
}

fn null(at: &Expr) -> Box<Diagnostic> {
    fail("E0210", at.start(), SUMMARY, "Unsuitable value for operand: argument must not be null.")
}

pub(super) fn binary(
    evaluator: &Evaluator,
    operator: Binary,
    left: &Expr,
    right: &Expr,
    scope: &Scope,
) -> Evaluated<Value> {
    let (a, b) = (evaluator.eval(left, scope)?, evaluator.eval(right, scope)?);
    match operator {
        Binary::Equal => return Ok(Value::Bool(equal(&a, &b))),
        Binary::NotEqual => return Ok(Value::Bool(!equal(&a, &b))),
        Binary::Or => return Ok(Value::Bool(truth(a, left)? | truth(b, right)?)),
        Binary::And => return Ok(Value::Bool(truth(a, left)? & truth(b, right)?)),
        _ => {}
    }
    let (a, b) = (number(a, left)?, number(b, right)?);
    let by_zero = || {
        fail(
            "E0211",
            left.start(),
            "Division by zero",
            "The result is no number; the divisor must not be zero.",
        )
    };
    Ok(match operator {
        Binary::Less => Value::Bool(a < b),
        Binary::LessEqual => Value::Bool(a <= b),
        Binary::Greater => Value::Bool(a > b),
        Binary::GreaterEqual => Value::Bool(a >= b),
        Binary::Add => Value::Num(a.plus(b)),
        Binary::Subtract => Value::Num(a.minus(b)),
        Binary::Multiply => Value::Num(a.times(b)),
        Binary::Divide => Value::Num(a.over(b).ok_or_else(by_zero)?),
        Binary::Remainder => Value::Num(a.remainder(b).ok_or_else(by_zero)?),
        Binary::Equal | Binary::NotEqual | Binary::Or | Binary::And => Value::Null,
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
