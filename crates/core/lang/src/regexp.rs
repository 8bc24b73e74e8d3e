//! Compiles regular expressions in RE2 syntax, with RE2's error texts, for job files and API requests.

use regex::Regex;
use regex_syntax::ast::ErrorKind;
use regex_syntax::ast::parse::Parser;

/// Compiles a pattern in RE2 syntax.
///
/// # Errors
/// The pattern is invalid. The text is that of [`explain`].
pub fn compile(pattern: &str) -> Result<Regex, String> {
    Regex::new(&translated(pattern)).map_err(|_| explain(pattern))
}

/// Translates a pattern from RE2 syntax to that of the `regex` crate. In RE2, the short classes match only ASCII, a
/// bracket within a class is literal, and so is a brace that begins no repetition.
fn translated(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    let mut class = false;
    while let Some(c) = rest.chars().next() {
        let width = c.len_utf8();
        let (piece, after) = rest.split_at(width);
        rest = match c {
            '\\' => escaped(after, class, &mut out),
            '[' if !class => {
                class = true;
                out.push('[');
                let inside = after.strip_prefix('^').inspect(|_| out.push('^')).unwrap_or(after);
                inside.strip_prefix(']').inspect(|_| out.push_str(r"\]")).unwrap_or(inside)
            }
            '[' if after.starts_with(':') => {
                // A named class, up to its end.
                let (name, after) = rest.split_at(rest.find(']').map_or(rest.len(), |end| end + 1));
                out.push_str(name);
                after
            }
            '[' | '&' | '~' if class => {
                out.extend(['\\', c]);
                after
            }
            ']' if class => {
                class = false;
                out.push(']');
                after
            }
            '{' if !class && !is_repetition(after) => {
                out.push_str(r"\{");
                after
            }
            _ => {
                out.push_str(piece);
                after
            }
        };
    }
    out
}

/// Translates the escape sequence after a backslash and returns the remaining text.
fn escaped<'p>(text: &'p str, class: bool, out: &mut String) -> &'p str {
    let Some(c) = text.chars().next() else {
        out.push('\\');
        return text;
    };
    let after = &text[c.len_utf8()..];
    match c {
        'd' => out.push_str(if class { "0-9" } else { "[0-9]" }),
        'w' => out.push_str(if class { "0-9A-Za-z_" } else { "[0-9A-Za-z_]" }),
        's' => out.push_str(if class { r"\t\n\f\r " } else { r"[\t\n\f\r ]" }),
        'D' => out.push_str("[^0-9]"),
        'W' => out.push_str("[^0-9A-Za-z_]"),
        'S' => out.push_str(r"[^\t\n\f\r ]"),
        'b' if !class => out.push_str(r"(?-u:\b)"),
        'Q' if !class => {
            let (quoted, rest) = after.split_once(r"\E").unwrap_or((after, ""));
            out.push_str(&regex::escape(quoted));
            return rest;
        }
        // A property in braces, or a character code.
        'p' | 'P' | 'x' if after.starts_with('{') => {
            let (name, rest) = after.split_at(after.find('}').map_or(after.len(), |end| end + 1));
            out.extend(['\\', c]);
            out.push_str(name);
            return rest;
        }
        other => out.extend(['\\', other]),
    }
    after
}

/// Returns whether the text after an opening brace makes it a repetition: `2}`, `2,}`, `2,5}`.
fn is_repetition(after: &str) -> bool {
    let Some((inside, _)) = after.split_once('}') else { return false };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (least, most) = inside.split_once(',').unwrap_or((inside, ""));
    !least.is_empty() && digits(least) && digits(most)
}

