//! Waits for changes of a directory and of its files (inotify(7)).

use caravan_sys::dir::Dir;
use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// The polling interval if the kernel cannot notify (no watches left, a remote file system).
const FALLBACK_INTERVAL: Duration = Duration::from_millis(200);

/// A watch on a directory and its files.
#[derive(Debug)]
pub struct DirWatch {
    notice: Option<AsyncFd<OwnedFd>>,
}

impl DirWatch {
    /// Starts to watch: the caller must read the directory after this call. Without a directory, the watch polls.
    pub fn on(dir: Option<&Dir>) -> Self {
        let Some(dir) = dir else { return Self { notice: None } };
        #[expect(
            deprecated,
            reason = "the replacement is unsafe for the sake of types that close early, which an OwnedFd never does"
        )]
        let register = |fd: OwnedFd| AsyncFd::new(fd);
        let make = || -> std::io::Result<AsyncFd<OwnedFd>> {
            let fd = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            let events = WatchFlags::MODIFY
                | WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVED_FROM
                | WatchFlags::MOVED_TO
                | WatchFlags::DELETE_SELF;
            add_watch(&fd, dir.proc_path(), events)?;
            register(fd)
        };
        let notice = make().inspect_err(|error| {
            tracing::debug!(path = %dir.shown().display(), %error, "cannot watch the directory; polling");
        });
        Self { notice: notice.ok() }
    }

    /// Waits for a change since the last call.
    pub async fn changed(&self) {
        let Some(fd) = &self.notice else {
            tokio::time::sleep(FALLBACK_INTERVAL).await;
            return;
        };
        let Ok(mut ready) = fd.readable().await else {
            tokio::time::sleep(FALLBACK_INTERVAL).await;
            return;
        };
        // The events themselves do not matter: the caller reads again.
        let mut events = [0; 4096];
        while rustix::io::read(fd.get_ref(), &mut events).is_ok_and(|length| length > 0) {}
        ready.clear_ready();
    }
}
