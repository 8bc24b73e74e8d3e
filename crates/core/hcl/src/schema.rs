//! Schema tables of bodies, and the decoder that reads bodies by them.
//!
//! A table names each argument and block in the language and its key in JSON. Decoding returns a JSON object with
//! exactly the keys that were set. Tables are data, so documentation is generated from them too.

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

/// The arguments and blocks of a body.
#[derive(Debug)]
pub struct Schema {
    /// The name of the body in messages, usually its block type.
    pub name: &'static str,
    /// The arguments that the body may set.
    pub attributes: &'static [Attribute],
    /// The blocks that the body may contain.
    pub blocks: &'static [BlockType],
    /// The function that computes keys from several arguments after all are read.
    pub finish: Option<Finish>,
}

impl Schema {
    /// Returns the role of a name in HCL-JSON.
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

/// A function that computes keys from other keys of a decoded body.
pub type Finish = fn(&mut Object, &Header<'_>) -> Result<(), Box<Diagnostic>>;

/// The header of a decoded block, for messages.
#[derive(Debug)]
pub struct Header<'a> {
    /// The range of the type and the labels.
    pub span: Span,
    /// The labels of the block.
    pub labels: &'a [Name],
    /// The arguments of the body, after they are read.
    pub arguments: &'a [ast::Attribute],
}

/// The schema of an argument.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// The name in the language.
    pub name: &'static str,
    /// The key in JSON. Keys that begin with `~` are only for `finish`.
    pub key: &'static str,
    /// The type of the value.
    pub kind: Kind,
    /// Whether the argument must be set.
    pub required: bool,
    /// A description of one line.
    pub doc: &'static str,
    /// The value of an unset argument in the canonical form. Empty if it stays unset.
    pub default: &'static str,
    /// The meaningful values, if they are few; otherwise empty.
    pub values: &'static [&'static str],
    /// The replacement of a deprecated argument. Its use gives a warning.
    pub deprecated: Option<&'static str>,
    /// The representation in Nomad.
    pub holder: Holder,
}

/// The representation of an argument in Nomad. It decides the effect of `null`, and how a value of another type is
/// rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A pointer, a list or a map: `null` leaves the argument unset.
    Optional,
    /// A plain value, which cannot be `null`.
    Plain,
    /// An attribute of a specification: `null` leaves it unset, and a type error names the argument.
    Specified,
}

impl Attribute {
    /// Sets the description.
    #[must_use]
    pub const fn doc(self, doc: &'static str) -> Self {
        Self { doc, ..self }
    }

    /// Sets the default.
    #[must_use]
    pub const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    /// Sets the meaningful values.
    #[must_use]
    pub const fn values(self, values: &'static [&'static str]) -> Self {
        Self { values, ..self }
    }

    /// Marks the argument as deprecated and names its replacement.
    #[must_use]
    pub const fn deprecated(self, instead: &'static str) -> Self {
        Self { deprecated: Some(instead), ..self }
    }

    /// Makes `null` an error.
    #[must_use]
    pub const fn plain(self) -> Self {
        Self { holder: Holder::Plain, ..self }
    }
}

/// The type of an argument's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A string; numbers and booleans are converted.
    Str,
    /// A boolean.
    Bool,
    /// A signed integer of 64 bits.
    Int,
    /// A signed integer of 8 bits.
    SmallInt,
    /// An integer of which only the low eight bits count, as Nomad does with weights of affinities.
    LowByte,
    /// An integer from 0 to 255.
    Byte,
    /// An integer from 0 to 65535.
    Port,
    /// An unsigned integer of 32 bits.
    Unsigned32,
    /// An unsigned integer of 64 bits.
    Unsigned,
    /// A duration: text with units, or nanoseconds.
    Duration,
    /// A list of strings.
    Strings,
    /// A list of integers from 0 to 65535.
    Ports,
    /// A map of strings.
    StringMap,
}

/// The schema of a block.
#[derive(Clone, Copy, Debug)]
pub struct BlockType {
    /// The name in the language.
    pub name: &'static str,
    /// The key in JSON.
    pub key: &'static str,
    /// The names of the labels. The first label is stored under `Name`.
    pub labels: &'static [&'static str],
    /// The number of times that the block may occur, and the JSON that it becomes.
    pub repeat: Repeat,
    /// The content of the block.
    pub content: Content,
    /// A description of one line.
    pub doc: &'static str,
}

impl BlockType {
    /// Sets the description.
    #[must_use]
    pub const fn doc(self, doc: &'static str) -> Self {
        Self { doc, ..self }
    }
}

/// The number of times that a block may occur, and the JSON that it becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// At most once: an object.
    One,
    /// Any number: an array.
    Many,
    /// Any number with different labels, ignoring case: an array.
    Distinct,
    /// Any number: an object keyed by the label.
    ByLabel,
}

/// The content of a block.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// The arguments and blocks of a table.
    Schema(&'static Schema),
    /// Free-form content (docs/reference/jobspec.md, section 3).
    Free,
    /// Names with string values.
    Strings,
    /// Names with string values; `name = { ... }` is equivalent.
    StringsOrAttribute,
    /// Names with lists of strings.
    StringLists,
}

/// Returns an optional argument.
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

/// Returns an optional argument that rejects `null`.
#[must_use]
pub const fn plain(name: &'static str, key: &'static str, kind: Kind) -> Attribute {
    attr(name, key, kind).plain()
}

/// Returns an optional argument of a specification.
#[must_use]
pub const fn specified(name: &'static str, key: &'static str, kind: Kind) -> Attribute {
    Attribute { holder: Holder::Specified, ..attr(name, key, kind) }
}

/// Returns a required argument.
#[must_use]
pub const fn required(name: &'static str, key: &'static str, kind: Kind) -> Attribute {
    Attribute { required: true, ..attr(name, key, kind) }
}

/// Returns a block that may occur at most once.
#[must_use]
pub const fn one(name: &'static str, key: &'static str, content: Content) -> BlockType {
    BlockType { name, key, labels: &[], repeat: Repeat::One, content, doc: "" }
}

/// Returns a block that may repeat.
#[must_use]
pub const fn many(name: &'static str, key: &'static str, schema: &'static Schema) -> BlockType {
    BlockType { name, key, labels: &[], repeat: Repeat::Many, content: Content::Schema(schema), doc: "" }
}

/// Returns a labelled block that may repeat.
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
