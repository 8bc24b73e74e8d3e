//! The users that tasks run as, and the files that tasks may own.

use caravan_sys::dir::Owner;
use caravan_sys::user::Account;
use std::collections::BTreeSet;

/// The user and group of tasks with a root of their own, unless the job says otherwise: `nobody` and `nogroup` on
/// every Linux.
const NOBODY: u32 = 65534;

/// The user that a task runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TaskUser {
    /// The agent's own.
    Agent,
    /// `nobody`.
    Nobody,
    /// A name or number of the job file, with a group perhaps.
    Named(String),
}

impl TaskUser {
    /// Looks the user up, which may ask a directory service and take its time. A user that the host does not know is
    /// the agent's own: no task runs as that user.
    fn account(&self) -> Account {
        let account = |uid, gid| Account { uid, gid, groups: vec![gid], name: None, home: None };
        let agent = || account(caravan_sys::user::effective_uid(), caravan_sys::user::effective_gid());
        match self {
            Self::Agent => agent(),
            // Without root everything belongs to the agent's user, tasks included.
            _ if caravan_sys::user::effective_uid() != 0 => agent(),
            Self::Nobody => account(NOBODY, NOBODY),
            Self::Named(user) => caravan_sys::user::lookup(user).unwrap_or_else(|_| agent()),
        }
    }

    /// Looks up the user and the group of the files of the task.
    pub(crate) async fn owner(&self) -> Owner {
        let this = self.clone();
        let found = tokio::task::spawn_blocking(move || this.account()).await;
        found.map_or_else(|_| crate::alloc_dir::own_user(), |account| Owner::new(account.uid, account.gid))
    }
}

/// The users of an allocation's tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Users(Vec<TaskUser>);

impl Users {
    pub(crate) fn new(users: Vec<TaskUser>) -> Self {
        Self(users)
    }

    /// Looks all of them up, which may take its time.
    pub(crate) fn known(&self) -> KnownUsers {
        let mut known = KnownUsers::default();
        for account in self.0.iter().map(TaskUser::account) {
            known.first.get_or_insert(Owner::new(account.uid, account.gid));
            known.uids.insert(account.uid);
            known.gids.insert(account.gid);
            known.gids.extend(account.groups);
        }
        known
    }
}

/// Users and groups in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownUsers {
    first: Option<Owner>,
    uids: BTreeSet<u32>,
    gids: BTreeSet<u32>,
}

impl KnownUsers {
    /// The user ids.
    pub(crate) fn uids(&self) -> Vec<u32> {
        self.uids.iter().copied().collect()
    }

    /// Returns the owner that a file may have which claims to belong to `uid` and `gid`. Tasks of root may own files
    /// of everybody; others own their own.
    pub(crate) fn limit(&self, uid: u32, gid: u32) -> Owner {
        if self.uids.contains(&0) {
            return Owner::new(uid, gid);
        }
        let first = self.first.unwrap_or_else(crate::alloc_dir::own_user);
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
        assert_eq!(users(&[]).limit(33, 44), crate::alloc_dir::own_user());
        let unknown = users(&[TaskUser::Named("no-such-user".into())]);
        assert_eq!(unknown.uids(), [0]);
    }
}
