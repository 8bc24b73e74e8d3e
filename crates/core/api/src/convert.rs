//! Conversion of a canonicalised job from its HTTP API form to the form that servers store.
//!
//! Blocks without effect are stored unchanged (`docs/gaps.md` lists them). Words without a meaning are collected,
//! each with its path.

mod blocks;
mod misfit;
mod task;

pub use self::misfit::{Fault, Misfit, Misfits, Part};

use crate as api;
use crate::JobPath;
use blocks::all;
use caravan_types::job as kept;
use caravan_types::job::{BrokenMount, JobStatus, JobType, RestartMode, Unsupported, VolumeType};
use caravan_types::time::{Nanos, UnixNanos};
use serde::Serialize;
use serde_json::Value as Json;
use std::fmt;
use std::str::FromStr;

/// The problems that prevent the conversion of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct ConvertError {
    /// The problems, each with its path: `job "a" > group "b" > task "c": ...`.
    pub problems: Vec<String>,
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problems.join("; "))
    }
}

/// Converts a canonicalised job.
///
/// # Errors
/// Returns all words and numbers that the stored job cannot represent: an unknown job type, restart mode or access
/// mode, a negative count, ...
pub fn convert(job: &api::Job) -> Result<kept::Job, ConvertError> {
    let (out, misfits) = fit(job);
    if misfits.is_empty() {
        return Ok(out);
    }
    Err(ConvertError {
        problems: misfits.0.into_iter().map(|m| format!("{}: {}", m.path, m.message)).collect(),
    })
}

/// Converts a canonicalised job as far as possible. Settings that do not fit are returned, and have their default in
/// the job.
pub fn fit(job: &api::Job) -> (kept::Job, Misfits) {
    let mut problems = Problems::default();
    let out = problems.job(job);
    (out, problems.found)
}

/// A collector of problems, with the path that is being converted.
#[derive(Debug, Default)]
struct Problems {
    path: Vec<String>,
    place: JobPath,
    group: Option<usize>,
    task: Option<usize>,
    found: Misfits,
}

/// Returns a block without effect in the shape of the request.
fn unsupported<T: Serialize>(block: &T) -> Unsupported {
    Unsupported(serde_json::to_value(block).unwrap_or(Json::Null))
}

impl Problems {
    fn within<T>(&mut self, part: String, place: JobPath, run: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(part);
        let outer = std::mem::replace(&mut self.place, place);
        let out = run(self);
        self.place = outer;
        self.path.pop();
        out
    }

    fn add(&mut self, part: Part, field: &'static str, fault: Fault, message: impl fmt::Display) {
        self.found.0.push(Misfit {
            group: self.group,
            task: self.task,
            part,
            at: self.place.clone().field(field),
            fault,
            path: self.path.join(" > "),
            message: message.to_string(),
        });
    }

