//! Parses filter expressions.
//!
//! An error reports the farthest position where parsing failed, with everything expected there. Nomad's
//! generated parser does the same, as it tries all alternatives.

use super::{DEEPEST, FilterError, Names, Node, Selector, Test};
use std::collections::BTreeSet;

/// White space, in the notation of the grammar and its errors.
const SPACE: &str = r"[ \t\r\n]";

pub(super) fn parse(text: &str) -> Result<Node, FilterError> {
    let mut parser = Parser { text, at: 0, farthest: 0, expected: BTreeSet::new(), depth: 0, fatal: None };
    parser.space();
    let node = parser.or();
    parser.space();
    match (node, parser.fatal.take()) {
        (_, Some(error)) => Err(error),
        (Some(node), None) if parser.at == text.len() => Ok(node),
        (node, None) => {
            if node.is_some() {
                parser.miss("EOF");
            }
            Err(parser.error())
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    /// The number of bytes read.
    at: usize,
    farthest: usize,
    expected: BTreeSet<&'static str>,
    depth: usize,
    /// An error that no alternative can avoid.
    fatal: Option<FilterError>,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Records an alternative that is expected at this position.
    fn miss(&mut self, label: &'static str) {
        if self.at > self.farthest {
            self.farthest = self.at;
            self.expected.clear();
        }
        if self.at == self.farthest {
            self.expected.insert(label);
        }
    }

    fn error(&self) -> FilterError {
        let before = self.text.get(..self.farthest).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        // Nomad lists the end of the text last, whatever the order of the others.
        let mut labels: Vec<&str> = self.expected.iter().copied().filter(|label| *label != "EOF").collect();
        labels.extend(self.expected.get("EOF"));
        let expected = match labels.split_last() {
            Some((last, [])) => (*last).to_owned(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => String::new(),
        };
        FilterError::Syntax {
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
            offset: self.farthest,
            expected,
        }
    }

    /// Parses a literal; `label` is its name in errors.
    fn literal(&mut self, literal: &str, label: &'static str) -> bool {
        if self.rest().starts_with(literal) {
            self.at += literal.len();
            return true;
        }
        self.miss(label);
        false
    }

    /// Skips white space. Returns whether there was any.
    fn space(&mut self) -> bool {
        let rest = self.rest();
        let length = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
        self.at += length;
        self.miss(SPACE);
        length > 0
    }

    /// Parses words with white space before, between and, if `after`, after them. Restores the position if they do
    /// not match.
    fn words(&mut self, words: &[(&str, &'static str)], after: bool) -> bool {
        let start = self.at;
        let there = words.iter().all(|(word, label)| self.space() && self.literal(word, label));
        if there && (!after || self.space()) {
            return true;
        }
        self.at = start;
        false
    }

    /// Parses with `inner` at one more level of nesting.
    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth == DEEPEST {
            self.fatal = Some(FilterError::TooDeep { most: DEEPEST });
            return None;
        }
        self.depth += 1;
        let read = inner(self);
        self.depth -= 1;
        read
    }

    fn or(&mut self) -> Option<Node> {
        let mut parts = vec![self.and()?];
        while self.words(&[("or", r#""or""#)], true) {
            parts.push(self.and()?);
        }
        Some(if parts.len() == 1 { parts.pop()? } else { Node::Or(parts) })
    }

    fn and(&mut self) -> Option<Node> {
        let mut parts = vec![self.not()?];
        while self.words(&[("and", r#""and""#)], true) {
            parts.push(self.not()?);
        }
        Some(if parts.len() == 1 { parts.pop()? } else { Node::And(parts) })
    }

    fn not(&mut self) -> Option<Node> {
        let start = self.at;
        if self.literal("not", r#""not""#)
            && self.space()
            && let Some(inner) = self.deeper(Self::not)
        {
            return Some(Node::Not(Box::new(inner)));
        }
        if self.fatal.is_some() {
            return None;
        }
        // A field name may begin with the word.
        self.at = start;
        self.primary()
    }

    fn primary(&mut self) -> Option<Node> {
        if self.literal("(", r#""(""#) {
            self.space();
            let inner = self.deeper(Self::or)?;
            self.space();
            return self.literal(")", r#"")""#).then_some(inner);
        }
        let start = self.at;
        for (word, label, all) in [("any", r#""any""#, false), ("all", r#""all""#, true)] {
            if self.literal(word, label) && self.space() {
                if let Some(block) = self.block(all) {
                    return Some(block);
                }
                if self.fatal.is_some() {
                    return None;
                }
            }
            self.at = start;
        }
        self.comparison()
    }

    /// Parses the rest of `any Selector as name, name { ... }`.
    fn block(&mut self, all: bool) -> Option<Node> {
        let selector = self.selector()?;
        if !self.words(&[("as", r#""as""#)], true) {
            return None;
        }
        let first = self.name()?;
        let between = self.at;
        self.space();
        let names = if self.literal(",", r#"",""#) {
            self.space();
            Names::Two(first, self.name()?)
        } else {
            self.at = between;
            Names::One(first)
        };
        self.space();
        if !self.literal("{", r#""{""#) {
            return None;
        }
        self.space();
        let inner = self.deeper(Self::or)?;
        self.space();
        self.literal("}", r#""}""#).then(|| Node::Each { all, selector, names, inner: Box::new(inner) })
    }

    /// Parses a name in a block, `None` for `_`.
    fn name(&mut self) -> Option<Option<String>> {
        if self.literal("_", r#""_""#) {
            return Some(None);
        }
        self.identifier().map(Some)
    }

    fn comparison(&mut self) -> Option<Node> {
        let start = self.at;
        if let Some(selector) = self.selector() {
            if let Some((test, opposite)) = self.test() {
                return Some(Node::Match { selector, test, opposite });
            }
            if self.fatal.is_some() {
                return None;
            }
        }
        self.at = start;
        let value = self.value()?;
        let opposite = if self.words(&[("in", r#""in""#)], true) {
            false
        } else if self.words(&[("not", r#""not""#), ("in", r#""in""#)], true) {
            true
        } else {
            return None;
        };
        Some(Node::Match { selector: self.selector()?, test: Test::Holds(value), opposite })
    }

    /// Parses the test after a selector.
    fn test(&mut self) -> Option<(Test, bool)> {
        const NOT: (&str, &str) = ("not", r#""not""#);
        const IS: (&str, &str) = ("is", r#""is""#);
        let start = self.at;
        for (sign, label, opposite) in [("==", r#""==""#, false), ("!=", r#""!=""#, true)] {
            self.space();
            if self.literal(sign, label) {
                self.space();
                return self.value().map(|value| (Test::Equals(value), opposite));
            }
            self.at = start;
        }
        for (words, opposite) in
            [(&[IS, ("empty", r#""empty""#)][..], false), (&[IS, NOT, ("empty", r#""empty""#)], true)]
        {
            if self.words(words, false) {
                return Some((Test::IsEmpty, opposite));
            }
        }
        for (words, opposite) in
            [(&[IS, ("nil", r#""nil""#)][..], false), (&[IS, NOT, ("nil", r#""nil""#)], true)]
        {
            if self.words(words, false) {
                return Some((Test::IsNil, opposite));
            }
        }
        const CONTAINS: (&str, &str) = ("contains", r#""contains""#);
        for (words, opposite) in [(&[CONTAINS][..], false), (&[NOT, CONTAINS], true)] {
            if self.words(words, true) {
                return self.value().map(|value| (Test::Holds(value), opposite));
            }
        }
        const MATCHES: (&str, &str) = ("matches", r#""matches""#);
        for (words, opposite) in [(&[MATCHES][..], false), (&[NOT, MATCHES], true)] {
            if self.words(words, true) {
                let expression = self.value()?;
                return match crate::regexp::compile(&expression) {
                    Ok(regex) => Some((Test::Matches(regex), opposite)),
                    Err(error) => {
                        self.fatal = Some(FilterError::Regex { expression, problem: error });
                        None
                    }
                };
            }
        }
        None
    }

    fn selector(&mut self) -> Option<Selector> {
        if self.rest().starts_with('"') {
            return self.pointer();
        }
        let mut path = vec![self.identifier()?];
        loop {
            let start = self.at;
            if self.literal(".", r#"".""#) {
                if let Some(part) = self.identifier().or_else(|| self.digits()) {
                    path.push(part);
                    continue;
                }
            } else if self.literal("[", r#""[""#) {
                self.space();
                if let Some(part) = self.string() {
                    self.space();
                    if self.literal("]", r#""]""#) {
                        path.push(part);
                        continue;
                    }
                }
            }
            self.at = start;
            return Some(Selector { path, pointer: false });
        }
    }

    /// Parses a quoted JSON pointer.
    fn pointer(&mut self) -> Option<Selector> {
        let inner = self.rest().strip_prefix("\"/")?;
        let length = inner.find('"')?;
        let inner = inner.get(..length)?;
        let fits = |part: &str| {
            !part.is_empty()
                && part.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '~' | ':' | '|'))
        };
        let path: Option<Vec<String>> = inner
            .split('/')
            .map(|part| fits(part).then(|| part.replace("~1", "/").replace("~0", "~")))
            .collect();
        let selector = Selector { path: path?, pointer: true };
        self.at += length + 3;
        Some(selector)
    }

    /// Parses `[a-zA-Z][a-zA-Z0-9_/]*`.
    fn identifier(&mut self) -> Option<String> {
        let rest = self.rest();
        if !rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            self.miss("[a-zA-Z]");
            return None;
        }
        let length =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '/').unwrap_or(rest.len());
        let identifier = rest.get(..length)?.to_owned();
        self.at += length;
        self.miss("[a-zA-Z0-9_/]");
        Some(identifier)
    }

    fn digits(&mut self) -> Option<String> {
        let rest = self.rest();
        let length = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let digits = rest.get(..length)?.to_owned();
        self.at += length;
        self.miss("[0-9]");
        (!digits.is_empty()).then_some(digits)
    }

    /// Parses a value: a word, a number or a string.
    fn value(&mut self) -> Option<String> {
        let start = self.at;
        if let Some(selector) = self.selector() {
            return Some(selector.text());
        }
        self.at = start;
        if let Some(number) = self.number() {
            return Some(number);
        }
        self.at = start;
        self.string()
    }

    /// Parses `-?(0|[1-9][0-9]*)(\.[0-9]+)?` with a delimiter after it.
    fn number(&mut self) -> Option<String> {
        let start = self.at;
        self.literal("-", r#""-""#);
        if !self.literal("0", r#""0""#) {
            if !self.rest().starts_with(|c: char| ('1'..='9').contains(&c)) {
                self.miss("[1-9]");
                return None;
            }
            self.digits()?;
        }
        if self.literal(".", r#"".""#) {
            self.digits()?;
        }
        let ends =
            self.rest().chars().next().is_none_or(|c| matches!(c, ' ' | '\t' | '\r' | '\n' | ')' | '}'));
        if !ends {
            self.miss(SPACE);
            self.miss(r#"")""#);
            self.miss("EOF");
            return None;
        }
        self.text.get(start..self.at).map(str::to_owned)
    }

    /// Parses a string: raw between backticks, with escapes between quotes.
    fn string(&mut self) -> Option<String> {
        if self.literal("`", "\"`\"") {
            let length = match self.rest().find('`') {
                Some(length) => length,
                None => {
                    self.at = self.text.len();
                    self.miss("\"`\"");
                    return None;
                }
            };
            let raw = self.rest().get(..length)?.to_owned();
            self.at += length + 1;
            return Some(raw);
        }
        if !self.literal("\"", r#""\"""#) {
            return None;
        }
        let mut text = String::new();
        let mut characters = self.rest().char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    self.at += at + 1;
                    return Some(text);
                }
                '\\' => text.push(escape(&mut characters)?),
                plain => text.push(plain),
            }
        }
        self.at = self.text.len();
        self.miss(r#""\"""#);
        None
    }
}

/// Returns the character of an escape sequence, as in Go strings.
fn escape(characters: &mut std::str::CharIndices<'_>) -> Option<char> {
    let (count, radix, first) = match characters.next()?.1 {
        'n' => return Some('\n'),
        't' => return Some('\t'),
        'r' => return Some('\r'),
        'a' => return Some('\u{7}'),
        'b' => return Some('\u{8}'),
        'f' => return Some('\u{c}'),
        'v' => return Some('\u{b}'),
        same @ ('"' | '\\') => return Some(same),
        'x' => (2, 16, 0),
        'u' => (4, 16, 0),
        'U' => (8, 16, 0),
        octal @ '0'..='7' => (2, 8, octal.to_digit(8)?),
        _ => return None,
    };
    let mut number = first;
    for _ in 0..count {
        number = number.checked_mul(radix)?.checked_add(characters.next()?.1.to_digit(radix)?)?;
    }
    char::from_u32(number)
}
