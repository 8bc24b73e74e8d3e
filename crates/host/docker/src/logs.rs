//! The output of a container: read from the engine, and written to the log files of the task.
//!
//! A checkpoint in the task's state directory records up to which entry the files contain the output. After a restart
//! of the agent or of the engine, the files are cut at the checkpoint and the output continues there. So no line is
//! lost or doubled. For example, an agent that dies between the write of a line and the checkpoint removes the line
//! and writes it again.

use crate::ctr_log::{CtrLog, Entry, Output, Position, READ_SIZE};
use crate::engine::{Engine, backoff, is_absent, status, text};
use crate::watch::EngineWatch;
use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::query_parameters::LogsOptionsBuilder;
use bytes::Bytes;
use caravan_drivers::LogConfig;
use caravan_shim::{LogWriter, Place, open_dir};
use futures::StreamExt;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// Name of the checkpoint in the task's state directory.
const CHECKPOINT: &str = "logs.json";

/// Bytes of the checkpoint's file, which is padded with blanks.
const CHECKPOINT_SIZE: usize = 512;

/// The longest pause before the output is requested again.
const MAX_PAUSE: Duration = Duration::from_secs(120);

/// Entries of the output that are written together when they arrive together.
const BATCH: usize = 64;

const MIB: u64 = 1 << 20;

/// The last entry that the files of one output contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Progress {
    /// Time of the last entry, in nanoseconds since 1970.
    time: i128,
    /// Number of entries with that time.
    count: u32,
    place: Place,
}

/// The last entries that the files of a task contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Checkpoint {
    /// The progress of standard output and standard error.
    outputs: [Progress; 2],
    /// The position up to which podman's file was read; absent if the entries come from the engine.
    position: Option<Position>,
}

/// The log files of a task.
#[derive(Debug)]
struct Files {
    logs: [LogWriter; 2],
    progress: Checkpoint,
    /// Entries seen with the last time, since the connection began.
    seen: [(i128, u32); 2],
    /// Whether the connection still repeats entries. Afterwards, the clock may step back without a loss.
    repeats: [bool; 2],
    record: File,
}

impl Files {
    fn open(logs: &LogConfig, state_dir: &Path) -> Result<Self, String> {
        let say = |error: caravan_shim::Error| caravan_sys::describe(&error);
        let size = logs.max_file_size_mb.saturating_mul(MIB);
        let open = |name: &str| {
            let dir = open_dir(&logs.dir)?;
            LogWriter::open(dir, name, logs.max_files, size)
        };
        let mut writers = [open(&logs.stdout).map_err(say)?, open(&logs.stderr).map_err(say)?];
        let path = state_dir.join(CHECKPOINT);
        let record =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let record = record.map_err(|error| format!("{} cannot be opened: {error}", path.display()))?;
        let mut text = vec![0; CHECKPOINT_SIZE];
        let length = record.read_at(&mut text, 0).unwrap_or(0);
        let stored = serde_json::from_slice::<Checkpoint>(&text[..length]).or_else(|_| {
            // Earlier agents wrote only the outputs.
            serde_json::from_slice(&text[..length]).map(|outputs| Checkpoint { outputs, position: None })
        });
        let progress = match stored {
            Ok(progress) => {
                for (writer, progress) in writers.iter_mut().zip(&progress.outputs) {
                    writer.rewind(progress.place).map_err(say)?;
                }
                progress
            }
            Err(_) => {
                // The first run, with the files of earlier runs.
                let place = |index: usize| Progress { place: writers[index].place(), ..Progress::default() };
                Checkpoint { outputs: [place(0), place(1)], position: None }
            }
        };
        let files = Self { logs: writers, progress, seen: [(0, 0); 2], repeats: [true; 2], record };
        files.save();
        Ok(files)
    }

