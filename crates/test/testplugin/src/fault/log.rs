//! The log of calls: one JSON object a line, appended in one write, so that all instances can share the file.

use anyhow::{Context, Result};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tonic::Code;

/// Returns the nanoseconds of `CLOCK_BOOTTIME` (clock_gettime(2)).
pub(crate) fn boot_time() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, rest) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or_default() * 1_000_000_000 + rest.unwrap_or_default()
}

/// The facts about a call that the log and the fault rules use.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    /// The name of the call.
    pub(crate) call: &'static str,
    /// The volume id; for CreateVolume the name.
    pub(crate) volume: String,
    /// The node of the call.
    pub(crate) node: String,
    /// The target path.
    pub(crate) target: String,
    /// The staging path.
    pub(crate) staging: String,
    /// Whether the call requests read-only use.
    pub(crate) readonly: bool,
}

impl About {
    /// Returns the facts about a call on a volume.
    pub(crate) fn volume(call: &'static str, volume: &str, node: &str) -> Self {
        Self { call, volume: volume.to_owned(), node: node.to_owned(), ..Self::default() }
    }

    /// Adds paths.
    pub(crate) fn at(self, target: &str, staging: &str) -> Self {
        Self { target: target.to_owned(), staging: staging.to_owned(), ..self }
    }
}

/// The end of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// The code of the answer.
    pub(crate) code: Code,
    /// Whether the call had an effect.
    pub(crate) effect: bool,
    /// Whether the call undoes a step that the plugin has not recorded.
    pub(crate) unknown: bool,
}

/// The log file.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
    instance: String,
    next: AtomicU64,
    /// The calls in progress.
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
        // A full disk must not change the plugin's behaviour.
        let _ = (&self.file).write_all(format!("{line}\n").as_bytes());
    }

    /// Logs the start of the process. `removed` are the records of its node that the start has deleted, as volume and
    /// path.
    pub(crate) fn start(&self, removed: &[(String, String)]) {
        let gone = removed.iter().map(|(volume, path)| json!({ "volume": volume, "path": path }));
        self.write("start", 0, json!({ "unmounted": gone.collect::<Vec<_>>() }));
    }

    /// Logs the requested end of the process: calls in progress will not be answered.
    pub(crate) fn exit(&self) {
        for (id, about) in self.under_way().iter() {
            let mut more = described(about);
            more["code"] = json!("Cancelled");
            more["effect"] = json!(true);
            self.write("end", *id, more);
        }
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeMap<u64, About>> {
        self.open.lock()
    }

    /// Logs the beginning of a call. Returns its number.
    pub(crate) fn begin(&self, about: &About) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.under_way().insert(id, about.clone());
        self.write("begin", id, described(about));
        id
    }

    /// Logs the end of a call.
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
