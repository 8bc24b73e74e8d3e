//! The built-in plugin: a volume is a directory that is named after the volume's id.

use super::fault::{HostVolumeFault, PluginOutcome};
use caravan_messages::HostVolumeCreated;
use caravan_sys::tree::{self, Seals};
use caravan_types::host_volume::HostVolume;
use nix::unistd::{Gid, Uid, chown};
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// The version of the plugin (docs/reference/storage.md, section 8.4).
pub(super) const VERSION: &str = "0.0.1";

#[derive(Debug, PartialEq, Eq)]
struct Parameters {
    mode: u32,
    uid: Option<Uid>,
    gid: Option<Gid>,
}

/// Parses the parameters: `mode` is octal, `uid` and `gid` are numbers, -1 means "unchanged".
fn parameters(volume: &HostVolume) -> Result<Parameters, HostVolumeFault> {
    let mut read = Parameters { mode: 0o700, uid: None, gid: None };
    for (key, value) in &volume.parameters {
        let wrong = |why: String| HostVolumeFault::Parameter { key: key.clone(), why };
        let owner = || -> Result<Option<u32>, HostVolumeFault> {
            match value.as_str() {
                "-1" => Ok(None),
                text => {
                    text.parse().map(Some).map_err(|_| wrong(format!("{text:?} is not a number of an owner")))
                }
            }
        };
        match key.as_str() {
            "mode" => {
                let mode = u32::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o7777);
                read.mode = mode.ok_or_else(|| wrong(format!("{value:?} is not an octal mode")))?;
            }
            "uid" => read.uid = owner()?.map(Uid::from_raw),
            "gid" => read.gid = owner()?.map(Gid::from_raw),
            _ => return Err(wrong(format!("unknown mkdir parameter: {key:?}"))),
        }
    }
    Ok(read)
}

fn failed(doing: &str, volume: &HostVolume, error: &io::Error) -> HostVolumeFault {
    HostVolumeFault::Plugin {
        doing: format!("{doing} volume \"{}\" with", volume.id),
        plugin: HostVolume::DEFAULT_PLUGIN.to_owned(),
        why: error.to_string(),
        outcome: PluginOutcome::Failed,
    }
}

/// Creates the directory with its mode and owner. An existing directory stays unchanged.
///
/// The directory is first created under another name, so that an existing one is always complete.
pub(super) fn create(dir: &Path, volume: &HostVolume) -> Result<HostVolumeCreated, HostVolumeFault> {
    let parameters = parameters(volume)?;
    let path = dir.join(volume.id.as_str());
    let made = HostVolumeCreated { host_path: path.display().to_string(), capacity_bytes: 0 };
    let fault = |error: io::Error| failed("creating", volume, &error);
    match fs::symlink_metadata(&path) {
        Ok(there) if there.is_dir() => return Ok(made),
        Ok(_) => return Err(fault(io::Error::new(ErrorKind::AlreadyExists, "something else is there"))),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(fault(error)),
    }
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fault)?;
    let begun = dir.join(format!(".new-{}", volume.id));
    let make = || -> io::Result<()> {
        match fs::remove_dir(&begun) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        DirBuilder::new().mode(0o700).create(&begun)?;
        chown(&begun, parameters.uid, parameters.gid)?;
        // After the change of owner, which clears mode bits; and independent of the agent's umask.
        fs::set_permissions(&begun, Permissions::from_mode(parameters.mode))?;
        fs::rename(&begun, &path)
    };
    make().map_err(|error| {
        // The directory is still empty; the next attempt removes a leftover.
        let _ = fs::remove_dir(&begun);
        fault(error)
    })?;
    Ok(made)
}

/// Removes the directory with its content, but never a mounted file system.
pub(super) async fn delete(dir: &Path, volume: &HostVolume) -> Result<(), HostVolumeFault> {
    let path = dir.join(volume.id.as_str());
    let removed = tokio::task::spawn_blocking(move || tree::remove(&path, Seals::Keep)).await;
    match removed {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(caravan_sys::Error::Mounted { path, .. })) => Err(HostVolumeFault::Mounted(path)),
        Ok(Err(error)) => Err(failed("deleting", volume, &io::Error::other(caravan_sys::describe(&error)))),
        Err(error) => Err(failed("deleting", volume, &io::Error::other(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::fs::MetadataExt;

    fn volume(parameters: &[(&str, &str)]) -> HostVolume {
        let parameters: BTreeMap<_, _> =
            parameters.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        HostVolume { id: "v1".into(), name: "data".into(), parameters, ..HostVolume::default() }
    }

    #[tokio::test]
    async fn a_directory_is_made_once_and_removed_with_all_that_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let volumes = dir.path().join("deep/volumes");
        let requested = volume(&[("mode", "2770"), ("uid", "1234"), ("gid", "4321")]);
        let made = create(&volumes, &requested).unwrap();
        let path = Path::new(&made.host_path);
        let seen = fs::metadata(path).unwrap();
        assert_eq!((seen.mode() & 0o7777, seen.uid(), seen.gid()), (0o2770, 1234, 4321));
        fs::write(path.join("kept"), "x").unwrap();
        // A second call with other parameters leaves the directory unchanged.
        assert_eq!(create(&volumes, &volume(&[("uid", "1")])).unwrap(), made);
        assert_eq!(fs::metadata(path).unwrap().uid(), 1234);
        assert!(path.join("kept").exists());
        delete(&volumes, &requested).await.unwrap();
        assert!(!path.exists());
        delete(&volumes, &requested).await.unwrap();
    }

    #[test]
    fn the_default_is_closed_and_what_is_unknown_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let made = create(dir.path(), &volume(&[("uid", "-1")])).unwrap();
        assert_eq!(fs::metadata(&made.host_path).unwrap().mode() & 0o7777, 0o700);
        let error = |parameters| create(dir.path(), &volume(parameters)).unwrap_err().to_string();
        assert_eq!(error(&[("size", "1")]), "invalid value for \"size\": unknown mkdir parameter: \"size\"");
        assert_eq!(error(&[("mode", "rwx")]), "invalid value for \"mode\": \"rwx\" is not an octal mode");
        assert!(error(&[("gid", "root")]).starts_with("invalid value for \"gid\": "));
    }

    #[test]
    fn a_half_made_directory_of_a_killed_agent_is_no_volume() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(".new-v1")).unwrap();
        let made = create(dir.path(), &volume(&[("mode", "0711")])).unwrap();
        assert_eq!(fs::metadata(&made.host_path).unwrap().mode() & 0o7777, 0o711);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
