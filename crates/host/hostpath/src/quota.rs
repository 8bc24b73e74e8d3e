//! Limits for directories: project quotas of xfs (`--quota`).
//!
//! The directory of a volume belongs to a project, which everything created in it inherits. The file system enforces
//! the limit of the project, and reports the limit as the size of the directory (statvfs(3)). xfs_quota(8) and
//! xfs_io(8) report some failures with exit code 0, so that size is checked after each change.

use crate::{error::Error, mountinfo, record::VolumeId, tool::run};
use sha2::{Digest, Sha256};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The package of the tools.
const PACKAGE: &str = "xfsprogs";

/// The mount options under which xfs enforces project quotas (xfs(5)).
const OPTIONS: [&str; 2] = ["prjquota", "pquota"];

/// The first project of this plugin. Operators give small numbers to their own projects.
const FIRST_PROJECT: u32 = 1 << 30;

/// A file system with project quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Quotas {
    mount: PathBuf,
}

impl Quotas {
    /// Finds the file system of a directory. Fails unless it is an xfs that enforces project quotas.
    pub(crate) fn find(directory: &Path) -> Result<Self, Error> {
        let directory = directory.canonicalize().map_err(Error::io("resolve", directory))?;
        for place in directory.ancestors() {
            let Some(mount) = mountinfo::at(place)? else { continue };
            let enforced = mount.super_options.iter().any(|option| OPTIONS.contains(&option.as_str()));
            if mount.fs_type == "xfs" && enforced {
                return Ok(Self { mount: mount.path });
            }
            return Err(Error::Precondition(format!(
                "--quota needs the state directory {} on xfs with the mount option prjquota, and {} is {} without it",
                directory.display(),
                mount.path.display(),
                mount.fs_type
            )));
        }
        Err(Error::Inconsistent(format!("{} is on no mount", directory.display())))
    }

    /// Returns a project for a new volume, for which neither `is_taken` nor the file system has an entry.
    pub(crate) fn choose(&self, id: &VolumeId, is_taken: impl Fn(u32) -> bool) -> Result<u32, Error> {
        let mut project = first_choice(id);
        loop {
            if !is_taken(project) && !self.is_known(project)? {
                return Ok(project);
            }
            project = FIRST_PROJECT | (project.wrapping_add(1) & (FIRST_PROJECT - 1));
        }
    }

    /// Assigns an empty directory to a project, and limits the project.
    pub(crate) fn assign(&self, directory: &Path, project: u32, bytes: u64) -> Result<(), Error> {
        let mut xfs_io = Command::new("xfs_io");
        // Without read permission for the file's content: the directory is opened for reading only.
        xfs_io.args(["-r", "-c", &format!("chproj {project}"), "-c", "chattr +P"]).arg(directory);
        run(&mut xfs_io, "xfs_io", PACKAGE, &[])?;
        self.limit(directory, project, bytes)
    }

    /// Sets the limit of a volume's project.
    pub(crate) fn limit(&self, directory: &Path, project: u32, bytes: u64) -> Result<(), Error> {
        self.run(&format!("limit -p bhard={}k {project}", bytes / 1024))?;
        let of = |path: &Path| {
            let stat = rustix::fs::statvfs(path).map_err(Error::io("look at the file system of", path))?;
            Ok::<u64, Error>(stat.f_blocks.saturating_mul(stat.f_frsize))
        };
        let (size, whole) = (of(directory)?, of(&self.mount)?);
        if size == bytes.min(whole) {
            return Ok(());
        }
        Err(Error::Tool {
            program: "xfs_quota",
            problem: format!("{} has the size {size} and not the limit {bytes}", directory.display()),
        })
    }

    /// Removes the limit of a project whose directory is removed.
    pub(crate) fn release(&self, project: u32) -> Result<(), Error> {
        self.run(&format!("limit -p bhard=0 {project}")).map(drop)
    }

    /// Returns whether the file system has a limit or files of a project.
    fn is_known(&self, project: u32) -> Result<bool, Error> {
        let report = self.run(&format!("report -p -n -N -b -L {project} -U {project}"))?;
        Ok(report.lines().any(|line| is_known(line, project)))
    }

    /// Runs a command of xfs_quota(8); projects are numbers, so its files of names are not read.
    fn run(&self, command: &str) -> Result<String, Error> {
        let mut xfs_quota = Command::new("xfs_quota");
        xfs_quota.args(["-x", "-D", "/dev/null", "-P", "/dev/null", "-c", command]).arg(&self.mount);
        let output = run(&mut xfs_quota, "xfs_quota", PACKAGE, &[])?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Returns the first project to try. It follows from the id, so that two creations rarely compete for one.
fn first_choice(id: &VolumeId) -> u32 {
    let digest = Sha256::digest(id.as_str().as_bytes());
    let number = digest.iter().take(4).fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
    FIRST_PROJECT | (number & (FIRST_PROJECT - 1))
}

/// Returns whether a line of a report (`#<project> <used> <soft> <hard> ...`) shows use or a limit of a project.
fn is_known(line: &str, project: u32) -> bool {
    let mut columns = line.split_whitespace();
    columns.next() == Some(&format!("#{project}")) && columns.take(3).any(|number| number != "0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Instance;

    #[test]
    fn projects_follow_from_ids_and_leave_small_numbers_alone() {
        let instance = Instance::parse("0123abcd").expect("eight digits");
        let of = |name| first_choice(&VolumeId::new(&instance, name));
        assert_eq!(of("data"), of("data"));
        assert_ne!(of("data"), of("data2"));
        assert!(of("data") >= FIRST_PROJECT && of("data") < FIRST_PROJECT << 1);
    }

    #[test]
    fn reports_show_use_and_limits() {
        assert!(is_known("#1073741900     4    0   65536   00 [--------]", 1_073_741_900));
        assert!(is_known("#7 0 0 1 00 [--------]", 7));
        assert!(!is_known("#7 0 0 0 00 [--------]", 7));
        assert!(!is_known("#70 4 0 1 00 [--------]", 7));
        assert!(!is_known("", 7));
    }

    #[test]
    fn a_file_system_without_quotas_is_refused() {
        let error = Quotas::find(Path::new("/proc/self")).expect_err("proc has no quotas");
        assert!(error.sentence().contains("--quota needs the state directory"), "{}", error.sentence());
    }
}
