//! Evaluates an expression for an object.

use super::{FilterError, Names, Node, Selector, Test};
use serde_json::Value;

/// Fields of the API that contain maps, whose missing keys are no error. Other objects are structs with known fields;
/// both look the same in JSON.
const MAPS: &[&str] = &[
    "AccountedResources",
    "Args",
    "Attributes",
    "Capabilities",
    "ClassExhausted",
    "ClassFiltered",
    "ClaimMappings",
    "Config",
    "ConstraintFiltered",
    "Context",
    "ControllerPlugins",
    "Controllers",
    "CSIControllerPlugins",
    "CSINodePlugins",
    "Details",
    "DesiredTGUpdates",
    "DeviceAttributes",
    "DimensionExhausted",
    "Drivers",
    "Env",
    "EscapedComputedClass",
    "FailedTGAllocs",
    "HostNetworks",
    "HostVolumes",
    "Items",
    "Labels",
    "Links",
    "ListClaimMappings",
    "Meta",
    "MountOptions",
    "NodesAvailable",
    "NodeAllocation",
    "NodePreemptions",
    "NodeUpdate",
    "Nodes",
    "Options",
    "Parameters",
    "Payload",
    "PreferredTopologies",
    "ProxyConfig",
    "PublishContext",
    "QueuedAllocations",
    "ReadAllocs",
    "ReadClaims",
    "ResourcesExhausted",
    "Scores",
    "ScoresMeta",
    "Secrets",
    "Segments",
    "SidecarMeta",
    "SpreadTargets",
    "Summary",
    "Sysctl",
    "TaskGroups",
    "TaskResources",
    "TaskStates",
    "Tasks",
    "VariableFlags",
    "Variables",
    "Volumes",
    "WriteAllocs",
    "WriteClaims",
];

/// A name that a block bound, and its value.
struct Bound<'a> {
    name: &'a str,
    value: Bind<'a>,
}

enum Bind<'a> {
    Element(&'a Value),
    /// An index or a key.
    Text(Value),
}

struct Scope<'a> {
    object: &'a Value,
    bound: Vec<Bound<'a>>,
}

pub(super) fn evaluate(node: &Node, object: &Value) -> Result<bool, FilterError> {
    Scope { object, bound: Vec::new() }.node(node)
}

impl<'a> Scope<'a> {
    fn node(&mut self, node: &'a Node) -> Result<bool, FilterError> {
        match node {
            Node::Or(parts) => {
                for part in parts {
                    if self.node(part)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Node::And(parts) => {
                for part in parts {
                    if !self.node(part)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Node::Not(inner) => Ok(!self.node(inner)?),
            Node::Match { selector, test, opposite } => {
                Ok(passes(selector, test, self.find(selector)?)? != *opposite)
            }
            Node::Each { all, selector, names, inner } => self.each(*all, selector, names, inner),
        }
    }

    fn each(
        &mut self,
        all: bool,
        selector: &'a Selector,
        names: &'a Names,
        inner: &'a Node,
    ) -> Result<bool, FilterError> {
        let Some(found) = self.find(selector)? else {
            return Ok(all);
        };
        let elements: Vec<(Value, &'a Value)> = match found {
            Found::There(Value::Array(elements)) => {
                elements.iter().enumerate().map(|(index, value)| (Value::from(index), value)).collect()
            }
            Found::There(Value::Object(map)) => {
                map.iter().map(|(key, value)| (Value::from(key.as_str()), value)).collect()
            }
            other => return Err(unsuitable(selector, other.value(), "has elements")),
        };
        let is_map = matches!(found, Found::There(Value::Object(_)));
        let before = self.bound.len();
        for (key, value) in elements {
            match names {
                Names::One(Some(name)) => {
                    let value = if is_map { Bind::Text(key) } else { Bind::Element(value) };
                    self.bound.push(Bound { name, value });
                }
                Names::One(None) => {}
                Names::Two(first, second) => {
                    self.bound
                        .extend(first.iter().map(|name| Bound { name, value: Bind::Text(key.clone()) }));
                    self.bound.extend(second.iter().map(|name| Bound { name, value: Bind::Element(value) }));
                }
            }
            let outcome = self.node(inner);
            self.bound.truncate(before);
            if outcome? != all {
                return Ok(!all);
            }
        }
        Ok(all)
    }

    /// Returns the selected value, or `None` for a missing key of a map or an unset value.
    fn find(&self, selector: &Selector) -> Result<Option<Found<'a>>, FilterError> {
        let Some(first) = selector.path.first() else { return Ok(None) };
        match self.bound.iter().rev().find(|bound| bound.name == first) {
            Some(Bound { value: Bind::Element(value), .. }) => walk(value, selector, 1),
            Some(Bound { value: Bind::Text(text), .. }) if selector.path.len() == 1 => {
                Ok(Some(Found::Text(text.clone())))
            }
            Some(_) => Err(no_field(selector, 1)),
            None => walk(self.object, selector, 0),
        }
    }
}

enum Found<'a> {
    There(&'a Value),
    Text(Value),
}

impl Found<'_> {
    fn value(&self) -> &Value {
        match self {
            Self::There(value) => value,
            Self::Text(value) => value,
        }
    }
}

fn walk<'a>(from: &'a Value, selector: &Selector, start: usize) -> Result<Option<Found<'a>>, FilterError> {
    let mut value = from;
    for (part, name) in selector.path.iter().enumerate().skip(start) {
        value = match value {
            Value::Object(fields) => match fields.get(name) {
                Some(value) => value,
                None if is_map(fields, part.checked_sub(1).and_then(|before| selector.path.get(before))) => {
                    return Ok(None);
                }
                None => return Err(no_field(selector, part)),
            },
            Value::Array(elements) => {
                let element = name.parse().ok().and_then(|index: usize| elements.get(index));
                element.ok_or_else(|| FilterError::NoElement {
                    pointer: selector.pointer(),
                    part,
                    name: name.clone(),
                    length: elements.len(),
                })?
            }
            // An unset struct, map or list.
            Value::Null => return Ok(None),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => return Err(no_field(selector, part)),
        };
    }
    Ok(if value.is_null() { None } else { Some(Found::There(value)) })
}

