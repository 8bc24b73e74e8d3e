//! Scheduling by script: a text of a few lines builds nodes, volumes and jobs, and prints decisions with their reasons.
//!
//! ```text
//! node n1..n4 dc=dc1 cpu=4000 memory=8192 meta.rack=r%2
//! plugin p on n1..n2
//! volume data plugin=p
//! job web count=3 cpu=500
//!   constraint ${meta.rack} = r1
//!   spread ${meta.rack}
//!   volume data
//! drain n1
//! eval web
//! show
//! ```
//!
//! A `job` is submitted and scheduled immediately. Indented lines belong to the job above them; `#` begins a
//! comment. The output repeats each command, with its result below.
//!
//! | Command | Meaning |
//! |---|---|
//! | `node NAMES key=value…` | nodes: `dc class pool cpu memory disk cores numa reserved_cores drivers max_allocs reserved_ports`, `meta.K`, `attr.K`, `device=vendor/type/name:count`; `%N` in a value is the node's number modulo N |
//! | `plugin ID on NAMES [max=N]` | a healthy CSI plugin with a controller |
//! | `volume ID plugin=ID [mode=MODE]` | a CSI volume; `single-node-writer` by default |
//! | `job ID key=value…` | `type count priority driver cpu memory disk cores numa pool dc network`, then `constraint`, `affinity`, `spread`, `port`, `volume`, `device` |
//! | `eval ID`, `stop ID` | creates an evaluation of the job; stops the job |
//! | `up`, `down`, `drain`, `ineligible` `NAMES` | changes the status, drain or eligibility of nodes |
//! | `status ALLOC STATUS` | reports the client status of an allocation |
//! | `settle` | reports all stopped allocations as complete |
//! | `rules key=value…` | `algorithm=spread`, `oversubscription=true`, `preempt=service,batch` |
//! | `what-if NODE:down …` | shows which allocations would move where; also `drain`, `ineligible`, `up` |
//! | `show` | lists the desired allocations by node |

mod job;
mod parse;
mod print;

use crate::cluster::Cluster;
use caravan_types::alloc::{AllocUpdate, ClientStatus};
use caravan_types::command::Change;
use caravan_types::eval::Trigger;
use caravan_types::node::{DrainStrategy, Eligibility, NodeStatus};
use caravan_types::{AllocId, JobKey, Namespace, NodeId};
use parse::{Line, lines};
use std::collections::BTreeMap;

/// The error of a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ScriptError {
    /// The number of the line; the first line has number 1.
    pub line: usize,
    /// The reason of the error.
    pub message: String,
}

/// Runs a script and returns its output.
///
/// # Errors
/// Fails at the first line that cannot be executed.
pub fn run(text: &str) -> Result<String, ScriptError> {
    let mut runner = Runner { cluster: Cluster::new(), output: String::new(), names: BTreeMap::new() };
    for line in lines(text)? {
        runner.output.push_str(&format!("> {}\n", line.text));
        runner.command(&line).map_err(|message| ScriptError { line: line.number, message })?;
    }
    Ok(runner.output)
}

struct Runner {
    cluster: Cluster,
    output: String,
    /// The names of allocations for the output, because their ids are random.
    names: BTreeMap<AllocId, String>,
}

impl Runner {
    fn command(&mut self, line: &Line) -> Result<(), String> {
        match line.words.first().map(String::as_str).unwrap_or_default() {
            "node" => {
                for node in parse::nodes(line)? {
                    self.cluster.add_node(node).map_err(|refusal| format!("{refusal:?}"))?;
                }
                Ok(())
            }
            "plugin" => self.plugin(line),
            "volume" => {
                let volume = Box::new(parse::volume(line)?);
                self.change(Change::VolumeWrite { volume, expect_modify_index: 0, exclusive: true })
            }
            "rules" => self.rules(line),
            "job" => {
                let job = job::read(line)?;
                let eval = self.cluster.register(job).map_err(|refusal| format!("{refusal:?}"))?;
                self.decide(&eval)
            }
            "eval" => self.eval(line.word(1)?, Trigger::JobRegister),
            "stop" => {
                let key = key(line.word(1)?);
                self.change(Change::JobDeregister { key, purge: false, eval: None })?;
                self.eval(line.word(1)?, Trigger::JobDeregister)
            }
            "status" => self.status(line.word(1)?, line.word(2)?),
            "settle" => {
                let over =
                    self.cluster.root().allocs().filter(|a| a.server_terminal() && !a.client_terminal());
                let client_status = ClientStatus::Complete;
                let updates = over.map(|alloc| AllocUpdate {
                    alloc_id: alloc.id.clone(),
                    client_status,
                    ..AllocUpdate::default()
                });
                let updates = updates.collect();
                self.change(Change::AllocUpdates { updates, evals: Vec::new() })
            }
            "show" => {
                self.output.push_str(&print::summary(self.cluster.root()));
                Ok(())
            }
            "what-if" => {
                let imagined: Result<Vec<_>, String> =
                    line.words[1..].iter().map(|word| word.parse()).collect();
                let params = caravan_scheduler::Params::new(self.cluster.now(), 1);
                let (root, bounds) = (self.cluster.root(), caravan_scheduler::Bounds::NONE);
                let consequences = caravan_scheduler::what_if(root, &imagined?, &[], &params, bounds)?;
                self.output.push_str(&print::consequences(&consequences));
                Ok(())
            }
            word @ ("up" | "down" | "drain" | "ineligible") => {
                for name in parse::names(line.word(1)?)? {
                    self.node_becomes(&name, word)?;
                }
                Ok(())
            }
            other => Err(format!("there is no command {other:?}")),
        }
    }

