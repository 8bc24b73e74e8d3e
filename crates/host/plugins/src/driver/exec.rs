//! Programs that run in a task's environment.

use super::calls::{Failed, call};
use crate::convert;
use crate::process::Process;
use caravan_drivers::{Error, ExecEvent, ExecInput, ExecOutput, ExecRequest, ExecStream, Result};
use caravan_proto::plugins::driver::{
    ExecTaskRequest, ExecTaskStreamingIoOperation as Io, ExecTaskStreamingRequest, ExecTaskStreamingResponse,
    ExitResult, exec_task_streaming_request as request,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// The number of messages that may wait for a slow reader, in each direction.
const QUEUE: usize = 16;
/// The additional time in which a program must end after its timeout.
const GRACE: Duration = Duration::from_secs(5);
/// A pause without end.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86400);
/// The timeout for output after the exit code.
const REST_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest output that is kept of a program, in bytes.
const MAX_OUTPUT: usize = 1 << 20;

/// Runs a program and collects its output.
pub(super) async fn collect(
    process: &Process,
    id: &str,
    command: &[String],
    limit: Duration,
) -> std::result::Result<ExecOutput, Failure> {
    let request = ExecTaskRequest {
        task_id: id.to_owned(),
        command: command.to_vec(),
        timeout: Some(convert::duration(limit)),
    };
    let mut client = super::client(process.channel());
    let begun = tokio::time::Instant::now();
    let answer = tokio::time::timeout(limit + GRACE, call(process, client.exec_task(request))).await;
    let answer = match answer {
        Err(_) => return Err(Failure::Late),
        // Plugins have no common error for a program that they ended at its timeout.
        Ok(Err(Failed::Refused(_))) if begun.elapsed() >= limit => return Err(Failure::Late),
        Ok(answer) => answer.map_err(Failure::Call)?,
    };
    let (mut stdout, mut stderr) = (answer.stdout, answer.stderr);
    stdout.truncate(MAX_OUTPUT);
    stderr.truncate(MAX_OUTPUT);
    Ok(ExecOutput { stdout, stderr, exit_code: exit_code(&answer.result.unwrap_or_default()) })
}

/// The reason that a program has no result.
#[derive(Debug)]
pub(super) enum Failure {
    Late,
    Call(Failed),
}

fn exit_code(result: &ExitResult) -> i32 {
    if result.signal != 0 && result.exit_code == 0 { 128 + result.signal } else { result.exit_code }
}

/// Runs a program and exchanges input and output with it.
pub(super) async fn stream(
    process: Arc<Process>,
    driver: &str,
    id: &str,
    asked: ExecRequest,
) -> std::result::Result<ExecStream, Failed> {
    let (to_plugin, requests) = mpsc::channel(QUEUE);
    let setup = request::Setup { task_id: id.to_owned(), command: asked.command, tty: asked.tty };
    let first = ExecTaskStreamingRequest { setup: Some(setup), ..Default::default() };
    // The queue is empty and its receiver exists.
    let _fits = to_plugin.try_send(first);
    let mut client = super::client(process.channel());
    let mut answers = call(&process, client.exec_task_streaming(ReceiverStream::new(requests))).await?;
    let (input, mut inputs) = mpsc::channel(QUEUE);
    let (events, output) = mpsc::channel(QUEUE);
    let forward = async move {
        while let Some(message) = inputs.recv().await {
            if to_plugin.send(encode(message)).await.is_err() {
                return;
            }
        }
        // Dropping the input changes nothing for the program: its stream stays open.
        to_plugin.closed().await;
    };
    let driver = driver.to_owned();
    let receive = async move {
        // Output may follow the exit code, which is the last event here.
        let mut exited = None;
        let deadline = tokio::time::sleep(FOREVER);
        tokio::pin!(deadline);
        loop {
            let message = tokio::select! {
                message = answers.message() => message,
                () = events.closed() => return,
                () = &mut deadline => Ok(None),
            };
            let decoded = match message {
                Ok(Some(message)) => decode(message),
                Ok(None) => break,
                Err(_) if exited.is_some() => break,
                Err(status) => {
                    let words = format!("driver {driver}: {}", crate::error::describe(&status));
                    let _gone = events.send(Err(Error::Refused(words))).await;
                    return;
                }
            };
            for event in decoded {
                if let ExecEvent::Exited(_) = event {
                    exited = Some(event);
                    deadline.as_mut().reset(tokio::time::Instant::now() + REST_TIMEOUT);
                } else if events.send(Ok(event)).await.is_err() {
                    return;
                }
            }
        }
        if let Some(exited) = exited {
            let _gone = events.send(Ok(exited)).await;
        }
    };
    tokio::spawn(async move {
        tokio::select! {
            () = receive => {}
            () = async { forward.await; std::future::pending::<()>().await } => {}
        }
    });
    Ok(ExecStream { input, output })
}

fn encode(input: ExecInput) -> ExecTaskStreamingRequest {
    let empty = ExecTaskStreamingRequest::default();
    match input {
        ExecInput::Data(data) => ExecTaskStreamingRequest { stdin: Some(Io { data, close: false }), ..empty },
        ExecInput::Close => {
            ExecTaskStreamingRequest { stdin: Some(Io { data: Vec::new(), close: true }), ..empty }
        }
        ExecInput::Resize { rows, columns } => {
            let size = request::TerminalSize { height: rows.into(), width: columns.into() };
            ExecTaskStreamingRequest { tty_size: Some(size), ..empty }
        }
    }
}

fn decode(message: ExecTaskStreamingResponse) -> Vec<ExecEvent> {
    let mut events = Vec::new();
    if let Some(io) = message.stdout {
        if !io.data.is_empty() {
            events.push(ExecEvent::Stdout(io.data));
        }
        if io.close {
            events.push(ExecEvent::StdoutClosed);
        }
    }
    if let Some(io) = message.stderr {
        if !io.data.is_empty() {
            events.push(ExecEvent::Stderr(io.data));
        }
        if io.close {
            events.push(ExecEvent::StderrClosed);
        }
    }
    if message.exited {
        events.push(ExecEvent::Exited(exit_code(&message.result.unwrap_or_default())));
    }
    events
}

/// Returns the error of a program that has no result.
pub(super) fn error(
    failure: Failure,
    limit: Duration,
    refused: impl FnOnce(Failed) -> Error,
) -> Result<ExecOutput> {
    Err(match failure {
        Failure::Late => Error::Timeout { what: "the program".into(), limit },
        Failure::Call(failed) => refused(failed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_message_may_hold_output_and_the_exit_code() {
        let message = ExecTaskStreamingResponse {
            stdout: Some(Io { data: b"x".to_vec(), close: true }),
            stderr: None,
            exited: true,
            result: Some(ExitResult { exit_code: 0, signal: 9, oom_killed: false }),
        };
        let events = [ExecEvent::Stdout(b"x".to_vec()), ExecEvent::StdoutClosed, ExecEvent::Exited(137)];
        assert_eq!(decode(message), events);
    }
}
