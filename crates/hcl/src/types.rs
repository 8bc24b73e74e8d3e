//! Type expressions: `list(string)`, `object({ a = number })`.

use std::collections::BTreeMap;

use crate::ast::{Expr, ExprKind, Key};
use crate::eval::{Evaluated, fail};
use crate::value::{Type, Value};

/// Reads a type expression. The old quoted form `"string"` is taken too.
///
/// # Errors
/// It is none; `any` is none where an exact type is needed.
pub fn type_expression(expr: &Expr) -> Evaluated<Type> {
    const SUMMARY: &str = "Invalid type specification";
    let wrong = |detail: &str| fail("E0301", expr.span, SUMMARY, detail);
    match &expr.kind {
        ExprKind::Paren(inner) => type_expression(inner),
        ExprKind::Traversal(t) if t.steps.is_empty() => keyword(&t.root.text, expr),
        ExprKind::Literal(Value::Str(s)) => keyword(s, expr),
        ExprKind::Call { name, arguments, .. } => {
            let [inner] = arguments.as_slice() else {
                return Err(wrong("A type constructor takes exactly one argument."));
            };
            match (name.text.as_str(), &inner.kind) {
                ("list", _) => Ok(Type::List(Box::new(element(inner)?))),
                ("set", _) => Ok(Type::Set(Box::new(element(inner)?))),
                ("map", _) => Ok(Type::Map(Box::new(element(inner)?))),
                ("tuple", ExprKind::Tuple(items)) => {
                    items.iter().map(type_expression).collect::<Result<_, _>>().map(Type::Tuple)
                }
                ("tuple", _) => Err(wrong("Tuple type constructor requires a list of element types.")),
                ("object", ExprKind::Object(items)) => {
                    let mut attributes = BTreeMap::new();
                    for (key, value) in items {
                        let name = match key {
                            Key::Name(name) => name.text.clone(),
                            Key::Expr(Expr { kind: ExprKind::Literal(Value::Str(s)), .. }) => s.to_string(),
                            Key::Expr(e) => {
                                return Err(fail(
                                    "E0301",
                                    e.span,
                                    SUMMARY,
                                    "Object constructor map keys must be attribute names.",
                                ));
                            }
                        };
                        attributes.insert(name, type_expression(value)?);
                    }
                    Ok(Type::Object(attributes))
                }
                ("object", _) => {
                    Err(wrong("Object type constructor requires a map of attribute names and types."))
                }
                _ => Err(fail(
                    "E0301",
                    name.span,
                    SUMMARY,
                    format!("Keyword {:?} is not a valid type constructor.", name.text),
                )),
            }
        }
        _ => Err(wrong(
            "A type specification is either a primitive type keyword (bool, number, string) or a complex type constructor call, like list(string).",
        )),
    }
}

/// The element type of a collection, where `any` is allowed.
fn element(expr: &Expr) -> Evaluated<Type> {
    match &expr.kind {
        ExprKind::Traversal(t) if t.steps.is_empty() && t.root.text == "any" => Ok(Type::Any),
        _ => type_expression(expr),
    }
}

fn keyword(word: &str, expr: &Expr) -> Evaluated<Type> {
    match word {
        "string" => Ok(Type::Str),
        "number" => Ok(Type::Num),
        "bool" => Ok(Type::Bool),
        "any" => Err(fail(
            "E0301",
            expr.span,
            "Invalid type specification",
            "The keyword \"any\" cannot be used in this type specification: an exact type is required.",
        )),
        "list" | "set" | "map" | "tuple" | "object" => Err(fail(
            "E0301",
            expr.span,
            "Invalid type specification",
            format!("The {word} type constructor requires one argument specifying what is in it."),
        )),
        _ => Err(fail(
            "E0301",
            expr.span,
            "Invalid type specification",
            format!("The keyword {word:?} is not a valid type specification."),
        )),
    }
}