    fn change(&mut self, change: Change) -> Result<(), String> {
        self.cluster.change(change).map_err(|refusal| format!("the state refuses it: {refusal:?}"))
    }

    fn eval(&mut self, id: &str, trigger: Trigger) -> Result<(), String> {
        let key = key(id);
        let job = self.cluster.root().job(&key).cloned().ok_or_else(|| format!("there is no job {id:?}"))?;
        let eval = self.cluster.evaluation(&key, job.kind, job.priority, trigger);
        self.change(Change::Evals { evals: vec![eval.clone()] })?;
        self.decide(&eval)
    }

    fn decide(&mut self, eval: &caravan_types::eval::Evaluation) -> Result<(), String> {
        let decision = self.cluster.decide(eval, 1);
        for alloc in decision.plan.placements.values().flatten() {
            self.names.insert(alloc.id.clone(), alloc.name.clone());
        }
        self.output.push_str(&print::decision(self.cluster.root(), &decision, &self.names));
        self.cluster.commit(decision).map_err(|refusal| format!("the state refuses it: {refusal:?}"))
    }

    fn status(&mut self, name: &str, status: &str) -> Result<(), String> {
        let statuses = [
            ClientStatus::Pending,
            ClientStatus::Running,
            ClientStatus::Complete,
            ClientStatus::Failed,
            ClientStatus::Lost,
        ];
        let client_status = statuses.into_iter().find(|known| known.as_str() == status);
        let client_status = client_status.ok_or_else(|| format!("there is no status {status:?}"))?;
        let of_name = self.cluster.root().allocs().filter(|alloc| alloc.name == name);
        let newest = of_name.max_by_key(|alloc| alloc.create_index);
        let alloc_id = newest.ok_or_else(|| format!("there is no allocation {name:?}"))?.id.clone();
        let update = AllocUpdate { alloc_id, client_status, ..AllocUpdate::default() };
        self.change(Change::AllocUpdates { updates: vec![update], evals: Vec::new() })
    }

    fn node_becomes(&mut self, name: &str, what: &str) -> Result<(), String> {
        let node = NodeId::from(name);
        if self.cluster.root().node(&node).is_none() {
            return Err(format!("there is no node {name:?}"));
        }
        let status =
            |status| Change::NodeStatus { node: node.clone(), status, event: None, evals: Vec::new() };
        match what {
            "up" => {
                self.change(status(NodeStatus::Ready))?;
                // The command also ends a drain in progress.
                self.change(Change::NodeDrain {
                    node: node.clone(),
                    drain: None,
                    mark_eligible: true,
                    meta: BTreeMap::new(),
                    accessor: String::new(),
                    end: None,
                    evals: Vec::new(),
                })?;
                let eligibility = Eligibility::Eligible;
                self.change(Change::NodeEligibility { node, eligibility, evals: Vec::new() })
            }
            "down" => self.change(status(NodeStatus::Down)),
            "drain" => {
                let migrate = caravan_types::alloc::DesiredTransition {
                    migrate: Some(true),
                    ..caravan_types::alloc::DesiredTransition::default()
                };
                let on_node = self.cluster.root().allocs_by_node(&node).filter(|alloc| !alloc.terminal());
                let transitions = on_node.map(|alloc| (alloc.id.clone(), migrate.clone())).collect();
                self.change(Change::NodeDrain {
                    node,
                    drain: Some(DrainStrategy::default()),
                    mark_eligible: false,
                    meta: BTreeMap::new(),
                    accessor: String::new(),
                    end: None,
                    evals: Vec::new(),
                })?;
                self.change(Change::AllocTransitions { transitions, evals: Vec::new() })
            }
            _ => {
                let eligibility = Eligibility::Ineligible;
                self.change(Change::NodeEligibility { node, eligibility, evals: Vec::new() })
            }
        }
    }

    fn plugin(&mut self, line: &Line) -> Result<(), String> {
        for name in parse::names(line.word(3)?)? {
            let node = self.cluster.root().node(&NodeId::from(name.as_str()));
            let mut node = node
                .map(|n| caravan_types::node::Node::clone(n))
                .ok_or_else(|| format!("there is no node {name:?}"))?;
            parse::install(line, &mut node)?;
            self.cluster.add_node(node).map_err(|refusal| format!("{refusal:?}"))?;
        }
        Ok(())
    }

    fn rules(&mut self, line: &Line) -> Result<(), String> {
        self.cluster.set_rules(parse::rules(line)?);
        Ok(())
    }
}

fn key(id: &str) -> JobKey {
    JobKey { namespace: Namespace::default_namespace(), id: id.into() }
}
