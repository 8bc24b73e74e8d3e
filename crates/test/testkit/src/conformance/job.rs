//! The checks through an agent: the plugin is a job, and tasks use its volumes.

use super::{Report, Settings};
use crate::{Agent, AgentOptions, Reply, eventually, mounts_below};
use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// The combinations of attachment mode and access mode, tested in this order.
const WAYS: [(&str, &str); 4] = [
    ("file-system", "single-node-writer"),
    ("file-system", "multi-node-multi-writer"),
    ("block-device", "single-node-writer"),
    ("block-device", "multi-node-multi-writer"),
];

/// Texts, in lower case, by which responses report a feature that the plugin does not have.
const MISSING: [&str; 6] =
    ["not support", "not implemented", "unimplemented", "invalid_argument", "does not have", "lacks"];

/// Runs the job of a plugin with a new agent, once for each driver, and lets tasks of the same driver use
/// its volumes through their whole life. `plugin` names one of several plugins of the job.
///
/// # Errors
/// Fails if an agent cannot be started or the job does not run a plugin. The report has the plugin's errors.
pub fn job(
    file: &Path,
    plugin: Option<&str>,
    drivers: &[&str],
    settings: &Settings,
    report: &mut Report,
) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    for driver in drivers {
        report.about(*driver);
        let agent = Agent::with(AgentOptions::default())?;
        let stage = Stage::set(agent, &text, plugin, driver, settings)?;
        let healthy = stage.agent_has_plugin();
        if !report.is("the plugin gets healthy", healthy.is_ok(), || problem(&healthy)) {
            continue;
        }
        for (number, (attachment, access)) in WAYS.into_iter().enumerate() {
            report.about(format!("{driver}, {attachment} {access}"));
            let life = stage.life(&format!("v{number}"), attachment, access, report);
            if let Err(error) = life {
                report.failed("the life of a volume", format!("{error:#}"));
            }
        }
        report.about(*driver);
        let stopped = stage.stop_plugin();
        report.is("the plugin's job can be stopped", stopped.is_ok(), || problem(&stopped));
        let gone = stage.nothing_is_mounted();
        report.is("no mount of a volume is left", gone.is_ok(), || problem(&gone));
    }
    report.about("");
    Ok(())
}

/// An agent that runs the plugin.
struct Stage<'a> {
    agent: Agent,
    driver: &'a str,
    job: String,
    plugin: String,
    settings: &'a Settings,
}

/// One combination of volume and modes.
struct Usage<'a> {
    volume: String,
    attachment: &'a str,
    access: &'a str,
}

impl<'a> Stage<'a> {
    fn set(
        agent: Agent,
        text: &str,
        plugin: Option<&str>,
        driver: &'a str,
        settings: &'a Settings,
    ) -> Result<Self> {
        let body = json!({ "JobHCL": text, "Canonicalize": true });
        let reply = agent.request("PUT", "/v1/jobs/parse", Some(&body))?;
        if reply.status != 200 {
            bail!("the job cannot be read: {}", reply.text());
        }
        let mut parsed = reply.json()?;
        let job = parsed["ID"].as_str().context("the job has no id")?.to_owned();
        let mut found = Vec::new();
        for group in parsed["TaskGroups"].as_array_mut().into_iter().flatten() {
            for task in group["Tasks"].as_array_mut().into_iter().flatten() {
                if let Some(id) = task["CSIPluginConfig"]["ID"].as_str() {
                    found.push(id.to_owned());
                    task["Driver"] = json!(driver);
                }
            }
        }
        found.dedup();
        let plugin = match plugin {
            Some(plugin) if found.iter().any(|id| id == plugin) => plugin.to_owned(),
            Some(plugin) => bail!("the job has no plugin {plugin:?}, it has {found:?}"),
            None => match found.as_slice() {
                [one] => one.clone(),
                [] => bail!("no task of the job is a CSI plugin"),
                _ => bail!("the job has several plugins, name one of {found:?}"),
            },
        };
        let stage = Self { agent, driver, job, plugin, settings };
        stage.put("/v1/jobs", &json!({ "Job": parsed }))?;
        Ok(stage)
    }

