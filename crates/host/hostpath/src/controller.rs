//! The calls of the controller service: create, delete, attach, list. They block; every step is idempotent.

use crate::{
    error::Error,
    loops, mountinfo, mounts,
    mutable::{Mutable, Space},
    options::Options,
    quota::Quotas,
    record::{Attachment, Backing, Origin, Phase, Record, Use, VERSION, VolumeId},
    request::{self, Capability, VolumeSpec, includes},
    store::{self, Store},
};
use caravan_proto::csi;
use rustix::mount::MountFlags;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// The key in the publish context that a stage must present.
pub(crate) const ATTACHMENT: &str = "hostpath.caravan/attachment";

/// The name of the lock that a call holds while it chooses a project.
const PROJECTS: &str = "projects";

/// The plugin's options and state. Concurrent calls use clones.
#[derive(Clone, Debug)]
pub(crate) struct Plugin {
    pub(crate) options: Options,
    pub(crate) store: Store,
}

impl Plugin {
    pub(crate) fn create(
        &self,
        request: csi::CreateVolumeRequest,
    ) -> Result<csi::CreateVolumeResponse, Error> {
        let content = match request::origin(&request)? {
            Some(origin) => Some(self.content(origin, &request.name)?),
            None => None,
        };
        let desired = VolumeSpec::check(request, &self.options, content)?;
        let id = VolumeId::new(self.store.instance(), &desired.name);
        let _lock = self.store.lock(id.as_str())?;
        match self.store.load::<Record>(id.as_str())? {
            Some(record) if record.phase == Phase::Ready => {
                if record.name != desired.name {
                    return Err(Error::Exists(format!(
                        "the volume {:?} has the same id as {:?}",
                        record.name, desired.name
                    )));
                }
                desired.matches(&record)?;
                return Ok(csi::CreateVolumeResponse { volume: Some(volume(record)) });
            }
            // A crash interrupted a creation or a deletion. The volume was never reported to a caller, or was about
            // to be deleted.
            Some(record) => self.remove_data(&record)?,
            None => {}
        }
        if desired.backing != Backing::Directory {
            let available = self.available(desired.backing)?;
            if desired.capacity > available {
                return Err(Error::Exhausted(format!(
                    "{} bytes are asked for and {available} are left",
                    desired.capacity
                )));
            }
        }
        // Until the record is saved, no record shows that its project is taken.
        let projects = match desired.backing {
            Backing::Quota => Some(self.store.wait_for_lock(PROJECTS)?),
            _ => None,
        };
        let mut record = Record {
            version: VERSION,
            project: self.choose_project(&id, desired.backing)?,
            id,
            name: desired.name,
            phase: Phase::Creating,
            backing: desired.backing,
            capacity: desired.capacity,
            topology: self.options.topology.clone(),
            // Only the top of a file system must still get its permissions: if it is new, or if others were
            // requested.
            opened: desired.backing.fs().is_none()
                || (desired.source.is_some() && desired.mutable.mode.is_none()),
            unfilled: desired.backing.fs().is_some()
                && desired.source.as_ref().is_some_and(|source| source.size < desired.capacity),
            frozen: false,
            mutable: desired.mutable,
            born: desired.mutable,
            slack: false,
            source: desired.source,
            attachment: None,
            staged: Default::default(),
            published: Default::default(),
        };
        let data = self.store.data_path(record.id.as_str(), record.backing);
        if data.symlink_metadata().is_ok() {
            return Err(Error::Inconsistent(format!(
                "{} is there without a record; it is kept, move it away to go on",
                data.display()
            )));
        }
        self.store.save(&record)?;
        drop(projects);
        if let Err(error) = self.make_data(&record, &data) {
            // No caller has the id yet, so none would delete the volume. If the removal fails now, the next creation
            // of the name removes the data. The caller receives the error of the creation.
            let _ = self.remove_data(&record).and_then(|()| self.store.remove::<Record>(record.id.as_str()));
            return Err(error);
        }
        data.parent().map_or(Ok(()), store::sync_directory)?;
        record.phase = Phase::Ready;
        self.store.save(&record)?;
        Ok(csi::CreateVolumeResponse { volume: Some(volume(record)) })
    }

