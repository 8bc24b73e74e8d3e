//! Programs that run in a container next to its task.

use crate::engine::{failed, text, unreachable};
use crate::tasks::{Shared, Task};
use bollard::Docker;
use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, ResizeExecOptions, StartExecOptions, StartExecResults};
use bollard::models::ExecInspectResponse;
use caravan_drivers::{Error, ExecEvent, ExecInput, ExecOutput, ExecRequest, ExecStream, Result, TaskId};
use caravan_sys::process::PidFd;
use futures::{Stream, StreamExt};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// Messages that may wait for a slow reader, in each direction.
const QUEUE: usize = 16;

/// Bytes kept of each output of a program.
const OUTPUT_LIMIT: usize = 1 << 20;

/// Time after which a program is examined even without an event.
const EXAMINE_INTERVAL: Duration = Duration::from_millis(500);

/// The longest time for the output that is pending when a program with a terminal ends.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause in the output after which no more output is pending.
const DRAIN_PAUSE: Duration = Duration::from_millis(50);

/// The number of times that the size of a terminal is set while its program runs.
const RESIZES: u8 = 3;

/// SIGKILL has this number on every Linux architecture (signal(7)).
const SIGKILL: i32 = 9;

type Output = Pin<Box<dyn Stream<Item = std::result::Result<LogOutput, bollard::errors::Error>> + Send>>;

/// A program that was started in a container.
struct Program {
    shared: Arc<Shared>,
    client: Docker,
    task: TaskId,
    id: String,
}

/// The state of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgramState {
    /// The engine is about to start the program.
    Created,
    Running,
    /// The program has ended with this code.
    Exited(i32),
}

fn state(found: &ExecInspectResponse) -> ProgramState {
    if found.running == Some(true) {
        return ProgramState::Running;
    }
    // podman reports the code 0 before the start.
    let is_over = found.pid.is_some_and(|pid| pid > 0) || found.can_remove == Some(true);
    match found.exit_code.and_then(|code| i32::try_from(code).ok()) {
        Some(code) if code != 0 || is_over => ProgramState::Exited(code),
        _ => ProgramState::Created,
    }
}

/// The streams of a program.
struct Streams {
    output: Output,
    /// Absent once its end was delivered.
    input: Option<Pin<Box<dyn AsyncWrite + Send>>>,
    /// The size that the terminal may not have yet, with the number of attempts that remain.
    size: Option<(ResizeExecOptions, u8)>,
}

impl Program {
    async fn start(shared: &Arc<Shared>, task: &Task, request: &ExecRequest) -> Result<(Self, Streams)> {
        let id = &task.handle.task_id;
        let client = shared.engine.client().await.map_err(|error| unreachable(id, &error))?;
        let options = CreateExecOptions {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            tty: Some(request.tty),
            cmd: Some(request.command.clone()),
            ..CreateExecOptions::<String>::default()
        };
        let made = client.create_exec(&task.state.container, options).await.map_err(|e| failed(id, &e))?;
        let start = StartExecOptions { detach: false, tty: request.tty, output_capacity: None };
        match client.start_exec(&made.id, Some(start)).await.map_err(|e| failed(id, &e))? {
            StartExecResults::Attached { output, input } => {
                let program = Self { shared: shared.clone(), client, task: id.clone(), id: made.id };
                Ok((program, Streams { output, input: Some(input), size: None }))
            }
            StartExecResults::Detached => Err(Error::Refused("the engine did not attach the program".into())),
        }
    }

    /// Returns the program's state.
    async fn state(&self) -> Result<ProgramState> {
        let found = self.client.inspect_exec(&self.id).await.map_err(|e| failed(&self.task, &e))?;
        Ok(state(&found))
    }

