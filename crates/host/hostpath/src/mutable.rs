//! Mutable parameters of a volume: checked here (no I/O), applied by `modify`.

use crate::{error::Error, record::Backing, store};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The permission bits that may be set for a volume's top directory: all except setuid, which has no meaning for a
/// directory.
const MAX_MODE: u32 = 0o3777;

/// Whether the space of an image or device is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Space {
    /// Blocks are allocated when they are written, which may fail if the host is full.
    Thin,
    /// All space is reserved immediately (fallocate(2)).
    Thick,
}

/// The requested values of the mutable parameters; `None` means not requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mutable {
    /// The permissions of the top directory of a directory or of an image's file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<u32>,
    /// Whether the space of an image or device is thin or thick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) space: Option<Space>,
}

impl Mutable {
    /// Checks the parameters for a volume of this kind. If one is invalid, none may be applied
    /// ("ControllerModifyVolume Errors").
    pub(crate) fn check(parameters: &BTreeMap<String, String>, backing: Backing) -> Result<Self, Error> {
        let mut asked = Self::default();
        for (key, value) in parameters {
            match (key.as_str(), backing) {
                ("mode", Backing::Block | Backing::Thin { fs: None })
                | ("space", Backing::Directory | Backing::Quota | Backing::Thin { .. }) => {
                    return Err(Error::Invalid(format!(
                        "the mutable parameter {key} makes no sense for {backing}"
                    )));
                }
                ("mode", _) => asked.mode = Some(mode(value)?),
                ("space", _) => {
                    asked.space = Some(match value.as_str() {
                        "thin" => Space::Thin,
                        "thick" => Space::Thick,
                        other => {
                            return Err(Error::Invalid(format!(
                                "the mutable parameter space is thin or thick, not {other:?}"
                            )));
                        }
                    });
                }
                (other, _) => {
                    return Err(Error::Invalid(format!(
                        "the mutable parameter {other:?} is unknown; known are mode (permissions of the top \
                         directory) and space (thin or thick)"
                    )));
                }
            }
        }
        Ok(asked)
    }

    /// Returns whether a volume with these values satisfies the request. Parameters that the request does not name
    /// may have any value.
    pub(crate) fn meets(self, asked: Self) -> bool {
        let mode = self.mode.unwrap_or(store::OPEN);
        let space = self.space.unwrap_or(Space::Thin);
        asked.mode.is_none_or(|asked| asked == mode) && asked.space.is_none_or(|asked| asked == space)
    }
}

fn mode(value: &str) -> Result<u32, Error> {
    let digits = value.bytes().all(|byte| matches!(byte, b'0'..=b'7')) && (3..=5).contains(&value.len());
    u32::from_str_radix(value, 8).ok().filter(|mode| digits && *mode <= MAX_MODE).ok_or_else(|| {
        Error::Invalid(format!(
            "the mutable parameter mode is of the form 0750, octal digits up to 3777, not {value:?}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tonic::Code;

    use super::*;
    use crate::request::FsKind;

    const IMAGE: Backing = Backing::Image { fs: FsKind::Ext4 };

    fn check(pairs: &[(&str, &str)], backing: Backing) -> Result<Mutable, Error> {
        let map = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Mutable::check(&map, backing)
    }

    #[test]
    fn each_parameter_fits_where_it_means_something() {
        let both = check(&[("mode", "0750"), ("space", "thick")], IMAGE).expect("it is fine");
        assert_eq!(both, Mutable { mode: Some(0o750), space: Some(Space::Thick) });
        check(&[("mode", "1777")], Backing::Directory).expect("it is fine");
        check(&[("space", "thin")], Backing::Block).expect("it is fine");
        for (pairs, backing, word) in [
            (("mode", "0750"), Backing::Block, "mode"),
            (("space", "thick"), Backing::Directory, "space"),
            (("space", "fat"), IMAGE, "space"),
            (("color", "red"), IMAGE, "color"),
        ] {
            let error = check(&[pairs], backing).expect_err("it is refused");
            assert_eq!(error.code(), Code::InvalidArgument);
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn modes_are_octal() {
        for wrong in ["", "7", "8", "0o750", "+750", "4755", "0077777", "rwx"] {
            assert!(check(&[("mode", wrong)], IMAGE).is_err(), "{wrong:?}");
        }
        assert_eq!(check(&[("mode", "02770")], IMAGE).expect("it is fine").mode, Some(0o2770));
    }

    #[test]
    fn what_is_not_named_may_be_anything() {
        let is = Mutable { mode: Some(0o700), space: None };
        assert!(is.meets(Mutable::default()) && is.meets(is));
        assert!(is.meets(Mutable { mode: None, space: Some(Space::Thin) }));
        assert!(!is.meets(Mutable { mode: None, space: Some(Space::Thick) }));
        assert!(!is.meets(Mutable { mode: Some(0o777), space: None }));
        assert!(Mutable::default().meets(Mutable { mode: Some(0o777), space: None }));
    }

    proptest! {
        #[test]
        fn no_value_makes_it_panic(key: String, value: String) {
            let _ = check(&[(&key, &value), ("mode", &value), ("space", &value)], IMAGE);
        }
    }
}
