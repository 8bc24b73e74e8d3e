//! What the parser of the native notation looks at: widths of tokens, arguments that were set before.

use std::collections::HashMap;

use crate::ast::{Body, Name};
use crate::diag::Diagnostic;
use crate::source::Span;

/// Finds arguments that were set before. Few are looked through; of many, the names are kept.
#[derive(Debug, Default)]
pub(super) struct Seen {
    names: HashMap<String, Span>,
}

impl Seen {
    const FEW: usize = 16;

    /// The place where an argument of this name was set in the body.
    pub(super) fn first(&mut self, body: &Body, name: &str) -> Option<Span> {
        if body.attributes.len() <= Self::FEW {
            return body.attributes.iter().find(|a| a.name.text == name).map(|a| a.name.span);
        }
        for added in &body.attributes[self.names.len()..] {
            self.names.insert(added.name.text.clone(), added.name.span);
        }
        self.names.get(name).copied()
    }
}

/// How many bytes the first token of a text has.
pub(super) fn token_width(rest: &str) -> usize {
    let Some(first) = rest.chars().next() else { return 0 };
    if first.is_alphabetic() || first == '_' {
        return rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-')).unwrap_or(rest.len());
    }
    if first.is_ascii_digit() {
        return number_width(rest.as_bytes());
    }
    let longer = ["...", "\r\n", "==", "!=", ">=", "<=", "&&", "||", "=>", "::"];
    longer.iter().find(|t| rest.starts_with(**t)).map_or(first.len_utf8(), |t| t.len())
}

/// How many bytes the number has that the text begins with.
pub(super) fn number_width(bytes: &[u8]) -> usize {
    let digits =
        |from: usize| bytes[from.min(bytes.len())..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut length = digits(0);
    if bytes.get(length) == Some(&b'.') && digits(length + 1) > 0 {
        length += 1 + digits(length + 1);
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits(length + 1 + sign);
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    length
}

/// The error for an argument that was set before. `first` is in the same text.
pub(super) fn redefined(text: &str, name: &Name, first: Span) -> Diagnostic {
    let line = text[..first.start.min(text.len())].matches('\n').count() + 1;
    Diagnostic::error(
        "E0107",
        name.span,
        "Attribute redefined",
        format!(
            "The argument {:?} was already set in line {line}. Each argument may be set only once.",
            name.text
        ),
    )
    .label(first, "first set here")
}
