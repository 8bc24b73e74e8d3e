//! Blocked evaluations and the changes that unblock them, as a pure state machine.

use caravan_types::eval::Evaluation;
use caravan_types::{BootInstant, EvalId, JobKey};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A change that may make a placement possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// A node may have more capacity than before: it registered, became eligible, reported changed attributes, or an
    /// allocation on it ended. Contains the node's computed class; `None` if any node may have changed.
    Capacity(Option<String>),
    /// A change, other than of a node, that evaluations wait for by name (the text of a `WaitsFor`).
    Named(String),
    /// The end of a claim that evaluations wait for by name. The job that held the claim is unblocked first: the
    /// update of a single writer must not lose its volume to another waiting job.
    Freed {
        /// Text of the `WaitsFor`.
        name: String,
        /// The job that held the claim, if known.
        heir: Option<JobKey>,
    },
}

/// The result of blocking an evaluation.
#[derive(Debug, PartialEq)]
pub(crate) enum Blocked {
    /// Nothing that the evaluation waits for has changed since the scheduler's snapshot.
    Waits,
    /// The awaited change happened after the scheduler's snapshot: queue the evaluation again.
    WakeNow(Arc<Evaluation>),
}

/// Maximum number of recorded names, for the race between a change and the block that waits for it.
const REMEMBERED_NAMES: usize = 4096;

/// Returns whether a node of a class may help an evaluation. A node of a class that the scheduler found infeasible
/// does not help.
fn may_help(eval: &Evaluation, class: &str) -> bool {
    class.is_empty() || eval.escaped_computed_class || eval.class_eligibility.get(class) != Some(&false)
}

/// Blocked evaluations, at most one per job.
#[derive(Debug, Default)]
pub(crate) struct BlockedSet {
    by_job: BTreeMap<JobKey, Arc<Evaluation>>,
    ids: HashMap<EvalId, JobKey>,
    /// Unblocked evaluations that wait until the evaluation before them is complete.
    behind: HashMap<EvalId, Vec<Arc<Evaluation>>>,
    /// The times to retry evaluations that lost to other plans, because no change may unblock them.
    conflicts: BTreeSet<(BootInstant, EvalId)>,
    capacity_index: u64,
    /// The index of the last change of capacity, by computed class.
    class_index: BTreeMap<String, u64>,
    named_index: BTreeMap<String, u64>,
    oldest_known_index: u64,
}

impl BlockedSet {
    /// Adds a blocked evaluation. Of two evaluations of one job, only the newer evaluation stays; the older
    /// evaluation is returned, to be cancelled.
    pub(crate) fn block(&mut self, eval: Arc<Evaluation>) -> (Blocked, Option<Arc<Evaluation>>) {
        let mut duplicate = None;
        if let Some(other) = self.by_job.get(&eval.job_key()).filter(|other| other.id != eval.id).cloned() {
            let newer =
                (eval.snapshot_index, eval.create_index) >= (other.snapshot_index, other.create_index);
            if !newer {
                return (Blocked::Waits, Some(eval));
            }
            self.remove(&other.id);
            duplicate = Some(other);
        }
        if self.missed(&eval) {
            return (Blocked::WakeNow(eval), duplicate);
        }
        self.ids.insert(eval.id.clone(), eval.job_key());
        self.by_job.insert(eval.job_key(), eval);
        (Blocked::Waits, duplicate)
    }

    /// Returns the waiting jobs, and the number of these jobs that any change of capacity unblocks because of their
    /// constraints.
    pub(crate) fn jobs(&self) -> (Vec<JobKey>, usize) {
        let escaped = self.by_job.values().filter(|eval| eval.escaped_computed_class).count();
        (self.by_job.keys().cloned().collect(), escaped)
    }

    /// Schedules a retry of an evaluation, if it is still blocked then.
    pub(crate) fn again_at(&mut self, at: BootInstant, id: EvalId) {
        self.conflicts.insert((at, id));
    }

    /// Returns the time of the next retry.
    pub(crate) fn next(&self) -> Option<BootInstant> {
        self.conflicts.first().map(|(at, _)| *at)
    }