    fn put(&self, path: &str, body: &Value) -> Result<Value> {
        self.ask("PUT", path, Some(body))?.json()
    }

    fn delete(&self, path: &str) -> Result<()> {
        self.ask("DELETE", path, None).map(drop)
    }

    /// Sends a request, and retries it while the plugin responds that another call is in progress.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Reply> {
        let deadline = Instant::now() + self.settings.patience;
        loop {
            let reply = self.agent.request(method, path, body)?;
            let words = reply.text().trim().to_owned();
            match reply.status {
                200 => return Ok(reply),
                404 if words.is_empty() => bail!("the agent does not have {path}"),
                _ if words.contains("ABORTED") && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                _ => bail!("{words}"),
            }
        }
    }

    /// Waits until the plugin serves, with a controller if it has one. Errors include the output of the plugin.
    fn agent_has_plugin(&self) -> Result<()> {
        let healthy = eventually("the plugin to be healthy", || {
            let plugin = self.agent.get(&format!("/v1/plugin/csi/{}", self.plugin))?;
            let enough = plugin["NodesHealthy"].as_u64() >= Some(1)
                && (plugin["ControllerRequired"] != true || plugin["ControllersHealthy"].as_u64() >= Some(1));
            if enough { Ok(()) } else { bail!("it is not healthy") }
        });
        healthy.map_err(|error| {
            let reported = self.agent.allocs(&self.job).ok().and_then(|allocs| {
                let alloc = allocs.first()?["ID"].as_str()?.to_owned();
                let task = allocs.first()?["TaskStates"].as_object()?.keys().next()?.clone();
                self.agent.logs(&alloc, &task, "stderr").ok()
            });
            anyhow!("{error:#}; it said: {}", reported.unwrap_or_default().trim())
        })
    }

    fn specification(&self, usage: &Usage<'_>, id: &str) -> Value {
        json!({
            "ID": id, "Name": id, "Namespace": "default", "PluginID": self.plugin,
            "RequestedCapacityMin": self.settings.size,
            "RequestedCapabilities": [{ "AttachmentMode": usage.attachment, "AccessMode": usage.access }],
            "Parameters": self.settings.parameters,
            "Secrets": self.settings.secrets.0,
        })
    }

    fn create(&self, id: &str, specification: &Value) -> Result<()> {
        let path = format!("/v1/volume/csi/{id}/create");
        self.put(&path, &json!({ "Volumes": [specification] })).map(drop)
    }

    fn external_id(&self, id: &str) -> Result<String> {
        Ok(self.agent.volume(id)?["ExternalID"].as_str().unwrap_or_default().to_owned())
    }

    /// Returns a job whose task runs a script with the volume: `$V` is the path for the word.
    fn consumer(&self, usage: &Usage<'_>, id: &str, kind: &str, script: &str) -> Value {
        let (place, word) = match usage.attachment {
            "block-device" => ("${NOMAD_TASK_DIR}/volume", "V=$NOMAD_TASK_DIR/volume"),
            _ => ("${NOMAD_TASK_DIR}/volume", "V=$NOMAD_TASK_DIR/volume/word"),
        };
        // A device belongs to root, and tasks do not run as root by default.
        let user = if usage.attachment == "block-device" { "root" } else { "" };
        // The word fills a block, because devices are written in blocks.
        let functions = "put() { printf '%-4096s' \"$1\" | dd of=\"$V\" bs=4096 conv=notrunc,fsync status=none; }; \
             get() { dd if=\"$V\" bs=4096 count=1 status=none | tr -d ' '; }";
        json!({ "Job": {
            "ID": id, "Name": id, "Type": kind, "Datacenters": ["*"],
            "TaskGroups": [{
                "Name": "g", "Count": 1,
                "EphemeralDisk": { "SizeMB": 20 },
                "RestartPolicy": { "Attempts": 0, "Mode": "fail" },
                "ReschedulePolicy": { "Attempts": 0, "Unlimited": false },
                "Volumes": { "v": {
                    "Name": "v", "Type": "csi", "Source": usage.volume,
                    "AccessMode": usage.access, "AttachmentMode": usage.attachment,
                }},
                "Tasks": [{
                    "Name": "t", "Driver": self.driver, "User": user,
                    "Config": { "command": "/bin/sh", "args": ["-c", format!("{word}; {functions}; {script}")] },
                    "VolumeMounts": [{ "Volume": "v", "Destination": place }],
                    "KillTimeout": 1_000_000_000,
                    "Resources": { "CPU": 20, "MemoryMB": 32 },
                    "LogConfig": { "MaxFiles": 1, "MaxFileSizeMB": 1 },
                }],
            }],
        }})
    }

    /// Runs a script to its end.
    fn run(&self, usage: &Usage<'_>, id: &str, script: &str) -> Result<()> {
        self.put("/v1/jobs", &self.consumer(usage, id, "batch", script))?;
        let ended = eventually(&format!("the task {id} to end"), || {
            let allocs = self.agent.allocs(id)?;
            let alloc = allocs.first().context("it is not placed")?;
            match alloc["ClientStatus"].as_str() {
                Some(status @ ("complete" | "failed" | "lost")) => Ok((status.to_owned(), alloc.clone())),
                other => bail!("it is {other:?}: {}", history(alloc)),
            }
        });
        let result = match ended {
            Ok((status, _)) if status == "complete" => Ok(()),
            Ok((status, alloc)) => {
                let reported =
                    alloc["ID"].as_str().map(|id| self.agent.logs(id, "t", "stderr").unwrap_or_default());
                Err(anyhow!(
                    "the task is {status}: {} {}",
                    reported.unwrap_or_default().trim(),
                    history(&alloc)
                ))
            }
            Err(error) => Err(error),
        };
        self.delete(&format!("/v1/job/{id}?purge=true"))?;
        if usage.access.starts_with("single-node") {
            self.agent.wait_no_claims(&usage.volume)?;
        }
        result
    }

    fn life(&self, name: &str, attachment: &str, access: &str, report: &mut Report) -> Result<()> {
        let usage = Usage { volume: name.to_owned(), attachment, access };
        let specification = self.specification(&usage, name);
        if let Err(error) = self.create(name, &specification) {
            let words = format!("{error:#}");
            if is_missing(&words) {
                report.not_offered("volumes of this kind", words);
            } else {
                report.failed("volume create", words);
            }
            return Ok(());
        }
        report.passed("volume create");
        let first = self.external_id(name)?;
        let again = self.create(name, &specification);
        report.is("volume create again", again.is_ok(), || problem(&again));
        let second = self.external_id(name)?;
        report.is("volume create again is the same volume", first == second, || {
            format!("{first} and then {second}")
        });

        let written = self.run(&usage, &format!("{name}-write"), "put first && [ \"$(get)\" = first ]");
        report.is("a task writes and reads", written.is_ok(), || problem(&written));
        let read = self.run(&usage, &format!("{name}-read"), "[ \"$(get)\" = first ]");
        report.is("a later task reads what was written", read.is_ok(), || problem(&read));
        self.in_use(&usage, report)?;
        self.grows(&usage, &specification, report)?;
        self.copies(&usage, report)?;

        let free = self.agent.wait_no_claims(name);
        report.is("every claim ends", free.is_ok(), || problem(&free));
        let deleted = self.delete(&format!("/v1/volume/csi/{name}/delete"));
        report.is("volume delete", deleted.is_ok(), || problem(&deleted));
        let gone = self.agent.request("GET", &format!("/v1/volume/csi/{name}"), None)?;
        report.is("the volume is gone", gone.status == 404, || gone.text());
        Ok(())
    }

    /// Checks operations on the volume while a task uses it.
    fn in_use(&self, usage: &Usage<'_>, report: &mut Report) -> Result<()> {
        let id = format!("{}-hold", usage.volume);
        let script = "while put first && [ \"$(get)\" = first ]; do sleep 0.1; done; exit 1";
        self.put("/v1/jobs", &self.consumer(usage, &id, "service", script))?;
        let running = self.agent.wait_alloc(&id, "running");
        if !report.is("a task runs with the volume", running.is_ok(), || problem(&running)) {
            return self.delete(&format!("/v1/job/{id}?purge=true"));
        }
        let refused = self.delete(&format!("/v1/volume/csi/{}/delete", usage.volume));
        report.is("volume delete in use is refused", refused.is_err(), || "it was deleted".to_owned());

        let restarted = self.restart_plugin();
        report.is("the plugin comes back after a restart", restarted.is_ok(), || problem(&restarted));
        let status = self.agent.allocs(&id)?.first().map(|alloc| alloc["ClientStatus"].clone());
        report.is("the task goes on while its plugin restarts", status == Some(json!("running")), || {
            format!("it is {status:?}")
        });
        if usage.access.contains("multi-writer") {
            let beside = self.run(usage, &format!("{}-beside", usage.volume), "[ \"$(get)\" = first ]");
            report.is("a second task uses the volume beside the first", beside.is_ok(), || problem(&beside));
        }
        self.delete(&format!("/v1/job/{id}?purge=true"))?;
        let free = self.agent.wait_no_claims(&usage.volume);
        report.is("the volume is free after its task", free.is_ok(), || problem(&free));
        let later = self.run(usage, &format!("{}-later", usage.volume), "[ \"$(get)\" = first ]");
        match later {
            Ok(()) => report.passed("the volume can be used after the plugin's restart"),
            Err(error) => {
                report.failed("the volume can be used after the plugin's restart", format!("{error:#}"))
            }
        }
        Ok(())
    }

    fn stop_plugin(&self) -> Result<()> {
        self.delete(&format!("/v1/job/{}", self.job))?;
        eventually("the plugin to end", || {
            let allocs = self.agent.allocs(&self.job)?;
            let live = |alloc: &&Value| matches!(alloc["ClientStatus"].as_str(), Some("running" | "pending"));
            match allocs.iter().find(live) {
                None => Ok(()),
                Some(alloc) => bail!("its allocation is {}", alloc["ClientStatus"]),
            }
        })
    }

    fn restart_plugin(&self) -> Result<()> {
        let allocs = self.agent.allocs(&self.job)?;
        let alloc =
            allocs.first().and_then(|alloc| alloc["ID"].as_str()).context("the plugin has no allocation")?;
        let restarts = |allocs: &[Value]| -> u64 {
            let states = allocs.first().and_then(|alloc| alloc["TaskStates"].as_object());
            states.into_iter().flatten().filter_map(|(_, state)| state["Restarts"].as_u64()).sum()
        };
        let before = restarts(&allocs);
        self.put(&format!("/v1/client/allocation/{alloc}/restart"), &json!({ "AllTasks": true }))?;
        eventually("the plugin's task to restart", || {
            if restarts(&self.agent.allocs(&self.job)?) > before { Ok(()) } else { bail!("not yet") }
        })?;
        self.agent_has_plugin()
    }

    fn grows(&self, usage: &Usage<'_>, specification: &Value, report: &mut Report) -> Result<()> {
        let desired = self.settings.size.saturating_mul(2);
        let mut larger = specification.clone();
        larger["RequestedCapacityMin"] = json!(desired);
        if let Err(error) = self.create(&usage.volume, &larger) {
            let words = format!("{error:#}");
            if is_missing(&words) {
                report.not_offered("volume create with more capacity", words);
            } else {
                report.failed("volume create with more capacity", words);
            }
            return Ok(());
        }
        let grown = eventually("the volume to grow", || {
            let volume = self.agent.volume(&usage.volume)?;
            if volume["Capacity"].as_u64() >= Some(desired) {
                Ok(())
            } else {
                bail!("it has {}, {}", volume["Capacity"], volume["CaravanLastError"])
            }
        });
        report.is("volume create with more capacity", grown.is_ok(), || problem(&grown));
        let read = self.run(usage, &format!("{}-grown", usage.volume), "[ \"$(get)\" = first ]");
        report.is("the volume keeps what was written while it grows", read.is_ok(), || problem(&read));
        Ok(())
    }

    fn copies(&self, usage: &Usage<'_>, report: &mut Report) -> Result<()> {
        // Some plugins cannot copy a volume in use. The checks of the endpoint cover operations without the agent.
        self.agent.wait_no_claims(&usage.volume)?;
        let cut = json!({ "Snapshots": [{
            "SourceVolumeID": usage.volume, "PluginID": self.plugin, "Name": format!("{}-cut", usage.volume),
            "Secrets": self.settings.secrets.0,
        }]});
        match self.put("/v1/volumes/snapshot", &cut) {
            Err(error) => {
                let words = format!("{error:#}");
                if is_missing(&words) {
                    report.not_offered("volume snapshot create", words);
                } else {
                    report.failed("volume snapshot create", words);
                }
            }
            Ok(made) => {
                report.passed("volume snapshot create");
                let snapshot =
                    made["Snapshots"][0]["ID"].as_str().context("the snapshot has no id")?.to_owned();
                self.copy(usage, "restored", "SnapshotID", &snapshot, "a volume from a snapshot", report)?;
                let path = format!("/v1/volumes/snapshot?plugin_id={}&snapshot_id={snapshot}", self.plugin);
                let deleted = self.delete(&path);
                report.is("volume snapshot delete", deleted.is_ok(), || problem(&deleted));
            }
        }
        let external = self.external_id(&usage.volume)?;
        self.copy(usage, "clone", "CloneID", &external, "a volume from a volume", report)
    }

    fn copy(
        &self,
        of: &Usage<'_>,
        name: &str,
        key: &str,
        source: &str,
        what: &str,
        report: &mut Report,
    ) -> Result<()> {
        let copy = Usage { volume: format!("{}-{name}", of.volume), ..*of };
        let mut specification = self.specification(&copy, &copy.volume);
        specification[key] = json!(source);
        specification["RequestedCapacityMin"] = json!(self.settings.size.saturating_mul(2));
        if let Err(error) = self.create(&copy.volume, &specification) {
            let words = format!("{error:#}");
            if is_missing(&words) {
                report.not_offered(what, words);
            } else {
                report.failed(what, words);
            }
            return Ok(());
        }
        report.passed(what);
        let read = self.run(&copy, &format!("{}-read", copy.volume), "[ \"$(get)\" = first ] && put other");
        report.is(&format!("{what} holds what it was made from"), read.is_ok(), || problem(&read));
        let free = self.agent.wait_no_claims(&copy.volume);
        report.is("every claim ends", free.is_ok(), || problem(&free));
        let deleted = self.delete(&format!("/v1/volume/csi/{}/delete", copy.volume));
        report.is("volume delete", deleted.is_ok(), || problem(&deleted));
        Ok(())
    }

    /// Waits until no volume is mounted below the plugin's root on this host.
    fn nothing_is_mounted(&self) -> Result<()> {
        let root = self.agent.data_dir().join("client/csi").display().to_string();
        eventually("no mount of a volume", || {
            let of_volumes = |mount: &String| mount.contains("/staging/") || mount.contains("/per-alloc/");
            let left: Vec<String> = mounts_below(&root)?.into_iter().filter(of_volumes).collect();
            if left.is_empty() { Ok(()) } else { bail!("{left:?}") }
        })
    }
}

/// Returns the events of an allocation's tasks.
fn history(alloc: &Value) -> String {
    let states = alloc["TaskStates"].as_object();
    let events = states.into_iter().flatten().filter_map(|(_, state)| state["Events"].as_array()).flatten();
    events.filter_map(|event| event["DisplayMessage"].as_str()).collect::<Vec<_>>().join("; ")
}

fn is_missing(words: &str) -> bool {
    let words = words.to_lowercase();
    MISSING.iter().any(|missing| words.contains(missing))
}

fn problem<T>(result: &Result<T>) -> String {
    result.as_ref().err().map_or_else(String::new, |error| format!("{error:#}"))
}
