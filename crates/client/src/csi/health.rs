//! Whether a mount still is what it was when it was made, and what follows when it is not. Pure.

use caravan_types::job::BrokenMount;
use caravan_types::volume::ClaimId;
use std::collections::BTreeMap;

/// What is wrong with a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing is mounted any more, or something else.
    Changed,
    /// It is there, and its file system is not (its daemon died, its device is gone).
    Dead,
    /// Its file system does not answer; it may again.
    Silent,
}

/// A mount in trouble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// What.
    pub(crate) kind: Kind,
    /// Where.
    pub(crate) path: String,
    /// In words.
    pub(crate) reason: String,
}

/// Mounts in trouble, by claim.
pub(crate) type Troubles = BTreeMap<ClaimId, Trouble>;

/// How an allocation reacts to a mount in trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// Say it, and leave the tasks alone.
    Tell,
    /// End the tasks that use it, mount anew, start them again.
    Restart,
    /// Mount anew beneath the tasks that use it.
    Remount,
}

/// Decides. A file system that only does not answer may be asked for data that it has not written yet: nothing is
/// done to it, whatever the policy.
pub(crate) fn react(policy: BrokenMount, kind: Kind) -> Reaction {
    match (kind, policy) {
        (Kind::Silent, _) | (_, BrokenMount::Hold) => Reaction::Tell,
        (_, BrokenMount::Restart) => Reaction::Restart,
        (_, BrokenMount::Remount) => Reaction::Remount,
    }
}

/// What the answer of a file system to statfs(2) says about it. `None`: it is well, or says nothing about itself.
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
