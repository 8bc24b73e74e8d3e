//! Values that the stored form of a job cannot represent: unknown keywords and negative numbers. Job validation
//! reports them among its own findings.

use crate::JobPath;

/// The rule to which a misfit belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The type of the job.
    Kind,
    /// `count` of a group.
    Count,
    /// `update` of a job or group.
    Update,
    /// `migrate`.
    Migrate,
    /// `restart` of a group or task.
    Restart,
    /// `reschedule`.
    Reschedule,
    /// A `volume` of a group.
    Volume,
    /// `logs` of a task.
    Logs,
    /// A `volume_mount` of a task.
    Mount,
    /// `csi_plugin` of a task.
    CsiPlugin,
}

/// The kind of a conversion error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A word that the setting does not have.
    Word,
    /// A number below zero.
    Negative,
    /// A number that is too large.
    TooLarge,
}

/// A setting that the stored form of a job cannot represent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The number of the group, from 0.
    pub group: Option<usize>,
    /// The number of the task in its group, from 0.
    pub task: Option<usize>,
    /// The rule to which the misfit belongs.
    pub part: Part,
    /// The place in the canonicalised job.
    pub at: JobPath,
    /// The kind of the error.
    pub fault: Fault,
    /// The place for users: `job "a" > group "b" > task "c"`.
    pub path: String,
    /// The description of the problem.
    pub message: String,
}

/// All misfits of a job, in the order of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Misfits(pub Vec<Misfit>);

impl Misfits {
    /// Returns whether all settings fit.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes and returns the misfits of a rule, of the job, group or task to which `self` was narrowed.
    pub fn take(&mut self, part: Part) -> Self {
        self.part_off(|m| m.part == part)
    }

    /// Removes and returns the misfits of a group and its tasks.
    #[must_use]
    pub fn of_group(&mut self, index: usize) -> Self {
        self.part_off(|m| m.group == Some(index))
    }

    /// Removes and returns the misfits of a task; `self` has the misfits of its group.
    #[must_use]
    pub fn of_task(&mut self, index: usize) -> Self {
        self.part_off(|m| m.task == Some(index))
    }

    /// Returns the collected errors and empties the list.
    pub fn rest(&mut self) -> Self {
        std::mem::take(self)
    }

    fn part_off(&mut self, desired: impl Fn(&Misfit) -> bool) -> Self {
        let (taken, kept) = std::mem::take(&mut self.0).into_iter().partition(|m| desired(m));
        self.0 = kept;
        Self(taken)
    }
}