    /// Returns the second of the oldest entry that may be missing. The engine delivers entries of both outputs in the
    /// order of their receipt. This order differs from their times by far less than a second.
    fn since(&self) -> i32 {
        let newest = self.progress.outputs.iter().map(|progress| progress.time).max().unwrap_or(0);
        i32::try_from(newest / 1_000_000_000 - 1).unwrap_or(0).max(0)
    }

    /// Begins a connection, which repeats entries.
    fn connected(&mut self) {
        self.seen = [(0, 0); 2];
        self.repeats = [true; 2];
        self.progress.position = None;
    }

    /// Begins to read podman's file: after the last entry of the checkpoint, or at the beginning of another file.
    fn opened(&mut self, log: &mut CtrLog) -> std::io::Result<()> {
        let is_continued = match self.progress.position {
            Some(position) => log.resume(position)?,
            None => false,
        };
        self.connected();
        if is_continued {
            self.seen = self.progress.outputs.map(|progress| (progress.time, progress.count));
            self.repeats = [false; 2];
            self.progress.position = log.position();
        }
        Ok(())
    }

    /// Writes an entry of the engine, unless the files already contain it.
    fn write(&mut self, entry: &LogOutput) {
        let (stream, message) = match entry {
            LogOutput::StdErr { message } => (1, message),
            LogOutput::StdOut { message } | LogOutput::Console { message } => (0, message),
            LogOutput::StdIn { .. } => return,
        };
        let Some((time, data)) = split(message) else {
            self.logs[stream].write(message);
            return;
        };
        self.add(stream, time, data);
    }

    /// Writes an entry of podman's file, unless the files already contain it.
    fn write_entry(&mut self, entry: Entry<'_>) {
        let stream = match entry.output {
            Output::Stdout => 0,
            Output::Stderr => 1,
        };
        self.add(stream, entry.time, entry.data);
    }

    fn add(&mut self, stream: usize, time: i128, data: &[u8]) {
        let seen = &mut self.seen[stream];
        *seen = if seen.0 == time { (time, seen.1 + 1) } else { (time, 1) };
        let progress = &mut self.progress.outputs[stream];
        let is_old = time < progress.time || time == progress.time && seen.1 <= progress.count;
        if self.repeats[stream] && is_old {
            return;
        }
        self.repeats[stream] = false;
        self.logs[stream].write(data);
        *progress = Progress { time, count: seen.1, place: self.logs[stream].place() };
    }

    /// Writes the checkpoint. Not synced: after a crash of the machine, the container is gone as well.
    fn save(&self) {
        let Ok(mut text) = serde_json::to_vec(&self.progress) else { return };
        text.resize(CHECKPOINT_SIZE.max(text.len()), b' ');
        if let Err(error) = self.record.write_all_at(&text, 0) {
            tracing::warn!(%error, "the checkpoint of a task's output cannot be written");
        }
    }
}

/// Splits an entry into its time and its data.
fn split(message: &Bytes) -> Option<(i128, &[u8])> {
    let end = message.iter().position(|byte| *byte == b' ')?;
    let time: Timestamp = std::str::from_utf8(&message[..end]).ok()?.parse().ok()?;
    Some((time.as_nanosecond(), &message[end + 1..]))
}

/// The follower of a container's output.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) engine: Arc<Engine>,
    pub(crate) watch: Arc<EngineWatch>,
    pub(crate) container: String,
    /// The file in which podman keeps the output.
    pub(crate) file: Option<PathBuf>,
    /// Whether the container has ended.
    pub(crate) ended: watch::Receiver<bool>,
    /// The number of batches of entries that were read.
    pub(crate) batches: Arc<AtomicU64>,
}

