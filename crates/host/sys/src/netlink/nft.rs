//! Packet rules (nftables over nfnetlink; `include/uapi/linux/netfilter/nf_tables.h` of Linux has the names). Changes
//! are transactions: all take effect at the same moment, or none.

mod clause;
mod drops;

pub use clause::{Clause, Direction, Verdict};

use super::message::{Attributes, Message, Received, flag};
use super::{Connection, failed};
use crate::Result;
use rustix::net::netlink::NETFILTER;
use std::net::{IpAddr, SocketAddr};

const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = 0;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const GET_CHAIN: u16 = 4;
const NEW_RULE: u16 = 6;
const GET_RULE: u16 = 7;
const DELETE_RULE: u16 = 8;
const NEW_SET: u16 = 9;
const NEW_ELEMENT: u16 = 12;
const GET_ELEMENT: u16 = 13;
const DELETE_ELEMENT: u16 = 14;

const TABLE_NAME: u16 = 1;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
/// The verdicts drop and accept.
const POLICY_DROP: u32 = 0;
const POLICY_ACCEPT: u32 = 1;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_HANDLE: u16 = 3;
const RULE_EXPRESSIONS: u16 = 4;
const RULE_USERDATA: u16 = 7;
const SET_TABLE: u16 = 1;
const SET_NAME: u16 = 2;
const SET_FLAGS: u16 = 3;
const SET_KEY_TYPE: u16 = 4;
const SET_KEY_LENGTH: u16 = 5;
const SET_DATA_TYPE: u16 = 6;
const SET_DATA_LENGTH: u16 = 7;
const SET_ID: u16 = 10;
const ELEMENTS_TABLE: u16 = 1;
const ELEMENTS_SET: u16 = 2;
const ELEMENTS_LIST: u16 = 3;
const ELEMENT_KEY: u16 = 1;
const ELEMENT_DATA: u16 = 2;
const ELEMENT_USERDATA: u16 = 6;
const LIST_ITEM: u16 = 1;
const DATA_VALUE: u16 = 1;
/// The set maps keys to data.
const IS_MAP: u32 = 8;
/// The numbers by which `nft` names the types of keys; the kernel stores them only.
const TYPE_IPV4: u32 = 7;
const TYPE_IPV6: u32 = 8;
const TYPE_PROTOCOL: u32 = 12;
const TYPE_PORT: u32 = 13;
/// The bits of one type in the number of a concatenation.
const TYPE_BITS: u32 = 6;
/// The elements of one message, whose list must stay below 64 KiB.
const ELEMENTS_PER_MESSAGE: usize = 200;
/// The size of `struct nfgenmsg`.
const GENERIC: usize = 4;
/// Longest note in bytes.
const MAX_NOTE: usize = 120;

/// A family of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4 and IPv6.
    Inet,
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
}

impl Family {
    fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Ip => 2,
            Self::Ip6 => 10,
        }
    }
}

/// A version of the internet protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Version {
    /// Returns the version of an address.
    pub fn from_address(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    fn family(self) -> Family {
        match self {
            Self::V4 => Family::Ip,
            Self::V6 => Family::Ip6,
        }
    }

    /// Returns the size of an address in bytes.
    fn size(self) -> usize {
        match self {
            Self::V4 => 4,
            Self::V6 => 16,
        }
    }

    fn type_number(self) -> u32 {
        match self {
            Self::V4 => TYPE_IPV4,
            Self::V6 => TYPE_IPV6,
        }
    }
}

/// A transport protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The family of the table.
    pub family: Family,
    /// The name of the table.
    pub name: String,
}

/// The place of a chain in the path of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Address translation of packets that arrive.
    Prerouting,
    /// Address translation of packets of this host.
    Output,
    /// Source address translation of packets that leave.
    Postrouting,
    /// Filter of packets that pass through.
    Forward,
}

impl Hook {
    fn number(self) -> u32 {
        match self {
            Self::Prerouting => 0,
            Self::Forward => 2,
            Self::Output => 3,
            Self::Postrouting => 4,
        }
    }

