//! Shell completion: `completion <shell>`, `-autocomplete-install`, `-autocomplete-uninstall`.
//!
//! The completion covers commands and flags, from the same command tree that parses them.

use crate::error::{CliError, Outcome};
use crate::out::Out;
use clap::{Arg, Command};
use std::fmt::Write as _;
use std::path::PathBuf;

/// The mark of the line that installation adds to a shell's configuration file.
const MARK: &str = "# completion of caravan";

/// Flags of `completion`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionArgs {
    /// Shell: bash, zsh or fish
    #[arg(value_name = "SHELL", num_args = 0..)]
    args: Vec<String>,
}

/// Prints the completion script for a shell.
pub(crate) fn run(out: &Out, root: &Command, args: &CompletionArgs) -> Outcome {
    let shell = crate::cmd::one(&args.args, "This command takes one argument: bash, zsh or fish")?;
    let text = script(root, shell)
        .ok_or_else(|| CliError::Usage(format!("Unknown shell {shell:?}: use bash, zsh or fish")))?;
    out.line(text.trim_end());
    Ok(0)
}

pub(crate) fn script(root: &Command, shell: &str) -> Option<String> {
    let words = words(root);
    match shell {
        "bash" => Some(bash(&words)),
        "zsh" => Some(format!("autoload -U +X bashcompinit && bashcompinit\n{}", bash(&words))),
        "fish" => Some(fish(&words)),
        _ => None,
    }
}

/// Returns what may follow each sequence of subcommands: further subcommands, then flags.
fn words(root: &Command) -> Vec<(String, Vec<String>)> {
    let global: Vec<String> = root.get_arguments().filter_map(flag).collect();
    let mut out = Vec::new();
    below(root, "", &global, &mut out);
    out
}

fn flag(arg: &Arg) -> Option<String> {
    arg.get_long().filter(|_| !arg.is_hide_set()).map(|name| format!("-{name}"))
}

fn below(command: &Command, path: &str, global: &[String], out: &mut Vec<(String, Vec<String>)>) {
    let verbs: Vec<&Command> = command.get_subcommands().filter(|verb| !verb.is_hide_set()).collect();
    let mut words: Vec<String> = verbs.iter().map(|verb| verb.get_name().to_owned()).collect();
    words.extend(command.get_arguments().filter_map(flag));
    words.extend(global.iter().cloned());
    words.sort();
    words.dedup();
    out.push((path.to_owned(), words));
    for verb in verbs {
        let path =
            if path.is_empty() { verb.get_name().to_owned() } else { format!("{path} {}", verb.get_name()) };
        below(verb, &path, global, out);
    }
}

fn bash(words: &[(String, Vec<String>)]) -> String {
    let mut cases = String::new();
    for (path, words) in words {
        // Writing to a string cannot fail.
        let _ = writeln!(cases, "    \"{path}\") words=\"{}\" ;;", words.join(" "));
    }
    format!(
        "_caravan() {{\n  local current=\"${{COMP_WORDS[COMP_CWORD]}}\" path=\"\" word words=\"\"\n  \
         for word in \"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\"; do\n    case \"$word\" in -*) ;; *) path=\"${{path:+$path }}$word\" ;; esac\n  \
         done\n  case \"$path\" in\n{cases}  esac\n  \
         if [ -n \"$words\" ]; then COMPREPLY=($(compgen -W \"$words\" -- \"$current\")); else COMPREPLY=($(compgen -f -- \"$current\")); fi\n}}\n\
         complete -F _caravan caravan\n"
    )
}

fn fish(words: &[(String, Vec<String>)]) -> String {
    let mut out = String::from(
        "function __caravan_path\n  set -l words (commandline -opc)\n  set -e words[1]\n  string join ' ' (string match -v -- '-*' $words)\nend\ncomplete -c caravan -f\n",
    );
    for (path, words) in words {
        let _ = writeln!(
            out,
            "complete -c caravan -n 'test \"$(__caravan_path)\" = \"{path}\"' -a '{}'",
            words.join(" ")
        );
    }
    out
}

/// Adds the completion to the configuration files of the user's shells, or removes it. Returns `None` if `word` asks
/// for neither.
pub(crate) fn install(out: &Out, word: &str) -> Option<Outcome> {
    let add = match word.trim_start_matches('-') {
        "autocomplete-install" => true,
        "autocomplete-uninstall" => false,
        _ => return None,
    };
    Some(settings(add).map(|changed| {
        for path in changed {
            out.line(&format!(
                "{} {}",
                if add { "Added the completion to" } else { "Removed the completion from" },
                path.display()
            ));
        }
        0
    }))
}

fn settings(add: bool) -> Result<Vec<PathBuf>, CliError> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let home = home.ok_or_else(|| CliError::failed("HOME is not set: there is nothing to install into"))?;
    let files = [
        (home.join(".bashrc"), "source <(caravan completion bash)"),
        (home.join(".zshrc"), "source <(caravan completion zsh)"),
        (home.join(".config/fish/config.fish"), "caravan completion fish | source"),
    ];
    let mut changed = Vec::new();
    for (path, line) in files {
        let Ok(before) = std::fs::read_to_string(&path) else { continue };
        let after = edited(&before, line, add);
        if after != before {
            std::fs::write(&path, after).map_err(|source| CliError::Io {
                doing: format!("Error writing {}", path.display()),
                source,
            })?;
            changed.push(path);
        }
    }
    if changed.is_empty() {
        return Err(CliError::failed(match add {
            true => "No settings of bash, zsh or fish were found, or all have the completion already",
            false => "The completion is installed for no shell",
        }));
    }
    Ok(changed)
}

fn edited(before: &str, line: &str, add: bool) -> String {
    let kept: Vec<&str> = before.lines().filter(|old| !old.ends_with(MARK)).collect();
    let mut out = kept.join("\n");
    if !out.is_empty() {
        out.push('\n');
    }
    if add {
        let _ = writeln!(out, "{line} {MARK}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Command {
        Command::new("caravan")
            .arg(Arg::new("address").long("address").global(true))
            .subcommand(Command::new("job").subcommand(Command::new("run").arg(Arg::new("d").long("detach"))))
    }

    #[test]
    fn verbs_and_flags_are_completed() {
        let words = words(&tree());
        assert_eq!(words[0], (String::new(), vec!["-address".to_owned(), "job".to_owned()]));
        assert_eq!(words[2].0, "job run");
        assert!(words[2].1.contains(&"-detach".to_owned()));
        let bash = script(&tree(), "bash").unwrap();
        assert!(bash.contains("\"job run\") words=\"") && bash.contains("complete -F _caravan caravan"));
        assert!(script(&tree(), "fish").unwrap().contains("= \"job\"'"));
        assert!(script(&tree(), "csh").is_none());
    }

    #[test]
    fn the_line_is_added_once_and_taken_away_whole() {
        let with = edited("alias a=b\n", "source x", true);
        assert_eq!(with, format!("alias a=b\nsource x {MARK}\n"));
        assert_eq!(edited(&with, "source x", true), with);
        assert_eq!(edited(&with, "source x", false), "alias a=b\n");
    }
}