/// Explains why a pattern does not compile: the kind of error, and the invalid part of the pattern in backticks.
#[must_use]
pub fn explain(pattern: &str) -> String {
    let Err(error) = Parser::new().parse(pattern) else {
        // The pattern parses but is still invalid, for example because a class is unknown or too large.
        let reason = match regex_syntax::parse(pattern) {
            Err(_) => "invalid character class range",
            Ok(_) => "expression too large",
        };
        return format!("error parsing regexp: {reason}: `{pattern}`");
    };
    let span = error.span();
    let piece = pattern.get(span.start.offset..span.end.offset).unwrap_or_default();
    let (reason, piece) = match error.kind() {
        ErrorKind::ClassUnclosed => ("missing closing ]", &pattern[span.start.offset..]),
        ErrorKind::ClassRangeInvalid
        | ErrorKind::ClassRangeLiteral
        | ErrorKind::ClassEscapeInvalid
        | ErrorKind::UnicodeClassInvalid => ("invalid character class range", piece),
        ErrorKind::EscapeUnexpectedEof => ("trailing backslash at end of expression", ""),
        ErrorKind::EscapeUnrecognized
        | ErrorKind::EscapeHexEmpty
        | ErrorKind::EscapeHexInvalid
        | ErrorKind::EscapeHexInvalidDigit
        | ErrorKind::UnsupportedBackreference => ("invalid escape sequence", piece),
        ErrorKind::GroupUnclosed => ("missing closing )", pattern),
        ErrorKind::GroupUnopened => ("unexpected )", pattern),
        ErrorKind::GroupNameDuplicate { .. } => ("duplicate capture group name", piece),
        ErrorKind::GroupNameEmpty | ErrorKind::GroupNameInvalid | ErrorKind::GroupNameUnexpectedEof => {
            ("invalid named capture", piece)
        }
        ErrorKind::RepetitionMissing => {
            // The span begins before the operator.
            let rest = &pattern[span.start.offset..];
            let length = match rest.find('}') {
                Some(end) if rest.starts_with('{') => end + 1,
                _ => rest.chars().next().map_or(0, char::len_utf8),
            };
            ("missing argument to repetition operator", &rest[..length])
        }
        ErrorKind::RepetitionCountInvalid
        | ErrorKind::RepetitionCountDecimalEmpty
        | ErrorKind::RepetitionCountUnclosed
        | ErrorKind::DecimalEmpty
        | ErrorKind::DecimalInvalid => ("invalid repeat count", piece),
        ErrorKind::NestLimitExceeded(_) => ("expression nests too deeply", pattern),
        _ => ("invalid or unsupported Perl syntax", piece),
    };
    format!("error parsing regexp: {reason}: `{piece}`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_words_are_those_that_clients_know() {
        for (pattern, want) in [
            ("[", "missing closing ]: `[`"),
            ("a[b", "missing closing ]: `[b`"),
            ("(a", "missing closing ): `(a`"),
            ("a)", "unexpected ): `a)`"),
            ("*", "missing argument to repetition operator: `*`"),
            ("{2}", "missing argument to repetition operator: `{2}`"),
            ("a\\", "trailing backslash at end of expression: ``"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("\\y", "invalid escape sequence: `\\y`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("\\p{Nothing}", "invalid character class range: `\\p{Nothing}`"),
        ] {
            assert_eq!(explain(pattern), format!("error parsing regexp: {want}"), "{pattern}");
        }
    }

    #[test]
    fn patterns_mean_what_they_mean_there() {
        for (pattern, text, want) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "\u{663}", false),
            (r"^[\w-]+$", "a_b-9", true),
            (r"\bcafe\b", "the cafe.", true),
            (r"^\Qa.b\E+$", "a.bb", true),
            (r"^\Qa.b\E+$", "axb", false),
            ("^[[]a[]]$", "[a]", true),
            ("^[a&&b]$", "&", true),
            ("^a{$", "a{", true),
            ("^{a}$", "{a}", true),
            ("^a{2,}$", "aaa", true),
            ("^a{,2}$", "a{,2}", true),
            (r"^\p{Greek}+$", "\u{3b1}", true),
            (r"^\x{41}$", "A", true),
            ("^[[:alpha:]]+$", "ab", true),
        ] {
            assert_eq!(compile(pattern).unwrap().is_match(text), want, "{pattern} {text}");
        }
        assert_eq!(compile("a[").unwrap_err(), "error parsing regexp: missing closing ]: `[`");
        let quotes = r"\Qa\E".repeat(50_000);
        assert!(translated(&quotes).len() < quotes.len());
    }

    proptest! {
        #[test]
        fn every_text_that_is_refused_is_explained(pattern in "[\\[\\](){}*+?\\\\a-c0-9é,-]{0,12}") {
            if let Err(text) = compile(&pattern) {
                prop_assert!(text.starts_with("error parsing regexp: "));
            }
            let _ = explain(&pattern);
        }
    }
}
