//! Declares a configuration block once: as a type and as its table.

/// Declares `Type: TABLE "name"` with arguments `name: Type = Kind` and blocks `name: Type = BlockType`.
macro_rules! settings {
    ($(
        $(#[$meta:meta])*
        $name:ident : $table:ident $label:literal {
            $( $field:ident : $ty:ty = $kind:ident ; )*
        } blocks {
            $( $bfield:ident : $bty:ty = $block:expr ; )*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $(
                #[doc = concat!("`", stringify!($field), "`")]
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $field: Option<$ty>,
            )*
            $(
                #[doc = concat!("`", stringify!($bfield), " {}`")]
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $bfield: Option<$bty>,
            )*
        }

        #[doc = concat!("What may stand in `", $label, "`.")]
        pub static $table: $crate::schema::Schema = $crate::schema::Schema {
            name: $label,
            attributes: &[$(
                $crate::schema::attr(stringify!($field), stringify!($field), $crate::schema::Kind::$kind)
            ),*],
            blocks: &[$( $crate::config::macros::named(stringify!($bfield), $block) ),*],
            finish: None,
        };
    )*};
}
pub(super) use settings;

use crate::schema::{BlockType, Content, Repeat, Schema};

/// Sets the block's name to the name of its field.
pub(super) const fn named(name: &'static str, block: BlockType) -> BlockType {
    BlockType { name, key: name, ..block }
}

/// Returns a block with a table that may occur once.
pub(super) const fn block(schema: &'static Schema) -> BlockType {
    BlockType {
        name: "",
        key: "",
        labels: &[],
        repeat: Repeat::One,
        content: Content::Schema(schema),
        doc: "",
    }
}

/// Returns labelled blocks with a table.
pub(super) const fn by_label(schema: &'static Schema) -> BlockType {
    BlockType {
        name: "",
        key: "",
        labels: &["name"],
        repeat: Repeat::ByLabel,
        content: Content::Schema(schema),
        doc: "",
    }
}

/// Returns a block of names with string values.
pub(super) const fn strings() -> BlockType {
    BlockType {
        name: "",
        key: "",
        labels: &[],
        repeat: Repeat::One,
        content: Content::StringsOrAttribute,
        doc: "",
    }
}

/// Returns a block with any content, kept as raw JSON.
pub(super) const fn raw() -> BlockType {
    BlockType { name: "", key: "", labels: &[], repeat: Repeat::One, content: Content::Free, doc: "" }
}

/// Returns a block with any content that may repeat.
pub(super) const fn raw_many() -> BlockType {
    BlockType { repeat: Repeat::Many, ..raw() }
}

/// Returns labelled blocks with any content.
pub(super) const fn raw_by_label() -> BlockType {
    BlockType { labels: &["name"], repeat: Repeat::ByLabel, ..raw() }
}
