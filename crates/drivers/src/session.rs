//! A program run beside a task that its caller talks to while it runs.

use crate::Result;
use tokio::sync::mpsc;

/// Messages that wait for a slow reader in each direction.
pub(crate) const QUEUE: usize = 16;

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExecRequest {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Give it a terminal, on which its errors are written too.
    pub tty: bool,
}

/// What the caller sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecInput {
    /// Bytes of its standard input.
    Data(Vec<u8>),
    /// Its standard input ends.
    Close,
    /// A new size of its terminal.
    Resize {
        /// Lines.
        rows: u16,
        /// Characters of a line.
        columns: u16,
    },
}

/// What the program does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEvent {
    /// It writes to its standard output.
    Stdout(Vec<u8>),
    /// It writes to its standard error.
    Stderr(Vec<u8>),
    /// It writes nothing more to its standard output.
    StdoutClosed,
    /// It writes nothing more to its standard error.
    StderrClosed,
    /// It ended; 128 and the signal's number when a signal ended it. Nothing follows.
    Exited(i32),
}

/// Both directions. Dropping the output ends the program; dropping the input changes nothing.
#[derive(Debug)]
pub struct ExecStream {
    /// To the program.
    pub input: mpsc::Sender<ExecInput>,
    /// From the program; an error is the last item.
    pub output: mpsc::Receiver<Result<ExecEvent>>,
}
