//! The parts of rules: conditions and effects, and their expressions in the kernel's virtual machine.

use super::super::message::Message;
use super::{PortMap, Version, length, octets};
use std::net::IpAddr;

const LIST_ITEM: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;
/// The register of verdicts.
const VERDICT: u32 = 0;
/// The first register of four bytes; the others follow.
const FIRST: u32 = 8;
const IS_EQUAL: u32 = 0;
const IS_DIFFERENT: u32 = 1;

const META_INPUT_NAME: u32 = 6;
const META_OUTPUT_NAME: u32 = 7;
const META_FAMILY: u32 = 15;
const META_TRANSPORT: u32 = 16;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
/// The routing table's word for an address of this host (`RTN_LOCAL`).
const LOCAL: u32 = 2;
/// The key of a connection's status, and the bit that its destination was translated (`IPS_DST_NAT`).
const CT_STATUS: u32 = 2;
const DESTINATION_TRANSLATED: u32 = 32;

/// The side of a packet whose interface or address a clause tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The interface on which the packet arrived, its source.
    From,
    /// The interface by which the packet leaves, its destination.
    To,
}

/// The effect of a rule on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet passes this chain.
    Accept,
    /// The packet is dropped.
    Drop,
    /// The packet continues in the calling chain.
    Return,
    /// The packet passes another chain of the table first.
    Jump(String),
}

/// A part of a rule, in the order in which the kernel evaluates them. A condition that does not hold ends the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clause {
    /// The packet uses an interface.
    Interface(Direction, String),
    /// An address of the packet is within a network.
    Within(Direction, IpAddr, u8),
    /// An address of the packet is outside of a network of its version.
    Outside(Direction, IpAddr, u8),
    /// The destination is an address of this host.
    LocalDestination,
    /// The destination of the connection was translated.
    Translated,
    /// Counts the packets.
    Count,
    /// Sends the packet to the destination that a map has for its port.
    Redirect(PortMap),
    /// Replaces the source by the address of the interface by which the packet leaves.
    Masquerade,
    /// Ends the rule.
    Then(Verdict),
}

impl Clause {
    /// Writes the expressions.
    pub(super) fn write(&self, list: &mut Message) {
        match self {
            Self::Interface(direction, name) => {
                let key = match direction {
                    Direction::From => META_INPUT_NAME,
                    Direction::To => META_OUTPUT_NAME,
                };
                meta(list, key, FIRST);
                let mut bytes = name.as_bytes().to_vec();
                bytes.push(0);
                compare(list, IS_EQUAL, &bytes);
            }
            Self::Within(direction, ip, prefix) => network(list, *direction, *ip, *prefix, IS_EQUAL),
            Self::Outside(direction, ip, prefix) => network(list, *direction, *ip, *prefix, IS_DIFFERENT),
            Self::LocalDestination => {
                expression(list, "fib", |data| {
                    // The result is the type of the address; the flag selects the destination.
                    data.big(1, FIRST).big(2, 3).big(3, 2);
                });
                compare(list, IS_EQUAL, &LOCAL.to_ne_bytes());
            }
            Self::Translated => {
                expression(list, "ct", |data| {
                    data.big(1, FIRST).big(2, CT_STATUS);
                });
                mask(list, &DESTINATION_TRANSLATED.to_ne_bytes());
                compare(list, IS_DIFFERENT, &[0; 4]);
            }
            Self::Count => expression(list, "counter", |data| {
                data.put(1, &[0; 8]).put(2, &[0; 8]);
            }),
            Self::Redirect(map) => redirect(list, *map),
            Self::Masquerade => expression(list, "masq", |_| {}),
            Self::Then(verdict) => expression(list, "immediate", |data| {
                data.big(1, VERDICT).nest(2, |value| {
                    value.nest(DATA_VERDICT, |verdict_data| match verdict {
                        Verdict::Accept => drop(verdict_data.big(VERDICT_CODE, 1)),
                        Verdict::Drop => drop(verdict_data.big(VERDICT_CODE, 0)),
                        Verdict::Return => drop(verdict_data.put(VERDICT_CODE, &(-5i32).to_be_bytes())),
                        Verdict::Jump(chain) => {
                            verdict_data.put(VERDICT_CODE, &(-3i32).to_be_bytes()).text(VERDICT_CHAIN, chain);
                        }
                    });
                });
            }),
        }
    }
}

