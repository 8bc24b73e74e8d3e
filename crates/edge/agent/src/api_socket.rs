//! The API on a Unix socket, for members of a group. systemd creates the directory (`RuntimeDirectory` of
//! systemd.exec(5)); without systemd there is no such socket.
//!
//! A request through the socket has the rights of a request through the port: access control is the same.

use caravan_sys::user;
use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;

/// The variable with the runtime directories, separated by colons.
const DIRECTORIES: &str = "RUNTIME_DIRECTORY";
/// The name of the socket in the first runtime directory.
const NAME: &str = "api.sock";
/// The group whose members may connect. The package creates it.
const GROUP: &str = "caravan";
/// The mode of the socket: access for the owner and the group. Connecting requires the right to write.
const MODE: u32 = 0o660;

/// Opens the socket, if systemd has created a directory for it. A failure is logged: the port remains.
pub(crate) fn open() -> Option<UnixListener> {
    let path = path(std::env::var_os(DIRECTORIES)?)?;
    let group = user::lookup(&format!("0:{GROUP}")).ok().map(|account| account.gid);
    match listen(&path, group) {
        Ok(listener) => {
            tracing::info!(path = %path.display(), has_group = group.is_some(), "the API has a socket");
            Some(listener)
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the Unix socket of the API could not be opened");
            None
        }
    }
}

/// Returns the path of the socket in the first of the directories.
fn path(directories: OsString) -> Option<PathBuf> {
    let first = std::env::split_paths(&directories).next()?;
    first.is_absolute().then(|| first.join(NAME))
}

/// Listens at a path in a directory that only root can change, and replaces the socket of an earlier agent.
fn listen(path: &Path, group: Option<u32>) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    // Until here, the unit's UMask=0077 denies access to other users.
    std::os::unix::fs::chown(path, None, group)?;
    std::fs::set_permissions(path, Permissions::from_mode(MODE))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_first_directory_has_the_socket() {
        assert_eq!(path("/run/a:/run/b".into()), Some("/run/a/api.sock".into()));
        assert_eq!(path("".into()), None);
        assert_eq!(path("a".into()), None);
    }

    #[tokio::test]
    async fn the_socket_replaces_an_earlier_one_and_admits_its_group() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let group = user::effective_gid();
        drop(listen(&path, Some(group)).unwrap());
        let _listener = listen(&path, Some(group)).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!((metadata.mode() & 0o777, metadata.gid()), (MODE, group));
        tokio::net::UnixStream::connect(&path).await.unwrap();
    }
}