    /// Removes and returns the evaluations whose retry is due.
    pub(crate) fn due(&mut self, now: BootInstant) -> Vec<Arc<Evaluation>> {
        let mut due = Vec::new();
        while self.next().is_some_and(|at| at <= now) {
            let waits =
                self.conflicts.pop_first().and_then(|(_, id)| self.by_job.get(self.ids.get(&id)?).cloned());
            due.extend(waits);
        }
        due.iter().for_each(|eval| self.remove(&eval.id));
        due
    }

    fn missed(&self, eval: &Evaluation) -> bool {
        let class = |(class, index): (&String, &u64)| *index > eval.snapshot_index && may_help(eval, class);
        self.capacity_index > eval.snapshot_index
            || self.class_index.iter().any(class)
            || eval.missing_non_node_resources.iter().any(|name| {
                self.named_index.get(name).copied().unwrap_or(self.oldest_known_index) > eval.snapshot_index
            })
    }

    /// Records a change at an index; removes and returns the evaluations that the change may help.
    pub(crate) fn wake(&mut self, wake: &Wake, index: u64) -> Vec<Arc<Evaluation>> {
        match wake {
            Wake::Capacity(None) => self.capacity_index = self.capacity_index.max(index),
            Wake::Capacity(Some(class)) => {
                self.class_index.insert(class.clone(), index);
                if self.class_index.len() > REMEMBERED_NAMES {
                    self.capacity_index = index;
                    self.class_index.clear();
                }
            }
            Wake::Named(name) | Wake::Freed { name, .. } => {
                self.named_index.insert(name.clone(), index);
                if self.named_index.len() > REMEMBERED_NAMES {
                    self.oldest_known_index = index;
                    self.named_index.clear();
                }
            }
        }
        let woken: Vec<_> = self
            .by_job
            .values()
            .filter(|eval| eval.snapshot_index < index)
            .filter(|eval| match wake {
                Wake::Capacity(None) => true,
                Wake::Capacity(Some(class)) => may_help(eval, class),
                Wake::Named(name) | Wake::Freed { name, .. } => {
                    eval.missing_non_node_resources.contains(name)
                }
            })
            .cloned()
            .collect();
        for eval in &woken {
            self.remove(&eval.id);
        }
        let Wake::Freed { heir: Some(heir), .. } = wake else { return woken };
        let (first, others): (Vec<_>, Vec<_>) = woken.into_iter().partition(|eval| eval.job_key() == *heir);
        match first.first() {
            Some(eval) => self.behind.entry(eval.id.clone()).or_default().extend(others),
            None => return others,
        }
        first
    }

    /// Records that an evaluation ended or was blocked again; returns the evaluations that waited for it.
    pub(crate) fn dealt_with(&mut self, id: &EvalId) -> Vec<Arc<Evaluation>> {
        self.behind.remove(id).unwrap_or_default()
    }

    /// Removes all blocked evaluations before they are read again; the indexes of changes stay.
    pub(crate) fn clear(&mut self) {
        self.by_job.clear();
        self.ids.clear();
        self.behind.clear();
        self.conflicts.clear();
    }

    /// Removes an evaluation that ended or became pending elsewhere.
    pub(crate) fn remove(&mut self, id: &EvalId) {
        if let Some(key) = self.ids.remove(id) {
            self.by_job.remove(&key);
        }
    }