fn expression(list: &mut Message, name: &str, fill: impl FnOnce(&mut Message)) {
    list.nest(LIST_ITEM, |item| {
        item.text(EXPRESSION_NAME, name).nest(EXPRESSION_DATA, fill);
    });
}

/// Loads a property of the packet.
fn meta(list: &mut Message, key: u32, register: u32) {
    expression(list, "meta", |data| {
        data.big(1, register).big(2, key);
    });
}

/// Ends the rule, unless the first register compares with a value.
fn compare(list: &mut Message, operation: u32, value: &[u8]) {
    expression(list, "cmp", |data| {
        data.big(1, FIRST).big(2, operation).nest(3, |inner| {
            inner.put(DATA_VALUE, value);
        });
    });
}

/// Keeps only the bits of a mask in the first register.
fn mask(list: &mut Message, bits: &[u8]) {
    expression(list, "bitwise", |data| {
        data.big(1, FIRST).big(2, FIRST).big(3, length(bits.len()));
        data.nest(4, |inner| {
            inner.put(DATA_VALUE, bits);
        });
        data.nest(5, |inner| {
            inner.put(DATA_VALUE, &vec![0; bits.len()]);
        });
    });
}

/// Loads bytes of a header.
fn payload(list: &mut Message, register: u32, header: u32, offset: u32, size: usize) {
    expression(list, "payload", |data| {
        data.big(1, register).big(2, header).big(3, offset).big(4, length(size));
    });
}

/// Ends the rule, unless the packet has a version of the internet protocol.
fn only(list: &mut Message, version: Version) {
    meta(list, META_FAMILY, FIRST);
    compare(list, IS_EQUAL, &[version.family().number()]);
}

/// Loads an address of the packet.
fn address(list: &mut Message, register: u32, direction: Direction, version: Version) {
    let offset = match (direction, version) {
        (Direction::From, Version::V4) => 12,
        (Direction::To, Version::V4) => 16,
        (Direction::From, Version::V6) => 8,
        (Direction::To, Version::V6) => 24,
    };
    payload(list, register, NETWORK_HEADER, offset, version.size());
}

fn network(list: &mut Message, direction: Direction, ip: IpAddr, prefix: u8, operation: u32) {
    let version = Version::from_address(ip);
    only(list, version);
    address(list, FIRST, direction, version);
    let bits: Vec<u8> = (0..version.size())
        .map(|at| {
            let of_byte = usize::from(prefix).saturating_sub(at * 8).min(8);
            u8::try_from(0xff00_u32 >> of_byte & 0xff).expect("it has eight bits")
        })
        .collect();
    mask(list, &bits);
    let base: Vec<u8> = octets(ip).iter().zip(&bits).map(|(byte, bit)| byte & bit).collect();
    compare(list, operation, &base);
}

fn redirect(list: &mut Message, map: PortMap) {
    only(list, map.version);
    let words = length(map.version.size() / 4);
    let ports = if map.by_address { FIRST + words } else { FIRST };
    if map.by_address {
        address(list, FIRST, Direction::To, map.version);
    }
    meta(list, META_TRANSPORT, ports);
    // The destination port is at the same place in TCP and UDP.
    payload(list, ports + 1, TRANSPORT_HEADER, 2, 2);
    expression(list, "lookup", |data| {
        data.text(1, map.name).big(2, FIRST).big(3, FIRST);
    });
    expression(list, "nat", |data| {
        // 1 translates the destination.
        data.big(1, 1).big(2, u32::from(map.version.family().number()));
        data.big(3, FIRST).big(5, FIRST + words);
    });
}
