//! Tables of iptables-legacy, which nf_tables cannot see (the options of `linux/netfilter_ipv4/ip_tables.h`).

use crate::{Error, Result};
use nix::libc;
use rustix::net::{AddressFamily, SocketType, ipproto};
use std::io;
use std::os::fd::AsRawFd;

/// The file with the tables that exist in the network namespace of a thread. A request for another table would load the
/// kernel's module for it.
const TABLES: &str = "/proc/thread-self/net/ip_tables_names";
/// The table in which forwarded packets are dropped.
const FILTER: &str = "filter";

const GET_INFO: libc::c_int = 64;
const GET_ENTRIES: libc::c_int = 65;
/// The size of a table's name.
const NAME: usize = 32;
/// The size of `struct ipt_getinfo`: the name, the hooks, five first rules, five policies, the number of rules and their
/// size.
const INFO: usize = NAME + 4 + 5 * 4 + 5 * 4 + 4 + 4;
/// The offset of the rules in `struct ipt_get_entries`, after the name, the size and padding.
const ENTRIES: usize = NAME + 8;
/// The number of the hook for forwarded packets.
const FORWARD: usize = 2;
/// The size of the conditions on addresses, interfaces and protocols that begin `struct ipt_entry`.
const CONDITIONS: usize = 84;
const TARGET_OFFSET: usize = 88;
const NEXT_OFFSET: usize = 90;
/// The size of `struct ipt_entry`: the target of a rule without matches follows.
const ENTRY: usize = 112;
/// The offset of the name in `struct xt_entry_target`.
const TARGET_NAME: usize = 2;
/// The offset of the verdict in `struct xt_standard_target`.
const VERDICT: usize = 32;
const DROP: i32 = -1;
const ACCEPT: i32 = -2;
/// Maximum size of the rules that are read.
const MAX_SIZE: usize = 64 << 20;

/// Returns whether the table `filter` drops or rejects each forwarded packet that no rule with a condition decides about.
///
/// # Errors
/// If the kernel refuses.
pub fn drops_forwarded() -> Result<bool> {
    // The file does not exist where the kernel has no iptables.
    let tables = std::fs::read_to_string(TABLES).unwrap_or_default();
    if !tables.lines().any(|table| table.trim() == FILTER) {
        return Ok(false);
    }
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW))
        .map_err(Error::call("open a socket"))?;
    // The rules may change between both calls, and the second one then fails.
    for _ in 0..10 {
        let mut info = [0; INFO];
        info[..FILTER.len()].copy_from_slice(FILTER.as_bytes());
        option(&socket, GET_INFO, &mut info)?;
        let size = number(&info, INFO - 4).unwrap_or_default();
        let mut table = vec![0; ENTRIES + size.min(MAX_SIZE)];
        table[..FILTER.len()].copy_from_slice(FILTER.as_bytes());
        table[NAME..NAME + 4].copy_from_slice(&u32::try_from(size).unwrap_or_default().to_ne_bytes());
        match option(&socket, GET_ENTRIES, &mut table) {
            Ok(()) => return Ok(chain_drops(&info, &table[ENTRIES..])),
            Err(Error::Call { source, .. }) if source.raw_os_error() == Some(libc::EAGAIN) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::Call { operation: "read the rules of iptables", source: io::ErrorKind::WouldBlock.into() })
}

fn option(socket: &impl AsRawFd, name: libc::c_int, value: &mut [u8]) -> Result<()> {
    let mut size = libc::socklen_t::try_from(value.len()).unwrap_or_default();
    // SAFETY: the kernel writes at most `size` bytes to the value, which lives through the call.
    let done = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_IP, name, value.as_mut_ptr().cast(), &raw mut size)
    };
    if done != 0 {
        return Err(Error::Call {
            operation: "read the rules of iptables",
            source: io::Error::last_os_error(),
        });
    }
    Ok(())
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    usize::try_from(u32::from_ne_bytes(four.try_into().ok()?)).ok()
}

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    let two = bytes.get(at..at.checked_add(2)?)?;
    Some(usize::from(u16::from_ne_bytes(two.try_into().ok()?)))
}

/// Returns whether the first rule without conditions drops packets: the policy is the last one. `info` has the
/// offsets of the first rule and of the policy of each chain.
fn chain_drops(info: &[u8], entries: &[u8]) -> bool {
    let hook = |first: usize| number(info, NAME + 4 + first * 20 + FORWARD * 4);
    let (Some(mut at), Some(policy)) = (hook(0), hook(1)) else { return false };
    while at <= policy {
        let Some(entry) = entries.get(at..) else { return false };
        if let Some(drops) = drops_all(entry) {
            return drops;
        }
        match short(entry, NEXT_OFFSET) {
            Some(next) if next >= ENTRY => at += next,
            _ => return false,
        }
    }
    false
}

/// Returns whether a rule drops or rejects each packet that reaches the rule; `None` if the rule has a condition, or
/// does not decide about packets.
fn drops_all(entry: &[u8]) -> Option<bool> {
    let is_unconditional =
        entry.get(..CONDITIONS)?.iter().all(|byte| *byte == 0) && short(entry, TARGET_OFFSET)? == ENTRY;
    let target = entry.get(ENTRY..).filter(|_| is_unconditional)?;
    let name = target.get(TARGET_NAME..VERDICT - 1)?;
    match name.split(|byte| *byte == 0).next()? {
        b"REJECT" => Some(true),
        b"" => match i32::from_ne_bytes(target.get(VERDICT..VERDICT + 4)?.try_into().ok()?) {
            DROP => Some(true),
            ACCEPT => Some(false),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns;
    use std::process::Command;

    fn legacy(arguments: &str) {
        let status = Command::new("iptables-legacy").args(arguments.split(' ')).status();
        assert!(status.unwrap().success(), "{arguments}");
    }

    #[test]
    fn a_firewall_drops_by_its_policy_or_by_a_rule_without_conditions() {
        netns::in_new(|| {
            assert!(!drops_forwarded().unwrap(), "no table exists");
            for (arguments, expected) in [
                ("-S", false),
                ("-A INPUT -j DROP", false),
                ("-A FORWARD -p tcp -j ACCEPT", false),
                ("-A FORWARD -s 10.0.0.0/8 -j DROP", false),
                ("-A FORWARD -m conntrack --ctstate INVALID -j DROP", false),
                ("-N other", false),
                ("-A other -j DROP", false),
                ("-A FORWARD -j REJECT", true),
                ("-D FORWARD -j REJECT", false),
                ("-A FORWARD -j DROP", true),
                ("-D FORWARD -j DROP", false),
                ("-P FORWARD DROP", true),
                ("-A FORWARD -j ACCEPT", false),
                ("-A FORWARD -j DROP", false),
                ("-F FORWARD", true),
                ("-P FORWARD ACCEPT", false),
            ] {
                legacy(arguments);
                assert_eq!(drops_forwarded().unwrap(), expected, "{arguments}");
            }
        })
        .unwrap();
    }

    #[test]
    fn damaged_rules_end_the_search() {
        let mut info = [0; INFO];
        assert!(!chain_drops(&info, &[]));
        info[NAME + 4 + 20 + FORWARD * 4..][..4].copy_from_slice(&1000_u32.to_ne_bytes());
        assert!(!chain_drops(&info, &[0; 500]));
        assert!(!chain_drops(&[], &[]));
    }
}
