//! A schedule: the steps of a chaos run, drawn from a seed.

mod servers;

use super::rng::Rng;
use crate::cluster::FaultPlugin;
use serde_json::{Value, json};
use std::fmt;

/// A volume of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumePlan {
    /// The id of the volume.
    pub id: String,
    /// The id of the plugin.
    pub plugin: String,
    /// Whether the volume has several writers on several nodes.
    pub shared: bool,
}

impl VolumePlan {
    /// Returns the access mode with which the volume is created and requested.
    pub fn access_mode(&self) -> &'static str {
        if self.shared { "multi-node-multi-writer" } else { "single-node-writer" }
    }
}

/// A job of a schedule: a writer on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPlan {
    /// The id of the job.
    pub id: String,
    /// The index of its volume.
    pub volume: usize,
}

/// One action on the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Submits, changes or scales a job.
    Submit {
        /// The index of the job.
        job: usize,
        /// The number of allocations.
        count: u32,
        /// The version of the job: a different number changes the job.
        version: u32,
    },
    /// Stops a job.
    Stop(usize),
    /// Kills a writer of a job on any node.
    KillTask(usize),
    /// Kills an agent with SIGKILL.
    KillAgent(usize),
    /// Starts a node's agent, and its machine if it is off.
    StartAgent(usize),
    /// Stops an agent in order and starts it again.
    RestartAgent(usize),
    /// Suspends an agent.
    Suspend(usize),
    /// Resumes a suspended agent.
    Resume(usize),
    /// Disconnects a node's network.
    Cut(usize),
    /// Reconnects a node's network.
    Mend(usize),
    /// Powers a node's machine off.
    PowerOff(usize),
    /// Kills the process of a plugin on a node.
    KillPlugin {
        /// The index of the node.
        node: usize,
        /// The id of the plugin.
        plugin: String,
    },
    /// Ends a server and starts it again.
    RestartServer {
        /// The index of the server.
        server: usize,
        /// Whether the server is killed instead of stopped in order.
        outright: bool,
        /// The milliseconds until the server starts again.
        away_ms: u64,
    },
    /// Kills a server with SIGKILL.
    KillServer(usize),
    /// Starts a server that was killed.
    StartServer(usize),
    /// Suspends a server.
    SuspendServer(usize),
    /// Resumes a suspended server.
    ResumeServer(usize),
    /// Disconnects the network of a server.
    CutServer(usize),
    /// Reconnects the network of a server.
    MendServer(usize),
    /// Moves leadership to another server.
    TransferLeadership,
    /// Adds a fault rule to a plugin.
    Fault {
        /// The id of the plugin.
        plugin: String,
        /// The fault rule.
        rule: Value,
    },
    /// Removes all fault rules.
    ClearFaults,
    /// Drains a node.
    Drain {
        /// The index of the node.
        node: usize,
        /// The seconds after which remaining allocations are stopped; 0 stops all immediately.
        deadline: u64,
    },
    /// Ends a drain; the node becomes eligible again.
    Undrain(usize),
    /// Steps the wall clock of an agent.
    StepClock {
        /// The index of the node; `None` for the server.
        node: Option<usize>,
        /// The step in seconds: forward, or back if negative.
        seconds: i64,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault { plugin, rule } => write!(f, "Fault {plugin} {rule}"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// A step: a pause, then an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The pause in milliseconds.
    pub pause_ms: u64,
    /// The action after the pause.
    pub action: Action,
}

/// The limits of a run on its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of nodes.
    pub nodes: usize,
    /// The number of servers.
    pub servers: usize,
    /// The plugins that run.
    pub plugins: Vec<FaultPlugin>,
    /// The number of steps.
    pub steps: usize,
    /// Whether nodes can be drained.
    pub drains: bool,
}

