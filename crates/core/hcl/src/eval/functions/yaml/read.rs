//! Converts YAML tokens to a value: one document, without features that have no value in this language.

use super::Result;
use super::scalar::{CORE, scalar};
use super::scan::{Scanner, Style, Token};
use crate::parse::MAX_DEPTH;
use crate::value::{Type, Value, convert};
use std::collections::BTreeMap;

/// The maximum number of values of one text, including the copies from aliases.
const MAX_VALUES: usize = 100_000;

pub(in super::super) fn decode(text: &str) -> Result<Value> {
    let mut reader = Reader {
        scanner: Scanner::new(text)?,
        handles: BTreeMap::new(),
        anchors: BTreeMap::new(),
        values: 0,
        depth: 0,
        key: false,
        merges: false,
    };
    let value = reader.document()?;
    match reader.scanner.take()? {
        Token::End => Ok(value),
        _ => reader.wrong("unexpected extra content after value"),
    }
}

struct Reader<'t> {
    scanner: Scanner<'t>,
    /// The prefixes of tag handles.
    handles: BTreeMap<String, String>,
    /// Values by anchor; `None` while a value is being read.
    anchors: BTreeMap<String, Option<Value>>,
    values: usize,
    depth: usize,
    /// Whether the next value is a key.
    key: bool,
    /// Whether the last key is a merge key.
    merges: bool,
}

/// The context of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Within brackets.
    Flow,
    Block,
    /// After a key, where a sequence may have the indent of the key.
    BehindKey,
}

