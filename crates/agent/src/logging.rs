//! The agent's log: standard error, text or JSON.

use crate::log_file::LogFile;
use crate::monitor::Monitors;
use std::path::PathBuf;
use std::sync::Mutex;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

/// Words accepted as log levels, and what they mean here.
fn directive(level: &str) -> Option<&'static str> {
    Some(match level.to_ascii_uppercase().as_str() {
        "TRACE" => "trace",
        "DEBUG" => "debug",
        "INFO" => "info",
        "WARN" => "warn",
        "ERROR" => "error",
        "OFF" => "off",
        _ => return None,
    })
}

/// Whether a log level is one.
pub(crate) fn is_level(level: &str) -> bool {
    directive(level).is_some()
}

/// Starts logging, also to a file if there is one; the answer is the log for those who follow it. A second call changes
/// nothing.
pub(crate) fn start(level: &str, json: bool, file: Option<(LogFile, PathBuf)>) -> Monitors {
    let level = directive(level).unwrap_or("info");
    // What libraries say at these levels is for their own developers.
    let quiet = "openraft=warn,h2=warn,hyper=warn,hyper_util=warn,tonic=warn,tower=warn";
    let filter = EnvFilter::new(format!("{level},{quiet}"));
    let written = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let written = if json {
        written.json().with_filter(filter).boxed()
    } else {
        written.with_ansi(false).with_filter(filter).boxed()
    };
    let (file, path) = file.unzip();
    let kept = file.map(|file| {
        let filter = EnvFilter::new(format!("{level},{quiet}"));
        let kept = tracing_subscriber::fmt::layer().with_writer(Mutex::new(file)).with_target(false);
        match json {
            true => kept.json().with_filter(filter).boxed(),
            false => kept.with_ansi(false).with_filter(filter).boxed(),
        }
    });
    let monitors = Monitors::of(path);
    let followed = monitors.clone().with_filter(monitors.clone());
    // An error says that logging runs already, which is as good.
    let _ = tracing_subscriber::registry().with(written).with(kept).with(followed).try_init();
    monitors
}