    fn kind(self) -> &'static str {
        if self == Self::Forward { "filter" } else { "nat" }
    }

    fn priority(self) -> i32 {
        match self {
            Self::Prerouting | Self::Output => -100,
            Self::Postrouting => 100,
            Self::Forward => 0,
        }
    }
}

/// A map from ports of the host to ports of allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortMap {
    /// The name within its table.
    pub name: &'static str,
    /// The version of the addresses.
    pub version: Version,
    /// Whether the host's address is part of the key. Otherwise all addresses of the host are meant.
    pub by_address: bool,
}

impl PortMap {
    fn key_length(self) -> usize {
        if self.by_address { self.version.size() + 8 } else { 8 }
    }

    fn key_type(self) -> u32 {
        let ports = (TYPE_PROTOCOL << TYPE_BITS) | TYPE_PORT;
        if self.by_address { (self.version.type_number() << (2 * TYPE_BITS)) | ports } else { ports }
    }
}

/// An element of a [`PortMap`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    /// The host's address, in maps with addresses.
    pub address: Option<IpAddr>,
    /// The protocol.
    pub transport: Transport,
    /// The host's port.
    pub port: u16,
    /// The destination.
    pub to: SocketAddr,
    /// The note of the element, which `nft` shows as a comment.
    pub note: String,
}

/// The properties of a rule by which its creator recognizes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The chain of the rule.
    pub chain: String,
    /// The kernel's number of the rule.
    pub handle: u64,
    /// The note of the rule; empty if it has none.
    pub note: String,
}

/// A chain of any table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The table of the chain.
    pub table: String,
    /// The name of the chain.
    pub name: String,
    /// Whether the kernel passes forwarded packets to the chain, and its policy or a rule without conditions drops them.
    pub drops_forwarded: bool,
}

struct Change {
    message: Message,
    operation: &'static str,
    object: String,
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.operation, self.object)
    }
}

/// Changes that take effect together.
#[derive(Debug, Default)]
pub struct Transaction(Vec<Change>);

