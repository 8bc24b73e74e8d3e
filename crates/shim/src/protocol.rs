//! Messages between agent and shim: each a length (four bytes, big endian) and MessagePack with named fields.
//!
//! Three conversations: the specification on standard input ([`Opening`], [`crate::TaskSpec`]), one
//! [`StartReport`] on standard output, and any number of connections to the control socket, each beginning with
//! [`Opening`] from the client and [`Reply::Welcome`] from the shim, then [`Request`]s and [`Reply`]s in order.

use std::io::Read;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::record::ExitRecord;
use crate::{Error, Result};

/// The version of everything after [`Opening`].
pub const VERSION: u32 = 1;

/// No message is longer, so that a broken peer cannot have us allocate without bound.
pub const MAX_MESSAGE: usize = 16 << 20;

/// The first message of each conversation. Its shape never changes, in no version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// The version that the sender speaks.
    pub version: u32,
}

/// A process that can be told from a later one with its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessRef {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start_time: u64,
}

/// How the start went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartReport {
    /// The program was executed.
    Started(Started),
    /// It was not; the shim ends.
    Failed {
        /// One sentence why.
        message: String,
    },
}

/// A started task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The shim.
    pub shim: ProcessRef,
    /// The task's first process, by its id on the host.
    pub task: ProcessRef,
    /// When it was started, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// What could not be had and is done without, a sentence each.
    pub degraded: Vec<String>,
}

/// What a client may ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Answered with [`Reply::Status`].
    Status,
    /// Answered with [`Reply::Exited`] when the task has ended, which may take long; other requests on the same
    /// connection are answered meanwhile.
    Wait,
    /// Sends a signal to the task's first process. Answered with [`Reply::Done`].
    Signal {
        /// Number.
        signal: i32,
    },
    /// Sends a signal, and kills everything of the task that is left after a while. Answered with
    /// [`Reply::Exited`] when nothing is left.
    Stop {
        /// Number.
        signal: i32,
        /// Milliseconds from signal to kill.
        timeout_ms: u64,
    },
    /// Answered with [`Reply::Usage`].
    Usage,
    /// Runs another program in the task's surroundings. Answered with any number of [`Reply::Output`], then
    /// [`Reply::ExecExited`]; one at a time on a connection. Closing the connection kills the program.
    Exec {
        /// Program and arguments.
        command: Vec<String>,
        /// Give it a terminal, on which its errors are written too.
        #[serde(default)]
        tty: bool,
    },
    /// A new size of the running program's terminal. Answered by nothing.
    Resize {
        /// Lines.
        rows: u16,
        /// Characters of a line.
        columns: u16,
    },
    /// Input for the running program; an empty one closes it.
    Input {
        /// The bytes.
        #[serde(with = "bytes")]
        data: Vec<u8>,
    },
}

/// What the shim answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The first answer on a connection.
    Welcome {
        /// Task id of the specification.
        task_id: String,
        /// The shim.
        shim: ProcessRef,
        /// The task's first process.
        task: ProcessRef,
    },
    /// Answer to [`Request::Status`].
    Status {
        /// Whether the task's first process runs.
        running: bool,
    },
    /// The request was carried out.
    Done,
    /// The request could not be carried out.
    Failed {
        /// One sentence why.
        message: String,
    },
    /// The task has ended and nothing of it is left.
    Exited(ExitRecord),
    /// Answer to [`Request::Usage`].
    Usage(UsageReport),
    /// Output of a program run with [`Request::Exec`].
    Output {
        /// Whether it is the standard error.
        stderr: bool,
        /// The bytes.
        #[serde(with = "bytes")]
        data: Vec<u8>,
    },
    /// The program run with [`Request::Exec`] writes nothing more there. Shims of earlier versions do not say so.
    OutputClosed {
        /// Whether it is the standard error.
        stderr: bool,
    },
    /// The end of a program run with [`Request::Exec`].
    ExecExited {
        /// Exit code, 0 when a signal ended it.
        exit_code: i32,
        /// Signal, 0 when it exited.
        signal: i32,
    },
}

/// What a process of a task uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessReport {
    /// Process id, as the host sees it.
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

/// What a task has used, from its control group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UsageReport {
    /// CPU time in nanoseconds.
    pub cpu_total_ns: u64,
    /// CPU time in user mode in nanoseconds.
    pub cpu_user_ns: u64,
    /// CPU time in the kernel in nanoseconds.
    pub cpu_system_ns: u64,
    /// Periods in which it was throttled.
    pub throttled_periods: u64,
    /// Time that it was throttled, in nanoseconds.
    pub throttled_ns: u64,
    /// Memory charged, in bytes.
    pub memory: u64,
    /// The most memory charged, in bytes.
    pub memory_peak: u64,
    /// Anonymous memory in bytes.
    pub rss: u64,
    /// Page cache in bytes.
    pub cache: u64,
    /// Swap in bytes.
    pub swap: u64,
    /// Processes and threads.
    pub pids: u64,
    /// When it was measured, in nanoseconds of the boot clock; two measurements give the share of a CPU.
    pub boot_time_ns: u64,
    /// The same of its processes, as far as the kernel counts it for single ones; shims of earlier versions tell none.
    #[serde(default)]
    pub processes: Vec<ProcessReport>,
}

/// A message ready to be sent.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    rmp_serde::encode::write_named(&mut frame, message).map_err(|e| Error::Message(e.to_string()))?;
    let length = frame.len() - 4;
    let header =
        u32::try_from(length).ok().filter(|_| length <= MAX_MESSAGE).ok_or(Error::TooLong(length))?;
    frame[..4].copy_from_slice(&header.to_be_bytes());
    Ok(frame)
}

/// Reads one message, waiting for it.
pub fn read_message<T: DeserializeOwned>(input: &mut impl Read) -> Result<T> {
    let failed = |source| Error::Io { doing: "read a message", source };
    let mut header = [0; 4];
    input.read_exact(&mut header).map_err(failed)?;
    let length = length_of(header)?;
    let mut body = vec![0; length];
    input.read_exact(&mut body).map_err(failed)?;
    decode(&body)
}

/// Bytes as they arrive, cut into messages.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
}

impl FrameBuffer {
    /// Adds what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next whole message.
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

/// Bytes as MessagePack `bin`, not as an array of numbers.
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
        // A map with one entry, "version": what any version of either side reads.
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
