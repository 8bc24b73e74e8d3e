//! The decision which periodic jobs are due, and when the next one is due. Pure.

use caravan_lang::cron::Schedule;
use caravan_state::Root;
use caravan_types::job::{Job, JobStatus};
use caravan_types::{JobKey, UnixNanos};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// The launch times of all periodic jobs.
#[derive(Debug, Default)]
pub(crate) struct Book {
    jobs: BTreeMap<JobKey, Entry>,
}

#[derive(Debug)]
struct Entry {
    schedule: Schedule,
    prohibit_overlap: bool,
    /// The time up to which all launches are complete or skipped.
    until: UnixNanos,
    next: Option<UnixNanos>,
}

/// A child that is to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) key: JobKey,
    /// The time at which the child was due.
    pub(crate) at: UnixNanos,
}

impl Book {
    /// Returns the launch times of the existing jobs.
    pub(crate) fn read(root: &Root) -> Self {
        let mut book = Self::default();
        root.jobs().filter(|job| job.periodic.is_some()).for_each(|job| book.follow(root, &job.key()));
        book
    }

    /// Updates the launch times of a job that may have changed.
    pub(crate) fn follow(&mut self, root: &Root, key: &JobKey) {
        let Some(job) = root.job(key).filter(|job| job.is_periodic_active()) else {
            self.jobs.remove(key);
            return;
        };
        let Some((schedule, prohibit_overlap)) = schedule(job) else {
            self.jobs.remove(key);
            return;
        };
        // Launches that were due before a job was registered again belong to its old schedule.
        let launched = root.periodic_launch(key).unwrap_or_default().max(job.submit_time);
        let until = self.jobs.get(key).map_or(launched, |entry| entry.until.max(launched));
        let next = after(&schedule, until);
        self.jobs.insert(key.clone(), Entry { schedule, prohibit_overlap, until, next });
    }

    /// Returns the due launches. If several launches of one job were missed, one launch at the time `now` is
    /// returned.
    pub(crate) fn due(&mut self, root: &Root, now: UnixNanos) -> Vec<Launch> {
        let mut due = Vec::new();
        for (key, entry) in &mut self.jobs {
            let Some(at) = entry.next.filter(|at| *at <= now) else { continue };
            let missed_more = after(&entry.schedule, at).is_some_and(|later| later <= now);
            let at = if missed_more { now } else { at };
            let alive =
                entry.prohibit_overlap && root.children(key).any(|child| child.status != JobStatus::Dead);
            if alive {
                tracing::debug!(job = %key.id, "no launch: a child job has not ended");
                entry.until = now;
            } else {
                due.push(Launch { key: key.clone(), at });
                // Until the child exists, the job's record shows the previous launch.
                entry.until = at;
            }
            entry.next = after(&entry.schedule, entry.until);
        }
        due
    }

    /// Marks a launch as due again after its creation failed.
    pub(crate) fn again(&mut self, launch: &Launch) {
        if let Some(entry) = self.jobs.get_mut(&launch.key) {
            entry.next = Some(launch.at);
        }
    }

    /// Returns the time at which the next job is due.
    pub(crate) fn next(&self) -> Option<UnixNanos> {
        self.jobs.values().filter_map(|entry| entry.next).min()
    }
}

fn schedule(job: &Job) -> Option<(Schedule, bool)> {
    let rule = job.periodic.as_ref()?;
    match Schedule::new(rule.expressions(), &rule.time_zone) {
        Ok(schedule) => Some((schedule, rule.prohibit_overlap)),
        Err(error) => {
            // The schedule was checked at registration, but another host may have fewer time zones.
            tracing::error!(job = %job.id, %error, "this server cannot compute the launch times of a job");
            None
        }
    }
}

fn after(schedule: &Schedule, at: UnixNanos) -> Option<UnixNanos> {
    let at = Timestamp::from_nanosecond(i128::from(at.0)).ok()?;
    let next = schedule.next_after(at)?;
    i64::try_from(next.as_nanosecond()).ok().map(UnixNanos)
}

