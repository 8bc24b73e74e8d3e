//! Netlink (netlink(7)): interfaces, addresses and routes, packet rules, tracked connections, and notifications about
//! their changes. A socket belongs to the network namespace of the thread that opens it.

pub mod conntrack;
pub mod link;
mod message;
pub mod nft;
pub mod watch;

use crate::{Error, Result};
use message::{Message, Messages, Received, control, flag};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send};
use std::io;
use std::os::fd::OwnedFd;

/// Size of the buffer for answers. The kernel fills at most 32 KiB per datagram of a dump.
const BUFFER: usize = 64 * 1024;
/// The size of the queues of a socket: a transaction that creates a thousand port maps is one datagram.
const QUEUE: usize = 16 * 1024 * 1024;
/// The number of attempts of a dump that changes interrupt.
const MAX_DUMPS: usize = 16;

/// A failed request: its kernel error without the object, which the caller adds.
type Failed = io::Error;

/// A connection with one part of the kernel.
#[derive(Debug)]
struct Connection {
    fd: OwnedFd,
    sequence: u32,
}

fn open(protocol: Option<Protocol>, groups: u32) -> Result<OwnedFd> {
    let fd =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)
            .map_err(Error::call("open a netlink socket"))?;
    bind(&fd, &SocketAddrNetlink::new(0, groups)).map_err(Error::call("bind a netlink socket"))?;
    Ok(fd)
}

impl Connection {
    fn open(protocol: Option<Protocol>) -> Result<Self> {
        let fd = open(protocol, 0)?;
        // Best effort: a smaller queue is enough for nearly all transactions.
        let _sized = rustix::net::sockopt::set_socket_send_buffer_size_force(&fd, QUEUE);
        let _sized = rustix::net::sockopt::set_socket_recv_buffer_size_force(&fd, QUEUE);
        Ok(Self { fd, sequence: 1 })
    }

    fn next(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    fn send(&self, bytes: &[u8]) -> Result<(), Failed> {
        loop {
            match send(&self.fd, bytes, SendFlags::empty()) {
                Err(Errno::INTR) => {}
                other => return other.map(drop).map_err(Into::into),
            }
        }
    }

    fn receive(&self, buffer: &mut Vec<u8>, flags: RecvFlags) -> Result<usize, Failed> {
        buffer.resize(BUFFER, 0);
        loop {
            match recv(&self.fd, &mut buffer[..], flags) {
                Err(Errno::INTR) => {}
                other => return other.map(|(count, _)| count).map_err(Into::into),
            }
        }
    }

    /// Sends a request and waits for its acknowledgement.
    fn request(&mut self, message: Message) -> Result<(), Failed> {
        let sequence = self.next();
        self.send(&message.with_flags(flag::ACK).finish(sequence))?;
        let mut buffer = Vec::new();
        loop {
            let count = self.receive(&mut buffer, RecvFlags::empty())?;
            for answer in Messages(&buffer[..count]).filter(|answer| answer.sequence == sequence) {
                match answer.errno() {
                    Some(0) => return Ok(()),
                    Some(errno) => return Err(io::Error::from_raw_os_error(errno)),
                    None => {}
                }
            }
        }
    }

    /// Sends a request for a list, and returns the values that `read` creates from its entries. A list that a change
    /// interrupts is requested again.
    fn dump<T>(
        &mut self,
        message: &Message,
        read: impl Fn(&Received<'_>) -> Option<T>,
    ) -> Result<Vec<T>, Failed> {
        for _ in 0..MAX_DUMPS {
            if let Some(list) = self.dump_once(message.clone(), &read)? {
                return Ok(list);
            }
        }
        Err(Errno::AGAIN.into())
    }

    fn dump_once<T>(
        &mut self,
        message: Message,
        read: &impl Fn(&Received<'_>) -> Option<T>,
    ) -> Result<Option<Vec<T>>, Failed> {
        let sequence = self.next();
        self.send(&message.with_flags(flag::DUMP).finish(sequence))?;
        let (mut list, mut buffer, mut whole) = (Vec::new(), Vec::new(), true);
        loop {
            let count = self.receive(&mut buffer, RecvFlags::empty())?;
            for answer in Messages(&buffer[..count]).filter(|answer| answer.sequence == sequence) {
                whole &= answer.flags & flag::DUMP_INTERRUPTED == 0;
                match answer.kind {
                    control::DONE => return Ok(whole.then_some(list)),
                    control::ERROR => match answer.errno() {
                        Some(errno) if errno != 0 => return Err(io::Error::from_raw_os_error(errno)),
                        _ => return Ok(whole.then_some(list)),
                    },
                    _ => list.extend(read(&answer)),
                }
            }
        }
    }

    /// Sends messages as one transaction: all of them take effect, or none. The error has the position of the first
    /// message that the kernel refused.
    fn transact(
        &mut self,
        begin: Message,
        messages: Vec<Message>,
        end: Message,
    ) -> Result<(), (usize, Failed)> {
        let first = self.next();
        let mut bytes = begin.finish(first);
        bytes.reserve(messages.iter().map(Message::len).sum());
        for message in messages {
            let sequence = self.next();
            bytes.extend(message.finish(sequence));
        }
        let last = self.next();
        bytes.extend(end.finish(last));
        self.send(&bytes).map_err(|error| (0, error))?;
        // The kernel handles the whole transaction within the call above, so that all errors are queued already.
        let mut buffer = Vec::new();
        let mut refused: Option<(usize, Failed)> = None;
        loop {
            let count = match self.receive(&mut buffer, RecvFlags::DONTWAIT) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err((0, error)),
            };
            for answer in Messages(&buffer[..count]) {
                let position = answer.sequence.wrapping_sub(first).saturating_sub(1);
                if let Some(errno) = answer.errno().filter(|errno| *errno != 0) {
                    let position = usize::try_from(position).unwrap_or(usize::MAX);
                    refused.get_or_insert((position, io::Error::from_raw_os_error(errno)));
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }
}

/// Returns a function that adds the operation and the object to a kernel error.
fn failed(operation: &'static str, object: impl Into<String>) -> impl FnOnce(Failed) -> Error {
    let object = object.into();
    move |source| Error::Network { operation, object, source }
}
