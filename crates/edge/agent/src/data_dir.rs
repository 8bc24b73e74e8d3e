//! The agent's data directory.

use crate::error::AgentError;
use caravan_base::Build;
use caravan_sys::tree::{self, Seals};
use sha2::{Digest as _, Sha256};
use std::fs::{self, DirBuilder};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// The mode of the data directory. Tasks run as other users and traverse this directory to their own directories.
/// Other users need no permission to list it.
const MODE: u32 = 0o711;

/// Creates a private directory of an agent. With `fresh`, the directory must not exist: its parent is world-writable,
/// so another user may have created an existing directory.
///
/// # Errors
/// Fails if the directory cannot be created or written, or exists with `fresh`.
pub(crate) fn make(dir: &Path, fresh: bool) -> Result<()> {
    let durable = |dir: &Path, mode| {
        let made = caravan_sys::files::durable_dir(dir, mode);
        made.map_err(|error| plain(&error))
    };
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        durable(parent, 0o755)?;
    }
    match DirBuilder::new().mode(MODE).create(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && !fresh && dir.is_dir() => {}
        made => made?,
    }
    durable(dir, MODE)?;
    let probe = dir.join(".writable");
    fs::write(&probe, b"")?;
    fs::remove_file(&probe)
}

/// The format of the data directory that this program writes. A program refuses a larger number.
const FORMAT: u32 = 1;

/// The name of the file with the [`Owner`].
const OWNER: &str = "agent.json";

/// The program that last used a data directory, and its machine.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Owner {
    format: u32,
    /// The version of the program, for error texts.
    version: String,
    /// The machine of a client, see [`machine`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
}

/// The reason that an agent does not use a data directory.
#[derive(Debug, thiserror::Error)]
pub enum ForeignReason {
    /// A newer program wrote the directory.
    #[error("version {version} wrote it in format {format}, and this version knows formats up to {FORMAT}")]
    Newer {
        /// The version of that program.
        version: String,
        /// The format that it wrote.
        format: u32,
    },
    /// Another machine wrote the directory.
    #[error(
        "it has the identity of a client on another machine, and two machines with one identity would share its \
         volumes; if this machine replaces the other one for good, remove {OWNER} in it"
    )]
    OtherMachine,
    /// The file with the owner cannot be read.
    #[error("{OWNER} in it cannot be read: {0}")]
    Unreadable(#[source] serde_json::Error),
}

/// Returns a digest of the machine's id, which must not leave the host itself (machine-id(5)). `None` without one.
pub(crate) fn machine() -> Option<String> {
    let id = fs::read_to_string("/etc/machine-id").ok()?;
    let id = id.trim();
    // Images contain "uninitialized" before their first boot.
    (id.len() == 32).then(|| {
        let digest = Sha256::digest(format!("caravan data directory {id}"));
        digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    })
}

/// Records this program as the user of a data directory.
///
/// # Errors
/// Fails if a newer program or the client of another machine wrote the directory.
pub(crate) fn claim(
    dir: &Path,
    build: &Build,
    machine: Option<String>,
) -> std::result::Result<(), AgentError> {
    let failed = |source| AgentError::DataDir { path: dir.to_owned(), source };
    let foreign = |reason| AgentError::Foreign { path: dir.to_owned(), reason };
    let path = dir.join(OWNER);
    let found = match fs::read(&path) {
        Ok(bytes) => {
            Some(serde_json::from_slice::<Owner>(&bytes).map_err(|e| foreign(ForeignReason::Unreadable(e)))?)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    let mut owner = Owner { format: FORMAT, version: build.version.to_owned(), machine };
    if let Some(found) = found {
        if found.format > FORMAT {
            return Err(foreign(ForeignReason::Newer { version: found.version, format: found.format }));
        }
        match (&found.machine, &owner.machine) {
            (Some(before), Some(now)) if before != now => return Err(foreign(ForeignReason::OtherMachine)),
            (Some(_), None) => owner.machine = found.machine.clone(),
            _ => {}
        }
        if found.version == owner.version && found.machine == owner.machine {
            return Ok(());
        }
    }
    let bytes = serde_json::to_vec(&owner).map_err(|error| failed(Error::other(error)))?;
    caravan_sys::files::atomic_write(&path, &bytes, 0o600).map_err(|error| failed(plain(&error)))
}

/// Returns an error of `sys` as an error of the system, with its kind.
fn plain(error: &caravan_sys::Error) -> Error {
    let kind = error.io().map_or(ErrorKind::Other, Error::kind);
    Error::new(kind, caravan_sys::describe(error))
}

/// Removes a directory and its content, unless there is a mount below it: a volume that could not be unmounted must
/// never be emptied.
///
/// # Errors
/// Fails if there is a mount, or the directory cannot be removed.
pub(crate) fn remove(dir: &Path) -> std::result::Result<(), caravan_sys::Error> {
    tree::remove(dir, Seals::Lift).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_sys::mount::{Unmount, mount_tmpfs, unmount};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_fresh_directory_is_never_somebody_elses() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("deep/data");
        make(&dir, true).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o711);
        assert_eq!(make(&dir, true).unwrap_err().kind(), ErrorKind::AlreadyExists);
        make(&dir, false).unwrap();
        fs::write(scratch.path().join("file"), "").unwrap();
        assert!(make(&scratch.path().join("file"), false).is_err());
    }

    #[test]
    fn directories_of_newer_programs_and_other_machines_are_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path();
        let build = Build { version: "1.0.0", commit: "", date: "" };
        let machine = |id: &str| Some(id.to_owned());
        let refusal = |result: std::result::Result<(), AgentError>| result.unwrap_err().to_string();
        claim(dir, &build, None).unwrap();
        claim(dir, &build, machine("a")).unwrap();
        // A machine without an id, such as a container, keeps the recorded one.
        claim(dir, &build, None).unwrap();
        claim(dir, &Build { version: "1.1.0", ..build }, machine("a")).unwrap();
        assert!(refusal(claim(dir, &build, machine("b"))).contains("another machine"));
        fs::write(dir.join(OWNER), r#"{"format": 2, "version": "9.1.0", "more": 1}"#).unwrap();
        let text = refusal(claim(dir, &build, machine("a")));
        assert!(text.contains("version 9.1.0 wrote it in format 2"), "{text}");
        fs::write(dir.join(OWNER), "{").unwrap();
        assert!(refusal(claim(dir, &build, None)).contains(OWNER));
    }

    #[test]
    fn what_is_mounted_is_not_emptied() {
        let scratch = tempfile::tempdir().unwrap();
        let (dir, volume) = (scratch.path().join("data"), scratch.path().join("data/alloc/volume"));
        fs::create_dir_all(&volume).unwrap();
        mount_tmpfs(&volume, 1 << 20, 0o755).unwrap();
        fs::write(volume.join("precious"), "").unwrap();
        let error = remove(&dir).unwrap_err();
        let kept = volume.join("precious").exists();
        unmount(&volume, Unmount::Now).unwrap();
        assert!(error.to_string().contains("alloc/volume: it is a mount") && kept, "{error}");
        remove(&dir).unwrap();
        assert!(!dir.exists());
    }
}
