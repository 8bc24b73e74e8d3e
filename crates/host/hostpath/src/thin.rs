//! Thin volumes of LVM (`--lvm-thin`): each volume and snapshot is a logical volume of one pool (lvmthin(7)), with the
//! id as its name.

use crate::{error::Error, tool::run};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The package of the tool.
const PACKAGE: &str = "lvm2";

/// A pool for thin volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThinPool {
    group: String,
    pool: String,
}

/// The space of a pool in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolSpace {
    pub(crate) total: u64,
    pub(crate) available: u64,
}

impl ThinPool {
    /// Parses `GROUP/POOL`; `None` if a part cannot be a name in LVM (lvm(8), "VALID NAMES").
    pub fn parse(text: &str) -> Option<Self> {
        let (group, pool) = text.split_once('/')?;
        let is_name = |name: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '_' | '.' | '-');
            !name.is_empty()
                && !matches!(name, "." | "..")
                && !name.starts_with('-')
                && name.chars().all(plain)
        };
        (is_name(group) && is_name(pool)).then(|| Self { group: group.to_owned(), pool: pool.to_owned() })
    }

    /// Fails unless the pool exists and is a thin pool.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let kind = self.query(&self.pool, "segtype")?;
        if kind.as_deref() == Some("thin-pool") {
            return Ok(());
        }
        Err(Error::Precondition(format!(
            "--lvm-thin {}/{} does not name a thin pool: {}",
            self.group,
            self.pool,
            kind.map_or_else(|| "there is no such volume".to_owned(), |kind| format!("its type is {kind}"))
        )))
    }

    /// Returns the path of a volume's device.
    pub(crate) fn device(&self, id: &str) -> PathBuf {
        Path::new("/dev").join(&self.group).join(id)
    }

    /// Creates a volume.
    pub(crate) fn create(&self, id: &str, bytes: u64) -> Result<(), Error> {
        let size = format!("{bytes}b");
        // A new volume reads as zeros, so it has no signatures to remove.
        let options = ["--type", "thin", "--wipesignatures", "n", "--virtualsize", &size];
        self.run(
            &[&["lvcreate"], &options[..], &["--name", id, "--thinpool", &self.pool, &self.group]].concat(),
        )
        .map(drop)
    }

    /// Creates a snapshot of a volume, or of another snapshot, that can be written to. The kernel holds back writes
    /// meanwhile, also of a mounted file system.
    pub(crate) fn snapshot(&self, from: &str, to: &str) -> Result<(), Error> {
        self.activate(from)?;
        let from = self.name(from);
        self.run(&["lvcreate", "--snapshot", "--setactivationskip", "n", "--name", to, &from]).map(drop)
    }

    /// Activates a volume, so that its device exists, for example after the host has booted.
    pub(crate) fn activate(&self, id: &str) -> Result<(), Error> {
        if self.device(id).exists() {
            return Ok(());
        }
        self.run(&["lvchange", "--activate", "y", "--ignoreactivationskip", &self.name(id)]).map(drop)
    }

    /// Extends a volume to a size, if it is smaller.
    pub(crate) fn extend(&self, id: &str, bytes: u64) -> Result<(), Error> {
        if self.number(id, "lv_size")? >= bytes {
            return Ok(());
        }
        self.run(&["lvextend", "--size", &format!("{bytes}b"), &self.name(id)]).map(drop)
    }

    /// Removes a volume, if it exists.
    pub(crate) fn remove(&self, id: &str) -> Result<(), Error> {
        match self.query(id, "lv_name")? {
            Some(_) => self.run(&["lvremove", "--force", "--yes", &self.name(id)]).map(drop),
            None => Ok(()),
        }
    }

    /// Returns the bytes of a volume that use space of the pool, which snapshots may share.
    pub(crate) fn used(&self, id: &str) -> Result<u64, Error> {
        Ok(part(self.number(id, "lv_size")?, self.query(id, "data_percent")?.as_deref()))
    }

    /// Returns the space of the pool.
    pub(crate) fn space(&self) -> Result<PoolSpace, Error> {
        let total = self.number(&self.pool, "lv_size")?;
        let used = part(total, self.query(&self.pool, "data_percent")?.as_deref());
        Ok(PoolSpace { total, available: total.saturating_sub(used) })
    }

    fn name(&self, id: &str) -> String {
        format!("{}/{id}", self.group)
    }

    fn number(&self, id: &str, column: &str) -> Result<u64, Error> {
        let text = self.query(id, column)?;
        text.as_deref().and_then(|text| text.parse().ok()).ok_or_else(|| Error::Tool {
            program: "lvm",
            problem: format!("{} has no {column}", self.name(id)),
        })
    }

    /// Returns a column of a volume; `None` if there is no such volume.
    fn query(&self, id: &str, column: &str) -> Result<Option<String>, Error> {
        let which = format!("lv_name={id}");
        let form = ["--noheadings", "--units", "b", "--nosuffix", "--options", column];
        let text = self.run(&[&["lvs"], &form[..], &["--select", &which, &self.group]].concat())?;
        let text = text.trim();
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    fn run(&self, arguments: &[&str]) -> Result<String, Error> {
        let output = run(Command::new("lvm").args(arguments), "lvm", PACKAGE, &[])?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Returns the part of a size that a percentage such as `12.50` names, rounded up.
fn part(size: u64, percent: Option<&str>) -> u64 {
    let percent: f64 = percent.and_then(|text| text.parse().ok()).unwrap_or(0.0);
    // Hundredths of a percent are whole numbers from 0 to 10000.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 10000")]
    let hundredths = (percent.clamp(0.0, 100.0) * 100.0).ceil() as u64;
    (u128::from(size) * u128::from(hundredths)).div_ceil(10_000).try_into().unwrap_or(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_named_by_group_and_pool() {
        let pool = ThinPool::parse("vg0/thin.pool").expect("a pool");
        assert_eq!(pool.device("hp-1"), Path::new("/dev/vg0/hp-1"));
        for wrong in ["", "vg0", "vg0/", "/pool", "../pool", "vg0/-pool", "vg0/a b", "a/b/c"] {
            assert_eq!(ThinPool::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn parts_are_rounded_up() {
        assert_eq!(part(1000, Some("12.50")), 125);
        assert_eq!(part(1001, Some("0.01")), 1);
        assert_eq!(part(1000, None), 0);
        assert_eq!(part(u64::MAX, Some("100.00")), u64::MAX);
    }
}
