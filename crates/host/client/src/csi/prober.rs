//! Checks of file systems that never block on a file system that hangs.
//!
//! A system call on a hanging file system cannot be interrupted. A separate thread makes the call, and is abandoned
//! if the call does not return in time. Each hanging path has one such thread; all other paths share one.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// A queue of checks, of which one runs at a time.
#[derive(Debug, Default)]
pub(crate) struct Prober {
    inner: tokio::sync::Mutex<Inner>,
    /// Paths with work in progress: no second thread blocks on the same file system.
    working: Mutex<HashMap<PathBuf, oneshot::Receiver<()>>>,
}

#[derive(Debug, Default)]
struct Inner {
    worker: Option<mpsc::Sender<Job>>,
    /// Paths that have not answered yet: they are not checked a second time.
    hanging: HashMap<PathBuf, oneshot::Receiver<()>>,
}

impl Prober {
    /// Runs a check of a path. Returns `None` on timeout.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        path: &Path,
        limit: Duration,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let mut inner = self.inner.lock().await;
        if let Some(hanging) = inner.hanging.get_mut(path) {
            match hanging.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => return None,
                // The abandoned thread has returned, so a new check is possible.
                Ok(()) | Err(oneshot::error::TryRecvError::Closed) => {
                    inner.hanging.remove(path);
                }
            }
        }
        let (reply, answer) = oneshot::channel();
        let (back, hanging) = oneshot::channel();
        inner.give(Box::new(move || {
            // The requester may have stopped waiting.
            let _ = reply.send(look());
            let _ = back.send(());
        }))?;
        match tokio::time::timeout(limit, answer).await {
            Ok(answer) => answer.ok(),
            Err(_) => {
                // The worker hangs too; another one runs the next check.
                inner.worker = None;
                inner.hanging.insert(path.to_owned(), hanging);
                None
            }
        }
    }

    /// Runs work at a path that may take longer than a check, such as unmounting. Returns `None` if the work, or
    /// earlier work at the path, does not end in time; that work continues, and its result is lost.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        path: &Path,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (over, going_on) = oneshot::channel();
        {
            let mut working = self.working.lock();
            working.retain(|_, going_on| going_on.try_recv() == Err(oneshot::error::TryRecvError::Empty));
            if working.contains_key(path) {
                return None;
            }
            working.insert(path.to_owned(), going_on);
        }
        let (reply, answer) = oneshot::channel();
        let thread = std::thread::Builder::new().name("mount-worker".to_owned()).stack_size(256 * 1024);
        let started = thread.spawn(move || {
            let result = work();
            // Before the reply, so that the caller can start the next work at the path.
            drop(over);
            // The caller may have stopped waiting.
            let _ = reply.send(result);
        });
        if let Err(error) = started {
            tracing::warn!(%error, "the thread for work at a mount cannot be started");
            return None;
        }
        tokio::time::timeout(limit, answer).await.ok()?.ok()
    }
}

/// Returns whether the file system mounted at a path answers, else its errno. May block.
pub(crate) fn answers(path: &Path) -> Result<(), i32> {
    caravan_sys::mount::ask_file_system(path).map_err(|e| e.raw_os_error().unwrap_or_default())
}

impl Inner {
    fn give(&mut self, job: Job) -> Option<()> {
        let job = match &self.worker {
            Some(worker) => match worker.send(job) {
                Ok(()) => return Some(()),
                Err(mpsc::SendError(job)) => job,
            },
            None => job,
        };
        let (worker, jobs) = mpsc::channel::<Job>();
        let thread = std::thread::Builder::new().name("mount-prober".to_owned()).stack_size(128 * 1024);
        if let Err(error) = thread.spawn(move || jobs.into_iter().for_each(|job| job())) {
            tracing::warn!(%error, "the thread that checks mounts cannot be started");
            return None;
        }
        worker.send(job).ok()?;
        self.worker = Some(worker);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_sys::mount::{Restrictions, Unmount, mount_fs, unmount};
    use std::os::fd::AsRawFd;

    const LIMIT: Duration = Duration::from_millis(200);

    /// Probes the file system at a path.
    async fn ask(prober: &Prober, path: &Path, limit: Duration) -> Option<Result<(), i32>> {
        let asked = path.to_owned();
        prober.look(path, limit, move || answers(&asked)).await
    }

    /// Returns a FUSE mount whose daemon has not answered any request; the mount is dead once the file is dropped
    /// (fuse(4)).
    fn fuse(at: &Path) -> Option<std::fs::File> {
        let device = std::fs::File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        mount_fs("fuse", at, Restrictions::default(), &data).unwrap();
        Some(device)
    }

    #[tokio::test]
    async fn work_that_hangs_is_left_behind_and_not_begun_twice() {
        let (live, hanging) = (Path::new("/live"), Path::new("/hanging"));
        let prober = Prober::default();
        let patient = Duration::from_secs(20);
        let (go, wait) = mpsc::channel::<()>();
        let hang = move || wait.recv().is_ok();
        assert_eq!(prober.work(hanging, LIMIT, hang).await, None);
        assert_eq!(prober.work(hanging, patient, || 1).await, None, "the first is not over");
        for number in 0..100 {
            assert_eq!(prober.work(live, patient, move || number).await, Some(number));
        }
        go.send(()).unwrap();
        let deadline = tokio::time::Instant::now() + patient;
        while prober.work(hanging, patient, || 2).await != Some(2) {
            assert!(tokio::time::Instant::now() < deadline, "its end is noticed");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_hanging_file_system_delays_no_other_and_differs_from_a_dead_one() {
        let (live, dead) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let Some(daemon) = fuse(dead.path()) else { return };
        let prober = Prober::default();
        let patient = Duration::from_secs(20);
        assert_eq!(ask(&prober, live.path(), patient).await, Some(Ok(())));
        assert_eq!(ask(&prober, dead.path(), LIMIT).await, None);
        assert_eq!(ask(&prober, live.path(), patient).await, Some(Ok(())), "others are asked meanwhile");
        assert_eq!(ask(&prober, dead.path(), patient).await, None, "and the same is not asked twice");
        drop(daemon);
        let deadline = tokio::time::Instant::now() + patient;
        loop {
            if ask(&prober, dead.path(), LIMIT).await == Some(Err(nix::libc::ENOTCONN)) {
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "its death is noticed");
        }
        unmount(dead.path(), Unmount::Lazy).unwrap();
    }
}
