//! The form of netlink messages (netlink(7)): a header, a fixed part and attributes, all aligned to four bytes.

/// The size of `struct nlmsghdr`.
const HEADER: usize = 16;
/// The bits of an attribute's type that are flags.
const TYPE_MASK: u16 = 0x3fff;
/// The flag of an attribute that contains attributes.
const NESTED: u16 = 0x8000;

/// Flags of requests.
pub(super) mod flag {
    pub(in super::super) const REQUEST: u16 = 0x1;
    pub(in super::super) const ACK: u16 = 0x4;
    pub(in super::super) const DUMP: u16 = 0x300;
    pub(in super::super) const REPLACE: u16 = 0x100;
    pub(in super::super) const EXCL: u16 = 0x200;
    pub(in super::super) const CREATE: u16 = 0x400;
    pub(in super::super) const APPEND: u16 = 0x800;
    /// A dump that a change interrupted, in answers.
    pub(in super::super) const DUMP_INTERRUPTED: u16 = 0x10;
}

/// Types of messages that control the exchange.
pub(super) mod control {
    pub(in super::super) const ERROR: u16 = 2;
    pub(in super::super) const DONE: u16 = 3;
}

/// Returns a length rounded up to four bytes.
fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// A message under construction. Its length and sequence number are set when it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// Creates a message with its fixed part.
    pub(super) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | flag::REQUEST).to_ne_bytes());
        bytes.extend_from_slice(fixed);
        bytes.resize(aligned(bytes.len()), 0);
        Self { bytes }
    }

    /// Adds an attribute.
    pub(super) fn put(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let length = u16::try_from(value.len() + 4).expect("attributes of this crate are below 64 KiB");
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.resize(aligned(self.bytes.len()), 0);
        self
    }

    /// Adds a text that ends with a zero byte.
    pub(super) fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.put(kind, &bytes)
    }

    /// Adds a number in the byte order of the host.
    pub(super) fn number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Adds a number in network byte order.
    pub(super) fn big(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    /// Adds an attribute that contains the attributes that `fill` adds.
    pub(super) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.put(kind | NESTED, &[]);
        fill(self);
        self.close(start);
        self
    }

    /// Adds an attribute that contains a fixed part and the attributes that `fill` adds.
    pub(super) fn nest_after(&mut self, kind: u16, fixed: &[u8], fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.put(kind | NESTED, fixed);
        fill(self);
        self.close(start);
        self
    }

    fn close(&mut self, start: usize) {
        let length =
            u16::try_from(self.bytes.len() - start).expect("attributes of this crate are below 64 KiB");
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }

    /// Adds flags to those of the message.
    pub(super) fn with_flags(mut self, flags: u16) -> Self {
        let mut all = u16::from_ne_bytes([self.bytes[6], self.bytes[7]]);
        all |= flags;
        self.bytes[6..8].copy_from_slice(&all.to_ne_bytes());
        self
    }

    /// Returns the length of the message in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes with their length and a sequence number.
    pub(super) fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).expect("messages of this crate are below 4 GiB");
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// A message that was received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    pub(super) body: &'a [u8],
}

impl<'a> Received<'a> {
    /// Returns the errno of an acknowledgement: 0 for success. `None` if the message is no acknowledgement.
    pub(super) fn errno(&self) -> Option<i32> {
        let bytes = self.body.get(..4).filter(|_| self.kind == control::ERROR)?;
        Some(-i32::from_ne_bytes(bytes.try_into().ok()?))
    }

    /// Returns the attributes after a fixed part.
    pub(super) fn attributes(&self, fixed: usize) -> Attributes<'a> {
        Attributes(self.body.get(aligned(fixed)..).unwrap_or_default())
    }
}

/// The messages of a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Messages<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Received<'a>;

    fn next(&mut self) -> Option<Received<'a>> {
        let header = self.0.get(..HEADER)?;
        let four = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
        let length = usize::try_from(u32::from_ne_bytes(four(0))).ok()?;
        let body = self.0.get(HEADER..length)?;
        self.0 = self.0.get(aligned(length)..).unwrap_or_default();
        Some(Received {
            kind: u16::from_ne_bytes([header[4], header[5]]),
            flags: u16::from_ne_bytes([header[6], header[7]]),
            sequence: u32::from_ne_bytes(four(8)),
            body,
        })
    }
}

/// A list of attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes<'a>(pub(super) &'a [u8]);

impl<'a> Attributes<'a> {
    /// Returns the value of the first attribute of a type.
    pub(super) fn find(mut self, kind: u16) -> Option<&'a [u8]> {
        self.find_map(|(own, value)| (own == kind).then_some(value))
    }

    /// Returns the attributes within the first attribute of a type; none if it is absent.
    pub(super) fn within(self, kind: u16) -> Self {
        Self(self.find(kind).unwrap_or_default())
    }

    /// Returns a text without its zero byte.
    pub(super) fn text(self, kind: u16) -> Option<String> {
        let bytes = self.find(kind)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// Returns a number in the byte order of the host.
    pub(super) fn number(self, kind: u16) -> Option<u32> {
        Some(u32::from_ne_bytes(self.find(kind)?.try_into().ok()?))
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let header = self.0.get(..4)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & TYPE_MASK;
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let mut message = Message::new(16, flag::ACK, &[1, 2, 3]);
        message.text(3, "lo").number(4, 1500).nest(18, |inner| {
            inner.big(1, 7).put(2, &[9]);
        });
        let bytes = message.finish(42);
        let read: Vec<Received<'_>> = Messages(&bytes).collect();
        assert_eq!((read.len(), read[0].kind, read[0].sequence), (1, 16, 42));
        assert_eq!(read[0].flags, flag::ACK | flag::REQUEST);
        let attributes = read[0].attributes(3);
        assert_eq!(attributes.text(3).as_deref(), Some("lo"));
        assert_eq!(attributes.number(4), Some(1500));
        let inner = attributes.within(18);
        assert_eq!((inner.find(1), inner.find(2)), (Some(&[0, 0, 0, 7][..]), Some(&[9][..])));
        assert_eq!(attributes.find(99), None);
    }

    proptest! {
        #[test]
        fn any_datagram_is_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for message in Messages(&bytes) {
                let _ = message.errno();
                for (_, value) in message.attributes(4) {
                    Attributes(value).count();
                }
            }
        }
    }
}
