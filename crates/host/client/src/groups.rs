//! The part of the tree of control groups in which tasks have their groups.
//!
//! On version 2 under systemd, the tree belongs to systemd, and only delegated groups may be changed. Groups of tasks
//! are below the agent's own service if the service delegates (`Delegate=yes`). The service must also have a separate
//! group for the agent (`DelegateSubgroup=`, systemd 254 and later). Otherwise the agent requests a delegated scope,
//! which all agents of the machine share. In both cases tasks keep their groups while the agent restarts.

use caravan_sys::cgroup::{Hierarchy, Place, Survey, vacate};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The group for processes that would otherwise be siblings of the groups of tasks.
const OWN: &str = "agent";

/// The scope that the agent requests, and its slice.
const SCOPE: &str = "caravan-tasks.scope";
const SLICE: &str = "caravan.slice";

/// The timeout for systemd's creation of the scope.
const SCOPE_TIMEOUT: Duration = Duration::from_secs(30);

/// The delay between two checks of the scope.
const SCOPE_INTERVAL: Duration = Duration::from_millis(20);

/// Prepares the tree for groups of tasks. Returns the path of the tasks' parent group below the hierarchy's root:
/// `parent`, within the part of the tree that the agent may change.
pub(crate) fn settle(parent: &str) -> String {
    match prepare(parent) {
        Ok(path) => path,
        Err(why) => {
            tracing::warn!(
                parent,
                why,
                "the control group for tasks cannot be prepared: limits of tasks may not be enforced"
            );
            parent.to_owned()
        }
    }
}

fn prepare(parent: &str) -> Result<String, String> {
    let described = |error: caravan_sys::Error| caravan_sys::describe(&error);
    let Some(survey) = Survey::read().map_err(described)? else { return Ok(parent.to_owned()) };
    let hierarchy = &survey.hierarchy;
    // Only root may request a scope of the machine; another user would be asked for a password.
    if survey.read_only || caravan_sys::user::effective_uid() != 0 {
        return Ok(parent.to_owned());
    }
    let group = match Place::find(&survey) {
        Place::Top => {
            // The root of a container is a group with processes, which passes no controllers to its children.
            if let (Hierarchy::V2(_), Some(own)) = (hierarchy, &survey.own)
                && own.as_os_str().is_empty()
            {
                vacate(hierarchy, own, OWN).map_err(described)?;
            }
            return Ok(parent.to_owned());
        }
        Place::Delegated(group) => group,
        Place::Requested => request_scope(hierarchy)?,
    };
    vacate(hierarchy, &group, OWN).map_err(described)?;
    Ok(format!("/{}", group.join(parent.trim_start_matches('/')).display()))
}

/// Returns the group of the scope, and creates the scope if it is absent. The scope exists while it contains a
/// process; the first one only sleeps.
fn request_scope(hierarchy: &Hierarchy) -> Result<PathBuf, String> {
    let Hierarchy::V2(mount) = hierarchy else { return Err("the host has no version 2".to_owned()) };
    let group = Path::new(SLICE).join(SCOPE);
    let dir = mount.join(&group);
    if has_processes(&dir) {
        return Ok(group);
    }
    let mut child = run_scope().map_err(|error| format!("systemd-run cannot be started: {error}"))?;
    let deadline = Instant::now() + SCOPE_TIMEOUT;
    loop {
        let ended = child.try_wait().map_err(|error| error.to_string())?;
        // The child is in the scope before it executes the sleeping program. Another agent may have been faster.
        if has_processes(&dir) {
            return Ok(group);
        }
        if ended.is_some() || Instant::now() >= deadline {
            return Err(refusal(child, &dir));
        }
        std::thread::sleep(SCOPE_INTERVAL);
    }
}

fn run_scope() -> std::io::Result<Child> {
    use std::os::unix::process::CommandExt;
    Command::new("systemd-run")
        .args(["--scope", "--quiet", "--collect", "--no-ask-password", "--unit", SCOPE, "--slice", SLICE])
        .args(["--property=Delegate=yes", "--description=Tasks of Caravan", "--"])
        .args(["sleep", "infinity"])
        .current_dir("/")
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // In a separate process group, the child does not receive the signals of the agent's terminal.
        .process_group(0)
        .spawn()
}

fn refusal(mut child: Child, dir: &Path) -> String {
    // An unfinished request must not create the scope later.
    let _ended = child.kill();
    let text =
        child.wait_with_output().map(|output| String::from_utf8_lossy(&output.stderr).trim().to_owned());
    let text = text.unwrap_or_default();
    if text.is_empty() { format!("systemd did not create {}", dir.display()) } else { text }
}

fn has_processes(dir: &Path) -> bool {
    std::fs::read_to_string(dir.join("cgroup.events"))
        .is_ok_and(|text| text.lines().any(|line| line == "populated 1"))
}
