//! The mounts of a container: the task's directories, volumes of the group, and the mounts of its `config`.

use super::{hosts, joined};
use crate::config::{Config, MountKind, MountSpec, VolumeSpec, expand};
use crate::options::DockerOptions;
use bollard::models::{
    Mount, MountBindOptions, MountBindOptionsPropagationEnum, MountTmpfsOptions, MountType,
    MountVolumeOptions, MountVolumeOptionsDriverConfig,
};
use caravan_drivers::{Error, Propagation, Result, TaskConfig};
use std::path::{Path, PathBuf};

/// The mounts in the two forms that engines accept.
#[derive(Debug, Default)]
pub(super) struct Mounted {
    /// `source:target[:mode]`.
    pub(super) binds: Vec<String>,
    pub(super) mounts: Vec<Mount>,
}

/// Returns all mounts of a task's container.
pub(super) fn all(task: &TaskConfig, config: &Config, options: &DockerOptions) -> Result<Mounted> {
    let dirs = &task.dirs;
    let mut mounted = Mounted::default();
    let logs = dirs.shared_alloc_dir.join("logs");
    let own = [
        (dirs.shared_alloc_dir.clone(), "/alloc", false),
        (dirs.task_dir.join("local"), "/local", false),
        (dirs.task_dir.join("secrets"), "/secrets", false),
        // The agent writes the logs; a task must not.
        (logs, "/alloc/logs", true),
    ];
    for (source, target, read_only) in own {
        mounted.own(&source, target, read_only, &options.selinux_label);
    }
    if joined(task, config).is_some() {
        let place = |name: &str| dirs.state_dir.join(name);
        mounted.mounts.push(bound(&place(hosts::HOSTS.0), hosts::HOSTS.1, false, None));
        if hosts::resolver(task, config).is_some() {
            mounted.mounts.push(bound(&place(hosts::RESOLV.0), hosts::RESOLV.1, true, None));
        }
    }
    for mount in &task.mounts {
        mounted.mounts.push(bound(
            &mount.host_path,
            &mount.task_path.display().to_string(),
            mount.read_only,
            Some(match mount.propagation {
                Propagation::Private => MountBindOptionsPropagationEnum::RPRIVATE,
                Propagation::HostToTask => MountBindOptionsPropagationEnum::RSLAVE,
                Propagation::Bidirectional => MountBindOptionsPropagationEnum::RSHARED,
            }),
        ));
    }
    for volume in &config.volumes {
        mounted.volume(task, volume, options)?;
    }
    if let Some(driver) = &config.volume_driver
        && !options.volumes
    {
        return Err(Error::Config(format!("volumes are not enabled; cannot use volume driver {driver:?}")));
    }
    for mount in &config.mounts {
        mounted.mounts.push(job_mount(task, mount, options)?);
    }
    Ok(mounted)
}

impl Mounted {
    fn own(&mut self, source: &Path, target: &str, read_only: bool, label: &str) {
        let shown = source.display().to_string();
        if shown.contains(':') {
            // The form of binds has no escape for a colon.
            self.mounts.push(bound(source, target, read_only, None));
            return;
        }
        let modes: Vec<&str> = [("ro", read_only), (label, !label.is_empty())]
            .into_iter()
            .filter_map(|(mode, is_set)| is_set.then_some(mode))
            .collect();
        let modes = if modes.is_empty() { String::new() } else { format!(":{}", modes.join(",")) };
        self.binds.push(format!("{shown}:{target}{modes}"));
    }

    fn volume(&mut self, task: &TaskConfig, volume: &VolumeSpec, options: &DockerOptions) -> Result<()> {
        let source = if volume.named {
            volume.source.clone()
        } else {
            allowed(task, &volume.source, options)?.display().to_string()
        };
        let modes: Vec<&str> = [volume.mode.as_str(), &options.selinux_label]
            .into_iter()
            .filter(|mode| !mode.is_empty())
            .collect();
        let modes = if modes.is_empty() { String::new() } else { format!(":{}", modes.join(",")) };
        self.binds.push(format!("{source}:{}{modes}", volume.target));
        Ok(())
    }
}

/// Returns the path of a source that a job names. Unless the node enables volumes, the path must be in the
/// allocation's directory and contain no link, because a task of the allocation could change the link.
fn allowed(task: &TaskConfig, source: &str, options: &DockerOptions) -> Result<PathBuf> {
    let path = expand(&task.dirs.task_dir, source);
    if options.volumes {
        return Ok(path);
    }
    let refused =
        || Error::Config(format!("volumes are not enabled; cannot mount host path: {:?}", path.display()));
    let root = task.dirs.shared_alloc_dir.parent().ok_or_else(refused)?;
    let below = path.strip_prefix(root).map_err(|_| refused())?;
    let mut walked = root.to_owned();
    for part in below {
        walked.push(part);
        match std::fs::symlink_metadata(&walked) {
            Ok(found) if found.is_symlink() => return Err(refused()),
            Ok(_) => {}
            // The engine creates the missing part.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => break,
            Err(_) => return Err(refused()),
        }
    }
    Ok(path)
}

fn job_mount(task: &TaskConfig, mount: &MountSpec, options: &DockerOptions) -> Result<Mount> {
    Ok(match &mount.kind {
        MountKind::Bind { propagation } => {
            let source = allowed(task, &mount.source, options)?;
            let propagation = match propagation.as_str() {
                "private" => Some(MountBindOptionsPropagationEnum::PRIVATE),
                "rprivate" => Some(MountBindOptionsPropagationEnum::RPRIVATE),
                "shared" => Some(MountBindOptionsPropagationEnum::SHARED),
                "rshared" => Some(MountBindOptionsPropagationEnum::RSHARED),
                "slave" => Some(MountBindOptionsPropagationEnum::SLAVE),
                "rslave" => Some(MountBindOptionsPropagationEnum::RSLAVE),
                _ => None,
            };
            bound(&source, &mount.target, mount.read_only, propagation)
        }
        MountKind::Tmpfs { size, mode } => Mount {
            target: Some(mount.target.clone()),
            typ: Some(MountType::TMPFS),
            read_only: Some(mount.read_only),
            tmpfs_options: Some(MountTmpfsOptions { size_bytes: *size, mode: *mode, options: None }),
            ..Mount::default()
        },
        MountKind::Volume { no_copy, labels, driver } => {
            if !options.volumes {
                return Err(Error::Config(format!(
                    "volumes are not enabled; cannot mount volume: {:?}",
                    mount.source
                )));
            }
            Mount {
                target: Some(mount.target.clone()),
                source: Some(mount.source.clone()),
                typ: Some(MountType::VOLUME),
                read_only: Some(mount.read_only),
                volume_options: Some(MountVolumeOptions {
                    no_copy: Some(*no_copy),
                    labels: Some(labels.clone().into_iter().collect()),
                    driver_config: driver.clone().map(|(name, values)| MountVolumeOptionsDriverConfig {
                        name: Some(name),
                        options: Some(values.into_iter().collect()),
                    }),
                    subpath: None,
                }),
                ..Mount::default()
            }
        }
    })
}

fn bound(
    source: &Path,
    target: &str,
    read_only: bool,
    propagation: Option<MountBindOptionsPropagationEnum>,
) -> Mount {
    Mount {
        target: Some(target.to_owned()),
        source: Some(source.display().to_string()),
        typ: Some(MountType::BIND),
        read_only: Some(read_only),
        bind_options: propagation.map(|propagation| MountBindOptions {
            propagation: Some(propagation),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}
