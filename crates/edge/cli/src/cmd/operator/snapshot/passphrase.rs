//! Passphrases: from a file, or from the terminal without an echo.

use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::io::{IsTerminal as _, stdin};
use std::path::PathBuf;

/// The flag for a passphrase from a file.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct PassphraseArgs {
    /// File with the passphrase that seals the key of the cluster in the snapshot
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

impl PassphraseArgs {
    /// Reads the passphrase from the file, if one is named. A newline at its end does not belong to the passphrase.
    pub(super) fn read_file(&self) -> Result<Option<String>, CliError> {
        let Some(path) = &self.passphrase_file else { return Ok(None) };
        let text = std::fs::read_to_string(path);
        let text = text.doing(format!("Error reading the passphrase: {}", path.display()))?;
        let text = text.strip_suffix('\n').unwrap_or(&text);
        Ok(Some(text.strip_suffix('\r').unwrap_or(text).to_owned()))
    }
}

/// Asks for a passphrase on the terminal. Returns `None` without a terminal.
pub(super) fn ask(ctx: &Ctx, question: &str) -> Result<Option<String>, CliError> {
    let input = stdin();
    if !input.is_terminal() {
        return Ok(None);
    }
    let failed = |error: rustix::io::Errno| {
        CliError::failed(format!("Error reading the passphrase: the terminal refuses to hide it: {error}"))
    };
    let before = tcgetattr(&input).map_err(failed)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    hidden.local_modes.insert(LocalModes::ECHONL);
    tcsetattr(&input, OptionalActions::Flush, &hidden).map_err(failed)?;
    let answer = ctx.out.read(question);
    tcsetattr(&input, OptionalActions::Flush, &before).map_err(failed)?;
    Ok(Some(answer.doing("Error reading the passphrase")?))
}
