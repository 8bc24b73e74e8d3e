//! `cargo xtask csi-conformance`: takes any CSI plugin through the whole life of volumes.

use anyhow::{Context, Result, bail};
use caravan_testkit::conformance::{self, Outcome, Report, Settings};
use std::{os::unix::fs::FileTypeExt, path::Path, process::ExitCode};

/// The usage text.
pub const USAGE: &str = "usage: cargo xtask csi-conformance <ENDPOINT | JOB FILE> [flags]

An endpoint (unix:///path, or the path of a socket) is called directly. A job file is run by an agent of its own,
under raw_exec and under exec, and tasks use the plugin's volumes; this needs root.

  --plugin-id ID         which plugin of the job (job file only) [the only one]
  --driver DRIVER        raw_exec or exec (job file only) [both]
  --parameter KEY=VALUE  a parameter of every volume; may be repeated
  --secret KEY=VALUE     a secret of every call that takes some; may be repeated
  --size BYTES           size of a volume; it grows to twice as much [1 GiB]
  --directory DIR        where volumes are mounted, the plugin has to see it (endpoint only) [the temporary one]
  -json                  one JSON object a line

Exit code 1 when something breaks the specification; habits that it leaves to the plugin are told only.";

#[derive(Debug, Default)]
struct Arguments {
    subject: String,
    plugin: Option<String>,
    driver: Option<String>,
    settings: Settings,
    json: bool,
}

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<ExitCode> {
    let arguments = parse(arguments)?;
    let json = arguments.json;
    let mut report = Report::new(move |finding| {
        if json {
            println!("{}", finding.json());
        } else {
            println!("{finding}");
        }
    });
    let subject = Path::new(&arguments.subject);
    let is_socket = subject.metadata().is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket || arguments.subject.starts_with("unix:") {
        conformance::endpoint(&arguments.subject, &arguments.settings, &mut report)?;
    } else if subject.is_file() {
        let drivers = match &arguments.driver {
            Some(driver) => vec![driver.as_str()],
            None => vec!["raw_exec", "exec"],
        };
        conformance::job(subject, arguments.plugin.as_deref(), &drivers, &arguments.settings, &mut report)?;
    } else {
        bail!("{:?} is neither a socket nor a file\n{USAGE}", arguments.subject);
    }
    if !json {
        let count = |outcome| report.findings().iter().filter(|finding| finding.outcome == outcome).count();
        println!(
            "\n{} passed, {} failed, {} told, {} not offered",
            count(Outcome::Passed),
            count(Outcome::Failed),
            count(Outcome::Note),
            count(Outcome::NotOffered)
        );
    }
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parse(arguments: &[String]) -> Result<Arguments> {
    if arguments.iter().any(|argument| argument == "--help") {
        bail!("{USAGE}");
    }
    let mut parsed = Arguments::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value\n{USAGE}"));
        let pair = |text: &String| {
            let (key, value) =
                text.split_once('=').with_context(|| format!("{argument} is KEY=VALUE\n{USAGE}"))?;
            anyhow::Ok((key.to_owned(), value.to_owned()))
        };
        match argument.as_str() {
            "--plugin-id" => parsed.plugin = Some(value()?.clone()),
            "--driver" => {
                let driver = value()?;
                if !["raw_exec", "exec"].contains(&driver.as_str()) {
                    bail!("--driver is raw_exec or exec, not {driver:?}");
                }
                parsed.driver = Some(driver.clone());
            }
            "--parameter" => {
                let (key, value) = pair(value()?)?;
                parsed.settings.parameters.insert(key, value);
            }
            "--secret" => {
                let (key, value) = pair(value()?)?;
                parsed.settings.secrets.0.insert(key, value);
            }
            "--size" => parsed.settings.size = value()?.parse().context("--size is a number of bytes")?,
            "--directory" => parsed.settings.directory = value()?.into(),
            "-json" | "--json" => parsed.json = true,
            other if other.starts_with('-') => bail!("there is no flag {other}\n{USAGE}"),
            other if parsed.subject.is_empty() => other.clone_into(&mut parsed.subject),
            other => bail!("what is {other:?}?\n{USAGE}"),
        }
    }
    if parsed.subject.is_empty() {
        bail!("no endpoint and no job file given\n{USAGE}");
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_all(arguments: &[&str]) -> Result<Arguments> {
        parse(&arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn flags_are_read() {
        let parsed = parse_all(&[
            "unix:///s",
            "--plugin-id",
            "p",
            "--driver",
            "exec",
            "--parameter",
            "a=b",
            "--secret",
            "k=v",
            "--size",
            "7",
            "--directory",
            "/d",
            "-json",
        ])
        .expect("it is right");
        assert_eq!(
            (parsed.subject.as_str(), parsed.plugin.as_deref(), parsed.driver.as_deref()),
            ("unix:///s", Some("p"), Some("exec"))
        );
        assert_eq!(parsed.settings.parameters.get("a").map(String::as_str), Some("b"));
        assert_eq!((parsed.settings.size, parsed.settings.directory.as_path()), (7, Path::new("/d")));
        assert!(parsed.json);
        assert!(!format!("{parsed:?}").contains("\"v\""), "secrets are not shown");
    }

    #[test]
    fn wrong_flags_get_a_sentence() {
        for (arguments, expected) in [
            (&[][..], "no endpoint and no job file given"),
            (&["a", "b"], "what is \"b\"?"),
            (&["a", "--driver", "docker"], "--driver is raw_exec or exec, not \"docker\""),
            (&["a", "--size"], "--size needs a value"),
            (&["a", "--parameter", "x"], "--parameter is KEY=VALUE"),
        ] {
            let error = parse_all(arguments).expect_err("it is wrong").to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
