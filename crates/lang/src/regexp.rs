//! Why a regular expression is none, in the words that clients of the reference know: those of RE2 as Go has it.

use regex_syntax::ast::ErrorKind;
use regex_syntax::ast::parse::Parser;

/// What is wrong with a pattern that does not compile: the kind of error, and the piece of the pattern in backticks.
#[must_use]
pub fn explain(pattern: &str) -> String {
    let Err(error) = Parser::new().parse(pattern) else {
        // Read, but no expression all the same: a class that there is not, or too large a one.
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
            // The place is before the operator.
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

    proptest! {
        #[test]
        fn every_text_that_is_refused_is_explained(pattern in "[\\[\\](){}*+?\\\\a-c0-9é,-]{0,12}") {
            if regex::Regex::new(&pattern).is_err() {
                prop_assert!(explain(&pattern).starts_with("error parsing regexp: "));
            }
        }
    }
}
