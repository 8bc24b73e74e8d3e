//! The types of attributes.

use crate::Value;
use crate::spec::Fault;
use caravan_hcl::Diagnostic;
use caravan_hcl::parse::native::parse_expression;
use caravan_hcl::source::SourceId;
use caravan_hcl::types::type_constraint;
use caravan_hcl::value::{self as hcl, convert};
use std::fmt;

/// The type of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type(hcl::Type);

impl Type {
    /// Parses a type: `string`, `bool`, `number`, `any`, `list(T)`, `set(T)`, `map(T)`, `tuple([T, ...])`,
    /// `object({k = T})`.
    ///
    /// # Errors
    /// The text is no type.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let invalid = |why: String| Fault::Type { text: text.to_owned(), why };
        let expr =
            parse_expression(text.trim_start(), SourceId::default()).map_err(|e| invalid(reasons(&e)))?;
        type_constraint(&expr).map(Self).map_err(|e| invalid(reason(&e)))
    }

    /// Returns whether an attribute of this type may also be written as a block, or as several blocks: whether it is
    /// a list of maps.
    pub(crate) fn is_repeatable(&self) -> bool {
        matches!(&self.0, hcl::Type::List(inner) if matches!(**inner, hcl::Type::Map(_)))
    }

    /// Converts a value to this type, or explains why it cannot.
    pub(crate) fn convert(&self, json: &serde_json::Value) -> Result<Value, String> {
        convert(hcl::Value::from_json(json), &self.0).map(Value::from)
    }

    /// Converts several values to a list type, or explains why it cannot.
    pub(crate) fn convert_all<'j>(
        &self,
        items: impl IntoIterator<Item = &'j serde_json::Value>,
    ) -> Result<Value, String> {
        let items = items.into_iter().map(hcl::Value::from_json).collect();
        convert(hcl::Value::tuple(items), &self.0).map(Value::from)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns the text of the first diagnostic.
pub(crate) fn reasons(all: &[Diagnostic]) -> String {
    all.first().map_or_else(|| "it cannot be parsed".to_owned(), reason)
}

/// Returns the text of a diagnostic, without a place.
pub(crate) fn reason(found: &Diagnostic) -> String {
    format!("{}; {}", found.summary, found.detail)
}