impl Follower {
    /// Copies the output until the container has ended and all output is written. The error is the reason that output
    /// is missing.
    pub(crate) async fn run(self, logs: LogConfig, state_dir: PathBuf) -> Result<(), String> {
        let mut files = Files::open(&logs, &state_dir)?;
        if let Some(path) = &self.file {
            match self.copy_file(&mut files, path).await {
                Ok(()) => return Ok(()),
                Err(reason) => {
                    let container = &self.container;
                    tracing::info!(
                        container,
                        reason,
                        "the output is read from the engine instead of its file"
                    );
                }
            }
        }
        let mut failures = 0;
        loop {
            // Read first: the output before the container's end is then part of the answer.
            let has_ended = *self.ended.borrow();
            match self.copy(&mut files, !has_ended).await {
                Ok(()) if has_ended => return Ok(()),
                // The engine ends the stream with the container, whose end is known a moment later.
                Ok(()) => self.until_ended(backoff(failures).min(MAX_PAUSE)).await,
                Err(error) if is_absent(&error) => return Ok(()),
                Err(error) if is_unreadable(&error) => {
                    return Err(format!(
                        "the output cannot be read: {}; it stays with the container's log driver",
                        text(&error)
                    ));
                }
                Err(error) => {
                    tracing::debug!(container = self.container, error = text(&error), "output interrupted");
                    tokio::select! {
                        () = tokio::time::sleep(backoff(failures).min(MAX_PAUSE)) => self.watch.until_up().await,
                        () = self.watch.turned() => {}
                    }
                }
            }
            failures += 1;
        }
    }

    async fn until_ended(&self, pause: Duration) {
        let mut ended = self.ended.clone();
        // If the watcher is gone, the agent ends.
        let _passed = tokio::time::timeout(pause, ended.wait_for(|ended| *ended)).await;
    }

