//! The stored log of an agent (docs/reference/http-api.md, section 3.7). The service manager's journal is read with
//! `journalctl`, because the format of its files is private. The agent's own log file is read with `tail`, which
//! continues when a new file replaces the old one.

use crate::call::Call;
use crate::error::ApiError;
use crate::frames::{self, Frame, Frames};
use crate::reply::{JSON, Reply};
use bytes::Bytes;
use caravan_types::duration::parse as go_duration;
use http::StatusCode;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

/// The default time span.
const SINCE: Duration = Duration::from_secs(72 * 3600);
/// Maximum length of a piece in one frame, in bytes.
const FRAME: usize = 1024;
/// Maximum length of a service's name.
const MAX_NAME_BYTES: usize = 253;

/// The requested part of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    source: Source,
    since: Duration,
    follow: bool,
    plain: bool,
}

/// The source of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// The journal of a systemd unit.
    Service(String),
    /// The agent's own log file.
    File(PathBuf),
}

impl Request {
    fn read(call: &Call) -> Result<Self, ApiError> {
        let flag = |name: &str| {
            call.query.flag(name).map(|flag| flag.unwrap_or(false)).map_err(|_| {
                ApiError::bad_request(format!(
                    "Unable to parse {name}: strconv.ParseBool: parsing \"{}\": invalid syntax",
                    call.query.text(name)
                ))
            })
        };
        let (service, on_disk) = (call.query.text("service_name"), flag("on_disk")?);
        if service.is_empty() != on_disk {
            return Err(ApiError::bad_request("either service_name or on_disk must be given, not both"));
        }
        if on_disk {
            let file = call.state.logs.as_ref().and_then(|logs| logs.file()).ok_or_else(|| {
                ApiError::bad_request(
                    "this agent keeps no log on disk (log_file is not set): ask for the log of its service",
                )
            })?;
            let (source, since) = (Source::File(file), Duration::ZERO);
            return Ok(Self { source, since, follow: flag("follow")?, plain: flag("plain")? });
        }
        if !is_name(service) {
            return Err(ApiError::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                format!("{service:?} is not the name of a service"),
            ));
        }
        let since = match call.query.text("logs_since") {
            "" => SINCE,
            text => go_duration(text)
                .filter(|since| since.0 >= 0)
                .ok_or_else(|| ApiError::bad_request(format!("logs_since is not a duration: {text:?}")))?
                .to_std(),
        };
        Ok(Self {
            source: Source::Service(service.to_owned()),
            since,
            follow: flag("follow")?,
            plain: flag("plain")?,
        })
    }

    /// Returns the program and its arguments; no argument can be mistaken for an option.
    fn program(&self) -> (&'static str, Vec<String>) {
        let service = match &self.source {
            Source::Service(service) => service,
            Source::File(path) => {
                let mut all = vec!["--bytes=+1", "--quiet"];
                all.extend(self.follow.then_some("--follow=name"));
                let path = path.to_string_lossy();
                all.extend(["--", &path]);
                return ("tail", all.into_iter().map(str::to_owned).collect());
            }
        };
        let mut all = vec![
            "--quiet".to_owned(),
            "--no-pager".to_owned(),
            "--output=short-iso".to_owned(),
            format!("--unit={service}"),
            format!("--since=-{}s", self.since.as_secs()),
        ];
        if self.follow {
            all.extend(["--follow".to_owned(), "--no-tail".to_owned()]);
        }
        ("journalctl", all)
    }
}

/// Returns whether a text is a valid unit name (systemd.unit(5)).
fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    text.len() <= MAX_NAME_BYTES && !text.starts_with('-') && text.chars().all(plain)
}

/// Starts to stream the log.
pub(crate) fn export(call: &Call) -> Result<Reply, ApiError> {
    let desired = Request::read(call)?;
    let (program, arguments) = desired.program();
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            ApiError::internal(format!("the log of this machine cannot be read with {program}: {error}"))
        })?;
    let (pieces, stopping) = (pieces(child), call.state.stopping.clone());
    Ok(if desired.plain {
        Reply::raw("text/plain", frames::plain(pieces, stopping))
    } else {
        Reply::raw(JSON, frames::framed(pieces, stopping))
    })
}

/// Returns the output of a program in frames. Dropping the stream ends the program.
fn pieces(mut child: Child) -> Frames {
    let output = child.stdout.take();
    let begin = (child, output, 0_u64);
    Box::pin(futures::stream::unfold(begin, |(child, output, offset)| async move {
        let mut output = output?;
        let mut piece = vec![0; FRAME];
        match output.read(&mut piece).await {
            Ok(0) => None,
            Ok(read) => {
                piece.truncate(read);
                let offset = offset + read as u64;
                let data = Bytes::from(piece);
                let frame = Frame { data, offset, file_event: "log", ..Frame::default() };
                Some((Ok(frame), (child, Some(output), offset)))
            }
            Err(error) => {
                let text = format!("the log broke off: {error}");
                let error = ApiError::internal(text);
                Some((Err(error), (child, None, offset)))
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;

    #[test]
    fn names_of_services_are_no_flags() {
        for name in ["caravan", "caravan.service", "getty@tty1", "a:b"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["-f", "a b", "a/b", "ä", &"x".repeat(254)] {
            assert!(!is_name(name), "{name}");
        }
        let source = Source::Service("caravan".into());
        let expected = Request { source, since: Duration::from_secs(60), follow: true, plain: false };
        let (program, arguments) = expected.program();
        assert_eq!(program, "journalctl");
        assert!(arguments.iter().all(|argument| argument.starts_with("--")));
        assert!(arguments.contains(&"--since=-60s".to_owned()));
        let expected = Request { source: Source::File("/-f".into()), ..expected };
        assert_eq!(
            expected.program(),
            ("tail", ["--bytes=+1", "--quiet", "--follow=name", "--", "/-f"].map(str::to_owned).into())
        );
    }

    #[tokio::test]
    async fn what_a_program_says_comes_in_frames() {
        let child = Command::new("printf").arg("one\ntwo\n").stdout(Stdio::piped()).spawn().unwrap();
        let frames: Vec<_> = pieces(child).collect().await;
        let text: Vec<u8> = frames.iter().flat_map(|frame| frame.as_ref().unwrap().data.to_vec()).collect();
        assert_eq!(text, b"one\ntwo\n");
        assert_eq!(frames.last().unwrap().as_ref().unwrap().offset, 8);
    }
}