    fn make_data(&self, record: &Record, data: &Path) -> Result<(), Error> {
        let id = record.id.as_str();
        match (&record.source, record.backing) {
            (source, Backing::Quota) => {
                store::make_directory(data)?;
                self.quotas()?.assign(data, project(record)?, record.capacity)?;
                if let Some(source) = source {
                    self.copy_content(&source.from, data, false)?;
                }
            }
            (Some(source), _) => {
                let apart = record.mutable.space == Some(Space::Thick);
                self.copy_content(&source.from, data, apart)?;
            }
            (None, Backing::Directory) => store::make_directory(data)?,
            (None, Backing::Image { fs }) => mounts::make_image(data, Some(fs), record.capacity)?,
            (None, Backing::Block) => mounts::make_image(data, None, record.capacity)?,
            (None, Backing::Thin { fs }) => {
                self.store.pool()?.create(id, record.capacity)?;
                fs.map_or(Ok(()), |fs| mounts::make_file_system(data, fs))?;
            }
        }
        match record.mutable.mode {
            Some(mode) if record.backing.is_directory() => store::set_mode(data, mode),
            _ => self.fit(record),
        }
    }

    /// Returns the file system of the state directory, which enforces quotas.
    fn quotas(&self) -> Result<Quotas, Error> {
        Quotas::find(self.store.root())
    }

    /// Returns a project for a new directory with a quota.
    fn choose_project(&self, id: &VolumeId, backing: Backing) -> Result<Option<u32>, Error> {
        if backing != Backing::Quota {
            return Ok(None);
        }
        let mut taken = BTreeSet::new();
        for other in self.store.ids_after::<Record>(None)? {
            taken.extend(self.store.load::<Record>(other.as_str())?.and_then(|record| record.project));
        }
        self.quotas()?.choose(id, |project| taken.contains(&project)).map(Some)
    }

    /// Sets the limit of a directory with a quota to the volume's size.
    pub(crate) fn limit(&self, record: &Record) -> Result<(), Error> {
        let data = self.store.data_path(record.id.as_str(), record.backing);
        self.quotas()?.limit(&data, project(record)?, record.capacity)
    }

    /// Returns the bytes available to new volumes.
    pub(crate) fn available(&self, backing: Backing) -> Result<u64, Error> {
        match backing {
            Backing::Thin { .. } => Ok(self.store.pool()?.space()?.available),
            _ => Ok(space(self.store.root())?.0),
        }
    }

    /// Removes the data of a volume, and the loop devices that a crash left on it.
    pub(crate) fn remove_data(&self, record: &Record) -> Result<(), Error> {
        let id = record.id.as_str();
        if record.backing.is_device() {
            loops::free(&self.store.data_path(id, record.backing))?;
        }
        self.store.remove_data(id, record.backing)?;
        // Remove the limit last: the project must not be chosen again while it has files.
        record.project.map_or(Ok(()), |project| self.quotas()?.release(project))
    }

    pub(crate) fn delete(
        &self,
        request: &csi::DeleteVolumeRequest,
    ) -> Result<csi::DeleteVolumeResponse, Error> {
        required(&request.volume_id, "volume id")?;
        let done = Ok(csi::DeleteVolumeResponse {});
        // The text is not an id of this plugin, so no such volume exists and it counts as deleted.
        let Some(id) = VolumeId::parse(&request.volume_id) else {
            return done;
        };
        if id.instance() != self.store.instance().as_str()
            && self.store.load::<Record>(id.as_str())?.is_none()
        {
            return Err(self.store.missing(&id));
        }
        let _lock = self.store.lock(id.as_str())?;
        let Some(mut record) = self.store.load::<Record>(id.as_str())? else {
            self.store.remove::<Record>(id.as_str())?;
            return done;
        };
        if record.phase == Phase::Ready {
            self.refuse_in_use(&record)?;
            self.store.refuse_mounts(record.id.as_str(), record.backing)?;
            record.phase = Phase::Deleting;
            self.store.save(&record)?;
        }
        self.remove_data(&record)?;
        self.store.remove::<Record>(id.as_str())?;
        done
    }

