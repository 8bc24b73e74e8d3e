//! Formats HCL2 files in canonical layout: two spaces per level, equals signs and trailing comments aligned within
//! groups of adjacent lines, one space between tokens.
//!
//! Only spaces between tokens change. Comments, blank lines, strings and heredocs stay unchanged, and formatting is
//! idempotent.

mod layout;
mod lex;

use crate::diag::Diagnostics;
use crate::parse::native;
use crate::source::{Source, Sources};

/// Formats a file.
///
/// # Errors
/// The file has syntax errors. Only valid files are formatted.
pub fn file(source: &Source) -> Result<String, Diagnostics> {
    let mut sources = Sources::default();
    let id = sources.add(source.clone());
    match native::parse_body(&source.text, id) {
        Ok(_) => Ok(text(&source.text)),
        Err(items) => Err(Diagnostics { items, sources }),
    }
}

/// Formats a text that is known to be valid HCL2. For other texts, the result has the same tokens in some layout.
#[must_use]
pub fn text(text: &str) -> String {
    let mut tokens = lex::tokens(text);
    layout::arrange(&mut tokens);
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for token in &tokens {
        for _ in 0..token.spaces {
            out.push(' ');
        }
        out.push_str(token.text);
    }
    out
}

#[cfg(test)]
mod tests;
