//! Checks the content of requests: capabilities, parameters, sizes, topology. No I/O.

use crate::{
    error::Error,
    mutable::Mutable,
    options::Options,
    record::{Backing, Origin, Record, Source},
};
use caravan_proto::csi;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Sizes are rounded up to a multiple of this, in bytes.
const GRAIN: u64 = 4096;

/// Sizes of thin volumes are rounded up to a multiple of this, in bytes: the extent of LVM by default (lvm.conf(5)).
const EXTENT: u64 = 4 << 20;

/// The smallest block device or quota, in bytes.
const SMALLEST_DEVICE: u64 = 1 << 20;

/// The size of an enforced volume without a requested size, in bytes.
const DEFAULT_SIZE: u64 = 1 << 30;

/// The volume parameters of this plugin, for error messages.
const PARAMETERS: &str = "enforce (true or false) and fs (ext4 or xfs)";

/// A file system of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FsKind {
    /// The ext4 file system.
    Ext4,
    /// The xfs file system.
    Xfs,
}

impl FsKind {
    /// Returns the name for mount(8) and mkfs(8).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// Returns the kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Ext4, Self::Xfs].into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the smallest image in bytes. mkfs.xfs refuses less than 300 MiB (mkfs.xfs(8)); ext4 is of no use below
    /// a few MiB.
    pub const fn smallest(self) -> u64 {
        match self {
            Self::Ext4 => 8 << 20,
            Self::Xfs => 300 << 20,
        }
    }
}

/// A supported volume capability: a mounted directory or a device, in one of the access modes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Capability {
    /// The number of the access mode on the wire.
    pub(crate) access_mode: i32,
    /// Whether the volume is used as a device, not as a directory. For a device, the remaining fields are empty.
    pub(crate) block: bool,
    /// The requested file system; empty means any.
    pub(crate) fs_type: String,
    /// Mount flags; never displayed.
    pub(crate) flags: Vec<String>,
    /// The group for the top directory, if one was requested.
    pub(crate) group: Option<u32>,
}

impl Capability {
    /// Checks one capability.
    pub(crate) fn check(wire: Option<csi::VolumeCapability>) -> Result<Self, Error> {
        use csi::volume_capability::{AccessType, access_mode::Mode};
        let wire = wire.ok_or_else(|| Error::Invalid("the request has no volume capability".to_owned()))?;
        let (block, mount) = match wire.access_type {
            Some(AccessType::Mount(mount)) => (false, mount),
            Some(AccessType::Block(_)) => (true, Default::default()),
            None => return Err(Error::Invalid("the volume capability has no access type".to_owned())),
        };
        if !mount.fs_type.is_empty() && FsKind::from_name(&mount.fs_type).is_none() {
            return Err(Error::Invalid(format!(
                "the file system {:?} is not one of ext4 and xfs",
                mount.fs_type
            )));
        }
        let group = match mount.volume_mount_group.as_str() {
            "" => None,
            group => Some(group.parse().map_err(|_| {
                Error::Invalid(format!("the volume mount group {group:?} is not the number of a group"))
            })?),
        };
        let access_mode = wire.access_mode.unwrap_or_default().mode;
        match Mode::try_from(access_mode) {
            // All users are on the one node, so the multi-node modes can be served as well.
            Ok(
                Mode::SingleNodeWriter
                | Mode::SingleNodeReaderOnly
                | Mode::SingleNodeSingleWriter
                | Mode::SingleNodeMultiWriter
                | Mode::MultiNodeReaderOnly
                | Mode::MultiNodeSingleWriter
                | Mode::MultiNodeMultiWriter,
            ) => {}
            Ok(Mode::Unknown) => {
                return Err(Error::Invalid("the volume capability has no access mode".to_owned()));
            }
            Err(_) => return Err(Error::Invalid(format!("the access mode {access_mode} is unknown"))),
        }
        Ok(Self { access_mode, block, fs_type: mount.fs_type, flags: mount.mount_flags, group })
    }

    /// Returns whether this mode allows no writes.
    pub(crate) fn only_reads(&self) -> bool {
        use csi::volume_capability::access_mode::Mode;
        matches!(Mode::try_from(self.access_mode), Ok(Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly))
    }

