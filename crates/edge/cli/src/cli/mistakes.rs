//! Errors for command lines that cannot be parsed, and deprecated names of commands.

use super::tree;
use crate::cmd::{NO_ARGUMENTS, invalid_value};
use crate::out::Out;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error as _;
use std::ffi::OsString;

/// The exit status for an unknown command.
const NO_COMMAND: u8 = 127;

/// Commands that the binary's `main` dispatches. Suggestions include them.
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

/// Prints the reason that the command line is invalid and returns the exit status.
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
        kind => {
            out.note(&wrong(path, kind, error));
            out.note(&format!("For additional help try '{} -help'", path.join(" ")));
            1
        }
    }
}

/// Returns the sentence about an argument or a flag; it names both the flag and its value.
fn wrong(path: &[String], kind: ErrorKind, error: &clap::Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let (arg, value) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue));
    let is_flag = arg.starts_with('-');
    // clap shows a flag as `--name <VALUE>` or `--name[=<VALUE>]`.
    let name = arg.trim_start_matches('-').split(['=', ' ', '[']).next().unwrap_or_default();
    let source = error.source().map(ToString::to_string);
    match (kind, source) {
        (ErrorKind::UnknownArgument, _) if is_flag => format!("flag provided but not defined: -{name}"),
        (ErrorKind::UnknownArgument, _) => surplus(path, arg),
        // Only a switch takes no value.
        (ErrorKind::TooManyValues, _) if is_flag => {
            format!("invalid boolean value {value:?} for -{name}: use true or false")
        }
        (ErrorKind::ValueValidation, Some(source)) if is_flag => invalid_value(value, name, &source),
        (ErrorKind::InvalidValue, _) if is_flag && value.is_empty() => {
            format!("flag needs an argument: -{name}")
        }
        (ErrorKind::InvalidValue, _) if is_flag => {
            let known = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(known)) => known.join(", "),
                _ => String::new(),
            };
            invalid_value(value, name, &format!("use one of {known}"))
        }
        (_, source) => {
            let all = error.to_string();
            let first = all.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ").trim_end();
            match source.filter(|source| !first.contains(source)) {
                Some(source) => format!("{first}\n{source}"),
                None => first.to_owned(),
            }
        }
    }
}

/// Returns the sentence about an argument that is one too many for the command.
fn surplus(path: &[String], argument: &str) -> String {
    let command = at(path);
    let takes: Vec<String> = command
        .get_positionals()
        .filter(|positional| !positional.is_hide_set())
        .flat_map(|positional| positional.get_value_names().unwrap_or_default())
        .map(|name| format!("<{}>", name.to_lowercase()))
        .collect();
    let number = match takes.len() {
        0 => return format!("{NO_ARGUMENTS}; {argument:?} is one too many"),
        1 => "one argument".to_owned(),
        2 => "two arguments".to_owned(),
        many => format!("{many} arguments"),
    };
    format!("This command takes {number}: {}; {argument:?} is one too many", takes.join(" "))
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
