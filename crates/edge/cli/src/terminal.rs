//! The user's terminal during a remote session: raw mode, window size and the escape sequence.

use crate::error::CliError;
use crate::out::Out;
use caravan_sdk::{ExecInput, ExecOutput, ExecReceiver, ExecSender};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{IsTerminal as _, Read as _};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// The interval of heartbeats to the agent.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The options of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    /// Whether to pass standard input to the program.
    pub(crate) interactive: bool,
    /// Whether the program has a terminal.
    pub(crate) tty: bool,
    /// The escape character: at the start of a line and before a dot, it ends the session. `None`: no escape.
    pub(crate) escape: Option<u8>,
}

/// Returns whether standard input and output are terminals.
pub(crate) fn is_there() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// A terminal in raw mode. Dropping it restores the former mode.
struct Raw(Termios);

impl Raw {
    fn begin() -> Option<Self> {
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // Restoring fails only if the terminal is closed; then nothing remains to restore.
        let _gone = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

fn size() -> Option<ExecInput> {
    let size = tcgetwinsize(std::io::stdout()).ok()?;
    Some(ExecInput::Resize { height: size.ws_row, width: size.ws_col })
}

/// Runs a session until it ends and returns the program's exit code.
pub(crate) async fn carry(
    out: &Out,
    (mut to, mut from): (ExecSender, ExecReceiver),
    session: Session,
) -> Result<u8, CliError> {
    let failed = |error: caravan_sdk::Error| CliError::failed(format!("failed to exec into task: {error}"));
    let raw = if session.tty && session.interactive && is_there() { Raw::begin() } else { None };
    let mut resized = signal(SignalKind::window_change()).ok();
    if session.tty
        && let Some(size) = size()
    {
        to.send(size).await.map_err(failed)?;
    }
    let mut typed = match session.interactive {
        true => Some(keys()),
        false => {
            // If the session has ended already, its answer reports the reason.
            let _ = to.send(ExecInput::Close).await;
            None
        }
    };
    let mut way_out = WayOut::new(session.escape.filter(|_| raw.is_some()));
    let mut beat = tokio::time::interval(HEARTBEAT);
    let code = loop {
        tokio::select! {
            output = from.next() => match output.map_err(failed)? {
                ExecOutput::Stdout(data) => out.raw(&data),
                ExecOutput::Stderr(data) => out.raw_note(&data),
                ExecOutput::Exited(code) => break code,
            },
            data = next_key(&mut typed) => {
                let sent = match data {
                    Some(data) => match way_out.pass(&data) {
                        Some(data) if data.is_empty() => Ok(()),
                        Some(data) => to.send(ExecInput::Data(data)).await,
                        None => break 0,
                    },
                    None => {
                        typed = None;
                        to.send(ExecInput::Close).await
                    }
                };
                if sent.is_err() {
                    typed = None;
                }
            }
            () = changed(&mut resized), if session.tty => if let Some(size) = size() {
                let _ = to.send(size).await;
            },
            _ = beat.tick() => drop(to.send(ExecInput::Alive).await),
        }
    };
    drop(raw);
    Ok(u8::try_from(code.clamp(0, 255)).unwrap_or(1))
}

async fn changed(signal: &mut Option<tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

async fn next_key(keys: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match keys {
        Some(keys) => keys.recv().await,
        None => std::future::pending().await,
    }
}

/// Returns standard input as it arrives. A separate thread reads it, which may still block when the program ends.
fn keys() -> mpsc::Receiver<Vec<u8>> {
    let (sender, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut buffer = [0; 4096];
        while let Ok(n) = input.read(&mut buffer) {
            if n == 0 || sender.blocking_send(buffer[..n].to_vec()).is_err() {
                return;
            }
        }
    });
    keys
}

/// A scanner for the escape character and a dot at the start of a line. Pure.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WayOut {
    escape: Option<u8>,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    LineStart,
    Escaped,
    Within,
}

impl WayOut {
    fn new(escape: Option<u8>) -> Self {
        Self { escape, at: At::LineStart }
    }

    /// Returns the typed bytes to send to the program. Returns `None` if the user ends the session.
    fn pass(&mut self, data: &[u8]) -> Option<Vec<u8>> {
        let Some(escape) = self.escape else { return Some(data.to_vec()) };
        let mut out = Vec::with_capacity(data.len());
        for &byte in data {
            match (self.at, byte) {
                (At::LineStart, byte) if byte == escape => {
                    self.at = At::Escaped;
                    continue;
                }
                (At::Escaped, b'.') => return None,
                (At::Escaped, byte) if byte != escape => out.push(escape),
                _ => {}
            }
            out.push(byte);
            self.at = if matches!(byte, b'\r' | b'\n') { At::LineStart } else { At::Within };
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_out_is_at_the_start_of_a_line() {
        let pass = |typed: &str| {
            let mut way = WayOut::new(Some(b'~'));
            way.pass(typed.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
        };
        assert_eq!(pass("ls\r~."), None);
        assert_eq!(pass("~."), None);
        assert_eq!(pass("a~.").as_deref(), Some("a~."));
        assert_eq!(pass("~~.x").as_deref(), Some("~.x"));
        assert_eq!(pass("~x").as_deref(), Some("~x"));
        let mut split = WayOut::new(Some(b'~'));
        assert_eq!(split.pass(b"\n~"), Some(b"\n".to_vec()));
        assert_eq!(split.pass(b"."), None);
        assert_eq!(WayOut::new(None).pass(b"~."), Some(b"~.".to_vec()));
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_lost_without_an_escape(typed in "[a-z\\r.]{0,40}") {
            let mut way = WayOut::new(Some(b'~'));
            proptest::prop_assert_eq!(way.pass(typed.as_bytes()), Some(typed.into_bytes()));
        }
    }
}
