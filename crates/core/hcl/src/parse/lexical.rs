//! Finds lexical errors before parsing. Nomad scans all tokens first, so that a missing quote is reported at the end
//! of its line, and not where parsing fails later.

use super::native::{Parser, continues_name};
use super::scan::heredoc_width;
use crate::diag::Diagnostic;
use crate::source::Span;

/// The context of the scanner.
enum Mode {
    /// Code, with the number of open braces.
    Code(usize),
    Quoted,
    /// A heredoc up to the line with this marker.
    Heredoc(String),
}

/// Returns an error for the first character or line end that is invalid in its context.
pub(super) fn first_mistake(parser: &mut Parser<'_>, start: usize) -> Option<Diagnostic> {
    let text = parser.text;
    let mut modes = vec![Mode::Code(0)];
    let mut pos = start;
    while pos < text.len() {
        let rest = &text[pos..];
        let sequence = rest.starts_with("${") || rest.starts_with("%{");
        let escaped = rest.starts_with("$${") || rest.starts_with("%%{");
        let width = match modes.last_mut()? {
            Mode::Code(_) => code(parser, &mut modes, pos)?,
            Mode::Quoted if rest.starts_with('"') => {
                modes.pop();
                1
            }
            Mode::Quoted if rest.starts_with(['\n', '\r']) => {
                let lines = rest.len() - rest.trim_start_matches(['\n', '\r']).len();
                return Some(split_string(parser.span(pos, pos + lines)));
            }
            Mode::Quoted if rest.starts_with('\\') => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            Mode::Heredoc(marker) if at_line_start(text, pos) && ends(rest, marker) => {
                modes.pop();
                rest.find('\n').unwrap_or(rest.len())
            }
            _ if escaped => 3,
            _ if sequence => {
                modes.push(Mode::Code(0));
                2
            }
            _ => rest.chars().next().map_or(1, char::len_utf8),
        };
        match width {
            0 => {
                parser.pos = pos;
                return parser.strange().and_then(|_| parser.errors.pop());
            }
            width => pos += width,
        }
    }
    None
}

/// Returns the width of the token at `pos`, or 0 for an unknown character.
fn code(parser: &mut Parser<'_>, modes: &mut Vec<Mode>, pos: usize) -> Option<usize> {
    let rest = &parser.text[pos..];
    let line = || rest.find('\n').unwrap_or(rest.len());
    let heredoc = heredoc_width(rest);
    if heredoc > 0 {
        modes.push(Mode::Heredoc(rest[..heredoc].trim_start_matches(['<', '-']).trim_end().to_owned()));
        return Some(heredoc);
    }
    let outer = modes.len() > 1;
    let first = rest.chars().next()?;
    Some(match first {
        '"' => {
            modes.push(Mode::Quoted);
            1
        }
        '#' => line(),
        '/' if rest.starts_with("//") => line(),
        '/' if rest.starts_with("/*") => rest[2..].find("*/").map_or(1, |end| end + 4),
        '{' => {
            if let Some(Mode::Code(braces)) = modes.last_mut() {
                *braces += 1;
            }
            1
        }
        '}' => {
            match modes.last_mut() {
                Some(Mode::Code(0)) if outer => drop(modes.pop()),
                Some(Mode::Code(braces)) => *braces = braces.saturating_sub(1),
                _ => {}
            }
            1
        }
        // The end of a sequence that trims spaces.
        '~' if outer && rest.starts_with("~}") => 1,
        '~' if outer && parser.text[..pos].ends_with(['{']) => 1,
        '&' if rest.starts_with("&&") => 2,
        '|' if rest.starts_with("||") => 2,
        c if c.is_ascii_alphanumeric() || c == '_' => {
            rest.find(|c| !(continues_name(c) || c == '.')).unwrap_or(rest.len())
        }
        _ => {
            parser.pos = pos;
            let strange = parser.strange().is_some();
            if strange {
                parser.errors.pop();
                0
            } else {
                first.len_utf8()
            }
        }
    })
}

fn at_line_start(text: &str, pos: usize) -> bool {
    text[..pos].ends_with('\n')
}

/// Returns whether the line ends a heredoc.
fn ends(rest: &str, marker: &str) -> bool {
    rest.find('\n').is_some_and(|end| rest[..end].trim() == marker)
}

pub(super) fn split_string(span: Span) -> Diagnostic {
    Diagnostic::error(
        "E0120",
        span,
        "Invalid multi-line string",
        "Quoted strings may not be split over multiple lines: a quote is missing here, or one too many before. For a string of several lines, use \\n or a heredoc.",
    )
}