    /// Copies the output from podman's file until the container has ended. conmon writes all output before podman
    /// reports the end.
    async fn copy_file(&self, files: &mut Files, path: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut log = CtrLog::open(path).map_err(|error| caravan_sys::describe(&error))?;
        files.opened(&mut log).map_err(failed)?;
        let mut ended = self.ended.clone();
        loop {
            // Read first: the output before the container's end is then part of the file.
            let has_ended = *ended.borrow();
            let mut buffer = vec![0; READ_SIZE];
            while log.read(&mut buffer, |entry| files.write_entry(entry)).map_err(failed)? {
                files.progress.position = log.position();
                files.save();
                self.batches.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
            drop(buffer);
            if has_ended {
                return Ok(());
            }
            tokio::select! {
                () = log.changed() => {}
                () = until_true(&mut ended) => {}
            }
        }
    }

    /// Copies the output until the engine ends the stream. Only the output of a running container is followed: podman
    /// ends the stream of a follower half a second after the container, even if entries are missing.
    async fn copy(&self, files: &mut Files, follow: bool) -> Result<(), Error> {
        let client = self
            .engine
            .client()
            .await
            .map_err(|error| Error::IOError { err: std::io::Error::other(error.to_string()) })?;
        let options = LogsOptionsBuilder::default()
            .follow(follow)
            .stdout(true)
            .stderr(true)
            .timestamps(true)
            .since(files.since())
            .build();
        files.connected();
        let mut entries = client.logs(&self.container, Some(options)).ready_chunks(BATCH);
        while let Some(batch) = entries.next().await {
            self.batches.fetch_add(1, Ordering::Relaxed);
            for entry in batch {
                match entry {
                    Ok(entry) => files.write(&entry),
                    Err(error) => {
                        files.save();
                        return Err(error);
                    }
                }
            }
            files.save();
        }
        Ok(())
    }
}

/// Waits until a value is true. If its sender is gone, the agent ends.
async fn until_true(value: &mut watch::Receiver<bool>) {
    if value.wait_for(|value| *value).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Removes the checkpoint of an earlier run of the task.
pub(crate) fn clear(state_dir: &Path) {
    let _absent = std::fs::remove_file(state_dir.join(CHECKPOINT));
}

/// Returns whether the container's log driver does not let the engine read.
fn is_unreadable(error: &Error) -> bool {
    status(error).is_some_and(|status| status >= 400) && text(error).contains("not support reading")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(dir: &Path) -> LogConfig {
        LogConfig {
            dir: dir.to_owned(),
            stdout: "t.stdout".into(),
            stderr: "t.stderr".into(),
            max_files: 3,
            max_file_size_mb: 1,
        }
    }

    fn entry(second: u32, text: &str) -> LogOutput {
        let message = Bytes::from(format!("2026-01-01T00:00:{second:02}.5Z {text}\n"));
        LogOutput::StdOut { message }
    }

    #[test]
    fn entries_are_written_once_over_restarts() {
        let (logs, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut first = Files::open(&config(logs.path()), state.path()).unwrap();
        // Two entries of the same time, as the parts of a long line.
        for (second, text) in [(1, "a"), (2, "b"), (2, "c")] {
            first.write(&entry(second, text));
        }
        first.save();
        // Written, but not in the checkpoint: the agent dies.
        first.write(&entry(3, "d"));
        drop(first);
        let mut second = Files::open(&config(logs.path()), state.path()).unwrap();
        assert!(second.since() > 1_700_000_000);
        for (time, text) in [(2, "b"), (2, "c"), (2, "x"), (3, "d"), (4, "e")] {
            second.write(&entry(time, text));
        }
        second.save();
        // The engine restarts: the connection repeats entries.
        second.connected();
        for (time, text) in [(4, "e"), (5, "f")] {
            second.write(&entry(time, text));
        }
        let written = std::fs::read_to_string(logs.path().join("t.stdout.0")).unwrap();
        assert_eq!(written, "a\nb\nc\nx\nd\ne\nf\n");
    }

    #[tokio::test]
    async fn podmans_file_follows_the_entries_of_an_earlier_agent() {
        let (logs, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut first = Files::open(&config(logs.path()), state.path()).unwrap();
        first.write(&entry(1, "a"));
        // An agent that read from the engine stored only the outputs.
        let old = serde_json::to_vec(&first.progress.outputs).unwrap();
        drop(first);
        std::fs::write(state.path().join(CHECKPOINT), old).unwrap();
        let path = state.path().join("ctr.log");
        let line = |second: u32, text: &str| format!("2026-01-01T00:00:{second:02}.5Z stdout F {text}\n");
        std::fs::write(&path, line(1, "a") + &line(1, "b")).unwrap();
        let read = |more: &str| {
            let mut files = Files::open(&config(logs.path()), state.path()).unwrap();
            let mut log = CtrLog::open(&path).unwrap();
            files.opened(&mut log).unwrap();
            let mut buffer = vec![0; READ_SIZE];
            while log.read(&mut buffer, |entry| files.write_entry(entry)).unwrap() {}
            files.progress.position = log.position();
            files.save();
            assert_eq!(std::fs::read_to_string(logs.path().join("t.stdout.0")).unwrap(), more);
        };
        read("a\nb\n");
        // The same file, whose clock stepped back, and then another file that repeats entries.
        std::fs::write(&path, line(1, "a") + &line(1, "b") + &line(0, "c") + &line(2, "d")).unwrap();
        read("a\nb\nc\nd\n");
        std::fs::write(&path, line(2, "d") + &line(3, "e")).unwrap();
        read("a\nb\nc\nd\ne\n");
    }

    #[test]
    fn a_new_run_continues_the_files() {
        let (logs, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut files = Files::open(&config(logs.path()), state.path()).unwrap();
        files.write(&entry(1, "first"));
        files.save();
        drop(files);
        clear(state.path());
        let mut files = Files::open(&config(logs.path()), state.path()).unwrap();
        assert_eq!(files.since(), 0);
        files.write(&entry(0, "second"));
        let written = std::fs::read_to_string(logs.path().join("t.stdout.0")).unwrap();
        assert_eq!(written, "first\nsecond\n");
    }
}