/// The complete plan of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The seed from which the schedule was drawn.
    pub seed: u64,
    /// The volumes of the run.
    pub volumes: Vec<VolumePlan>,
    /// The jobs of the run.
    pub jobs: Vec<JobPlan>,
    /// The steps in order.
    pub steps: Vec<Step>,
    /// For each job, the number of allocations that must run in the end. At most one job runs on a volume that is not
    /// shared.
    pub finally: Vec<Option<u32>>,
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        for (number, volume) in self.volumes.iter().enumerate() {
            let (id, plugin, mode) = (&volume.id, &volume.plugin, volume.access_mode());
            writeln!(f, "volume {number}: {id}, plugin {plugin}, {mode}")?;
        }
        for (number, job) in self.jobs.iter().enumerate() {
            let finally = self.finally.get(number).copied().flatten().unwrap_or(0);
            writeln!(f, "job {number}: {} on volume {}, finally {finally}", job.id, job.volume)?;
        }
        for step in &self.steps {
            writeln!(f, "+{:>5} ms  {}", step.pause_ms, step.action)?;
        }
        Ok(())
    }
}

/// The condition of a node while a schedule is drawn.
#[derive(Clone, Copy, Debug, Default)]
struct Condition {
    off: bool,
    suspended: bool,
    cut: bool,
    drained: bool,
}

/// The calls to which faults apply.
const CALLS: [&str; 6] = [
    "ControllerPublishVolume",
    "ControllerUnpublishVolume",
    "NodeStageVolume",
    "NodeUnstageVolume",
    "NodePublishVolume",
    "NodeUnpublishVolume",
];

/// The calls that may succeed partially.
const NODE_CALLS: [&str; 4] =
    ["NodeStageVolume", "NodeUnstageVolume", "NodePublishVolume", "NodeUnpublishVolume"];

/// The codes with which plugins report failures of the plugin rather than of the caller.
const CODES: [&str; 5] = ["Unavailable", "Internal", "Aborted", "DeadlineExceeded", "ResourceExhausted"];

/// Draws the schedule of a seed.
pub fn draw(seed: u64, shape: &Shape) -> Schedule {
    let mut rng = Rng::new(seed);
    let (mut volumes, mut jobs, mut finally) = (Vec::new(), Vec::new(), Vec::new());
    let count = 2 + rng.index(2);
    for number in 0..count {
        // At least one volume has a single writer, because single-writer access is the property under test.
        let shared = number > 0 && rng.percent(35);
        let plugin = rng.pick(&shape.plugins);
        let (shared, plugin) = (shared && plugin.shares_volumes(), plugin.id.clone());
        volumes.push(VolumePlan { id: format!("s{seed}v{number}"), plugin, shared });
        let writers = if shared { 1 } else { 1 + rng.index(2) };
        let winner = rng.index(writers);
        for writer in 0..writers {
            jobs.push(JobPlan { id: format!("s{seed}v{number}w{writer}"), volume: number });
            let runs = if shared { 1 + u32::try_from(rng.below(3)).unwrap_or(0) } else { 1 };
            finally.push((writer == winner && rng.percent(85)).then_some(runs));
        }
    }
    let mut drawing = Drawing { rng, shape, nodes: vec![Condition::default(); shape.nodes], version: 0 };
    let mut steps: Vec<Step> = (0..jobs.len())
        .map(|job| Step { pause_ms: 0, action: drawing.submit(job, &jobs, &volumes) })
        .collect();
    while steps.len() < shape.steps + jobs.len() {
        let action = drawing.action(&jobs, &volumes);
        let pause_ms = drawing.pause();
        steps.push(Step { pause_ms, action });
    }
    if shape.servers > 1 {
        steps = servers::insert(seed, shape.servers, steps);
    }
    Schedule { seed, volumes, jobs, steps, finally }
}

/// Steps of clocks in seconds, as by a first correction after the boot, a resumed machine, or a manual change.
const STEPS: [i64; 4] = [120, -120, 3600, -3600];

