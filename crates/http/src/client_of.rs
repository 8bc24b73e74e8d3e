//! Implements the routes' view of the client on this agent's client.

use crate::client_side::{
    ClientSide, ClientSideError, Content, ExecSession, FileInfo, Frame, Frames, LogKind, Origin, Range,
};
use crate::routes::client::NOT_COLLECTED;
use crate::{disks, host};
use async_trait::async_trait;
use bytes::Bytes;
use caravan_client::fs::{self, AllocFs, FsError};
use caravan_client::{ClientError, ExecEvent, ExecInput, ExecRequest, Handle, Metadata, ProcessUsage, Usage};
use caravan_meters::Meters;
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::node::Node;
use caravan_types::wire::{ExecIn, ExecOpen, ExecOut};
use caravan_types::{AllocId, NodeId};
use futures::StreamExt;
use http::StatusCode;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio_util::io::ReaderStream;

/// The number of queued messages for a program that reads slowly.
const QUEUE: usize = 16;

/// How long requests wait until the client has restored its allocations.
const RESTORING: Duration = Duration::from_secs(10);

/// The time between two samples of a counter from which a rate is computed.
const SAMPLE: Duration = Duration::from_millis(100);

fn of_fs(error: &FsError) -> ClientSideError {
    let status = match error {
        FsError::NotFound(_) | FsError::NoDirectory(_) | FsError::NoLogs(_) => StatusCode::NOT_FOUND,
        FsError::UnknownTask(_) | FsError::IsDirectory(_) | FsError::NotDirectory(_) => {
            StatusCode::BAD_REQUEST
        }
        FsError::Escapes | FsError::Secret(_) | FsError::Private(_) | FsError::Io { .. } => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    ClientSideError::new(status, error.to_string())
}

fn of_client(error: &ClientError) -> ClientSideError {
    match error {
        ClientError::UnknownAlloc(id) => {
            ClientSideError::new(StatusCode::NOT_FOUND, format!("Unknown allocation \"{id}\""))
        }
        other => ClientSideError::new(StatusCode::INTERNAL_SERVER_ERROR, other.to_string()),
    }
}

/// Converts an error of a stream. A missing path is a bad request here, unlike in `stat`.
fn of_stream(error: &FsError) -> ClientSideError {
    match error {
        FsError::NotFound(_) => ClientSideError::new(StatusCode::BAD_REQUEST, error.to_string()),
        other => of_fs(other),
    }
}

/// Runs file operations on the pool of blocking threads.
async fn blocking<T: Send + 'static>(
    fs: AllocFs,
    look: impl FnOnce(&AllocFs) -> Result<T, FsError> + Send + 'static,
) -> Result<T, ClientSideError> {
    let looked = tokio::task::spawn_blocking(move || look(&fs).map_err(|e| of_fs(&e))).await;
    looked.unwrap_or_else(|e| {
        let text = format!("looking at the files failed: {e}");
        Err(ClientSideError::new(StatusCode::INTERNAL_SERVER_ERROR, text))
    })
}

fn info(file: fs::FileInfo) -> FileInfo {
    FileInfo {
        name: file.name,
        is_dir: file.is_dir,
        size: file.size,
        file_mode: file.mode,
        mod_time: file.modified,
        content_type: file.content_type.map(str::to_owned),
    }
}

fn frames(frames: fs::Frames) -> Frames {
    let frame = |frame: Result<fs::Frame, FsError>| match frame {
        Ok(frame) => Ok(Frame {
            data: Bytes::from(frame.data),
            file: frame.file,
            offset: frame.offset,
            event: frame.event.map(|event| event.as_str().to_owned()).unwrap_or_default(),
        }),
        Err(error) => Err(of_fs(&error)),
    };
    frames.map(frame).boxed()
}

fn origin(origin: Origin) -> fs::Origin {
    match origin {
        Origin::Start => fs::Origin::Start,
        Origin::End => fs::Origin::End,
    }
}

fn now_ns() -> i64 {
    caravan_sys::time::wall_nanos()
}

/// Returns the percentage of one CPU: nanoseconds of work during `passed`.
fn percent(work_ns: u64, passed: Duration) -> f64 {
    Duration::from_nanos(work_ns).as_secs_f64() * 100.0 / passed.as_secs_f64().max(f64::EPSILON)
}

#[async_trait]
impl ClientSide for Handle {
    fn node_id(&self) -> NodeId {
        Self::node_id(self)
    }
    fn has_alloc(&self, alloc: &AllocId) -> bool {
        Self::has_alloc(self, alloc)
    }
    fn alloc_count(&self) -> usize {
        self.alloc_ids().len()
    }
    fn node(&self) -> Arc<Node> {
        Self::node(self)
    }
    fn allocs(&self) -> Vec<(Arc<Allocation>, ClientStatus)> {
        Self::allocs(self)
    }
    fn meters(&self) -> Meters {
        Self::meters(self)
    }
    fn last_heartbeat(&self) -> Option<(Duration, Duration)> {
        Self::last_heartbeat(self)
    }
    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    async fn ready(&self) {
        if tokio::time::timeout(RESTORING, self.restored()).await.is_err() {
            tracing::warn!("the allocations of the earlier agent are not taken back yet");
        }
    }

