//! A random schedule of changes through the API of one agent.

use super::history::{History, Object, Value};
use anyhow::{Result, ensure};
use caravan_testkit::vm::Machine;
use caravan_testkit::{Reply, Rng};
use serde_json::{Value as Json, json};

/// The number of objects of each kind. Few of them change often.
pub(super) const OBJECTS: usize = 3;
/// The number of changes of a schedule.
const CHANGES: u64 = 40;

/// Runs the schedule of a seed.
pub(super) fn run(machine: &Machine, seed: u64) -> Result<History> {
    let mut schedule = Schedule { machine, history: History::default(), volumes: [false; OBJECTS] };
    let mut rng = Rng::new(seed);
    for value in 1..=CHANGES {
        let number = rng.index(OBJECTS);
        match rng.below(100) {
            0..30 => schedule.set_variable(number, Some(value))?,
            30..35 => schedule.set_variable(number, None)?,
            35..55 => schedule.run_job(number, value)?,
            55..62 => schedule.stop_job(number)?,
            62..80 => schedule.create_volume(number)?,
            80..85 => schedule.delete_volume(number)?,
            85..92 => schedule.save_snapshot()?,
            92..96 => drop(machine.api_send("PUT", "/v1/system/gc", None)?),
            _ => schedule.kill_agent()?,
        }
    }
    ensure!(!schedule.history.acknowledgements().is_empty(), "the agent acknowledged nothing");
    Ok(schedule.history)
}

struct Schedule<'a> {
    machine: &'a Machine,
    history: History,
    /// The volumes whose creation was acknowledged.
    volumes: [bool; OBJECTS],
}

impl Schedule<'_> {
    /// Sends a request for a change; returns the response.
    fn change(
        &mut self,
        object: Object,
        value: Value,
        method: &str,
        path: &str,
        body: Option<&Json>,
    ) -> Result<Reply> {
        let begin = self.machine.log_length(0)?;
        let reply = self.machine.http(4646, method, path, body)?;
        let acknowledged = match reply.status {
            200 | 204 => Some(self.machine.log_length(0)?),
            _ => None,
        };
        self.history.record(object, value, begin, acknowledged);
        Ok(reply)
    }

    fn set_variable(&mut self, number: usize, value: Option<u64>) -> Result<()> {
        let path = format!("/v1/var/power/x{number}");
        let body = value.map(|value| json!({ "Items": { "value": value.to_string() } }));
        let method = if value.is_some() { "PUT" } else { "DELETE" };
        self.change(Object::Variable(number), value, method, &path, body.as_ref()).map(drop)
    }

    fn run_job(&mut self, number: usize, value: u64) -> Result<()> {
        let body = json!({ "Job": job(number, value, self.volumes[number]) });
        let reply = self.change(Object::Job(number), Some(value), "PUT", "/v1/jobs", Some(&body))?;
        ensure!(reply.status == 200, "job j{number} was refused: {}", reply.text());
        Ok(())
    }

    fn stop_job(&mut self, number: usize) -> Result<()> {
        self.change(Object::Job(number), None, "DELETE", &format!("/v1/job/j{number}?purge=true"), None)
            .map(drop)
    }

    fn create_volume(&mut self, number: usize) -> Result<()> {
        let capability = json!({ "AccessMode": "single-node-writer", "AttachmentMode": "file-system" });
        let id = format!("v{number}");
        let volume =
            json!({ "ID": id, "Name": id, "PluginID": "hostpath", "RequestedCapabilities": [capability] });
        let body = json!({ "Volumes": [volume] });
        let path = format!("/v1/volume/csi/{id}/create");
        // A volume has no value: the volume exists or not.
        if self.change(Object::Volume(number), Some(0), "PUT", &path, Some(&body))?.status == 200 {
            self.volumes[number] = true;
        }
        Ok(())
    }

    fn delete_volume(&mut self, number: usize) -> Result<()> {
        // Jobs of later steps request no volume that may be deleted.
        self.volumes[number] = false;
        self.change(Object::Volume(number), None, "DELETE", &format!("/v1/volume/csi/v{number}/delete"), None)
            .map(drop)
    }

    /// Reads a snapshot of the state.
    fn save_snapshot(&self) -> Result<()> {
        let reply = self.machine.http(4646, "GET", "/v1/operator/snapshot", None)?;
        ensure!(reply.status == 200 && !reply.body.is_empty(), "a snapshot with status {}", reply.status);
        Ok(())
    }

    fn kill_agent(&self) -> Result<()> {
        self.machine.end_agent("KILL")?;
        self.machine.start_agent()
    }
}

/// Returns a job with one task that waits, and a volume if there is one. The value is in its metadata.
fn job(number: usize, value: u64, with_volume: bool) -> Json {
    let id = format!("j{number}");
    let mut group = json!({
        "Name": "g",
        "Count": 1,
        "EphemeralDisk": { "SizeMB": 10 },
        "RestartPolicy": { "Attempts": 100, "Interval": 3_600_000_000_000_u64, "Delay": 100_000_000, "Mode": "delay" },
        "Tasks": [{
            "Name": "t",
            "Driver": "raw_exec",
            "KillTimeout": 1_000_000_000,
            "LogConfig": { "MaxFiles": 1, "MaxFileSizeMB": 1 },
            "Config": { "command": "/bin/sh", "args": ["-c", format!("exec sleep 10000{value}")] },
            "Resources": { "CPU": 10, "MemoryMB": 10 },
        }],
    });
    if with_volume {
        let volume = json!({
            "Name": "data", "Type": "csi", "Source": format!("v{number}"),
            "AccessMode": "single-node-writer", "AttachmentMode": "file-system",
        });
        group["Volumes"] = json!({ "data": volume });
        group["Tasks"][0]["VolumeMounts"] =
            json!([{ "Volume": "data", "Destination": "${NOMAD_TASK_DIR}/data" }]);
    }
    json!({ "ID": id, "Name": id, "Type": "service", "Datacenters": ["*"], "Meta": { "value": value.to_string() }, "TaskGroups": [group] })
}