    /// Kills the program. The engine has no call for that, so only programs on this machine are killed.
    async fn kill(&self) {
        if !self.shared.engine.is_local() {
            return;
        }
        let Ok(found) = self.client.inspect_exec(&self.id).await else { return };
        let pid = found.pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
        if found.running == Some(true)
            && let Some(pid) = pid
            && let Ok(Some(process)) = PidFd::open(pid)
            // The engine still names the process after it is open, so the number was not reused.
            && let Ok(again) = self.client.inspect_exec(&self.id).await
            && again.running == Some(true)
        {
            let _gone = process.send_signal(SIGKILL);
        }
    }
}

/// Runs a program and collects its output.
pub(crate) async fn run(
    shared: &Arc<Shared>,
    task: &Task,
    command: &[String],
    timeout: Duration,
) -> Result<ExecOutput> {
    let request = ExecRequest { command: command.to_vec(), tty: false };
    let (program, mut streams) = Program::start(shared, task, &request).await?;
    // Ends the program's standard input.
    if let Some(mut input) = streams.input.take() {
        let _unread = input.shutdown().await;
    }
    let mut collected = ExecOutput::default();
    let collect = async {
        while let Some(item) = streams.output.next().await {
            let (kept, data) = match item.map_err(|error| failed(&program.task, &error))? {
                LogOutput::StdErr { message } => (&mut collected.stderr, message),
                LogOutput::StdOut { message } | LogOutput::Console { message } => {
                    (&mut collected.stdout, message)
                }
                LogOutput::StdIn { .. } => continue,
            };
            let room = OUTPUT_LIMIT.saturating_sub(kept.len()).min(data.len());
            kept.extend_from_slice(&data[..room]);
        }
        let mut waiter = program.shared.watch.waiter(&program.id);
        loop {
            if let ProgramState::Exited(code) = program.state().await? {
                return Ok(code);
            }
            let _elapsed = tokio::time::timeout(EXAMINE_INTERVAL, waiter.changed()).await;
        }
    };
    match tokio::time::timeout(timeout, collect).await {
        Ok(Ok(code)) => {
            collected.exit_code = code;
            Ok(collected)
        }
        Ok(Err(error)) => Err(error),
        Err(_) => {
            program.kill().await;
            Err(Error::Timeout {
                what: format!("the program run in task {}", task.handle.task_id),
                limit: timeout,
            })
        }
    }
}

/// Runs a program and exchanges input and output with it.
pub(crate) async fn stream(shared: &Arc<Shared>, task: &Task, request: ExecRequest) -> Result<ExecStream> {
    let (program, streams) = Program::start(shared, task, &request).await?;
    let (input, inputs) = mpsc::channel(QUEUE);
    let (outputs, output) = mpsc::channel(QUEUE);
    tokio::spawn(carry(program, streams, request.tty, inputs, outputs));
    Ok(ExecStream { input, output })
}

async fn carry(
    program: Program,
    mut streams: Streams,
    tty: bool,
    mut inputs: mpsc::Receiver<ExecInput>,
    outputs: mpsc::Sender<Result<ExecEvent>>,
) {
    let mut waiter = program.shared.watch.waiter(&program.id);
    let mut examine = tokio::time::interval(EXAMINE_INTERVAL);
    examine.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut listening, mut open, mut is_running) = (true, true, false);
    let mut code = None;
    while open || code.is_none() {
        let mut look = false;
        let event = tokio::select! {
            // Pending output precedes the end.
            biased;
            () = outputs.closed() => {
                program.kill().await;
                return;
            }
            item = streams.output.next(), if open => match item {
                Some(Ok(LogOutput::StdErr { message })) => Some(ExecEvent::Stderr(message.into())),
                Some(Ok(LogOutput::StdOut { message } | LogOutput::Console { message })) => {
                    Some(ExecEvent::Stdout(message.into()))
                }
                Some(Ok(LogOutput::StdIn { .. })) => None,
                Some(Err(error)) => {
                    let _gone = outputs.send(Err(failed(&program.task, &error))).await;
                    program.kill().await;
                    return;
                }
                None => {
                    (open, look) = (false, true);
                    None
                }
            },
            message = inputs.recv(), if listening => {
                look = matches!(message, Some(ExecInput::Resize { .. })) && !is_running;
                listening = message.is_some() && deliver(&program, &mut streams, message, is_running).await;
                None
            }
            () = waiter.changed() => {
                look = true;
                None
            }
            _ = examine.tick() => {
                look = true;
                None
            }
        };
        if let Some(event) = event
            && outputs.send(Ok(event)).await.is_err()
        {
            program.kill().await;
            return;
        }
        if look && code.is_none() {
            match program.state().await {
                Ok(ProgramState::Created) => {}
                Ok(ProgramState::Running) => {
                    is_running = true;
                    resize(&program, &mut streams, is_running).await;
                }
                Ok(ProgramState::Exited(found)) => code = Some(found),
                Err(error) => {
                    let _gone = outputs.send(Err(error)).await;
                    return;
                }
            }
        }
        // With a terminal, programs in the background may hold the output forever.
        if code.is_some() && tty {
            let _elapsed = tokio::time::timeout(DRAIN_TIMEOUT, drain(&mut streams.output, &outputs)).await;
            break;
        }
    }
    let ends = [ExecEvent::StdoutClosed, ExecEvent::StderrClosed];
    for event in ends.into_iter().take(if tty { 1 } else { 2 }) {
        let _gone = outputs.send(Ok(event)).await;
    }
    let _gone = outputs.send(Ok(ExecEvent::Exited(code.unwrap_or_default()))).await;
}

