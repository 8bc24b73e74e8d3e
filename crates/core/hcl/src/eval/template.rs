//! Evaluates templates.

use super::{Evaluated, Evaluator, MAX_STRING, Scope, elements, fail, weight};
use crate::ast::{Expr, Part};
use crate::value::{Type, Value, convert};

pub(super) fn render(evaluator: &Evaluator, parts: &[Part], scope: &Scope, at: &Expr) -> Evaluated<Value> {
    let mut out = String::new();
    append(evaluator, parts, scope, at, &mut out)?;
    evaluator.charge(out.len() as u64 / 64, at)?;
    Ok(Value::str(out))
}

/// Evaluates an interpolation and counts the work of writing its value.
fn interpolated(evaluator: &Evaluator, expr: &Expr, scope: &Scope) -> Evaluated<Value> {
    let value = evaluator.eval(expr, scope)?;
    evaluator.charge(weight(&value), expr)?;
    Ok(value)
}

fn append(
    evaluator: &Evaluator,
    parts: &[Part],
    scope: &Scope,
    at: &Expr,
    out: &mut String,
) -> Evaluated<()> {
    for part in parts {
        match part {
            Part::Text(text, _) => out.push_str(text),
            Part::Interpolation(expr) => match convert(interpolated(evaluator, expr, scope)?, &Type::Str) {
                Ok(Value::Str(s)) => out.push_str(&s),
                Ok(_) => {
                    return Err(fail(
                        "E0212",
                        expr.span,
                        "Invalid template interpolation value",
                        "The expression result is null. Cannot include a null value in a string template.",
                    ));
                }
                Err(e) => {
                    return Err(fail(
                        "E0212",
                        expr.span,
                        "Invalid template interpolation value",
                        format!("Cannot include the given value in a string template: {e}."),
                    ));
                }
            },
            Part::If(condition, yes, no) => {
                let which =
                    evaluator.truth(condition, scope, "Incorrect condition type", "Null condition")?;
                append(evaluator, if which { yes } else { no }, scope, at, out)?;
            }
            Part::For { key, value, collection, body } => {
                let list = evaluator.eval(collection, scope)?;
                let (summary, detail) = if list.is_null() {
                    (
                        "Iteration over null value",
                        "A null value cannot be used as the collection in a 'for' directive.",
                    )
                } else {
                    (
                        "Iteration over non-iterable value",
                        "A value of this type cannot be used as the collection in a 'for' directive.",
                    )
                };
                let items = elements(list).ok_or_else(|| fail("E0207", collection.span, summary, detail))?;
                for (k, v) in items {
                    // An empty body counts no steps.
                    evaluator.charge(1, at)?;
                    let mut inner = scope.clone();
                    if let Some(name) = key {
                        inner = inner.with(&name.text, k);
                    }
                    append(evaluator, body, &inner.with(&value.text, v), at, out)?;
                }
            }
        }
        if out.len() > MAX_STRING {
            return Err(fail(
                "E0209",
                at.start(),
                "String too long",
                format!("This template makes a string of more than {MAX_STRING} bytes."),
            ));
        }
    }
    Ok(())
}