    /// Returns whether this mode allows only one target path ("SINGLE_NODE_SINGLE_WRITER").
    pub(crate) fn is_for_one(&self) -> bool {
        use csi::volume_capability::access_mode::Mode;
        self.access_mode == i32::from(Mode::SingleNodeSingleWriter)
    }

    /// Checks a list of capabilities, which must not be empty.
    pub(crate) fn check_all(wire: Vec<csi::VolumeCapability>) -> Result<Vec<Self>, Error> {
        if wire.is_empty() {
            return Err(Error::Invalid("the request has no volume capabilities".to_owned()));
        }
        wire.into_iter().map(|capability| Self::check(Some(capability))).collect()
    }

    /// Checks whether a volume of this kind can be mounted with this capability.
    pub(crate) fn suits(&self, backing: Backing) -> Result<(), Error> {
        match (backing, FsKind::from_name(&self.fs_type)) {
            (backing, _) if backing.is_device() && !self.block => {
                Err(Error::Invalid("the volume is a block device and cannot be mounted".to_owned()))
            }
            (backing, _) if backing.is_device() => Ok(()),
            (_, _) if self.block => Err(Error::Invalid(
                "the volume is a directory and cannot be used as a block device".to_owned(),
            )),
            // A directory is on the host's file system, of any type.
            (backing, desired) => match (backing.fs(), desired) {
                (Some(fs), Some(desired)) if fs != desired => Err(Error::Invalid(format!(
                    "the volume's file system is {}, not {}",
                    fs.name(),
                    desired.name()
                ))),
                _ => Ok(()),
            },
        }
    }
}

/// The initial content of a new volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) source: Source,
    /// The kind of the content's data; the new volume has the same kind.
    pub(crate) backing: Backing,
}

/// Returns the content that a creation names; `None` for an empty volume.
pub(crate) fn origin(request: &csi::CreateVolumeRequest) -> Result<Option<Origin>, Error> {
    use csi::volume_content_source::Type;
    let Some(source) = &request.volume_content_source else { return Ok(None) };
    match &source.r#type {
        Some(Type::Snapshot(from)) if !from.snapshot_id.is_empty() => {
            Ok(Some(Origin::Snapshot(from.snapshot_id.clone())))
        }
        Some(Type::Volume(from)) if !from.volume_id.is_empty() => {
            Ok(Some(Origin::Volume(from.volume_id.clone())))
        }
        _ => Err(Error::Invalid("the volume content source names nothing".to_owned())),
    }
}

/// A checked request to create a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeSpec {
    pub(crate) name: String,
    pub(crate) backing: Backing,
    /// Size in bytes; 0 for a directory without a size.
    pub(crate) capacity: u64,
    pub(crate) source: Option<Source>,
    pub(crate) mutable: Mutable,
    required: u64,
    limit: u64,
}

impl VolumeSpec {
    /// Checks a CreateVolume request. `content` is the content that [`origin`] names.
    pub(crate) fn check(
        request: csi::CreateVolumeRequest,
        options: &Options,
        content: Option<Content>,
    ) -> Result<Self, Error> {
        if request.name.is_empty() {
            return Err(Error::Invalid("the request has no volume name".to_owned()));
        }
        let capabilities = Capability::check_all(request.volume_capabilities)?;
        let asked = parameters(&request.parameters)?;
        let backing = match &content {
            Some(content) => asked.of_content(content.backing)?,
            None => asked.backing(&capabilities, options)?,
        };
        for capability in &capabilities {
            capability.suits(backing)?;
        }
        let mutable = Mutable::check(&request.mutable_parameters, backing)?;
        let (required, limit) = range(request.capacity_range.unwrap_or_default())?;
        let least = content.as_ref().map_or(0, |content| content.source.size);
        let capacity = capacity(backing, required, limit, least)?;
        if let (Some(here), Some(there)) = (&options.topology, &request.accessibility_requirements)
            && !reachable(here, there)
        {
            return Err(Error::Exhausted(format!(
                "volumes made here are reachable from {} only, which none of the topologies asked for matches",
                segments_text(here)
            )));
        }
        let source = content.map(|content| content.source);
        Ok(Self { name: request.name, backing, capacity, source, mutable, required, limit })
    }

