//! Runs of schedules: first the steps, then a quiet phase, then the checks.

use super::check::{boot_time, calls, never, nothing_left, settled};
use super::schedule::{Action, Schedule, Shape, Step, draw};
use crate::cluster::{Cluster, ClusterOptions, FaultPlugin, Stamper, stamper_job};
use crate::trace::{Deed, Note};
use crate::wait::eventually_within;
use anyhow::{Context, Result};
use serde_json::json;
use std::fmt::Write as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The timeout for a cluster to settle once it is quiet.
const QUIET: Duration = Duration::from_secs(60);

/// The lease of the clusters' nodes, in nanoseconds.
const LEASE: u64 = 2_000_000_000;

/// The points in time, in nanoseconds, at which a leader may have changed after a step of a server.
const LEADER_CHANGES: u64 = 40;
const LEADER_CHANGE_INTERVAL: u64 = 250_000_000;

/// The options of chaos runs.
#[derive(Clone, Debug)]
pub struct ChaosOptions {
    /// The number of nodes.
    pub nodes: usize,
    /// The number of servers.
    pub servers: usize,
    /// The number of steps of a schedule, without the first jobs.
    pub steps: usize,
    /// Additional configuration of the server in HCL; empty for the default.
    pub server: String,
    /// The third number of the hosts' addresses.
    pub subnet: u8,
}

impl Default for ChaosOptions {
    fn default() -> Self {
        Self { nodes: 2, servers: 1, steps: 12, server: String::new(), subnet: 1 }
    }
}

/// Returns the plugins of every schedule, each of which imitates behaviour of real plugins.
pub(super) fn plugins() -> Vec<FaultPlugin> {
    vec![
        FaultPlugin::new(
            "whole",
            true,
            true,
            &["--unknown=internal", "--unknown-attachment=internal", "--outside", "--topology"],
        ),
        FaultPlugin::new("bare", false, false, &["--unknown=failed-precondition", "--once"]),
        FaultPlugin::new("nfs", false, true, &["--unknown=not-found", "--capabilities-twice"]),
        FaultPlugin::new("s3", false, true, &["--unknown=internal", "--once", "--fuse", "--forget"]),
    ]
}

/// The times of a schedule that passed.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// The total time.
    pub took: Duration,
    /// The time from the start of the quiet phase until the cluster had settled.
    pub settled: Duration,
    /// The time from the stop of all jobs until no use of a volume was left.
    pub ended: Duration,
}

/// A cluster that runs schedules one after the other.
#[derive(Debug)]
pub struct Chaos {
    cluster: Cluster,
    shape: Shape,
}

impl Chaos {
    /// Starts a cluster with plugins of all kinds.
    ///
    /// # Errors
    /// Fails if the cluster is not ready after the timeout.
    pub fn start(options: &ChaosOptions) -> Result<Self> {
        let (nodes, servers, subnet) = (options.nodes, options.servers, options.subnet);
        let mut settings = ClusterOptions { nodes, servers, subnet, ..Default::default() };
        if !options.server.is_empty() {
            settings.server.clone_from(&options.server);
        }
        let mut cluster = Cluster::start(&settings)?;
        let plugins = plugins();
        for plugin in &plugins {
            cluster.run_plugin(plugin)?;
        }
        let drains = cluster.can_drain()?;
        let shape = Shape { nodes, servers, plugins, steps: options.steps, drains };
        Ok(Self { cluster, shape })
    }

