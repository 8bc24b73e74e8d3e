//! The addresses of allocations. Pure: the caller stores each assignment before its use, and each release after the end
//! of the use.

use crate::attachment::Addresses;
use crate::config::BridgeConfig;
use caravan_types::AllocId;
use std::collections::BTreeMap;

/// All addresses are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all {0} addresses of the bridge's network are in use")]
pub struct Full(pub u32);

/// The addresses in use.
#[derive(Clone, Debug)]
pub struct Pool {
    config: BridgeConfig,
    by_alloc: BTreeMap<AllocId, u32>,
    by_offset: BTreeMap<u32, AllocId>,
    /// The position of the last assigned address. The following ones are assigned first, so that a released address
    /// rests.
    last: u32,
}

impl Pool {
    /// Creates a pool without assignments, which continues after an address that was assigned before.
    pub fn new(config: BridgeConfig, last: Option<Addresses>) -> Self {
        let mut pool = Self { config, by_alloc: BTreeMap::new(), by_offset: BTreeMap::new(), last: 1 };
        pool.last = last.and_then(|addresses| pool.offset(&addresses)).unwrap_or(1);
        pool
    }

    /// Returns the position of addresses in the networks of the bridge; `None` if they are outside.
    fn offset(&self, addresses: &Addresses) -> Option<u32> {
        let offset = addresses.ipv4.to_bits().checked_sub(self.config.ipv4.network().to_bits())?;
        (self.config.offsets().contains(&offset) && self.at(offset) == *addresses).then_some(offset)
    }

    fn at(&self, offset: u32) -> Addresses {
        Addresses { ipv4: self.config.ipv4_at(offset), ipv6: self.config.ipv6_at(offset) }
    }

    /// Returns the addresses of an allocation.
    pub fn get(&self, alloc: &AllocId) -> Option<Addresses> {
        self.by_alloc.get(alloc).map(|offset| self.at(*offset))
    }

    /// Assigns addresses to an allocation, or returns its current ones.
    ///
    /// # Errors
    /// If all addresses are in use.
    pub fn assign(&mut self, alloc: &AllocId) -> Result<Addresses, Full> {
        if let Some(found) = self.get(alloc) {
            return Ok(found);
        }
        let offsets = self.config.offsets();
        let (first, end) = (*offsets.start(), *offsets.end());
        let after = self.last.clamp(first - 1, end);
        let free = (after + 1..=end).chain(first..=after).find(|offset| !self.by_offset.contains_key(offset));
        let offset = free.ok_or(Full(end - first + 1))?;
        self.put(alloc, offset);
        self.last = offset;
        Ok(self.at(offset))
    }

    fn put(&mut self, alloc: &AllocId, offset: u32) {
        self.by_alloc.insert(alloc.clone(), offset);
        self.by_offset.insert(offset, alloc.clone());
    }

    /// Restores an assignment of an earlier agent. Returns false if the addresses are not from the networks of the
    /// bridge, because the configuration has changed, or if another allocation has them.
    pub fn restore(&mut self, alloc: &AllocId, addresses: &Addresses) -> bool {
        let free = self.offset(addresses).filter(|offset| !self.by_offset.contains_key(offset));
        if let Some(offset) = free.filter(|_| !self.by_alloc.contains_key(alloc)) {
            self.put(alloc, offset);
            return true;
        }
        false
    }

    /// Releases the addresses of an allocation.
    pub fn release(&mut self, alloc: &AllocId) {
        if let Some(offset) = self.by_alloc.remove(alloc) {
            self.by_offset.remove(&offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn pool(subnet: &str, ipv6: &str) -> Pool {
        Pool::new(BridgeConfig::parse("", subnet, ipv6, false).unwrap(), None)
    }

    fn id(n: u32) -> AllocId {
        AllocId::from(format!("a{n}"))
    }

    #[test]
    fn addresses_go_round_and_a_full_network_says_so() {
        let mut pool = pool("10.0.0.0/29", "fd00::/64");
        let first = pool.assign(&id(1)).unwrap();
        assert_eq!(
            (first.ipv4.to_string().as_str(), first.ipv6.unwrap().to_string().as_str()),
            ("10.0.0.2", "fd00::2")
        );
        assert_eq!(pool.assign(&id(1)).unwrap(), first);
        pool.release(&id(1));
        assert_eq!(pool.assign(&id(2)).unwrap().ipv4.to_string(), "10.0.0.3", "a released address rests");
        for n in 3..=6 {
            pool.assign(&id(n)).unwrap();
        }
        assert_eq!(pool.assign(&id(7)), Err(Full(5)));
        pool.release(&id(4));
        pool.assign(&id(7)).unwrap();
    }

    #[test]
    fn assignments_survive_and_those_of_another_network_do_not() {
        let mut before = pool("10.0.0.0/24", "");
        let (one, two) = (before.assign(&id(1)).unwrap(), before.assign(&id(2)).unwrap());
        let mut after = Pool::new(BridgeConfig::parse("", "10.0.0.0/24", "", false).unwrap(), Some(two));
        assert!(after.restore(&id(1), &one));
        assert!(!after.restore(&id(3), &one), "another allocation has them");
        assert_eq!(after.assign(&id(4)).unwrap().ipv4.to_string(), "10.0.0.4");
        assert!(!pool("10.9.0.0/24", "").restore(&id(1), &one));
        assert!(!pool("10.0.0.0/24", "fd00::/64").restore(&id(1), &one), "the IPv6 address is missing");
    }

    proptest! {
        #[test]
        fn no_two_allocations_share_an_address(steps in proptest::collection::vec((0u32..12, any::<bool>()), 0..80)) {
            let mut pool = pool("10.0.0.0/28", "");
            let mut live: BTreeSet<u32> = BTreeSet::new();
            for (n, adds) in steps {
                if adds {
                    pool.assign(&id(n)).unwrap();
                    live.insert(n);
                } else {
                    pool.release(&id(n));
                    live.remove(&n);
                }
                let all: BTreeSet<Addresses> = live.iter().map(|n| pool.get(&id(*n)).unwrap()).collect();
                prop_assert_eq!(all.len(), live.len());
            }
        }
    }
}
