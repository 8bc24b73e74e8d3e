//! Artifacts: files that are fetched before a task starts (docs/reference/jobspec.md, section 4.9). Artifacts are not
//! trusted, so nothing is written outside of their destination.

mod fetch;
mod source;

use super::plan::{Plan, Planner};
use super::task_hooks::{Prepared, StartFault, TaskContext, TaskHook};
use super::templates::place::Places;
use super::unpack::{Limits, OutwardLinks, Owners, Tree, Unpack};
use crate::clock;
use async_trait::async_trait;
use caravan_sys::describe;
use caravan_sys::dir::{Access, Dir, Owner};
use caravan_types::alloc::{TaskEvent, event};
use caravan_types::job::Artifact;
use flate2::read::MultiGzDecoder;
use source::{Packing, Source};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The marker file in the private directory of a task whose artifacts were fetched.
const DONE: &str = "artifacts";
/// The limits of one unpacked artifact (docs/reference/jobspec.md, section 11.3).
const LIMITS: Limits = Limits { bytes: 100_000_000_000, bytes_text: Cow::Borrowed("100 GB"), entries: 4096 };

/// A guard that sets a flag when it is dropped, because then no caller waits any more.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The hook of artifacts.
#[derive(Debug)]
pub(super) struct ArtifactsHook {
    pub(super) planner: Arc<Planner>,
}

#[async_trait]
impl TaskHook for ArtifactsHook {
    async fn start(
        &mut self,
        cx: TaskContext<'_>,
        plan: &Plan,
        prepared: &mut Prepared,
    ) -> Result<(), StartFault> {
        fetch_all(&self.planner, cx, plan, prepared.owner()).await.map_err(StartFault::Artifact)
    }
}

/// Fetches all artifacts of a task, unless they were fetched before. The error names the artifact.
async fn fetch_all(planner: &Planner, cx: TaskContext<'_>, plan: &Plan, owner: Owner) -> Result<(), String> {
    let blocks = &plan.task().artifacts;
    if blocks.is_empty() {
        return Ok(());
    }
    let unusable = |error| format!("the task's private directory cannot be used: {}", describe(&error));
    let private = plan.dirs().open_part("private").map_err(unusable)?;
    if private.stat(OsStr::new(DONE)).map_err(unusable)?.is_some() {
        return Ok(());
    }
    cx.emit(TaskEvent::new(event::DOWNLOADING, clock::now()));
    for block in blocks {
        let name = block.getter_source.as_str();
        one(planner, cx, plan, block, owner).await.map_err(|why| {
            // The part before an `@` may contain a password.
            let shown = name.split_once("://").map_or(name, |(_, rest)| rest);
            let shown = shown.split(['?', '#']).next().unwrap_or_default();
            let shown = shown.rsplit_once('@').map_or(shown, |(_, host)| host);
            format!("failed to download artifact \"{shown}\": {why}")
        })?;
    }
    private.replace(OsStr::new(DONE), b"", Access::mode(0o600)).map_err(unusable)
}

async fn one(
    planner: &Planner,
    cx: TaskContext<'_>,
    plan: &Plan,
    artifact: &Artifact,
    owner: Owner,
) -> Result<(), String> {
    let texts = |pairs: &BTreeMap<String, String>| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| (key.clone(), plan.text(value))).collect()
    };
    let source = plan.text(&artifact.getter_source);
    let source = Source::parse(&source, &texts(&artifact.getter_options))?;
    let destination = plan.client_text(&artifact.relative_dest);
    let destination = if destination.is_empty() { "local/".to_owned() } else { destination };
    let file = matches!(source.packing, Packing::None | Packing::Gz);
    let (below, name) = match (artifact.getter_mode.as_str(), file) {
        ("file", true) => {
            let path = PathBuf::from(&destination);
            let name = path.file_name().ok_or("the destination names no file")?.to_owned();
            (path.parent().map(|dir| dir.display().to_string()).unwrap_or_default(), PathBuf::from(name))
        }
        ("file", false) => {
            return Err(
                "an archive of files cannot become one file: set archive = \"false\" or mode".to_owned()
            );
        }
        ("dir", true) => return Err("mode \"dir\" needs an archive".to_owned()),
        _ => (destination, PathBuf::from(file_name(&source)?)),
    };
    let places = Places::new(plan.dirs().clone(), plan.has_own_root(), planner.users_of(cx.alloc));
    // The task's own directories exist already.
    let (base, below) = places.directory(&below)?;
    let owner = if artifact.chown { owner } else { Owner::default() };
    // Tasks cannot reach the allocation's own directory.
    let into =
        unnamed(cx.alloc.dir().root()).map_err(|error| format!("it cannot be kept: {}", describe(&error)))?;
    let fetched =
        fetch::fetch(&source, &texts(&artifact.getter_headers), artifact.getter_insecure, into).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let _guard = StopOnDrop(Arc::clone(&stop));
    let work = move || -> std::io::Result<()> {
        let base = places.open(&base).map_err(|error| io::Error::other(describe(&error)))?;
        let tree = Tree::make(&base, &below, Owners::One(owner))?;
        let mut unpack = Unpack::new(&tree, Path::new(&source.inner), &stop, LIMITS, OutwardLinks::Refuse);
        let fetched = BufReader::new(fetched);
        match source.packing {
            Packing::None => unpack.single(fetched, &name),
            Packing::Gz => unpack.single(MultiGzDecoder::new(fetched), &name),
            Packing::Tar => unpack.tar(fetched),
            Packing::TarGz => unpack.tar(BufReader::new(MultiGzDecoder::new(fetched))),
            Packing::Zip => unpack.zip(fetched),
        }
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| "the agent ends".to_owned())?.map_err(|error| format!("it cannot be unpacked: {error}"))
}

fn file_name(source: &Source) -> Result<String, String> {
    let name = match source.packing {
        Packing::Gz => source.file_name.strip_suffix(".gz").unwrap_or(&source.file_name),
        _ => &source.file_name,
    };
    match (name, source.packing) {
        ("", Packing::None | Packing::Gz) => Err("the source names no file".to_owned()),
        (name, _) => Ok(name.to_owned()),
    }
}

/// Creates an unlinked file: no other process can open it, and it disappears when it is closed.
fn unnamed(dir: &Path) -> Result<File, caravan_sys::Error> {
    let dir = Dir::open(dir)?;
    let name = dir.temporary(OsStr::new("artifact"))?;
    let file = dir.create(&name, Access::mode(0o600))?;
    dir.remove_file(&name)?;
    Ok(file)
}
