//! Capabilities (capabilities(7)): names, sets, and dropping them.

use crate::{Error, Result};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
};
use std::fmt;
use std::str::FromStr;

/// Names in the kernel's order; the position is the capability's number.
const NAMES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];

/// One capability, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability(u8);

impl FromStr for Capability {
    type Err = Error;

    /// Parses `net_raw`, `NET_RAW` and `CAP_NET_RAW`.
    fn from_str(text: &str) -> Result<Self> {
        let lower = text.to_ascii_lowercase();
        let name = lower.strip_prefix("cap_").unwrap_or(&lower);
        NAMES
            .iter()
            .zip(0u8..)
            .find(|(n, _)| **n == name)
            .map(|(_, number)| Self(number))
            .ok_or_else(|| Error::UnknownName { kind: "capability", name: text.to_owned() })
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES[usize::from(self.0)])
    }
}

/// A set of capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapSet(u64);

impl CapSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);
    /// All capabilities, including those of later kernels.
    pub const ALL: Self = Self(!0);

    /// Creates a set from bits: capability `n` is bit `n`.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the bits: capability `n` is bit `n`.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Adds a capability.
    pub fn insert(&mut self, capability: Capability) {
        self.0 |= 1 << capability.0;
    }

    /// Removes a capability.
    pub fn remove(&mut self, capability: Capability) {
        self.0 &= !(1 << capability.0);
    }

    /// Returns whether the set contains a capability.
    pub fn contains(self, capability: Capability) -> bool {
        self.0 & (1 << capability.0) != 0
    }

    /// Returns the capabilities that both sets contain.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the caller's permitted capabilities, which it may use.
    pub fn permitted() -> Result<Self> {
        let sets = capabilities(None).map_err(Error::call("read capabilities"))?;
        Ok(Self(sets.permitted.bits()))
    }
}

/// Removes everything outside of `set` from the bounding set, so that no program executed later can gain it.
pub fn limit_bounding(set: CapSet) -> Result<()> {
    for number in 0..64u32 {
        let bit = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(bit) {
            Ok(true) if set.0 & (1 << number) == 0 => {
                remove_capability_from_bounding_set(bit).map_err(Error::call("drop a capability"))?;
            }
            Ok(_) => {}
            // The first number that this kernel does not have.
            Err(_) => break,
        }
    }
    Ok(())
}

/// Reduces the calling thread's effective, permitted and inheritable sets to their intersection with `set`. With
/// `ambient`, an executed program keeps them even if its user is not root.
pub fn keep_only(set: CapSet, ambient: bool) -> Result<()> {
    let set = set.intersection(CapSet::permitted()?);
    let flags = CapabilitySet::from_bits_retain(set.0);
    set_capabilities(None, CapabilitySets { effective: flags, permitted: flags, inheritable: flags })
        .map_err(Error::call("set capabilities"))?;
    clear_ambient_capability_set().map_err(Error::call("clear ambient capabilities"))?;
    if ambient {
        for number in (0..64u32).filter(|n| set.0 & (1 << n) != 0) {
            configure_capability_in_ambient_set(CapabilitySet::from_bits_retain(1 << number), true)
                .map_err(Error::call("keep a capability"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_each_spelling() {
        let expected: Capability = "net_raw".parse().unwrap();
        for spelling in ["NET_RAW", "CAP_NET_RAW", "cap_net_raw"] {
            assert_eq!(spelling.parse::<Capability>().unwrap(), expected);
        }
        assert_eq!(expected.to_string(), "net_raw");
        assert_eq!(CapabilitySet::NET_RAW.bits(), 1 << expected.0);
        assert_eq!(
            CapabilitySet::CHECKPOINT_RESTORE.bits(),
            1 << "checkpoint_restore".parse::<Capability>().unwrap().0
        );
        assert_eq!("fly".parse::<Capability>().unwrap_err().to_string(), "unknown capability \"fly\"");
    }

    #[test]
    fn sets_are_sets() {
        let (chown, kill): (Capability, Capability) = ("chown".parse().unwrap(), "kill".parse().unwrap());
        let mut set = CapSet::EMPTY;
        set.insert(chown);
        set.insert(kill);
        set.remove(chown);
        assert!(!set.contains(chown) && set.contains(kill));
        assert_eq!(CapSet::ALL.intersection(set), set);
        assert_eq!(CapSet::from_bits(set.bits()), set);
    }
}
