//! Values that the stored form of a job cannot represent: unknown keywords and negative numbers. Job validation
//! reports them among its own findings.

use crate::JobPath;

/// Which rule a misfit belongs to.
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

/// Kind of a conversion error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A word that the setting does not know.
    Word,
    /// A number below zero.
    Negative,
    /// A number that is too large.
    TooLarge,
}

/// A setting that the kept form of a job cannot hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Number of the group, from 0.
    pub group: Option<usize>,
    /// Number of the task in its group, from 0.
    pub task: Option<usize>,
    /// Which rule it belongs to.
    pub part: Part,
    /// Place in the canonicalised job.
    pub at: JobPath,
    /// Kind of the error.
    pub fault: Fault,
    /// Where, for people: `job "a" > group "b" > task "c"`.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

/// All of them, in the order of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Misfits(pub Vec<Misfit>);

impl Misfits {
    /// Whether everything fitted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes out what is wrong under a rule, at the innermost level that these were narrowed to.
    pub fn take(&mut self, part: Part) -> Self {
        self.part_off(|m| m.part == part)
    }

    /// Takes out what a group and its tasks say.
    #[must_use]
    pub fn of_group(&mut self, index: usize) -> Self {
        self.part_off(|m| m.group == Some(index))
    }

    /// Takes out what a task says; `self` is that of its group.
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