    fn refuse_in_use(&self, record: &Record) -> Result<(), Error> {
        if let Some(attachment) = &record.attachment {
            return Err(Error::Precondition(format!(
                "the volume {} is still published to the node {:?}",
                record.id, attachment.node_id
            )));
        }
        match self.live_paths(record)?.first() {
            Some(path) => Err(Error::Precondition(format!(
                "the volume {} is still mounted at {}",
                record.id,
                path.display()
            ))),
            None => Ok(()),
        }
    }

    pub(crate) fn attach(
        &self,
        request: csi::ControllerPublishVolumeRequest,
    ) -> Result<csi::ControllerPublishVolumeResponse, Error> {
        self.needs_controller_publish()?;
        required(&request.volume_id, "volume id")?;
        required(&request.node_id, "node id")?;
        let capability = Capability::check(request.volume_capability)?;
        let id = self.store.ready(&request.volume_id)?.id;
        if request.node_id != self.options.node_id {
            return Err(Error::NoNode(request.node_id, self.options.node_id.clone()));
        }
        let _lock = self.store.lock(id.as_str())?;
        let mut record = self.store.ready(id.as_str())?;
        capability.suits(record.backing)?;
        match &record.attachment {
            Some(attachment) if attachment.node_id != request.node_id => {
                return Err(Error::Precondition(format!(
                    "the volume {id} is published to the node {:?}",
                    attachment.node_id
                )));
            }
            Some(attachment) if attachment.access_mode != capability.access_mode => {
                return Err(Error::Exists(format!("the volume {id} is published with another access mode")));
            }
            Some(attachment) if attachment.readonly != request.readonly => {
                let way = if attachment.readonly { "for reading only" } else { "for writing" };
                return Err(Error::Exists(format!("the volume {id} is published {way}")));
            }
            Some(_) => {}
            None => {
                self.refuse_over_limit()?;
                record.attachment = Some(Attachment {
                    node_id: request.node_id,
                    access_mode: capability.access_mode,
                    readonly: request.readonly,
                    token: uuid::Uuid::new_v4().to_string(),
                });
                self.store.save(&record)?;
            }
        }
        let publish_context = record
            .attachment
            .into_iter()
            .map(|attachment| (ATTACHMENT.to_owned(), attachment.token))
            .collect();
        Ok(csi::ControllerPublishVolumeResponse { publish_context })
    }

    fn refuse_over_limit(&self) -> Result<(), Error> {
        let limit = self.options.max_volumes;
        if limit == 0 {
            return Ok(());
        }
        let mut attached: u32 = 0;
        for id in self.store.ids_after::<Record>(None)? {
            let record = self.store.load::<Record>(id.as_str())?;
            attached += u32::from(record.is_some_and(|record| record.attachment.is_some()));
        }
        if attached >= limit {
            return Err(Error::Exhausted(format!("the node has {attached} volumes, which is its limit")));
        }
        Ok(())
    }

    pub(crate) fn detach(
        &self,
        request: &csi::ControllerUnpublishVolumeRequest,
    ) -> Result<csi::ControllerUnpublishVolumeResponse, Error> {
        self.needs_controller_publish()?;
        required(&request.volume_id, "volume id")?;
        let done = Ok(csi::ControllerUnpublishVolumeResponse {});
        let id = match self.store.ready(&request.volume_id) {
            Ok(record) => record.id,
            // A volume that does not exist is published nowhere.
            Err(Error::NoVolume(_)) => return done,
            Err(error) => return Err(error),
        };
        let _lock = self.store.lock(id.as_str())?;
        let mut record = self.store.ready(id.as_str())?;
        let from_here =
            |attachment: &mut Attachment| request.node_id.is_empty() || attachment.node_id == request.node_id;
        if record.attachment.take_if(from_here).is_some() {
            self.store.save(&record)?;
        }
        done
    }

