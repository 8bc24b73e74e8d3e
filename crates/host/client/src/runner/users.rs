//! The users that tasks run as, and the files that tasks may own.

use caravan_sys::dir::Owner;
use caravan_sys::user::Account;
use std::collections::BTreeSet;

/// The default user and group of tasks with a separate root: `nobody` and `nogroup` on every Linux.
const NOBODY: u32 = 65534;

/// The user that a task runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TaskUser {
    /// The agent's own user.
    Agent,
    /// The user `nobody`.
    Nobody,
    /// A user name or number of the job file, with an optional group.
    Named(String),
    /// A user that the client chose; its group has the same number.
    Dynamic(u32),
}

impl TaskUser {
    /// Looks up the user, which may query a directory service and be slow. Returns `None` if the host has no such
    /// user; then no task runs as that user.
    fn account(&self) -> Option<Account> {
        let account = |uid, gid| Account { uid, gid, groups: vec![gid], name: None, home: None };
        let agent = || account(caravan_sys::user::effective_uid(), caravan_sys::user::effective_gid());
        match self {
            Self::Agent => Some(agent()),
            // Without root, everything belongs to the agent's user, tasks included.
            _ if caravan_sys::user::effective_uid() != 0 => Some(agent()),
            Self::Nobody => Some(account(NOBODY, NOBODY)),
            Self::Dynamic(uid) => Some(account(*uid, *uid)),
            Self::Named(user) => caravan_sys::user::lookup(user).ok(),
        }
    }

    /// Looks up the owner and group of the task's files, if the host has the user.
    pub(crate) async fn known_owner(&self) -> Option<Owner> {
        let this = self.clone();
        let found = tokio::task::spawn_blocking(move || this.account()).await;
        found.ok().flatten().map(|account| Owner::new(account.uid, account.gid))
    }

    /// Looks up the owner and group of the task's files. If the host has no such user, this is `nobody`: the driver
    /// refuses the task.
    pub(crate) async fn owner(&self) -> Owner {
        self.known_owner().await.unwrap_or_else(unknown_owner)
    }
}

/// Returns the owner of files whose user the host does not have.
pub(super) fn unknown_owner() -> Owner {
    match caravan_sys::user::effective_uid() {
        0 => Owner::new(NOBODY, NOBODY),
        _ => crate::alloc_dir::own_user(),
    }
}

/// The users of an allocation's tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Users(Vec<TaskUser>);

impl Users {
    pub(crate) fn new(users: Vec<TaskUser>) -> Self {
        Self(users)
    }

    /// Looks up all users, which may be slow.
    pub(crate) fn known(&self) -> KnownUsers {
        let mut known = KnownUsers::default();
        for account in self.0.iter().filter_map(TaskUser::account) {
            known.first.get_or_insert(Owner::new(account.uid, account.gid));
            known.uids.insert(account.uid);
            known.gids.insert(account.gid);
            known.gids.extend(account.groups);
        }
        known
    }
}

/// Numeric user and group ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownUsers {
    first: Option<Owner>,
    uids: BTreeSet<u32>,
    gids: BTreeSet<u32>,
}

impl KnownUsers {
    /// Returns the ids that may own files of the allocation's tasks.
    pub(crate) fn uids(&self) -> Vec<u32> {
        self.uids.iter().copied().collect()
    }

    /// Returns the owner to apply to a file that claims to belong to `uid` and `gid`. Tasks of root may own files of
    /// every user; other tasks only their own.
    pub(crate) fn limit(&self, uid: u32, gid: u32) -> Owner {
        if self.uids.contains(&0) {
            return Owner::new(uid, gid);
        }
        let first = self.first.unwrap_or_else(unknown_owner);
        Owner {
            uid: if self.uids.contains(&uid) { Some(uid) } else { first.uid },
            gid: if self.gids.contains(&gid) { Some(gid) } else { first.gid },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_users_of_the_allocation() {
        let users = |users: &[TaskUser]| Users::new(users.to_vec()).known();
        let two = users(&[TaskUser::Nobody, TaskUser::Named("1234:99".into())]);
        assert_eq!(two.uids(), [1234, NOBODY]);
        assert_eq!(two.limit(1234, NOBODY), Owner::new(1234, NOBODY));
        assert_eq!(two.limit(0, 0), Owner::new(NOBODY, NOBODY));
        assert_eq!(two.limit(1234, 7), Owner::new(1234, NOBODY));
        let root = users(&[TaskUser::Nobody, TaskUser::Agent]);
        assert_eq!(root.limit(33, 44), Owner::new(33, 44));
        assert_eq!(users(&[]).limit(0, 0), Owner::new(NOBODY, NOBODY));
    }

    #[tokio::test]
    async fn a_user_that_the_host_does_not_know_owns_nothing() {
        let unknown = TaskUser::Named("no-such-user".into());
        assert_eq!(unknown.owner().await, Owner::new(NOBODY, NOBODY));
        let alone = Users::new(vec![unknown.clone()]).known();
        assert_eq!(alone.uids(), [0; 0]);
        for (uid, gid) in [(0, 0), (33, 44)] {
            assert_eq!(alone.limit(uid, gid), Owner::new(NOBODY, NOBODY));
        }
        let beside = Users::new(vec![unknown.clone(), TaskUser::Named("1234:99".into())]).known();
        assert_eq!(beside.uids(), [1234]);
        assert_eq!(beside.limit(0, 0), Owner::new(1234, 99));
        // The task of root keeps its rights.
        let root = Users::new(vec![unknown, TaskUser::Agent]).known();
        assert_eq!(root.limit(33, 44), Owner::new(33, 44));
    }
}
