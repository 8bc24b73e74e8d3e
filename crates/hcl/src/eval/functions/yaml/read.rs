//! Reading YAML.

use std::collections::BTreeMap;

use super::Result;
use super::scalar::{scalar, tagged, unsupported};
use crate::parse::MAX_DEPTH;
use crate::value::Value;

pub(in super::super) fn decode(text: &str) -> Result<Value> {
    let mut lines: Vec<&str> = text.lines().collect();
    if lines.first().is_some_and(|l| l.trim_end() == "---") {
        lines.remove(0);
    }
    let mut reader = Reader { lines, at: 0, anchors: BTreeMap::new(), size: 0 };
    reader.skip();
    if reader.at >= reader.lines.len() {
        return Ok(Value::NULL);
    }
    let value = reader.block(0, 0)?;
    reader.skip();
    match reader.lines.get(reader.at) {
        None => Ok(value),
        Some(l) if l.trim_end() == "..." => Ok(value),
        Some(_) => Err(format!("on line {}: unexpected text", reader.at + 1)),
    }
}

struct Reader<'t> {
    lines: Vec<&'t str>,
    at: usize,
    anchors: BTreeMap<String, Value>,
    /// Values made, so that aliases of aliases stay bounded.
    size: usize,
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

impl<'t> Reader<'t> {
    fn skip(&mut self) {
        while let Some(line) = self.lines.get(self.at) {
            let t = line.trim();
            if !(t.is_empty() || t.starts_with('#')) {
                break;
            }
            self.at += 1;
        }
    }

    fn wrong<T>(&self, what: &str) -> Result<T> {
        Err(format!("on line {}: {what}", self.at + 1))
    }

    /// A collection or scalar whose first line is indented by at least `minimum`.
    fn block(&mut self, minimum: usize, depth: usize) -> Result<Value> {
        self.skip();
        if depth > MAX_DEPTH {
            return self.wrong("nested too deeply");
        }
        let Some(line) = self.lines.get(self.at).copied() else { return Ok(Value::NULL) };
        let column = indent(line);
        if column < minimum {
            return Ok(Value::NULL);
        }
        let rest = &line[column..];
        if rest == "-" || rest.starts_with("- ") {
            return self.sequence(column, depth);
        }
        if split_key(rest).is_some() || rest.starts_with("? ") {
            return self.mapping(column, depth);
        }
        self.at += 1;
        self.inline(rest, depth, minimum)
    }

    fn sequence(&mut self, column: usize, depth: usize) -> Result<Value> {
        let mut out = Vec::new();
        loop {
            self.skip();
            let Some(line) = self.lines.get(self.at).copied() else { break };
            let rest = line.get(column..).unwrap_or_default();
            if indent(line) != column || !(rest == "-" || rest.starts_with("- ")) {
                break;
            }
            let inner = rest[1..].trim_start();
            if inner.is_empty() || inner.starts_with('#') {
                self.at += 1;
                out.push(self.block(column + 1, depth + 1)?);
            } else if inner.starts_with("- ") || split_key(inner).is_some() {
                // The item's own block begins on this line: read it as if the dash were a blank.
                let offset = line.len() - inner.len();
                let blanked = format!("{}{inner}", " ".repeat(offset));
                let value = self.nested_line(&blanked, offset, depth)?;
                out.push(value);
            } else {
                self.at += 1;
                out.push(self.inline(inner, depth + 1, column + 1)?);
            }
        }
        Ok(Value::tuple(out))
    }

    /// Reads a block whose first line is replaced by `first`.
    fn nested_line(&mut self, first: &str, column: usize, depth: usize) -> Result<Value> {
        let mut lines: Vec<&str> = vec![first];
        lines.extend(self.lines[self.at + 1..].iter().copied());
        let mut inner = Reader { lines, at: 0, anchors: std::mem::take(&mut self.anchors), size: self.size };
        let value = inner.block(column, depth + 1);
        let (used, size) = (inner.at, inner.size);
        let anchors = std::mem::take(&mut inner.anchors);
        self.anchors = anchors;
        self.size = size;
        let value = value.map_err(|e| format!("in the block that starts on line {}: {e}", self.at + 1))?;
        self.at += used;
        Ok(value)
    }