    /// Checks whether an existing volume satisfies this request.
    pub(crate) fn matches(&self, record: &Record) -> Result<(), Error> {
        let refuse = |why: String| Err(Error::Exists(format!("a volume named {:?} exists {why}", self.name)));
        let from = |source: &Option<Source>| source.as_ref().map(|source| source.from.clone());
        if from(&record.source) != from(&self.source) {
            return match from(&record.source) {
                Some(origin) => refuse(format!("and was made from {origin}")),
                None => refuse("and was made empty".to_owned()),
            };
        }
        if record.backing != self.backing {
            return refuse(format!("as {}, not as {}", record.backing, self.backing));
        }
        // Compare with the values at creation, since they may have been modified later.
        if record.born != self.mutable {
            return refuse("and was made with other mutable parameters".to_owned());
        }
        let capacity = record.capacity;
        if capacity < self.required || (self.limit != 0 && capacity > self.limit) {
            return refuse(format!("with {capacity} bytes, which is not in the range asked for"));
        }
        Ok(())
    }
}

/// The values of the parameters.
#[derive(Debug, Default)]
struct Asked {
    enforce: Option<bool>,
    fs: Option<FsKind>,
}

fn parameters(parameters: &BTreeMap<String, String>) -> Result<Asked, Error> {
    let mut asked = Asked::default();
    for (key, value) in parameters {
        match (key.as_str(), value.as_str()) {
            ("enforce", "true") => asked.enforce = Some(true),
            ("enforce", "false") => asked.enforce = Some(false),
            ("fs", value) => {
                let kind = FsKind::from_name(value).ok_or_else(|| {
                    Error::Invalid(format!("the parameter fs is ext4 or xfs, not {value:?}"))
                })?;
                asked.fs = Some(kind);
            }
            ("enforce", other) => {
                return Err(Error::Invalid(format!("the parameter enforce is true or false, not {other:?}")));
            }
            (other, _) => {
                return Err(Error::Invalid(format!(
                    "the parameter {other:?} is unknown; known are {PARAMETERS}"
                )));
            }
        }
    }
    if asked.enforce == Some(false) && asked.fs.is_some() {
        return Err(Error::Invalid("the parameter fs needs enforce=true".to_owned()));
    }
    Ok(asked)
}

impl Asked {
    /// Returns the kind of data of an empty volume.
    fn backing(&self, capabilities: &[Capability], options: &Options) -> Result<Backing, Error> {
        if capabilities.iter().any(|capability| capability.block) {
            if capabilities.iter().any(|capability| !capability.block) {
                return Err(Error::Invalid(
                    "a volume is a block device or a directory, it cannot be asked for as both".to_owned(),
                ));
            }
            return match self.fs {
                Some(_) => {
                    Err(Error::Invalid("the parameter fs makes no sense for a block device".to_owned()))
                }
                None if options.thin.is_some() => Ok(Backing::Thin { fs: None }),
                None => Ok(Backing::Block),
            };
        }
        // Naming a file system requests an image.
        if !self.enforce.unwrap_or(options.enforce_size || self.fs.is_some()) {
            return Ok(Backing::Directory);
        }
        let of_capabilities =
            capabilities.iter().find_map(|capability| FsKind::from_name(&capability.fs_type));
        // A quota limits any directory; naming a file system requests a separate file system.
        if options.quota && self.fs.is_none() {
            return Ok(Backing::Quota);
        }
        let fs = self.fs.or(of_capabilities).unwrap_or(options.fs);
        Ok(if options.thin.is_some() { Backing::Thin { fs: Some(fs) } } else { Backing::Image { fs } })
    }

    /// Returns the kind of data of a copy, which is that of its original. Parameters may request the same kind, but
    /// no other.
    fn of_content(&self, backing: Backing) -> Result<Backing, Error> {
        let sized = backing != Backing::Directory;
        let fs = backing.fs();
        if self.enforce.is_some_and(|enforce| enforce != sized)
            || self.fs.is_some_and(|desired| Some(desired) != fs)
        {
            return Err(Error::Invalid(format!(
                "the content is in {backing}, and the parameters ask for something else"
            )));
        }
        Ok(backing)
    }
}

