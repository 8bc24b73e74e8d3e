//! Rules for constraints, affinities and spreads (docs/reference/jobspec.md, section 4.4).

use super::problem::{Findings, Problem, ProblemCode as Code};
use super::unknown;
use caravan_lang::constraint::{AFFINITY_OPERATORS, ConstraintError, OPERATORS};
use caravan_types::job::{Affinity, Constraint, Spread};
use std::collections::HashSet;

/// The owner of a list, which determines the allowed operators and attributes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The list of a job or a group.
    Group,
    /// The list of a task.
    Task,
    /// The list of a device.
    Device,
}

/// The references to attributes of a node outside `attr.` and `meta.`.
const NODE: [&str; 5] =
    ["${node.unique.id}", "${node.unique.name}", "${node.datacenter}", "${node.class}", "${node.pool}"];

/// Checks an attribute: literal text, or a reference to a node attribute that the scheduler supports.
fn attribute(target: &str) -> Result<(), String> {
    let known = !target.starts_with("${")
        || NODE.contains(&target)
        || ["${attr.", "${meta.", "${device."].iter().any(|prefix| target.starts_with(prefix));
    if known {
        return Ok(());
    }
    let near = caravan_types::words::suggestion(target, NODE);
    Err(format!("unsupported attribute \"{target}\"{near}"))
}

pub(super) fn constraints(list: &[Constraint], place: Place, errors: &mut Findings) {
    for (index, constraint) in list.iter().enumerate() {
        let mut found = errors.element("Constraints", index);
        self::constraint(constraint, place, &mut found);
        errors.nest(format!("Constraint {} validation failed: ", index + 1), found);
    }
}

fn constraint(constraint: &Constraint, place: Place, errors: &mut Findings) {
    let Constraint { operand, l_target, r_target } = constraint;
    let operand = operand.as_str();
    let mut needs_left = true;
    match operand {
        "" => errors.add(Code::Missing, "Operand", "Missing constraint operand"),
        "is_set" | "is_not_set" => {
            if !r_target.is_empty() {
                let text = format!("Operator \"{operand}\" does not support an RTarget");
                errors.add(Code::Conflict, "RTarget", text);
            }
        }
        "distinct_hosts" | "distinct_property" if place != Place::Group => {
            let what = if place == Place::Task { "tasks" } else { "devices" };
            errors.add(Code::NotAllowedHere, "Operand", format!("{operand} is not allowed on {what}"));
            needs_left = false;
        }
        "distinct_hosts" => needs_left = false,
        "distinct_property" => {
            if !r_target.is_empty() && r_target.parse::<u64>().map_or(true, |n| n == 0) {
                let text = format!("Distinct property has invalid count: \"{r_target}\"");
                errors.add(Code::InvalidValue, "RTarget", text);
            }
        }
        known if OPERATORS.contains(&known) => right_side(operand, r_target, errors),
        other => {
            errors.add(Code::UnknownWord, "Operand", unknown("Unknown constraint type", other, &OPERATORS));
        }
    }
    if needs_left {
        match l_target.as_str() {
            "" => errors.add(Code::Missing, "LTarget", "No LTarget provided but is required by constraint"),
            target => {
                if let Err(text) = attribute(target) {
                    errors.add(Code::UnknownWord, "LTarget", text);
                }
            }
        }
    }
}

/// Checks the value of an operator that compares.
fn right_side(operand: &str, target: &str, errors: &mut Findings) {
    if matches!(operand, "is_set" | "is_not_set") {
        return;
    }
    if target.is_empty() {
        errors.add(Code::Missing, "RTarget", format!("Operator \"{operand}\" requires an RTarget"));
        return;
    }
    match caravan_lang::constraint::validate(operand, target) {
        Ok(_) => {}
        Err(error @ ConstraintError::Regexp(_)) => {
            errors.add(Code::InvalidRegexp, "RTarget", error.to_string());
        }
        Err(error) => {
            let text = format!("{operand} constraint is invalid: {error}");
            errors.add(Code::InvalidVersion, "RTarget", text);
        }
    }
}

