//! The rule that decides whether a mount counts as undone. It is the same for targets and stages.

use super::{Answer, Because, How, Observed, Place, Reach};

/// The number of refusals without a success after which the plugin's refusal alone does not keep a claim. A plugin
/// that fails only for a short time succeeds earlier.
pub(super) const MAX_REFUSALS: u8 = 5;

/// The remaining work until a place is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undo {
    /// Call the plugin.
    Call,
    /// Unmount without the plugin.
    Unmount(How),
    /// No work remains.
    Gone(Because),
    /// The plugin refuses, and there is no other proof.
    Refused,
    /// The plugin did not respond.
    Unanswered,
    /// The file system does not respond.
    Silent,
    /// The plugin refuses, and the file system is mounted elsewhere.
    Lingers,
}

/// Returns the remaining work for a place. `reach` is the progress of the call that mounts there, and `answer` is the
/// response to the call that undoes it.
///
/// A response that leaves the outcome open proves nothing. A refusal alone proves nothing either: the plugin may lack
/// a record of its own mount, or may fail to end it. Together with an empty place, a refusal is enough if the mount
/// never succeeded. If the mount did succeed, the plugin is called several times, and the file system must be mounted
/// nowhere else.
pub(super) fn undo(reach: Reach, place: Place, answer: Option<Answer>, observed: &Observed<'_>) -> Undo {
    let persists = observed.tries.refusals >= MAX_REFUSALS;
    match (answer, place) {
        (None, Place::Empty) if reach == Reach::Never => Undo::Gone(Because::NeverCalled),
        (None, Place::Dead) if reach == Reach::Never => Undo::Unmount(How::Lazily),
        (None, Place::Mounted) if reach == Reach::Never => Undo::Unmount(How::Now),
        (None, Place::Silent) if reach == Reach::Never => Undo::Silent,
        (None, _) => Undo::Call,

        (Some(Answer::Unclear), _) => Undo::Unanswered,

        (Some(Answer::Done | Answer::NotFound), Place::Empty) => Undo::Gone(Because::Undone),
        // The plugin has no record of a mount that its earlier process created.
        (Some(Answer::Done | Answer::NotFound), Place::Mounted) => Undo::Unmount(How::Now),

        (Some(_), Place::Silent) => Undo::Silent,
        // A dead mount contains no data that could be lost.
        (Some(_), Place::Dead) => Undo::Unmount(How::Lazily),

        (Some(_), Place::Empty) if reach != Reach::Made => Undo::Gone(Because::Absent),
        (Some(_), Place::Empty) if !persists => Undo::Refused,
        (Some(_), Place::Empty) if observed.lingers => Undo::Lingers,
        (Some(_), Place::Empty) => Undo::Gone(Because::Absent),
        // No task ever used the mount, or this process of the plugin has no record of it.
        (Some(_), Place::Mounted) if persists && (reach != Reach::Made || observed.is_replaced) => {
            Undo::Unmount(How::Now)
        }
        (Some(_), Place::Mounted) => Undo::Refused,
    }
}
