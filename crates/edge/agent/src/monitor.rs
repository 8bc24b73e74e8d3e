//! The agent's log for followers over the API, each with its own level.

use crate::run::now;
use caravan_http::{LogLevel, LogRecord, LogRecords, LogSource};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::broadcast;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Filter};

/// The number of records that a follower may lag behind before it misses some.
const QUEUE: usize = 1024;

/// The followers of the log and their levels.
#[derive(Debug)]
pub(crate) struct Monitor {
    records: broadcast::Sender<Arc<LogRecord>>,
    levels: Mutex<[usize; 6]>,
    /// The most verbose level of any follower; 0 without followers.
    most: AtomicU8,
    /// The log file, if there is one.
    file: Option<PathBuf>,
}

impl Default for Monitor {
    fn default() -> Self {
        Self {
            records: broadcast::Sender::new(QUEUE),
            levels: Mutex::default(),
            most: AtomicU8::new(0),
            file: None,
        }
    }
}

impl Monitor {
    /// Adds or removes a follower.
    fn count(&self, level: LogLevel, add: bool) {
        let most = {
            let mut levels = self.levels.lock();
            let count = &mut levels[level as usize];
            *count = if add { *count + 1 } else { count.saturating_sub(1) };
            levels.iter().rposition(|count| *count > 0).unwrap_or(0)
        };
        let most = u8::try_from(most).unwrap_or(0);
        if self.most.swap(most, Ordering::SeqCst) != most {
            // Call sites without interested followers were disabled, so their interest is computed again.
            tracing::callsite::rebuild_interest_cache();
        }
    }

    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        let most = self.most.load(Ordering::Relaxed);
        let level = number(*metadata.level());
        // Records of libraries below warnings are for the libraries' developers. bollard writes whole answers of an
        // engine, which contain the environment of tasks.
        let target = metadata.target();
        level <= most && (level <= 2 && !target.starts_with("bollard") || target.starts_with("caravan"))
    }
}

fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 1,
        Level::WARN => 2,
        Level::INFO => 3,
        Level::DEBUG => 4,
        Level::TRACE => 5,
    }
}

/// A follower, which is removed from the counts when dropped.
struct Follower {
    monitor: Arc<Monitor>,
    level: LogLevel,
    records: broadcast::Receiver<Arc<LogRecord>>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.monitor.count(self.level, false);
    }
}

/// A handle to the one monitor of the process; clones feed the same streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Monitors(pub(crate) Arc<Monitor>);

impl Monitors {
    /// Creates a monitor with the log file, if there is one.
    pub(crate) fn new(file: Option<PathBuf>) -> Self {
        Self(Arc::new(Monitor { file, ..Monitor::default() }))
    }
}

impl LogSource for Monitors {
    fn file(&self) -> Option<PathBuf> {
        self.0.file.clone()
    }

    fn follow(&self, level: LogLevel) -> LogRecords {
        self.0.count(level, true);
        let follower = Follower { monitor: self.0.clone(), level, records: self.0.records.subscribe() };
        stream::unfold(follower, |mut follower| async move {
            loop {
                match follower.records.recv().await {
                    Ok(record) if record.level <= follower.level => return Some((record, follower)),
                    Ok(_) => {}
                    Err(broadcast::error::RecvError::Lagged(missed)) => {
                        let record = LogRecord {
                            time: now(),
                            level: LogLevel::Warn,
                            module: "monitor".to_owned(),
                            message: "records were missed: this reader is too slow".to_owned(),
                            fields: vec![("missed".to_owned(), missed.to_string())],
                            ..LogRecord::default()
                        };
                        return Some((Arc::new(record), follower));
                    }
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        })
        .boxed()
    }
}

/// Passes the records that a follower requested.
impl<S> Filter<S> for Monitors {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.0.wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match self.0.most.load(Ordering::Relaxed) {
            0 => LevelFilter::OFF,
            1 => LevelFilter::ERROR,
            2 => LevelFilter::WARN,
            3 => LevelFilter::INFO,
            4 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        })
    }
}

impl<S: Subscriber> Layer<S> for Monitors {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = match *metadata.level() {
            Level::ERROR => LogLevel::Error,
            Level::WARN => LogLevel::Warn,
            Level::INFO => LogLevel::Info,
            Level::DEBUG => LogLevel::Debug,
            Level::TRACE => LogLevel::Trace,
        };
        let file = metadata.file().and_then(|file| file.rsplit('/').next()).unwrap_or_default();
        let record = LogRecord {
            time: now(),
            level,
            module: module(metadata.target()),
            message: fields.message,
            fields: fields.others,
            location: metadata.line().map(|line| format!("{file}:{line}")).unwrap_or_default(),
        };
        // An error means that there is no follower any more.
        let _ = self.0.records.send(Arc::new(record));
    }
}

/// Shortens a module path: `caravan_client::runner::task` becomes `client.runner.task`.
fn module(target: &str) -> String {
    target.strip_prefix("caravan_").unwrap_or(target).replace("::", ".")
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(String, String)>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            name => self.others.push((name.to_owned(), value.to_owned())),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt as _;

    #[tokio::test]
    async fn followers_hear_their_level_and_no_more() {
        let monitors = Monitors::default();
        let layer = monitors.clone().with_filter(monitors.clone());
        let subscriber = tracing_subscriber::registry().with(layer);
        let mut calm = monitors.follow(LogLevel::Info);
        let mut curious = monitors.follow(LogLevel::Debug);
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!(target: "caravan_client::runner", alloc = %"a1", "looking");
            tracing::info!(target: "caravan_server", "done");
            tracing::debug!(target: "hyper", "not ours");
        });
        let first = curious.next().await.unwrap();
        assert_eq!((first.module.as_str(), first.message.as_str()), ("client.runner", "looking"));
        assert_eq!(first.fields, [("alloc".to_owned(), "a1".to_owned())]);
        assert_eq!(calm.next().await.unwrap().message, "done");
        assert_eq!(curious.next().await.unwrap().message, "done");
        drop(curious);
        assert_eq!(monitors.0.most.load(Ordering::Relaxed), LogLevel::Info as u8);
        drop(calm);
        assert_eq!(monitors.0.most.load(Ordering::Relaxed), 0);
    }
}
