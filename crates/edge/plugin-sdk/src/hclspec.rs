//! Schemas of configurations, built by functions.
//!
//! ```
//! use caravan_plugin_sdk::hclspec::{Type, attr, block, object};
//! let schema = object()
//!     .field("command", attr(Type::String).required())
//!     .field("args", attr(Type::list(Type::String)))
//!     .field("timeout", attr(Type::String).or("5m"))
//!     .field("limits", block(object().field("files", attr(Type::Number).or(1024))));
//! ```
//!
//! A field's key is also the name of its argument or block, unless `named` sets another one.

use caravan_proto::plugins::hclspec::{self as wire, spec::Block as Kind};
use std::collections::BTreeMap;
use std::fmt;

mod literal;

pub use literal::Literal;

/// A schema, or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec(wire::Spec);

impl Spec {
    pub(crate) fn into_message(self) -> wire::Spec {
        self.0
    }

    fn new(kind: Kind) -> Self {
        Self(wire::Spec { block: Some(kind) })
    }

    /// Returns the part with the key as its name, if the part has no name.
    fn named(mut self, key: &str) -> Self {
        set_name(&mut self.0, key);
        self
    }
}

fn set_name(spec: &mut wire::Spec, key: &str) {
    let name = match &mut spec.block {
        Some(Kind::Attr(part)) => &mut part.name,
        Some(Kind::BlockValue(part)) => &mut part.name,
        Some(Kind::BlockAttrs(part)) => &mut part.name,
        Some(Kind::BlockList(part)) => &mut part.name,
        Some(Kind::BlockSet(part)) => &mut part.name,
        Some(Kind::BlockMap(part)) => &mut part.name,
        Some(Kind::Default(part)) => {
            for inner in [&mut part.primary, &mut part.default].into_iter().flatten() {
                set_name(inner, key);
            }
            return;
        }
        Some(Kind::Object(_) | Kind::Array(_) | Kind::Literal(_)) | None => return,
    };
    if name.is_empty() {
        key.clone_into(name);
    }
}

/// The type of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A text.
    String,
    /// A number.
    Number,
    /// `true` or `false`.
    Bool,
    /// Any value.
    Any,
    /// Values of one type, in order.
    List(Box<Type>),
    /// Values of one type, without order and duplicates.
    Set(Box<Type>),
    /// Values of one type, by key.
    Map(Box<Type>),
    /// A fixed number of values, each of its own type.
    Tuple(Vec<Type>),
    /// A fixed set of keys, each with its own type.
    Object(BTreeMap<String, Type>),
}

impl Type {
    /// Returns the type of lists.
    pub fn list(of: Self) -> Self {
        Self::List(Box::new(of))
    }

    /// Returns the type of sets.
    pub fn set(of: Self) -> Self {
        Self::Set(Box::new(of))
    }

    /// Returns the type of maps.
    pub fn map(of: Self) -> Self {
        Self::Map(Box::new(of))
    }

    /// Returns the type of a map that jobs may also write as repeated blocks. The value is a list of maps.
    pub fn block_map(of: Self) -> Self {
        Self::list(Self::map(of))
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String => f.write_str("string"),
            Self::Number => f.write_str("number"),
            Self::Bool => f.write_str("bool"),
            Self::Any => f.write_str("any"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Set(of) => write!(f, "set({of})"),
            Self::Map(of) => write!(f, "map({of})"),
            Self::Tuple(of) => {
                let of: Vec<String> = of.iter().map(Self::to_string).collect();
                write!(f, "tuple([{}])", of.join(", "))
            }
            Self::Object(of) => {
                let of: Vec<String> = of.iter().map(|(key, of)| format!("{key} = {of}")).collect();
                write!(f, "object({{{}}})", of.join(", "))
            }
        }
    }
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr(wire::Attr);

/// Returns an optional argument.
pub fn attr(of: Type) -> Attr {
    Attr(wire::Attr { name: String::new(), r#type: of.to_string(), required: false })
}

impl Attr {
    /// Makes the argument required.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.0.required = true;
        self
    }

    /// Sets a name that differs from the key.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.0.name = name.into();
        self
    }

    /// Sets the value of an absent argument.
    pub fn or(self, value: impl Into<Literal>) -> Spec {
        default(self, literal(value))
    }
}

impl From<Attr> for Spec {
    fn from(attr: Attr) -> Self {
        Self::new(Kind::Attr(attr.0))
    }
}

/// A block that may appear once.
#[derive(Clone, Debug, PartialEq)]
pub struct Block(wire::Block);

/// Returns an optional block with this content.
pub fn block(content: impl Into<Spec>) -> Block {
    Block(wire::Block { name: String::new(), required: false, nested: nested(content) })
}

impl Block {
    /// Makes the block required.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.0.required = true;
        self
    }

