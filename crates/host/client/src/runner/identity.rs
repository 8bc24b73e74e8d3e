//! Workload identities of a task: fetched before it starts, written to its files, and renewed before they expire
//! (docs/reference/http-api.md, section 5.10).

use super::alloc_state::AllocState;
use super::plan::Plan;
use super::task_hooks::{Prepared, StartFault, TaskContext, TaskHook};
use crate::alloc_dir::TaskDir;
use crate::clock;
use crate::servers::Link;
use async_trait::async_trait;
use caravan_messages::SignIdentities;
use caravan_sys::dir::{Access, Mounts, Owner};
use caravan_types::acl::Secret;
use caravan_types::identity::IdentitySpec;
use caravan_types::job::Task;
use caravan_types::{AllocId, Nanos, UnixNanos};
use parking_lot::Mutex;
use rustix::fs::Stat;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The pause after a failed renewal.
const AGAIN: Duration = Duration::from_secs(10);

/// Identity specifications with their tokens.
pub(super) type Signed = Vec<(IdentitySpec, Secret)>;

/// The times at which this agent wrote the identities of a task, by name.
///
/// A file's own time counts only for a task that an earlier agent started. The task may move or remove its file
/// immediately, and must not find a second file in its place before the identity is due.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes(Arc<Mutex<BTreeMap<String, UnixNanos>>>);

impl Writes {
    /// Records that these identities were written at `now`.
    pub(super) fn record<'a>(&self, specs: impl Iterator<Item = &'a IdentitySpec>, now: UnixNanos) {
        let mut times = self.0.lock();
        times.extend(specs.map(|spec| (spec.name.clone(), now)));
    }

    fn time(&self, spec: &IdentitySpec) -> Option<UnixNanos> {
        self.0.lock().get(&spec.name).copied()
    }

    /// Returns the time at which the identity was written: the recorded time, or otherwise the time of its file.
    fn last(&self, dirs: &TaskDir, spec: &IdentitySpec, now: UnixNanos) -> UnixNanos {
        self.time(spec).unwrap_or_else(|| place(spec).map_or(now, |path| written_at(dirs, &path)))
    }
}

/// The effect of a renewed identity on the task.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Restart the task, for this reason.
    Restart(String),
    /// Send this signal to the task.
    Signal(String),
}

/// The hook of workload identities. Clones share the times of the writes.
#[derive(Clone, Debug)]
pub(super) struct IdentityHook {
    link: Link,
    writes: Writes,
}

impl IdentityHook {
    pub(super) fn new(link: Link) -> Self {
        Self { link, writes: Writes::default() }
    }

    /// Renews the identities of the running task until a renewal requires a restart or a signal.
    pub(super) async fn renewed(&self, alloc: &AllocState, plan: &Plan) -> Change {
        let owner = plan.user().owner().await;
        renewed(&self.link, &alloc.id(), plan.task(), plan.dirs(), owner, &self.writes).await
    }
}

#[async_trait]
impl TaskHook for IdentityHook {
    async fn start(
        &mut self,
        cx: TaskContext<'_>,
        plan: &Plan,
        prepared: &mut Prepared,
    ) -> Result<(), StartFault> {
        let failed = |why: String| StartFault::of_hook("identity", why);
        let task = plan.task();
        let signed = sign(&self.link, &cx.alloc.id(), &task.name, IdentitySpec::all(task)).await;
        let signed = signed.map_err(failed)?;
        write(plan.dirs(), &signed, prepared.owner()).map_err(failed)?;
        self.writes.record(signed.iter().map(|(spec, _)| spec), clock::now());
        prepared.tokens = variables(&signed);
        Ok(())
    }
}

async fn sign(
    link: &Link,
    alloc: &AllocId,
    task: &str,
    requested: Vec<IdentitySpec>,
) -> Result<Signed, String> {
    if requested.is_empty() {
        return Ok(Vec::new());
    }
    let request = SignIdentities {
        node_id: link.identity.node_id.clone(),
        secret: link.identity.secret.clone(),
        alloc_id: alloc.clone(),
        identities: requested.iter().map(|spec| (task.to_owned(), spec.name.clone())).collect(),
    };
    let answer = link.servers.sign_identities(request).await;
    let tokens =
        answer.map_err(|error| format!("the identities cannot be signed: {}", error.message))?.tokens;
    if tokens.len() != requested.len() {
        return Err("the servers signed other identities than those that were asked for".to_owned());
    }
    Ok(requested.into_iter().zip(tokens).collect())
}

/// Returns the environment variables that contain identities.
pub(super) fn variables(signed: &Signed) -> BTreeMap<String, String> {
    let carried = signed.iter().filter(|(spec, _)| spec.env);
    carried.map(|(spec, token)| (spec.variable(), token.expose().to_owned())).collect()
}

