//! Lists of user and group ids that tasks may not run as.

use crate::{Error, Result};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Ids as the agent's configuration lists them: `0,10-20,1000`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdRanges(Vec<RangeInclusive<u32>>);

impl IdRanges {
    /// Returns whether the list contains an id.
    pub fn contains(&self, id: u32) -> bool {
        self.0.iter().any(|range| range.contains(&id))
    }

    /// Refuses an account whose user or groups the lists contain.
    pub(crate) fn check(users: &Self, groups: &Self, account: &caravan_sys::user::Account) -> Result<()> {
        if users.contains(account.uid) {
            return Err(Error::Config(format!(
                "running as user id {} is not allowed on this node",
                account.uid
            )));
        }
        let denied = std::iter::once(&account.gid).chain(&account.groups).find(|gid| groups.contains(**gid));
        match denied {
            Some(gid) => Err(Error::Config(format!("running as group id {gid} is not allowed on this node"))),
            None => Ok(()),
        }
    }
}

impl FromStr for IdRanges {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |part: &str| {
            Error::Config(format!("{part:?} is neither an id nor a range of ids such as \"10-20\""))
        };
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let ranges = parts.map(|part| {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            match (low.trim().parse(), high.trim().parse()) {
                (Ok(low), Ok(high)) if low <= high => Ok(low..=high),
                _ => Err(bad(part)),
            }
        });
        Ok(Self(ranges.collect::<Result<_>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_hold_ids_and_ranges() {
        let list: IdRanges = "0, 10-20,".parse().unwrap();
        assert!(list.contains(0) && list.contains(10) && list.contains(20));
        assert!(!list.contains(1) && !list.contains(21));
        assert!(!IdRanges::default().contains(0));
        for bad in ["x", "5-1", "1-2-3"] {
            assert!(bad.parse::<IdRanges>().unwrap_err().to_string().contains(bad), "{bad}");
        }
    }
}
