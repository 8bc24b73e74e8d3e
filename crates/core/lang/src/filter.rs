//! Filter expressions of the HTTP API (`?filter=`): `Status == "running" and Meta.owner is not empty`.
//!
//! The syntax is that of hashicorp/go-bexpr. It has `or`, `and`, `not` and parentheses around matches of a *selector*
//! with a value. `any` and `all` apply to the elements of a list or map. A selector is a path of field names, as in
//! the API's JSON. [`Filter::parse`] parses an expression once, and [`Filter::matches`] evaluates it for each object.

mod error;
mod evaluate;
mod parse;
#[cfg(test)]
mod tests;

use regex::Regex;
use serde_json::Value;

pub use error::FilterError;

/// The maximum length of an expression, in bytes. Most URLs are limited to less.
const MAX_LENGTH: usize = 64 << 10;

/// The maximum nesting depth of parentheses, `not` and blocks.
const DEEPEST: usize = 64;

/// A parsed filter expression.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Node,
}

impl Filter {
    /// Parses an expression. A syntax error contains its position and the tokens expected there.
    ///
    /// # Errors
    ///
    /// The expression is invalid, longer than 64 KiB or deeper than 64 levels, or contains an invalid regular
    /// expression.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        if text.len() > MAX_LENGTH {
            return Err(FilterError::TooLong { most: MAX_LENGTH });
        }
        parse::parse(text).map(|root| Self { root })
    }

    /// Returns whether an object matches the expression.
    ///
    /// # Errors
    ///
    /// The expression selects a field that the object does not have, or applies a test that the field's type does not
    /// support. A missing key of a map is no error.
    pub fn matches(&self, object: &Value) -> Result<bool, FilterError> {
        evaluate::evaluate(&self.root, object)
    }
}

/// A node of the syntax tree.
#[derive(Clone, Debug)]
enum Node {
    /// True if any of the nodes is true.
    Or(Vec<Node>),
    /// True if all of the nodes are true.
    And(Vec<Node>),
    /// True if the node is false.
    Not(Box<Node>),
    /// A test of the selected value. `opposite` negates it.
    Match { selector: Selector, test: Test, opposite: bool },
    /// `any` or `all`: evaluates `inner` for each element of a list or map.
    Each { all: bool, selector: Selector, names: Names, inner: Box<Node> },
}

/// A test of a value. [`Node::Match`] records whether the test is negated.
#[derive(Clone, Debug)]
enum Test {
    /// `==`, `!=`
    Equals(String),
    /// `in`, `contains`
    Holds(String),
    /// `matches`
    Matches(Regex),
    /// `is empty`
    IsEmpty,
    /// `is nil`
    IsNil,
}

/// A path into an object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Selector {
    /// Field names, keys and indexes; at least one.
    path: Vec<String>,
    /// Whether the selector was written as a JSON pointer.
    pointer: bool,
}

impl Selector {
    /// Returns the source text, for a selector in the position of a value.
    fn text(&self) -> String {
        if self.pointer { self.pointer() } else { self.path.join(".") }
    }

    /// Returns the selector as a JSON pointer, for errors.
    fn pointer(&self) -> String {
        self.path.iter().flat_map(|part| ["/", part]).collect()
    }
}

/// The names that a block binds to the current element. `None` is `_`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Names {
    /// One name: the element of a list, or the key of a map.
    One(Option<String>),
    /// Two names: index and element, or key and value.
    Two(Option<String>, Option<String>),
}