/// Returns the path of an identity's file, relative to the task's directory.
fn place(spec: &IdentitySpec) -> Result<PathBuf, String> {
    let path = PathBuf::from(spec.path());
    let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    match (inside, path.file_name()) {
        (true, Some(_)) => Ok(path),
        _ => Err(format!("the file of identity \"{}\" would not lie in the task's directory", spec.name)),
    }
}

/// Writes identities to their files, readable by the task's user only.
pub(super) fn write(dirs: &TaskDir, signed: &Signed, owner: Owner) -> Result<(), String> {
    for (spec, token) in signed.iter().filter(|(spec, _)| spec.file) {
        let path = place(spec)?;
        let access = Access { mode: 0o600, owner };
        replace(dirs, &path, token.expose().as_bytes(), access).map_err(|error| {
            let path = dirs.root.join(&path);
            let why = caravan_sys::describe(&error);
            format!("identity \"{}\" cannot be written to {}: {why}", spec.name, path.display())
        })?;
    }
    Ok(())
}

fn replace(dirs: &TaskDir, path: &Path, bytes: &[u8], access: Access) -> Result<(), caravan_sys::Error> {
    let parent = path.parent().unwrap_or(Path::new(""));
    let dir = dirs.open()?.make(parent, Access::mode(0o755), Mounts::Follow)?;
    dir.replace(path.file_name().unwrap_or_default(), bytes, access)
}

/// Returns the time until an identity must be renewed, at half of its TTL.
fn until_due(written: UnixNanos, now: UnixNanos, ttl: Nanos) -> Duration {
    Nanos(ttl.0 / 2).to_std().saturating_sub(now.since(written).to_std())
}

/// Returns the time at which an identity's file was written; the epoch if the file is absent.
fn written_at(dirs: &TaskDir, path: &Path) -> UnixNanos {
    let stat = || -> Option<Stat> {
        let dir = dirs.open().ok()?.enter(path.parent()?, Mounts::Follow).ok()?;
        dir.stat(path.file_name()?).ok()?
    };
    let nanos = stat().map(|stat| {
        let subsecond = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
        stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(subsecond)
    });
    UnixNanos(nanos.unwrap_or(0))
}

/// Renews identities in files until a renewal requires a restart or a signal.
async fn renewed(
    link: &Link,
    alloc: &AllocId,
    task: &Task,
    dirs: &TaskDir,
    owner: Owner,
    writes: &Writes,
) -> Change {
    let specs: Vec<IdentitySpec> =
        IdentitySpec::all(task).into_iter().filter(|spec| spec.file && spec.ttl.0 > 0).collect();
    let mut failed = false;
    loop {
        let now = clock::now();
        let due = |spec: &IdentitySpec| until_due(writes.last(dirs, spec, now), now, spec.ttl);
        let Some(next) = specs.iter().map(&due).min() else { return std::future::pending().await };
        tokio::time::sleep(if failed { next.max(AGAIN) } else { next }).await;
        let now_due: Vec<IdentitySpec> = specs.iter().filter(|spec| due(spec) <= next).cloned().collect();
        let done = match sign(link, alloc, &task.name, now_due).await {
            Ok(signed) => write(dirs, &signed, owner).map(|()| signed),
            Err(why) => Err(why),
        };
        match done {
            Ok(signed) => {
                failed = false;
                writes.record(signed.iter().map(|(spec, _)| spec), clock::now());
                if let Some(change) = signed.iter().find_map(|(spec, _)| change_of(spec)) {
                    return change;
                }
            }
            Err(why) => {
                failed = true;
                tracing::warn!(task = %task.name, why, "an identity could not be renewed");
            }
        }
    }
}

