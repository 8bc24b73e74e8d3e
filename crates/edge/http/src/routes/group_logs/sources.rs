//! The outputs that a stream reads: decisions about outputs that join, end or are omitted.

use caravan_client::fs::{LogKind, LogPlace};
use caravan_types::AllocId;
use serde::{Serialize, Serializer};
use std::cmp::Reverse;

/// The most outputs that a stream reads at the same time. Each one is a stream from a node.
pub(super) const MAX_OPEN: usize = 16;
/// The most outputs that have ended and are still listed.
const MAX_ENDED: usize = 100;

/// An output of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Output(pub(super) LogKind);

impl Serialize for Output {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

/// One output of one task of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) alloc: AllocId,
    pub(super) task: String,
    pub(super) output: Output,
}

/// An output that can be read, because its task has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) source: Source,
    pub(super) group: String,
    /// The name of the allocation.
    pub(super) name: String,
    /// The name of the node.
    pub(super) node: String,
    /// The index at which the allocation was created.
    pub(super) created: u64,
    /// The index of the last change of the allocation.
    pub(super) modified: u64,
    /// Whether the task may still write.
    pub(super) is_live: bool,
}

/// The part of an output with which a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// The bytes before its end that the request names.
    Tail,
    /// The whole output: it began after the stream.
    Start,
    /// The bytes after a place, up to which an earlier stream has read the output.
    After(LogPlace),
}

/// An output to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    pub(super) id: u32,
    pub(super) source: Source,
    pub(super) begin: Begin,
    /// Whether its task may still write.
    pub(super) is_live: bool,
}

/// The state of an output in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Open,
    Ended,
    /// The output could not be read, or not to its end. The reason is a sentence.
    Failed(String),
}

#[derive(Clone, Debug)]
struct Row {
    id: u32,
    candidate: Candidate,
    state: State,
    /// Whether the end of the output was requested, because its task has ended.
    is_closing: bool,
    /// The place after the lines that were sent.
    place: Option<LogPlace>,
    /// Whether the output broke off and may be readable again.
    is_broken: bool,
    /// Whether a broken output is opened again at the next look.
    is_due: bool,
}

/// The work that follows from a change of the allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) open: Vec<Opening>,
    /// The outputs whose tasks have ended.
    pub(super) close: Vec<u32>,
}

/// The number of outputs that a stream leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Omitted {
    /// Outputs of tasks that run.
    pub(super) running: usize,
    /// Outputs of tasks that had ended.
    pub(super) ended: usize,
}

/// An output as the stream describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Shown<'r> {
    #[serde(rename = "ID")]
    id: u32,
    #[serde(rename = "AllocID")]
    alloc_id: &'r AllocId,
    alloc_name: &'r str,
    task_group: &'r str,
    task: &'r str,
    #[serde(rename = "Type")]
    output: Output,
    node_name: &'r str,
    /// `open`, `ended` or `failed`.
    state: &'static str,
    /// The reason of a failure; empty for other states.
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'r str,
}

/// The outputs of a stream.
#[derive(Debug, Default)]
pub(super) struct Sources {
    rows: Vec<Row>,
    next: u32,
    /// The index up to which allocations join only while they run; `None` before the first choice of outputs.
    since: Option<u64>,
    /// The places up to which an earlier stream has read outputs.
    resumed: Vec<(Source, LogPlace)>,
    omitted: Omitted,
}

impl Sources {
    /// Continues an earlier stream, which began at an index and has read some outputs up to places.
    pub(super) fn resume(since: Option<u64>, resumed: Vec<(Source, LogPlace)>) -> Self {
        Self { since, resumed, ..Self::default() }
    }

    fn resumed(&self, source: &Source) -> Option<LogPlace> {
        self.resumed.iter().find(|(one, _)| one == source).map(|(_, place)| *place)
    }