    async fn list(&self, alloc: &AllocId, path: &str) -> Result<Vec<FileInfo>, ClientSideError> {
        let (fs, path) = (self.fs(alloc).map_err(|e| of_client(&e))?, path.to_owned());
        let files = blocking(fs, move |fs| fs.ls(&path)).await?;
        Ok(files.into_iter().map(info).collect())
    }

    async fn stat(&self, alloc: &AllocId, path: &str) -> Result<FileInfo, ClientSideError> {
        let (fs, path) = (self.fs(alloc).map_err(|e| of_client(&e))?, path.to_owned());
        let mut file = info(blocking(fs, move |fs| fs.stat(&path)).await?);
        file.content_type.get_or_insert_with(|| "application/octet-stream".into());
        Ok(file)
    }

    async fn read(
        &self,
        alloc: &AllocId,
        path: &str,
        offset: i64,
        limit: Option<u64>,
    ) -> Result<Content, ClientSideError> {
        let (fs, path) = (self.fs(alloc).map_err(|e| of_client(&e))?, path.to_owned());
        let on_host = fs.on_host(&path);
        let from = u64::try_from(offset);
        // A file that cannot be opened is reported before the stream starts.
        let file = blocking(fs, move |fs| fs.read_from(&path, from.unwrap_or(0))).await?;
        if offset < 0 {
            let on_host = on_host.display();
            let text = format!("can't seek to offset {offset}: seek {on_host}: invalid argument");
            return Err(ClientSideError::new(StatusCode::INTERNAL_SERVER_ERROR, text));
        }
        let file = tokio::fs::File::from_std(file).take(limit.unwrap_or(u64::MAX));
        let chunks = ReaderStream::with_capacity(file, 64 * 1024).map(|chunk| {
            chunk.map_err(|e| ClientSideError::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))
        });
        Ok(chunks.boxed())
    }

    async fn stream(&self, alloc: &AllocId, path: &str, range: Range) -> Result<Frames, ClientSideError> {
        let fs = self.fs(alloc).map_err(|e| of_client(&e))?;
        let opened = fs.stream(path, range.offset, origin(range.origin), range.follow);
        opened.map(frames).map_err(|e| of_stream(&e))
    }

    async fn logs(
        &self,
        alloc: &AllocId,
        task: &str,
        kind: LogKind,
        range: Range,
    ) -> Result<Frames, ClientSideError> {
        let fs = self.fs(alloc).map_err(|e| of_client(&e))?;
        let kind = match kind {
            LogKind::Stdout => fs::LogKind::Stdout,
            LogKind::Stderr => fs::LogKind::Stderr,
        };
        let opened = fs.logs(task, kind, range.offset, origin(range.origin), range.follow);
        opened.map(frames).map_err(|e| of_fs(&e))
    }

    async fn snapshot(&self, alloc: &AllocId) -> Result<Content, ClientSideError> {
        let fs = self.fs(alloc).map_err(|e| of_client(&e))?;
        let pieces = fs.snapshot().map_err(|e| of_fs(&e))?;
        let pieces = received(pieces);
        Ok(pieces.map(|piece| piece.map_err(|e| of_fs(&e))).boxed())
    }

    async fn identity(&self) -> Result<Value, ClientSideError> {
        Ok(json!(self.identity_claims().await.map_err(|e| of_client(&e))?))
    }

    async fn renew_identity(&self) -> Result<(), ClientSideError> {
        Self::renew_identity(self).await.map_err(|e| of_client(&e))
    }

    async fn alloc_stats(&self, alloc: &AllocId, task: Option<&str>) -> Result<Value, ClientSideError> {
        let (_, states) = self.status(alloc).map_err(|e| of_client(&e))?;
        let names: Vec<String> = match task {
            Some(task) if !states.contains_key(task) => {
                return Err(ClientSideError::new(
                    StatusCode::BAD_REQUEST,
                    format!("unknown task name \"{task}\""),
                ));
            }
            Some(task) => vec![task.to_owned()],
            None => states.into_keys().collect(),
        };
        // Tasks that do not run use nothing.
        let mut before = Vec::new();
        for name in names {
            if let Ok(usage) = self.stats(alloc, &name).await {
                before.push((name, usage, tokio::time::Instant::now()));
            }
        }
        if !before.is_empty() {
            tokio::time::sleep(SAMPLE).await;
        }
        let mut tasks = Map::new();
        let (mut memory, mut rss, mut busy, mut user, mut system) = (0_u64, 0_u64, 0.0, 0.0, 0.0);
        for (name, then, at) in before {
            let Ok(now) = self.stats(alloc, &name).await else { continue };
            let passed = at.elapsed();
            let share = |now: u64, then: u64| percent(now.saturating_sub(then), passed);
            let shares = (
                share(now.cpu_total_ns, then.cpu_total_ns),
                share(now.cpu_user_ns, then.cpu_user_ns),
                share(now.cpu_system_ns, then.cpu_system_ns),
            );
            busy += shares.0;
            user += shares.1;
            system += shares.2;
            memory += now.memory;
            rss += now.rss;
            let usage = json!({
                "CpuStats": cpu(shares.0, shares.1, shares.2, now.throttled_periods, now.throttled_ns),
                "MemoryStats": {
                    "RSS": now.rss, "Cache": now.cache, "Swap": now.swap, "MappedFile": 0,
                    "Usage": now.memory, "MaxUsage": now.memory_peak, "KernelUsage": 0, "KernelMaxUsage": 0,
                    "Measured": ["RSS", "Cache", "Swap", "Usage", "Max Usage"],
                },
                "DeviceStats": null,
            });
            let pids = of_processes(&then, &now, passed);
            tasks.insert(name, json!({"ResourceUsage": usage, "Timestamp": now_ns(), "Pids": pids}));
        }
        Ok(json!({
            "ResourceUsage": {
                "CpuStats": cpu(busy, user, system, 0, 0),
                "MemoryStats": {
                    "RSS": rss, "Cache": 0, "Swap": 0, "MappedFile": 0, "Usage": memory, "MaxUsage": 0,
                    "KernelUsage": 0, "KernelMaxUsage": 0, "Measured": ["RSS", "Usage"],
                },
                "DeviceStats": [],
            },
            "Tasks": tasks,
            "Timestamp": now_ns(),
        }))
    }

    async fn host_stats(&self) -> Result<Value, ClientSideError> {
        let read = async |path: &str| {
            tokio::fs::read_to_string(path).await.map_err(|e| {
                let text = format!("{path} cannot be read: {e}");
                ClientSideError::new(StatusCode::INTERNAL_SERVER_ERROR, text)
            })
        };
        let before = host::cpus(&read("/proc/stat").await?);
        tokio::time::sleep(SAMPLE).await;
        let (stat, meminfo) = (read("/proc/stat").await?, read("/proc/meminfo").await?);
        let uptime = read("/proc/uptime").await?;
        let dir = self.allocs_dir();
        let mhz = self.node().attributes.get("cpu.frequency").and_then(|mhz| mhz.parse().ok());
        let looked = tokio::task::spawn_blocking(move || (disks::all(), disks::of(&dir))).await;
        let (disks, alloc_dir) = looked.unwrap_or_default();
        let machine = host::Machine { disks, alloc_dir, mhz: mhz.unwrap_or(0.0) };
        Ok(host::stats(&before, &stat, &meminfo, &uptime, now_ns(), &machine))
    }

    async fn restart(&self, alloc: &AllocId, task: Option<&str>, all: bool) -> Result<(), ClientSideError> {
        Self::restart(self, alloc, task, all).map_err(|error| match error {
            ClientError::UnknownTask(task) => ClientSideError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("Could not find task runner for task: {task}"),
            ),
            other => of_client(&other),
        })
    }

    async fn exec(&self, open: &ExecOpen) -> Result<ExecSession, ClientSideError> {
        session(self, open).await
    }

    async fn checks(&self, alloc: &AllocId) -> Result<Value, ClientSideError> {
        Ok(json!(Self::checks(self, alloc).map_err(|e| of_client(&e))?))
    }

    async fn collect(&self, alloc: &AllocId) -> Result<(), ClientSideError> {
        match Self::collect(self, alloc).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(ClientSideError::new(StatusCode::INTERNAL_SERVER_ERROR, NOT_COLLECTED)),
            Err(error) => Err(of_client(&error)),
        }
    }

    async fn collect_all(&self) -> Result<(), ClientSideError> {
        Self::collect_all(self).await.map_err(|e| of_client(&e))
    }

    async fn metadata(&self) -> Result<Value, ClientSideError> {
        Ok(shown(&Self::metadata(self)))
    }

    async fn change_metadata(
        &self,
        changes: BTreeMap<String, Option<String>>,
    ) -> Result<Value, ClientSideError> {
        match Self::change_metadata(self, changes).await {
            Ok(metadata) => Ok(shown(&metadata)),
            Err(error @ ClientError::Metadata(_)) => {
                Err(ClientSideError::new(StatusCode::BAD_REQUEST, error.to_string()))
            }
            Err(error) => Err(of_client(&error)),
        }
    }

    async fn signal(&self, alloc: &AllocId, task: Option<&str>, signal: &str) -> Result<(), ClientSideError> {
        Self::signal(self, alloc, task, signal).await.map_err(|error| match error {
            ClientError::UnknownTask(_) => {
                ClientSideError::new(StatusCode::INTERNAL_SERVER_ERROR, "Task not found")
            }
            other => of_client(&other),
        })
    }
}

