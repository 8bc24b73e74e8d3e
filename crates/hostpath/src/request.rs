//! What requests ask for, checked: capabilities, parameters, sizes, topology. No I/O.

use std::collections::BTreeMap;

use caravan_proto::csi;
use serde::{Deserialize, Serialize};

use crate::{error::Error, options::Options, record::Backing};

/// Sizes are rounded up to this.
const GRAIN: u64 = 4096;

/// The size of an enforced volume for which no size was asked.
const DEFAULT_SIZE: u64 = 1 << 30;

/// Parameters of a volume that this plugin knows.
const PARAMETERS: &str = "enforce (true or false) and fs (ext4 or xfs)";

/// A file system of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FsKind {
    /// ext4
    Ext4,
    /// xfs
    Xfs,
}

impl FsKind {
    /// The name for mount(8) and mkfs(8).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Ext4, Self::Xfs].into_iter().find(|kind| kind.name() == name)
    }

    /// The smallest image, in bytes. mkfs.xfs refuses less than 300 MiB (mkfs.xfs(8)); ext4 has no use
    /// for less than a few MiB.
    pub const fn smallest(self) -> u64 {
        match self {
            Self::Ext4 => 8 << 20,
            Self::Xfs => 300 << 20,
        }
    }
}

/// A volume capability that can be served: a mounted directory in one of the plain access modes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Capability {
    /// The number of the access mode on the wire.
    pub(crate) access_mode: i32,
    /// Empty: no wish.
    pub(crate) fs_type: String,
    /// Never shown.
    pub(crate) flags: Vec<String>,
}

impl Capability {
    /// Checks one capability.
    pub(crate) fn check(wire: Option<csi::VolumeCapability>) -> Result<Self, Error> {
        use csi::volume_capability::{AccessType, access_mode::Mode};
        let wire = wire.ok_or_else(|| Error::Invalid("the request has no volume capability".to_owned()))?;
        let mount = match wire.access_type {
            Some(AccessType::Mount(mount)) => mount,
            Some(AccessType::Block(_)) => {
                return Err(Error::Invalid(
                    "volumes of this plugin are directories, not block devices".to_owned(),
                ));
            }
            None => return Err(Error::Invalid("the volume capability has no access type".to_owned())),
        };
        if !mount.fs_type.is_empty() && FsKind::from_name(&mount.fs_type).is_none() {
            return Err(Error::Invalid(format!(
                "the file system {:?} is not one of ext4 and xfs",
                mount.fs_type
            )));
        }
        if !mount.volume_mount_group.is_empty() {
            return Err(Error::Invalid("volume mount groups are not supported".to_owned()));
        }
        let access_mode = wire.access_mode.unwrap_or_default().mode;
        match Mode::try_from(access_mode) {
            // All users are on the one node anyway, so the multi-node modes cost nothing.
            Ok(
                Mode::SingleNodeWriter
                | Mode::SingleNodeReaderOnly
                | Mode::MultiNodeReaderOnly
                | Mode::MultiNodeSingleWriter
                | Mode::MultiNodeMultiWriter,
            ) => {}
            Ok(Mode::Unknown) => {
                return Err(Error::Invalid("the volume capability has no access mode".to_owned()));
            }
            Ok(mode) => {
                return Err(Error::Invalid(format!(
                    "the access mode {} is not supported",
                    mode.as_str_name()
                )));
            }
            Err(_) => return Err(Error::Invalid(format!("the access mode {access_mode} is unknown"))),
        }
        Ok(Self { access_mode, fs_type: mount.fs_type, flags: mount.mount_flags })
    }

    /// Checks a list, of which there has to be at least one.
    pub(crate) fn check_all(wire: Vec<csi::VolumeCapability>) -> Result<Vec<Self>, Error> {
        if wire.is_empty() {
            return Err(Error::Invalid("the request has no volume capabilities".to_owned()));
        }
        wire.into_iter().map(|capability| Self::check(Some(capability))).collect()
    }

    /// Whether a volume backed like this can be mounted as asked.
    pub(crate) fn suits(&self, backing: Backing) -> Result<(), Error> {
        match (backing, FsKind::from_name(&self.fs_type)) {
            // A directory lives on whatever file system the host has there.
            (Backing::Directory, _) | (Backing::Image { .. }, None) => Ok(()),
            (Backing::Image { fs }, Some(wanted)) if fs == wanted => Ok(()),
            (Backing::Image { fs }, Some(wanted)) => Err(Error::Invalid(format!(
                "the volume's file system is {}, not {}",
                fs.name(),
                wanted.name()
            ))),
        }
    }
}

/// A volume to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) name: String,
    pub(crate) backing: Backing,
    /// Bytes; 0 for a directory without a size.
    pub(crate) capacity: u64,
    required: u64,
    limit: u64,
}

