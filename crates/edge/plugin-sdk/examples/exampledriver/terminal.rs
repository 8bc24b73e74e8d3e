//! A role between the plugin and a command: it makes the terminal on standard input the controlling one.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

/// The argument that selects this role.
pub const ROLE: &str = "terminal";
/// The exit code of shells for a command that cannot be started.
const NOT_STARTED: u8 = 127;

/// Becomes the command.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(program) = arguments.next() else { return ExitCode::from(NOT_STARTED) };
    let error = match take() {
        Ok(()) => Command::new(&program).args(arguments).exec(),
        Err(error) => error,
    };
    // A user who has gone reads no message.
    let _unread = writeln!(io::stderr(), "cannot start {}: {error}", program.display());
    ExitCode::from(NOT_STARTED)
}

fn take() -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::process::ioctl_tiocsctty(io::stdin())?;
    Ok(())
}