/// Returns whether an object is a map rather than a struct. The field that contains the object decides, or a key of
/// the object that is no name of a field.
fn is_map(fields: &serde_json::Map<String, Value>, field: Option<&String>) -> bool {
    field.is_some_and(|field| MAPS.contains(&field.as_str()))
        || fields.keys().any(|key| !key.starts_with(|c: char| c.is_ascii_uppercase()))
}

fn no_field(selector: &Selector, part: usize) -> FilterError {
    let name = selector.path.get(part).cloned().unwrap_or_default();
    FilterError::NoField { pointer: selector.pointer(), part, name }
}

/// Returns whether the value passes a test. A missing value equals nothing, contains nothing, and is empty and nil.
fn passes(selector: &Selector, test: &Test, found: Option<Found<'_>>) -> Result<bool, FilterError> {
    let Some(found) = found else {
        return Ok(matches!(test, Test::IsEmpty | Test::IsNil));
    };
    let value = found.value();
    match test {
        Test::IsNil => Ok(false),
        Test::IsEmpty => match value {
            Value::String(text) => Ok(text.is_empty()),
            Value::Array(elements) => Ok(elements.is_empty()),
            Value::Object(fields) => Ok(fields.is_empty()),
            other => Err(unsuitable(selector, other, "is empty")),
        },
        Test::Equals(desired) => {
            equals(value, desired)?.ok_or_else(|| unsuitable(selector, value, "equals a value"))
        }
        Test::Holds(desired) => match value {
            Value::String(text) => Ok(text.contains(desired.as_str())),
            Value::Object(fields) => Ok(fields.contains_key(desired)),
            Value::Array(elements) => {
                for element in elements {
                    let same = equals(element, desired)?;
                    if same.ok_or_else(|| unsuitable(selector, value, "contains a value"))? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            other => Err(unsuitable(selector, other, "contains a value")),
        },
        Test::Matches(regex) => match value {
            Value::String(text) => Ok(regex.is_match(text)),
            other => Err(unsuitable(selector, other, "matches a regular expression")),
        },
    }
}

/// Returns whether a value equals a text, parsed as the value's type. Returns `None` if the type has no text form.
fn equals(value: &Value, desired: &str) -> Result<Option<bool>, FilterError> {
    let invalid = |function| FilterError::Value { function, value: desired.to_owned() };
    Ok(match value {
        Value::String(text) => Some(text == desired),
        Value::Bool(is) => Some(*is == boolean(desired).ok_or_else(|| invalid("strconv.ParseBool"))?),
        Value::Number(number) => {
            let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
            match (whole, integer(desired)) {
                (Some(is), Some(desired)) => Some(is == desired),
                (whole, _) => {
                    let function = if whole.is_some() { "strconv.ParseInt" } else { "strconv.ParseFloat" };
                    let desired: f64 = desired.parse().map_err(|_| invalid(function))?;
                    Some(number.as_f64() == Some(desired))
                }
            }
        }
        Value::Null => Some(false),
        Value::Array(_) | Value::Object(_) => None,
    })
}

/// Parses a boolean in any of Go's spellings.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Parses an integer whose prefix determines its base, as in Go.
fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (digits, radix) = if let Some(digits) = lower.strip_prefix("0x") {
        (digits, 16)
    } else if let Some(digits) = lower.strip_prefix("0b") {
        (digits, 2)
    } else if let Some(digits) = lower.strip_prefix("0o") {
        (digits, 8)
    } else if let Some(digits) = lower.strip_prefix('0').filter(|digits| !digits.is_empty()) {
        (digits, 8)
    } else {
        (lower.as_str(), 10)
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let number = i128::from_str_radix(&digits.replace('_', ""), radix).ok()?;
    Some(if negative { -number } else { number })
}

fn unsuitable(selector: &Selector, value: &Value, test: &'static str) -> FilterError {
    let kind = match value {
        Value::Null => "nil",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    FilterError::Unsuitable { pointer: selector.pointer(), kind, test }
}