impl Transaction {
    /// Returns whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn push(&mut self, message: Message, operation: &'static str, object: String) {
        self.0.push(Change { message, operation, object });
    }

    /// Adds a table, unless it exists.
    pub fn add_table(&mut self, table: &Table) {
        let mut message = new(NEW_TABLE, flag::CREATE, table.family);
        message.text(TABLE_NAME, &table.name);
        self.push(message, "create", format!("table {}", table.name));
    }

    /// Deletes a table with its content.
    pub fn delete_table(&mut self, table: &Table) {
        let mut message = new(DELETE_TABLE, 0, table.family);
        message.text(TABLE_NAME, &table.name);
        self.push(message, "delete", format!("table {}", table.name));
    }

    /// Adds a chain that packets pass at a hook.
    pub fn add_chain(&mut self, table: &Table, name: &str, hook: Hook) {
        let mut message = new(NEW_CHAIN, flag::CREATE, table.family);
        message.text(CHAIN_TABLE, &table.name).text(CHAIN_NAME, name);
        message.nest(CHAIN_HOOK, |own| {
            own.big(HOOK_NUMBER, hook.number()).put(HOOK_PRIORITY, &hook.priority().to_be_bytes());
        });
        message.big(CHAIN_POLICY, POLICY_ACCEPT).text(CHAIN_TYPE, hook.kind());
        self.push(message, "create", format!("chain {name}"));
    }

    /// Makes a chain at a hook drop the packets about which none of its rules decides.
    pub fn drop_by_default(&mut self, table: &Table, name: &str) {
        let mut message = new(NEW_CHAIN, 0, table.family);
        message.text(CHAIN_TABLE, &table.name).text(CHAIN_NAME, name).big(CHAIN_POLICY, POLICY_DROP);
        self.push(message, "change", format!("chain {name}"));
    }

    /// Adds an empty map.
    pub fn add_map(&mut self, table: &Table, map: PortMap) {
        let data = (map.version.type_number() << TYPE_BITS) | TYPE_PORT;
        let id = u32::try_from(self.0.len() + 1).unwrap_or(u32::MAX);
        let mut message = new(NEW_SET, flag::CREATE, table.family);
        message.text(SET_TABLE, &table.name).text(SET_NAME, map.name).big(SET_FLAGS, IS_MAP);
        message.big(SET_KEY_TYPE, map.key_type()).big(SET_KEY_LENGTH, length(map.key_length()));
        message.big(SET_DATA_TYPE, data).big(SET_DATA_LENGTH, length(map.version.size() + 4));
        message.big(SET_ID, id);
        self.push(message, "create", format!("map {}", map.name));
    }

    /// Appends a rule to a chain.
    pub fn append_rule(&mut self, table: &Table, chain: &str, clauses: &[Clause], note: &str) {
        self.rule(flag::CREATE | flag::APPEND, table, chain, clauses, note);
    }

    /// Inserts a rule as the first of a chain.
    pub fn insert_rule(&mut self, table: &Table, chain: &str, clauses: &[Clause], note: &str) {
        self.rule(flag::CREATE, table, chain, clauses, note);
    }

    fn rule(&mut self, flags: u16, table: &Table, chain: &str, clauses: &[Clause], note: &str) {
        let mut message = new(NEW_RULE, flags, table.family);
        message.text(RULE_TABLE, &table.name).text(RULE_CHAIN, chain);
        message.nest(RULE_EXPRESSIONS, |list| {
            for clause in clauses {
                clause.write(list);
            }
        });
        message.put(RULE_USERDATA, &note_data(note));
        self.push(message, "add", format!("a rule to chain {chain}"));
    }

    /// Deletes a rule.
    pub fn delete_rule(&mut self, table: &Table, rule: &Rule) {
        let mut message = new(DELETE_RULE, 0, table.family);
        message.text(RULE_TABLE, &table.name).text(RULE_CHAIN, &rule.chain);
        message.put(RULE_HANDLE, &rule.handle.to_be_bytes());
        self.push(message, "delete", format!("a rule of chain {}", rule.chain));
    }

    /// Adds elements to a map. An element whose key exists with another destination makes the transaction fail
    /// (`EEXIST`).
    pub fn add_elements(&mut self, table: &Table, map: PortMap, elements: &[Element]) {
        for part in elements.chunks(ELEMENTS_PER_MESSAGE) {
            let message = element_message(NEW_ELEMENT, flag::CREATE | flag::EXCL, table, map, part);
            self.push(message, "map", ports_of(part));
        }
    }

    /// Deletes elements of a map.
    pub fn delete_elements(&mut self, table: &Table, map: PortMap, elements: &[Element]) {
        for part in elements.chunks(ELEMENTS_PER_MESSAGE) {
            let message = element_message(DELETE_ELEMENT, 0, table, map, part);
            self.push(message, "unmap", ports_of(part));
        }
    }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("keys and values have a few bytes")
}

fn ports_of(elements: &[Element]) -> String {
    match elements {
        [one] => format!("port {} of the node", one.port),
        many => format!("{} ports of the node", many.len()),
    }
}

fn new(kind: u16, flags: u16, family: Family) -> Message {
    Message::new((SUBSYSTEM << 8) | kind, flags, &[family.number(), 0, 0, 0])
}

/// Returns the data in which `nft` stores comments: type 0, the length, the text with a zero byte.
fn note_data(note: &str) -> Vec<u8> {
    let mut end = note.len().min(MAX_NOTE);
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    let mut data = vec![0, u8::try_from(end + 1).expect("notes have at most 120 bytes")];
    data.extend_from_slice(&note.as_bytes()[..end]);
    data.push(0);
    data
}

