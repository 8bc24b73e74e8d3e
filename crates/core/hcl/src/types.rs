//! Parses type expressions: `list(string)`, `object({ a = number })`.

use crate::ast::{Expr, ExprKind, Key};
use crate::diag::Diagnostic;
use crate::eval::{Evaluated, fail};
use crate::source::Span;
use crate::value::{Type, Value, normal};
use std::collections::BTreeMap;

const SUMMARY: &str = "Invalid type specification";

/// The purpose of a type expression.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A declaration: the type must be complete.
    Exact,
    /// A conversion: `any` stands for any type. `optional` around the type of an attribute has no effect: the
    /// attribute is still required, as in Nomad.
    Constraint,
}

/// Parses a type expression that must be complete.
///
/// # Errors
/// The expression is no type, or contains `any` or `optional`.
pub fn type_expression(expr: &Expr) -> Evaluated<Type> {
    read(expr, Purpose::Exact)
}

/// Parses a type expression that may contain `any` and `optional`.
///
/// # Errors
/// The expression is no type.
pub fn type_constraint(expr: &Expr) -> Evaluated<Type> {
    read(expr, Purpose::Constraint)
}

fn wrong(span: Span, detail: impl Into<String>) -> Box<Diagnostic> {
    fail("E0301", span, SUMMARY, detail)
}

fn read(expr: &Expr, purpose: Purpose) -> Evaluated<Type> {
    match &expr.kind {
        ExprKind::Traversal(t) if t.steps.is_empty() => keyword(&t.root.text, expr.span, purpose),
        ExprKind::Literal(Value::Bool(b)) => keyword(&b.to_string(), expr.span, purpose),
        ExprKind::Literal(Value::Null(_)) => keyword("null", expr.span, purpose),
        ExprKind::Call { name, arguments, open, .. } => {
            let brackets = Span { start: open.end.saturating_sub(1), ..expr.span };
            call(&name.text, arguments, [expr.span, name.span, brackets], purpose)
        }
        _ => Err(wrong(
            expr.span,
            "A type specification is either a primitive type keyword (bool, number, string) or a complex type constructor call, like list(string). It has no quotes.",
        )),
    }
}

/// Parses a type constructor with its arguments. The ranges are those of the call, of its name and of the brackets.
fn call(
    name: &str,
    arguments: &[Expr],
    [whole, place, brackets]: [Span; 3],
    purpose: Purpose,
) -> Evaluated<Type> {
    match name {
        "string" | "number" | "bool" | "any" => {
            return Err(wrong(brackets, format!("The type keyword {name:?} does not expect arguments.")));
        }
        "optional" => {
            let detail = "Keyword \"optional\" is valid only as a modifier for object type attributes.";
            return Err(wrong(place, detail));
        }
        "list" | "set" | "map" | "tuple" | "object" => {}
        _ => return Err(wrong(whole, format!("Keyword {name:?} is not a valid type constructor."))),
    }
    let inner = match arguments {
        [inner] => inner,
        [] => return Err(wrong(brackets, needs_argument(name))),
        [_, second, ..] => return Err(wrong(second.span, needs_argument(name))),
    };
    let element = || read(inner, purpose).map(Box::new);
    match (name, &inner.kind) {
        ("list", _) => Ok(Type::List(element()?)),
        ("set", _) => Ok(Type::Set(element()?)),
        ("map", _) => Ok(Type::Map(element()?)),
        ("tuple", ExprKind::Tuple(items)) => {
            items.iter().map(|item| read(item, purpose)).collect::<Result<_, _>>().map(Type::Tuple)
        }
        ("tuple", _) => Err(wrong(inner.span, "Tuple type constructor requires a list of element types.")),
        ("object", ExprKind::Object(items)) => object(items, purpose),
        _ => Err(wrong(
            inner.span,
            "Object type constructor requires a map whose keys are attribute names and whose values are the corresponding attribute types.",
        )),
    }
}

