//! Log lines on standard error, in the JSON form that agents read (hclog).

use serde_json::{Map, Value};
use std::fmt;
use std::io::Write as _;
use std::time::SystemTime;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// The libraries below the protocol. Their debug lines would be most of the log.
const QUIET: [&str; 4] = ["h2", "hyper", "tonic", "tower"];

/// Sends the events of `tracing` to standard error. A subscriber that the program has already set remains in use. The
/// agent filters by level, so everything from debug on is written.
pub(crate) fn install(plugin: &str) {
    let quiet = QUIET.iter().map(|target| ((*target).to_owned(), LevelFilter::WARN));
    let filter = Targets::new().with_default(LevelFilter::DEBUG).with_targets(quiet);
    let lines = Lines { module: plugin.to_owned() };
    if tracing_subscriber::registry().with(lines.with_filter(filter)).try_init().is_err() {
        tracing::debug!("the program has set its own log subscriber, which stays in use");
    }
}

struct Lines {
    module: String,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut text = line(&self.module, now(), event).to_string();
        text.push('\n');
        // An agent that has ended does not read. The plugin continues, because the next agent may attach to it.
        let _unread = std::io::stderr().lock().write_all(text.as_bytes());
    }
}

fn line(module: &str, now: SystemTime, event: &Event<'_>) -> Value {
    let mut fields = Fields(Map::new());
    event.record(&mut fields);
    let message = fields.0.remove("message").unwrap_or_default();
    let message = message.as_str().unwrap_or_default();
    let level = match *event.metadata().level() {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    };
    let head = [
        ("@level", level.to_owned()),
        ("@message", message.to_owned()),
        ("@module", module.to_owned()),
        ("@timestamp", stamp(now)),
    ];
    let head = head.into_iter().map(|(key, text)| (key.to_owned(), Value::String(text)));
    Value::Object(head.chain(fields.0).collect())
}

/// Returns a time with exactly six digits of the second. Agents do not read a line whose time has another form.
fn stamp(at: SystemTime) -> String {
    let mut at = prost_types::Timestamp::from(at);
    let micros = at.nanos / 1000;
    at.nanos = 0;
    format!("{}.{micros:06}Z", at.to_string().trim_end_matches('Z'))
}

/// Returns the wall clock, for display.
#[expect(
    clippy::disallowed_methods,
    reason = "the function of caravan-sys would make every plugin depend on that crate"
)]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

struct Fields(Map<String, Value>);

impl Fields {
    fn set(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.set(field, crate::error::chain(value).into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, UNIX_EPOCH};

    struct Kept(Arc<Mutex<Vec<Value>>>);

    impl<S: Subscriber> Layer<S> for Kept {
        fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
            self.0.lock().unwrap().push(line("example", UNIX_EPOCH + Duration::from_millis(1500), event));
        }
    }

    #[test]
    fn lines_have_the_keys_of_agents() {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let subscriber = tracing_subscriber::registry().with(Kept(Arc::clone(&kept)));
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(task = "a/b", pid = 7, late = true, "{} is slow", "it");
        });
        let expected = serde_json::json!({
            "@level": "warn", "@message": "it is slow", "@module": "example",
            "@timestamp": "1970-01-01T00:00:01.500000Z", "task": "a/b", "pid": 7, "late": true,
        });
        assert_eq!(*kept.lock().unwrap(), [expected]);
    }
}