    /// Draws the schedule of a seed, runs it and checks the result.
    ///
    /// # Errors
    /// Fails if a check fails. The error has the seed, the schedule and the events; logs and traces are
    /// copied to a directory below `artifacts`. The cluster cannot be used afterwards.
    pub fn run(&mut self, seed: u64, artifacts: &Path) -> Result<Passed> {
        let schedule = draw(seed, &self.shape);
        let mut journal = Journal { began: Instant::now(), text: String::new(), notes: Vec::new() };
        let done = self.carry_out(&schedule, &mut journal);
        done.map_err(|error| {
            let folder = artifacts.join(format!("seed-{seed}"));
            let story = format!("{schedule}\n{}\n{error:?}\n", journal.text);
            let kept = self.cluster.save(&folder).and_then(|()| Ok(std::fs::write(folder.join("story.txt"), &story)?));
            let kept = kept.map_or_else(|e| format!("could not be kept: {e:#}"), |()| folder.display().to_string());
            error.context(format!(
                "schedule of seed {seed} (again: cargo xtask chaos --seed {seed})\n{schedule}\n{}\nlogs: {kept}",
                journal.text
            ))
        })
    }

    fn carry_out(&mut self, schedule: &Schedule, journal: &mut Journal) -> Result<Passed> {
        for volume in &schedule.volumes {
            self.cluster.create_volume(&volume.id, &volume.plugin, volume.access_mode())?;
        }
        for step in &schedule.steps {
            self.step(schedule, step, journal)?;
        }
        journal.note("quiet");
        let quiet = Instant::now();
        self.calm()?;
        self.want(schedule)?;
        let cluster = &self.cluster;
        eventually_within(QUIET, "claims = consumers = published = mounts", || settled(cluster, schedule))?;
        let settled = quiet.elapsed();
        journal.note("settled");
        never(cluster, schedule)?;

        let end = Instant::now();
        for job in &schedule.jobs {
            self.cluster.stop_job(&job.id, false)?;
        }
        eventually_within(QUIET, "nothing to be left of any use", || nothing_left(cluster, schedule))?;
        let ended = end.elapsed();
        journal.note("ended");
        never(cluster, schedule)?;
        calls(cluster, schedule, &journal.notes)?;
        for volume in &schedule.volumes {
            eventually_within(QUIET, "the volume to be deleted", || delete(cluster, &volume.id))?;
        }
        for job in &schedule.jobs {
            self.cluster.stop_job(&job.id, true)?;
        }
        Ok(Passed { took: journal.began.elapsed(), settled, ended })
    }

    fn step(&mut self, schedule: &Schedule, step: &Step, journal: &mut Journal) -> Result<()> {
        sleep(Duration::from_millis(step.pause_ms));
        journal.note(&step.action.to_string());
        // The note is written before and after the action, because calls arrive during the action. Calls that began
        // earlier have no caller any more.
        self.deeds(&step.action, journal)?;
        self.act(schedule, &step.action, journal)?;
        self.deeds(&step.action, journal)
    }

