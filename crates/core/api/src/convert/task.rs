//! Tasks.

use super::blocks::{self, all};
use super::{Fault, Part, Problems, affinities, constraints, networks, or_nanos, unsupported};
use crate as api;
use caravan_types::job as kept;
use caravan_types::job::{CsiPluginType, PropagationMode};

impl Problems {
    pub(super) fn task(&mut self, at: usize, task: &api::Task) -> kept::Task {
        self.task = Some(at);
        let place = self.place.clone().field("Tasks").index(at);
        let out = self.within(format!("task {:?}", task.name), place, |p| p.task_parts(task));
        self.task = None;
        out
    }

    fn task_parts(&mut self, task: &api::Task) -> kept::Task {
        let p = self;
        kept::Task {
            name: task.name.clone(),
            driver: task.driver.clone(),
            user: task.user.clone(),
            config: task.config.iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect(),
            env: task.env.clone().unwrap_or_default(),
            services: all(task.services.as_ref(), blocks::service),
            vault: task.vault.as_ref().map(|v| Box::new(unsupported(v))),
            secrets: all(task.secrets.as_ref(), unsupported),
            consul: task.consul.as_ref().map(|c| Box::new(blocks::consul(c))),
            templates: all(task.templates.as_ref(), blocks::template),
            constraints: constraints(task.constraints.as_ref()),
            affinities: affinities(task.affinities.as_ref()),
            resources: task.resources.as_ref().map(resources).unwrap_or_default(),
            restart_policy: task.restart.as_ref().map(|r| p.restart(r)),
            dispatch_payload: task.dispatch_payload.as_ref().map(blocks::dispatch_payload),
            lifecycle: task
                .lifecycle
                .as_ref()
                .map(|l| kept::Lifecycle { hook: l.hook.clone(), sidecar: l.sidecar }),
            meta: task.meta.clone().unwrap_or_default(),
            kill_timeout: task.kill_timeout.unwrap_or_default(),
            log_config: task.log_config.as_ref().map(|l| p.logs(l)).unwrap_or_default(),
            artifacts: all(task.artifacts.as_ref(), blocks::artifact),
            leader: task.leader,
            shutdown_delay: task.shutdown_delay,
            volume_mounts: p.mounts(task.volume_mounts.as_deref().unwrap_or_default()),
            scaling_policies: all(task.scaling_policies.as_ref(), blocks::scaling),
            kill_signal: task.kill_signal.clone(),
            kind: task.kind.clone(),
            csi_plugin_config: task.csi_plugin.as_ref().map(|c| p.csi_plugin(c)),
            identity: task.identity.as_ref().map(|i| Box::new(blocks::identity(i))),
            identities: all(task.identities.as_ref(), blocks::identity),
            actions: all(task.actions.as_ref(), blocks::action),
            schedule: task.schedule.as_ref().map(|s| Box::new(unsupported(s))),
        }
    }

    fn logs(&mut self, logs: &api::LogConfig) -> kept::LogConfig {
        kept::LogConfig {
            max_files: self.number(
                (Part::Logs, "LogConfig.MaxFiles"),
                "number of files",
                logs.max_files,
                |n| format!("minimum number of files is 1; got {n}"),
            ),
            max_file_size_mb: self.number(
                (Part::Logs, "LogConfig.MaxFileSizeMB"),
                "file size",
                logs.max_file_size_mb,
                |n| format!("minimum file size is 1MB; got {n}"),
            ),
            // `enabled` is the old name of the negated setting.
            disabled: logs.disabled.unwrap_or_default() || logs.enabled == Some(false),
        }
    }

    /// Converts mounts. Mounts without a volume are dropped (docs/reference/storage.md, section 4.2).
    fn mounts(&mut self, mounts: &[api::VolumeMount]) -> Vec<kept::VolumeMount> {
        let named = mounts.iter().filter_map(|mount| Some((mount.volume.clone()?, mount)));
        named.enumerate().map(|(at, (volume, mount))| self.mount(at, volume, mount)).collect()
    }

    /// Converts a mount. `at` is its number among the mounts that are kept.
    fn mount(&mut self, at: usize, volume: String, mount: &api::VolumeMount) -> kept::VolumeMount {
        let propagation_mode = match mount.propagation_mode.as_deref() {
            None | Some("" | "private") => PropagationMode::Private,
            Some("host-to-task") => PropagationMode::HostToTask,
            Some("bidirectional") => PropagationMode::Bidirectional,
            Some(other) => {
                let near =
                    caravan_types::words::suggestion(other, ["private", "host-to-task", "bidirectional"]);
                let message = format!("volume mount has an invalid propagation mode: {other:?}{near}");
                let place = self.place.clone().field("VolumeMounts").index(at);
                let outer = std::mem::replace(&mut self.place, place);
                self.add(Part::Mount, "PropagationMode", Fault::Word, message);
                self.place = outer;
                PropagationMode::default()
            }
        };
        kept::VolumeMount {
            volume,
            destination: mount.destination.clone().unwrap_or_default(),
            read_only: mount.read_only.unwrap_or_default(),
            propagation_mode,
            selinux_label: mount.selinux_label.clone().unwrap_or_default(),
        }
    }

    fn csi_plugin(&mut self, plugin: &api::CsiPlugin) -> kept::CsiPluginConfig {
        let kind = match plugin.kind.as_str() {
            "node" => CsiPluginType::Node,
            "controller" => CsiPluginType::Controller,
            "monolith" => CsiPluginType::Monolith,
            other => {
                self.add(
                    Part::CsiPlugin,
                    "CSIPluginConfig.Type",
                    Fault::Word,
                    format!(
                        "CSIPluginConfig PluginType must be one of 'node', 'controller', or 'monolith', got: {other:?}"
                    ),
                );
                CsiPluginType::default()
            }
        };
        kept::CsiPluginConfig {
            id: plugin.id.as_str().into(),
            kind,
            mount_dir: plugin.mount_dir.clone(),
            stage_publish_base_dir: plugin.stage_publish_base_dir.clone(),
            health_timeout: or_nanos(plugin.health_timeout, 30),
        }
    }
}

fn resources(r: &api::Resources) -> kept::Resources {
    kept::Resources {
        cpu: r.cpu.unwrap_or_default(),
        cores: r.cores.unwrap_or_default(),
        memory_mb: r.memory_mb.unwrap_or_default(),
        memory_max_mb: r.memory_max_mb.unwrap_or_default(),
        disk_mb: r.disk_mb.unwrap_or_default(),
        iops: r.iops.unwrap_or_default(),
        networks: networks(r.networks.as_ref()),
        devices: r
            .devices
            .iter()
            .flatten()
            .map(|d| kept::RequestedDevice {
                name: d.name.clone(),
                count: d.count.unwrap_or(1),
                constraints: constraints(d.constraints.as_ref()),
                affinities: affinities(d.affinities.as_ref()),
            })
            .collect(),
        numa: r.numa.as_ref().map(|n| Box::new(blocks::numa(n))),
        secrets_mb: r.secrets_mb.unwrap_or_default(),
    }
}
