//! A program that runs next to a task and exchanges input and output with its caller.

use crate::Result;
use tokio::sync::mpsc;

/// Messages that may wait for a slow reader, in each direction.
pub(crate) const QUEUE: usize = 16;

/// A program to run in a task's environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecRequest {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Whether the program gets a terminal. Its standard error is then part of its standard output.
    pub tty: bool,
}

/// A message from the caller to the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecInput {
    /// Bytes for the program's standard input.
    Data(Vec<u8>),
    /// The end of the program's standard input.
    Close,
    /// A new size of the program's terminal.
    Resize {
        /// Lines.
        rows: u16,
        /// Characters of a line.
        columns: u16,
    },
}

/// A message from the program to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecEvent {
    /// Bytes from the program's standard output.
    Stdout(Vec<u8>),
    /// Bytes from the program's standard error.
    Stderr(Vec<u8>),
    /// The end of the program's standard output.
    StdoutClosed,
    /// The end of the program's standard error.
    StderrClosed,
    /// The program's exit code, or 128 plus the signal's number if a signal ended it. The last event.
    Exited(i32),
}

/// Both directions of the connection to the program. Dropping the output ends the program; dropping the input changes
/// nothing.
#[derive(Debug)]
pub struct ExecStream {
    /// Messages to the program.
    pub input: mpsc::Sender<ExecInput>,
    /// Events of the program; an error is the last item.
    pub output: mpsc::Receiver<Result<ExecEvent>>,
}
