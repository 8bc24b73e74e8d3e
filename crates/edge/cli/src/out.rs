//! The outputs of a command: data to standard output, everything else to standard error.

use parking_lot::Mutex;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;

/// The two outputs of a command, and whether they may be coloured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Out {
    colour: bool,
    /// The text of both outputs, if it is kept instead of shown.
    captured: Option<Arc<Mutex<Captured>>>,
}

/// The captured output of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Captured {
    /// The bytes written to standard output.
    pub(crate) stdout: Vec<u8>,
    /// The bytes written to standard error.
    pub(crate) stderr: Vec<u8>,
}

impl Out {
    /// Creates outputs that are coloured only on a terminal, unless a flag or a variable overrides that. The
    /// variables are `CARAVAN_CLI_NO_COLOR`, `NOMAD_CLI_NO_COLOR`, `NO_COLOR` and their `FORCE` counterparts.
    pub(crate) fn new(no_color: bool, force_color: bool) -> Self {
        let set = |names: &[&str]| {
            names.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
        };
        let never = no_color || set(&["CARAVAN_CLI_NO_COLOR", "NOMAD_CLI_NO_COLOR", "NO_COLOR"]);
        let always = force_color || set(&["CARAVAN_CLI_FORCE_COLOR", "NOMAD_CLI_FORCE_COLOR"]);
        Self { colour: !never && (always || io::stdout().is_terminal()), captured: None }
    }

    /// Returns these outputs with the colour settings of the flags and the environment.
    pub(crate) fn coloured(&self, no_color: bool, force_color: bool) -> Self {
        match &self.captured {
            Some(_) => self.clone(),
            None => Self::new(no_color, force_color),
        }
    }

    /// Creates outputs that are captured instead of shown.
    pub(crate) fn captured() -> (Self, Arc<Mutex<Captured>>) {
        let kept = Arc::new(Mutex::new(Captured::default()));
        (Self { colour: false, captured: Some(Arc::clone(&kept)) }, kept)
    }

    /// Returns whether errors may be coloured.
    pub(crate) fn colours_errors(&self) -> bool {
        self.colour && io::stderr().is_terminal()
    }

    /// Writes data, with a newline.
    pub(crate) fn line(&self, text: &str) {
        self.raw(text.as_bytes());
        self.raw(b"\n");
    }

    /// Writes data unchanged. Ignores a closed pipe, such as that of `head`.
    pub(crate) fn raw(&self, data: &[u8]) {
        if let Some(kept) = &self.captured {
            kept.lock().stdout.extend_from_slice(data);
            return;
        }
        let mut out = io::stdout().lock();
        if out.write_all(data).and_then(|()| out.flush()).is_err() {
            std::process::exit(0);
        }
    }

    /// Writes a note, with a newline. Notes are all text that is not data.
    pub(crate) fn note(&self, text: &str) {
        self.raw_note(text.as_bytes());
        self.raw_note(b"\n");
    }

    /// Writes bytes to standard error. A failure here cannot be reported.
    pub(crate) fn raw_note(&self, data: &[u8]) {
        if let Some(kept) = &self.captured {
            kept.lock().stderr.extend_from_slice(data);
            return;
        }
        let mut err = io::stderr().lock();
        let _ = err.write_all(data).and_then(|()| err.flush());
    }

    /// Renders a heading in bold if colours are enabled.
    pub(crate) fn bold(&self, text: &str) -> String {
        if self.colour { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Prompts with a question, and returns the answer without its newline.
    pub(crate) fn read(&self, question: &str) -> io::Result<String> {
        self.raw_note(format!("{question} ").as_bytes());
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        Ok(answer.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// Prompts with a question. Returns whether the answer is one of `accepted`.
    pub(crate) fn ask(&self, question: &str, accepted: &[&str]) -> bool {
        self.raw_note(format!("{question} ").as_bytes());
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).is_ok() && accepted.contains(&answer.trim())
    }
}