    /// Sets a name that differs from the key.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.0.name = name.into();
        self
    }
}

impl From<Block> for Spec {
    fn from(block: Block) -> Self {
        Self::new(Kind::BlockValue(Box::new(block.0)))
    }
}

/// A block that may appear once and has arguments of any name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockAttrs(wire::BlockAttrs);

/// Returns an optional block with arguments of any name, all of one type.
pub fn block_attrs(of: Type) -> BlockAttrs {
    BlockAttrs(wire::BlockAttrs { name: String::new(), r#type: of.to_string(), required: false })
}

impl BlockAttrs {
    /// Makes the block required.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.0.required = true;
        self
    }

    /// Sets a name that differs from the key.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.0.name = name.into();
        self
    }
}

impl From<BlockAttrs> for Spec {
    fn from(block: BlockAttrs) -> Self {
        Self::new(Kind::BlockAttrs(block.0))
    }
}

/// A block that may appear several times.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocks {
    part: wire::BlockList,
    is_set: bool,
}

/// Returns blocks that become a list, in order.
pub fn block_list(content: impl Into<Spec>) -> Blocks {
    let part = wire::BlockList { name: String::new(), min_items: 0, max_items: 0, nested: nested(content) };
    Blocks { part, is_set: false }
}

/// Returns blocks that become a list without duplicates.
pub fn block_set(content: impl Into<Spec>) -> Blocks {
    Blocks { is_set: true, ..block_list(content) }
}

impl Blocks {
    /// Sets the minimum number of blocks.
    #[must_use]
    pub fn at_least(mut self, count: u64) -> Self {
        self.part.min_items = count;
        self
    }

    /// Sets the maximum number of blocks.
    #[must_use]
    pub fn at_most(mut self, count: u64) -> Self {
        self.part.max_items = count;
        self
    }

    /// Sets a name that differs from the key.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.part.name = name.into();
        self
    }
}

impl From<Blocks> for Spec {
    fn from(Blocks { part, is_set }: Blocks) -> Self {
        if !is_set {
            return Self::new(Kind::BlockList(Box::new(part)));
        }
        let wire::BlockList { name, min_items, max_items, nested } = part;
        Self::new(Kind::BlockSet(Box::new(wire::BlockSet { name, min_items, max_items, nested })))
    }
}

/// Returns blocks with labels, which become nested maps. `labels` has the meaning of each label.
pub fn block_map(labels: &[&str], content: impl Into<Spec>) -> Spec {
    let labels = labels.iter().map(|label| (*label).to_owned()).collect();
    let part = wire::BlockMap { name: String::new(), labels, nested: nested(content) };
    Spec::new(Kind::BlockMap(Box::new(part)))
}

/// Returns a part with the value of `primary`, or with that of `other` if `primary` is absent. A default around a
/// block applies only if the whole block is absent.
pub fn default(primary: impl Into<Spec>, other: impl Into<Spec>) -> Spec {
    Spec::new(Kind::Default(Box::new(wire::Default { primary: nested(primary), default: nested(other) })))
}

/// Returns a constant.
pub fn literal(value: impl Into<Literal>) -> Spec {
    Spec::new(Kind::Literal(wire::Literal { value: value.into().to_string() }))
}

/// Returns parts of one body that become a list.
pub fn array(parts: impl IntoIterator<Item = Spec>) -> Spec {
    Spec::new(Kind::Array(wire::Array { values: parts.into_iter().map(|part| part.0).collect() }))
}

/// Parts of one body that become a map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object(BTreeMap<String, wire::Spec>);

/// Returns an empty body.
pub fn object() -> Object {
    Object::default()
}

impl Object {
    /// Adds a part. The key is also the name of the part, if it has none.
    #[must_use]
    pub fn field(mut self, key: &str, part: impl Into<Spec>) -> Self {
        self.0.insert(key.to_owned(), part.into().named(key).0);
        self
    }
}

impl From<Object> for Spec {
    fn from(object: Object) -> Self {
        Self::new(Kind::Object(wire::Object { attributes: object.0 }))
    }
}

fn nested(part: impl Into<Spec>) -> Option<Box<wire::Spec>> {
    Some(Box::new(part.into().0))
}

#[cfg(test)]
mod tests;
