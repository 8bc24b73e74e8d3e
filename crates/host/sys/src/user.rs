//! Users and groups of the host.

use crate::{Error, Result};
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use std::ffi::CString;

/// The user and groups of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Login name, if the user has an entry on the host.
    pub name: Option<String>,
    /// Home directory, if the user has an entry on the host.
    pub home: Option<std::path::PathBuf>,
}

/// Finds a user given as `name`, `uid`, `name:group` or `uid:gid`. A number needs no entry on the host; the group
/// then has the same number.
pub fn lookup(spec: &str) -> Result<Account> {
    let (user, group) = match spec.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (spec, None),
    };
    let mut account = find_user(user)?;
    if let Some(group) = group {
        account.gid = find_group(group)?;
        account.groups = vec![account.gid];
    }
    Ok(account)
}

/// Returns the effective user id of the calling process.
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the effective group id of the calling process.
pub fn effective_gid() -> u32 {
    rustix::process::getegid().as_raw()
}

fn find_user(user: &str) -> Result<Account> {
    let failed =
        |errno: nix::Error| Error::Call { operation: "read the users of the host", source: errno.into() };
    let number: Option<u32> = user.parse().ok();
    let found = match number {
        Some(uid) => User::from_uid(Uid::from_raw(uid)),
        None => User::from_name(user),
    }
    .map_err(failed)?;
    match (found, number) {
        (Some(found), _) => {
            let name = CString::new(found.name.as_bytes())
                .map_err(|_| Error::UnknownName { kind: "user", name: user.to_owned() })?;
            let groups = getgrouplist(&name, found.gid).map_err(failed)?;
            Ok(Account {
                uid: found.uid.as_raw(),
                gid: found.gid.as_raw(),
                groups: groups.into_iter().map(Gid::as_raw).collect(),
                name: Some(found.name),
                home: Some(found.dir),
            })
        }
        (None, Some(uid)) => Ok(Account { uid, gid: uid, groups: vec![uid], name: None, home: None }),
        (None, None) => Err(Error::UnknownName { kind: "user", name: user.to_owned() }),
    }
}

fn find_group(group: &str) -> Result<u32> {
    if let Ok(gid) = group.parse() {
        return Ok(gid);
    }
    Group::from_name(group)
        .map_err(|errno| Error::Call { operation: "read the groups of the host", source: errno.into() })?
        .map(|g| g.gid.as_raw())
        .ok_or_else(|| Error::UnknownName { kind: "group", name: group.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let root = lookup("root").unwrap();
        assert_eq!((root.uid, root.gid, root.name.as_deref()), (0, 0, Some("root")));
        assert_eq!(lookup("0").unwrap(), root);
        let stranger = lookup("54321").unwrap();
        assert_eq!((stranger.uid, stranger.gid, stranger.name), (54321, 54321, None));
        assert_eq!(lookup("0:7").unwrap().gid, 7);
        assert_eq!(lookup("no-such-user").unwrap_err().to_string(), "unknown user \"no-such-user\"");
        assert_eq!(lookup("root:no-such-group").unwrap_err().to_string(), "unknown group \"no-such-group\"");
    }
}
