//! The HTTP API for tasks: a socket in the `secrets` of each task, independent of the task's network
//! (docs/reference/http-api.md, section 1.1).

use crate::alloc_dir::TaskDir;
use crate::client::Handle;
use caravan_sys::dir::{Dir, Mounts};
use caravan_sys::user::effective_uid;
use parking_lot::Mutex;
use rustix::fs::FileType;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tokio::net::UnixListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Name of the socket in a task's `secrets`.
pub(crate) const SOCKET: &str = "api.sock";

/// A server for requests of tasks.
pub trait TaskApi: Debug + Send + Sync + 'static {
    /// Serves the requests on a socket until stopped.
    fn serve(&self, listener: UnixListener, stop: CancellationToken);
}

/// The server for requests of tasks, set once by the agent. Tasks of a client without a server get no socket.
pub(crate) type Served = Arc<OnceLock<Arc<dyn TaskApi>>>;

impl Handle {
    /// Sets the server for requests of tasks. Call it once, before the client runs.
    pub fn serve_tasks(&self, api: Arc<dyn TaskApi>) {
        // The agent calls this exactly once.
        let _ = self.task_api.set(api);
    }
}

/// The sockets of an allocation's tasks.
#[derive(Debug, Default)]
pub(crate) struct Sockets(Mutex<BTreeMap<String, DropGuard>>);

impl Sockets {
    /// Opens the socket of a task, unless it is open. A task works without its socket, so a failure is only logged.
    pub(crate) fn open(&self, api: &Served, task: &str, dirs: &TaskDir) {
        let Some(api) = api.get() else { return };
        let mut open = self.0.lock();
        if open.contains_key(task) {
            return;
        }
        match dirs.open_part("secrets").map_err(failed).and_then(|secrets| bind(&secrets)) {
            Ok(listener) => {
                let stop = CancellationToken::new();
                api.serve(listener, stop.clone());
                open.insert(task.to_owned(), stop.drop_guard());
            }
            Err(error) => tracing::warn!(task, %error, "the API socket of a task cannot be opened"),
        }
    }

    /// Closes all sockets.
    pub(crate) fn close(&self) {
        self.0.lock().clear();
    }
}

/// Creates the socket in a directory that the task can write to: first under a random name, then under its own. The
/// directory is a separate file system, so that no hard link to another file can be created there.
pub(crate) fn bind(secrets: &Dir) -> io::Result<UnixListener> {
    let name = secrets.temporary(OsStr::new(SOCKET)).map_err(failed)?;
    // Socket paths are limited to about 108 bytes (unix(7)); the path of a descriptor is always short.
    let listener = UnixListener::bind(secrets.proc_path().join(&name))?;
    let made = || -> Result<(), caravan_sys::Error> {
        // By descriptor, so that no file of the task gets its mode changed.
        let socket = secrets.handle(Path::new(&name), Mounts::Refuse)?;
        let stat = socket.stat()?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Socket && stat.st_uid == effective_uid() {
            socket.set_mode(0o666)?;
        }
        secrets.rename(&name, secrets, OsStr::new(SOCKET))
    };
    made().map_err(|error| {
        // The first error is reported.
        let _left = secrets.remove_file(&name);
        failed(error)
    })?;
    Ok(listener)
}

fn failed(error: caravan_sys::Error) -> io::Error {
    io::Error::other(caravan_sys::describe(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    #[tokio::test]
    async fn a_socket_takes_the_place_of_whatever_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "").unwrap();
        std::fs::set_permissions(&victim, PermissionsExt::from_mode(0o600)).unwrap();
        let secrets = dir.path().join("secrets");
        std::fs::create_dir(&secrets).unwrap();
        symlink(&victim, secrets.join(SOCKET)).unwrap();
        for _ in 0..2 {
            let _listener = bind(&Dir::open(&secrets).unwrap()).unwrap();
            let meta = secrets.join(SOCKET).symlink_metadata().unwrap();
            assert!(meta.file_type().is_socket());
            assert_eq!(meta.permissions().mode() & 0o777, 0o666);
            tokio::net::UnixStream::connect(secrets.join(SOCKET)).await.unwrap();
        }
        assert_eq!(victim.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(&secrets).unwrap().count(), 1);
    }
}
