//! The declaration of API objects, which generates the struct, the JSON in both directions and the list of field
//! names.

/// Declares API objects: `Name("Wire") { field: Type = "Key"; ... }`.
///
/// Serialising writes every key in declaration order (a key followed by `omit "fn"` is left out if `fn` returns
/// true). Reading matches keys without regard to case, ignores unknown keys and reads `null` as "unset"
/// (docs/reference/http-api.md, section 2.3).
macro_rules! api_objects {
    ($(
        $(#[$meta:meta])*
        $name:ident($wire:literal) {
            $( $(#[$fmeta:meta])* $field:ident : $ty:ty = $key:literal $(omit $omit:literal)? ; )*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
        pub struct $name {
            $(
                #[doc = concat!("JSON key `", $key, "`.")]
                $(#[$fmeta])*
                #[serde(rename = $key $(, skip_serializing_if = $omit)?)]
                pub $field: $ty,
            )*
        }

        impl $name {
            /// The JSON keys of this object, in the order in which they are written.
            pub const FIELDS: &'static [&'static str] = &[$($key),*];
        }

        impl $crate::decode::ApiValue for $name {
            const TYPE: &'static str = concat!("api.", $wire);

            fn read(
                value: &serde_json::Value,
                at: &mut $crate::decode::Place,
            ) -> Result<Self, $crate::decode::DecodeError> {
                let serde_json::Value::Object(map) = value else {
                    return Err(at.mismatch(value, Self::TYPE));
                };
                let mut out = Self::default();
                for (key, value) in map {
                    $crate::macros::api_field!(out, key, value, at, $wire, read, $($field = $key),*);
                }
                Ok(out)
            }

            fn take(
                value: serde_json::Value,
                at: &mut $crate::decode::Place,
            ) -> Result<Self, $crate::decode::DecodeError> {
                let serde_json::Value::Object(map) = value else {
                    return Err(at.mismatch(&value, Self::TYPE));
                };
                let mut out = Self::default();
                for (key, value) in map {
                    $crate::macros::api_field!(out, key, value, at, $wire, take, $($field = $key),*);
                }
                Ok(out)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = serde_json::Value::deserialize(deserializer)?;
                $crate::decode::from_value(&value).map_err(serde::de::Error::custom)
            }
        }
    )*};
}
pub(crate) use api_objects;

/// Reads the field that a key names, with `$read`.
macro_rules! api_field {
    ($out:ident, $key:ident, $value:ident, $at:ident, $wire:literal, $read:ident, $($field:ident = $name:literal),*) => {
        if !$value.is_null() {
            let mut name = $key.as_str();
            loop {
                match name {
                    $($name => {
                        $out.$field =
                            $at.inside($wire, $name, |at| $crate::decode::ApiValue::$read($value, at))?;
                    })*
                    other => {
                        // The key is not declared in this spelling. A spelling that differs only in case is matched
                        // in the next iteration.
                        if let Some(respelt) = $crate::decode::respelt(Self::FIELDS, other) {
                            name = respelt;
                            continue;
                        }
                    }
                }
                break;
            }
        }
    };
}
pub(crate) use api_field;
