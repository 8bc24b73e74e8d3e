//! Signed identities of a task: fetched before it starts, written where it reads them, renewed in time
//! (`http-api` section 5.10).

use super::alloc::AllocRunner;
use super::fresh::Owner;
use crate::alloc_dir::TaskDir;
use crate::clock;
use caravan_types::acl::Secret;
use caravan_types::identity::IdentitySpec;
use caravan_types::job::Task;
use caravan_types::wire::SignIdentities;
use caravan_types::{Nanos, UnixNanos};
use std::collections::BTreeMap;
use std::os::unix::fs::chown;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// After a renewal that failed.
const AGAIN: Duration = Duration::from_secs(10);

/// Identities with their tokens.
pub(super) type Signed = Vec<(IdentitySpec, Secret)>;

/// What became of an identity that was renewed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The task is to be started anew, for this reason.
    Restart(String),
    /// The task is to get this signal.
    Signal(String),
}

/// Asks the servers for all identities that a task is to have.
pub(super) async fn fetch(runner: &AllocRunner, task: &Task) -> Result<Signed, String> {
    sign(runner, &task.name, IdentitySpec::wanted(task)).await
}

async fn sign(runner: &AllocRunner, task: &str, wanted: Vec<IdentitySpec>) -> Result<Signed, String> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let context = runner.context();
    let request = SignIdentities {
        node_id: context.identity.node_id.clone(),
        secret: context.identity.secret.clone(),
        alloc_id: runner.alloc().id.clone(),
        wanted: wanted.iter().map(|spec| (task.to_owned(), spec.name.clone())).collect(),
    };
    let answer = context.servers.sign_identities(request).await;
    let tokens =
        answer.map_err(|error| format!("the identities cannot be signed: {}", error.message))?.tokens;
    if tokens.len() != wanted.len() {
        return Err("the servers signed other identities than those that were asked for".to_owned());
    }
    Ok(wanted.into_iter().zip(tokens).collect())
}

/// The variables that carry identities.
pub(super) fn variables(signed: &Signed) -> BTreeMap<String, String> {
    let carried = signed.iter().filter(|(spec, _)| spec.env);
    carried.map(|(spec, token)| (spec.variable(), token.expose().to_owned())).collect()
}

/// Where an identity is written.
fn place(dirs: &TaskDir, spec: &IdentitySpec) -> Result<PathBuf, String> {
    let path = spec.path();
    let inside = Path::new(&path).components().all(|part| matches!(part, Component::Normal(_)));
    match inside {
        true => Ok(dirs.root.join(path)),
        false => Err(format!("the file of identity \"{}\" would not lie in the task's directory", spec.name)),
    }
}

/// Writes identities to their files, for the task's user alone.
pub(super) fn write(dirs: &TaskDir, signed: &Signed, owner: Option<Owner>) -> Result<(), String> {
    for (spec, token) in signed.iter().filter(|(spec, _)| spec.file) {
        let path = place(dirs, spec)?;
        let failed = |why: String| {
            format!("identity \"{}\" cannot be written to {}: {why}", spec.name, path.display())
        };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|e| failed(e.to_string()))?;
        }
        caravan_sys::files::atomic_write(&path, token.expose().as_bytes(), 0o600)
            .map_err(|e| failed(caravan_sys::describe(&e)))?;
        if let Some(owner) = owner {
            match chown(&path, Some(owner.uid), Some(owner.gid)) {
                Err(error) if error.kind() != std::io::ErrorKind::PermissionDenied => {
                    return Err(failed(error.to_string()));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// How long until an identity that was written then is to be renewed: half of its life is left.
fn until_due(written: UnixNanos, now: UnixNanos, ttl: Nanos) -> Duration {
    Nanos(ttl.0 / 2).to_std().saturating_sub(now.since(written).to_std())
}

fn written_at(path: &Path) -> UnixNanos {
    let modified = std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    UnixNanos(Nanos::from_std(since).0)
}

/// Renews identities in files until one of them changes something for the task.
pub(super) async fn renewed(
    runner: &AllocRunner,
    task: &Task,
    dirs: &TaskDir,
    owner: Option<Owner>,
) -> Change {
    let specs: Vec<IdentitySpec> =
        IdentitySpec::wanted(task).into_iter().filter(|spec| spec.file && spec.ttl.0 > 0).collect();
    let mut failed = false;
    loop {
        let now = clock::now();
        let due = |spec: &IdentitySpec| {
            let written = place(dirs, spec).map_or(now, |path| written_at(&path));
            until_due(written, now, spec.ttl)
        };
        let Some(next) = specs.iter().map(&due).min() else { return std::future::pending().await };
        tokio::time::sleep(if failed { next.max(AGAIN) } else { next }).await;
        let now_due: Vec<IdentitySpec> = specs.iter().filter(|spec| due(spec) <= next).cloned().collect();
        let done = match sign(runner, &task.name, now_due).await {
            Ok(signed) => write(dirs, &signed, owner).map(|()| signed),
            Err(why) => Err(why),
        };
        match done {
            Ok(signed) => {
                failed = false;
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

    fn spec(edit: impl FnOnce(&mut IdentitySpec)) -> IdentitySpec {
        let mut spec = IdentitySpec { file: true, ..IdentitySpec::default_one() };
        edit(&mut spec);
        spec
    }

    #[test]
    fn files_lie_in_the_directory_of_the_task() {
        let base = tempfile::tempdir().unwrap();
        let dirs = TaskDir { root: base.path().join("t"), shared: base.path().join("alloc") };
        write(&dirs, &vec![(spec(|_| {}), Secret::new("jwt"))], None).unwrap();
        assert_eq!(std::fs::read_to_string(dirs.root.join("secrets/nomad_token")).unwrap(), "jwt");
        for bad in ["../x", "a/../../x"] {
            let error = write(&dirs, &vec![(spec(|s| s.filepath = bad.into()), Secret::new("jwt"))], None);
            assert!(error.unwrap_err().contains("would not lie"), "{bad}");
        }
        let signed = vec![(spec(|s| s.env = true), Secret::new("jwt"))];
        assert_eq!(variables(&signed)["NOMAD_TOKEN"], "jwt");
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
