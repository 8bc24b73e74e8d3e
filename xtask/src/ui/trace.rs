//! The JSON shape of Rust types, found by deserializing them. The deserializer records the kinds of values that a
//! type requests, and returns an empty value for each request.
//!
//! The types stay unchanged, and the program contains none of this code. Derived descriptions (ts-rs, schemars) would
//! need an attribute at each field with `serde(with = ...)`, and could differ from the behaviour of serde.

use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, MapAccess, SeqAccess, VariantAccess, Visitor,
    value::Error,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The shape of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Any JSON.
    Unknown,
    Bool,
    Number,
    Text,
    /// The value or null.
    Nullable(Box<Shape>),
    List(Box<Shape>),
    /// An object whose keys are data.
    Map(Box<Shape>),
    Tuple(Vec<Shape>),
    /// A type of [`Types`].
    Named(&'static str),
}

/// A type that becomes an `interface` or a union of words in TypeScript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// Fields by their names in JSON, in the order of the source.
    Struct(Vec<(&'static str, Shape)>),
    /// One of these words.
    Words(&'static [&'static str]),
}

/// The named types that a trace has found.
#[derive(Debug, Default)]
pub(super) struct Types {
    found: RefCell<BTreeMap<&'static str, Type>>,
    /// The names of types that deserialize as another type, by the name of that type.
    renamed: RefCell<BTreeMap<&'static str, &'static str>>,
    /// Names that a struct also accepts for another of its fields.
    aliases: RefCell<BTreeSet<(&'static str, &'static str)>>,
}

impl Types {
    /// Records a type and everything that the type contains. Returns its name.
    pub(super) fn trace<T: for<'de> Deserialize<'de>>(&self) -> anyhow::Result<&'static str> {
        let shape = RefCell::new(Shape::Unknown);
        let name = std::any::type_name::<T>();
        // A struct reports an alias only by refusing it: the next attempt omits the alias.
        loop {
            let known = self.aliases.borrow().len();
            match T::deserialize(Tracer { types: self, shape: &shape }) {
                Ok(_) => break,
                Err(_) if self.aliases.borrow().len() > known => {}
                Err(error) => anyhow::bail!("the shape of {name} cannot be traced: {error}"),
            }
        }
        match shape.into_inner() {
            Shape::Named(found) => {
                let own = name.rsplit("::").next().unwrap_or(name);
                if own != found {
                    self.renamed.borrow_mut().insert(found, own);
                }
                Ok(found)
            }
            other => anyhow::bail!("{name} is no named type, but {other:?}"),
        }
    }

    /// Returns the types by the names under which they deserialize, and their own names where these differ.
    pub(super) fn into_inner(self) -> (BTreeMap<&'static str, Type>, BTreeMap<&'static str, &'static str>) {
        (self.found.into_inner(), self.renamed.into_inner())
    }

    /// Adds a type. Two different types of one name cannot both be written.
    fn add(&self, name: &'static str, new: Type) -> Result<(), Error> {
        match self.found.borrow_mut().insert(name, new.clone()) {
            Some(old) if old != new => {
                Err(Error::custom(format!("two types are named {name}: {old:?} and {new:?}")))
            }
            _ => Ok(()),
        }
    }
}

/// A deserializer that stores the shape of the requested value.
#[derive(Clone, Copy)]
struct Tracer<'a> {
    types: &'a Types,
    shape: &'a RefCell<Shape>,
}

impl Tracer<'_> {
    fn set(&self, shape: Shape) {
        self.shape.replace(shape);
    }
}

macro_rules! plain {
    ($($method:ident => $shape:ident, $visit:ident($value:expr);)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.set(Shape::$shape);
            visitor.$visit($value)
        })*
    };
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = Error;

    plain! {
        deserialize_bool => Bool, visit_bool(false);
        deserialize_i8 => Number, visit_i8(0);
        deserialize_i16 => Number, visit_i16(0);
        deserialize_i32 => Number, visit_i32(0);
        deserialize_i64 => Number, visit_i64(0);
        deserialize_u8 => Number, visit_u8(0);
        deserialize_u16 => Number, visit_u16(0);
        deserialize_u32 => Number, visit_u32(0);
        deserialize_u64 => Number, visit_u64(0);
        deserialize_f32 => Number, visit_f32(0.0);
        deserialize_f64 => Number, visit_f64(0.0);
        deserialize_char => Text, visit_char(' ');
        deserialize_str => Text, visit_str("");
        deserialize_string => Text, visit_str("");
        deserialize_identifier => Text, visit_str("");
        deserialize_bytes => Unknown, visit_bytes(b"");
        deserialize_byte_buf => Unknown, visit_bytes(b"");
        deserialize_any => Unknown, visit_str("0s");
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let inner = RefCell::new(Shape::Unknown);
        let value = visitor.visit_some(Tracer { types: self.types, shape: &inner })?;
        self.set(match inner.into_inner() {
            inner @ (Shape::Nullable(_) | Shape::Unknown) => inner,
            inner => Shape::Nullable(Box::new(inner)),
        });
        Ok(value)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let items = Items { types: self.types, left: 1, shapes: RefCell::default() };
        let value = visitor.visit_seq(&items)?;
        let item = items.shapes.into_inner().pop().unwrap_or(Shape::Unknown);
        self.set(Shape::List(Box::new(item)));
        Ok(value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        let items = Items { types: self.types, left: len, shapes: RefCell::default() };
        let value = visitor.visit_seq(&items)?;
        self.set(Shape::Tuple(items.shapes.into_inner()));
        Ok(value)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let entry =
            Entry { types: self.types, is_read: RefCell::new(false), value: RefCell::new(Shape::Unknown) };
        let value = visitor.visit_map(&entry)?;
        self.set(Shape::Map(Box::new(entry.value.into_inner())));
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let aliases = self.types.aliases.borrow().clone();
        let left = fields.iter().copied().filter(|field| !aliases.contains(&(name, *field))).collect();
        let found = Fields { types: self.types, left: RefCell::new(left), found: RefCell::default() };
        let value = visitor.visit_map(&found).map_err(|error| {
            if let Some(alias) = found.left.borrow().front()
                && error.to_string().starts_with("duplicate field")
            {
                self.types.aliases.borrow_mut().insert((name, alias));
            }
            Error::custom(format!("{name}: {error}"))
        })?;
        self.types.add(name, Type::Struct(found.found.into_inner()))?;
        self.set(Shape::Named(name));
        Ok(value)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.types.add(name, Type::Words(variants))?;
        self.set(Shape::Named(name));
        visitor.visit_enum(Word(variants.first().copied().unwrap_or_default()))
    }
}

