//! The agent's log: standard error, text or JSON.

use crate::log_file::LogFile;
use crate::monitor::Monitors;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tracing::Subscriber;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, reload};

/// Converts a log level of the configuration to the level of `tracing`.
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

/// Returns whether a text is a valid log level.
pub(crate) fn is_level(level: &str) -> bool {
    directive(level).is_some()
}

fn filter(level: &str) -> EnvFilter {
    // Records of libraries at these levels are for the libraries' developers.
    // bollard writes whole answers of an engine, which contain the environment of tasks.
    // openraft warns ten times a second about each server that is down, which the membership reports once.
    let quiet = "bollard=off,openraft=error,h2=warn,hyper=warn,hyper_util=warn,tonic=warn,tower=warn";
    EnvFilter::new(format!("{},{quiet}", directive(level).unwrap_or("info")))
}

type Switch = Box<dyn Fn(EnvFilter) + Send + Sync>;

/// A switch of the log level while the agent runs. Clones share the level.
#[derive(Clone, Default)]
pub(crate) struct Levels(Arc<Vec<Switch>>);

impl fmt::Debug for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Levels").field(&self.0.len()).finish()
    }
}

impl Levels {
    /// Sets the log level.
    pub(crate) fn set(&self, level: &str) {
        self.0.iter().for_each(|switch| switch(filter(level)));
    }
}

/// Creates a filter and the switch that replaces it.
fn changeable<S: Subscriber>(level: &str) -> (reload::Layer<EnvFilter, S>, Switch) {
    let (layer, handle) = reload::Layer::new(filter(level));
    // Replacing fails only if logging has ended.
    (layer, Box::new(move |filter| drop(handle.reload(filter))))
}

/// Starts logging, to the file too if there is one. Returns the monitor for followers, and the switch of the
/// level. A second call has no effect.
pub(crate) fn start(level: &str, json: bool, file: Option<(LogFile, PathBuf)>) -> (Monitors, Levels) {
    let (shown, first) = changeable(level);
    let written = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let written = if json {
        written.json().with_filter(shown).boxed()
    } else {
        written.with_ansi(false).with_filter(shown).boxed()
    };
    let mut switches = vec![first];
    let (file, path) = file.unzip();
    let kept = file.map(|file| {
        let (shown, second) = changeable(level);
        switches.push(second);
        let kept = tracing_subscriber::fmt::layer().with_writer(Mutex::new(file)).with_target(false);
        match json {
            true => kept.json().with_filter(shown).boxed(),
            false => kept.with_ansi(false).with_filter(shown).boxed(),
        }
    });
    let monitors = Monitors::new(path);
    let followed = monitors.clone().with_filter(monitors.clone());
    // An error means that logging runs already.
    let _ = tracing_subscriber::registry().with(written).with(kept).with(followed).try_init();
    (monitors, Levels(Arc::new(switches)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_level_changes_while_the_log_is_written() {
        let kept = Kept::default();
        let writer = kept.clone();
        let (shown, switch) = changeable("WARN");
        let layer = tracing_subscriber::fmt::layer().with_writer(move || writer.clone()).with_filter(shown);
        let levels = Levels(Arc::new(vec![switch]));
        let say = |word: &str| tracing::debug!("{word}");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            say("unheard");
            levels.set("DEBUG");
            say("heard");
            levels.set("OFF");
            say("silenced");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert!(text.contains(" heard") && !text.contains("unheard") && !text.contains("silenced"), "{text}");
    }
}
