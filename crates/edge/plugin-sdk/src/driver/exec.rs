//! Commands that run next to a task.

use super::convert::exit;
use super::{DriverPlugin, ExitResult};
use crate::TaskError;
use caravan_proto::plugins::driver::{
    ExecTaskStreamingIoOperation as Operation, ExecTaskStreamingRequest as Request,
    ExecTaskStreamingResponse as Response,
};
use std::fmt;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

/// The number of messages that wait for a slow reader, in each direction.
const QUEUE: usize = 16;

/// The output of a command that has ended.
#[derive(Clone, PartialEq, Eq)]
pub struct ExecResult {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// The end of the command.
    pub exit: ExitResult,
}

impl fmt::Debug for ExecResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecResult").field("exit", &self.exit).finish_non_exhaustive()
    }
}

/// A command to run next to a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecRequest {
    /// The id of the task.
    pub task_id: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Whether the command has a terminal. Its standard error is then part of its standard output.
    pub tty: bool,
}

/// A message from the user to the command.
#[derive(Clone, PartialEq, Eq)]
pub enum ExecInput {
    /// Bytes for standard input.
    Data(Vec<u8>),
    /// The end of standard input.
    Close,
    /// The size of the terminal.
    Resize {
        /// The number of lines.
        rows: u16,
        /// The number of characters in a line.
        columns: u16,
    },
}

impl fmt::Debug for ExecInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(bytes) => write!(f, "Data({} bytes)", bytes.len()),
            Self::Close => f.write_str("Close"),
            Self::Resize { rows, columns } => write!(f, "Resize({rows}x{columns})"),
        }
    }
}

/// The output of a running command. Sending waits for a slow user.
#[derive(Clone, Debug)]
pub struct ExecOutput(mpsc::Sender<Result<Response, Status>>);

impl ExecOutput {
    /// Sends bytes of standard output. Returns whether the user is still connected.
    pub async fn stdout(&self, data: Vec<u8>) -> bool {
        let stdout = Some(Operation { data, close: false });
        self.send(Response { stdout, ..Response::default() }).await
    }

    /// Sends bytes of standard error. Returns whether the user is still connected.
    pub async fn stderr(&self, data: Vec<u8>) -> bool {
        let stderr = Some(Operation { data, close: false });
        self.send(Response { stderr, ..Response::default() }).await
    }

    async fn send(&self, response: Response) -> bool {
        self.0.send(Ok(response)).await.is_ok()
    }

    /// Sends the end of the output and the result, or the error.
    async fn finish(&self, result: Result<ExitResult, TaskError>) {
        let result = match result {
            Ok(result) => result,
            Err(error) => {
                // A user that has disconnected needs no answer.
                let _gone = self.0.send(Err(error.into_status())).await;
                return;
            }
        };
        let close = || Some(Operation { data: Vec::new(), close: true });
        let last = [
            Response { stdout: close(), ..Response::default() },
            Response { stderr: close(), ..Response::default() },
            Response { exited: true, result: Some(exit(&result)), ..Response::default() },
        ];
        for response in last {
            self.send(response).await;
        }
    }
}

/// Reads the first message, starts the command, and returns its output.
pub(super) async fn serve<P: DriverPlugin>(
    plugin: Arc<P>,
    mut requests: Streaming<Request>,
    cancel: CancellationToken,
) -> Result<mpsc::Receiver<Result<Response, Status>>, Status> {
    let first = requests.message().await?.ok_or_else(|| Status::invalid_argument("the stream is empty"))?;
    let Some(setup) = first.setup.clone() else {
        return Err(Status::invalid_argument("the first message does not name a task and a command"));
    };
    let request = ExecRequest { task_id: setup.task_id, command: setup.command, tty: setup.tty };
    let (input, inputs) = mpsc::channel(QUEUE);
    let (output, outputs) = mpsc::channel(QUEUE);
    let output = ExecOutput(output);
    tokio::spawn(async move {
        let reading = tokio::spawn(forward(first, requests, input));
        let result = tokio::select! {
            result = plugin.exec_task_streaming(request, inputs, output.clone()) => Some(result),
            () = output.0.closed() => None,
            () = cancel.cancelled() => Some(Err(TaskError::failed("the plugin ends"))),
        };
        reading.abort();
        if let Some(result) = result {
            output.finish(result).await;
        }
    });
    Ok(outputs)
}

/// Forwards the user's messages. The end of the stream ends the channel.
async fn forward(first: Request, mut requests: Streaming<Request>, input: mpsc::Sender<ExecInput>) {
    let mut next = Some(first);
    while let Some(request) = next {
        for message in inputs(request) {
            if input.send(message).await.is_err() {
                return;
            }
        }
        next = requests.message().await.ok().flatten();
    }
}

/// Returns the content of a message. An empty one only keeps the connection open.
fn inputs(request: Request) -> Vec<ExecInput> {
    let mut all = Vec::new();
    if let Some(size) = request.tty_size {
        // A terminal of another size than the user's is no reason to fail.
        let cells = |count: i32| u16::try_from(count).unwrap_or_default();
        all.push(ExecInput::Resize { rows: cells(size.height), columns: cells(size.width) });
    }
    if let Some(stdin) = request.stdin {
        if !stdin.data.is_empty() {
            all.push(ExecInput::Data(stdin.data));
        }
        if stdin.close {
            all.push(ExecInput::Close);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_proto::plugins::driver::exec_task_streaming_request::TerminalSize;

    #[test]
    fn one_message_may_say_several_things() {
        let request = Request {
            tty_size: Some(TerminalSize { height: 50, width: 70_000 }),
            stdin: Some(Operation { data: b"x".to_vec(), close: true }),
            ..Request::default()
        };
        let expected =
            [ExecInput::Resize { rows: 50, columns: 0 }, ExecInput::Data(b"x".to_vec()), ExecInput::Close];
        assert_eq!(inputs(request), expected);
        assert_eq!(inputs(Request::default()), []);
        assert_eq!(format!("{:?}", expected[1]), "Data(1 bytes)");
    }
}