/// Returns the size to which a volume must be expanded, given its current size. Volumes never shrink: a range that
/// is already satisfied changes nothing.
pub(crate) fn grown(backing: Backing, present: u64, wire: Option<csi::CapacityRange>) -> Result<u64, Error> {
    let wire = wire.ok_or_else(|| Error::Invalid("the request has no capacity range".to_owned()))?;
    let (required, limit) = range(wire)?;
    if required == 0 && limit == 0 {
        return Err(Error::Invalid("the capacity range has neither a lower nor an upper end".to_owned()));
    }
    if limit != 0 && limit < present {
        return Err(Error::Range(format!("the volume has {present} bytes and cannot shrink to {limit}")));
    }
    if required <= present {
        return Ok(present);
    }
    capacity(backing, required, limit, present)
}

/// Checks the range of NodeExpandVolume against the volume's size in the controller.
pub(crate) fn node_range(present: u64, wire: Option<csi::CapacityRange>) -> Result<(), Error> {
    let (required, limit) = range(wire.unwrap_or_default())?;
    if required > present {
        return Err(Error::Range(format!(
            "the volume has {present} bytes, {required} need ControllerExpandVolume first"
        )));
    }
    if limit != 0 && limit < present {
        return Err(Error::Range(format!("the volume has {present} bytes, more than the limit of {limit}")));
    }
    Ok(())
}

fn range(wire: csi::CapacityRange) -> Result<(u64, u64), Error> {
    let bytes = |bytes: i64| {
        u64::try_from(bytes).map_err(|_| Error::Invalid(format!("a size of {bytes} bytes is negative")))
    };
    let (required, limit) = (bytes(wire.required_bytes)?, bytes(wire.limit_bytes)?);
    if limit != 0 && required > limit {
        return Err(Error::Invalid(format!(
            "the required {required} bytes are more than the limit of {limit}"
        )));
    }
    Ok((required, limit))
}

/// Returns the size of a volume, at least `least` bytes.
fn capacity(backing: Backing, required: u64, limit: u64, least: u64) -> Result<u64, Error> {
    let too_small = |least: u64| {
        Error::Range(format!("the volume cannot have less than {least} bytes, and the limit is {limit}"))
    };
    let smallest = match backing {
        Backing::Directory => {
            let size = if required != 0 {
                required
            } else if least != 0 {
                least
            } else {
                limit
            };
            return match size.max(least) {
                size if limit != 0 && size > limit => Err(too_small(size)),
                size => Ok(size),
            };
        }
        Backing::Image { fs } | Backing::Thin { fs: Some(fs) } => fs.smallest(),
        Backing::Quota | Backing::Block | Backing::Thin { fs: None } => SMALLEST_DEVICE,
    };
    let grain = match backing {
        Backing::Thin { .. } => EXTENT,
        _ => GRAIN,
    };
    let wish = match (required, limit) {
        _ if least != 0 => required,
        (0, 0) => DEFAULT_SIZE,
        (0, limit) => limit.min(DEFAULT_SIZE) / grain * grain,
        (required, _) => required,
    };
    let size = wish
        .max(smallest)
        .max(least)
        .checked_next_multiple_of(grain)
        .filter(|size| i64::try_from(*size).is_ok())
        .ok_or_else(|| Error::Range(format!("{wish} bytes are more than a volume can have")))?;
    if limit != 0 && size > limit {
        return Err(match backing.fs() {
            Some(fs) if least == 0 => {
                Error::Range(format!("a volume with {} has at least {size} bytes", fs.name()))
            }
            _ => too_small(size),
        });
    }
    Ok(size)
}

/// Returns whether volumes that are reachable from `here` satisfy the requirement: one of its topologies has only
/// segments that `here` has too ("TopologyRequirement").
fn reachable(here: &BTreeMap<String, String>, desired: &csi::TopologyRequirement) -> bool {
    let candidates = if desired.requisite.is_empty() { &desired.preferred } else { &desired.requisite };
    candidates.is_empty() || candidates.iter().any(|topology| includes(here, topology))
}

/// Returns whether `here` has all segments of `topology`.
pub(crate) fn includes(here: &BTreeMap<String, String>, topology: &csi::Topology) -> bool {
    topology.segments.iter().all(|(key, value)| here.get(key) == Some(value))
}

fn segments_text(segments: &BTreeMap<String, String>) -> String {
    segments.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
