//! Blocked evaluations and what wakes them, as a pure state machine.

use caravan_types::eval::Evaluation;
use caravan_types::{BootInstant, EvalId, JobKey};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A change that may let something be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// A node may take more than before: it came, became eligible, reported something new, or an
    /// allocation on it ended. Its computed class; none if any node may.
    Capacity(Option<String>),
    /// Something other than a node that evaluations wait for by name (texts of `WaitsFor`).
    Named(String),
    /// A claim ended that evaluations wait for by name. The job that held it goes first: an update of an
    /// only writer must not lose its volume to whoever waits for it.
    Freed {
        /// Text of `WaitsFor`.
        name: String,
        /// The job that held it, if that is known.
        heir: Option<JobKey>,
    },
}

/// What became of a newly blocked evaluation.
#[derive(Debug, PartialEq)]
pub(crate) enum Blocked {
    /// It waits.
    Waits,
    /// What it waits for happened since the scheduler looked: queue it again.
    WakeNow(Arc<Evaluation>),
}

/// Names remembered for the race between a change and the block that waits for it.
const REMEMBERED_NAMES: usize = 4096;

/// Whether a node of a class may help an evaluation: unless the scheduler looked at such a node and it can never do.
fn may_help(eval: &Evaluation, class: &str) -> bool {
    class.is_empty() || eval.escaped_computed_class || eval.class_eligibility.get(class) != Some(&false)
}

/// Blocked evaluations, at most one per job.
#[derive(Debug, Default)]
pub(crate) struct BlockedSet {
    by_job: BTreeMap<JobKey, Arc<Evaluation>>,
    ids: HashMap<EvalId, JobKey>,
    /// Woken, but only once the evaluation before them has been dealt with.
    behind: HashMap<EvalId, Vec<Arc<Evaluation>>>,
    /// When to look again at those that lost to other plans: what they wait for may never change.
    conflicts: BTreeSet<(BootInstant, EvalId)>,
    capacity_index: u64,
    /// By computed class.
    class_index: BTreeMap<String, u64>,
    named_index: BTreeMap<String, u64>,
    forgotten_names_index: u64,
}

impl BlockedSet {
    /// Takes in a blocked evaluation. A second one of the same job replaces the first, which is
    /// answered so that it can be cancelled.
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

    /// The jobs that wait, and how many of them wait for any change because of what they ask of single nodes.
    pub(crate) fn jobs(&self) -> (Vec<JobKey>, usize) {
        let escaped = self.by_job.values().filter(|eval| eval.escaped_computed_class).count();
        (self.by_job.keys().cloned().collect(), escaped)
    }

    /// Has an evaluation looked at again at a time, if it still waits then.
    pub(crate) fn again_at(&mut self, at: BootInstant, id: EvalId) {
        self.conflicts.insert((at, id));
    }

    /// When the next one is to be looked at again.
    pub(crate) fn next(&self) -> Option<BootInstant> {
        self.conflicts.first().map(|(at, _)| *at)
    }

    /// Takes out and answers those whose time has come.
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
                self.named_index.get(name).copied().unwrap_or(self.forgotten_names_index)
                    > eval.snapshot_index
            })
    }

    /// A change happened at an index: takes out and answers those that it may help.
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
                    self.forgotten_names_index = index;
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

    /// An evaluation ended or waits again: answers those that had to let it go first.
    pub(crate) fn dealt_with(&mut self, id: &EvalId) -> Vec<Arc<Evaluation>> {
        self.behind.remove(id).unwrap_or_default()
    }

    /// Forgets all that wait, before they are read anew; what happened when is still known.
    pub(crate) fn clear(&mut self) {
        self.by_job.clear();
        self.ids.clear();
        self.behind.clear();
        self.conflicts.clear();
    }

    /// Forgets an evaluation that ended or became pending elsewhere.
    pub(crate) fn remove(&mut self, id: &EvalId) {
        if let Some(key) = self.ids.remove(id) {
            self.by_job.remove(&key);
        }
    }

    /// How many wait.
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
        // Without a successor nobody waits for one.
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
        // One that the scheduler has not seen may do.
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
