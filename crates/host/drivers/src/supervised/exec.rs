//! Programs that run next to a task under a shim, with input and output while they run.

use super::connection::Connection;
use super::{ShimTasks, unexpected};
use crate::session::{ExecEvent, ExecInput, ExecRequest, ExecStream, QUEUE};
use crate::task::TaskId;
use crate::{Error, Result};
use caravan_shim::protocol::{Reply, Request};
use tokio::sync::mpsc;

impl ShimTasks {
    pub(crate) async fn exec_stream(&self, id: &TaskId, request: ExecRequest) -> Result<ExecStream> {
        let task = self.running(id)?;
        let broken = |source| Error::Supervisor { id: id.clone(), source };
        let mut connection =
            Connection::open_to(&task.state.state_dir, task.state.shim).await.map_err(broken)?;
        let message = Request::Exec { command: request.command.clone(), tty: request.tty };
        connection.send(&message).await.map_err(broken)?;
        let (input, inputs) = mpsc::channel(QUEUE);
        let (outputs, output) = mpsc::channel(QUEUE);
        // Returns when the program has ended or the caller drops the stream; closing the connection ends the program.
        tokio::spawn(carry(id.clone(), request, connection, inputs, outputs));
        Ok(ExecStream { input, output })
    }
}

async fn carry(
    id: TaskId,
    request: ExecRequest,
    mut connection: Connection,
    mut inputs: mpsc::Receiver<ExecInput>,
    outputs: mpsc::Sender<Result<ExecEvent>>,
) {
    let mut listening = true;
    // For standard output and standard error: whether their end was reported.
    let mut closed = [false, request.tty];
    loop {
        tokio::select! {
            () = outputs.closed() => return,
            message = inputs.recv(), if listening => {
                let message = match message {
                    Some(ExecInput::Data(data)) if data.is_empty() => continue,
                    Some(ExecInput::Data(data)) => Request::Input { data },
                    Some(ExecInput::Close) => Request::Input { data: Vec::new() },
                    Some(ExecInput::Resize { rows, columns }) => Request::Resize { rows, columns },
                    None => {
                        listening = false;
                        continue;
                    }
                };
                // If the shim has ended, the next receive fails and reports it.
                if connection.send(&message).await.is_err() {
                    listening = false;
                }
            }
            reply = connection.receive::<Reply>() => {
                let events = match reply {
                    Ok(Reply::Output { stderr: false, data }) => vec![Ok(ExecEvent::Stdout(data))],
                    Ok(Reply::Output { stderr: true, data }) => vec![Ok(ExecEvent::Stderr(data))],
                    Ok(Reply::OutputClosed { stderr }) => close(&mut closed, stderr),
                    Ok(Reply::ExecExited { exit_code, signal }) => {
                        let mut events = close(&mut closed, true);
                        events.extend(close(&mut closed, false));
                        events.push(Ok(ExecEvent::Exited(if signal == 0 { exit_code } else { 128 + signal })));
                        events
                    }
                    Ok(Reply::Failed { message }) => vec![Err(Error::Refused(failure(&request, message)))],
                    Ok(other) => vec![Err(unexpected(&id, &other))],
                    Err(source) => vec![Err(Error::Supervisor { id: id.clone(), source })],
                };
                let over = events.iter().any(|e| matches!(e, Err(_) | Ok(ExecEvent::Exited(_))));
                for event in events {
                    if outputs.send(event).await.is_err() {
                        return;
                    }
                }
                if over {
                    return;
                }
            }
        }
    }
}

fn close(closed: &mut [bool; 2], stderr: bool) -> Vec<Result<ExecEvent>> {
    let event = if stderr { ExecEvent::StderrClosed } else { ExecEvent::StdoutClosed };
    let first = !std::mem::replace(&mut closed[usize::from(stderr)], true);
    first.then_some(Ok(event)).into_iter().collect()
}

/// Returns the reason that a program was not started. For the most common reason, uses Nomad's words, which its
/// clients recognize.
fn failure(request: &ExecRequest, message: String) -> String {
    let program = request.command.first().map_or("", String::as_str);
    if !message.contains("not found in the task's directory or PATH") {
        return message;
    }
    match program.starts_with('/') {
        true => format!("failed to start command: fork/exec {program}: no such file or directory"),
        false => format!("failed to start command: exec: \"{program}\": executable file not found in $PATH"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_output_is_told_once() {
        let mut closed = [false, false];
        assert!(matches!(close(&mut closed, true)[..], [Ok(ExecEvent::StderrClosed)]));
        assert!(close(&mut closed, true).is_empty());
        assert!(matches!(close(&mut closed, false)[..], [Ok(ExecEvent::StdoutClosed)]));
    }

    #[test]
    fn a_missing_program_is_said_in_known_words() {
        let request = |program: &str| ExecRequest { command: vec![program.to_owned()], tty: false };
        let message = "executable file \"x\" not found in the task's directory or PATH";
        assert_eq!(
            failure(&request("/no/such"), message.into()),
            "failed to start command: fork/exec /no/such: no such file or directory"
        );
        assert!(failure(&request("x"), message.into()).ends_with("executable file not found in $PATH"));
        assert_eq!(failure(&request("x"), "other".into()), "other");
    }
}
