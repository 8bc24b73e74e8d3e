//! Jobs of scripts.

use super::parse::{Line, mode, number, pairs};
use crate::samples;
use caravan_types::job::{
    Affinity, Constraint, Job, JobType, Network, Numa, Port, RequestedDevice, Spread, SpreadTarget,
    VolumeRequest, VolumeType,
};
use caravan_types::volume::{AccessMode, AttachmentMode};

pub(super) fn read(line: &Line) -> Result<Job, String> {
    let mut job = samples::job(line.word(1)?, JobType::Service, 1);
    for (key, value) in line.pairs(2)? {
        set(&mut job, key, value)?;
    }
    for words in &line.below {
        add(&mut job, words)?;
    }
    Ok(job)
}

fn set(job: &mut Job, key: &str, value: &str) -> Result<(), String> {
    let group = &mut job.task_groups[0];
    let resources = &mut group.tasks[0].resources;
    match key {
        "type" => job.kind = value.parse()?,
        "count" => group.count = number(value)?,
        "priority" => job.priority = number(value)?,
        "driver" => value.clone_into(&mut group.tasks[0].driver),
        "cpu" => resources.cpu = number(value)?,
        "memory" => resources.memory_mb = number(value)?,
        "memory_max" => resources.memory_max_mb = number(value)?,
        "cores" => resources.cores = number(value)?,
        "numa" => resources.numa = Some(Numa { affinity: value.to_owned(), devices: None }.into()),
        "disk" => group.ephemeral_disk.get_or_insert_default().size_mb = number(value)?,
        "sticky" => group.ephemeral_disk.get_or_insert_default().sticky = value == "true",
        "pool" => value.clone_into(&mut job.node_pool),
        "dc" => job.datacenters = value.split(',').map(str::to_owned).collect(),
        "all_at_once" => job.all_at_once = value == "true",
        "network" => network(job).mode = value.to_owned(),
        other => return Err(format!("jobs have no {other:?}")),
    }
    Ok(())
}

fn network(job: &mut Job) -> &mut Network {
    let networks = &mut job.task_groups[0].networks;
    if networks.is_empty() {
        networks.push(Network { mode: "host".into(), ..Network::default() });
    }
    &mut networks[0]
}

fn add(job: &mut Job, words: &[String]) -> Result<(), String> {
    let word = |at: usize| {
        words.get(at).cloned().ok_or_else(|| format!("a word is missing after {:?}", words.join(" ")))
    };
    let rest = |skip: usize| pairs(words.get(skip..).unwrap_or_default());
    match words[0].as_str() {
        "constraint" => {
            let r_target = words.get(3..).unwrap_or_default().join(" ");
            job.constraints.push(Constraint { l_target: word(1)?, operand: word(2)?, r_target });
        }
        "affinity" => {
            let weight = match rest(4)?.first() {
                None => 50,
                Some((_, weight)) => number(weight)?,
            };
            let (l_target, operand, r_target) = (word(1)?, word(2)?, word(3)?);
            job.affinities.push(Affinity { l_target, operand, r_target, weight });
        }
        "spread" => {
            let mut spread = Spread { attribute: word(1)?, weight: 50, spread_target: Vec::new() };
            for (key, value) in rest(2)? {
                if key == "weight" {
                    spread.weight = number(value)?;
                } else {
                    let target = SpreadTarget { value: key.to_owned(), percent: number(value)? };
                    spread.spread_target.push(target);
                }
            }
            job.spreads.push(spread);
        }
        "port" => {
            let port = word(1)?;
            match port.split_once('=') {
                Some((label, value)) => {
                    let port = Port { label: label.to_owned(), value: number(value)?, ..Port::default() };
                    network(job).reserved_ports.push(port);
                }
                None => network(job).dynamic_ports.push(Port { label: port, ..Port::default() }),
            }
        }
        "volume" => {
            let source = word(1)?;
            let mut request = VolumeRequest {
                kind: VolumeType::Csi,
                name: source.clone(),
                source: source.clone(),
                access_mode: AccessMode::SingleNodeWriter,
                attachment_mode: AttachmentMode::FileSystem,
                ..VolumeRequest::default()
            };
            for option in words.get(2..).unwrap_or_default() {
                match option.as_str() {
                    "per_alloc" => request.per_alloc = true,
                    "read_only" => request.read_only = true,
                    other => request.access_mode = mode(other)?,
                }
            }
            job.task_groups[0].volumes.insert(source, request);
        }
        "device" => {
            let mut request = RequestedDevice { name: word(1)?, count: 1, ..RequestedDevice::default() };
            for (key, value) in rest(2)? {
                match key {
                    "count" => request.count = number(value)?,
                    "model" => request.constraints.push(Constraint {
                        l_target: "${device.model}".into(),
                        operand: "=".into(),
                        r_target: value.into(),
                    }),
                    other => return Err(format!("devices have no {other:?}")),
                }
            }
            job.task_groups[0].tasks[0].resources.devices.push(request);
        }
        other => return Err(format!("jobs have no {other:?}")),
    }
    Ok(())
}
