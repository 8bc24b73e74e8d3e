//! Errors for command lines that cannot be parsed, and deprecated names of commands.

use super::tree;
use crate::out::Out;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error as _;
use std::ffi::OsString;

/// The exit status for an unknown command.
const NO_COMMAND: u8 = 127;

/// Commands that `main` dispatches itself. Suggestions include them.
const ELSEWHERE: [&str; 1] = ["agent"];

/// Deprecated names of Nomad commands, which still work.
const RENAMED: [(&str, &[&str]); 10] = [
    ("alloc-status", &["alloc", "status"]),
    ("client-config", &["node", "config"]),
    ("eval-status", &["eval", "status"]),
    ("keygen", &["operator", "gossip", "keyring", "generate"]),
    ("keyring", &["operator", "gossip", "keyring"]),
    ("node-drain", &["node", "drain"]),
    ("node-status", &["node", "status"]),
    ("server-force-leave", &["server", "force-leave"]),
    ("server-join", &["server", "join"]),
    ("server-members", &["server", "members"]),
];

/// Replaces a deprecated command name in the arguments by its current name.
pub(super) fn renamed(out: &Out, mut args: Vec<OsString>) -> Vec<OsString> {
    let Some((old, new)) = RENAMED.iter().find(|(old, _)| args.get(1).is_some_and(|word| word == old)) else {
        return args;
    };
    out.note(&format!("\"caravan {old}\" is an old name of \"caravan {}\"", new.join(" ")));
    args.splice(1..2, new.iter().map(OsString::from));
    args
}

/// Prints why the command line is invalid and returns the exit status.
pub(super) fn mistake(out: &Out, path: &[String], error: &clap::Error) -> u8 {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let status = if path.len() == 1 { NO_COMMAND } else { 1 };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            out.line(error.to_string().trim_end());
            0
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            out.line(help(path).trim_end());
            status
        }
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            out.line(help(path).trim_end());
            out.note(&unknown(path, word));
            status
        }
        ErrorKind::UnknownArgument => {
            let flag = text(ContextKind::InvalidArg).unwrap_or_default();
            let name = flag.trim_start_matches('-').split('=').next().unwrap_or_default();
            out.note(&format!("flag provided but not defined: -{name}"));
            out.note(&format!("For additional help try '{} -help'", path.join(" ")));
            1
        }
        _ => {
            let first = error.to_string();
            let first =
                first.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ").trim_end();
            out.note(first);
            if let Some(source) = error.source() {
                let source = source.to_string();
                if !first.contains(&source) {
                    out.note(&source);
                }
            }
            out.note(&format!("For additional help try '{} -help'", path.join(" ")));
            1
        }
    }
}

fn at(path: &[String]) -> clap::Command {
    let mut command = tree();
    command.build();
    for word in &path[1..] {
        match command.find_subcommand(word) {
            Some(inner) => command = inner.clone(),
            None => break,
        }
    }
    command
}

fn help(path: &[String]) -> String {
    at(path).render_help().to_string()
}

/// Returns `There is no command "caravan jbo". Did you mean "job"?`. Within a command group, also lists its
/// subcommands.
pub(super) fn unknown(path: &[String], word: &str) -> String {
    let command = at(path);
    let mut known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    if path.len() == 1 {
        known.extend(ELSEWHERE);
    }
    known.sort_unstable();
    let path_text = path.join(" ");
    let typed = format!("There is no command \"{path_text} {word}\".");
    let there = match path.len() {
        // The list of top-level commands is too long, and the help describes each of them.
        1 => String::new(),
        _ => format!("\n\"{path_text}\" has: {}", known.join(", ")),
    };
    match caravan_hcl::diag::nearest(word, known) {
        Some(near) => format!("{typed} Did you mean \"{near}\"?{there}"),
        None => format!("{typed}{there}"),
    }
}
