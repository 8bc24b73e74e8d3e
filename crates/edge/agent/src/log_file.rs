//! The agent's log as a file (`log_file` of the configuration), rotated by size and age.

use crate::error::AgentError;
use caravan_hcl::config::AgentConfig;
use caravan_sys::time::wall_now;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The name of the file if the configuration names only a directory.
const NAME: &str = "caravan.log";
/// The default age at which a file is rotated.
const AGE: Duration = Duration::from_secs(24 * 3600);

/// The path of the log and its rotation rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogFileSettings {
    /// The path of the current file.
    pub(crate) path: PathBuf,
    /// The age at which the file is rotated.
    pub(crate) age: Duration,
    /// The size in bytes at which the file is rotated; 0 means never.
    pub(crate) bytes: u64,
    /// The number of old files to keep; 0 keeps all, a negative number none.
    pub(crate) keep: i64,
}

impl LogFileSettings {
    /// Reads the configuration; returns `None` without a log file.
    pub(crate) fn from_config(file: &AgentConfig) -> Result<Option<Self>, AgentError> {
        let Some(text) = file.log_file.as_deref().filter(|path| !path.is_empty()) else { return Ok(None) };
        let mut path = PathBuf::from(text);
        if text.ends_with('/') || path.is_dir() {
            path.push(NAME);
        }
        let bytes = file.log_rotate_bytes.unwrap_or(0);
        let bytes = u64::try_from(bytes).map_err(|_| AgentError::Setting {
            field: "log_rotate_bytes",
            reason: format!("{bytes} is below 0, which stands for no limit"),
        })?;
        let age = file.log_rotate_duration.map(caravan_types::Nanos::to_std).filter(|age| !age.is_zero());
        let keep = file.log_rotate_max_files.unwrap_or(0);
        Ok(Some(Self { path, age: age.unwrap_or(AGE), bytes, keep }))
    }

    fn is_due(&self, bytes: u64, age: Duration) -> bool {
        bytes > 0 && (age >= self.age || (self.bytes > 0 && bytes >= self.bytes))
    }
}

/// An open log file.
#[derive(Debug)]
pub(crate) struct LogFile {
    settings: LogFileSettings,
    file: File,
    bytes: u64,
    begun: SystemTime,
}

impl LogFile {
    /// Opens the file and appends to its content.
    pub(crate) fn open(settings: LogFileSettings) -> Result<Self, AgentError> {
        let failed = |source: io::Error| AgentError::Setting {
            field: "log_file",
            reason: format!("{} cannot be written: {source}", settings.path.display()),
        };
        if let Some(dir) = settings.path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            std::fs::create_dir_all(dir).map_err(failed)?;
        }
        let file = open(&settings.path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        Ok(Self { settings, file, bytes, begun: wall_now() })
    }

    /// Rotates the file. If the rotation fails, writing continues in the old file, because a log must not stop the
    /// agent.
    fn turn(&mut self, now: SystemTime) -> io::Result<()> {
        let stamp = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let path = &self.settings.path;
        match std::fs::rename(path, aside(path, &stamp.to_string())) {
            // An earlier rotation moved the file, and could not open the next one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            moved => moved?,
        }
        self.file = open(path)?;
        (self.bytes, self.begun) = (0, now);
        self.remove_oldest()
    }

    /// Removes the oldest files beyond the number to keep.
    fn remove_oldest(&self) -> io::Result<()> {
        if self.settings.keep == 0 {
            return Ok(());
        }
        let keep = usize::try_from(self.settings.keep).unwrap_or(0);
        let old = old_files(&self.settings.path)?;
        let over = old.len().saturating_sub(keep);
        old.into_iter().take(over).try_for_each(std::fs::remove_file)
    }
}

impl Write for LogFile {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let now = wall_now();
        let age = now.duration_since(self.begun).unwrap_or_default();
        if self.settings.is_due(self.bytes, age) {
            let _goes_on = self.turn(now);
        }
        let written = self.file.write(text)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Returns the path of a rotated file: `agent.log` with the stamp 7 is `agent-7.log`.
fn aside(path: &Path, stamp: &str) -> PathBuf {
    let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, extension) = (part(path.file_stem()), part(path.extension()));
    let dot = if extension.is_empty() { "" } else { "." };
    path.with_file_name(format!("{stem}-{stamp}{dot}{extension}"))
}

/// Returns the rotated files, oldest first.
fn old_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let stamp = |file: &Path| -> Option<u128> {
        let name = file.file_name()?.to_str()?;
        let pattern = aside(path, "*");
        let (before, after) = pattern.file_name()?.to_str()?.split_once('*')?;
        name.strip_prefix(before)?.strip_suffix(after)?.parse().ok()
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let file = entry?.path();
        found.extend(stamp(&file).map(|stamp| (stamp, file)));
    }
    found.sort();
    Ok(found.into_iter().map(|(_, file)| file).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(path: PathBuf, bytes: u64, keep: i64) -> LogFileSettings {
        LogFileSettings { path, age: AGE, bytes, keep }
    }

    #[test]
    fn a_new_file_begins_by_size_or_age() {
        let by_size = settings(PathBuf::new(), 10, 0);
        assert!(by_size.is_due(10, Duration::ZERO) && !by_size.is_due(9, Duration::ZERO));
        assert!(by_size.is_due(1, AGE) && !by_size.is_due(0, AGE), "an empty one goes on");
        assert!(!settings(PathBuf::new(), 0, 0).is_due(u64::MAX, Duration::ZERO));
    }

    #[test]
    fn old_files_are_rotated_and_the_oldest_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/agent.log");
        let mut log = LogFile::open(settings(path.clone(), 4, 2)).unwrap();
        for line in ["one\n", "two\n", "three\n", "four\n", "five\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!(read(&path), "five\n");
        let old: Vec<String> = old_files(&path).unwrap().iter().map(|path| read(path)).collect();
        assert_eq!(old, ["three\n", "four\n"]);
        std::fs::write(path.with_file_name("agent-x.log"), "someone's").unwrap();
        assert_eq!(old_files(&path).unwrap().len(), 2, "others' files are left alone");
        drop(log);
        let mut log = LogFile::open(settings(path.clone(), 100, 2)).unwrap();
        log.write_all(b"six\n").unwrap();
        assert_eq!(read(&path), "five\nsix\n");
        drop(log);

        let mut log = LogFile::open(settings(path.clone(), 4, 2)).unwrap();
        std::fs::remove_file(&path).unwrap();
        log.write_all(b"seven\n").unwrap();
        assert_eq!(read(&path), "seven\n", "a file that does not exist is created again");
    }

    #[test]
    fn a_directory_gets_a_file_of_the_usual_name() {
        let file = |path: &str| AgentConfig { log_file: Some(path.into()), ..AgentConfig::default() };
        let read = LogFileSettings::from_config(&file("/var/log/x/")).unwrap().unwrap();
        assert_eq!(read.path, Path::new("/var/log/x/caravan.log"));
        assert_eq!(LogFileSettings::from_config(&file("")).unwrap(), None);
        let wrong = AgentConfig { log_rotate_bytes: Some(-1), ..file("/x") };
        assert!(LogFileSettings::from_config(&wrong).unwrap_err().to_string().contains("log_rotate_bytes"));
    }
}
