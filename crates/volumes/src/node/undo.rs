//! When something is undone: the same rule for targets and stages.

use super::{Answer, Because, How, Observed, Place, Reach};

/// Refusals in a row after which the plugin's word alone does not keep a claim. A plugin that fails for a short time
/// answers better before.
pub(super) const MAX_REFUSALS: u8 = 5;

/// What remains to be done until nothing is at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undo {
    /// Call the plugin.
    Call,
    /// End the mount without the plugin.
    Unmount(How),
    /// Nothing.
    Gone(Because),
    /// The plugin refuses, and nothing proves more.
    Refused,
    /// The plugin did not answer.
    Unanswered,
    /// The file system does not answer.
    Silent,
    /// The plugin refuses, and the file system is mounted elsewhere.
    Lingers,
}

/// Returns what remains to be done about a place. `reach`: how far the call got that mounts there. `answer`: of the
/// call that undoes it.
///
/// An answer that leaves the outcome open proves nothing. A refusal proves nothing by itself: the plugin may not know
/// what it holds, or fail to end it. With an empty place it is enough where the mount never succeeded. Where the
/// mount did succeed, the plugin is asked several times, and the file system must be mounted nowhere else.
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
        // The plugin has no memory of a mount that an earlier process of it made.
        (Some(Answer::Done | Answer::NotFound), Place::Mounted) => Undo::Unmount(How::Now),

        (Some(_), Place::Silent) => Undo::Silent,
        // Nothing can be lost with it.
        (Some(_), Place::Dead) => Undo::Unmount(How::Lazily),

        (Some(_), Place::Empty) if reach != Reach::Made => Undo::Gone(Because::Absent),
        (Some(_), Place::Empty) if !persists => Undo::Refused,
        (Some(_), Place::Empty) if observed.lingers => Undo::Lingers,
        (Some(_), Place::Empty) => Undo::Gone(Because::Absent),
        // A mount that no task ever used, or of which this process of the plugin knows nothing.
        (Some(_), Place::Mounted) if persists && (reach != Reach::Made || observed.is_replaced) => {
            Undo::Unmount(How::Now)
        }
        (Some(_), Place::Mounted) => Undo::Refused,
    }
}