    /// Parses a word of an enum. Records a misfit and returns the default for an unknown word.
    fn word<T: FromStr + Default>(&mut self, part: Part, field: &'static str, text: &str) -> T
    where
        T::Err: fmt::Display,
    {
        text.parse().unwrap_or_else(|e| {
            self.add(part, field, Fault::Word, e);
            T::default()
        })
    }

    /// Converts a count. `negative` returns the message for a count below zero.
    fn number<T: TryFrom<i64> + Default>(
        &mut self,
        (part, field): (Part, &'static str),
        what: &str,
        n: Option<i64>,
        negative: impl FnOnce(i64) -> String,
    ) -> T {
        let n = n.unwrap_or_default();
        T::try_from(n).unwrap_or_else(|_| {
            let (fault, message) = match n < 0 {
                true => (Fault::Negative, negative(n)),
                false => (Fault::TooLarge, format!("{what} is too large: {n}")),
            };
            self.add(part, field, fault, message);
            T::default()
        })
    }

    fn job(&mut self, job: &api::Job) -> kept::Job {
        let id = job.id.clone().unwrap_or_default();
        self.within(format!("job {id:?}"), JobPath::root(), |p| kept::Job {
            stop: job.stop.unwrap_or_default(),
            region: job.region.clone().unwrap_or_default(),
            namespace: job.namespace.clone().unwrap_or_default().into(),
            id: id.into(),
            parent_id: job.parent_id.clone().unwrap_or_default().into(),
            name: job.name.clone().unwrap_or_default(),
            kind: p.word::<JobType>(Part::Kind, "Type", job.kind.as_deref().unwrap_or("service")),
            priority: job.priority.unwrap_or_default(),
            all_at_once: job.all_at_once.unwrap_or_default(),
            datacenters: job.datacenters.clone().unwrap_or_default(),
            node_pool: job.node_pool.clone().unwrap_or_default(),
            constraints: constraints(job.constraints.as_ref()),
            affinities: affinities(job.affinities.as_ref()),
            spreads: spreads(job.spreads.as_ref()),
            task_groups: job.task_groups.iter().flatten().enumerate().map(|(at, g)| p.group(at, g)).collect(),
            // Groups hold the effective strategy (docs/reference/http-api.md, section 5.1), and report its problems.
            update: job.update.as_ref().map_or_else(kept::UpdateStrategy::default, |u| {
                kept::UpdateStrategy {
                    stagger: u.stagger.unwrap_or_default(),
                    max_parallel: u32::try_from(u.max_parallel.unwrap_or_default()).unwrap_or_default(),
                    ..kept::UpdateStrategy::default()
                }
            }),
            multiregion: job.multiregion.as_ref().map(|m| Box::new(unsupported(m))),
            periodic: job.periodic.as_ref().map(|p| Box::new(blocks::periodic(p))),
            parameterized_job: job.parameterized.as_ref().map(blocks::parameterized),
            dispatched: job.dispatched,
            dispatch_idempotency_token: job.dispatch_idempotency_token.clone().unwrap_or_default(),
            payload: job.payload.clone().unwrap_or_default(),
            meta: job.meta.clone().unwrap_or_default(),
            consul_namespace: job.consul_namespace.clone().unwrap_or_default(),
            vault_namespace: job.vault_namespace.clone().unwrap_or_default(),
            nomad_token_id: job.nomad_token_id.clone().unwrap_or_default(),
            status: JobStatus::default(),
            status_description: job.status_description.clone().unwrap_or_default(),
            stable: job.stable.unwrap_or_default(),
            version: job.version.unwrap_or_default(),
            submit_time: UnixNanos(job.submit_time.unwrap_or_default()),
            create_index: job.create_index.unwrap_or_default(),
            modify_index: job.modify_index.unwrap_or_default(),
            job_modify_index: job.job_modify_index.unwrap_or_default(),
            ui: job.ui.as_ref().map(|ui| Box::new(blocks::ui(ui))),
            version_tag: job.version_tag.as_ref().map(|tag| Box::new(blocks::version_tag(tag))),
        })
    }

    fn group(&mut self, at: usize, group: &api::TaskGroup) -> kept::TaskGroup {
        self.group = Some(at);
        let name = group.name.clone().unwrap_or_default();
        let out = self.within(format!("group {name:?}"), JobPath::group(at), |p| p.group_parts(name, group));
        self.group = None;
        out
    }

    fn group_parts(&mut self, name: String, group: &api::TaskGroup) -> kept::TaskGroup {
        let p = self;
        kept::TaskGroup {
            name,
            count: p.number((Part::Count, "Count"), "Task group count", group.count, |_| {
                "Task group count can't be negative".to_owned()
            }),
            update: group.update.as_ref().map(|u| p.update(u)),
            migrate: group.migrate.as_ref().map(|m| kept::MigrateStrategy {
                max_parallel: p.number(
                    (Part::Migrate, "Migrate.MaxParallel"),
                    "MaxParallel",
                    m.max_parallel,
                    |n| format!("MaxParallel must be >= 0 but is {n}"),
                ),
                health_check: m.health_check.clone().unwrap_or_default(),
                min_healthy_time: m.min_healthy_time.unwrap_or_default(),
                healthy_deadline: m.healthy_deadline.unwrap_or_default(),
            }),
            constraints: constraints(group.constraints.as_ref()),
            scaling: group.scaling.as_ref().map(|s| Box::new(blocks::scaling(s))),
            restart_policy: group.restart.as_ref().map(|r| p.restart(r)),
            disconnect: group.disconnect.as_ref().map(|d| kept::DisconnectStrategy {
                lost_after: d.lost_after.unwrap_or_default(),
                stop_on_client_after: d.stop_on_client_after,
                replace: d.replace,
                reconcile: d.reconcile.clone().unwrap_or_default(),
            }),
            tasks: group.tasks.iter().flatten().enumerate().map(|(at, t)| p.task(at, t)).collect(),
            ephemeral_disk: group.ephemeral_disk.as_ref().map(|d| kept::EphemeralDisk {
                // `migrate` implies `sticky`, because data move only to a sticky disk
                // (docs/reference/jobspec.md, section 4.4).
                sticky: d.sticky.unwrap_or_default() || d.migrate.unwrap_or_default(),
                size_mb: d.size_mb.unwrap_or_default(),
                migrate: d.migrate.unwrap_or_default(),
            }),
            meta: group.meta.clone().unwrap_or_default(),
            reschedule_policy: group.reschedule.as_ref().map(|r| kept::ReschedulePolicy {
                attempts: p.number(
                    (Part::Reschedule, "ReschedulePolicy.Attempts"),
                    "Attempts of a reschedule policy",
                    r.attempts,
                    |n| format!("Attempts of a reschedule policy cannot be negative (got {n})"),
                ),
                interval: r.interval.unwrap_or_default(),
                delay: r.delay.unwrap_or_default(),
                delay_function: r.delay_function.clone().unwrap_or_default(),
                max_delay: r.max_delay.unwrap_or_default(),
                unlimited: r.unlimited.unwrap_or_default(),
            }),
            affinities: affinities(group.affinities.as_ref()),
            spreads: spreads(group.spreads.as_ref()),
            networks: networks(group.networks.as_ref()),
            consul: group.consul.as_ref().map(|c| Box::new(blocks::consul(c))),
            services: all(group.services.as_ref(), blocks::service),
            volumes: group
                .volumes
                .iter()
                .flatten()
                .filter_map(|(alias, v)| Some((alias.clone(), p.volume(alias, v)?)))
                .collect(),
            shutdown_delay: group.shutdown_delay,
            max_run_duration: group.max_run_duration,
            stop_after_client_disconnect: group.stop_after_client_disconnect,
            max_client_disconnect: group.max_client_disconnect,
            prevent_reschedule_on_lost: group.prevent_reschedule_on_lost.unwrap_or_default(),
        }
    }

    /// Converts a volume request. A request of an unknown type is dropped (docs/reference/storage.md, section 4.1); a
    /// mount of the volume is then reported.
    fn volume(&mut self, alias: &str, v: &api::VolumeRequest) -> Option<kept::VolumeRequest> {
        let kind = match v.kind.as_str() {
            "csi" => VolumeType::Csi,
            "host" => VolumeType::Host,
            _ => return None,
        };
        let place = self.place.clone().field("Volumes").key(alias);
        Some(self.within(format!("volume {alias:?}"), place, |p| kept::VolumeRequest {
            name: v.name.clone(),
            kind,
            source: v.source.clone(),
            read_only: v.read_only,
            sticky: v.sticky,
            access_mode: p.word(Part::Volume, "AccessMode", &v.access_mode),
            attachment_mode: p.word(Part::Volume, "AttachmentMode", &v.attachment_mode),
            mount_options: v.mount_options.as_ref().map(|m| kept::MountOptions {
                fs_type: m.fs_type.clone(),
                mount_flags: m.mount_flags.clone().unwrap_or_default(),
            }),
            per_alloc: v.per_alloc,
            broken_mount: match v.broken_mount.as_str() {
                "" | "hold" => BrokenMount::Hold,
                "restart" => BrokenMount::Restart,
                "remount" => BrokenMount::Remount,
                other => {
                    p.add(
                        Part::Volume,
                        "BrokenMount",
                        Fault::Word,
                        format!("broken_mount must be hold, restart or remount, not {other:?}"),
                    );
                    BrokenMount::Hold
                }
            },
            user: v.user.clone(),
            group: v.group.clone(),
            mode: v.mode.clone(),
            // Only the servers set this field.
            host_access: kept::HostAccess::Any,
        }))
    }

    fn update(&mut self, u: &api::UpdateStrategy) -> kept::UpdateStrategy {
        kept::UpdateStrategy {
            stagger: u.stagger.unwrap_or_default(),
            max_parallel: self.number(
                (Part::Update, "Update.MaxParallel"),
                "Max parallel count",
                u.max_parallel,
                |n| format!("Max parallel count can not be less than zero: {n} < 0"),
            ),
            health_check: u.health_check.clone().unwrap_or_default(),
            min_healthy_time: u.min_healthy_time.unwrap_or_default(),
            healthy_deadline: u.healthy_deadline.unwrap_or_default(),
            progress_deadline: u.progress_deadline.unwrap_or_default(),
            auto_revert: u.auto_revert.unwrap_or_default(),
            auto_promote: u.auto_promote.unwrap_or_default(),
            canary: self.number((Part::Update, "Update.Canary"), "Canary count", u.canary, |n| {
                format!("Canary count can not be less than zero: {n} < 0")
            }),
        }
    }

    fn restart(&mut self, r: &api::RestartPolicy) -> kept::RestartPolicy {
        kept::RestartPolicy {
            attempts: self.number(
                (Part::Restart, "RestartPolicy.Attempts"),
                "Attempts of a restart policy",
                r.attempts,
                |n| format!("Attempts of a restart policy cannot be negative (got {n})"),
            ),
            interval: r.interval.unwrap_or_default(),
            delay: r.delay.unwrap_or_default(),
            mode: match r.mode.as_deref() {
                None | Some("" | "fail") => RestartMode::Fail,
                Some("delay") => RestartMode::Delay,
                Some(other) => {
                    let near = caravan_types::words::suggestion(other, ["fail", "delay"]);
                    self.add(
                        Part::Restart,
                        "RestartPolicy.Mode",
                        Fault::Word,
                        format!("Unsupported restart mode: {other:?}{near}"),
                    );
                    RestartMode::default()
                }
            },
            render_templates: r.render_templates.unwrap_or_default(),
        }
    }
}

fn constraints(all: Option<&Vec<api::Constraint>>) -> Vec<kept::Constraint> {
    all.into_iter()
        .flatten()
        .map(|c| kept::Constraint {
            l_target: c.l_target.clone(),
            r_target: c.r_target.clone(),
            operand: c.operand.clone(),
        })
        .collect()
}

fn affinities(all: Option<&Vec<api::Affinity>>) -> Vec<kept::Affinity> {
    all.into_iter()
        .flatten()
        .map(|a| kept::Affinity {
            l_target: a.l_target.clone(),
            r_target: a.r_target.clone(),
            operand: a.operand.clone(),
            weight: a.weight.map_or(50, i64::from),
        })
        .collect()
}

fn spreads(all: Option<&Vec<api::Spread>>) -> Vec<kept::Spread> {
    all.into_iter()
        .flatten()
        .map(|s| kept::Spread {
            attribute: s.attribute.clone(),
            weight: s.weight.map_or(50, i64::from),
            spread_target: s
                .targets
                .iter()
                .flatten()
                .map(|t| kept::SpreadTarget { value: t.value.clone(), percent: u32::from(t.percent) })
                .collect(),
        })
        .collect()
}

/// Converts networks. Ports without a host network are on the host network `default`.
fn networks(all: Option<&Vec<api::NetworkResource>>) -> Vec<kept::Network> {
    let ports = |ports: Option<&Vec<api::Port>>| -> Vec<kept::Port> {
        ports
            .into_iter()
            .flatten()
            .map(|port| kept::Port {
                label: port.label.clone(),
                value: port.value,
                to: port.to,
                host_network: if port.host_network.is_empty() {
                    "default".to_owned()
                } else {
                    port.host_network.clone()
                },
                ignore_collision: port.ignore_collision,
            })
            .collect()
    };
    all.into_iter()
        .flatten()
        .map(|n| kept::Network {
            mode: n.mode.clone(),
            device: n.device.clone(),
            cidr: n.cidr.clone(),
            ip: n.ip.clone(),
            hostname: n.hostname.clone(),
            mbits: n.mbits.unwrap_or_default(),
            dns: n.dns.as_ref().map(|dns| Box::new(blocks::dns(dns))),
            reserved_ports: ports(n.reserved_ports.as_ref()),
            dynamic_ports: ports(n.dynamic_ports.as_ref()),
            cni: n.cni.as_ref().map(|cni| Box::new(kept::Cni { args: cni.args.clone() })),
        })
        .collect()
}

/// Returns a duration, or its default if a raw request left the duration out.
fn or_nanos(value: Nanos, default: i64) -> Nanos {
    if value == Nanos::ZERO { Nanos::from_secs(default) } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{canonicalize, decode};

    fn converted(json: &str) -> Result<kept::Job, ConvertError> {
        let mut job: api::Job = decode(json.as_bytes()).unwrap();
        canonicalize(&mut job);
        convert(&job)
    }

    #[test]
    fn a_job_with_a_volume() {
        let job = converted(
            r#"{"ID": "writer", "Type": "batch", "TaskGroups": [{"Name": "g",
                "Volumes": {"data": {"Name": "data", "Type": "csi", "Source": "data",
                    "AccessMode": "single-node-writer", "AttachmentMode": "file-system"},
                    "odd": {"Name": "odd", "Type": "nfs"}},
                "Networks": [{"DynamicPorts": [{"Label": "http"}]}],
                "Tasks": [{"Name": "t", "Driver": "raw_exec", "Config": {"command": "sh", "n": null},
                    "LogConfig": {"Enabled": false},
                    "VolumeMounts": [{"Volume": "data", "Destination": "/d", "PropagationMode": "host-to-task"},
                        {"Destination": "/nowhere"}],
                    "CSIPluginConfig": {"ID": "p", "Type": "monolith"}}]}]}"#,
        )
        .unwrap();
        assert_eq!(job.kind, JobType::Batch);
        let group = &job.task_groups[0];
        assert_eq!(group.count, 1);
        assert_eq!(group.volumes.len(), 1);
        assert_eq!(group.networks[0].dynamic_ports[0].host_network, "default");
        assert_eq!(group.restart_policy.unwrap().attempts, 3);
        let task = &group.tasks[0];
        assert_eq!(task.volume_mounts.len(), 1);
        assert_eq!(task.volume_mounts[0].propagation_mode, kept::PropagationMode::HostToTask);
        assert!(task.log_config.disabled);
        assert_eq!(task.csi_plugin_config.as_ref().unwrap().mount_dir, "/csi");
        assert_eq!(task.resources.memory_mb, 300);
    }

    #[test]
    fn every_problem_is_named_with_its_path() {
        let error = converted(
            r#"{"ID": "j", "Type": "cron", "TaskGroups": [{"Name": "g", "Count": -1,
                "RestartPolicy": {"Mode": "never"},
                "Volumes": {"v": {"Type": "csi", "AccessMode": "both"}},
                "Tasks": [{"Name": "t", "VolumeMounts": [{"Volume": "v", "PropagationMode": "up"}],
                    "CSIPluginConfig": {"ID": "p", "Type": "server"}}]}]}"#,
        )
        .unwrap_err();
        let all = error.to_string();
        for part in [
            "job \"j\": Invalid job type: \"cron\"",
            "job \"j\" > group \"g\": Task group count can't be negative",
            "restart mode: \"never\"",
            "volume \"v\": unknown volume access mode: both",
            "task \"t\": volume mount has an invalid propagation mode: \"up\"",
            "CSIPluginConfig PluginType must be one of 'node', 'controller', or 'monolith', got: \"server\"",
        ] {
            assert!(all.contains(part), "{part} is not in {all}");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the cases are files")]
    fn recorded_jobs_convert() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/jobspec/valid");
        for case in std::fs::read_dir(dir).unwrap() {
            let Ok(text) = std::fs::read_to_string(case.unwrap().path().join("canonical.json")) else {
                continue;
            };
            let job: api::Job = decode(text.as_bytes()).unwrap();
            match convert(&job) {
                Ok(job) => {
                    // The stored job is the same after it was written and read as JSON.
                    let json = serde_json::to_string(&job).unwrap();
                    assert_eq!(serde_json::from_str::<kept::Job>(&json).unwrap(), job);
                }
                Err(e) => assert!(
                    e.problems.iter().all(|p| p.contains("PluginType")),
                    "only an unnamed plugin type is refused: {e}"
                ),
            }
        }
    }
}
