//! The canonical layout of HCL2 files: two spaces per level, equals signs and trailing comments aligned in
//! groups of neighbouring lines, one space between tokens.
//!
//! Only blanks between tokens change. Comments, blank lines, strings and heredocs stay as they are, and a formatted
//! file formats to itself.

mod layout;
mod lex;

use crate::diag::Diagnostics;
use crate::parse::native;
use crate::source::{Source, Sources};

/// Formats a file.
///
/// # Errors
/// The file has syntax errors: there is no layout for what cannot be read.
pub fn file(source: &Source) -> Result<String, Diagnostics> {
    let mut sources = Sources::default();
    let id = sources.add(source.clone());
    match native::parse_body(&source.text, id) {
        Ok(_) => Ok(text(&source.text)),
        Err(items) => Err(Diagnostics { items, sources }),
    }
}

/// Formats a text that is known to be HCL2. Of anything else the result is some text with the same tokens.
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
