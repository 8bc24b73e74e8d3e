//! The staging and publish paths of volumes below a plugin's root (docs/reference/storage.md, section 3.5).
//!
//! The same function serves the host's and the plugin's view, which differ only in the root.

pub use caravan_types::component::{PathError, check_component};
use caravan_types::volume::{AccessMode, AttachmentMode, Usage};
use caravan_types::{AllocId, VolumeKey};
use std::path::{Path, PathBuf};

/// The name of the directory of all stages.
pub const STAGING: &str = "staging";
/// The name of the directory of all published volumes.
pub const PER_ALLOC: &str = "per-alloc";

/// The paths of one use of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumePaths {
    /// The stage of the volume, shared by all allocations that use it in the same way.
    pub staging: PathBuf,
    /// The allocation's own directory for the volume: the parent of the publish target.
    pub alloc_dir: PathBuf,
    /// The target of the publish call. The plugin creates it; the client creates its parent.
    pub publish: PathBuf,
}

/// Returns the directory name of a use, for example `rw-file-system-single-node-writer`.
pub fn usage_dir(usage: &Usage) -> String {
    let access = if usage.read_only { "ro" } else { "rw" };
    format!("{access}-{}-{}", usage.attachment_mode, usage.access_mode)
}

/// Parses a name that [`usage_dir`] returned. Returns `None` for other names.
pub fn parse_usage_dir(name: &str) -> Option<Usage> {
    let (access, rest) = name.split_once('-')?;
    let read_only = match access {
        "ro" => true,
        "rw" => false,
        _ => return None,
    };
    let attachment = [AttachmentMode::FileSystem, AttachmentMode::BlockDevice, AttachmentMode::Unknown]
        .into_iter()
        .find_map(|mode| Some((mode, rest.strip_prefix(mode.as_str())?.strip_prefix('-')?)));
    let (attachment_mode, access_text) = attachment?;
    let access_mode: AccessMode = access_text.parse().ok()?;
    Some(Usage { read_only, attachment_mode, access_mode })
}

/// Returns the paths of a volume below `root`, for one use and one allocation.
///
/// Fails if the namespace, the volume's id or the allocation's id is not a plain name. Users choose ids, and `..`
/// must not lead out of the root.
pub fn for_use(
    root: &Path,
    volume: &VolumeKey,
    usage: &Usage,
    alloc: &AllocId,
) -> Result<VolumePaths, PathError> {
    check_component("namespace", volume.namespace.as_str())?;
    check_component("volume id", volume.id.as_str())?;
    check_component("allocation id", alloc.as_str())?;
    let usage = usage_dir(usage);
    let staging = root.join(STAGING).join(volume.namespace.as_str()).join(volume.id.as_str()).join(&usage);
    let alloc_dir = root.join(PER_ALLOC).join(alloc.as_str()).join(volume.id.as_str());
    let publish = alloc_dir.join(&usage);
    Ok(VolumePaths { staging, alloc_dir, publish })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn usage() -> Usage {
        Usage {
            read_only: false,
            attachment_mode: AttachmentMode::FileSystem,
            access_mode: AccessMode::SingleNodeWriter,
        }
    }

    #[test]
    fn paths_follow_the_documented_template() {
        let key = VolumeKey::new("default", "data[0]");
        let paths = for_use(Path::new("/csi"), &key, &usage(), &AllocId::new("a1")).unwrap();
        let text = |p: &Path| p.to_str().unwrap().to_owned();
        assert_eq!(text(&paths.staging), "/csi/staging/default/data[0]/rw-file-system-single-node-writer");
        assert_eq!(text(&paths.alloc_dir), "/csi/per-alloc/a1/data[0]");
        assert_eq!(text(&paths.publish), "/csi/per-alloc/a1/data[0]/rw-file-system-single-node-writer");
    }

    #[test]
    fn ids_that_lead_elsewhere_are_refused_by_name() {
        for id in ["", ".", "..", "a/b", "/etc", "nul\0"] {
            let key = VolumeKey::new("default", id);
            let error = for_use(Path::new("/csi"), &key, &usage(), &AllocId::new("a")).unwrap_err();
            assert_eq!(error.what, "volume id", "{id:?}");
        }
        let key = VolumeKey::new("..", "a");
        let error = for_use(Path::new("/csi"), &key, &usage(), &AllocId::new("a")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "namespace \"..\" cannot name a directory: it has a meaning of its own in paths"
        );
    }

    proptest! {
        #[test]
        fn no_id_leads_out_of_the_root(namespace in ".*", id in ".*", alloc in ".*") {
            let key = VolumeKey::new(namespace, id);
            if let Ok(paths) = for_use(Path::new("/r"), &key, &usage(), &AllocId::new(alloc)) {
                for path in [paths.staging, paths.publish] {
                    prop_assert!(path.starts_with("/r"));
                    prop_assert!(!path.components().any(|c| c == std::path::Component::ParentDir));
                }
            }
        }
    }

    #[test]
    fn names_of_usages_read_back() {
        for read_only in [false, true] {
            for attachment_mode in [AttachmentMode::FileSystem, AttachmentMode::BlockDevice] {
                for access_mode in [AccessMode::SingleNodeWriter, AccessMode::MultiNodeMultiWriter] {
                    let usage = Usage { read_only, attachment_mode, access_mode };
                    assert_eq!(parse_usage_dir(&usage_dir(&usage)), Some(usage));
                }
            }
        }
        assert_eq!(parse_usage_dir("lost+found"), None);
    }
}
