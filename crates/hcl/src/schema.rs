//! What may stand where: tables, and the one decoder that reads a body by them.
//!
//! A table names each argument and block in the language and the key that it has in JSON; decoding gives
//! a JSON object with just what was set. Tables are data, so that documentation and generated files
//! can be made from them too.

mod decode;
mod dynamic;
mod free;
mod names;
mod typed;

pub use self::decode::{Decoder, Object};
pub(crate) use self::names::unexpected;
use crate::ast::{self, Name};
use crate::diag::Diagnostic;
use crate::parse::json::Member;
use crate::source::Span;

/// What may stand in a body.
#[derive(Debug)]
pub struct Schema {
    /// What messages call the body, usually its block type.
    pub name: &'static str,
    /// Arguments.
    pub attributes: &'static [Attribute],
    /// Blocks.
    pub blocks: &'static [BlockType],
    /// What is computed from several arguments once all are read.
    pub finish: Option<Finish>,
}

impl Schema {
    /// What a name is in HCL-JSON.
    pub(crate) fn member(&self, name: &str) -> Member {
        if self.attributes.iter().any(|a| a.name == name) {
            return Member::Argument;
        }
        match self.blocks.iter().find(|b| b.name == name) {
            Some(BlockType { content: Content::StringsOrAttribute, .. }) => Member::ArgumentOrBlock,
            Some(block) => Member::Block(block.labels),
            None if name == "dynamic" && !self.blocks.is_empty() => Member::Block(&["type"]),
            None => Member::Unknown,
        }
    }
}

/// Computes keys from other keys of a decoded body.
pub type Finish = fn(&mut Object, &Header<'_>) -> Result<(), Box<Diagnostic>>;

/// The block that a body belongs to, for messages.
#[derive(Debug)]
pub struct Header<'a> {
    /// Type and labels.
    pub span: Span,
    /// The labels.
    pub labels: &'a [Name],
    /// The arguments of the body, once they are read.
    pub arguments: &'a [ast::Attribute],
}

/// An argument.
#[derive(Debug, Clone, Copy)]
pub struct Attribute {
    /// In the language.
    pub name: &'static str,
    /// In JSON. Keys that begin with `~` are for `finish` only.
    pub key: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Whether it must be there.
    pub required: bool,
    /// One line for people.
    pub doc: &'static str,
    /// What it is when it is not set, after the canonical form; empty where it stays unset.
    pub default: &'static str,
    /// The values that mean something, where they are few; empty otherwise.
    pub values: &'static [&'static str],
    /// What to do instead, for arguments that are only kept for older files: using them gives a warning.
    pub deprecated: Option<&'static str>,
    /// What holds the value.
    pub holder: Holder,
}

/// What holds the value of an argument in the reference, which decides what `null` does and how a value of
/// another type is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// A pointer, a list or a map: `null` leaves it unset.
    Optional,
    /// A plain value, which cannot be `null`.
    Plain,
    /// An attribute of a specification: `null` leaves it unset, and a mismatch names the argument.
    Specified,
}

impl Attribute {
    /// With one line for people.
    #[must_use]
    pub const fn doc(self, doc: &'static str) -> Self {
        Self { doc, ..self }
    }

    /// With what it is when it is not set.
    #[must_use]
    pub const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    /// With the values that mean something.
    #[must_use]
    pub const fn values(self, values: &'static [&'static str]) -> Self {
        Self { values, ..self }
    }

    /// Kept for older files only; says what to do instead.
    #[must_use]
    pub const fn deprecated(self, instead: &'static str) -> Self {
        Self { deprecated: Some(instead), ..self }
    }

    /// Refuses `null`.
    #[must_use]
    pub const fn plain(self) -> Self {
        Self { holder: Holder::Plain, ..self }
    }
}

/// What an argument holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A string; numbers and booleans are written as such.
    Str,
    /// A boolean.
    Bool,
    /// A whole number of 64 bits.
    Int,
    /// A whole number of 8 bits.
    SmallInt,
    /// A number of which the low eight bits are taken, as the reference does with weights of affinities.
    LowByte,
    /// A whole number from 0 to 255.
    Byte,
    /// A whole number from 0 to 65535.
    Port,
    /// A whole number of 32 bits, not negative.
    Unsigned32,
    /// A whole number of 64 bits, not negative.
    Unsigned,
    /// A duration: text with units, or nanoseconds.
    Duration,
    /// A list of strings.
    Strings,
    /// A list of whole numbers from 0 to 65535.
    Ports,
    /// A map of strings.
    StringMap,
}

/// A block type.
#[derive(Debug, Clone, Copy)]
pub struct BlockType {
    /// In the language.
    pub name: &'static str,
    /// In JSON.
    pub key: &'static str,
    /// Names of its labels; the first one is stored under `Name`.
    pub labels: &'static [&'static str],
    /// How often it may stand.
    pub repeat: Repeat,
    /// What is inside.
    pub content: Content,
    /// One line for people.
    pub doc: &'static str,
}

impl BlockType {
    /// With one line for people.
    #[must_use]
    pub const fn doc(self, doc: &'static str) -> Self {
        Self { doc, ..self }
    }
}

/// How often a block may stand, and what it becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Once: an object.
    One,
    /// Any number: an array.
    Many,
    /// Any number whose labels differ, with case ignored: an array.
    Distinct,
    /// Any number: an object keyed by the label.
    ByLabel,
}

/// What is inside a block.
#[derive(Debug, Clone, Copy)]
pub enum Content {
    /// What a table says.
    Schema(&'static Schema),
    /// Anything (docs/reference/jobspec.md, section 3, free-form maps).
    Free,
    /// Names with strings.
    Strings,
    /// Names with strings; `name = { ... }` means the same.
    StringsOrAttribute,
    /// Names with lists of strings.
    StringLists,
}

/// An optional argument.
#[must_use]
pub const fn attr(name: &'static str, key: &'static str, kind: Kind) -> Attribute {
    let holder = Holder::Optional;
    Attribute {
        name,
        key,
        kind,
        required: false,
        doc: "",
        default: "",
        values: &[],
        deprecated: None,
        holder,
    }
}

/// An optional argument that refuses `null`.
#[must_use]
pub const fn plain(name: &'static str, key: &'static str, kind: Kind) -> Attribute {
    attr(name, key, kind).plain()
}

/// An optional argument of a specification.
#[must_use]
pub const fn specified(name: &'static str, key: &'static str, kind: Kind) -> Attribute {
    Attribute { holder: Holder::Specified, ..attr(name, key, kind) }
}

/// A required argument.
#[must_use]
pub const fn required(name: &'static str, key: &'static str, kind: Kind) -> Attribute {
    Attribute { required: true, ..attr(name, key, kind) }
}

/// A block that stands at most once.
#[must_use]
pub const fn one(name: &'static str, key: &'static str, content: Content) -> BlockType {
    BlockType { name, key, labels: &[], repeat: Repeat::One, content, doc: "" }
}

/// A block that may repeat.
#[must_use]
pub const fn many(name: &'static str, key: &'static str, schema: &'static Schema) -> BlockType {
    BlockType { name, key, labels: &[], repeat: Repeat::Many, content: Content::Schema(schema), doc: "" }
}

/// A block with a label that may repeat.
#[must_use]
pub const fn labelled(name: &'static str, key: &'static str, schema: &'static Schema) -> BlockType {
    BlockType {
        name,
        key,
        labels: &["name"],
        repeat: Repeat::Many,
        content: Content::Schema(schema),
        doc: "",
    }
}
