//! Where text goes: data to standard output, everything else to standard error.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex};

/// The two outputs of a command, and whether they may be coloured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Out {
    colour: bool,
    /// Where text goes instead, both outputs apart.
    captured: Option<Arc<Mutex<Captured>>>,
}

/// What a command wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Captured {
    /// To standard output.
    pub(crate) stdout: Vec<u8>,
    /// To standard error.
    pub(crate) stderr: Vec<u8>,
}

impl Out {
    /// Colours only on a terminal, unless told otherwise by a flag or the variables
    /// `CARAVAN_CLI_NO_COLOR`, `NOMAD_CLI_NO_COLOR`, `NO_COLOR` and their `FORCE` counterparts.
    pub(crate) fn new(no_color: bool, force_color: bool) -> Self {
        let set = |names: &[&str]| {
            names.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
        };
        let never = no_color || set(&["CARAVAN_CLI_NO_COLOR", "NOMAD_CLI_NO_COLOR", "NO_COLOR"]);
        let always = force_color || set(&["CARAVAN_CLI_FORCE_COLOR", "NOMAD_CLI_FORCE_COLOR"]);
        Self { colour: !never && (always || io::stdout().is_terminal()), captured: None }
    }

    /// These outputs with the flags' and the environment's word on colours.
    pub(crate) fn coloured(&self, no_color: bool, force_color: bool) -> Self {
        match &self.captured {
            Some(_) => self.clone(),
            None => Self::new(no_color, force_color),
        }
    }

    /// Outputs that are kept instead of shown.
    pub(crate) fn captured() -> (Self, Arc<Mutex<Captured>>) {
        let kept = Arc::new(Mutex::new(Captured::default()));
        (Self { colour: false, captured: Some(Arc::clone(&kept)) }, kept)
    }

    /// Whether errors may be coloured.
    pub(crate) fn colours_errors(&self) -> bool {
        self.colour && io::stderr().is_terminal()
    }

    /// Data, with a newline.
    pub(crate) fn line(&self, text: &str) {
        self.raw(text.as_bytes());
        self.raw(b"\n");
    }

    /// Data as it is. A reader that went away is no failure of ours.
    pub(crate) fn raw(&self, data: &[u8]) {
        if let Some(kept) = &self.captured {
            kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).stdout.extend_from_slice(data);
            return;
        }
        let mut out = io::stdout().lock();
        if out.write_all(data).and_then(|()| out.flush()).is_err() {
            std::process::exit(0);
        }
    }

    /// Anything that is not data, with a newline.
    pub(crate) fn note(&self, text: &str) {
        self.raw_note(text.as_bytes());
        self.raw_note(b"\n");
    }

    /// Bytes to standard error; nobody can be told when that fails.
    pub(crate) fn raw_note(&self, data: &[u8]) {
        if let Some(kept) = &self.captured {
            kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).stderr.extend_from_slice(data);
            return;
        }
        let mut err = io::stderr().lock();
        let _ = err.write_all(data).and_then(|()| err.flush());
    }

    /// A heading, bold where colours are shown.
    pub(crate) fn bold(&self, text: &str) -> String {
        if self.colour { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Asks a question; only `accepted` is a yes.
    pub(crate) fn ask(&self, question: &str, accepted: &[&str]) -> bool {
        self.raw_note(format!("{question} ").as_bytes());
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).is_ok() && accepted.contains(&answer.trim())
    }
}
