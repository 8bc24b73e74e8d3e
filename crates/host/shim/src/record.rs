//! The exit record, which a shim leaves on disk when its task has ended.

use crate::protocol::ProcessRef;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Name of the record's file in the shim's directory.
pub const RECORD_FILE: &str = "exit";

/// Name of the control socket in the shim's directory.
pub const SOCKET_FILE: &str = "control.sock";

/// The result of a task that ended. The shim writes it (to another name, then renamed) when no process of the task
/// remains and its logs are complete. A record counts only within one boot, so it is not synced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// Version of this format.
    pub version: u32,
    /// The task's id from the specification.
    pub task_id: String,
    /// The shim that ran the task, which distinguishes this run from other runs of the same task.
    pub shim: ProcessRef,
    /// The task's first process.
    pub task: ProcessRef,
    /// Exit code of the first process; 0 if a signal ended it.
    pub exit_code: i32,
    /// Number of the signal that ended it; 0 if it exited.
    pub signal: i32,
    /// Whether the kernel killed one of the task's processes for lack of memory.
    pub oom_killed: bool,
    /// The reason that the shim ended the task; absent if the task ended by itself or by request.
    pub reason: Option<String>,
    /// Whether the task was ended because the node's lease ran out ([`crate::lease`]).
    #[serde(default)]
    pub lease_passed: bool,
    /// Time at which the task's first process ended, in nanoseconds since 1970.
    pub finished_unix_ns: u64,
    /// Bytes of output that could not be written to the log files.
    pub lost_log_bytes: u64,
}

impl ExitRecord {
    /// Reads the record in a shim's directory; `None` if absent (the shim was killed, or is still running).
    pub fn read(state_dir: &Path) -> Result<Option<Self>> {
        let path = state_dir.join(RECORD_FILE);
        match std::fs::read(&path) {
            Ok(bytes) => rmp_serde::from_slice(&bytes).map(Some).map_err(|e| Error::Message(e.to_string())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::File { doing: "read", path, source }),
        }
    }

    pub(crate) fn write(&self, state_dir: &Path) -> Result<()> {
        let bytes = rmp_serde::to_vec_named(self).map_err(|e| Error::Message(e.to_string()))?;
        Ok(caravan_sys::files::atomic_write_until_restart(&state_dir.join(RECORD_FILE), &bytes, 0o600)?)
    }

    /// Removes the record of an earlier run.
    pub(crate) fn clear(state_dir: &Path) -> Result<()> {
        let path = state_dir.join(RECORD_FILE);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::File { doing: "remove", path, source })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(ExitRecord::read(dir.path()).unwrap(), None);
        let process = ProcessRef { pid: 1, start_time: 2 };
        let record = ExitRecord {
            version: 1,
            task_id: "a/b".into(),
            shim: process,
            task: process,
            exit_code: 3,
            signal: 0,
            oom_killed: true,
            reason: Some("why".into()),
            lease_passed: true,
            finished_unix_ns: 4,
            lost_log_bytes: 5,
        };
        record.write(dir.path()).unwrap();
        assert_eq!(ExitRecord::read(dir.path()).unwrap(), Some(record));
        ExitRecord::clear(dir.path()).unwrap();
        ExitRecord::clear(dir.path()).unwrap();
        assert_eq!(ExitRecord::read(dir.path()).unwrap(), None);
    }
}
