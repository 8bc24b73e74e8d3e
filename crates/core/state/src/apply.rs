//! The application of a command: a pure function from a root to the next root.

mod admin;
mod alloc;
mod deployment;
mod host_volume;
mod job;
mod node;
mod plan;
mod restored;
mod scaling;
mod service;
mod variable;
mod volume;

use crate::changes::ChangeSet;
use crate::root::Root;
use crate::rows::AllocRows;
use crate::tx::Tx;
use crate::{plugins, status};
use caravan_types::command::{Change, Command, NodeChange, Outcome, Refusal};
use caravan_types::eval::{EvalStatus, Evaluation};
use caravan_types::node::Node;
use caravan_types::{AllocId, EvalId};

/// The result of one part of a command.
type Done = Result<(), Refusal>;

impl Root {
    /// Applies a command. Returns the next root, the outcome for the proposer, and the changes. The index is that of
    /// the state.
    ///
    /// The result depends on the arguments only. A refused command changes only the root's index.
    pub fn apply(&self, index: u64, command: &Command) -> (Self, Outcome, ChangeSet) {
        let (root, outcome, changes, _) = self.apply_with_rows(index, command);
        (root, outcome, changes)
    }

    /// Applies a command as [`Self::apply`] does, and returns the rows of the changed allocations too.
    pub(crate) fn apply_with_rows(
        &self,
        index: u64,
        command: &Command,
    ) -> (Self, Outcome, ChangeSet, AllocRows) {
        let mut tx = Tx::new(self, index, command.now);
        let refused = match tx.change(&command.change) {
            Ok(()) => {
                status::refresh(&mut tx);
                plugins::refresh(&mut tx);
                None
            }
            Err(refusal) => {
                tx = Tx::new(self, index, command.now);
                Some(refusal)
            }
        };
        let job_modify_index = match refused {
            None => job_modify_index(&tx.root, &command.change),
            Some(_) => None,
        };
        // A restore can raise the index.
        let index = tx.index;
        let changes = ChangeSet {
            index,
            now: command.now,
            kind: command.change.kind(),
            changes: tx.changes.into_iter().collect(),
        };
        (tx.root, Outcome { index, refused, job_modify_index }, changes, tx.allocs)
    }
}

/// Returns the index of the specification of the job that a registration or a new count is about.
fn job_modify_index(root: &Root, change: &Change) -> Option<u64> {
    let key = match change {
        Change::JobRegister { job, .. } => job.key(),
        Change::JobScale { scale, .. } => scale.key.clone(),
        _ => return None,
    };
    root.job(&key).map(|job| job.job_modify_index)
}

impl Tx {
    fn node_change(&mut self, change: &NodeChange) -> Done {
        match change {
            NodeChange::NodeRegister { node, evals } => self.node_joins(node, evals)?,
            NodeChange::NodeStatus { node, status, event, evals } => {
                self.node_status(node, *status, event.as_ref())?;
                self.node_evals(node, evals);
            }
            NodeChange::NodeEligibility { node, eligibility, evals } => {
                self.node_eligibility(node, *eligibility)?;
                self.node_evals(node, evals);
            }
            NodeChange::NodeDrain { node, drain, mark_eligible, meta, accessor, end, evals } => {
                self.node_drain(node, drain.as_ref(), *mark_eligible, (meta, accessor), *end)?;
                self.node_evals(node, evals);
            }
            NodeChange::NodeDelete { node, evals } => {
                self.node_delete(node)?;
                self.evals(evals);
            }
        }
        Ok(())
    }

    fn node_joins(&mut self, node: &Node, evals: &[Evaluation]) -> Done {
        self.is_own(node)?;
        self.ensure_node_pool(&node.node_pool);
        self.node_register(node);
        self.node_evals(&node.id, evals);
        Ok(())
    }

