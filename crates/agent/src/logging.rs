//! The agent's log: standard error, text or JSON.

use tracing_subscriber::EnvFilter;

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

/// Starts logging. A second call changes nothing.
pub(crate) fn start(level: &str, json: bool) {
    let level = directive(level).unwrap_or("info");
    // What libraries say at these levels is for their own developers.
    let quiet = "openraft=warn,h2=warn,hyper=warn,hyper_util=warn,tonic=warn,tower=warn";
    let filter = EnvFilter::new(format!("{level},{quiet}"));
    let builder =
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter).with_target(false);
    // An error says that logging runs already, which is as good.
    let _ = if json { builder.json().try_init() } else { builder.with_ansi(false).try_init() };
}
