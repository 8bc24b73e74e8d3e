//! Asking file systems whether they answer, without ever waiting for one that hangs.
//!
//! A system call on a hanging file system cannot be interrupted. So it is made by a thread of its own, which is left
//! behind when it does not come back in time: one such thread for each path that hangs, and one for all the others.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::oneshot;

/// The answer of statfs(2), or its errno.
type Answer = Result<(), i32>;

struct Question {
    path: PathBuf,
    reply: oneshot::Sender<Answer>,
}

/// Asks one question at a time.
#[derive(Debug, Default)]
pub(crate) struct Prober {
    inner: tokio::sync::Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    worker: Option<mpsc::Sender<Question>>,
    /// Paths that have not answered yet: nobody asks them twice.
    hanging: HashMap<PathBuf, oneshot::Receiver<Answer>>,
}

impl Prober {
    /// Asks the file system mounted at a path. `None`: no answer in time.
    pub(crate) async fn ask(&self, path: &Path, limit: Duration) -> Option<Answer> {
        let mut inner = self.inner.lock().await;
        if let Some(hanging) = inner.hanging.get_mut(path) {
            match hanging.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => return None,
                // It came back: what it says now counts.
                Ok(_) | Err(oneshot::error::TryRecvError::Closed) => {
                    inner.hanging.remove(path);
                }
            }
        }
        let (reply, mut answer) = oneshot::channel();
        let question = Question { path: path.to_owned(), reply };
        inner.send(question)?;
        match tokio::time::timeout(limit, &mut answer).await {
            Ok(said) => said.ok(),
            Err(_) => {
                // The worker hangs with it; another one takes the next question.
                inner.worker = None;
                inner.hanging.insert(path.to_owned(), answer);
                None
            }
        }
    }
}

impl Inner {
    fn send(&mut self, question: Question) -> Option<()> {
        let question = match &self.worker {
            Some(worker) => match worker.send(question) {
                Ok(()) => return Some(()),
                Err(mpsc::SendError(question)) => question,
            },
            None => question,
        };
        let (worker, questions) = mpsc::channel::<Question>();
        let spawned = std::thread::Builder::new()
            .name("mount-prober".to_owned())
            .stack_size(64 * 1024)
            .spawn(move || {
                for Question { path, reply } in questions {
                    let answer = caravan_sys::mount::ask_file_system(&path);
                    // The asker may have given up.
                    let _ = reply.send(answer.map_err(|e| e.raw_os_error().unwrap_or_default()));
                }
            });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread for asking file systems");
            return None;
        }
        worker.send(question).ok()?;
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

    /// A FUSE mount whose daemon has not answered anything yet; it is dead when the file is dropped (fuse(4)).
    fn fuse(at: &Path) -> Option<std::fs::File> {
        let device = std::fs::File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        mount_fs("fuse", at, Restrictions::default(), &data).unwrap();
        Some(device)
    }

    #[tokio::test]
    async fn a_hanging_file_system_holds_nobody_up_and_a_dead_one_is_told_apart() {
        let (live, dead) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let Some(daemon) = fuse(dead.path()) else { return };
        let prober = Prober::default();
        let patient = Duration::from_secs(20);
        assert_eq!(prober.ask(live.path(), patient).await, Some(Ok(())));
        assert_eq!(prober.ask(dead.path(), LIMIT).await, None);
        assert_eq!(prober.ask(live.path(), patient).await, Some(Ok(())), "others are asked meanwhile");
        assert_eq!(prober.ask(dead.path(), patient).await, None, "and the same is not asked twice");
        drop(daemon);
        let deadline = tokio::time::Instant::now() + patient;
        loop {
            if prober.ask(dead.path(), LIMIT).await == Some(Err(nix::libc::ENOTCONN)) {
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "its death is noticed");
        }
        unmount(dead.path(), Unmount::Lazy).unwrap();
    }
}