    fn mapping(&mut self, column: usize, depth: usize) -> Result<Value> {
        let mut out = BTreeMap::new();
        let mut merged = Vec::new();
        loop {
            self.skip();
            let Some(line) = self.lines.get(self.at).copied() else { break };
            if indent(line) != column {
                if indent(line) > column {
                    return self.wrong("unexpected indentation");
                }
                break;
            }
            let Some((key, rest)) = self.key(column)? else { break };
            let merge = key == "<<";
            let key = match scalar(key.trim())? {
                Value::Str(s) => s.to_string(),
                Value::Null(_) => "null".to_owned(),
                other => super::super::text(&other),
            };
            self.at += 1;
            let rest = rest.trim_start();
            let value = if rest.is_empty() || rest.starts_with('#') {
                // A sequence may stand at the same column as its key.
                self.skip();
                let same = self.lines.get(self.at).is_some_and(|l| {
                    indent(l) == column && (l[column..].starts_with("- ") || l[column..].trim_end() == "-")
                });
                if same { self.sequence(column, depth + 1)? } else { self.block(column + 1, depth + 1)? }
            } else {
                self.inline(rest, depth + 1, column + 1)?
            };
            if merge {
                merged.push(value);
            } else if out.insert(key.clone(), value).is_some() {
                return self.wrong(&format!("the key {key:?} is there twice"));
            }
        }
        for value in merged {
            merge_into(&mut out, value).or_else(|e| self.wrong(&e))?;
        }
        Ok(Value::object(out))
    }

    /// The key of the entry on this line and what follows it, `None` when there is no entry. A key that is marked
    /// with `?` has its value on the next line.
    fn key(&mut self, column: usize) -> Result<Option<(&'t str, &'t str)>> {
        let Some(line) = self.lines.get(self.at).copied() else { return Ok(None) };
        let Some(key) = line[column..].strip_prefix("? ") else { return Ok(split_key(&line[column..])) };
        self.at += 1;
        self.skip();
        let next = self.lines.get(self.at).copied().unwrap_or_default();
        match next.get(column..).and_then(|rest| rest.strip_prefix(':')) {
            Some(rest) if indent(next) == column => Ok(Some((strip_comment(key).trim(), rest))),
            _ => self
                .wrong("a key that is marked with \"?\" must be followed by a line with \":\" and its value"),
        }
    }