pub(super) fn affinities(list: &[Affinity], errors: &mut Findings) {
    for (index, affinity) in list.iter().enumerate() {
        let mut found = errors.element("Affinities", index);
        let operand = affinity.operand.as_str();
        match operand {
            "" => found.add(Code::Missing, "Operand", "Missing affinity operand"),
            known if AFFINITY_OPERATORS.contains(&known) => {
                right_side(operand, &affinity.r_target, &mut found);
            }
            other => {
                let text = unknown("Unknown affinity operator", other, AFFINITY_OPERATORS);
                found.add(Code::UnknownWord, "Operand", text);
            }
        }
        if affinity.l_target.is_empty() {
            found.add(Code::Missing, "LTarget", "No LTarget provided but is required");
        }
        match affinity.weight {
            0 => found.add(Code::InvalidValue, "Weight", "Affinity weight cannot be zero"),
            weight if !(-100..=100).contains(&weight) => {
                let code = if weight < 0 { Code::BelowMinimum } else { Code::AboveMaximum };
                let text = format!("Affinity weight must be within the range [-100,100], got {weight}");
                found.add(code, "Weight", text);
            }
            _ => {}
        }
        errors.nest(format!("Affinity {} validation failed: ", index + 1), found);
    }
}

/// Adds warnings about affinities and spreads whose attribute no node has. They are allowed, because they are
/// preferences, but they never have an effect. `lead` comes before each text.
pub(super) fn strangers(affinities: &[Affinity], spreads: &[Spread], lead: &str, warnings: &mut Findings) {
    let of_affinities = affinities.iter().enumerate().map(|(at, a)| {
        (
            "Affinity",
            at,
            a.l_target.as_str(),
            warnings.path.clone().field("Affinities").index(at).field("LTarget"),
        )
    });
    let of_spreads = spreads.iter().enumerate().map(|(at, s)| {
        (
            "Spread",
            at,
            s.attribute.as_str(),
            warnings.path.clone().field("Spreads").index(at).field("Attribute"),
        )
    });
    let all: Vec<_> =
        of_affinities.chain(of_spreads).filter(|(_, _, target, _)| !target.is_empty()).collect();
    for (what, at, target, path) in all {
        if let Err(reason) = attribute(target) {
            let text = format!("{what} {} has no effect: {reason}", at + 1);
            warnings.found.push_after(lead, Problem::new(Code::NoEffect, path, text));
        }
    }
}

pub(super) fn spreads(list: &[Spread], errors: &mut Findings) {
    for (index, spread) in list.iter().enumerate() {
        let mut found = errors.element("Spreads", index);
        if spread.attribute.is_empty() {
            found.add(Code::Missing, "Attribute", "Missing spread attribute");
        }
        if !(1..=100).contains(&spread.weight) {
            let code = if spread.weight < 1 { Code::BelowMinimum } else { Code::AboveMaximum };
            let text = format!("Spread block must have a weight from 1 to 100, got {}", spread.weight);
            found.add(code, "Weight", text);
        }
        let mut seen = HashSet::new();
        for (at, target) in spread.spread_target.iter().enumerate() {
            let path = found.path.clone().field("SpreadTarget").index(at);
            if !seen.insert(&target.value) {
                let text = format!("Spread target value \"{}\" already defined", target.value);
                found.add_at(Code::Duplicate, path.clone().field("Value"), text);
            }
            if target.percent > 100 {
                let text = format!(
                    "Spread target percentage for value \"{}\" must be between 0 and 100, got {}",
                    target.value, target.percent
                );
                found.add_at(Code::AboveMaximum, path.field("Percent"), text);
            }
        }
        let sum: u32 = spread.spread_target.iter().map(|target| target.percent).sum();
        if sum > 100 {
            let text = format!("Sum of spread target percentages must not be greater than 100%; got {sum}%");
            found.add(Code::AboveMaximum, "SpreadTarget", text);
        }
        errors.nest(format!("Spread {} validation failed: ", index + 1), found);
    }
}