    /// Returns the number of blocked evaluations.
    pub(crate) fn len(&self) -> usize {
        self.by_job.len() + self.behind.values().map(Vec::len).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eval(id: &str, job: &str, snapshot: u64, missing: &[&str]) -> Arc<Evaluation> {
        Arc::new(Evaluation {
            id: id.into(),
            namespace: "default".into(),
            job_id: job.into(),
            snapshot_index: snapshot,
            missing_non_node_resources: missing.iter().map(|s| (*s).to_owned()).collect(),
            ..Default::default()
        })
    }

    #[test]
    fn a_created_volume_wakes_exactly_those_that_wait_for_it() {
        let mut set = BlockedSet::default();
        set.block(eval("a", "j1", 5, &["csi-volume:default:v"]));
        set.block(eval("b", "j2", 5, &["csi-volume:default:w"]));
        let woken = set.wake(&Wake::Named("csi-volume:default:v".into()), 6);
        assert_eq!(woken.len(), 1);
        assert_eq!(woken[0].id, "a");
        assert_eq!(set.len(), 1);
    }

    #[test]
    fn who_lost_to_others_is_looked_at_again_when_its_time_has_come() {
        let mut set = BlockedSet::default();
        for (id, at) in [("a", 10), ("b", 20), ("c", 20)] {
            set.block(eval(id, id, 5, &[]));
            set.again_at(BootInstant::from_nanos(at), id.into());
        }
        set.remove(&"b".into());
        assert_eq!(
            (set.next(), set.due(BootInstant::from_nanos(9)).len()),
            (Some(BootInstant::from_nanos(10)), 0)
        );
        assert_eq!(set.due(BootInstant::from_nanos(10))[0].id, "a");
        let late: Vec<_> =
            set.due(BootInstant::from_nanos(30)).iter().map(|eval| eval.id.to_string()).collect();
        assert_eq!((late, set.next(), set.len()), (vec!["c".to_owned()], None, 0));
    }

    #[test]
    fn the_successor_goes_before_those_that_waited_longer() {
        let name = "csi-claim:default:v";
        let freed = |heir: &str| Wake::Freed { name: name.into(), heir: Some(JobKey::new("default", heir)) };
        let ids = |evals: Vec<Arc<Evaluation>>| evals.iter().map(|e| e.id.to_string()).collect::<Vec<_>>();
        let mut set = BlockedSet::default();
        set.block(eval("rival", "j1", 5, &[name]));
        set.block(eval("successor", "j2", 6, &[name]));
        assert_eq!(ids(set.wake(&freed("j2"), 7)), ["successor"]);
        assert_eq!(set.len(), 1, "the rival is not forgotten");
        assert_eq!(ids(set.dealt_with(&"successor".into())), ["rival"]);
        assert_eq!(set.len(), 0);
        // Without a successor, no evaluation waits for a successor.
        set.block(eval("rival", "j1", 7, &[name]));
        assert_eq!(ids(set.wake(&freed("j3"), 8)), ["rival"]);
    }

    #[test]
    fn capacity_wakes_all() {
        let mut set = BlockedSet::default();
        set.block(eval("a", "j1", 5, &[]));
        set.block(eval("b", "j2", 5, &["csi-volume:default:w"]));
        assert_eq!(set.wake(&Wake::Capacity(None), 6).len(), 2);
        assert_eq!(set.len(), 0);
    }

    #[test]
    fn a_node_that_can_never_do_wakes_nobody() {
        let waits = |id: &str, job: &str, escaped: bool| {
            Arc::new(Evaluation {
                class_eligibility: BTreeMap::from([("c1".to_owned(), false), ("c2".to_owned(), true)]),
                escaped_computed_class: escaped,
                ..(*eval(id, job, 5, &[])).clone()
            })
        };
        let capacity = |class: &str| Wake::Capacity(Some(class.to_owned()));
        let mut set = BlockedSet::default();
        set.block(waits("a", "j1", false));
        set.block(waits("b", "j2", true));
        assert_eq!(set.wake(&capacity("c1"), 6).iter().map(|e| e.id.as_str()).collect::<Vec<_>>(), ["b"]);
        assert_eq!(set.block(waits("b", "j2", true)).0, Blocked::WakeNow(waits("b", "j2", true)));
        assert_eq!(set.block(waits("c", "j3", false)).0, Blocked::Waits);
        // A class that the scheduler has not seen may help.
        assert_eq!(set.wake(&capacity("c3"), 7).len(), 2);
    }

    #[test]
    fn a_change_between_the_look_and_the_block_is_not_missed() {
        let mut set = BlockedSet::default();
        set.wake(&Wake::Named("csi-claim:default:v".into()), 9);
        let late = eval("a", "j", 8, &["csi-claim:default:v"]);
        assert_eq!(set.block(late.clone()).0, Blocked::WakeNow(late));
        let fresh = eval("b", "j", 9, &["csi-claim:default:v"]);
        assert_eq!(set.block(fresh).0, Blocked::Waits);
    }

    #[test]
    fn one_per_job_the_newest() {
        let mut set = BlockedSet::default();
        let old = eval("a", "j", 5, &[]);
        set.block(old.clone());
        assert_eq!(set.block(eval("b", "j", 6, &[])), (Blocked::Waits, Some(old.clone())));
        assert_eq!(set.block(old.clone()), (Blocked::Waits, Some(old)));
        assert_eq!(set.len(), 1);
    }
}