impl Reader<'_> {
    fn wrong<T>(&self, what: &str) -> Result<T> {
        self.scanner.wrong(what)
    }

    fn at(&mut self, token: &Token) -> Result<bool> {
        Ok(self.scanner.peek()? == token)
    }

    fn eat(&mut self, token: &Token) -> Result<bool> {
        let found = self.at(token)?;
        if found {
            self.scanner.take()?;
        }
        Ok(found)
    }

    fn at_one_of(&mut self, tokens: &[Token]) -> Result<bool> {
        let next = self.scanner.peek()?;
        Ok(tokens.contains(next))
    }

    fn document(&mut self) -> Result<Value> {
        let mut explicit = false;
        let mut version = false;
        loop {
            match self.scanner.peek()?.clone() {
                Token::Version(text) => {
                    if version {
                        return self.wrong("found duplicate %YAML directive");
                    }
                    if text.split('.').map(|n| n.trim_start_matches('0')).ne(["1", "1"]) {
                        return self.wrong("found incompatible YAML document");
                    }
                    version = true;
                }
                Token::TagDirective(handle, prefix) => {
                    if self.handles.insert(handle, prefix).is_some() {
                        return self.wrong("found duplicate %TAG directive");
                    }
                }
                Token::DocumentStart => {
                    self.scanner.take()?;
                    explicit = true;
                    break;
                }
                Token::End if !version && self.handles.is_empty() => {
                    return self.wrong("missing start of document");
                }
                _ if version || !self.handles.is_empty() => {
                    return self.wrong("did not find expected <document start>");
                }
                _ => break,
            }
            self.scanner.take()?;
        }
        let empty = explicit
            && matches!(
                self.scanner.peek()?,
                Token::Version(_)
                    | Token::TagDirective(..)
                    | Token::DocumentStart
                    | Token::DocumentEnd
                    | Token::End
            );
        let value = if empty { self.empty()? } else { self.node(Place::Block)? };
        let ended = self.eat(&Token::DocumentEnd)?;
        while ended && self.eat(&Token::DocumentEnd)? {}
        match self.scanner.peek()? {
            Token::End => Ok(value),
            Token::DocumentStart | Token::Version(_) | Token::TagDirective(..) => {
                self.wrong("unexpected extra content after value")
            }
            _ if ended => self.wrong("unexpected extra content after value"),
            _ => self.wrong("did not find expected <document start>"),
        }
    }

    fn empty(&mut self) -> Result<Value> {
        self.count(1)?;
        Ok(Value::NULL)
    }

    fn count(&mut self, values: usize) -> Result<()> {
        self.values += values;
        if self.values > MAX_VALUES { self.wrong("too many values") } else { Ok(()) }
    }

    fn node(&mut self, place: Place) -> Result<Value> {
        if self.depth > MAX_DEPTH {
            return self.wrong("nested too deeply");
        }
        self.depth += 1;
        let value = self.node_here(place)?;
        self.depth -= 1;
        Ok(value)
    }

    fn node_here(&mut self, place: Place) -> Result<Value> {
        if let Token::Alias(name) = self.scanner.peek()?.clone() {
            self.scanner.take()?;
            return match self.anchors.get(&name).cloned() {
                Some(Some(value)) => {
                    self.count(weight(&value))?;
                    Ok(value)
                }
                Some(None) => {
                    self.wrong(&format!("cannot refer to anchor {name:?} from inside its own definition"))
                }
                None => self.wrong(&format!("reference to undefined anchor {name:?}")),
            };
        }
        let key = std::mem::take(&mut self.key);
        let (mut anchor, tag) = self.properties()?;
        let named = anchor.is_some();
        if key {
            // Keys cannot have anchors.
            anchor = None;
        }
        if let Some(name) = &anchor {
            self.anchors.insert(name.clone(), None);
        }
        self.count(1)?;
        let tag = tag.as_deref();
        let collection = |kind: &str, what: &str| match tag {
            Some(tag) if tag.strip_prefix(CORE) != Some(kind) => {
                Err(format!("can't interpret {what} as {tag}"))
            }
            _ => Ok(()),
        };
        let next = self.scanner.peek()?.clone();
        let value = match next {
            Token::BlockEntry if place == Place::BehindKey => {
                collection("seq", "sequence")?;
                self.sequence_at_key()?
            }
            Token::Scalar(text, style) => {
                self.scanner.take()?;
                self.merges = key && tag.is_none() && text == "<<";
                match scalar(&text, style, tag) {
                    Ok(value) => value,
                    Err(e) => return self.wrong(&e),
                }
            }
            Token::FlowSequence => {
                collection("seq", "sequence")?;
                self.flow_sequence()?
            }
            Token::FlowMapping => {
                collection("map", "mapping")?;
                self.flow_mapping()?
            }
            Token::BlockSequence if place != Place::Flow => {
                collection("seq", "sequence")?;
                self.block_sequence()?
            }
            Token::BlockMapping if place != Place::Flow => {
                collection("map", "mapping")?;
                self.block_mapping()?
            }
            _ if named || tag.is_some() => match scalar("", Style::Plain, tag) {
                Ok(value) => value,
                Err(e) => return self.wrong(&e),
            },
            _ => return self.wrong("did not find expected node content"),
        };
        if let Some(name) = anchor {
            self.anchors.insert(name, Some(value.clone()));
        }
        Ok(value)
    }

    /// Parses an anchor and a tag, in any order.
    fn properties(&mut self) -> Result<(Option<String>, Option<String>)> {
        let (mut anchor, mut tag) = (None, None);
        loop {
            match self.scanner.peek()?.clone() {
                Token::Anchor(name) if anchor.is_none() => anchor = Some(name),
                Token::Tag(handle, suffix) if tag.is_none() => {
                    let prefix = match (self.handles.get(&handle), handle.as_str()) {
                        (Some(prefix), _) => prefix.as_str(),
                        (None, "") => "",
                        (None, "!") => "!",
                        (None, "!!") => CORE,
                        _ => return self.wrong("found undefined tag handle"),
                    };
                    tag = Some(format!("{prefix}{suffix}"));
                }
                _ => return Ok((anchor, tag)),
            }
            self.scanner.take()?;
        }
    }

    fn block_sequence(&mut self) -> Result<Value> {
        self.scanner.take()?;
        let mut out = Vec::new();
        while self.eat(&Token::BlockEntry)? {
            let nothing = self.at_one_of(&[Token::BlockEntry, Token::BlockEnd])?;
            out.push(if nothing { self.empty()? } else { self.node(Place::Block)? });
        }
        if !self.eat(&Token::BlockEnd)? {
            return self.wrong("did not find expected '-' indicator");
        }
        Ok(Value::tuple(out))
    }

    fn sequence_at_key(&mut self) -> Result<Value> {
        let mut out = Vec::new();
        while self.eat(&Token::BlockEntry)? {
            let nothing = self.at_one_of(&[Token::BlockEntry, Token::Key, Token::Value, Token::BlockEnd])?;
            out.push(if nothing { self.empty()? } else { self.node(Place::Block)? });
        }
        Ok(Value::tuple(out))
    }

    fn block_mapping(&mut self) -> Result<Value> {
        const NEXT: [Token; 3] = [Token::Key, Token::Value, Token::BlockEnd];
        self.scanner.take()?;
        let mut out = Entries::default();
        while self.eat(&Token::Key)? {
            let key = self.key(&NEXT, Place::BehindKey)?;
            let mut value = None;
            if self.eat(&Token::Value)? && !self.at_one_of(&NEXT)? {
                value = Some(self.node(Place::BehindKey)?);
            }
            self.entry(&mut out, key, value)?;
        }
        if !self.eat(&Token::BlockEnd)? {
            return self.wrong("did not find expected key");
        }
        Ok(Value::object(out.entries))
    }

    /// Parses a key, which is a text or converts to one. Returns `None` for a merge key.
    fn key(&mut self, none: &[Token], place: Place) -> Result<Option<String>> {
        if self.at_one_of(none)? {
            return self.wrong("mapping key cannot be null");
        }
        if matches!(self.scanner.peek()?, Token::Alias(_)) {
            return self.wrong("only strings are allowed as mapping keys");
        }
        self.key = true;
        self.merges = false;
        let key = self.node(place)?;
        match key {
            Value::Null(_) => self.wrong("mapping key cannot be null"),
            Value::Seq(..) | Value::Map(..) => self.wrong("only strings are allowed as mapping keys"),
            _ if self.merges => Ok(None),
            value => match convert(value, &Type::Str) {
                Ok(Value::Str(key)) => Ok(Some(key.to_string())),
                _ => self.wrong("only strings are allowed as mapping keys"),
            },
        }
    }

    fn entry(&mut self, out: &mut Entries, key: Option<String>, value: Option<Value>) -> Result<()> {
        let value = match value {
            Some(value) => value,
            None => self.empty()?,
        };
        match (key, value) {
            (Some(key), value) => {
                out.entries.insert(key, value);
            }
            (None, Value::Map(.., map)) => out.entries.extend(map),
            (None, other) => {
                return self.wrong(&format!("cannot merge {} into mapping", other.type_name()));
            }
        }
        Ok(())
    }

    fn flow_sequence(&mut self) -> Result<Value> {
        self.scanner.take()?;
        let mut out = Vec::new();
        loop {
            if self.eat(&Token::FlowSequenceEnd)? {
                return Ok(Value::tuple(out));
            }
            if !out.is_empty() {
                if !self.eat(&Token::FlowEntry)? {
                    return self.wrong("did not find expected ',' or ']'");
                }
                if self.eat(&Token::FlowSequenceEnd)? {
                    return Ok(Value::tuple(out));
                }
            }
            if self.eat(&Token::Key)? {
                out.push(self.pair()?);
            } else {
                out.push(self.node(Place::Flow)?);
            }
        }
    }

    /// Parses a mapping of one entry without braces.
    fn pair(&mut self) -> Result<Value> {
        self.count(1)?;
        let key = self.key(&[Token::Value, Token::FlowEntry, Token::FlowSequenceEnd], Place::Flow)?;
        let mut value = None;
        if self.eat(&Token::Value)? && !self.at_one_of(&[Token::FlowEntry, Token::FlowSequenceEnd])? {
            value = Some(self.node(Place::Flow)?);
        }
        let mut out = Entries::default();
        self.entry(&mut out, key, value)?;
        Ok(Value::object(out.entries))
    }

    fn flow_mapping(&mut self) -> Result<Value> {
        self.scanner.take()?;
        let mut out = Entries::default();
        let mut first = true;
        loop {
            if self.eat(&Token::FlowMappingEnd)? {
                return Ok(Value::object(out.entries));
            }
            if !first {
                if !self.eat(&Token::FlowEntry)? {
                    return self.wrong("did not find expected ',' or '}'");
                }
                if self.eat(&Token::FlowMappingEnd)? {
                    return Ok(Value::object(out.entries));
                }
            }
            first = false;
            let (key, mut value);
            if self.eat(&Token::Key)? {
                key = self.key(&[Token::Value, Token::FlowEntry, Token::FlowMappingEnd], Place::Flow)?;
                value = None;
                if self.eat(&Token::Value)? && !self.at_one_of(&[Token::FlowEntry, Token::FlowMappingEnd])? {
                    value = Some(self.node(Place::Flow)?);
                }
            } else {
                key = self.key(&[], Place::Flow)?;
                value = None;
            }
            self.entry(&mut out, key, value.take())?;
        }
    }
}

/// The entries of a mapping. Later entries override earlier ones, merged or not.
#[derive(Default)]
struct Entries {
    entries: BTreeMap<String, Value>,
}

fn weight(value: &Value) -> usize {
    match value {
        Value::Seq(.., items) => items.iter().map(weight).sum::<usize>() + 1,
        Value::Map(.., map) => map.values().map(weight).sum::<usize>() + 1,
        _ => 1,
    }
}