    /// What stands after a dash or a key, the cursor being on the next line.
    fn inline(&mut self, rest: &str, depth: usize, minimum: usize) -> Result<Value> {
        self.size += 1;
        if self.size > 100_000 {
            return self.wrong("too many values");
        }
        if let Some(alias) = rest.strip_prefix('*') {
            let name = alias.split([' ', '#']).next().unwrap_or_default();
            let value = self.anchors.get(name).cloned();
            let Some(value) = value else { return self.wrong(&format!("unknown anchor {name:?}")) };
            self.size += weight(&value);
            return Ok(value);
        }
        if let Some(anchored) = rest.strip_prefix('&') {
            let (name, rest) = anchored.split_once(' ').unwrap_or((anchored, ""));
            let rest = rest.trim_start();
            let value = if rest.is_empty() {
                self.block(minimum, depth + 1)?
            } else {
                self.inline(rest, depth + 1, minimum)?
            };
            self.anchors.insert(name.to_owned(), value.clone());
            return Ok(value);
        }
        if rest.starts_with('!') {
            let (tag, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            return self.tagged(tag, rest.trim_start(), depth, minimum);
        }
        if rest.starts_with(['|', '>']) {
            return self.block_scalar(rest, minimum);
        }
        if rest.starts_with(['[', '{', '"', '\'']) {
            // Flow collections and quoted strings may go on over several lines.
            let mut text = rest.to_owned();
            loop {
                let mut flow = Flow { text: &text, pos: 0, anchors: &self.anchors };
                match flow.value(depth) {
                    Ok(value) => {
                        let left = text[flow.pos..].trim_start();
                        if left.is_empty() || left.starts_with('#') {
                            return Ok(value);
                        }
                        return self.wrong("unexpected text after a value");
                    }
                    Err(FlowError::More) if self.at < self.lines.len() => {
                        text.push(' ');
                        text.push_str(self.lines[self.at].trim());
                        self.at += 1;
                    }
                    Err(FlowError::More) => return self.wrong("a bracket or quote is not closed"),
                    Err(FlowError::Wrong(e)) => return self.wrong(&e),
                }
            }
        }
        let mut plain = strip_comment(rest).to_owned();
        // A plain scalar goes on over lines that are indented further.
        while let Some(line) = self.lines.get(self.at) {
            if line.trim().is_empty() || indent(line) < minimum || minimum == 0 {
                break;
            }
            plain.push(' ');
            plain.push_str(strip_comment(line.trim()));
            self.at += 1;
        }
        scalar(plain.trim())
    }

    /// A value with a tag before it.
    fn tagged(&mut self, tag: &str, rest: &str, depth: usize, minimum: usize) -> Result<Value> {
        let collection = matches!(tag, "!!map" | "!!seq");
        let plain = !rest.is_empty() && !rest.starts_with(['|', '>', '[', '{', '&', '*', '#']);
        if plain && !collection {
            return tagged(tag, strip_comment(rest).trim()).or_else(|e| self.wrong(&e));
        }
        let value = if rest.is_empty() || rest.starts_with('#') {
            // A sequence may stand at the same column as its key.
            self.skip();
            let column = minimum.saturating_sub(1);
            let item = |l: &&str| indent(l) == column && l[column..].starts_with("- ");
            if self.lines.get(self.at).is_some_and(item) {
                self.sequence(column, depth + 1)?
            } else {
                self.block(minimum, depth + 1)?
            }
        } else {
            self.inline(rest, depth + 1, minimum)?
        };
        match (tag, &value) {
            ("!!map", Value::Map(..))
            | ("!!seq", Value::Seq(..))
            | ("!!str" | "!!binary" | "!", Value::Str(_)) => Ok(value),
            ("!!str", Value::Null(_)) => Ok(Value::str("")),
            ("!!map" | "!!seq" | "!!str" | "!!binary" | "!", _) => {
                self.wrong(&format!("the value does not fit its tag {tag:?}"))
            }
            _ => self.wrong(&unsupported(tag)),
        }
    }

    fn block_scalar(&mut self, header: &str, minimum: usize) -> Result<Value> {
        let folded = header.starts_with('>');
        let (strip, keep) = (header.contains('-'), header.contains('+'));
        let explicit =
            header.chars().find_map(|c| c.to_digit(10)).map(|d| d as usize + minimum.saturating_sub(1));
        let mut text: Vec<&'t str> = Vec::new();
        let mut column = explicit;
        while let Some(line) = self.lines.get(self.at).copied() {
            if line.trim().is_empty() {
                text.push("");
            } else {
                let column = *column.get_or_insert_with(|| indent(line).max(minimum));
                if indent(line) < column {
                    break;
                }
                text.push(&line[column..]);
            }
            self.at += 1;
        }
        let trailing = text.iter().rev().take_while(|l| l.is_empty()).count();
        let body = &text[..text.len() - trailing];
        let mut out = String::new();
        for (i, line) in body.iter().enumerate() {
            out.push_str(line);
            let last = i + 1 == body.len();
            let fold = folded
                && !last
                && !line.is_empty()
                && !body[i + 1].is_empty()
                && !body[i + 1].starts_with(' ');
            if !last {
                out.push(if fold { ' ' } else { '\n' });
            }
        }
        if keep {
            out.push_str(&"\n".repeat(trailing + 1));
        } else if !strip && !body.is_empty() {
            out.push('\n');
        }
        Ok(Value::str(out))
    }
}

/// Adds the entries of a `<<` that are not there yet: of a mapping, or of several in a sequence.
fn merge_into(out: &mut BTreeMap<String, Value>, value: Value) -> Result<()> {
    match value {
        Value::Map(.., map) => {
            for (key, value) in map {
                out.entry(key).or_insert(value);
            }
            Ok(())
        }
        Value::Seq(.., items) => items.into_iter().try_for_each(|item| match item {
            Value::Map(..) => merge_into(out, item),
            _ => Err("\"<<\" takes mappings only".to_owned()),
        }),
        _ => Err("\"<<\" takes a mapping, or a sequence of mappings".to_owned()),
    }
}

fn weight(value: &Value) -> usize {
    match value {
        Value::Seq(.., items) => items.iter().map(weight).sum::<usize>() + 1,
        Value::Map(.., map) => map.values().map(weight).sum::<usize>() + 1,
        _ => 1,
    }
}

fn strip_comment(s: &str) -> &str {
    s.find(" #").map_or(s, |i| &s[..i])
}

/// `key: rest`, where the line is one.
fn split_key(line: &str) -> Option<(&str, &str)> {
    let bytes = line.as_bytes();
    let mut i = 0;
    if let Some(quote @ (b'"' | b'\'')) = bytes.first().copied() {
        i = 1;
        while i < bytes.len() && bytes[i] != quote {
            i += if bytes[i] == b'\\' && quote == b'"' { 2 } else { 1 };
        }
        i += 1;
    } else if matches!(bytes.first(), Some(b'[' | b'{' | b'|' | b'>' | b'#' | b'*' | b'&')) {
        return None;
    }
    while i < bytes.len() {
        if bytes[i] == b':' && matches!(bytes.get(i + 1), None | Some(b' ')) {
            return Some((&line[..i], &line[i + 1..]));
        }
        if bytes[i] == b'#' && i > 0 && bytes[i - 1] == b' ' {
            return None;
        }
        i += 1;
    }
    None
}

enum FlowError {
    More,
    Wrong(String),
}

struct Flow<'a> {
    text: &'a str,
    pos: usize,
    anchors: &'a BTreeMap<String, Value>,
}

