//! Encodes values as YAML.

use crate::value::Value;
use std::fmt::Write as _;

/// The column after which a quoted string continues on the next line, at the next space.
const WIDTH: usize = 80;
/// The length in bytes above which a key has its own line after a question mark.
const MAX_KEY: usize = 128;

pub(in super::super) fn encode(value: &Value) -> String {
    let mut writer = Writer { out: String::new() };
    writer.value(value, 0);
    writer.end_line();
    // A document of a single plain word has an end marker.
    if matches!(value, Value::Null(_) | Value::Bool(_) | Value::Num(_)) {
        writer.out.push_str("...\n");
    }
    writer.out
}

struct Writer {
    out: String,
}

impl Writer {
    fn end_line(&mut self) {
        if !self.out.ends_with(is_line_end) {
            self.out.push('\n');
        }
    }

    fn begin_line(&mut self, indent: usize) {
        self.end_line();
        self.out.push_str(&" ".repeat(indent));
    }

    /// Writes a value at this indent. A scalar uses it for continuation lines.
    fn value(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Null(_) => self.out.push_str("null"),
            Value::Bool(b) => self.out.push_str(if *b { "true" } else { "false" }),
            Value::Num(n) => self.out.push_str(&n.to_string()),
            Value::Str(s) => self.string(s, indent.max(2), false),
            Value::Seq(.., items) if items.is_empty() => self.out.push_str("[]"),
            Value::Map(.., map) if map.is_empty() => self.out.push_str("{}"),
            Value::Seq(.., items) => {
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        self.begin_line(indent);
                    }
                    self.out.push_str("- ");
                    self.value(item, indent + 2);
                }
            }
            Value::Map(.., map) => {
                for (i, (key, item)) in map.iter().enumerate() {
                    if i > 0 {
                        self.begin_line(indent);
                    }
                    self.entry(key, item, indent);
                }
            }
        }
    }

    fn entry(&mut self, key: &str, value: &Value, indent: usize) {
        if key.len() > MAX_KEY || key.contains(is_line_end) {
            self.out.push_str("? ");
            self.string(key, indent + 2, false);
            self.begin_line(indent);
            self.out.push_str(": ");
            self.value(value, indent + 2);
            return;
        }
        self.string(key, indent + 2, true);
        self.out.push(':');
        match value {
            // A sequence has the indent of its key.
            Value::Seq(.., items) if !items.is_empty() => {
                self.begin_line(indent);
                self.value(value, indent);
            }
            Value::Map(.., inner) if !inner.is_empty() => {
                self.begin_line(indent + 2);
                self.value(value, indent + 2);
            }
            scalar => {
                self.out.push(' ');
                self.value(scalar, indent + 2);
            }
        }
    }

    fn string(&mut self, s: &str, indent: usize, key: bool) {
        if !key && s.contains('\n') && fits_block(s) {
            self.block(s, indent);
        } else {
            self.quoted(s, indent, key);
        }
    }

    /// Writes a literal block. Its header has the indent if the first line begins with spaces or is empty.
    fn block(&mut self, s: &str, indent: usize) {
        self.out.push('|');
        if s.starts_with(|c| c == ' ' || is_line_end(c)) {
            self.out.push('2');
        }
        let mut ends = s.chars().rev().map(is_line_end);
        match (ends.next(), ends.next()) {
            (Some(true), None | Some(true)) => self.out.push('+'),
            (Some(true), _) => {}
            _ => self.out.push('-'),
        }
        self.out.push('\n');
        let mut fresh = true;
        for c in s.chars() {
            if is_line_end(c) {
                self.out.push(c);
                fresh = true;
                continue;
            }
            if std::mem::take(&mut fresh) {
                self.out.push_str(&" ".repeat(indent));
            }
            self.out.push(c);
        }
    }

    fn quoted(&mut self, s: &str, indent: usize, key: bool) {
        let line = self.out.rsplit(is_line_end).next().unwrap_or_default();
        let mut column = line.chars().count() + 1;
        self.out.push('"');
        // As in Nomad, a text that begins with a byte order mark has all its characters escaped.
        let all = s.starts_with('\u{feff}');
        let mut after_blank = false;
        for (at, c) in s.char_indices() {
            let inside = at > 0 && at + c.len_utf8() < s.len();
            if c == ' ' && !all && !key && !after_blank && column > WIDTH && inside {
                self.begin_line(indent);
                column = indent;
                if s[at + 1..].starts_with(' ') {
                    self.out.push('\\');
                    column += 1;
                }
                after_blank = true;
                continue;
            }
            after_blank = c == ' ';
            let before = self.out.len();
            if all || !is_shown(c) || is_line_end(c) || matches!(c, '"' | '\\') {
                self.escape(c);
                column += self.out.len() - before;
            } else {
                self.out.push(c);
                column += 1;
            }
        }
        self.out.push('"');
    }

    fn escape(&mut self, c: char) {
        let short = match c {
            '\0' => '0',
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\r' => 'r',
            '\u{1b}' => 'e',
            '"' | '\\' => c,
            '\u{85}' => 'N',
            '\u{a0}' => '_',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            c => {
                let code = u32::from(c);
                let _ = match code {
                    0..=0xff => write!(self.out, "\\x{code:02X}"),
                    0x100..=0xffff => write!(self.out, "\\u{code:04X}"),
                    _ => write!(self.out, "\\U{code:08X}"),
                };
                return;
            }
        };
        self.out.push('\\');
        self.out.push(short);
    }
}

fn is_line_end(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Returns whether a character is written unescaped, as line ends are.
fn is_shown(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

/// Returns whether a block preserves the text: no trailing spaces on lines, and no characters to escape.
fn fits_block(s: &str) -> bool {
    let blank_before_end = s.chars().zip(s.chars().skip(1)).any(|(a, b)| a == ' ' && is_line_end(b));
    s.chars().all(is_shown) && !s.ends_with(' ') && !blank_before_end
}
