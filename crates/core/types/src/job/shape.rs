//! The one declaration of a block of a job: its struct, and its JSON in both directions.

/// Declares blocks: `Name { field: Type = "Key"; ... }`.
///
/// A block is written with every key, in declaration order. It is read from any version: an absent key and `null` are
/// the default of the field's type. A field that clients receive as `null` and as an empty list is an `Option`.
macro_rules! blocks {
    ($(
        $(#[$meta:meta])*
        $name:ident {
            $( $(#[$field_meta:meta])* $field:ident : $ty:ty = $key:literal ; )*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $(
                #[doc = concat!("JSON key `", $key, "`.")]
                $(#[$field_meta])*
                #[serde(rename = $key, deserialize_with = "crate::ser::null_default")]
                pub $field: $ty,
            )*
        }
    )*};
}
pub(crate) use blocks;