    /// Compares the outputs with the candidates. `index` is the index of the state that has the candidates.
    ///
    /// At the beginning, the newest running outputs are chosen, then the newest ended ones. Later, running outputs
    /// join, and ended ones only if their allocation is newer than the beginning. Example: with room for one output,
    /// `a` runs and `b` ended an hour ago. The stream reads `a`. When `a` ends, `b` does not take its place.
    pub(super) fn update(&mut self, candidates: Vec<Candidate>, index: u64) -> Step {
        let mut step = Step::default();
        for row in &mut self.rows {
            let now = candidates.iter().find(|one| one.source == row.candidate.source);
            let is_live = now.is_some_and(|one| one.is_live);
            if row.state == State::Open && !is_live && !row.is_closing {
                row.is_closing = true;
                step.close.push(row.id);
            }
        }
        let since = self.since;
        let is_new = |one: &Candidate| since.is_none_or(|since| one.created > since);
        let mut waiting: Vec<Candidate> = Vec::new();
        self.omitted = Omitted::default();
        for one in candidates {
            let is_eligible = match self.rows.iter().find(|row| row.candidate.source == one.source) {
                None => one.is_live || is_new(&one) || self.resumed(&one.source).is_some(),
                Some(row) => {
                    // Either the task was restarted, or its node has returned.
                    let is_changed = one.modified > row.candidate.modified;
                    row.state != State::Open && one.is_live && (is_changed || row.is_due)
                }
            };
            match is_eligible {
                true => waiting.push(one),
                false if self.rows.iter().any(|row| row.candidate.source == one.source) => {}
                false => self.omitted.ended += 1,
            }
        }
        // The outputs of an earlier stream come before others.
        let key = |one: &Candidate| {
            (Reverse(one.is_live), Reverse(self.resumed(&one.source).is_some()), Reverse(one.created))
        };
        waiting.sort_by(|one, two| key(one).cmp(&key(two)).then_with(|| one.name.cmp(&two.name)));
        let room = MAX_OPEN.saturating_sub(self.open());
        for (at, one) in waiting.into_iter().enumerate() {
            if at >= room {
                match one.is_live {
                    true => self.omitted.running += 1,
                    false => self.omitted.ended += 1,
                }
                continue;
            }
            let is_new = since.is_some_and(|since| one.created > since);
            step.open.push(self.begin(one, if is_new { Begin::Start } else { Begin::Tail }));
        }
        self.since = self.since.or(Some(index));
        self.drop_ended();
        step
    }

    /// Records an output as open. `otherwise` is the beginning for an output that no stream has read.
    fn begin(&mut self, candidate: Candidate, otherwise: Begin) -> Opening {
        let (source, is_live) = (candidate.source.clone(), candidate.is_live);
        let at = self.rows.iter().position(|row| row.candidate.source == source);
        let id = at.and_then(|at| self.rows.get(at)).map_or(self.next, |row| row.id);
        let known = at.and_then(|at| self.rows.get(at)).and_then(|row| row.place);
        let place = known.or_else(|| self.resumed(&source));
        let row = Row {
            id,
            candidate,
            state: State::Open,
            is_closing: !is_live,
            place,
            is_broken: false,
            is_due: false,
        };
        match at.and_then(|at| self.rows.get_mut(at)) {
            Some(before) => *before = row,
            None => {
                self.next += 1;
                self.rows.push(row);
            }
        }
        Opening { id, source, begin: place.map_or(otherwise, Begin::After), is_live }
    }

    /// Drops the oldest outputs that have ended, beyond a limit.
    fn drop_ended(&mut self) {
        let ended = self.rows.len() - self.open();
        let mut surplus = ended.saturating_sub(MAX_ENDED);
        let mut newest = self.since;
        self.rows.retain(|row| {
            let is_dropped = surplus > 0 && row.state != State::Open;
            if is_dropped {
                surplus -= 1;
                // Otherwise the output would join again as a new one.
                newest = newest.max(Some(row.candidate.created));
            }
            !is_dropped
        });
        self.since = newest;
    }

