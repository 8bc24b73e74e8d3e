//! Mount health: whether a mount is unchanged, and the reaction if it is not. Pure.

use caravan_types::job::BrokenMount;
use caravan_types::volume::ClaimId;
use std::collections::BTreeMap;

/// The kinds of mount problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The mount has ended, or another file system is mounted.
    Changed,
    /// The mount exists, but its file system is dead (its daemon died or its device disappeared).
    Dead,
    /// The file system does not answer, but may answer again.
    Silent,
}

/// A problem of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// The kind of the problem.
    pub(crate) kind: Kind,
    /// The path of the mount.
    pub(crate) path: String,
    /// The description for users.
    pub(crate) reason: String,
}

/// Mount problems by claim.
pub(crate) type Troubles = BTreeMap<ClaimId, Trouble>;

/// The reaction of an allocation to a mount problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// Report the problem, but leave the tasks running.
    Tell,
    /// Stop the tasks that use the mount, mount again, and start the tasks.
    Restart,
    /// Mount again beneath the running tasks.
    Remount,
}

/// Decides the reaction. A file system that only does not answer is left alone under every policy, because it may hold
/// data that it has not written yet.
pub(crate) fn react(policy: BrokenMount, kind: Kind) -> Reaction {
    match (kind, policy) {
        (Kind::Silent, _) | (_, BrokenMount::Hold) => Reaction::Tell,
        (_, BrokenMount::Restart) => Reaction::Restart,
        (_, BrokenMount::Remount) => Reaction::Remount,
    }
}

/// Interprets the result of statfs(2). Returns `None` if the file system is healthy or reports nothing about its
/// health.
pub(crate) fn diagnose(answer: Option<Result<(), i32>>) -> Option<(Kind, String)> {
    use nix::errno::Errno as E;
    let errno = match answer {
        None => return Some((Kind::Silent, "its file system does not answer".to_owned())),
        Some(Ok(())) => return None,
        Some(Err(errno)) => E::from_raw(errno),
    };
    let dead = matches!(
        errno,
        E::ENOTCONN
            | E::ECONNABORTED
            | E::ESTALE
            | E::ENODEV
            | E::ENXIO
            | E::EIO
            | E::ESHUTDOWN
            | E::EHOSTDOWN
            | E::ENOMEDIUM
    );
    dead.then(|| (Kind::Dead, format!("its file system is dead: {}", errno.desc())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_followed_only_where_the_mount_is_certainly_gone() {
        use BrokenMount as P;
        for policy in [P::Hold, P::Restart, P::Remount] {
            assert_eq!(react(policy, Kind::Silent), Reaction::Tell);
        }
        for kind in [Kind::Changed, Kind::Dead] {
            assert_eq!(react(P::Hold, kind), Reaction::Tell);
            assert_eq!(react(P::Restart, kind), Reaction::Restart);
            assert_eq!(react(P::Remount, kind), Reaction::Remount);
        }
    }

    #[test]
    fn only_answers_that_mean_it_are_taken_for_death() {
        assert_eq!(diagnose(Some(Ok(()))), None);
        assert_eq!(diagnose(Some(Err(nix::libc::EACCES))), None);
        assert_eq!(diagnose(None).unwrap().0, Kind::Silent);
        let (kind, words) = diagnose(Some(Err(nix::libc::ENOTCONN))).unwrap();
        assert_eq!(kind, Kind::Dead);
        assert!(words.contains("not connected"), "{words}");
    }
}
