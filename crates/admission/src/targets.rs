//! Rules for constraints, affinities and spreads (docs/reference/jobspec.md, section 4.4).

use super::{joined, unknown};
use caravan_lang::constraint::{AFFINITY_OPERATORS, ConstraintError, OPERATORS};
use caravan_types::job::{Affinity, Constraint, Spread};
use std::collections::HashSet;

/// The owner of a list, which determines the allowed operators and attributes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A job or a group.
    Group,
    /// A task.
    Task,
    /// A device.
    Device,
}

/// The attributes of a node outside `attr.` and `meta.`.
const NODE: [&str; 5] =
    ["${node.unique.id}", "${node.unique.name}", "${node.datacenter}", "${node.class}", "${node.pool}"];

/// Checks an attribute: literal text, or a reference to a node attribute that the scheduler knows.
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

pub(super) fn constraints(list: &[Constraint], place: Place, errors: &mut Vec<String>) {
    for (index, constraint) in list.iter().enumerate() {
        let found = constraint_errors(constraint, place);
        if !found.is_empty() {
            errors.push(format!("Constraint {} validation failed: {}", index + 1, joined(&found)));
        }
    }
}

fn constraint_errors(constraint: &Constraint, place: Place) -> Vec<String> {
    let mut errors = Vec::new();
    let Constraint { operand, l_target, r_target } = constraint;
    let operand = operand.as_str();
    let mut needs_left = true;
    match operand {
        "" => errors.push("Missing constraint operand".into()),
        "is_set" | "is_not_set" => {
            if !r_target.is_empty() {
                errors.push(format!("Operator \"{operand}\" does not support an RTarget"));
            }
        }
        "distinct_hosts" | "distinct_property" if place != Place::Group => {
            let what = if place == Place::Task { "tasks" } else { "devices" };
            errors.push(format!("{operand} is not allowed on {what}"));
            needs_left = false;
        }
        "distinct_hosts" => needs_left = false,
        "distinct_property" => {
            if !r_target.is_empty() && r_target.parse::<u64>().map_or(true, |n| n == 0) {
                errors.push(format!("Distinct property has invalid count: \"{r_target}\""));
            }
        }
        known if OPERATORS.contains(&known) => errors.extend(right_side(operand, r_target)),
        other => errors.push(unknown("Unknown constraint type", other, &OPERATORS)),
    }
    if needs_left {
        match l_target.as_str() {
            "" => errors.push("No LTarget provided but is required by constraint".into()),
            target => errors.extend(attribute(target).err()),
        }
    }
    errors
}

/// Returns the problem with the right side of a comparison, if there is one.
fn right_side(operand: &str, target: &str) -> Option<String> {
    if matches!(operand, "is_set" | "is_not_set") {
        return None;
    }
    if target.is_empty() {
        return Some(format!("Operator \"{operand}\" requires an RTarget"));
    }
    match caravan_lang::constraint::validate(operand, target) {
        Ok(_) => None,
        Err(error @ ConstraintError::Regexp(_)) => Some(error.to_string()),
        Err(error) => Some(format!("{operand} constraint is invalid: {error}")),
    }
}

pub(super) fn affinities(list: &[Affinity], errors: &mut Vec<String>) {
    for (index, affinity) in list.iter().enumerate() {
        let mut found = Vec::new();
        let operand = affinity.operand.as_str();
        match operand {
            "" => found.push("Missing affinity operand".into()),
            known if AFFINITY_OPERATORS.contains(&known) => {
                found.extend(right_side(operand, &affinity.r_target));
            }
            other => found.push(unknown("Unknown affinity operator", other, AFFINITY_OPERATORS)),
        }
        if affinity.l_target.is_empty() {
            found.push("No LTarget provided but is required".into());
        }
        match affinity.weight {
            0 => found.push("Affinity weight cannot be zero".into()),
            weight if !(-100..=100).contains(&weight) => {
                found.push(format!("Affinity weight must be within the range [-100,100], got {weight}"));
            }
            _ => {}
        }
        if !found.is_empty() {
            errors.push(format!("Affinity {} validation failed: {}", index + 1, joined(&found)));
        }
    }
}

/// Returns warnings about attributes of affinities and spreads that no node has. They are allowed, because they express
/// only preferences, but they never have an effect.
pub(super) fn strangers(affinities: &[Affinity], spreads: &[Spread]) -> Vec<String> {
    let of_affinities = affinities.iter().enumerate().map(|(at, a)| ("Affinity", at, a.l_target.as_str()));
    let of_spreads = spreads.iter().enumerate().map(|(at, s)| ("Spread", at, s.attribute.as_str()));
    of_affinities
        .chain(of_spreads)
        .filter(|(.., target)| !target.is_empty())
        .filter_map(|(what, at, target)| {
            let reason = attribute(target).err()?;
            Some(format!("{what} {} has no effect: {reason}", at + 1))
        })
        .collect()
}

pub(super) fn spreads(list: &[Spread], errors: &mut Vec<String>) {
    for (index, spread) in list.iter().enumerate() {
        let mut found = Vec::new();
        if spread.attribute.is_empty() {
            found.push("Missing spread attribute".into());
        }
        if !(1..=100).contains(&spread.weight) {
            found.push(format!("Spread block must have a weight from 1 to 100, got {}", spread.weight));
        }
        let mut seen = HashSet::new();
        for target in &spread.spread_target {
            if !seen.insert(&target.value) {
                found.push(format!("Spread target value \"{}\" already defined", target.value));
            }
            if target.percent > 100 {
                found.push(format!(
                    "Spread target percentage for value \"{}\" must be between 0 and 100, got {}",
                    target.value, target.percent
                ));
            }
        }
        let sum: u32 = spread.spread_target.iter().map(|target| target.percent).sum();
        if sum > 100 {
            found.push(format!("Sum of spread target percentages must not be greater than 100%; got {sum}%"));
        }
        if !found.is_empty() {
            errors.push(format!("Spread {} validation failed: {}", index + 1, joined(&found)));
        }
    }
}