    /// Records the end of an output; `failure` is the reason if the output did not end with its log. Returns whether
    /// the output broke off and may be readable again.
    pub(super) fn end(&mut self, id: u32, failure: Option<String>, may_return: bool) -> bool {
        let Some(row) = self.rows.iter_mut().find(|row| row.id == id) else { return false };
        row.state = failure.map_or(State::Ended, State::Failed);
        row.is_broken = may_return && !row.is_closing;
        row.is_broken
    }

    /// Records the place after the lines of an output that were sent.
    pub(super) fn reach(&mut self, id: u32, place: LogPlace) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.id == id) {
            row.place = Some(place);
        }
    }

    /// Marks the outputs that broke off, so that they are opened again at the next look.
    pub(super) fn retry(&mut self) {
        self.rows.iter_mut().filter(|row| row.is_broken).for_each(|row| row.is_due = true);
    }

    /// Returns the index at which the stream began: older allocations join only while they run.
    pub(super) fn since(&self) -> Option<u64> {
        self.since
    }

    /// Returns the number of outputs that are read.
    pub(super) fn open(&self) -> usize {
        self.rows.iter().filter(|row| row.state == State::Open).count()
    }

    /// Returns the outputs as the stream describes them, and the numbers of omitted outputs.
    pub(super) fn shown(&self) -> (Vec<Shown<'_>>, Omitted) {
        let rows = self.rows.iter().map(|row| Shown {
            id: row.id,
            alloc_id: &row.candidate.source.alloc,
            alloc_name: &row.candidate.name,
            task_group: &row.candidate.group,
            task: &row.candidate.source.task,
            output: row.candidate.source.output,
            node_name: &row.candidate.node,
            state: match row.state {
                State::Open => "open",
                State::Ended => "ended",
                State::Failed(_) => "failed",
            },
            reason: match &row.state {
                State::Failed(reason) => reason,
                State::Open | State::Ended => "",
            },
        });
        (rows.collect(), self.omitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(alloc: &str, created: u64, is_live: bool) -> Candidate {
        Candidate {
            source: Source { alloc: alloc.into(), task: "web".into(), output: Output(LogKind::Stdout) },
            group: "g".into(),
            name: format!("job.g[{created}]"),
            node: "n".into(),
            created,
            modified: created,
            is_live,
        }
    }

    fn opened(step: &Step) -> Vec<(&str, bool)> {
        step.open.iter().map(|one| (one.source.alloc.as_str(), one.is_live)).collect()
    }

    #[test]
    fn outputs_join_and_end() {
        let mut sources = Sources::default();
        let step = sources
            .update(vec![candidate("old", 1, false), candidate("a", 2, true), candidate("b", 3, true)], 10);
        assert_eq!(opened(&step), [("b", true), ("a", true), ("old", false)]);
        assert_eq!((step.close.as_slice(), sources.omitted), (&[][..], Omitted::default()));
        sources.end(2, None, true);
        // `b` ends, and `c` takes its place. The end of `b` is requested once.
        let now = || {
            vec![
                candidate("old", 1, false),
                candidate("a", 2, true),
                candidate("b", 3, false),
                candidate("c", 11, true),
            ]
        };
        let step = sources.update(now(), 12);
        assert_eq!((opened(&step), step.close.clone()), (vec![("c", true)], vec![0]));
        assert_eq!(sources.update(now(), 13), Step::default());
        sources.end(0, None, true);
        assert_eq!(sources.open(), 2);
        // An allocation that started and ended between two looks is read too, an older one is not.
        let step = sources.update(vec![candidate("d", 14, false), candidate("older", 4, false)], 15);
        assert_eq!(opened(&step), [("d", false)]);
        assert_eq!(sources.omitted, Omitted { running: 0, ended: 1 });
    }

    #[test]
    fn more_outputs_than_a_stream_reads_are_counted() {
        let mut sources = Sources::default();
        let many = |number: usize| -> Vec<Candidate> {
            (0..number).map(|at| candidate(&format!("a{at}"), at as u64 + 1, at % 2 == 0)).collect()
        };
        let step = sources.update(many(40), 100);
        assert_eq!(step.open.len(), MAX_OPEN);
        assert!(step.open.iter().all(|one| one.is_live), "running ones come first");
        assert_eq!(sources.omitted, Omitted { running: 4, ended: 20 });
        // One output ends: the newest omitted output of a running task takes its place.
        sources.end(0, None, true);
        let step = sources.update(many(40), 101);
        assert_eq!(opened(&step), [("a6", true)]);
        assert_eq!(sources.omitted, Omitted { running: 3, ended: 20 });
    }

    #[test]
    fn a_task_that_runs_again_is_read_again() {
        let mut sources = Sources::default();
        sources.update(vec![candidate("a", 1, true)], 1);
        sources.end(0, Some("the node is silent".into()), false);
        assert_eq!(sources.update(vec![candidate("a", 1, true)], 2), Step::default(), "nothing has changed");
        let again = Candidate { modified: 3, ..candidate("a", 1, true) };
        assert_eq!(sources.update(vec![again], 3).open.len(), 1);
        let (shown, _) = sources.shown();
        assert_eq!((shown.len(), shown[0].state, shown[0].reason), (1, "open", ""));
    }

    #[test]
    fn the_list_of_outputs_is_bounded() {
        let mut sources = Sources::default();
        sources.update(Vec::new(), 0);
        for created in 1..=MAX_ENDED as u64 + 50 {
            let step = sources.update(vec![candidate(&format!("a{created}"), created, false)], created);
            for one in step.open {
                sources.end(one.id, None, true);
            }
        }
        sources.update(vec![candidate("a1", 1, false)], 1000);
        assert_eq!(sources.rows.len(), MAX_ENDED);
        assert_eq!(sources.omitted.ended, 1, "an output that was dropped does not join again");
    }

    #[test]
    fn an_output_that_broke_off_goes_on_after_its_last_line() {
        let mut sources = Sources::default();
        let step = sources.update(vec![candidate("a", 1, true)], 1);
        assert_eq!(step.open[0].begin, Begin::Tail);
        let place = LogPlace { number: 3, offset: 1200 };
        sources.reach(0, place);
        assert!(sources.end(0, Some("the log broke off".into()), true));
        assert_eq!(sources.update(vec![candidate("a", 1, true)], 2), Step::default(), "not before it is due");
        sources.retry();
        let step = sources.update(vec![candidate("a", 1, true)], 3);
        let opening = Opening {
            id: 0,
            begin: Begin::After(place),
            is_live: true,
            source: candidate("a", 1, true).source,
        };
        assert_eq!(step.open, [opening]);
        // An output that ends with its task does not return.
        sources.update(vec![candidate("a", 1, false)], 4);
        assert!(!sources.end(0, None, true));
        sources.retry();
        assert_eq!(sources.update(vec![candidate("a", 1, false)], 5), Step::default());
    }

    #[test]
    fn a_stream_continues_an_earlier_one() {
        let place = LogPlace { number: 0, offset: 70 };
        let read = ["a", "ended", "ended-since"].map(|name| (candidate(name, 1, true).source, place));
        let mut sources = Sources::resume(Some(10), read.to_vec());
        let step = sources.update(
            vec![
                candidate("a", 1, true),
                candidate("never-read", 2, true),
                candidate("ended-since", 3, false),
                candidate("long-ended", 4, false),
                candidate("new", 11, false),
            ],
            20,
        );
        let begun: Vec<(&str, Begin)> =
            step.open.iter().map(|one| (one.source.alloc.as_str(), one.begin)).collect();
        assert_eq!(
            begun,
            [
                ("a", Begin::After(place)),
                ("never-read", Begin::Tail),
                ("ended-since", Begin::After(place)),
                ("new", Begin::Start),
            ]
        );
        assert_eq!((sources.omitted, sources.since()), (Omitted { running: 0, ended: 1 }, Some(10)));
    }
}
