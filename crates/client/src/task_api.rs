//! The API as tasks reach it: a socket in the secrets of each, whatever network the task has (`http-api` section 1.1).

use crate::alloc_dir::TaskDir;
use crate::client::Handle;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, chmodat, mkdirat, openat, renameat, unlinkat};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::net::UnixListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Name of the socket in a task's secrets.
pub(crate) const SOCKET: &str = "api.sock";
/// Where it is made, out of reach of the task.
const MAKING: &str = ".api";

/// Whoever answers requests of tasks.
pub trait TaskApi: Debug + Send + Sync + 'static {
    /// Answers those that come over a socket, until stopped.
    fn serve(&self, listener: UnixListener, stop: CancellationToken);
}

/// Set once by whoever wires the agent together; tasks of a client without one get no socket.
pub(crate) type Served = OnceLock<Arc<dyn TaskApi>>;

impl Handle {
    /// Has requests of tasks answered. To be called before the client runs; once.
    pub fn serve_tasks(&self, api: Arc<dyn TaskApi>) {
        // The wiring sets it exactly once.
        let _ = self.context.task_api.set(api);
    }
}

/// The sockets of an allocation's tasks.
#[derive(Debug, Default)]
pub(crate) struct Sockets(Mutex<BTreeMap<String, DropGuard>>);

impl Sockets {
    /// Opens the socket of a task, unless it is open. A task works without it, so that a failure is only told.
    pub(crate) fn open(&self, api: &Served, task: &str, dirs: &TaskDir) {
        let Some(api) = api.get() else { return };
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.contains_key(task) {
            return;
        }
        match bind(&dirs.secrets()) {
            Ok(listener) => {
                let stop = CancellationToken::new();
                api.serve(listener, stop.clone());
                open.insert(task.to_owned(), stop.drop_guard());
            }
            Err(error) => tracing::warn!(task, %error, "the task does not get its socket of the API"),
        }
    }

    /// Closes all of them.
    pub(crate) fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Makes the socket in a directory that the task can write: in a directory of our own first, so that it is really the
/// socket whose mode is changed, and then under its name.
fn bind(secrets: &Path) -> io::Result<UnixListener> {
    let dir = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::PATH | OFlags::CLOEXEC;
    let secrets = openat(CWD, secrets, dir, Mode::empty())?;
    clear(&secrets);
    mkdirat(&secrets, MAKING, Mode::RWXU)?;
    let made = (|| {
        let own = openat(&secrets, MAKING, dir, Mode::empty())?;
        // Paths of sockets are short; that of a descriptor always is.
        let path = format!("/proc/self/fd/{}/{SOCKET}", own.as_raw_fd());
        let listener = UnixListener::bind(path)?;
        chmodat(&own, SOCKET, Mode::from_raw_mode(0o666), AtFlags::empty())?;
        renameat(&own, SOCKET, &secrets, SOCKET)?;
        Ok(listener)
    })();
    clear(&secrets);
    made
}

/// Removes what an agent that died meanwhile may have left.
fn clear(secrets: &OwnedFd) {
    let dir = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::PATH | OFlags::CLOEXEC;
    // What is not there need not go; what cannot go is told by what comes next.
    if let Ok(own) = openat(secrets, MAKING, dir, Mode::empty()) {
        let _ = unlinkat(&own, SOCKET, AtFlags::empty());
        let _ = unlinkat(secrets, MAKING, AtFlags::REMOVEDIR);
    }
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
            let _listener = bind(&secrets).unwrap();
            let meta = secrets.join(SOCKET).symlink_metadata().unwrap();
            assert!(meta.file_type().is_socket());
            assert_eq!(meta.permissions().mode() & 0o777, 0o666);
            tokio::net::UnixStream::connect(secrets.join(SOCKET)).await.unwrap();
        }
        assert_eq!(victim.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(&secrets).unwrap().count(), 1);
    }
}
