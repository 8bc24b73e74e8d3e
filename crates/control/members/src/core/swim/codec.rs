//! The encoding of foca's datagrams: fixed fields, big-endian. This crate defines it, so that the wire does
//! not depend on foca's version.

use super::Peer;
use bytes::{Buf, BufMut};
use foca::{Codec, Header, Member, Message, State};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use uuid::Uuid;

/// The codec, which has no state.
#[derive(Clone, Copy, Debug)]
pub(super) struct WireCodec;

/// The error of bytes that are not a datagram, or of a buffer without room for one.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the datagram is not valid")]
pub(super) struct Malformed;

impl From<bytes::TryGetError> for Malformed {
    fn from(_: bytes::TryGetError) -> Self {
        Self
    }
}

/// Size of an encoded [`Peer`]: UUID, generation, address as IPv6 and port.
pub(super) const PEER_BYTES: usize = 16 + 8 + 16 + 2;

pub(super) fn put_peer(peer: &Peer, buf: &mut impl BufMut) {
    buf.put_slice(peer.id.as_bytes());
    buf.put_u64(peer.generation);
    let ip = match peer.addr.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    buf.put_slice(&ip.octets());
    buf.put_u16(peer.addr.port());
}

pub(super) fn get_peer(buf: &mut impl Buf) -> Result<Peer, Malformed> {
    let id = Uuid::from_u128(buf.try_get_u128()?);
    let generation = buf.try_get_u64()?;
    let ip = Ipv6Addr::from(buf.try_get_u128()?);
    let port = buf.try_get_u16()?;
    Ok(Peer { id, generation, addr: SocketAddr::new(IpAddr::V6(ip).to_canonical(), port) })
}

/// Returns the kind of a message, its probe number, and the third member that it names.
fn parts(message: &Message<Peer>) -> (u8, u8, Option<&Peer>) {
    match message {
        Message::Ping(probe) => (1, *probe, None),
        Message::Ack(probe) => (2, *probe, None),
        Message::PingReq { target, probe_number } => (3, *probe_number, Some(target)),
        Message::IndirectPing { origin, probe_number } => (4, *probe_number, Some(origin)),
        Message::IndirectAck { target, probe_number } => (5, *probe_number, Some(target)),
        Message::ForwardedAck { origin, probe_number } => (6, *probe_number, Some(origin)),
        Message::Announce => (7, 0, None),
        Message::Feed => (8, 0, None),
        Message::Gossip => (9, 0, None),
        Message::Broadcast => (10, 0, None),
        Message::TurnUndead => (11, 0, None),
    }
}

impl Codec<Peer> for WireCodec {
    type Error = Malformed;

    fn encode_header(&mut self, header: &Header<Peer>, mut buf: impl BufMut) -> Result<(), Malformed> {
        let (kind, probe, third) = parts(&header.message);
        if buf.remaining_mut() < 3 * PEER_BYTES + 4 {
            return Err(Malformed);
        }
        put_peer(&header.src, &mut buf);
        buf.put_u16(header.src_incarnation);
        put_peer(&header.dst, &mut buf);
        buf.put_u8(kind);
        buf.put_u8(probe);
        if let Some(third) = third {
            put_peer(third, &mut buf);
        }
        Ok(())
    }

    fn decode_header(&mut self, mut buf: impl Buf) -> Result<Header<Peer>, Malformed> {
        let src = get_peer(&mut buf)?;
        let src_incarnation = buf.try_get_u16()?;
        let dst = get_peer(&mut buf)?;
        let (kind, probe_number) = (buf.try_get_u8()?, buf.try_get_u8()?);
        let message = match kind {
            1 => Message::Ping(probe_number),
            2 => Message::Ack(probe_number),
            3 => Message::PingReq { target: get_peer(&mut buf)?, probe_number },
            4 => Message::IndirectPing { origin: get_peer(&mut buf)?, probe_number },
            5 => Message::IndirectAck { target: get_peer(&mut buf)?, probe_number },
            6 => Message::ForwardedAck { origin: get_peer(&mut buf)?, probe_number },
            7 => Message::Announce,
            8 => Message::Feed,
            9 => Message::Gossip,
            // Custom broadcasts (10) are not used.
            11 => Message::TurnUndead,
            _ => return Err(Malformed),
        };
        Ok(Header { src, src_incarnation, dst, message })
    }

    fn encode_member(&mut self, member: &Member<Peer>, mut buf: impl BufMut) -> Result<(), Malformed> {
        if buf.remaining_mut() < PEER_BYTES + 3 {
            return Err(Malformed);
        }
        put_peer(member.id(), &mut buf);
        buf.put_u16(member.incarnation());
        buf.put_u8(match member.state() {
            State::Alive => 0,
            State::Suspect => 1,
            State::Down => 2,
        });
        Ok(())
    }

    fn decode_member(&mut self, mut buf: impl Buf) -> Result<Member<Peer>, Malformed> {
        let peer = get_peer(&mut buf)?;
        let incarnation = buf.try_get_u16()?;
        let state = match buf.try_get_u8()? {
            0 => State::Alive,
            1 => State::Suspect,
            2 => State::Down,
            _ => return Err(Malformed),
        };
        Ok(Member::new(peer, incarnation, state))
    }
}
