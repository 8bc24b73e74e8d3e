//! Connections that the kernel tracks (nfnetlink, `include/uapi/linux/netfilter/nfnetlink_conntrack.h` of Linux).

use super::message::{Attributes, Message, Received};
use super::{Connection, failed};
use crate::Result;
use rustix::net::netlink::NETFILTER;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::IpAddr;

const GET: u16 = 0x101;
const DELETE: u16 = 0x102;
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const ID: u16 = 12;
const ZONE: u16 = 18;
const TUPLE_IP: u16 = 1;
/// The size of `struct nfgenmsg`.
const GENERIC: usize = 4;

/// A tracked connection: the bytes by which the kernel finds it.
#[derive(Debug)]
struct Entry {
    family: u8,
    original: Vec<u8>,
    id: Option<Vec<u8>>,
    zone: Option<Vec<u8>>,
}

/// Removes the tracked connections of addresses, so that packets of these connections follow the current rules. Returns
/// the count.
///
/// # Errors
/// If the kernel refuses. A kernel without tracked connections has none.
pub fn remove(addresses: &BTreeSet<IpAddr>) -> Result<usize> {
    let mut connection = Connection::open(Some(NETFILTER))?;
    let mut count = 0;
    for (family, is_ours) in [(2, IpAddr::is_ipv4 as fn(&IpAddr) -> bool), (10, IpAddr::is_ipv6)] {
        if !addresses.iter().any(is_ours) {
            continue;
        }
        let list = Message::new(GET, 0, &[family, 0, 0, 0]);
        let found = match connection.dump(&list, |answer| matching(answer, family, addresses)) {
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
                // It has ended meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(failed("remove", "a tracked connection")(error)),
            }
        }
    }
    Ok(count)
}

fn matching(answer: &Received<'_>, family: u8, addresses: &BTreeSet<IpAddr>) -> Option<Entry> {
    let attributes = answer.attributes(GENERIC);
    let of_tuple = |tuple: u16| attributes.within(tuple).within(TUPLE_IP);
    let known = |part: Attributes<'_>| {
        let mut part = part;
        part.any(|(_, bytes)| ip_of(bytes).is_some_and(|ip| addresses.contains(&ip)))
    };
    (known(of_tuple(TUPLE_ORIGINAL)) || known(of_tuple(TUPLE_REPLY))).then_some(())?;
    Some(Entry {
        family,
        original: attributes.find(TUPLE_ORIGINAL)?.to_vec(),
        id: attributes.find(ID).map(<[u8]>::to_vec),
        zone: attributes.find(ZONE).map(<[u8]>::to_vec),
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
            let of = |text: &str| BTreeSet::from([text.parse().unwrap()]);
            assert_eq!(remove(&of("10.0.0.1")).unwrap(), 0);
            assert_eq!(remove(&of("127.0.0.1")).unwrap(), 1);
            assert_eq!(remove(&of("127.0.0.1")).unwrap(), 0);
        })
        .unwrap();
    }
}