    fn change(&mut self, change: &Change) -> Done {
        match change {
            Change::NodeRegister { node, evals } => self.node_joins(node, evals)?,
            Change::NodeStatus { node, status, event, evals } => {
                self.node_status(node, *status, event.as_ref())?;
                self.node_evals(node, evals);
            }
            Change::NodeEvents { events } => self.node_events(events),
            Change::NodeEligibility { node, eligibility, evals } => {
                self.node_eligibility(node, *eligibility)?;
                self.node_evals(node, evals);
            }
            Change::NodeDrain { node, drain, mark_eligible, meta, accessor, end, evals } => {
                self.node_drain(node, drain.as_ref(), *mark_eligible, (meta, accessor), *end)?;
                self.node_evals(node, evals);
            }
            Change::NodeFence { node, off } => self.node_fence(node, off)?,
            Change::NodeDelete { node, evals } => {
                self.node_delete(node)?;
                self.evals(evals);
            }
            Change::NodeWhole { node, change } => {
                self.reaches_all(node, change.evals())?;
                self.node_change(change)?;
            }
            Change::JobRegister { job, expect_modify_index, eval, source } => {
                self.job_register(job, *expect_modify_index, eval.as_ref(), source.as_ref())?;
            }
            Change::JobChild { job, eval, launched } => self.job_child(job, eval.as_ref(), *launched)?,
            Change::JobDeregister { key, purge, eval } => self.job_deregister(key, *purge, eval.as_ref())?,
            Change::JobScale { scale, eval } => self.job_scale(scale, eval.as_ref())?,
            Change::JobTag { key, version, name, tag } => {
                self.job_tag(key, *version, name, tag.as_ref())?;
            }
            Change::Evals { evals } => self.evals(evals),
            Change::Collect { evals, allocs } => self.collect(evals, allocs),
            Change::EvalsDelete { evals } => self.evals_delete(evals),
            Change::Plan(commit) => self.plan(commit)?,
            Change::AllocUpdates { updates, evals } => {
                self.alloc_updates(updates);
                self.evals(evals);
            }
            Change::AllocTransitions { transitions, evals } => {
                self.alloc_transitions(transitions);
                self.evals(evals);
            }
            Change::Deployments { deployments } => {
                deployments.iter().for_each(|row| self.put_deployment(row.clone()));
            }
            Change::Deployment(change) => self.deployment(change)?,
            Change::JobStable { key, version, stable } => self.job_stable(key, *version, *stable)?,
            Change::DeploymentsCollect { deployments } => self.deployments_collect(deployments),
            Change::VolumeWrite { volume, expect_modify_index, exclusive } => {
                self.volume_write(volume, *expect_modify_index, *exclusive)?;
            }
            Change::VolumeDelete { key, force } => self.volume_delete(key, *force)?,
            Change::ClaimStep { id, expect_modify_index, step } => {
                self.claim_step(id, *expect_modify_index, step)?;
            }
            Change::HostVolumeWrite { volume, expect_modify_index } => {
                self.host_volume_write(volume, *expect_modify_index)?;
            }
            Change::HostVolumeDelete { namespace, id, force } => {
                self.host_volume_delete(namespace, id, *force)?;
            }
            Change::HostClaimDelete { id } => self.host_claim_delete(id)?,
            Change::VariableWrite { variable, check_index, lock } => {
                self.variable_write(variable, *check_index, lock)?;
            }
            Change::VariableDelete { key, check_index } => self.variable_delete(key, *check_index)?,
            Change::ServicesRegister { services } => self.services_register(services),
            Change::ServicesDeregister { services, strict } => self.services_deregister(services, *strict)?,
            Change::Admin(change) => self.admin(change)?,
            Change::Restore { snapshot } => self.restore(snapshot)?,
            Change::RestorePart { id, number, bytes } => self.restore_part(id, *number, bytes)?,
            Change::RestoreCommit { id, parts, sha256 } => self.restore_staged(id, *parts, sha256)?,
            Change::RaiseLevel { level } => self.raise_level(*level),
            Change::Noop => {}
        }
        Ok(())
    }

    /// Writes evaluations. A completed evaluation with everything placed makes older blocked evaluations of its job
    /// redundant: they are canceled with it.
    pub(crate) fn evals(&mut self, evals: &[Evaluation]) {
        for eval in evals {
            self.put_eval(eval.clone());
        }
        for eval in evals {
            if eval.status == EvalStatus::Complete && eval.failed_tg_allocs.is_empty() {
                let moot: Vec<Evaluation> = self
                    .root
                    .evals_by_job(&eval.job_key())
                    .filter(|e| e.status == EvalStatus::Blocked && !evals.iter().any(|new| new.id == e.id))
                    .map(|e| Evaluation::clone(e))
                    .collect();
                for mut old in moot {
                    old.status = EvalStatus::Canceled;
                    old.status_description = format!("evaluation \"{}\" successful", eval.id);
                    self.put_eval(old);
                }
            }
        }
    }

    /// Removes evaluations on which no other object depends.
    fn evals_delete(&mut self, evals: &[EvalId]) {
        for id in evals {
            if self.root.eval(id).is_some_and(|eval| self.root.is_needless(eval)) {
                self.remove_eval(id);
            }
        }
    }

    /// Removes evaluations that have ended, and allocations whose tasks have certainly ended.
    fn collect(&mut self, evals: &[EvalId], allocs: &[AllocId]) {
        for id in evals {
            if self.root.eval(id).is_some_and(|eval| eval.status.is_terminal()) {
                self.remove_eval(id);
            }
        }
        for id in allocs {
            let over = self.root.alloc(id).is_some_and(|alloc| {
                let forsaken = alloc.server_terminal() && !self.root.nodes.contains_key(&alloc.node_id);
                alloc.client_terminal() || forsaken
            });
            if over {
                self.remove_alloc(id);
            }
        }
    }
}