fn object(items: &[(Key, Expr)], purpose: Purpose) -> Evaluated<Type> {
    let mut attributes = BTreeMap::new();
    for (key, value) in items {
        let name = match key {
            Key::Name(name) => name,
            Key::Expr(e) | Key::Json(e) => {
                return Err(wrong(e.span, "Object constructor map keys must be attribute names."));
            }
        };
        let found = match &value.kind {
            ExprKind::Call { name, arguments, .. } if name.text == "optional" => match arguments.as_slice() {
                _ if purpose == Purpose::Exact => {
                    let detail =
                        "Optional attribute modifier is only for type constraints, not for exact types.";
                    return Err(wrong(name.span, detail));
                }
                [inner] => read(inner, purpose)?,
                _ => {
                    let detail =
                        "Optional attribute modifier requires one argument, the attribute's own type.";
                    return Err(wrong(value.span, detail));
                }
            },
            _ => read(value, purpose)?,
        };
        if attributes.insert(normal(&name.text).into_owned(), found).is_some() {
            return Err(wrong(name.span, "Object constructor map keys must be unique."));
        }
    }
    Ok(Type::Object(attributes))
}

fn needs_argument(constructor: &str) -> String {
    let what = match constructor {
        "tuple" => "the element types as a list",
        "object" => "the attribute types and values as a map",
        _ => "the element type",
    };
    format!("The {constructor} type constructor requires one argument specifying {what}.")
}

fn keyword(word: &str, span: Span, purpose: Purpose) -> Evaluated<Type> {
    match word {
        "string" => Ok(Type::Str),
        "number" => Ok(Type::Num),
        "bool" => Ok(Type::Bool),
        "any" if purpose == Purpose::Constraint => Ok(Type::Any),
        "any" => Err(wrong(
            span,
            "The keyword \"any\" cannot be used in this type specification: an exact type is required.",
        )),
        "list" | "set" | "map" | "tuple" | "object" => Err(wrong(span, needs_argument(word))),
        "optional" => {
            Err(wrong(span, "Keyword \"optional\" is valid only as a modifier for object type attributes."))
        }
        _ => Err(wrong(span, format!("The keyword {word:?} is not a valid type specification."))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::native::parse_expression;
    use crate::source::SourceId;

    fn at(text: &str, read: fn(&Expr) -> Evaluated<Type>) -> Result<String, (usize, usize)> {
        let expr = parse_expression(text, SourceId::default()).unwrap();
        read(&expr).map(|t| t.name()).map_err(|e| e.span.map(|s| (s.start, s.end)).unwrap_or_default())
    }

    #[test]
    fn types_are_read_and_mistakes_have_their_place() {
        for (text, want) in [
            ("string", Ok("string")),
            ("list(set(number))", Ok("list of set of number")),
            ("object({a=map(bool)})", Ok("object")),
            ("any", Err((0, 3))),
            ("object({a=any})", Err((10, 13))),
            ("\"string\"", Err((0, 8))),
            ("list(\"string\")", Err((5, 13))),
            ("(string)", Err((0, 8))),
            ("list()", Err((4, 6))),
            ("list(string, number)", Err((13, 19))),
            ("number(string)", Err((6, 14))),
            ("foo(string)", Err((0, 11))),
            ("object({a=optional(string)})", Err((10, 18))),
            ("object({\"a\"=string})", Err((8, 11))),
            ("object({a=string, a=number})", Err((18, 19))),
            ("tuple(string)", Err((6, 12))),
            ("true", Err((0, 4))),
        ] {
            let want = want.map(str::to_owned);
            assert_eq!(at(text, type_expression), want, "{text}");
            if !text.contains("any") && !text.contains("optional") {
                assert_eq!(at(text, type_constraint), want, "{text}");
            }
        }
        for text in ["any", "list(any)", "object({a=any})", "tuple([any])", "object({a=optional(string)})"] {
            assert!(at(text, type_constraint).is_ok(), "{text}");
        }
    }
}
