//! Decodes configurations by the JSON rules of HCL.

use crate::spec::{Labels, Node, join};
use crate::{Problem, Spec, Type, Value};
use caravan_hcl::diag::nearest;
use caravan_hcl::parse::MAX_DEPTH;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of parts of the schema that one configuration fills in. Without this limit, a small text of
/// many empty blocks takes much memory.
const MAX_PARTS: usize = 1_000_000;

/// The maximum number of problems that are reported.
const MAX_PROBLEMS: usize = 1000;

/// The key of comments in JSON.
const COMMENT: &str = "//";

/// Decodes a configuration.
///
/// Strings are literal text: `${...}` stays as it is.
///
/// # Errors
/// The problems of the configuration, at most a thousand.
pub fn decode(spec: &Spec, config: &Json) -> Result<Value, Vec<Problem>> {
    if !is_shallow(config, MAX_DEPTH) {
        return Err(vec![Problem::TooDeep]);
    }
    let mut decoder = Decoder { problems: Vec::new(), left: MAX_PARTS };
    let value = decoder.body(&spec.0, config, "");
    if decoder.left == 0 {
        decoder.problems.push(Problem::TooLarge);
    }
    if decoder.problems.is_empty() { Ok(value) } else { Err(decoder.problems) }
}

/// Returns whether a value nests at most `depth` levels.
fn is_shallow(json: &Json, depth: usize) -> bool {
    let inner = |json| depth > 0 && is_shallow(json, depth - 1);
    match json {
        Json::Array(items) => items.iter().all(inner),
        Json::Object(map) => map.values().all(inner),
        _ => true,
    }
}

struct Decoder {
    problems: Vec<Problem>,
    /// The number of parts of the schema that may still be filled in.
    left: usize,
}

/// The content of a block, or the whole configuration.
struct Body<'j> {
    /// The path of the block, or nothing.
    path: &'j str,
    members: Members<'j>,
}

/// The values of each key. A list of objects may have several.
type Members<'j> = BTreeMap<&'j str, Vec<&'j Json>>;

impl<'j> Body<'j> {
    fn get(&self, name: &str) -> &[&'j Json] {
        self.members.get(name).map_or(&[], Vec::as_slice)
    }

    fn join(&self, name: &str) -> String {
        join(self.path, name)
    }
}

/// A block before its content is read.
struct Block<'j> {
    path: String,
    content: &'j Json,
}

