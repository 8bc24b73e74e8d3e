//! Messages between agent and shim: each is a length (four bytes, big endian) and MessagePack with named fields.
//!
//! There are three conversations. The agent sends the specification to the shim's standard input ([`Opening`],
//! [`crate::TaskSpec`]). The shim writes one [`StartReport`] to its standard output. Clients open any number of
//! connections to the control socket. Each begins with [`Opening`] from the client and [`Reply::Welcome`] from the
//! shim; [`Request`]s and [`Reply`]s follow in order.

use crate::record::ExitRecord;
use crate::{Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::Read;

/// The version of all messages after [`Opening`].
pub const VERSION: u32 = 1;

/// Maximum length of a message in bytes, so that a faulty peer cannot cause an unbounded allocation.
pub const MAX_MESSAGE: usize = 16 << 20;

/// The first message of each conversation. All versions have the same format of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// The sender's version of the protocol.
    pub version: u32,
}

/// The identity of a process, which distinguishes it from a later process with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessRef {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start_time: u64,
}

/// The result of a start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartReport {
    /// The program was executed.
    Started(Started),
    /// The program was not executed; the shim exits.
    Failed {
        /// The reason, as one sentence.
        message: String,
    },
}

/// A started task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The shim's process.
    pub shim: ProcessRef,
    /// The task's first process, by its id on the host.
    pub task: ProcessRef,
    /// Time of the start, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// The settings that could not be applied to the task, one sentence each.
    pub degraded: Vec<String>,
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Requests the task's state; answered with [`Reply::Status`].
    Status,
    /// Waits for the task's end; answered with [`Reply::Exited`]. This may take long, so other requests on the same
    /// connection are answered meanwhile.
    Wait,
    /// Sends a signal to the task's first process. Answered with [`Reply::Done`].
    Signal {
        /// Number of the signal.
        signal: i32,
    },
    /// Sends a signal, and kills all remaining processes of the task after a timeout. Answered with [`Reply::Exited`]
    /// when no process of the task remains.
    Stop {
        /// Number of the signal.
        signal: i32,
        /// Milliseconds from signal to kill.
        timeout_ms: u64,
    },
    /// Requests the task's usage of resources; answered with [`Reply::Usage`].
    Usage,
    /// Runs another program in the task's environment. Answered with any number of [`Reply::Output`], then
    /// [`Reply::ExecExited`]; one at a time on a connection. Closing the connection kills the program.
    Exec {
        /// Program and arguments.
        command: Vec<String>,
        /// Whether the program gets a terminal. Its standard error is then part of its standard output.
        #[serde(default)]
        tty: bool,
    },
    /// Sets the size of the running program's terminal. Not answered.
    Resize {
        /// Lines.
        rows: u16,
        /// Characters of a line.
        columns: u16,
    },
    /// Sends input to the running program; empty data closes its input.
    Input {
        /// The bytes of input.
        #[serde(with = "bytes")]
        data: Vec<u8>,
    },
}

/// A reply of the shim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The first reply on a connection.
    Welcome {
        /// The task's id from the specification.
        task_id: String,
        /// The shim's process.
        shim: ProcessRef,
        /// The task's first process.
        task: ProcessRef,
    },
    /// Answers [`Request::Status`].
    Status {
        /// Whether the task's first process is running.
        running: bool,
    },
    /// The request was carried out.
    Done,
    /// The request could not be carried out.
    Failed {
        /// The reason, as one sentence.
        message: String,
    },
    /// The task has ended, and no process of it remains.
    Exited(ExitRecord),
    /// Answers [`Request::Usage`].
    Usage(UsageReport),
    /// Output of a program run with [`Request::Exec`].
    Output {
        /// Whether this is standard error, not standard output.
        stderr: bool,
        /// The bytes of output.
        #[serde(with = "bytes")]
        data: Vec<u8>,
    },
    /// The end of one output of a program run with [`Request::Exec`]. Shims of earlier versions do not send it.
    OutputClosed {
        /// Whether this is standard error, not standard output.
        stderr: bool,
    },
    /// The end of a program run with [`Request::Exec`].
    ExecExited {
        /// Exit code; 0 if a signal ended it.
        exit_code: i32,
        /// Number of the signal; 0 if it exited.
        signal: i32,
    },
}

/// Resources that one process of a task uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessReport {
    /// Process id in the host's namespace.
    pub pid: u32,
    /// CPU time in user mode in nanoseconds.
    pub cpu_user_ns: u64,
    /// CPU time in the kernel in nanoseconds.
    pub cpu_system_ns: u64,
    /// Resident memory in bytes.
    pub rss: u64,
    /// Swap in bytes.
    pub swap: u64,
}

/// Resources that a task uses and has used, from its control group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageReport {
    /// CPU time in nanoseconds.
    pub cpu_total_ns: u64,
    /// CPU time in user mode in nanoseconds.
    pub cpu_user_ns: u64,
    /// CPU time in the kernel in nanoseconds.
    pub cpu_system_ns: u64,
    /// Number of scheduler periods in which the task was throttled.
    pub throttled_periods: u64,
    /// Total time of throttling, in nanoseconds.
    pub throttled_ns: u64,
    /// Memory charged now, in bytes.
    pub memory: u64,
    /// Peak of the memory charged, in bytes.
    pub memory_peak: u64,
    /// Anonymous memory in bytes.
    pub rss: u64,
    /// Page cache in bytes.
    pub cache: u64,
    /// Swap in bytes.
    pub swap: u64,
    /// Number of processes and threads.
    pub pids: u64,
    /// Time of the measurement, in nanoseconds of the boot clock. Two measurements give the share of a CPU.
    pub boot_time_ns: u64,
    /// Use of each process, as far as the kernel counts it by process. Shims of earlier versions do not send it.
    #[serde(default)]
    pub processes: Vec<ProcessReport>,
    /// The share of time in which processes wait for resources. Shims of earlier versions do not send it.
    #[serde(default)]
    pub pressure: PressureReport,
}

