//! Finds the names that an expression refers to.

use crate::ast::{Expr, ExprKind, Key, Name, Part, Step, Traversal};

/// Calls `see` for every traversal whose root is not bound within the expression itself.
pub(super) fn each_traversal<'e>(expr: &'e Expr, see: &mut dyn FnMut(&'e Expr, &'e Traversal)) {
    match &expr.kind {
        ExprKind::Literal(_) | ExprKind::Item => {}
        ExprKind::Traversal(t) => see(expr, t),
        ExprKind::Template(parts) => in_parts(parts, see),
        ExprKind::Wrapped(e)
        | ExprKind::Embedded(e)
        | ExprKind::Paren(e)
        | ExprKind::Relative(e, _)
        | ExprKind::Unary(_, e) => each_traversal(e, see),
        ExprKind::Index(a, b) | ExprKind::Binary(_, a, b) | ExprKind::Splat(a, b) => {
            each_traversal(a, see);
            each_traversal(b, see);
        }
        ExprKind::Conditional(a, b, c) => {
            for e in [a, b, c] {
                each_traversal(e, see);
            }
        }
        ExprKind::Call { arguments: all, .. } | ExprKind::Tuple(all) => {
            for e in all {
                each_traversal(e, see);
            }
        }
        ExprKind::Object(items) => {
            for (key, value) in items {
                if let Key::Expr(key) | Key::Json(key) = key {
                    each_traversal(key, see);
                }
                each_traversal(value, see);
            }
        }
        ExprKind::For(f) => {
            each_traversal(&f.collection, see);
            let names = [f.key.as_ref(), Some(&f.value)];
            let mut outer = |expr: &'e Expr, t: &'e Traversal| {
                if !is_named(t, names) {
                    see(expr, t);
                }
            };
            for e in [f.key_expr.as_ref(), Some(&f.value_expr), f.condition.as_ref()].into_iter().flatten() {
                each_traversal(e, &mut outer);
            }
        }
    }
}

fn in_parts<'e>(parts: &'e [Part], see: &mut dyn FnMut(&'e Expr, &'e Traversal)) {
    for part in parts {
        match part {
            Part::Text(..) => {}
            Part::Interpolation(e) => each_traversal(e, see),
            Part::If(condition, yes, no) => {
                each_traversal(condition, see);
                in_parts(yes, see);
                in_parts(no, see);
            }
            Part::For { collection, body, key, value, .. } => {
                each_traversal(collection, see);
                let names = [key.as_ref(), Some(value)];
                in_parts(body, &mut |expr, t| {
                    if !is_named(t, names) {
                        see(expr, t);
                    }
                });
            }
        }
    }
}

/// Returns whether the root of a traversal is one of the names of a loop.
fn is_named(t: &Traversal, names: [Option<&Name>; 2]) -> bool {
    names.into_iter().flatten().any(|name| name.text == t.root.text)
}

/// Returns the name after the root, if the first step is a name.
pub(super) fn first_name(t: &Traversal) -> Option<&Name> {
    match t.steps.first() {
        Some(Step::Attribute(name)) => Some(name),
        _ => None,
    }
}
