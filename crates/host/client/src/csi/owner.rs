//! Owner and mode of a volume's root, as the volume request sets them.

use super::CsiFault;
use caravan_sys::dir::{Handle, Owner};
use caravan_types::job::VolumeRequest;
use std::path::Path;

/// The requested owner and mode of a volume's root; by default nothing is requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    /// Numeric user id.
    pub(crate) user: Option<u32>,
    /// Numeric group id.
    pub(crate) group: Option<u32>,
    /// Permission bits.
    pub(crate) mode: Option<u32>,
}

impl Wish {
    /// Returns whether nothing is requested.
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Reads a volume request; looks up names on the host, which may be slow. The error names the field.
    pub(crate) fn from_request(request: &VolumeRequest) -> Result<Self, CsiFault> {
        let bad = |field: &str, why: &dyn std::fmt::Display| {
            CsiFault::Owner(format!("volume \"{}\" cannot have this {field}: {why}", request.name))
        };
        let mut wish = Self::default();
        if !request.user.is_empty() {
            let account = caravan_sys::user::lookup(&request.user).map_err(|e| bad("user", &e))?;
            wish.user = Some(account.uid);
        }
        if !request.group.is_empty() {
            // The user part of this form is ignored.
            let account = caravan_sys::user::lookup(&format!("0:{}", request.group));
            wish.group = Some(account.map_err(|e| bad("group", &e))?.gid);
        }
        if !request.mode.is_empty() {
            let mode = u32::from_str_radix(&request.mode, 8).ok().filter(|mode| *mode <= 0o7777);
            let why = format!("\"{}\" is not octal", request.mode);
            wish.mode = Some(mode.ok_or_else(|| bad("mode", &why))?);
        }
        Ok(wish)
    }

    /// Returns the request without the group, for plugins that set the group.
    pub(crate) fn without_group(&self) -> Self {
        Self { group: None, ..self.clone() }
    }

    /// Sets owner and mode of a volume's root, not of its content. Idempotent.
    pub(crate) fn apply(&self, root: &Path) -> Result<(), CsiFault> {
        let failed = |what| move |source| CsiFault::Kernel { what, source };
        // A plugin may have put a link there.
        let root = Handle::open(root).map_err(failed("open volume root"))?;
        let owner = Owner { uid: self.user, gid: self.group };
        root.set_owner(owner).map_err(failed("change the owner of volume root"))?;
        // After the owner: changing the owner clears set-user-id bits (chown(2)).
        match self.mode {
            Some(mode) => root.set_mode(mode).map_err(failed("change the mode of volume root")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn request(user: &str, group: &str, mode: &str) -> VolumeRequest {
        VolumeRequest {
            name: "data".into(),
            user: user.into(),
            group: group.into(),
            mode: mode.into(),
            ..Default::default()
        }
    }

    #[test]
    fn names_and_numbers_are_read_and_bad_ones_name_their_field() {
        assert!(Wish::from_request(&request("", "", "")).unwrap().is_none());
        let wish = Wish::from_request(&request("root", "0", "2750")).unwrap();
        assert_eq!(wish, Wish { user: Some(0), group: Some(0), mode: Some(0o2750) });
        for (request, words) in [
            (
                request("no-such-user", "", ""),
                "volume \"data\" cannot have this user: unknown user \"no-such-user\"",
            ),
            (
                request("", "no-such-group", ""),
                "volume \"data\" cannot have this group: unknown group \"no-such-group\"",
            ),
            (request("", "", "rwx"), "volume \"data\" cannot have this mode: \"rwx\" is not octal"),
        ] {
            assert_eq!(Wish::from_request(&request).unwrap_err().to_string(), words);
        }
    }

    #[test]
    fn only_the_root_is_changed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("inside"), "").unwrap();
        let before = std::fs::metadata(dir.path().join("inside")).unwrap();
        let wish = Wish { user: Some(12), group: Some(34), mode: Some(0o2770) };
        wish.apply(dir.path()).unwrap();
        wish.apply(dir.path()).unwrap();
        let root = std::fs::metadata(dir.path()).unwrap();
        assert_eq!((root.uid(), root.gid(), root.mode() & 0o7777), (12, 34, 0o2770));
        let inside = std::fs::metadata(dir.path().join("inside")).unwrap();
        assert_eq!((inside.uid(), inside.mode()), (before.uid(), before.mode()));
    }
}