struct Drawing<'a> {
    rng: Rng,
    shape: &'a Shape,
    nodes: Vec<Condition>,
    version: u32,
}

impl Drawing<'_> {
    /// Returns a pause: mostly short, so that actions overlap; sometimes as long as a lease and a fence.
    fn pause(&mut self) -> u64 {
        match self.rng.below(100) {
            0..45 => self.rng.below(150),
            45..85 => 150 + self.rng.below(850),
            _ => 1500 + self.rng.below(5000),
        }
    }

    fn submit(&mut self, job: usize, jobs: &[JobPlan], volumes: &[VolumePlan]) -> Action {
        let shared = volumes[jobs[job].volume].shared;
        let count = if shared { 1 + u32::try_from(self.rng.below(3)).unwrap_or(0) } else { 1 };
        self.version += 1;
        Action::Submit { job, count, version: self.version }
    }

    fn action(&mut self, jobs: &[JobPlan], volumes: &[VolumePlan]) -> Action {
        loop {
            let (job, node) = (self.rng.index(jobs.len()), self.rng.index(self.nodes.len()));
            let drawn = match self.rng.below(100) {
                0..16 => Some(self.submit(job, jobs, volumes)),
                16..28 => Some(Action::Stop(job)),
                28..33 => Some(Action::KillTask(job)),
                33..67 => self.of_node(node),
                67..77 => {
                    let plugin = self.rng.pick(&self.shape.plugins).id.clone();
                    (!self.nodes[node].off).then_some(Action::KillPlugin { node, plugin })
                }
                77..83 => {
                    let (outright, away_ms) = (self.rng.percent(60), self.rng.below(2500));
                    Some(Action::RestartServer { server: 0, outright, away_ms })
                }
                83..92 => Some(self.fault(volumes)),
                92..97 => {
                    let seconds = *self.rng.pick(&STEPS);
                    Some(Action::StepClock { node: self.rng.percent(50).then_some(node), seconds })
                }
                _ => Some(Action::ClearFaults),
            };
            if let Some(action) = drawn {
                return action;
            }
        }
    }

    fn of_node(&mut self, number: usize) -> Option<Action> {
        let drains = self.shape.drains;
        let node = &mut self.nodes[number];
        if node.off {
            *node = Condition { cut: node.cut, drained: node.drained, ..Condition::default() };
            return Some(Action::StartAgent(number));
        }
        if node.suspended {
            node.suspended = false;
            return Some(Action::Resume(number));
        }
        Some(match self.rng.below(100) {
            0..18 => {
                node.off = true;
                Action::KillAgent(number)
            }
            18..30 => {
                node.off = true;
                Action::PowerOff(number)
            }
            30..45 => Action::RestartAgent(number),
            45..62 => {
                node.suspended = true;
                Action::Suspend(number)
            }
            62..84 => {
                node.cut = !node.cut;
                if node.cut { Action::Cut(number) } else { Action::Mend(number) }
            }
            _ if !drains => return None,
            _ => {
                node.drained = !node.drained;
                let deadline = 1 + self.rng.below(4);
                if node.drained { Action::Drain { node: number, deadline } } else { Action::Undrain(number) }
            }
        })
    }

    fn fault(&mut self, volumes: &[VolumePlan]) -> Action {
        let plugin = self.rng.pick(&self.shape.plugins).id.clone();
        let when = *self.rng.pick(&["before", "after"]);
        let mut rule = json!({ "call": *self.rng.pick(&CALLS), "when": when });
        if self.rng.percent(30) {
            rule["volume"] = json!(self.rng.pick(volumes).id);
        }
        if self.rng.percent(30) {
            rule["node"] = json!(format!("n{}", 1 + self.rng.index(self.nodes.len())));
        }
        if self.rng.percent(75) {
            rule["times"] = json!(1 + self.rng.below(4));
        }
        match self.rng.below(100) {
            0..40 => {
                rule["action"] = json!("fail");
                rule["code"] = json!(*self.rng.pick(&CODES));
                // A plugin that permanently refuses to undo a known step is broken: only its repair helps.
                if rule["code"] == "Internal" && rule.get("times").is_none() {
                    rule["times"] = json!(1 + self.rng.below(4));
                }
            }
            40..65 => {
                rule["action"] = json!("delay");
                rule["ms"] = json!(100 + self.rng.below(3000));
            }
            65..75 => rule["action"] = json!("hang"),
            75..87 => {
                rule["action"] = json!("half");
                rule["call"] = json!(*self.rng.pick(&NODE_CALLS));
                rule["when"] = json!("before");
                rule["times"] = json!(1 + self.rng.below(2));
            }
            _ => {
                rule["action"] = json!("exit");
                // A plugin that dies at every call is equivalent to an absent one, so the number is limited.
                rule["times"] = json!(1 + self.rng.below(2));
            }
        }
        Action::Fault { plugin, rule }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SUITE_SEEDS;
    use super::*;

    fn shape() -> Shape {
        let plugin = |id: &str| FaultPlugin::new(id, true, true, &[]);
        Shape { nodes: 2, servers: 1, plugins: vec![plugin("a"), plugin("b")], steps: 12, drains: true }
    }

    #[test]
    fn the_same_seed_is_the_same_schedule() {
        for seed in 0..50 {
            assert_eq!(draw(seed, &shape()), draw(seed, &shape()));
        }
        assert_ne!(draw(1, &shape()).steps, draw(2, &shape()).steps);
    }

    #[test]
    fn nodes_are_not_ended_twice_and_single_writers_stay_alone() {
        for seed in 0..500 {
            let schedule = draw(seed, &shape());
            let mut off = [false; 2];
            for step in &schedule.steps {
                match step.action {
                    Action::KillAgent(n) | Action::PowerOff(n) => {
                        assert!(!std::mem::replace(&mut off[n], true))
                    }
                    Action::StartAgent(n) => assert!(std::mem::replace(&mut off[n], false)),
                    Action::Suspend(n) | Action::Resume(n) | Action::RestartAgent(n) => assert!(!off[n]),
                    _ => {}
                }
            }
            for (number, volume) in schedule.volumes.iter().enumerate().filter(|(_, v)| !v.shared) {
                let of_it = schedule.jobs.iter().zip(&schedule.finally).filter(|(j, _)| j.volume == number);
                let finally: Vec<u32> = of_it.filter_map(|(_, f)| *f).collect();
                assert!(finally.is_empty() || finally == [1], "{}: {finally:?}", volume.id);
            }
        }
    }

    #[test]
    fn the_schedules_of_the_suite_meet_every_plugin_and_steps_of_clocks() {
        let plugins = super::super::run::plugins();
        let shape = Shape { nodes: 2, servers: 1, plugins: plugins.clone(), steps: 12, drains: true };
        let drawn: Vec<Schedule> = SUITE_SEEDS.iter().map(|seed| draw(*seed, &shape)).collect();
        for plugin in &plugins {
            let used = drawn.iter().flat_map(|schedule| &schedule.volumes).any(|v| v.plugin == plugin.id);
            assert!(used, "no volume of {}", plugin.id);
        }
        let happens = |what: fn(&Action) -> bool| {
            drawn.iter().flat_map(|schedule| &schedule.steps).any(|step| what(&step.action))
        };
        assert!(happens(|action| matches!(action, Action::StepClock { .. })), "no clock steps");
        assert!(happens(|action| matches!(action, Action::KillPlugin { .. })), "no plugin is killed");
        assert!(happens(|action| matches!(action, Action::PowerOff(_) | Action::KillAgent(_))), "no machine");
        assert!(happens(|action| matches!(action, Action::Fault { .. })), "no faults");
    }
}
