//! Fingerprint of kernel, operating system, memory, disk and control groups.

use super::text;
use crate::config::ClientConfig;
use caravan_sys::cgroup::Hierarchy;
use caravan_sys::mountinfo::MountTable;
use std::collections::BTreeMap;
use std::path::Path;

/// The signals that tasks can receive, by the names that drivers accept.
const SIGNALS: &str = "SIGABRT,SIGALRM,SIGBUS,SIGCHLD,SIGCONT,SIGFPE,SIGHUP,SIGILL,SIGINT,SIGIO,SIGKILL,SIGPIPE,\
SIGPROF,SIGQUIT,SIGSEGV,SIGSTOP,SIGSYS,SIGTERM,SIGTRAP,SIGTSTP,SIGTTIN,SIGTTOU,SIGURG,SIGUSR1,SIGUSR2,SIGWINCH,\
SIGXCPU,SIGXFSZ";

/// The version of Nomad with which this client is compatible: constraints of jobs compare it.
const COMPATIBLE: &str = "2.0.6";

pub(super) fn add_attributes(config: &ClientConfig, to: &mut BTreeMap<String, String>) {
    let uname = rustix::system::uname();
    let (name, version) = os_version(os_release(&text("/etc/os-release")), &text("/etc/debian_version"));
    let mut set = |key: &str, value: String| {
        to.insert(key.to_owned(), value);
    };
    set("kernel.name", uname.sysname().to_string_lossy().to_lowercase());
    set("kernel.version", uname.release().to_string_lossy().into_owned());
    set("kernel.arch", uname.machine().to_string_lossy().into_owned());
    set("os.name", name);
    set("os.version", version);
    set("os.signals", SIGNALS.to_owned());
    set("nomad.version", COMPATIBLE.to_owned());
    set("caravan.version", config.version.clone());
    if !config.revision.is_empty() {
        set("nomad.revision", config.revision.clone());
    }
    set("nomad.service_discovery", "true".to_owned());
    set("unique.hostname", config.hostname.clone());
    match Hierarchy::detect() {
        Ok(Some(hierarchy)) => {
            set("os.cgroups.version", hierarchy.version().trim_start_matches('v').to_owned());
            let mounted = match &hierarchy {
                Hierarchy::V2(path) => Some(path.as_path()),
                Hierarchy::V1(controllers) => controllers.values().next().and_then(|p| p.parent()),
            };
            if let Some(path) = mounted {
                set("unique.cgroup.mountpoint", path.display().to_string());
            }
        }
        Ok(None) => {}
        Err(error) => tracing::debug!(%error, "control groups cannot be detected"),
    }
}

/// Returns `ID` and `VERSION_ID` of os-release(5).
fn os_release(text: &str) -> (String, String) {
    let value = |key: &str| {
        text.lines()
            .filter_map(|line| line.split_once('='))
            .find(|(k, _)| *k == key)
            .map_or_else(String::new, |(_, v)| v.trim_matches(['"', '\'']).to_owned())
    };
    (value("ID"), value("VERSION_ID"))
}

/// Returns the name and the version of the operating system. Debian's release file has the point release, such as 12.11.
fn os_version((name, version): (String, String), debian: &str) -> (String, String) {
    match debian.lines().next().map(str::trim) {
        Some(point) if name == "debian" && !point.is_empty() => (name, point.to_owned()),
        _ => (name, version),
    }
}

/// Returns `MemTotal` of `/proc/meminfo` in bytes.
pub(super) fn memory_bytes(meminfo: &str) -> i64 {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let kib: i64 = line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0);
    kib.saturating_mul(1024)
}

/// The file system of the allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Disk {
    /// The device or source that is mounted.
    pub(super) volume: String,
    /// Total size in bytes.
    pub(super) total: i64,
    /// Bytes that an unprivileged user could write.
    pub(super) free: i64,
}

pub(super) fn disk(dir: &Path) -> Option<Disk> {
    let stat = rustix::fs::statvfs(dir)
        .inspect_err(|error| tracing::debug!(path = %dir.display(), %error, "the disk cannot be measured"))
        .ok()?;
    let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(stat.f_frsize)).unwrap_or(i64::MAX);
    let table = MountTable::read().ok();
    let real = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let volume =
        table.as_ref().and_then(|t| t.containing(&real)).map_or_else(String::new, |m| m.source.clone());
    Some(Disk { volume, total: bytes(stat.f_blocks), free: bytes(stat.f_bavail) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_system_are_read() {
        let release = "NAME=\"Debian GNU/Linux\"\nID=debian\nVERSION_ID=\"13\"\n";
        assert_eq!(os_release(release), ("debian".to_owned(), "13".to_owned()));
        assert_eq!(os_release(""), Default::default());
        let debian = |release: &str| os_version(os_release(release), "13.2\n").1;
        assert_eq!(debian("ID=debian\nVERSION_ID=\"13\"\n"), "13.2");
        assert_eq!(
            debian("ID=ubuntu\nVERSION_ID=\"24.04\"\n"),
            "24.04",
            "Ubuntu has the file of another system"
        );
        assert_eq!(os_version(os_release(release), "").1, "13");
        assert_eq!(memory_bytes("MemTotal:       16314304 kB\nMemFree: 1 kB\n"), 16_314_304 * 1024);
        assert_eq!(memory_bytes("MemTotal: lots"), 0);
    }

    #[test]
    fn the_disk_of_a_directory_is_measured() {
        let disk = disk(Path::new("/")).unwrap();
        assert!(disk.total >= disk.free && disk.total > 0);
    }
}
