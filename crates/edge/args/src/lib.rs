//! Long flags with one dash: a pass over the arguments before clap reads them.
//!
//! `-detach`, `-var k=v`, `-var=k=v` and `-verbose=false` have the same meaning as with two dashes. The command tree
//! shows which flags take a value, so a value that looks like a flag stays unchanged. The verbs and the agent both
//! read their flags this way.

use clap::{Arg, ArgAction, Command};
use std::ffi::{OsStr, OsString};

/// Rewrites the arguments (the first is the program's name) for clap.
pub fn normalise(root: &Command, args: Vec<OsString>) -> Vec<OsString> {
    let mut command = root;
    let mut out = Vec::with_capacity(args.len());
    let mut args = args.into_iter();
    out.extend(args.next());
    let mut verbs = true;
    while let Some(arg) = args.next() {
        let Some(flag) = arg.to_str().and_then(Flag::parse) else {
            if arg == "--" {
                out.push(arg);
                break;
            }
            if verbs {
                match arg.to_str().and_then(|word| command.find_subcommand(word)) {
                    Some(inner) => command = inner,
                    None => verbs = false,
                }
            }
            // All further arguments belong to the named program, including flags.
            if !verbs && command.get_positionals().any(Arg::is_trailing_var_arg_set) {
                out.push(arg);
                break;
            }
            out.push(arg);
            continue;
        };
        let known = find(command, flag.name).or_else(|| find(root, flag.name));
        match (known, flag.value) {
            (Some(arg), Some(value)) if is_switch(arg) => match truth(value) {
                Some(true) => out.push(format!("--{}", flag.name).into()),
                Some(false) => {}
                None => out.push(format!("--{}={value}", flag.name).into()),
            },
            (Some(arg), None) if takes_next(arg) => {
                let value = args.next();
                match value.as_deref().and_then(OsStr::to_str) {
                    Some(text) => out.push(format!("{}={text}", flag.dashed()).into()),
                    None => {
                        out.push(flag.dashed().into());
                        out.extend(value);
                    }
                }
            }
            (_, Some(value)) => out.push(format!("{}={value}", flag.dashed()).into()),
            (_, None) => out.push(flag.dashed().into()),
        }
    }
    out.extend(args);
    out
}

/// A flag as it was typed.
struct Flag<'a> {
    name: &'a str,
    value: Option<&'a str>,
}

impl<'a> Flag<'a> {
    /// Parses a flag, or returns `None` for other arguments: `-`, `--`, `-1`, words.
    fn parse(text: &'a str) -> Option<Self> {
        let rest = text.strip_prefix("--").or_else(|| text.strip_prefix('-'))?;
        let (name, value) = match rest.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (rest, None),
        };
        name.starts_with(|c: char| c.is_ascii_alphabetic()).then_some(Self { name, value })
    }

    fn dashed(&self) -> String {
        if self.name.len() == 1 { format!("-{}", self.name) } else { format!("--{}", self.name) }
    }
}

fn find<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| {
        arg.get_long() == Some(name)
            || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
            || arg.get_short().is_some_and(|short| name.len() == 1 && name.starts_with(short))
    })
}

fn is_switch(arg: &Arg) -> bool {
    matches!(
        arg.get_action(),
        ArgAction::SetTrue | ArgAction::SetFalse | ArgAction::Help | ArgAction::Version
    )
}

fn takes_next(arg: &Arg) -> bool {
    !is_switch(arg) && !arg.is_require_equals_set()
}

/// Reads a truth value in one of the words that Go's flags accept.
pub fn truth(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tree() -> Command {
        Command::new("caravan").arg(Arg::new("address").long("address").global(true)).subcommand(
            Command::new("job").subcommand(
                Command::new("run")
                    .arg(Arg::new("detach").long("detach").action(ArgAction::SetTrue))
                    .arg(Arg::new("var").long("var").action(ArgAction::Append))
                    .arg(Arg::new("n").short('n'))
                    .arg(Arg::new("diff").long("diff").num_args(0..=1).require_equals(true))
                    .arg(Arg::new("args").num_args(0..)),
            ),
        )
    }

    fn pass(args: &[&str]) -> Vec<String> {
        let args = std::iter::once("caravan").chain(args.iter().copied()).map(OsString::from).collect();
        normalise(&tree(), args).into_iter().skip(1).map(|a| a.into_string().unwrap()).collect()
    }

    #[test]
    fn long_flags_may_have_one_dash() {
        assert_eq!(pass(&["job", "run", "-detach", "f.hcl"]), ["job", "run", "--detach", "f.hcl"]);
        assert_eq!(pass(&["job", "run", "--detach"]), ["job", "run", "--detach"]);
        assert_eq!(pass(&["job", "run", "-bogus"]), ["job", "run", "--bogus"]);
    }

    #[test]
    fn values_follow_or_are_joined() {
        assert_eq!(pass(&["job", "run", "-var", "k=v", "f"]), ["job", "run", "--var=k=v", "f"]);
        assert_eq!(pass(&["job", "run", "-var=k=v", "f"]), ["job", "run", "--var=k=v", "f"]);
        assert_eq!(pass(&["job", "run", "-var", "-x"]), ["job", "run", "--var=-x"]);
        assert_eq!(pass(&["job", "run", "-address", "unix:///s"]), ["job", "run", "--address=unix:///s"]);
        assert_eq!(pass(&["-address=a", "job", "run", "-n", "5"]), ["--address=a", "job", "run", "-n=5"]);
    }

    #[test]
    fn switches_take_truth_values() {
        assert_eq!(pass(&["job", "run", "-detach=true"]), ["job", "run", "--detach"]);
        assert_eq!(pass(&["job", "run", "-detach=false", "f"]), ["job", "run", "f"]);
        assert_eq!(pass(&["job", "run", "-diff=false", "f"]), ["job", "run", "--diff=false", "f"]);
    }

    #[test]
    fn what_is_no_flag_stays() {
        assert_eq!(pass(&["job", "run", "-"]), ["job", "run", "-"]);
        assert_eq!(pass(&["job", "run", "-1"]), ["job", "run", "-1"]);
        assert_eq!(pass(&["job", "run", "--", "-detach"]), ["job", "run", "--", "-detach"]);
        assert_eq!(pass(&["job", "run", "a", "job"]), ["job", "run", "a", "job"]);
    }

    proptest! {
        #[test]
        fn the_pass_never_fails_and_settles(args in prop::collection::vec("-{0,2}[a-z=1]{0,6}", 0..8)) {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let once = pass(&args);
            let again = pass(&once.iter().map(String::as_str).collect::<Vec<_>>());
            prop_assert!(again.len() <= once.len());
        }
    }
}
