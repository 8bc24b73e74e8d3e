//! Runs the external programs that the plugin needs.

use crate::error::Error;
use std::{
    io,
    process::{Command, Output},
};

/// Runs a program to its end. Errors do not contain texts of `hidden` that have a value: mount flags.
pub(crate) fn run(
    command: &mut Command,
    program: &'static str,
    package: &str,
    hidden: &[String],
) -> Result<Output, Error> {
    run_until(command, program, package, hidden, 0)
}

/// Runs a program for which exit codes up to `good` mean success.
pub(crate) fn run_until(
    command: &mut Command,
    program: &'static str,
    package: &str,
    hidden: &[String],
    good: i32,
) -> Result<Output, Error> {
    let output = command.env("LC_ALL", "C").output().map_err(|error| {
        let problem = if error.kind() == io::ErrorKind::NotFound {
            format!("it is not installed here (package {package})")
        } else {
            error.to_string()
        };
        Error::Tool { program, problem }
    })?;
    if output.status.code().is_some_and(|code| (0..=good).contains(&code)) {
        return Ok(output);
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let words = words.trim().lines().map(str::trim).collect::<Vec<_>>().join(" ");
    // Mount flags may contain a password.
    let words =
        hidden.iter().filter(|flag| flag.contains('=')).fold(words, |words, flag| words.replace(flag, "***"));
    Err(Error::Tool { program, problem: if words.is_empty() { output.status.to_string() } else { words } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let mut command = Command::new("/nowhere/mkfs.none");
        let error = run(&mut command, "mkfs.none", "nonefs", &[]).expect_err("it is missing");
        assert_eq!(error.to_string(), "mkfs.none failed: it is not installed here (package nonefs)");
    }

    #[test]
    fn words_of_a_program_lose_the_flags() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'bad option password=hunter2' >&2; exit 32"]);
        let error =
            run(&mut command, "mount", "util-linux", &["password=hunter2".to_owned()]).expect_err("it fails");
        assert_eq!(error.to_string(), "mount failed: bad option ***");
    }
}
