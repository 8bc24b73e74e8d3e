//! Mounts and volumes of a task's `config`.

use caravan_drivers::{Error, Reader, Result};
use std::collections::BTreeMap;
use std::path::{Component, Path};

/// A block `mount`, or an entry of `mounts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountSpec {
    pub(crate) kind: MountKind,
    pub(crate) target: String,
    pub(crate) source: String,
    pub(crate) read_only: bool,
}

/// The source of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MountKind {
    /// A volume of the engine.
    Volume {
        no_copy: bool,
        labels: BTreeMap<String, String>,
        /// Name and options of the volume's driver.
        driver: Option<(String, BTreeMap<String, String>)>,
    },
    /// A path of the host, with the engine's name of a propagation.
    Bind { propagation: String },
    /// Memory; size in bytes, and the root's permissions.
    Tmpfs { size: Option<i64>, mode: Option<i64> },
}

pub(super) fn mounts(reader: &mut Reader<'_>) -> Result<Vec<MountSpec>> {
    let blocks = reader.blocks("mount")?;
    blocks.into_iter().chain(reader.blocks("mounts")?).map(mount).collect()
}

fn mount(mut block: Reader<'_>) -> Result<MountSpec> {
    let kind = block.string("type")?.unwrap_or_default();
    let target = block.required_string("target")?;
    let source = block.string("source")?.unwrap_or_default();
    let read_only = block.boolean("readonly")?;
    let bind = bind_options(&mut block)?;
    let tmpfs = tmpfs_options(&mut block)?;
    let volume = volume_options(&mut block)?;
    let kind = match kind.as_str() {
        "" | "volume" => volume,
        "bind" if source.is_empty() => return Err(block.refuse("source", "is required for bind")),
        "bind" => bind,
        "tmpfs" if !source.is_empty() => {
            return Err(Error::Config("invalid source, must be \"\" for tmpfs".into()));
        }
        "tmpfs" => tmpfs,
        other => {
            return Err(Error::Config(format!(
                "invalid mount type, must be \"bind\", \"volume\", \"tmpfs\": {other:?}"
            )));
        }
    };
    block.finish()?;
    Ok(MountSpec { kind, target, source, read_only })
}

fn bind_options(block: &mut Reader<'_>) -> Result<MountKind> {
    let mut propagation = String::new();
    if let Some(mut options) = block.block("bind_options")? {
        propagation = options.string("propagation")?.unwrap_or_default();
        let known = ["", "private", "rprivate", "shared", "rshared", "slave", "rslave"];
        if !known.contains(&propagation.as_str()) {
            return Err(options.refuse("propagation", format_args!("cannot be {propagation:?}")));
        }
        options.finish()?;
    }
    Ok(MountKind::Bind { propagation })
}

fn tmpfs_options(block: &mut Reader<'_>) -> Result<MountKind> {
    let Some(mut options) = block.block("tmpfs_options")? else {
        return Ok(MountKind::Tmpfs { size: None, mode: None });
    };
    let read = MountKind::Tmpfs {
        size: options.integer("size")?.filter(|size| *size > 0),
        mode: options.integer("mode")?.filter(|mode| *mode > 0),
    };
    options.finish()?;
    Ok(read)
}

fn volume_options(block: &mut Reader<'_>) -> Result<MountKind> {
    let Some(mut options) = block.block("volume_options")? else {
        return Ok(MountKind::Volume { no_copy: false, labels: BTreeMap::new(), driver: None });
    };
    let no_copy = options.boolean("no_copy")?;
    let labels = options.string_map("labels")?;
    let driver = match options.block("driver_config")? {
        None => None,
        Some(mut driver) => {
            let name = driver.string("name")?.unwrap_or_default();
            let values = driver.string_map("options")?;
            driver.finish()?;
            Some((name, values))
        }
    };
    options.finish()?;
    Ok(MountKind::Volume { no_copy, labels, driver })
}

/// An entry of `volumes`: `source:target[:mode]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeSpec {
    pub(crate) source: String,
    pub(crate) target: String,
    pub(crate) mode: String,
    /// Whether the source is the name of a volume, and not a path.
    pub(crate) named: bool,
}

pub(super) fn volumes(reader: &mut Reader<'_>, named: bool) -> Result<Vec<VolumeSpec>> {
    reader.strings("volumes")?.iter().map(|text| volume(text, named)).collect()
}

fn volume(text: &str, named: bool) -> Result<VolumeSpec> {
    let mut parts = text.splitn(3, ':');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(source), Some(target), mode) if !source.is_empty() && !target.is_empty() => Ok(VolumeSpec {
            source: source.to_owned(),
            target: target.to_owned(),
            mode: mode.unwrap_or_default().to_owned(),
            named,
        }),
        _ => Err(Error::Config(format!("invalid docker volume {text:?}: not <src>:<destination> format"))),
    }
}

/// Returns the path that a source of a job file names: a relative source is below the task's directory. `.` and `..`
/// are removed by text, as the engine does it.
pub(crate) fn expand(task_dir: &Path, source: &str) -> std::path::PathBuf {
    let mut path = std::path::PathBuf::new();
    for part in task_dir.join(source).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                path.pop();
            }
            other => path.push(other),
        }
    }
    path
}