    fn needs_controller_publish(&self) -> Result<(), Error> {
        if self.options.controller_publish {
            return Ok(());
        }
        Err(Error::Precondition("this plugin was started without --controller-publish".to_owned()))
    }

    pub(crate) fn validate(
        &self,
        request: csi::ValidateVolumeCapabilitiesRequest,
    ) -> Result<csi::ValidateVolumeCapabilitiesResponse, Error> {
        required(&request.volume_id, "volume id")?;
        if request.volume_capabilities.is_empty() {
            return Err(Error::Invalid("the request has no volume capabilities".to_owned()));
        }
        let record = self.store.ready(&request.volume_id)?;
        let verdict = Capability::check_all(request.volume_capabilities.clone())
            .and_then(|all| all.iter().try_for_each(|capability| capability.suits(record.backing)))
            .and_then(|()| Mutable::check(&request.mutable_parameters, record.backing))
            .and_then(|asked| match record.mutable.meets(asked) {
                true => Ok(()),
                false => Err(Error::Invalid("the volume has other mutable parameters than these".to_owned())),
            });
        Ok(match verdict {
            Ok(()) => csi::ValidateVolumeCapabilitiesResponse {
                confirmed: Some(csi::validate_volume_capabilities_response::Confirmed {
                    volume_context: request.volume_context,
                    volume_capabilities: request.volume_capabilities,
                    parameters: request.parameters,
                    mutable_parameters: request.mutable_parameters,
                }),
                message: String::new(),
            },
            Err(error) => {
                csi::ValidateVolumeCapabilitiesResponse { confirmed: None, message: error.to_string() }
            }
        })
    }

    pub(crate) fn list(&self, request: &csi::ListVolumesRequest) -> Result<csi::ListVolumesResponse, Error> {
        let most = usize::try_from(request.max_entries)
            .map_err(|_| Error::Invalid(format!("{} entries are less than none", request.max_entries)))?;
        let after = match request.starting_token.as_str() {
            "" => None,
            token => Some(VolumeId::parse(token).ok_or_else(|| Error::Token(token.to_owned()))?),
        };
        let mut entries = Vec::new();
        let mut last = None;
        for id in self.store.ids_after::<Record>(after.as_ref())? {
            if most != 0 && entries.len() == most {
                let next_token = last.as_ref().map_or_else(String::new, VolumeId::to_string);
                return Ok(csi::ListVolumesResponse { entries, next_token });
            }
            // A volume may have been deleted since the directory was listed.
            if let Some(record) =
                self.store.load::<Record>(id.as_str())?.filter(|record| record.phase == Phase::Ready)
            {
                let status = csi::list_volumes_response::VolumeStatus {
                    published_node_ids: nodes(&record),
                    volume_condition: Some(self.condition(&record)),
                };
                entries.push(csi::list_volumes_response::Entry {
                    volume: Some(volume(record)),
                    status: Some(status),
                });
                last = Some(id);
            }
        }
        Ok(csi::ListVolumesResponse { entries, next_token: String::new() })
    }

    pub(crate) fn get(
        &self,
        request: &csi::ControllerGetVolumeRequest,
    ) -> Result<csi::ControllerGetVolumeResponse, Error> {
        required(&request.volume_id, "volume id")?;
        let record = self.store.ready(&request.volume_id)?;
        let status = csi::controller_get_volume_response::VolumeStatus {
            published_node_ids: nodes(&record),
            volume_condition: Some(self.condition(&record)),
        };
        Ok(csi::ControllerGetVolumeResponse { volume: Some(volume(record)), status: Some(status) })
    }

