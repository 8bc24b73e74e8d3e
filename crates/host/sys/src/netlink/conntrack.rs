//! Connections that the kernel tracks (nfnetlink, `include/uapi/linux/netfilter/nfnetlink_conntrack.h` of Linux).

use super::message::{Attributes, Message, Received};
use super::nft::Version;
use super::{Connection, failed};
use crate::Result;
use rustix::net::netlink::NETFILTER;
use std::io::ErrorKind;
use std::net::IpAddr;

const GET: u16 = 0x101;
const DELETE: u16 = 0x102;
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const ID: u16 = 12;
const ZONE: u16 = 18;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
/// The attributes of a sender's address, of IPv4 and of IPv6.
const SOURCE: [u16; 2] = [1, 3];
/// The attributes of a receiver's address, of IPv4 and of IPv6.
const DESTINATION: [u16; 2] = [2, 4];
const PROTOCOL_NUMBER: u16 = 1;
const PROTOCOL_DESTINATION_PORT: u16 = 3;
/// The size of `struct nfgenmsg`.
const GENERIC: usize = 4;

/// The protocol number of UDP.
pub const UDP: u8 = 17;

/// The packets of a tracked connection in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The address of the sender.
    pub source: IpAddr,
    /// The address of the receiver.
    pub destination: IpAddr,
    /// The number of the protocol above IP.
    pub protocol: u8,
    /// The port of the receiver; 0 if the protocol has no ports.
    pub destination_port: u16,
}

/// A connection that the kernel tracks. Without translation, `reply` is `original` with both ends exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracked {
    /// The packets of the side that opened the connection, before their translation.
    pub original: Way,
    /// The packets of the other side, before their translation.
    pub reply: Way,
}

impl Tracked {
    /// Returns whether a predicate holds for an end of the connection, before or after translation.
    pub fn involves(&self, is_meant: impl Fn(&IpAddr) -> bool) -> bool {
        let ends =
            [self.original.source, self.original.destination, self.reply.source, self.reply.destination];
        ends.iter().any(is_meant)
    }
}

/// The bytes by which the kernel finds a tracked connection.
#[derive(Debug)]
struct Entry {
    family: u8,
    original: Vec<u8>,
    id: Option<Vec<u8>>,
    zone: Option<Vec<u8>>,
}

/// Removes the tracked connections of the versions for which a predicate holds, so that their packets follow the current
/// rules. Returns the count. The kernel walks through its whole table for each version, which takes milliseconds.
///
/// # Errors
/// If the kernel refuses. A kernel without tracked connections has none.
pub fn remove(versions: &[Version], is_unwanted: impl Fn(&Tracked) -> bool) -> Result<usize> {
    let mut connection = Connection::open(Some(NETFILTER))?;
    let mut count = 0;
    for (family, version) in [(2, Version::V4), (10, Version::V6)] {
        if !versions.contains(&version) {
            continue;
        }
        let list = Message::new(GET, 0, &[family, 0, 0, 0]);
        let found = match connection.dump(&list, |answer| matching(answer, family, &is_unwanted)) {
            Ok(found) => found,
            // The kernel has no such table, or its module is not loaded.
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::InvalidInput) => {
                continue;
            }
            Err(error) => return Err(failed("list", "the tracked connections")(error)),
        };
        for entry in found {
            let mut message = Message::new(DELETE, 0, &[entry.family, 0, 0, 0]);
            message.put(TUPLE_ORIGINAL | 0x8000, &entry.original);
            if let Some(id) = &entry.id {
                message.put(ID, id);
            }
            if let Some(zone) = &entry.zone {
                message.put(ZONE, zone);
            }
            match connection.request(message) {
                Ok(()) => count += 1,
                // The connection has ended meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(failed("remove", "a tracked connection")(error)),
            }
        }
    }
    Ok(count)
}

fn matching(answer: &Received<'_>, family: u8, is_unwanted: impl Fn(&Tracked) -> bool) -> Option<Entry> {
    let attributes = answer.attributes(GENERIC);
    let tracked = Tracked {
        original: way(attributes.within(TUPLE_ORIGINAL))?,
        reply: way(attributes.within(TUPLE_REPLY))?,
    };
    is_unwanted(&tracked).then_some(())?;
    Some(Entry {
        family,
        original: attributes.find(TUPLE_ORIGINAL)?.to_vec(),
        id: attributes.find(ID).map(<[u8]>::to_vec),
        zone: attributes.find(ZONE).map(<[u8]>::to_vec),
    })
}

fn way(tuple: Attributes<'_>) -> Option<Way> {
    let end =
        |kinds: [u16; 2]| kinds.iter().find_map(|kind| tuple.within(TUPLE_IP).find(*kind)).and_then(ip_of);
    let above = tuple.within(TUPLE_PROTOCOL);
    let port = above.find(PROTOCOL_DESTINATION_PORT).and_then(|bytes| bytes.try_into().ok());
    Some(Way {
        source: end(SOURCE)?,
        destination: end(DESTINATION)?,
        protocol: above.find(PROTOCOL_NUMBER).and_then(|bytes| bytes.first().copied())?,
        destination_port: port.map_or(0, u16::from_be_bytes),
    })
}

fn ip_of(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(Into::into),
        _ => <[u8; 16]>::try_from(bytes).ok().map(Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::nft::{Clause, Hook, Rules, Table, Transaction};
    use crate::netlink::watch::Watch;
    use crate::netlink::{link::Links, nft::Family};
    use crate::netns;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn connections_of_an_address_are_removed_and_changes_are_noticed() {
        netns::in_new(|| {
            let (links, watched) = (Watch::links().unwrap(), Watch::rules().unwrap());
            assert!(!links.drain() && !watched.drain());
            // A rule that looks at connections makes the kernel track them.
            let mut transaction = Transaction::default();
            let table = Table { family: Family::Inet, name: "t".into() };
            transaction.add_table(&table);
            transaction.add_chain(&table, "c", Hook::Postrouting);
            transaction.append_rule(&table, "c", &[Clause::Translated, Clause::Count], "");
            Rules::open().unwrap().commit(transaction).unwrap();
            assert!(watched.drain());
            Links::open().unwrap().add_loose_pair("a", "b").unwrap();
            assert!(links.drain() && !links.drain());
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let remove_of = |text: &str| {
                let address: IpAddr = text.parse().unwrap();
                remove(&[Version::V4, Version::V6], |tracked| tracked.involves(|end| *end == address))
                    .unwrap()
            };
            assert_eq!(remove_of("10.0.0.1"), 0);
            let port = listener.local_addr().unwrap().port();
            let is_known = |tracked: &Tracked| {
                let Tracked { original, reply } = tracked;
                assert_eq!((original.protocol, original.destination_port), (6, port));
                assert_eq!((reply.source, reply.destination), (original.destination, original.source));
                false
            };
            assert_eq!(remove(&[Version::V4], is_known).unwrap(), 0);
            assert_eq!(remove_of("127.0.0.1"), 1);
            assert_eq!(remove_of("127.0.0.1"), 0);
        })
        .unwrap();
    }
}