impl Decoder {
    fn report(&mut self, problem: Problem) -> Value {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        }
        Value::Null
    }

    /// Decodes the content of a block, or the whole configuration.
    fn body(&mut self, node: &Node, json: &Json, path: &str) -> Value {
        if self.left == 0 {
            return Value::Null;
        }
        let Ok(members) = members(json) else {
            let path = path.to_owned();
            let problem = if path.is_empty() { Problem::NotAnObject } else { Problem::NotABlock { path } };
            return self.report(problem);
        };
        let body = Body { path, members };
        let mut known = BTreeSet::new();
        names(node, &mut known);
        for name in body.members.keys().filter(|name| !known.contains(**name)) {
            if self.problems.len() >= MAX_PROBLEMS {
                break;
            }
            let near = nearest(name, known.iter().copied()).map(str::to_owned);
            self.report(Problem::Unknown { path: body.join(name), near });
        }
        self.node(node, &body)
    }

    /// Decodes a part of the schema.
    fn node(&mut self, node: &Node, body: &Body<'_>) -> Value {
        if self.left == 0 {
            return Value::Null;
        }
        self.left -= 1;
        match node {
            Node::Object(parts) => {
                Value::Map(parts.iter().map(|(key, part)| (key.clone(), self.node(part, body))).collect())
            }
            Node::Array(parts) => Value::List(parts.iter().map(|part| self.node(part, body)).collect()),
            Node::Attr { name, ty, required } => self.attribute(body, name, ty, *required),
            Node::Block { name, required, nested } => match self.only(body, name, *required) {
                Some(block) => self.body(nested, block.content, &block.path),
                None => Value::Null,
            },
            Node::BlockAttrs { name, ty, required } => match self.only(body, name, *required) {
                Some(block) => self.any_arguments(&block, ty),
                None => Value::Null,
            },
            Node::Blocks { name, unique, min, max, nested } => {
                self.blocks(body, name, (*min, *max), nested, *unique)
            }
            Node::BlockMap { name, labels, nested } => self.labelled(body, name, labels, nested),
            Node::Default { primary, default } => match self.node(primary, body) {
                Value::Null => self.node(default, body),
                value => value,
            },
            Node::Literal(value) => value.clone(),
        }
    }

    fn attribute(&mut self, body: &Body<'_>, name: &str, ty: &Type, required: bool) -> Value {
        let found = body.get(name);
        let converted = match found {
            [] if required => return self.report(Problem::MissingArgument { path: body.join(name) }),
            [] | [Json::Null] => return Value::Null,
            [value] if !(ty.is_repeatable() && value.is_object()) => ty.convert(value),
            all if ty.is_repeatable() => {
                let items = all.iter().flat_map(|value| match value {
                    Json::Null => &[],
                    Json::Array(items) => items.as_slice(),
                    one => std::slice::from_ref(*one),
                });
                ty.convert_all(items)
            }
            _ => return self.report(Problem::DuplicateArgument { path: body.join(name) }),
        };
        converted.unwrap_or_else(|why| self.report(Problem::WrongType { path: body.join(name), why }))
    }

    /// Decodes a block with any arguments, all of one type.
    fn any_arguments(&mut self, block: &Block<'_>, ty: &Type) -> Value {
        let Ok(members) = members(block.content) else {
            return self.report(Problem::NotABlock { path: block.path.clone() });
        };
        let body = Body { path: &block.path, members };
        let names = body.members.keys();
        Value::Map(names.map(|name| ((*name).to_owned(), self.attribute(&body, name, ty, false))).collect())
    }

    /// Returns the blocks of this name.
    fn found<'j>(&mut self, body: &Body<'j>, name: &str) -> Vec<Block<'j>> {
        let path = body.join(name);
        let mut contents = Vec::new();
        for value in body.get(name) {
            self.unpack(value, &path, &mut contents);
        }
        let several = contents.len() > 1;
        let path = |i| if several { format!("{path}[{i}]") } else { path.clone() };
        contents.into_iter().enumerate().map(|(i, content)| Block { path: path(i), content }).collect()
    }

    /// Adds the contents of the blocks that a value represents.
    fn unpack<'j>(&mut self, value: &'j Json, path: &str, out: &mut Vec<&'j Json>) {
        match value {
            Json::Null => {}
            Json::Object(_) => out.push(value),
            Json::Array(items) => out.extend(items),
            _ => {
                self.report(Problem::NotABlock { path: path.to_owned() });
            }
        }
    }

    /// Returns the block of this name, of which there must not be several.
    fn only<'j>(&mut self, body: &Body<'j>, name: &str, required: bool) -> Option<Block<'j>> {
        let before = self.problems.len();
        let mut all = self.found(body, name);
        let path = || body.join(name);
        match all.len() {
            0 if required && self.problems.len() == before => {
                self.report(Problem::MissingBlock { path: path() });
            }
            0 | 1 => {}
            _ => {
                self.report(Problem::DuplicateBlock { path: path() });
                return None;
            }
        }
        all.pop()
    }

    fn blocks(
        &mut self,
        body: &Body<'_>,
        name: &str,
        (least, most): (u64, Option<u64>),
        nested: &Node,
        unique: bool,
    ) -> Value {
        let before = self.problems.len();
        let all = self.found(body, name);
        let (found, path) = (all.len(), || body.join(name));
        let count = u64::try_from(found).unwrap_or(u64::MAX);
        if let Some(most) = most.filter(|most| count > *most) {
            return self.report(Problem::TooManyBlocks { path: path(), most, found });
        }
        if count < least && self.problems.len() == before {
            self.report(Problem::TooFewBlocks { path: path(), least, found });
        }
        let mut seen = BTreeSet::new();
        let mut out = Vec::with_capacity(found.min(self.left));
        for block in all {
            let value = self.body(nested, block.content, &block.path);
            if !unique || seen.insert(value.to_msgpack()) {
                out.push(value);
            }
        }
        Value::List(out)
    }

    fn labelled(&mut self, body: &Body<'_>, name: &str, labels: &Labels, nested: &Node) -> Value {
        let values: Vec<&Json> = body.get(name).to_vec();
        self.label_level(&values, &body.join(name), (&labels.first, &labels.others), nested)
    }

    /// Decodes values whose keys are labels.
    fn label_level(
        &mut self,
        values: &[&Json],
        path: &str,
        (label, others): (&str, &[String]),
        nested: &Node,
    ) -> Value {
        let mut keyed = Members::new();
        for value in values {
            match members(value) {
                Ok(found) if found.is_empty() && value.is_object() => {
                    let (path, label) = (path.to_owned(), label.to_owned());
                    self.report(Problem::MissingLabel { path, label });
                }
                Ok(found) => {
                    for (key, values) in found {
                        keyed.entry(key).or_default().extend(values);
                    }
                }
                Err(NotABody) => {
                    self.report(Problem::NotABlock { path: path.to_owned() });
                }
            }
        }
        let mut out = BTreeMap::new();
        for (key, values) in keyed {
            let path = join(path, key);
            if let [next, others @ ..] = others {
                out.insert(key.to_owned(), self.label_level(&values, &path, (next, others), nested));
                continue;
            }
            let mut contents = Vec::new();
            for value in values {
                self.unpack(value, &path, &mut contents);
            }
            match contents.as_slice() {
                [] => {}
                [content] => {
                    out.insert(key.to_owned(), self.body(nested, content, &path));
                }
                _ => {
                    self.report(Problem::DuplicateBlock { path });
                }
            }
        }
        Value::Map(out)
    }
}

/// The error for a value that is no body.
struct NotABody;

/// Returns the members of an object, or of all objects of a list. Null has none.
fn members(json: &Json) -> Result<Members<'_>, NotABody> {
    let objects = match json {
        Json::Null => &[],
        Json::Array(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut out = Members::new();
    for object in objects {
        let Json::Object(map) = object else { return Err(NotABody) };
        for (key, value) in map.iter().filter(|(key, _)| *key != COMMENT) {
            out.entry(key.as_str()).or_default().push(value);
        }
    }
    Ok(out)
}

/// Adds the names of the arguments and blocks that a body may have.
fn names<'s>(node: &'s Node, out: &mut BTreeSet<&'s str>) {
    match node {
        Node::Object(parts) => parts.values().for_each(|part| names(part, out)),
        Node::Array(parts) => parts.iter().for_each(|part| names(part, out)),
        Node::Attr { name, .. }
        | Node::Block { name, .. }
        | Node::BlockAttrs { name, .. }
        | Node::Blocks { name, .. }
        | Node::BlockMap { name, .. } => {
            out.insert(name);
        }
        Node::Default { primary, default } => {
            names(primary, out);
            names(default, out);
        }
        Node::Literal(_) => {}
    }
}
