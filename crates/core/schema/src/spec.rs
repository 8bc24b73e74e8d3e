//! Schemas: as a plugin sends them, and checked.

use crate::{Type, Value};
use std::collections::BTreeMap;
use std::fmt;

/// The maximum nesting depth of a schema.
pub const MAX_DEPTH: usize = 64;

/// A schema as a plugin sends it: types and literals are texts, and names may be empty.
///
/// An attribute or a block with an empty name has the name of its key in the surrounding object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawSpec {
    /// An empty part, which is an error.
    Missing,
    /// Several parts of the same body, which become a map.
    Object(BTreeMap<String, RawSpec>),
    /// Several parts of the same body, which become a list.
    Array(Vec<RawSpec>),
    /// An argument that is set at most once, or merged if its type is a list of maps.
    Attr {
        /// The argument's name.
        name: String,
        /// The type as an expression: `list(string)`.
        ty: String,
        /// Whether the argument must be set.
        required: bool,
    },
    /// At most one block.
    Block {
        /// The kind of block.
        name: String,
        /// Whether the block must exist.
        required: bool,
        /// The schema of its content.
        nested: Box<RawSpec>,
    },
    /// At most one block with any arguments, all of one type.
    BlockAttrs {
        /// The kind of block.
        name: String,
        /// The type of the arguments, as an expression.
        ty: String,
        /// Whether the block must exist.
        required: bool,
    },
    /// Any number of blocks, which become a list.
    BlockList {
        /// The kind of block.
        name: String,
        /// The minimum number of blocks.
        min: u64,
        /// The maximum number of blocks; 0 stands for any number.
        max: u64,
        /// The schema of their content.
        nested: Box<RawSpec>,
    },
    /// Any number of blocks, which become a list without duplicates.
    BlockSet {
        /// The kind of block.
        name: String,
        /// The minimum number of blocks.
        min: u64,
        /// The maximum number of blocks; 0 stands for any number.
        max: u64,
        /// The schema of their content.
        nested: Box<RawSpec>,
    },
    /// Blocks with labels, which become nested maps.
    BlockMap {
        /// The kind of block.
        name: String,
        /// The purpose of each label, for messages.
        labels: Vec<String>,
        /// The schema of their content.
        nested: Box<RawSpec>,
    },
    /// A value that replaces another one if that is null.
    Default {
        /// The part whose value is used unless it is null.
        primary: Box<RawSpec>,
        /// The part whose value is used if `primary` is null.
        default: Box<RawSpec>,
    },
    /// A constant, as an expression.
    Literal(String),
}

/// A checked schema: every name is set, every type and literal is valid, and its nesting is limited.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec(pub(crate) Node);

/// A part of a checked schema. `name` is never empty.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Object(BTreeMap<String, Node>),
    Array(Vec<Node>),
    Attr { name: String, ty: Type, required: bool },
    Block { name: String, required: bool, nested: Box<Node> },
    BlockAttrs { name: String, ty: Type, required: bool },
    Blocks { name: String, unique: bool, min: u64, max: Option<u64>, nested: Box<Node> },
    BlockMap { name: String, labels: Labels, nested: Box<Node> },
    Default { primary: Box<Node>, default: Box<Node> },
    Literal(Value),
}

/// The purposes of the labels of a block, at least one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Labels {
    pub first: String,
    pub others: Vec<String>,
}

/// An error in a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {fault}")]
pub struct SpecError {
    place: Place,
    fault: Fault,
}

impl SpecError {
    /// Returns the reason that the schema is invalid.
    #[must_use]
    pub fn fault(&self) -> &Fault {
        &self.fault
    }
}

/// The reason that a part of a schema is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A type is invalid.
    #[error("the type {text:?} is invalid: {why}")]
    Type {
        /// The text of the type.
        text: String,
        /// The message of the parser or the evaluator.
        why: String,
    },
    /// A literal is invalid.
    #[error("the literal {text:?} is invalid: {why}")]
    Literal {
        /// The text of the literal.
        text: String,
        /// The message of the parser or the evaluator.
        why: String,
    },
    /// An attribute or a block has no name, and no key that supplies one.
    #[error("an attribute or a block has no name")]
    Unnamed,
    /// A block with labels declares none.
    #[error("the labels are missing")]
    Unlabelled,
    /// A part of the schema is empty.
    #[error("the schema is empty")]
    Missing,
    /// The schema nests too deeply.
    #[error("the schema nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

/// A place in a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    part: Part,
    /// The names of the surrounding blocks, then the own name.
    path: String,
}

/// The kind of a part of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The whole schema, without a path.
    Whole,
    Attribute,
    Block,
    /// A part without its own name, named by its key.
    Key,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.part {
            Part::Whole => return f.write_str("schema"),
            Part::Attribute => "attribute",
            Part::Block => "block",
            Part::Key => "key",
        };
        write!(f, "{part} {:?}", self.path)
    }
}

