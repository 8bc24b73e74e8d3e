//! The command line client: arguments, tables, monitors, exit codes.
//!
//! [`main`] is the whole command line except for commands that start long-lived processes (`agent`, the task shim,
//! bundled plugins), which the binary's `main` dispatches itself. Every command reaches an agent through the typed
//! API client. Pure functions of the answers and the clock build the output. Commands write data to standard output,
//! and all other text to standard error.
//!
//! Exit status: 0 success, 1 error, 2 not everything could be placed, 127 unknown command. `job plan` returns 0 for
//! no change, 1 for changes and 255 for an error.

mod cli;
mod cmd;
mod ctx;
mod data;
mod devices;
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

pub use cli::{command, completion_script, is_verb, main};
pub use local::{Findings, Local};
