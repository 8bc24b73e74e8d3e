//! Evaluates `locals` in the order of their dependencies.

use super::references::{each_traversal, first_name};
use crate::ast::{Body, Expr};
use crate::diag::Diagnostic;
use crate::eval::{Evaluator, Scope};
use crate::parse::json::{Members, Strings};
use crate::value::Value;
use std::collections::{BTreeMap, HashMap};

pub(super) fn load(body: &Body, evaluator: &mut Evaluator, items: &mut Vec<Diagnostic>) {
    // A name that is defined twice has its last value, as in Nomad.
    let mut all: BTreeMap<String, Expr> = BTreeMap::new();
    for block in body.blocks.iter().filter(|b| b.kind.text == "locals") {
        for label in &block.labels {
            items.push(Diagnostic::error(
                "E0403",
                label.span,
                "Extraneous label for locals",
                "No labels are expected for locals blocks.",
            ));
        }
        for inner in &block.body.blocks {
            items.push(Diagnostic::error(
                "E0402",
                inner.kind.span,
                format!("Unexpected {:?} block", inner.kind.text),
                "Blocks are not allowed here; locals are arguments.",
            ));
        }
        let attributes = match &block.body.json {
            None => block.body.attributes.clone(),
            Some(json) => json.read(Strings::Templates, Members::Arguments, items).attributes,
        };
        all.extend(attributes.into_iter().map(|a| (a.name.text, a.value)));
    }
    evaluator.set_root("local", Value::object(BTreeMap::new()));

    let mut waiting_for: HashMap<&str, usize> = HashMap::new();
    let mut needed_by: HashMap<&str, Vec<&str>> = HashMap::new();
    for (name, expr) in &all {
        let mut needs: Vec<&str> = Vec::new();
        each_traversal(expr, &mut |_, t| {
            if t.root.text == "local"
                && let Some(other) = first_name(t)
                && all.contains_key(&other.text)
                && !needs.contains(&other.text.as_str())
            {
                needs.push(&other.text);
            }
        });
        waiting_for.insert(name, needs.len());
        for need in needs {
            needed_by.entry(need).or_default().push(name);
        }
    }
    let mut ready: Vec<&str> =
        all.keys().map(String::as_str).filter(|n| waiting_for.get(n) == Some(&0)).collect();
    let mut done = 0;
    while let Some(name) = ready.pop() {
        done += 1;
        match evaluator.eval(&all[name], &Scope::default()) {
            Ok(value) => evaluator.set_attribute("local", name, value),
            Err(error) => items.push(*error),
        }
        for next in needed_by.get(name).into_iter().flatten() {
            if let Some(left) = waiting_for.get_mut(next) {
                *left -= 1;
                if *left == 0 {
                    ready.push(next);
                }
            }
        }
    }
    if done < all.len() {
        report_cycle(&all, &waiting_for, items);
    }
}

fn report_cycle(all: &BTreeMap<String, Expr>, waiting: &HashMap<&str, usize>, items: &mut Vec<Diagnostic>) {
    for (name, expr) in all.iter().filter(|(n, _)| waiting.get(n.as_str()).is_some_and(|w| *w > 0)) {
        let mut at = None;
        each_traversal(expr, &mut |_, t| {
            if at.is_none()
                && t.root.text == "local"
                && let Some(other) = first_name(t)
                && waiting.get(other.text.as_str()).is_some_and(|w| *w > 0)
            {
                at = Some((other.span, other.text.clone()));
            }
        });
        if let Some((span, other)) = at {
            let detail = if other == *name {
                format!("The local value {name:?} refers to itself.")
            } else {
                format!("The local value {name:?} refers to {other:?}, which depends on it in turn.")
            };
            items.push(Diagnostic::error("E0303", span, "Circular reference between local values", detail));
        }
    }
}
