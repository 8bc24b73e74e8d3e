//! Helpers of the native parser: token widths and duplicate arguments.

use super::native::{begins_name, continues_name};
use crate::ast::{Body, Name};
use crate::diag::Diagnostic;
use crate::source::Span;
use std::collections::HashMap;

/// A finder of duplicate arguments. It compares each name while there are few, and keeps a map for many.
#[derive(Debug, Default)]
pub(super) struct Seen {
    names: HashMap<String, Span>,
}

impl Seen {
    const FEW: usize = 16;

    /// Returns the range of an earlier argument with this name in the body.
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

/// Returns the length in bytes of the first token of a text.
pub(super) fn token_width(rest: &str) -> usize {
    let Some(first) = rest.chars().next() else { return 0 };
    if begins_name(first) {
        return rest.find(|c: char| !continues_name(c)).unwrap_or(rest.len());
    }
    if first.is_ascii_digit() {
        return number_width(rest.as_bytes());
    }
    let heredoc = heredoc_width(rest);
    if heredoc > 0 {
        return heredoc;
    }
    let longer = ["...", "\r\n", "==", "!=", ">=", "<=", "&&", "||", "=>", "::"];
    longer.iter().find(|t| rest.starts_with(**t)).map_or(first.len_utf8(), |t| t.len())
}

/// Returns the length in bytes of a heredoc's start, including its line end, or 0 without one.
pub(super) fn heredoc_width(rest: &str) -> usize {
    let Some(inner) = rest.strip_prefix("<<") else { return 0 };
    let name = inner.strip_prefix('-').unwrap_or(inner);
    if !name.starts_with(begins_name) {
        return 0;
    }
    let after = name.trim_start_matches(continues_name);
    let end = if after.starts_with("\r\n") {
        2
    } else if after.starts_with('\n') {
        1
    } else {
        return 0;
    };
    rest.len() - after.len() + end
}

/// Returns the length in bytes of the number at the beginning of the text.
pub(super) fn number_width(bytes: &[u8]) -> usize {
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut length = 0;
    loop {
        // Several points and exponents form one token too, which is an invalid number.
        match bytes.get(length) {
            Some(b'0'..=b'9' | b'.') => length += 1,
            Some(b'e' | b'E') if digit(length + 1) => length += 2,
            Some(b'e' | b'E') if matches!(bytes.get(length + 1), Some(b'+' | b'-')) && digit(length + 2) => {
                length += 3;
            }
            _ => break,
        }
    }
    while length > 0 && bytes[length - 1] == b'.' {
        length -= 1;
    }
    length
}

/// Returns the error for a duplicate argument. `first` is in the same text.
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