fn change_of(spec: &IdentitySpec) -> Option<Change> {
    match spec.change_mode.as_str() {
        "restart" => Some(Change::Restart(format!("identity \"{}\" was renewed", spec.name))),
        "signal" => Some(Change::Signal(spec.change_signal.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn spec(edit: impl FnOnce(&mut IdentitySpec)) -> IdentitySpec {
        let mut spec = IdentitySpec { file: true, ..IdentitySpec::default_one() };
        edit(&mut spec);
        spec
    }

    const USER: Owner = Owner { uid: Some(65534), gid: Some(65534) };

    fn token(edit: impl FnOnce(&mut IdentitySpec)) -> Signed {
        vec![(spec(edit), Secret::new("jwt"))]
    }

    #[test]
    fn files_lie_in_the_directory_of_the_task() {
        let base = tempfile::tempdir().unwrap();
        let dirs = TaskDir { root: base.path().join("t"), shared: base.path().join("alloc") };
        fs::create_dir(&dirs.root).unwrap();
        write(&dirs, &token(|_| {}), USER).unwrap();
        let file = dirs.root.join("secrets/nomad_token");
        assert_eq!(fs::read_to_string(&file).unwrap(), "jwt");
        let meta = fs::metadata(&file).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (0o600, 65534, 65534));
        assert!(
            clock::now().since(written_at(&dirs, Path::new("secrets/nomad_token"))) < Nanos::from_secs(600)
        );
        write(&dirs, &token(|s| s.filepath = "local/deep/x".into()), USER).unwrap();
        assert_eq!(fs::read_to_string(dirs.root.join("local/deep/x")).unwrap(), "jwt");
        for bad in ["../x", "a/../../x"] {
            let error = write(&dirs, &token(|s| s.filepath = bad.into()), USER);
            assert!(error.unwrap_err().contains("would not lie"), "{bad}");
        }
        assert_eq!(variables(&token(|s| s.env = true))["NOMAD_TOKEN"], "jwt");
    }

    #[test]
    fn what_a_task_plants_is_replaced_or_named_and_never_followed() {
        let base = tempfile::tempdir().unwrap();
        let dirs = TaskDir { root: base.path().join("t"), shared: base.path().join("alloc") };
        let (secrets, canary) = (dirs.secrets(), base.path().join("canary"));
        fs::create_dir_all(&secrets).unwrap();
        fs::write(&canary, "precious content").unwrap();
        let names = ["nomad_token", ".nomad_token.tmp"];
        let fifo = |at: &Path| {
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
            rustix::fs::mknodat(rustix::fs::CWD, at, kind, mode, 0).map_err(Into::into)
        };
        type Plant<'a> = &'a dyn Fn(&Path) -> std::io::Result<()>;
        let plants: [(&str, Plant<'_>); 4] = [
            ("absolute", &|at| symlink(&canary, at)),
            ("relative", &|at| symlink("../../canary", at)),
            ("hard", &|at| fs::hard_link(&canary, at)),
            ("fifo", &fifo),
        ];
        for (what, plant) in plants {
            for name in names {
                plant(&secrets.join(name)).unwrap();
            }
            // Twice, as a renewal does.
            for _ in 0..2 {
                write(&dirs, &token(|_| {}), USER).unwrap();
            }
            assert_eq!(fs::read_to_string(secrets.join("nomad_token")).unwrap(), "jwt", "{what}");
            for name in names {
                fs::remove_file(secrets.join(name)).unwrap();
            }
        }
        let way = dirs.root.join("local");
        symlink(base.path(), &way).unwrap();
        for path in ["local/canary", "local/new/x"] {
            let error = write(&dirs, &token(|s| s.filepath = path.into()), USER).unwrap_err();
            assert!(error.contains(path) && error.contains("symbolic link"), "{error}");
        }
        assert_eq!(written_at(&dirs, Path::new("local/canary")), UnixNanos(0));
        let meta = fs::metadata(&canary).unwrap();
        assert_eq!((fs::read_to_string(&canary).unwrap().as_str(), meta.uid()), ("precious content", 0));
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_the_task_moved_is_not_written_before_it_is_due() {
        let base = tempfile::tempdir().unwrap();
        let dirs = TaskDir { root: base.path().join("t"), shared: base.path().join("alloc") };
        fs::create_dir(&dirs.root).unwrap();
        let (now, writes) = (clock::now(), Writes::default());
        let spec = spec(|s| s.filepath = "local/deep/x".into());
        write(&dirs, &vec![(spec.clone(), Secret::new("jwt"))], USER).unwrap();
        let of_file = writes.last(&dirs, &spec, now);
        assert!(now.since(of_file) < Nanos::from_secs(600), "a restarted agent reads the file's time");
        writes.record([&spec].into_iter(), now);
        fs::rename(dirs.root.join("local/deep"), dirs.root.join("local/deep.away")).unwrap();
        assert_eq!(writes.last(&dirs, &spec, now), now);
        assert_eq!(
            Writes::default().last(&dirs, &spec, now),
            UnixNanos(0),
            "a restarted agent finds no file"
        );
    }

    #[test]
    fn half_of_the_life_is_left_when_it_is_renewed() {
        let secs = |n: i64| UnixNanos(Nanos::from_secs(n).0);
        assert_eq!(until_due(secs(100), secs(110), Nanos::from_secs(60)), Duration::from_secs(20));
        assert_eq!(until_due(secs(100), secs(500), Nanos::from_secs(60)), Duration::ZERO);
        assert_eq!(change_of(&spec(|_| {})), None);
        assert_eq!(
            change_of(&spec(|s| {
                s.change_mode = "signal".into();
                s.change_signal = "SIGHUP".into();
            })),
            Some(Change::Signal("SIGHUP".into()))
        );
    }
}