impl Flow<'_> {
    fn blanks(&mut self) {
        while self.text[self.pos..].starts_with([' ', '\t']) {
            self.pos += 1;
        }
    }

    fn eat(&mut self, c: char) -> bool {
        self.blanks();
        let found = self.text[self.pos..].starts_with(c);
        self.pos += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> std::result::Result<Value, FlowError> {
        if depth > MAX_DEPTH {
            return Err(FlowError::Wrong("nested too deeply".to_owned()));
        }
        self.blanks();
        let rest = &self.text[self.pos..];
        match rest.chars().next() {
            None => Err(FlowError::More),
            Some('[') => {
                self.pos += 1;
                let mut out = Vec::new();
                while !self.eat(']') {
                    out.push(self.value(depth + 1)?);
                    if !self.eat(',') && !self.text[self.pos..].starts_with(']') {
                        return self.stuck("] or a comma");
                    }
                }
                Ok(Value::tuple(out))
            }
            Some('{') => {
                self.pos += 1;
                let mut out = BTreeMap::new();
                let mut merged = Vec::new();
                while !self.eat('}') {
                    let merge = self.text[self.pos..].starts_with("<<");
                    let key = self.value(depth + 1)?;
                    let value = if self.eat(':') { self.value(depth + 1)? } else { Value::NULL };
                    if merge {
                        merged.push(value);
                    } else {
                        out.insert(super::super::text(&key), value);
                    }
                    if !self.eat(',') && !self.text[self.pos..].starts_with('}') {
                        return self.stuck("} or a comma");
                    }
                }
                for value in merged {
                    merge_into(&mut out, value).map_err(FlowError::Wrong)?;
                }
                Ok(Value::object(out))
            }
            Some('"') => {
                let bytes = rest.as_bytes();
                let mut end = 1;
                while end < bytes.len() && bytes[end] != b'"' {
                    end += if bytes[end] == b'\\' { 2 } else { 1 };
                }
                let Some(quoted) = rest.get(..=end).filter(|q| q.ends_with('"')) else {
                    return Err(FlowError::More);
                };
                self.pos += end + 1;
                serde_json::from_str::<String>(quoted)
                    .map(Value::str)
                    .map_err(|_| FlowError::Wrong("invalid escape in a quoted string".to_owned()))
            }
            Some('\'') => {
                let mut out = String::new();
                let mut chars = rest[1..].char_indices().peekable();
                while let Some((i, c)) = chars.next() {
                    if c != '\'' {
                        out.push(c);
                    } else if chars.peek().is_some_and(|(_, n)| *n == '\'') {
                        chars.next();
                        out.push('\'');
                    } else {
                        self.pos += i + 2;
                        return Ok(Value::str(out));
                    }
                }
                Err(FlowError::More)
            }
            Some('*') => {
                let end = rest.find([',', ']', '}', ' ']).unwrap_or(rest.len());
                self.pos += end;
                self.anchors
                    .get(&rest[1..end])
                    .cloned()
                    .ok_or_else(|| FlowError::Wrong("unknown anchor".to_owned()))
            }
            Some(_) => {
                let mut end = rest.len();
                for (i, c) in rest.char_indices() {
                    let colon = c == ':'
                        && matches!(rest.as_bytes().get(i + 1), None | Some(b' ' | b',' | b'}' | b']'));
                    if matches!(c, ',' | ']' | '}' | '[' | '{') || colon {
                        end = i;
                        break;
                    }
                }
                self.pos += end;
                scalar(rest[..end].trim()).map_err(FlowError::Wrong)
            }
        }
    }

    fn stuck<T>(&self, wanted: &str) -> std::result::Result<T, FlowError> {
        if self.text[self.pos..].trim().is_empty() {
            Err(FlowError::More)
        } else {
            Err(FlowError::Wrong(format!("expected {wanted}")))
        }
    }
}