fn note_of(data: Option<&[u8]>) -> String {
    let text = match data {
        Some([0, length, rest @ ..]) => {
            rest.get(..usize::from(*length).saturating_sub(1)).unwrap_or_default()
        }
        _ => &[],
    };
    String::from_utf8_lossy(text).into_owned()
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// Returns a port as a register has it: in network byte order, filled up to four bytes.
fn port_word(port: u16) -> [u8; 4] {
    let [high, low] = port.to_be_bytes();
    [high, low, 0, 0]
}

fn element_message(kind: u16, flags: u16, table: &Table, map: PortMap, elements: &[Element]) -> Message {
    let mut message = new(kind, flags, table.family);
    message.text(ELEMENTS_TABLE, &table.name).text(ELEMENTS_SET, map.name);
    message.nest(ELEMENTS_LIST, |list| {
        for element in elements {
            list.nest(LIST_ITEM, |item| {
                let mut key = element.address.filter(|_| map.by_address).map_or_else(Vec::new, octets);
                key.extend_from_slice(&[element.transport.number(), 0, 0, 0]);
                key.extend_from_slice(&port_word(element.port));
                item.nest(ELEMENT_KEY, |data| {
                    data.put(DATA_VALUE, &key);
                });
                if kind == NEW_ELEMENT {
                    let mut to = octets(element.to.ip());
                    to.extend_from_slice(&port_word(element.to.port()));
                    item.nest(ELEMENT_DATA, |data| {
                        data.put(DATA_VALUE, &to);
                    });
                    item.put(ELEMENT_USERDATA, &note_data(&element.note));
                }
            });
        }
    });
    message
}

/// Splits an address off the front of a key or a value.
fn split_address(bytes: &[u8], version: Version) -> Option<(IpAddr, &[u8])> {
    let (ip, rest) = bytes.split_at_checked(version.size())?;
    let ip = match version {
        Version::V4 => IpAddr::from(<[u8; 4]>::try_from(ip).ok()?),
        Version::V6 => IpAddr::from(<[u8; 16]>::try_from(ip).ok()?),
    };
    Some((ip, rest))
}

fn read_element(item: Attributes<'_>, map: PortMap) -> Option<Element> {
    let key = item.within(ELEMENT_KEY).find(DATA_VALUE)?;
    let (address, key) = match map.by_address {
        true => split_address(key, map.version).map(|(ip, rest)| (Some(ip), rest))?,
        false => (None, key),
    };
    let [protocol, _, _, _, high, low, ..] = *key else { return None };
    let transport = [Transport::Tcp, Transport::Udp].into_iter().find(|known| known.number() == protocol)?;
    let (ip, rest) = split_address(item.within(ELEMENT_DATA).find(DATA_VALUE)?, map.version)?;
    let [to_high, to_low, ..] = *rest else { return None };
    Some(Element {
        address,
        transport,
        port: u16::from_be_bytes([high, low]),
        to: SocketAddr::new(ip, u16::from_be_bytes([to_high, to_low])),
        note: note_of(item.find(ELEMENT_USERDATA)),
    })
}

/// A connection about the packet rules of the namespace in which it was opened, also from other namespaces.
#[derive(Debug)]
pub struct Rules(Connection);

impl Rules {
    /// Opens a connection in the namespace of the calling thread.
    ///
    /// # Errors
    /// If the socket cannot be opened.
    pub fn open() -> Result<Self> {
        Connection::open(Some(NETFILTER)).map(Self)
    }

    /// Carries out a transaction.
    ///
    /// # Errors
    /// If the kernel refuses a change; then nothing changes.
    pub fn commit(&mut self, transaction: Transaction) -> Result<()> {
        let edge = |kind| Message::new(kind, 0, &[0, 0, 0, 10]);
        let (messages, objects): (Vec<_>, Vec<_>) = transaction
            .0
            .into_iter()
            .map(|Change { message, operation, object }| (message, (operation, object)))
            .unzip();
        self.0.transact(edge(BATCH_BEGIN), messages, edge(BATCH_END)).map_err(|(at, error)| {
            let named = objects.into_iter().nth(at);
            let (operation, object) = named.unwrap_or(("change", "the packet rules".to_owned()));
            failed(operation, object)(error)
        })
    }

    /// Returns the rules of a table; none if it does not exist.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn rules(&mut self, table: &Table) -> Result<Vec<Rule>> {
        let mut message = new(GET_RULE, 0, table.family);
        message.text(RULE_TABLE, &table.name);
        let read = |answer: &Received<'_>| {
            let attributes = answer.attributes(GENERIC);
            // Old kernels list the rules of all tables.
            (attributes.text(RULE_TABLE)? == table.name).then_some(())?;
            Some(Rule {
                chain: attributes.text(RULE_CHAIN)?,
                handle: u64::from_be_bytes(attributes.find(RULE_HANDLE)?.try_into().ok()?),
                note: note_of(attributes.find(RULE_USERDATA)),
            })
        };
        absent_is_empty(self.0.dump(&message, read))
            .map_err(failed("list", format!("the rules of table {}", table.name)))
    }

    /// Returns the elements of a map; none if the map does not exist.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn elements(&mut self, table: &Table, map: PortMap) -> Result<Vec<Element>> {
        let mut message = new(GET_ELEMENT, 0, table.family);
        message.text(ELEMENTS_TABLE, &table.name).text(ELEMENTS_SET, map.name);
        let read = |answer: &Received<'_>| {
            let items = answer.attributes(GENERIC).within(ELEMENTS_LIST);
            Some(items.filter_map(|(_, item)| read_element(Attributes(item), map)).collect::<Vec<_>>())
        };
        let parts = absent_is_empty(self.0.dump(&message, read))
            .map_err(failed("list", format!("the ports of table {}", table.name)))?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// Returns all chains of a family.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn chains(&mut self, family: Family) -> Result<Vec<Chain>> {
        let read = |answer: &Received<'_>| {
            let attributes = answer.attributes(GENERIC);
            let big = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_be_bytes);
            let hook = attributes.within(CHAIN_HOOK).find(HOOK_NUMBER).and_then(big);
            let policy = attributes.find(CHAIN_POLICY).and_then(big);
            let is_passed_forwarded = hook == Some(Hook::Forward.number());
            let chain = Chain {
                table: attributes.text(CHAIN_TABLE)?,
                name: attributes.text(CHAIN_NAME)?,
                drops_forwarded: is_passed_forwarded && policy == Some(POLICY_DROP),
            };
            Some((chain, is_passed_forwarded))
        };
        let found = absent_is_empty(self.0.dump(&new(GET_CHAIN, 0, family), read))
            .map_err(failed("list", "the chains"))?;
        let is_open = |(chain, is_passed): &(Chain, bool)| *is_passed && !chain.drops_forwarded;
        let droppers = if found.iter().any(is_open) { self.droppers(family)? } else { Vec::new() };
        let finished = found.into_iter().map(|(mut chain, is_passed)| {
            let is_dropper =
                droppers.iter().any(|(table, name)| (table, name) == (&chain.table, &chain.name));
            chain.drops_forwarded |= is_passed && is_dropper;
            chain
        });
        Ok(finished.collect())
    }

    /// Returns the table and the name of chains whose first rule without conditions drops packets.
    fn droppers(&mut self, family: Family) -> Result<Vec<(String, String)>> {
        let read = |answer: &Received<'_>| {
            let attributes = answer.attributes(GENERIC);
            let drops = drops::drops_all(attributes.within(RULE_EXPRESSIONS))?;
            Some(((attributes.text(RULE_TABLE)?, attributes.text(RULE_CHAIN)?), drops))
        };
        let rules = absent_is_empty(self.0.dump(&new(GET_RULE, 0, family), read));
        let rules = rules.map_err(failed("list", "the rules"))?;
        let mut first = std::collections::BTreeMap::new();
        for (chain, drops) in rules {
            first.entry(chain).or_insert(drops);
        }
        Ok(first.into_iter().filter_map(|(chain, drops)| drops.then_some(chain)).collect())
    }
}

/// Replaces the error that a table or a map does not exist by an empty list.
fn absent_is_empty<T>(list: std::io::Result<Vec<T>>) -> std::io::Result<Vec<T>> {
    match list {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
