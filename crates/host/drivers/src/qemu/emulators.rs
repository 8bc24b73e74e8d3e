//! The emulators of the host: their names, their search, and their version.

use crate::programs::is_executable;
use std::path::{Path, PathBuf};

/// The beginning of the name of every emulator's program.
const PREFIX: &str = "qemu-system-";

/// Returns the name of an emulator's program.
pub(super) fn program(emulator: &str) -> String {
    format!("{PREFIX}{}", short(emulator))
}

/// Returns the name of an emulator without the prefix that all have.
pub(super) fn short(emulator: &str) -> &str {
    emulator.strip_prefix(PREFIX).unwrap_or(emulator)
}

/// Returns whether a job may use an emulator. Its name is never a path.
pub(super) fn is_allowed(emulator: &str, allowlist: &[String]) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name = short(emulator);
    !name.is_empty()
        && name.chars().all(is_part)
        && (allowlist.is_empty() || allowlist.iter().any(|allowed| short(allowed) == name))
}

/// The emulators that tasks may use on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Emulators {
    dir: PathBuf,
    /// The names of the emulators without the prefix, sorted; never empty.
    pub(super) names: Vec<String>,
}

impl Emulators {
    /// Searches the first directory that has emulators. The error is a sentence for operators.
    pub(super) fn find(dirs: &[PathBuf], allowlist: &[String]) -> Result<Self, String> {
        let all = dirs.iter().map(|dir| (dir, names(dir))).find(|(_, names)| !names.is_empty());
        let (dir, names) = all.ok_or_else(|| format!("no program {PREFIX}* is found on the agent's PATH"))?;
        let names: Vec<String> = names.into_iter().filter(|name| is_allowed(name, allowlist)).collect();
        if names.is_empty() {
            return Err(format!("emulators_allowlist allows none of the emulators in {}", dir.display()));
        }
        Ok(Self { dir: dir.clone(), names })
    }

    /// Returns the program of the first emulator.
    pub(super) fn first(&self) -> PathBuf {
        self.dir.join(program(self.names.first().map_or("", String::as_str)))
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.file_name().to_str()?.strip_prefix(PREFIX)?.to_owned();
            is_executable(&entry.path()).then_some(name)
        })
        .collect();
    names.sort();
    names
}

/// Returns the version in the output of `--version`.
pub(super) fn parse_version(output: &str) -> Option<&str> {
    output.match_indices("version ").find_map(|(at, word)| {
        let rest = &output[at + word.len()..];
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let version = rest[..end].trim_end_matches('.');
        version.starts_with(|c: char| c.is_ascii_digit()).then_some(version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn versions_follow_the_word() {
        let debian = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright (c) 2003-2022\n";
        assert_eq!(parse_version(debian), Some("7.2.22"));
        assert_eq!(parse_version("version of this: version 9.0."), Some("9.0"));
        assert_eq!(parse_version("version v1\n2.0"), None);
    }

    #[test]
    fn names_are_compared_without_the_prefix_and_are_no_paths() {
        assert!(is_allowed("x86_64", &[]) && is_allowed("qemu-system-x86_64", &[]));
        assert!(is_allowed("x86_64", &names(&["qemu-system-x86_64"])));
        assert!(is_allowed("qemu-system-arm", &names(&["x86_64", "arm"])));
        assert!(!is_allowed("arm", &names(&["x86_64"])));
        for bad in ["", "qemu-system-", "../sh", "a/b", "x y"] {
            assert!(!is_allowed(bad, &[]), "{bad}");
        }
    }

    #[test]
    fn only_the_first_directory_with_emulators_counts() {
        let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let paths: Vec<PathBuf> = dirs.iter().map(|dir| dir.path().to_owned()).collect();
        let place = |dir: usize, name: &str, mode: u32| {
            let path = paths[dir].join(name);
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let error = Emulators::find(&paths, &[]).unwrap_err();
        assert!(error.contains("qemu-system-*"), "{error}");
        place(0, "qemu-img", 0o755);
        place(0, "qemu-system-text", 0o644);
        place(1, "qemu-system-x86_64", 0o755);
        place(1, "qemu-system-arm", 0o755);
        place(2, "qemu-system-s390x", 0o755);
        let found = Emulators::find(&paths, &[]).unwrap();
        assert_eq!(found.names, ["arm", "x86_64"]);
        assert_eq!(found.first(), paths[1].join("qemu-system-arm"));
        let found = Emulators::find(&paths, &names(&["x86_64"])).unwrap();
        assert_eq!(found.first(), paths[1].join("qemu-system-x86_64"));
        let error = Emulators::find(&paths, &names(&["s390x"])).unwrap_err();
        assert!(error.contains("emulators_allowlist"), "{error}");
    }
}
