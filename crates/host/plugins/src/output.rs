//! The output of plugins: two named pipes per plugin (fifo(7)), whose lines go to the agent's log.
//!
//! A plugin outlives a crash of the agent. The plugin therefore opens its pipes for reading too. Without a reader,
//! SIGPIPE would end the plugin at its next line of log, and its records of tasks would be lost.

use crate::PluginError;
use caravan_sys::dir::{Dir, Kind, Mounts};
use rustix::fs::{FileType, Mode, OFlags};
use serde_json::{Map, Value};
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::watch;

/// The longest line in bytes that is read as one; the rest of a longer line is another line.
const MAX_LINE: u64 = 64 * 1024;
/// The size of a pipe's buffer in bytes: the log lines that a plugin can write while no agent runs.
const PIPE_BYTES: usize = 1024 * 1024;

/// Opens the pipe `name` in `dir`, and creates a missing pipe.
pub(crate) fn open(dir: &Dir, name: &str) -> Result<File, PluginError> {
    let os_name = OsStr::new(name);
    if dir.kind(os_name)?.is_some_and(|kind| kind != Kind::Other) {
        return Err(PluginError::Io {
            what: "create a pipe",
            source: std::io::ErrorKind::AlreadyExists.into(),
        });
    }
    let create = || {
        let below = rustix::fs::open(
            dir.proc_path(),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        match rustix::fs::mknodat(&below, name, FileType::Fifo, Mode::from_raw_mode(0o600), 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(&below, name, flags, Mode::empty())
    };
    let pipe = create().map_err(std::io::Error::from).map_err(PluginError::io("create a pipe"))?;
    let _smaller_serves_too = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE_BYTES);
    Ok(File::from(pipe))
}

/// Opens the pipe as the plugin's standard output or error: blocking, for reading and writing.
pub(crate) fn for_plugin(dir: &Dir, name: &str) -> Result<File, PluginError> {
    let handle = dir.handle(Path::new(name), Mounts::Refuse)?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(handle.proc_path(), flags, Mode::empty())
        .map(File::from)
        .map_err(std::io::Error::from)
        .map_err(PluginError::io("open a pipe"))
}

/// The lines of a pipe.
#[derive(Debug)]
pub(crate) struct Lines(BufReader<pipe::Receiver>);

impl Lines {
    /// Reads lines from a pipe that [`open`] returned.
    pub(crate) fn new(pipe: File) -> Result<Self, PluginError> {
        let receiver =
            pipe::Receiver::from_owned_fd_unchecked(pipe.into()).map_err(PluginError::io("read a pipe"))?;
        Ok(Self(BufReader::new(receiver)))
    }

    /// Returns the next line without its end. Waits until a line arrives, without a timeout.
    pub(crate) async fn next(&mut self) -> std::io::Result<String> {
        let mut line = Vec::new();
        (&mut self.0).take(MAX_LINE).read_until(b'\n', &mut line).await?;
        while line.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            line.pop();
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }
}

/// The last line that a plugin wrote to its standard error.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastLine(watch::Sender<String>);

impl LastLine {
    /// Returns the line; empty before the first line.
    pub(crate) fn get(&self) -> String {
        self.0.borrow().clone()
    }

    /// Waits until a line exists.
    pub(crate) async fn some(&self) {
        let mut lines = self.0.subscribe();
        let _sender_lives = lines.wait_for(|line| !line.is_empty()).await;
    }
}

/// Copies the lines of a plugin's standard error to the agent's log, forever.
pub(crate) async fn copy_log(plugin: String, mut lines: Lines, last: LastLine) {
    let mut panicking = false;
    loop {
        let line = match lines.next().await {
            Ok(line) => line,
            Err(error) => {
                tracing::warn!(plugin, %error, "the log of a plugin cannot be read");
                return;
            }
        };
        if line.is_empty() {
            continue;
        }
        panicking |= line.starts_with("panic: ") || line.starts_with("fatal error: ");
        let record = Record::read(&line);
        let level = record.as_ref().map_or(if panicking { Level::Error } else { Level::Debug }, |r| r.level);
        last.0.send_replace(record.as_ref().map_or_else(|| line.clone(), |r| r.message.clone()));
        match record {
            Some(Record { message, fields, .. }) => level.log(&plugin, &message, &fields),
            None => level.log(&plugin, &line, ""),
        }
    }
}

/// The level of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    fn read(text: &str) -> Self {
        match text {
            "trace" => Self::Trace,
            "info" => Self::Info,
            "warn" => Self::Warn,
            "error" => Self::Error,
            _ => Self::Debug,
        }
    }

    fn log(self, plugin: &str, line: &str, fields: &str) {
        match self {
            Self::Trace => tracing::trace!(plugin, fields, "plugin: {line}"),
            Self::Debug => tracing::debug!(plugin, fields, "plugin: {line}"),
            Self::Info => tracing::info!(plugin, fields, "plugin: {line}"),
            Self::Warn => tracing::warn!(plugin, fields, "plugin: {line}"),
            Self::Error => tracing::error!(plugin, fields, "plugin: {line}"),
        }
    }
}

/// A line of hclog's JSON format.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    level: Level,
    message: String,
    /// The other keys, as `key=value`.
    fields: String,
}

impl Record {
    fn read(line: &str) -> Option<Self> {
        let mut map: Map<String, Value> = serde_json::from_str(line).ok()?;
        let mut take = |key: &str| map.remove(key).and_then(|value| value.as_str().map(str::to_owned));
        let message = take("@message")?;
        let level = Level::read(&take("@level")?);
        let _superseded_by_our_own = take("@timestamp");
        let fields: Vec<String> = map.iter().map(|(key, value)| format!("{key}={value}")).collect();
        Some(Self { level, message, fields: fields.join(" ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_hclog_are_read() {
        let line = r#"{"@level":"warn","@message":"slow","@module":"x","@timestamp":"now","ms":12}"#;
        let read = Record::read(line).expect("a record");
        assert_eq!((read.level, read.message.as_str()), (Level::Warn, "slow"));
        assert_eq!(read.fields, r#"@module="x" ms=12"#);
        assert_eq!(Record::read("plain text"), None);
        assert_eq!(Record::read(r#"{"message":"other"}"#), None);
    }

    #[tokio::test]
    async fn a_pipe_keeps_what_is_written_without_a_reader() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = Dir::open(dir.path()).expect("open");
        let agent = open(&dir, "stderr").expect("the agent's end");
        let mut plugin = for_plugin(&dir, "stderr").expect("the plugin's end");
        drop(agent);
        use std::io::Write;
        plugin.write_all(b"one\ntwo\r\n").expect("no broken pipe");
        let mut lines = Lines::new(open(&dir, "stderr").expect("again")).expect("lines");
        assert_eq!(lines.next().await.expect("a line"), "one");
        assert_eq!(lines.next().await.expect("a line"), "two");
    }
}