/// The pressure of a task. A resource is absent if the kernel does not measure it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PressureReport {
    /// Waiting for a processor.
    pub cpu: Option<StallReport>,
    /// Waiting for memory.
    pub memory: Option<StallReport>,
    /// Waiting for input and output.
    pub io: Option<StallReport>,
}

/// The time in which processes wait for one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StallReport {
    /// Percentage of the last 10 seconds in which at least one process waited.
    pub some_avg10: f64,
    /// Percentage of the last 10 seconds in which all processes waited.
    pub full_avg10: f64,
    /// Time in which at least one process waited, in microseconds.
    pub some_total_us: u64,
    /// Time in which all processes waited, in microseconds.
    pub full_total_us: u64,
}

impl From<caravan_sys::cgroup::Pressure> for PressureReport {
    fn from(pressure: caravan_sys::cgroup::Pressure) -> Self {
        let report = |stall: caravan_sys::cgroup::Stall| StallReport {
            some_avg10: stall.some_avg10,
            full_avg10: stall.full_avg10,
            some_total_us: stall.some_total_us,
            full_total_us: stall.full_total_us,
        };
        Self {
            cpu: pressure.cpu.map(report),
            memory: pressure.memory.map(report),
            io: pressure.io.map(report),
        }
    }
}

/// Encodes a message with its length.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    rmp_serde::encode::write_named(&mut frame, message).map_err(|e| Error::Message(e.to_string()))?;
    let length = frame.len() - 4;
    let header =
        u32::try_from(length).ok().filter(|_| length <= MAX_MESSAGE).ok_or(Error::TooLong(length))?;
    frame[..4].copy_from_slice(&header.to_be_bytes());
    Ok(frame)
}

/// Reads one message; blocks until it is complete.
pub fn read_message<T: DeserializeOwned>(input: &mut impl Read) -> Result<T> {
    let failed = |source| Error::Io { doing: "read a message", source };
    let mut header = [0; 4];
    input.read_exact(&mut header).map_err(failed)?;
    let length = length_of(header)?;
    let mut body = vec![0; length];
    input.read_exact(&mut body).map_err(failed)?;
    decode(&body)
}

/// Collects received bytes and splits them into messages.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
}

impl FrameBuffer {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next complete message, if there is one.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let Some(header) = self.bytes.first_chunk::<4>() else { return Ok(None) };
        let length = length_of(*header)?;
        let Some(body) = self.bytes.get(4..4 + length) else { return Ok(None) };
        let message = decode(body)?;
        self.bytes.drain(..4 + length);
        Ok(Some(message))
    }
}

fn length_of(header: [u8; 4]) -> Result<usize> {
    let length = usize::try_from(u32::from_be_bytes(header)).map_err(|_| Error::TooLong(usize::MAX))?;
    if length > MAX_MESSAGE { Err(Error::TooLong(length)) } else { Ok(length) }
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    rmp_serde::from_slice(body).map_err(|e| Error::Message(e.to_string()))
}

/// Serializes bytes as MessagePack `bin`, not as an array of numbers.
mod bytes {
    use serde::{Deserializer, Serializer, de};
    use std::fmt;

    pub(super) fn serialize<S: Serializer>(data: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(data)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        struct Bytes;
        impl de::Visitor<'_> for Bytes {
            type Value = Vec<u8>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }

            fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(bytes)
            }
        }
        deserializer.deserialize_byte_buf(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_arrive_whole_however_they_are_cut() {
        let sent = [
            Request::Wait,
            Request::Stop { signal: 15, timeout_ms: 5000 },
            Request::Input { data: vec![0, 255] },
        ];
        let bytes: Vec<u8> = sent.iter().flat_map(|m| encode(m).unwrap()).collect();
        for step in [1, 3, bytes.len()] {
            let mut buffer = FrameBuffer::default();
            let mut got = Vec::new();
            for piece in bytes.chunks(step) {
                buffer.push(piece);
                while let Some(message) = buffer.take::<Request>().unwrap() {
                    got.push(message);
                }
            }
            assert_eq!(got, sent);
        }
    }

    #[test]
    fn the_opening_never_changes() {
        // A map with one entry, "version", which every version of either side can read.
        assert_eq!(encode(&Opening { version: 1 }).unwrap(), b"\0\0\0\x0a\x81\xa7version\x01");
    }

    #[test]
    fn an_absurd_length_is_refused_before_anything_is_allocated() {
        let mut buffer = FrameBuffer::default();
        buffer.push(&[0xff; 4]);
        assert!(matches!(buffer.take::<Request>(), Err(Error::TooLong(_))));
        assert!(matches!(read_message::<Request>(&mut &[0xff_u8; 8][..]), Err(Error::TooLong(_))));
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_not_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut buffer = FrameBuffer::default();
            buffer.push(&bytes);
            let _ = buffer.take::<Request>();
        }
    }
}
