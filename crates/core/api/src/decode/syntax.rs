//! The fault of a JSON text, in the words that API clients expect (docs/reference/http-api.md, section 1.8): those of
//! the reference's decoder, which reads byte by byte and stops at the first invalid byte.

/// The element that may follow, outside strings, numbers and words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Value,
    ValueOrEnd,
    KeyOrEnd,
    Key,
    Colon,
    After,
}

/// Returns the complaint about the first JSON value of a text; `None` if the value is valid.
#[must_use]
pub fn complaint(text: &[u8]) -> Option<String> {
    Reader { text, at: 0 }.first_value().err()
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
}

impl Reader<'_> {
    fn first_value(&mut self) -> Result<(), String> {
        // The open braces and brackets.
        let mut open: Vec<u8> = Vec::new();
        let mut next = Next::Value;
        loop {
            if next == Next::After && open.is_empty() {
                return Ok(());
            }
            while self.peek().is_some_and(|c| matches!(c, b' ' | b'\t' | b'\r' | b'\n')) {
                self.at += 1;
            }
            let c = self.byte()?;
            next = match (next, c) {
                (Next::ValueOrEnd, b']') | (Next::KeyOrEnd, b'}') => {
                    open.pop();
                    Next::After
                }
                (Next::Value | Next::ValueOrEnd, b'{') => {
                    open.push(c);
                    Next::KeyOrEnd
                }
                (Next::Value | Next::ValueOrEnd, b'[') => {
                    open.push(c);
                    Next::ValueOrEnd
                }
                (Next::Value | Next::ValueOrEnd, _) => {
                    self.scalar(c)?;
                    Next::After
                }
                (Next::KeyOrEnd | Next::Key, b'"') => {
                    self.string()?;
                    Next::Colon
                }
                (Next::KeyOrEnd | Next::Key, _) => {
                    return Err(strange(c, "looking for beginning of object key string"));
                }
                (Next::Colon, b':') => Next::Value,
                (Next::Colon, _) => return Err(strange(c, "after object key")),
                (Next::After, _) => match (open.last(), c) {
                    (Some(b'{'), b',') => Next::Key,
                    (Some(b'['), b',') => Next::Value,
                    (Some(b'{'), b'}') | (Some(b'['), b']') => {
                        open.pop();
                        Next::After
                    }
                    (Some(b'{'), _) => return Err(strange(c, "after object key:value pair")),
                    _ => return Err(strange(c, "after array element")),
                },
            };
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn byte(&mut self) -> Result<u8, String> {
        let c = self.peek().ok_or_else(|| "unexpected EOF".to_owned())?;
        self.at += 1;
        Ok(c)
    }

    fn scalar(&mut self, first: u8) -> Result<(), String> {
        match first {
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(first),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            _ => Err(strange(first, "looking for beginning of value")),
        }
    }

    fn word(&mut self, word: &str) -> Result<(), String> {
        for desired in word.bytes().skip(1) {
            let c = self.byte()?;
            if c != desired {
                let context = format!("in literal {word} (expecting {})", quoted(desired));
                return Err(strange(c, &context));
            }
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), String> {
        loop {
            match self.byte()? {
                b'"' => return Ok(()),
                b'\\' => match self.byte()? {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let c = self.byte()?;
                            if !c.is_ascii_hexdigit() {
                                return Err(strange(c, "in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    c => return Err(strange(c, "in string escape code")),
                },
                c if c < 0x20 => return Err(strange(c, "in string literal")),
                _ => {}
            }
        }
    }

    fn number(&mut self, first: u8) -> Result<(), String> {
        let mut first = first;
        if first == b'-' {
            first = self.byte()?;
            if !first.is_ascii_digit() {
                return Err(strange(first, "in numeric literal"));
            }
        }
        if first != b'0' {
            self.digits();
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digit("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digit("in exponent of numeric literal")?;
        }
        Ok(())
    }

    /// Reads at least one digit.
    fn digit(&mut self, context: &str) -> Result<(), String> {
        let c = self.byte()?;
        if !c.is_ascii_digit() {
            return Err(strange(c, context));
        }
        self.digits();
        Ok(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
        }
    }
}

fn strange(c: u8, context: &str) -> String {
    format!("invalid character {} {context}", quoted(c))
}

/// Returns a byte in the form in which messages quote it.
fn quoted(c: u8) -> String {
    match c {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        0x20..=0x7e => format!("'{}'", char::from(c).escape_default()),
        b'\n' => "'\\n'".to_owned(),
        b'\r' => "'\\r'".to_owned(),
        b'\t' => "'\\t'".to_owned(),
        0x80.. => format!("'{}'", char::from(c)),
        _ => format!("'\\x{c:02x}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn complaints_are_those_that_clients_know() {
        for (text, want) in [
            ("nope", "invalid character 'o' in literal null (expecting 'u')"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("{x", "invalid character 'x' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\": 1 \"b\"", "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("{\"a\": 1,}", "invalid character '}' looking for beginning of object key string"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            ("\"\\q\"", "invalid character 'q' in string escape code"),
            ("\"\\u12x\"", "invalid character 'x' in \\u hexadecimal character escape"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("{\"a\":", "unexpected EOF"),
            ("'", "invalid character '\\'' looking for beginning of value"),
        ] {
            assert_eq!(complaint(text.as_bytes()).as_deref(), Some(want), "{text}");
        }
    }

    proptest! {
        /// A text has a complaint if and only if it is not JSON.
        #[test]
        fn complaints_agree_with_the_parser(text in "[\\[\\]{},:\" 0-9.eE+tnrulfas\\\\-]{0,12}") {
            let mut values = serde_json::Deserializer::from_slice(text.as_bytes()).into_iter::<serde_json::Value>();
            // Numbers out of range are faults of types. The text after a value is not examined.
            if let Some(Ok(_)) = values.next() {
                prop_assert_eq!(complaint(text.as_bytes()), None);
            }
        }
    }
}