fn received<T: Send>(receiver: mpsc::Receiver<T>) -> impl futures::Stream<Item = T> + Send {
    futures::stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) })
}

fn shown(metadata: &Metadata) -> Value {
    json!({"Meta": metadata.meta, "Dynamic": metadata.dynamic, "Static": metadata.fixed})
}

/// Starts a program in a task of this node and adapts it to the messages of the protocol.
async fn session(handle: &Handle, open: &ExecOpen) -> Result<ExecSession, ClientSideError> {
    let refused = |error: ClientError| match &error {
        ClientError::UnknownTask(_) => {
            ClientSideError::new(StatusCode::INTERNAL_SERVER_ERROR, "task not found")
        }
        ClientError::UnknownAction { .. } => ClientSideError::new(StatusCode::NOT_FOUND, error.to_string()),
        _ => of_client(&error),
    };
    let command = if open.action.is_empty() {
        open.command.clone()
    } else {
        handle.action(&open.alloc, &open.task, &open.action).map_err(refused)?
    };
    let request = ExecRequest { command, tty: open.tty };
    let stream = handle.exec_stream(&open.alloc, &open.task, request).await.map_err(refused)?;
    let (input, mut inputs) = mpsc::channel(QUEUE);
    let to = stream.input;
    // The session ends when either side ends. The program is ended when its output has no reader.
    tokio::spawn(async move {
        while let Some(message) = inputs.recv().await {
            let message = match message {
                ExecIn::Data(data) => ExecInput::Data(data),
                ExecIn::Close => ExecInput::Close,
                ExecIn::Resize { rows, columns } => ExecInput::Resize { rows, columns },
            };
            if to.send(message).await.is_err() {
                return;
            }
        }
    });
    let output = futures::stream::unfold(stream.output, |mut output| async move {
        let item = match output.recv().await? {
            Ok(ExecEvent::Stdout(data)) => Ok(ExecOut::Stdout(data)),
            Ok(ExecEvent::Stderr(data)) => Ok(ExecOut::Stderr(data)),
            Ok(ExecEvent::StdoutClosed) => Ok(ExecOut::StdoutClosed),
            Ok(ExecEvent::StderrClosed) => Ok(ExecOut::StderrClosed),
            Ok(ExecEvent::Exited(code)) => Ok(ExecOut::Exited(code)),
            Err(error) => Err(ClientSideError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                // Clients recognise driver errors by this prefix.
                format!("rpc error: code = Unknown desc = {error}"),
            )),
        };
        Some((item, output))
    });
    Ok(ExecSession { input, output: output.boxed() })
}

