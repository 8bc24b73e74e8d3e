//! Notifications about changes of interfaces, addresses and packet rules.

use super::{BUFFER, open};
use crate::Result;
use rustix::io::Errno;
use rustix::net::netlink::NETFILTER;
use rustix::net::{RecvFlags, recv};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// The multicast groups of interfaces and of their addresses, as bits (`RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`).
const LINK_GROUPS: u32 = 0x1 | 0x10;
/// The multicast group of packet rules, as a bit (`NFNLGRP_NFTABLES` is 7).
const RULE_GROUPS: u32 = 1 << 6;

/// A socket that becomes readable after a change in the namespace in which it was opened.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// Watches interfaces and their addresses.
    ///
    /// # Errors
    /// If the socket cannot be opened.
    pub fn links() -> Result<Self> {
        open(None, LINK_GROUPS).map(Self)
    }

    /// Watches packet rules.
    ///
    /// # Errors
    /// If the socket cannot be opened.
    pub fn rules() -> Result<Self> {
        open(Some(NETFILTER), RULE_GROUPS).map(Self)
    }

    /// Takes all notifications from the queue, without a wait. Returns whether there was one. Lost notifications count.
    pub fn drain(&self) -> bool {
        let mut buffer = vec![0; BUFFER];
        let mut any = false;
        loop {
            match recv(&self.0, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok(_) | Err(Errno::NOBUFS) => any = true,
                Err(Errno::INTR) => {}
                Err(_) => return any,
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
