//! The log of calls: one JSON object a line, appended whole, so that all instances may share the file.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tonic::Code;

/// Nanoseconds of `CLOCK_BOOTTIME` (clock_gettime(2)).
pub(crate) fn boot_time() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, rest) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or_default() * 1_000_000_000 + rest.unwrap_or_default()
}

/// What a call is about, as far as the log and the rules of faults go.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    /// Name of the call.
    pub(crate) call: &'static str,
    /// Volume id; the name for CreateVolume.
    pub(crate) volume: String,
    /// The node that it concerns.
    pub(crate) node: String,
    /// Target path.
    pub(crate) target: String,
    /// Staging path.
    pub(crate) staging: String,
    /// Whether it asks for read-only use.
    pub(crate) readonly: bool,
}

impl About {
    /// A call on a volume.
    pub(crate) fn volume(call: &'static str, volume: &str, node: &str) -> Self {
        Self { call, volume: volume.to_owned(), node: node.to_owned(), ..Self::default() }
    }

    /// The same with paths.
    pub(crate) fn at(self, target: &str, staging: &str) -> Self {
        Self { target: target.to_owned(), staging: staging.to_owned(), ..self }
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Code of the answer.
    pub(crate) code: Code,
    /// Whether anything is different now.
    pub(crate) effect: bool,
    /// The plugin was to undo what it does not know.
    pub(crate) unknown: bool,
}

/// The log.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
    instance: String,
    next: AtomicU64,
    /// Calls under way.
    open: Mutex<BTreeMap<u64, About>>,
}

impl Log {
    pub(crate) fn open(path: &Path, instance: &str) -> Result<Self> {
        let file = File::options().create(true).append(true).open(path);
        let file = file.with_context(|| format!("open the log {}", path.display()))?;
        Ok(Self { file, instance: instance.to_owned(), next: AtomicU64::new(1), open: Mutex::default() })
    }

    fn write(&self, event: &str, id: u64, more: Value) {
        let mut line = json!({
            "t_ns": boot_time(),
            "pid": std::process::id(),
            "instance": self.instance,
            "id": id,
            "event": event,
        });
        if let (Value::Object(line), Value::Object(more)) = (&mut line, more) {
            line.extend(more);
        }
        // A disk that is full must not change what the plugin does.
        let _ = (&self.file).write_all(format!("{line}\n").as_bytes());
    }

    /// The process begins; `forgotten` are paths of its node where nothing is mounted any more.
    pub(crate) fn start(&self, forgotten: &[(String, String)]) {
        let gone = forgotten.iter().map(|(volume, path)| json!({ "volume": volume, "path": path }));
        self.write("start", 0, json!({ "unmounted": gone.collect::<Vec<_>>() }));
    }

    /// The process ends because it was told to: whatever is under way is answered to nobody.
    pub(crate) fn exit(&self) {
        for (id, about) in self.under_way().iter() {
            let mut more = described(about);
            more["code"] = json!("Cancelled");
            more["effect"] = json!(true);
            self.write("end", *id, more);
        }
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeMap<u64, About>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call begins; answers its number.
    pub(crate) fn begin(&self, about: &About) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.under_way().insert(id, about.clone());
        self.write("begin", id, described(about));
        id
    }

    /// A call ends.
    pub(crate) fn end(&self, id: u64, about: &About, ended: Ended) {
        self.under_way().remove(&id);
        let mut more = described(about);
        more["code"] = match ended.code {
            Code::Ok => json!("OK"),
            other => json!(format!("{other:?}")),
        };
        more["effect"] = json!(ended.effect);
        more["unknown"] = json!(ended.unknown);
        self.write("end", id, more);
    }
}

fn described(about: &About) -> Value {
    json!({
        "call": about.call,
        "volume": about.volume,
        "node": about.node,
        "target": about.target,
        "staging": about.staging,
        "readonly": about.readonly,
    })
}