impl Spec {
    /// Checks a schema.
    ///
    /// # Errors
    /// The first part that is invalid.
    pub fn new(raw: &RawSpec) -> Result<Self, SpecError> {
        check(raw, At { outer: "", key: None, depth: 0 }).map(Self)
    }
}

/// The surroundings of a part of a schema.
#[derive(Clone, Copy)]
struct At<'s> {
    /// The path of the block around the part, or nothing.
    outer: &'s str,
    /// The key of the part in the surrounding object.
    key: Option<&'s str>,
    depth: usize,
}

impl<'s> At<'s> {
    /// Creates an error about the part, or about its surroundings if it has no name.
    fn error(self, part: Part, name: Option<&str>, fault: Fault) -> SpecError {
        let (part, path) = match name {
            Some(name) => (part, join(self.outer, name)),
            None if self.outer.is_empty() => (Part::Whole, String::new()),
            None => (Part::Block, self.outer.to_owned()),
        };
        SpecError { place: Place { part, path }, fault }
    }

    /// Returns the own name of a part, or else its key.
    fn name<'n>(self, own: &'n str) -> Result<&'n str, SpecError>
    where
        's: 'n,
    {
        Some(own)
            .filter(|own| !own.is_empty())
            .or(self.key.filter(|key| !key.is_empty()))
            .ok_or_else(|| self.error(Part::Key, None, Fault::Unnamed))
    }
}

/// Returns the path of a name within the block at `outer`.
pub(crate) fn join(outer: &str, name: &str) -> String {
    if outer.is_empty() { name.to_owned() } else { format!("{outer}.{name}") }
}

fn check(raw: &RawSpec, at: At<'_>) -> Result<Node, SpecError> {
    if at.depth >= MAX_DEPTH {
        return Err(at.error(Part::Key, at.key, Fault::TooDeep));
    }
    let same = |raw: &RawSpec, key| check(raw, At { key, depth: at.depth + 1, ..at });
    let block = |own: &str, nested: &RawSpec| {
        let name = at.name(own)?;
        let outer = join(at.outer, name);
        let nested = check(nested, At { outer: &outer, key: None, depth: at.depth + 1 })?;
        Ok((name.to_owned(), Box::new(nested)))
    };
    let typed = |part, own: &str, ty: &str| {
        let name = at.name(own)?;
        let ty = Type::parse(ty).map_err(|fault| at.error(part, Some(name), fault))?;
        Ok((name.to_owned(), ty))
    };
    let limit = |max: u64| Some(max).filter(|max| *max > 0);
    Ok(match raw {
        RawSpec::Missing => return Err(at.error(Part::Key, at.key, Fault::Missing)),
        RawSpec::Object(parts) => {
            let parts = parts.iter().map(|(key, part)| Ok((key.clone(), same(part, Some(key))?)));
            Node::Object(parts.collect::<Result<_, _>>()?)
        }
        RawSpec::Array(parts) => {
            Node::Array(parts.iter().map(|part| same(part, None)).collect::<Result<_, _>>()?)
        }
        RawSpec::Attr { name, ty, required } => {
            let (name, ty) = typed(Part::Attribute, name, ty)?;
            Node::Attr { name, ty, required: *required }
        }
        RawSpec::Block { name, required, nested } => {
            let (name, nested) = block(name, nested)?;
            Node::Block { name, required: *required, nested }
        }
        RawSpec::BlockAttrs { name, ty, required } => {
            let (name, ty) = typed(Part::Block, name, ty)?;
            Node::BlockAttrs { name, ty, required: *required }
        }
        RawSpec::BlockList { name, min, max, nested } => {
            let (name, nested) = block(name, nested)?;
            Node::Blocks { name, unique: false, min: *min, max: limit(*max), nested }
        }
        RawSpec::BlockSet { name, min, max, nested } => {
            let (name, nested) = block(name, nested)?;
            Node::Blocks { name, unique: true, min: *min, max: limit(*max), nested }
        }
        RawSpec::BlockMap { name, labels, nested } => {
            let [first, others @ ..] = labels.as_slice() else {
                let name = at.name(name)?;
                return Err(at.error(Part::Block, Some(name), Fault::Unlabelled));
            };
            let (name, nested) = block(name, nested)?;
            let labels = Labels { first: first.clone(), others: others.to_vec() };
            Node::BlockMap { name, labels, nested }
        }
        RawSpec::Default { primary, default } => Node::Default {
            primary: Box::new(same(primary, at.key)?),
            default: Box::new(same(default, at.key)?),
        },
        RawSpec::Literal(text) => {
            let value = Value::parse_literal(text);
            Node::Literal(value.map_err(|fault| at.error(Part::Key, at.key, fault))?)
        }
    })
}
