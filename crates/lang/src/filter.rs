//! Filter expressions of the HTTP API (`?filter=`): `Status == "running" and Meta.owner is not empty`.
//!
//! The language is that of hashicorp/go-bexpr: `or`, `and`, `not` and parentheses around matches of a *selector* (a
//! path of field names, as the API's JSON spells them) with a value, and `any` and `all` over the elements of a list or
//! map. An expression is parsed once ([`Filter::parse`]) and asked for each object ([`Filter::matches`]).

mod error;
mod evaluate;
mod parse;
#[cfg(test)]
mod tests;

use regex::Regex;
use serde_json::Value;

pub use error::FilterError;

/// The longest expression, in bytes. What a URL can hold is less in most places.
const LONGEST: usize = 64 << 10;

/// How deep parentheses, `not` and blocks may go.
const DEEPEST: usize = 64;

/// A filter expression, ready to be asked.
#[derive(Debug, Clone)]
pub struct Filter {
    root: Node,
}

impl Filter {
    /// Parses an expression. The error tells where it went wrong and what could have been there.
    ///
    /// # Errors
    ///
    /// When it is no expression, longer than 64 KiB, deeper than 64 levels, or holds a regular expression that is none.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        if text.len() > LONGEST {
            return Err(FilterError::TooLong { most: LONGEST });
        }
        parse::parse(text).map(|root| Self { root })
    }

    /// Whether an object is meant by the expression.
    ///
    /// # Errors
    ///
    /// When the expression names a field that the object does not have, or asks of a field what its type cannot
    /// answer. A key that a map lacks is no error.
    pub fn matches(&self, object: &Value) -> Result<bool, FilterError> {
        evaluate::evaluate(&self.root, object)
    }
}

/// A part of an expression.
#[derive(Debug, Clone)]
enum Node {
    /// One of these.
    Or(Vec<Node>),
    /// All of these.
    And(Vec<Node>),
    /// The opposite.
    Not(Box<Node>),
    /// A match of what a selector finds.
    Match { selector: Selector, test: Test, opposite: bool },
    /// A look at each element of a list or map.
    Each { all: bool, selector: Selector, names: Names, inner: Box<Node> },
}

/// What is asked of a value. The opposite of each is told beside it.
#[derive(Debug, Clone)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
struct Selector {
    /// Field names, keys and indexes, at least one.
    path: Vec<String>,
    /// Written as a JSON pointer.
    pointer: bool,
}

impl Selector {
    /// A selector in the place of a value is that text.
    fn text(&self) -> String {
        if self.pointer { self.pointer() } else { self.path.join(".") }
    }

    /// As errors show it.
    fn pointer(&self) -> String {
        self.path.iter().flat_map(|part| ["/", part]).collect()
    }
}

/// The names that a block gives to what it looks at; `None` is `_`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Names {
    /// Elements of a list, keys of a map.
    One(Option<String>),
    /// Index and element, or key and value.
    Two(Option<String>, Option<String>),
}
