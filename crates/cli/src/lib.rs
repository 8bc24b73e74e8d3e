//! The verbs: arguments, tables, monitors, exit codes.
//!
//! [`main`] is the whole command line but for what starts long-lived processes (`agent`, the task shim,
//! bundled plugins), which `main` dispatches itself. Every verb talks to an agent through the typed
//! client. What a verb prints is built by pure functions of the answers and the clock; data goes to
//! standard output, everything else to standard error.
//!
//! Exit status: 0 done, 1 an error, 2 not everything could be placed, 127 no such command; `job plan`
//! answers 0 for no change, 1 for changes and 255 for an error.

mod cli;
mod cmd;
mod ctx;
mod data;
mod error;
mod format;
mod jobfile;
mod local;
mod metrics;
mod monitor;
mod out;
mod refusal;
mod resolve;
mod table;
mod terminal;
mod volumefile;

pub use cli::{is_verb, main};
pub use local::{Findings, Local};