    pub(crate) fn capacity(
        &self,
        request: csi::GetCapacityRequest,
    ) -> Result<csi::GetCapacityResponse, Error> {
        let elsewhere = match (&self.options.topology, &request.accessible_topology) {
            (Some(here), Some(there)) => !includes(here, there),
            _ => false,
        };
        let impossible = request
            .volume_capabilities
            .into_iter()
            .any(|capability| Capability::check(Some(capability)).is_err());
        if elsewhere || impossible {
            return Ok(csi::GetCapacityResponse::default());
        }
        let available = match &self.options.thin {
            Some(pool) => pool.space()?.available,
            None => space(self.store.root())?.0,
        };
        let available_capacity = i64::try_from(available).unwrap_or(i64::MAX);
        Ok(csi::GetCapacityResponse {
            available_capacity,
            maximum_volume_size: Some(available_capacity),
            minimum_volume_size: None,
        })
    }

    /// Returns the condition of a volume. It is abnormal if the data does not exist, or if the file system became
    /// read-only, which the kernel does after an error.
    pub(crate) fn condition(&self, record: &Record) -> csi::VolumeCondition {
        let abnormal = |message: String| csi::VolumeCondition { abnormal: true, message };
        let data = self.store.data_path(record.id.as_str(), record.backing);
        if let Err(error) = data.symlink_metadata() {
            return abnormal(format!("cannot look at the data {}: {error}", data.display()));
        }
        match self.stuck_mount(record) {
            Ok(None) => csi::VolumeCondition { abnormal: false, message: "the data is there".to_owned() },
            Ok(Some(path)) => abnormal(format!(
                "the file system at {} takes no more writes: the kernel found errors in it",
                path.display()
            )),
            Err(error) => abnormal(error.sentence()),
        }
    }

    /// Returns a mount of an image that should be writable but whose file system has become read-only.
    fn stuck_mount(&self, record: &Record) -> Result<Option<PathBuf>, Error> {
        if record.backing.fs().is_none() {
            return Ok(None);
        }
        for path in record.staged.keys().chain(record.published.keys()) {
            let stuck = |mount: &mountinfo::Mount| {
                mount.readonly_file_system && !mount.flags.contains(MountFlags::RDONLY)
            };
            if let Some(mount) = mountinfo::at(Path::new(path))?.filter(stuck) {
                return Ok(Some(mount.path));
            }
        }
        Ok(None)
    }
}

/// Returns the bytes available to new volumes and the total bytes of the file system that contains `path`.
pub(crate) fn space(path: &Path) -> Result<(u64, u64), Error> {
    let stat = rustix::fs::statvfs(path).map_err(Error::io("look at the file system of", path))?;
    Ok((stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_blocks.saturating_mul(stat.f_frsize)))
}

/// Fails if a required field is empty.
pub(crate) fn required(value: &str, field: &str) -> Result<(), Error> {
    if value.is_empty() { Err(Error::Invalid(format!("the request has no {field}"))) } else { Ok(()) }
}

/// Returns the project of a directory with a quota.
fn project(record: &Record) -> Result<u32, Error> {
    record.project.ok_or_else(|| Error::Inconsistent(format!("the record of {} has no project", record.id)))
}

fn nodes(record: &Record) -> Vec<String> {
    record.attachment.iter().map(|attachment| attachment.node_id.clone()).collect()
}

fn volume(record: Record) -> csi::Volume {
    csi::Volume {
        // An accepted capacity was received as an i64, so it fits.
        capacity_bytes: i64::try_from(record.capacity).unwrap_or(i64::MAX),
        volume_id: record.id.to_string(),
        volume_context: Default::default(),
        content_source: record.source.map(|source| content_source(source.from)),
        accessible_topology: record.topology.into_iter().map(|segments| csi::Topology { segments }).collect(),
    }
}

fn content_source(origin: Origin) -> csi::VolumeContentSource {
    use csi::volume_content_source::{SnapshotSource, Type, VolumeSource};
    let from = match origin {
        Origin::Snapshot(snapshot_id) => Type::Snapshot(SnapshotSource { snapshot_id }),
        Origin::Volume(volume_id) => Type::Volume(VolumeSource { volume_id }),
    };
    csi::VolumeContentSource { r#type: Some(from) }
}

/// Returns the use of a volume at a path, as it is recorded.
pub(crate) fn use_of(capability: &Capability, readonly: bool) -> Use {
    Use { access_mode: capability.access_mode, readonly, group: capability.group }
}