    /// Records the properties of an action that the checker of the plugins' logs needs.
    fn deeds(&self, action: &Action, journal: &mut Journal) -> Result<()> {
        let name = |node: &usize| self.cluster.nodes()[*node].name.clone();
        let now = boot_time()?;
        let mut note = |t_ns, deed| journal.notes.push(Note { t_ns, deed });
        match action {
            Action::KillAgent(node)
            | Action::RestartAgent(node)
            | Action::KillPlugin { node, .. }
            | Action::PowerOff(node)
            | Action::Cut(node)
            | Action::Suspend(node) => {
                note(now, Deed::AgentDied { node: name(node) });
                if matches!(action, Action::PowerOff(_)) {
                    note(now, Deed::Wiped { node: name(node) });
                }
                if !matches!(action, Action::KillPlugin { .. }) {
                    // Before this time the servers cannot assume that the node's writers have ended.
                    note(now + LEASE, Deed::Lost { node: name(node) });
                }
            }
            // A new leader has no record of the calls for which its predecessor waited.
            Action::RestartServer { .. }
            | Action::KillServer(_)
            | Action::SuspendServer(_)
            | Action::ResumeServer(_)
            | Action::CutServer(_)
            | Action::MendServer(_)
            | Action::TransferLeadership => {
                // The time of the leader change is unknown: an election follows the loss within seconds.
                let changes = if self.shape.servers > 1 { LEADER_CHANGES } else { 1 };
                for node in self.cluster.nodes() {
                    for change in 0..changes {
                        let t_ns = now + change * LEADER_CHANGE_INTERVAL;
                        note(t_ns, Deed::AgentDied { node: node.name.clone() });
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn act(&mut self, schedule: &Schedule, action: &Action, journal: &mut Journal) -> Result<()> {
        let cluster = &mut self.cluster;
        match action {
            Action::Submit { job, count, version } => {
                let text = stamper(schedule, *job, *count, *version);
                // A server that is down refuses the request; the desired jobs are submitted again at the end.
                journal.ignore(cluster.run_job(&schedule.jobs[*job].id, &text));
            }
            Action::Stop(job) => journal.ignore(cluster.stop_job(&schedule.jobs[*job].id, false)),
            Action::KillTask(job) => {
                // Without a leader the allocations are unknown; the step then has no effect.
                let allocs = match cluster.server().allocs(&schedule.jobs[*job].id) {
                    Err(_) if self.shape.servers > 1 => Vec::new(),
                    found => found?,
                };
                for alloc in allocs {
                    let word = format!("--id={}", alloc["ID"].as_str().unwrap_or_default());
                    for node in cluster.nodes() {
                        node.kill_with(&["caravan-faultplugin write", &word])?;
                    }
                }
            }
            Action::KillAgent(node) => cluster.node(*node).kill_agent()?,
            Action::StartAgent(node) => cluster.node(*node).start_agent()?,
            Action::RestartAgent(node) => {
                cluster.node(*node).stop_agent()?;
                cluster.node(*node).start_agent()?;
            }
            Action::Suspend(node) => cluster.node(*node).suspend()?,
            Action::Resume(node) => cluster.node(*node).resume()?,
            Action::Cut(node) => cluster.node(*node).cut()?,
            Action::Mend(node) => cluster.node(*node).mend()?,
            Action::PowerOff(node) => cluster.node(*node).power_off()?,
            Action::KillPlugin { node, plugin } => {
                let word = format!("--drivername={plugin}.csi.test");
                cluster.node(*node).kill_with(&["caravan-faultplugin serve", &word])?;
            }
            Action::RestartServer { server, outright, away_ms } => {
                cluster.server_machine(*server).end(*outright)?;
                sleep(Duration::from_millis(*away_ms));
                cluster.server_machine(*server).start()?;
                if self.shape.servers == 1 {
                    cluster.server_machine(*server).wait_ready()?;
                }
            }
            Action::KillServer(server) => cluster.server_machine(*server).end(true)?,
            Action::StartServer(server) => cluster.server_machine(*server).start()?,
            Action::SuspendServer(server) => cluster.server_machine(*server).suspend()?,
            Action::ResumeServer(server) => cluster.server_machine(*server).resume()?,
            Action::CutServer(server) => cluster.server_machine(*server).cut()?,
            Action::MendServer(server) => cluster.server_machine(*server).mend()?,
            Action::TransferLeadership => journal.ignore(cluster.server().transfer_leadership()),
            Action::Fault { plugin, rule } => cluster.san(plugin).add_fault(rule.clone())?,
            Action::ClearFaults => self.clear_faults()?,
            Action::Drain { node, deadline } => journal.ignore(cluster.drain(*node, *deadline)),
            Action::Undrain(node) => journal.ignore(cluster.undrain(*node)),
            Action::StepClock { node: None, seconds } => {
                let server = cluster.server();
                if server.is_started() {
                    server.step_clock(*seconds)?;
                }
            }
            Action::StepClock { node: Some(node), seconds } => {
                cluster.nodes()[*node].agent().step_clock(*seconds)?;
            }
        }
        Ok(())
    }

    fn clear_faults(&self) -> Result<()> {
        for plugin in &self.shape.plugins {
            self.cluster.san(&plugin.id).set_faults(&[])?;
        }
        Ok(())
    }

    /// Ends all faults of the cluster, and changes nothing else.
    fn calm(&mut self) -> Result<()> {
        self.clear_faults()?;
        for number in 0..self.shape.servers {
            let server = self.cluster.server_machine(number);
            server.resume()?;
            server.mend()?;
        }
        self.cluster.start_server()?;
        for number in 0..self.shape.nodes {
            let node = self.cluster.node(number);
            node.resume()?;
            node.mend()?;
            node.start_agent()?;
        }
        for number in 0..self.shape.nodes {
            self.cluster.node(number).wait_ready()?;
            if self.shape.drains {
                self.cluster.undrain(number)?;
            }
        }
        Ok(())
    }

    /// Submits only the jobs that must run in the end.
    fn want(&self, schedule: &Schedule) -> Result<()> {
        for (number, desired) in schedule.finally.iter().enumerate() {
            let id = &schedule.jobs[number].id;
            match desired {
                Some(count) => self.cluster.run_job(id, &stamper(schedule, number, *count, 0))?,
                None => self.cluster.stop_job(id, false)?,
            }
        }
        Ok(())
    }
}

fn stamper(schedule: &Schedule, job: usize, count: u32, version: u32) -> String {
    let plan = &schedule.jobs[job];
    let volume = &schedule.volumes[plan.volume];
    stamper_job(&Stamper {
        id: plan.id.clone(),
        driver: "raw_exec".to_owned(),
        volume: volume.id.clone(),
        access_mode: volume.access_mode().to_owned(),
        count,
        version,
        broken_mount: "restart".to_owned(),
    })
}

/// The events of a run with their times.
struct Journal {
    began: Instant,
    text: String,
    /// Notes for the checker of the plugins' logs.
    notes: Vec<Note>,
}

impl Journal {
    fn note(&mut self, words: &str) {
        let clock = boot_time().unwrap_or_default();
        let _ = writeln!(self.text, "{:>7} ms ({clock})  {words}", self.began.elapsed().as_millis());
    }

    fn ignore(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.note(&format!("  not taken: {error:#}"));
        }
    }
}

/// Runs the schedules of some seeds; a cluster is used until a schedule fails. Passes each result to `tell`.
///
/// # Errors
/// Fails if a cluster cannot be started. A failed schedule is passed to `tell`, not returned.
pub fn run_seeds(
    seeds: impl IntoIterator<Item = u64>,
    options: &ChaosOptions,
    artifacts: &Path,
    mut tell: impl FnMut(u64, Result<Passed>),
) -> Result<()> {
    let mut chaos: Option<Chaos> = None;
    for seed in seeds {
        let mut current = match chaos.take() {
            Some(chaos) => chaos,
            None => Chaos::start(options).context("start a cluster for chaos")?,
        };
        let result = current.run(seed, artifacts);
        if result.is_ok() {
            chaos = Some(current);
        }
        tell(seed, result);
    }
    Ok(())
}

/// Formats a result as one JSON object.
pub fn render(seed: u64, result: &Result<Passed>) -> serde_json::Value {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    match result {
        Ok(passed) => json!({
            "seed": seed,
            "passed": true,
            "took_ms": ms(passed.took),
            "settled_ms": ms(passed.settled),
            "ended_ms": ms(passed.ended),
        }),
        Err(error) => json!({ "seed": seed, "passed": false, "error": error.root_cause().to_string() }),
    }
}

/// Deletes a volume. The first call may use a connection that an earlier step cut, or arrive during a
/// leader change. The servers finish a deletion that they accepted.
fn delete(cluster: &Cluster, volume: &str) -> Result<()> {
    let Err(error) = cluster.server().caravan(&["volume", "delete", volume])?.ok() else { return Ok(()) };
    let rows = cluster.server().get("/v1/volumes?type=csi")?;
    let is_listed = rows.as_array().is_none_or(|rows| rows.iter().any(|row| row["ID"] == volume));
    if is_listed { Err(error) } else { Ok(()) }
}