/// The elements of a list or tuple.
struct Items<'a> {
    types: &'a Types,
    left: usize,
    shapes: RefCell<Vec<Shape>>,
}

impl<'de> SeqAccess<'de> for &Items<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if self.shapes.borrow().len() == self.left {
            return Ok(None);
        }
        let shape = RefCell::new(Shape::Unknown);
        let value = seed.deserialize(Tracer { types: self.types, shape: &shape })?;
        self.shapes.borrow_mut().push(shape.into_inner());
        Ok(Some(value))
    }
}

/// The only entry of a map.
struct Entry<'a> {
    types: &'a Types,
    is_read: RefCell<bool>,
    value: RefCell<Shape>,
}

impl<'de> MapAccess<'de> for &Entry<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        if self.is_read.replace(true) {
            return Ok(None);
        }
        let key = RefCell::new(Shape::Unknown);
        seed.deserialize(Tracer { types: self.types, shape: &key }).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(Tracer { types: self.types, shape: &self.value })
    }
}

/// The fields of a struct.
struct Fields<'a> {
    types: &'a Types,
    left: RefCell<VecDeque<&'static str>>,
    found: RefCell<Vec<(&'static str, Shape)>>,
}

impl<'de> MapAccess<'de> for &Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(name) = self.left.borrow().front().copied() else { return Ok(None) };
        seed.deserialize(StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let Some(name) = self.left.borrow().front().copied() else {
            return Err(Error::custom("a value without a key"));
        };
        let shape = RefCell::new(Shape::Unknown);
        let traced = seed.deserialize(Tracer { types: self.types, shape: &shape });
        let value = traced.map_err(|error| Error::custom(format!("{name}: {error}")))?;
        self.found.borrow_mut().push((name, shape.into_inner()));
        self.left.borrow_mut().pop_front();
        Ok(value)
    }
}

/// A variant without a value.
struct Word(&'static str);

impl<'de> EnumAccess<'de> for Word {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        Ok((seed.deserialize(StrDeserializer::new(self.0))?, self))
    }
}

impl<'de> VariantAccess<'de> for Word {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Error> {
        Err(Error::custom(format!("the variant {} has a value", self.0)))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Error> {
        Err(Error::custom(format!("the variant {} has values", self.0)))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Error> {
        Err(Error::custom(format!("the variant {} has fields", self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::Time;

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct Outer {
        #[serde(rename = "ID")]
        id: caravan_types::JobId,
        kind: Kind,
        at: Time,
        #[serde(with = "caravan_types::ser::nil")]
        inner: Vec<Inner>,
        pair: (String, u8),
        free: serde_json::Value,
    }

    #[derive(Default, Deserialize)]
    struct Inner {
        #[serde(alias = "words")]
        names: BTreeMap<String, bool>,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        #[default]
        One,
        Two,
    }

    #[test]
    fn a_type_reports_its_shape() {
        assert!(Inner::default().names.is_empty());
        let types = Types::default();
        assert_eq!(types.trace::<Outer>().unwrap(), "Outer");
        let (found, renamed) = types.into_inner();
        assert!(renamed.is_empty(), "{renamed:?}");
        assert_eq!(found["Kind"], Type::Words(&["one", "two"]));
        assert_eq!(found["Inner"], Type::Struct(vec![("names", Shape::Map(Box::new(Shape::Bool)))]));
        let nullable = |shape| Shape::Nullable(Box::new(shape));
        let Type::Struct(fields) = &found["Outer"] else { panic!("{found:?}") };
        assert_eq!(
            *fields,
            [
                ("ID", Shape::Text),
                ("Kind", Shape::Named("Kind")),
                ("At", nullable(Shape::Text)),
                ("Inner", nullable(Shape::List(Box::new(Shape::Named("Inner"))))),
                ("Pair", Shape::Tuple(vec![Shape::Text, Shape::Number])),
                ("Free", Shape::Unknown),
            ]
        );
    }
}
