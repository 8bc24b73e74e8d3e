//! The agent's log: standard error, text or JSON.

use crate::monitor::Monitors;
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

/// Starts logging; the answer is the log for those who follow it. A second call changes nothing.
pub(crate) fn start(level: &str, json: bool) -> Monitors {
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
    let monitors = Monitors::default();
    let followed = monitors.clone().with_filter(monitors.clone());
    // An error says that logging runs already, which is as good.
    let _ = tracing_subscriber::registry().with(written).with(followed).try_init();
    monitors
}