/// Returns the usage of single processes by process id; empty if the driver does not know them.
fn of_processes(then: &Usage, now: &Usage, passed: Duration) -> Value {
    let before: BTreeMap<u32, &ProcessUsage> = then.processes.iter().map(|p| (p.pid, p)).collect();
    let one = |own: &ProcessUsage| {
        let old = before.get(&own.pid).copied().copied().unwrap_or(*own);
        let user = percent(own.cpu_user_ns.saturating_sub(old.cpu_user_ns), passed);
        let system = percent(own.cpu_system_ns.saturating_sub(old.cpu_system_ns), passed);
        let mut shares = cpu(user + system, user, system, 0, 0);
        shares["Measured"] = json!(["System Mode", "User Mode", "Percent"]);
        let usage = json!({
            "CpuStats": shares,
            "MemoryStats": {
                "RSS": own.rss, "Cache": 0, "Swap": own.swap, "MappedFile": 0, "Usage": 0, "MaxUsage": 0,
                "KernelUsage": 0, "KernelMaxUsage": 0, "Measured": ["RSS", "Swap"],
            },
            "DeviceStats": null,
        });
        (own.pid.to_string(), usage)
    };
    match now.processes.is_empty() {
        true => Value::Null,
        false => Value::Object(now.processes.iter().map(one).collect()),
    }
}

fn cpu(busy: f64, user: f64, system: f64, throttled_periods: u64, throttled_ns: u64) -> Value {
    json!({
        "Percent": busy, "UserMode": user, "SystemMode": system, "TotalTicks": 0.0,
        "ThrottledPeriods": throttled_periods, "ThrottledTime": throttled_ns,
        "Measured": ["System Mode", "User Mode", "Percent", "Throttled Periods", "Throttled Time"],
    })
}