impl Wanted {
    /// Checks a CreateVolume request.
    pub(crate) fn check(request: csi::CreateVolumeRequest, options: &Options) -> Result<Self, Error> {
        if request.name.is_empty() {
            return Err(Error::Invalid("the request has no volume name".to_owned()));
        }
        let capabilities = Capability::check_all(request.volume_capabilities)?;
        if request.volume_content_source.is_some() {
            return Err(Error::Invalid(
                "volumes cannot be made from snapshots or other volumes yet".to_owned(),
            ));
        }
        if !request.mutable_parameters.is_empty() {
            return Err(Error::Invalid("this plugin has no mutable parameters".to_owned()));
        }
        let backing = backing(&request.parameters, &capabilities, options)?;
        for capability in &capabilities {
            capability.suits(backing)?;
        }
        let (required, limit) = range(request.capacity_range.unwrap_or_default())?;
        let capacity = capacity(backing, required, limit)?;
        if let (Some(here), Some(there)) = (&options.topology, &request.accessibility_requirements)
            && !reachable(here, there)
        {
            return Err(Error::Exhausted(format!(
                "volumes made here are reachable from {} only, which none of the topologies asked for matches",
                segments_text(here)
            )));
        }
        Ok(Self { name: request.name, backing, capacity, required, limit })
    }

    /// Whether a volume that exists is what is asked for.
    pub(crate) fn matches(&self, backing: Backing, capacity: u64) -> Result<(), Error> {
        let refuse = |why: String| Err(Error::Exists(format!("a volume named {:?} exists {why}", self.name)));
        if backing != self.backing {
            return refuse(format!("as {backing}, not as {}", self.backing));
        }
        if capacity < self.required || (self.limit != 0 && capacity > self.limit) {
            return refuse(format!("with {capacity} bytes, which is not in the range asked for"));
        }
        Ok(())
    }
}

fn backing(
    parameters: &BTreeMap<String, String>,
    capabilities: &[Capability],
    options: &Options,
) -> Result<Backing, Error> {
    let mut enforce = options.enforce_size;
    let mut fs = None;
    for (key, value) in parameters {
        match (key.as_str(), value.as_str()) {
            ("enforce", "true") => enforce = true,
            ("enforce", "false") => enforce = false,
            ("fs", value) => {
                let kind = FsKind::from_name(value).ok_or_else(|| {
                    Error::Invalid(format!("the parameter fs is ext4 or xfs, not {value:?}"))
                })?;
                fs = Some(kind);
                // To name a file system is to ask for one, unless the same request says otherwise.
                enforce = parameters.get("enforce").is_none_or(|enforce| enforce != "false");
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
    if !enforce {
        return match fs {
            Some(_) => Err(Error::Invalid("the parameter fs needs enforce=true".to_owned())),
            None => Ok(Backing::Directory),
        };
    }
    let of_capabilities = capabilities.iter().find_map(|capability| FsKind::from_name(&capability.fs_type));
    Ok(Backing::Image { fs: fs.or(of_capabilities).unwrap_or(options.fs) })
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

fn capacity(backing: Backing, required: u64, limit: u64) -> Result<u64, Error> {
    let Backing::Image { fs } = backing else {
        return Ok(if required != 0 { required } else { limit });
    };
    let wish = match (required, limit) {
        (0, 0) => DEFAULT_SIZE,
        (0, limit) => limit.min(DEFAULT_SIZE) / GRAIN * GRAIN,
        (required, _) => required,
    };
    let size = wish
        .max(fs.smallest())
        .checked_next_multiple_of(GRAIN)
        .filter(|size| i64::try_from(*size).is_ok())
        .ok_or_else(|| Error::Range(format!("{wish} bytes are more than a volume can have")))?;
    if limit != 0 && size > limit {
        return Err(Error::Range(format!("a volume with {} has at least {size} bytes", fs.name())));
    }
    Ok(size)
}

/// Whether volumes that are reachable from `here` meet the requirement: one of its topologies has no
/// segment that contradicts or is missing ("TopologyRequirement").
fn reachable(here: &BTreeMap<String, String>, wanted: &csi::TopologyRequirement) -> bool {
    let candidates = if wanted.requisite.is_empty() { &wanted.preferred } else { &wanted.requisite };
    candidates.is_empty() || candidates.iter().any(|topology| includes(here, topology))
}

/// Whether `here` lies in `topology`.
pub(crate) fn includes(here: &BTreeMap<String, String>, topology: &csi::Topology) -> bool {
    topology.segments.iter().all(|(key, value)| here.get(key) == Some(value))
}

fn segments_text(segments: &BTreeMap<String, String>) -> String {
    segments.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