/// Returns when a job would be launched next if it were registered.
pub(crate) fn next_launch(job: &Job, now: UnixNanos) -> Option<UnixNanos> {
    let (schedule, _) = schedule(job).filter(|_| job.is_periodic_active())?;
    after(&schedule, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::sample::minimal;
    use caravan_types::command::{Change, Command};
    use caravan_types::job::{JobType, Periodic};

    const MINUTE: i64 = 60_000_000_000;

    fn at(minutes: i64) -> UnixNanos {
        UnixNanos(minutes * MINUTE)
    }

    fn every_ten(overlap_prohibited: bool) -> Job {
        let rule = Periodic {
            enabled: true,
            specs: vec!["*/10 * * * *".into()],
            spec_type: "cron".into(),
            prohibit_overlap: overlap_prohibited,
            time_zone: "UTC".into(),
            ..Periodic::default()
        };
        Job { kind: JobType::Batch, periodic: Some(rule.into()), ..minimal() }
    }

    fn apply(root: &Root, now: UnixNanos, change: Change) -> Root {
        let (root, outcome, _) = root.apply(root.index() + 1, &Command { now, change });
        assert_eq!(outcome.refused, None);
        root
    }

    fn register(root: &Root, now: UnixNanos, job: Job) -> Root {
        let job = Box::new(Job { submit_time: now, ..job });
        apply(root, now, Change::JobRegister { job, expect_modify_index: None, eval: None, source: None })
    }

    fn launch(root: &Root, launch: &Launch) -> Root {
        let parent = root.job(&launch.key).expect("it is there");
        let (job, eval) = super::super::child(parent, launch.at.as_secs(), launch.at);
        let change = Change::JobChild { job: Box::new(job), eval: Some(eval), launched: Some(launch.at) };
        apply(root, launch.at, change)
    }

    #[test]
    fn launches_come_at_their_times_and_are_remembered() {
        let mut root = register(&Root::default(), at(3), every_ten(false));
        let mut book = Book::read(&root);
        assert_eq!(book.next(), Some(at(10)));
        assert_eq!(book.due(&root, at(9)), []);
        let due = book.due(&root, at(10));
        assert_eq!(due, [Launch { key: every_ten(false).key(), at: at(10) }]);
        assert_eq!(book.next(), Some(at(20)));
        root = launch(&root, &due[0]);
        assert!(root.job(&JobKey { id: "web/periodic-600".into(), ..due[0].key.clone() }).is_some());
        assert_eq!(Book::read(&root).next(), Some(at(20)), "another server knows as well");

        // A launch whose creation failed is still due.
        let due = book.due(&root, at(20));
        book.again(&due[0]);
        assert_eq!(book.due(&root, at(20)), due);
    }

    #[test]
    fn of_what_was_missed_one_launch_is_made_up_for() {
        let root = register(&Root::default(), at(3), every_ten(false));
        let mut book = Book::read(&root);
        let due = book.due(&root, at(47));
        assert_eq!(due.len(), 1);
        assert_eq!(due[0].at, at(47));
        assert_eq!(book.next(), Some(at(50)));
        let mut one_missed = Book::read(&root);
        assert_eq!(one_missed.due(&root, at(12))[0].at, at(10), "a single one keeps its time");
    }

    #[test]
    fn no_launch_while_a_child_lives_if_overlap_is_prohibited() {
        let mut root = register(&Root::default(), at(3), every_ten(true));
        let mut book = Book::read(&root);
        let due = book.due(&root, at(10));
        root = launch(&root, &due[0]);
        assert_eq!(book.due(&root, at(20)), [], "the child is pending");
        assert_eq!(book.next(), Some(at(30)));
        let key = JobKey { id: "web/periodic-600".into(), ..due[0].key.clone() };
        root = apply(&root, at(21), Change::JobDeregister { key, purge: true, eval: None });
        book.follow(&root, &due[0].key);
        assert_eq!(book.next(), Some(at(30)), "what was left out stays left out");
        assert_eq!(book.due(&root, at(30)).len(), 1);
    }

    #[test]
    fn changed_and_stopped_jobs_are_followed() {
        let mut root = register(&Root::default(), at(3), every_ten(false));
        let key = every_ten(false).key();
        let mut book = Book::read(&root);
        let mut job = every_ten(false);
        if let Some(rule) = &mut job.periodic {
            rule.specs = vec!["5 * * * *".into()];
        }
        root = register(&root, at(30), job.clone());
        book.follow(&root, &key);
        assert_eq!(book.next(), Some(at(65)), "from its new submission on");
        assert_eq!(next_launch(&job, at(66)), Some(at(125)));
        root = apply(&root, at(31), Change::JobDeregister { key: key.clone(), purge: false, eval: None });
        book.follow(&root, &key);
        assert_eq!(book.next(), None);
        assert_eq!(root.periodic_launch(&key), None);
    }
}