/// Passes on pending output.
async fn drain(output: &mut Output, outputs: &mpsc::Sender<Result<ExecEvent>>) {
    while let Ok(Some(Ok(item))) = tokio::time::timeout(DRAIN_PAUSE, output.next()).await {
        if outputs.send(Ok(ExecEvent::Stdout(item.into_bytes().into()))).await.is_err() {
            return;
        }
    }
}

/// Sets the size of the terminal, if it has changed. Before the program runs and a moment after, Docker's engine
/// refuses the change and podman ignores it, so the size is set more than once.
async fn resize(program: &Program, streams: &mut Streams, is_running: bool) {
    let Some((size, attempts)) = &mut streams.size else { return };
    match program.client.resize_exec(&program.id, *size).await {
        Ok(()) if is_running => *attempts = attempts.saturating_sub(1),
        Ok(()) => {}
        Err(error) => {
            tracing::debug!(task = %program.task, error = text(&error), "terminal not resized yet");
        }
    }
    if *attempts == 0 {
        streams.size = None;
    }
}

/// Delivers a message. Returns whether the program accepts more.
async fn deliver(
    program: &Program,
    streams: &mut Streams,
    message: Option<ExecInput>,
    is_running: bool,
) -> bool {
    match message {
        None => false,
        Some(ExecInput::Close) => {
            if let Some(mut input) = streams.input.take() {
                let _unread = input.shutdown().await;
            }
            true
        }
        Some(ExecInput::Data(data)) => match &mut streams.input {
            Some(input) => input.write_all(&data).await.is_ok() && input.flush().await.is_ok(),
            None => true,
        },
        Some(ExecInput::Resize { rows, columns }) => {
            streams.size = Some((ResizeExecOptions { height: rows, width: columns }, RESIZES));
            resize(program, streams, is_running).await;
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_before_its_start_has_not_ended() {
        let found = |running, exit_code, pid, can_remove| ExecInspectResponse {
            running: Some(running),
            exit_code,
            pid: Some(pid),
            can_remove: Some(can_remove),
            ..ExecInspectResponse::default()
        };
        // podman.
        assert_eq!(state(&found(false, Some(0), 0, false)), ProgramState::Created);
        assert_eq!(state(&found(true, Some(0), 7, false)), ProgramState::Running);
        assert_eq!(state(&found(false, Some(0), 0, true)), ProgramState::Exited(0));
        // Docker's engine.
        assert_eq!(state(&found(false, None, 0, false)), ProgramState::Created);
        assert_eq!(state(&found(false, Some(0), 7, false)), ProgramState::Exited(0));
        assert_eq!(state(&found(false, Some(126), 0, false)), ProgramState::Exited(126));
    }
}
