//! Frames of one connection, without I/O.
//!
//! Both sides first send a greeting with a random number. Each frame is sealed together with both numbers, its direction
//! and its position. A recorded frame is therefore worthless on another connection, and frames cannot be reordered.

use crate::frame::{FrameError, MAX_MESSAGE_BYTES, Message};
use crate::key::{KeyTag, NONCE, Ring, TAG};

/// The first bytes of a connection.
const MAGIC: [u8; 4] = *b"CVG1";
/// Size of the random number in a greeting.
pub(crate) const LOT: usize = 16;
/// Size of a greeting in bytes.
pub(crate) const GREETING: usize = MAGIC.len() + LOT;
/// Maximum size of a frame in bytes, without its length.
pub(crate) const MAX_FRAME_BYTES: usize = MAX_MESSAGE_BYTES + 1 + TAG + NONCE + 16;

const PLAIN: u8 = 0;
const SEALED: u8 = 1;
const REFUSED: u8 = 2;

/// The reason for which a side does not accept a frame. The other side receives the reason unsealed, so it is only a
/// hint for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    /// Frames must be sealed.
    Plain,
    /// The frame is sealed, and the receiver has no keys.
    NoKeys,
    /// The receiver does not have the key.
    UnknownKey(KeyTag),
    /// The frame is damaged, or the key did not seal it for this connection.
    Damaged,
}

impl Refusal {
    /// Returns the sentence for the side that refuses.
    pub(crate) fn own_side(self) -> String {
        match self {
            Self::Plain => {
                "the other side does not encrypt, and this server requires a gossip key".to_owned()
            }
            Self::NoKeys => "the other side encrypts, and this server has no gossip key".to_owned(),
            Self::UnknownKey(tag) => {
                format!("the other side uses gossip key {tag}, which this server does not have")
            }
            Self::Damaged => "a message is damaged or was not sealed for this connection".to_owned(),
        }
    }

    /// Returns the sentence for the side that is refused.
    pub(crate) fn other_side(self) -> String {
        match self {
            Self::Plain => "the server requires a gossip key, and this server does not encrypt".to_owned(),
            Self::NoKeys => "the server has no gossip key, and this server encrypts".to_owned(),
            Self::UnknownKey(tag) => {
                format!("the server does not have gossip key {tag}, which this server uses")
            }
            Self::Damaged => "the server could not open a message".to_owned(),
        }
    }

    fn encode(self) -> Vec<u8> {
        match self {
            Self::Plain => vec![REFUSED, 1],
            Self::NoKeys => vec![REFUSED, 2],
            Self::UnknownKey(tag) => [&[REFUSED, 3][..], &tag.0].concat(),
            Self::Damaged => vec![REFUSED, 4],
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (1, []) => Some(Self::Plain),
            (2, []) => Some(Self::NoKeys),
            (3, tag) => Some(Self::UnknownKey(KeyTag(tag.try_into().ok()?))),
            (4, []) => Some(Self::Damaged),
            _ => None,
        }
    }
}

/// The reasons for which a frame ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// This side refuses the frame; the other side should receive [`Session::refuse`].
    Refuses(Refusal),
    /// The other side refused a frame of this side.
    Refused(Refusal),
    /// The frame or the message in it is not valid.
    Invalid(FrameError),
}

/// Returns the greeting with a random number.
pub(crate) fn greeting(lot: [u8; LOT]) -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[MAGIC.len()..].copy_from_slice(&lot);
    bytes
}

/// Returns the random number of a greeting; `None` if the bytes belong to another protocol.
pub(crate) fn read_greeting(bytes: &[u8; GREETING]) -> Option<[u8; LOT]> {
    let (magic, lot) = bytes.split_first_chunk::<{ MAGIC.len() }>()?;
    if *magic == MAGIC { lot.try_into().ok() } else { None }
}

/// The two sides of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The side that opened the connection.
    Opener,
    /// The side that accepted the connection.
    Acceptor,
}

/// One direction of a connection: the context of its next frame.
#[derive(Clone, Debug)]
pub(crate) struct Direction {
    /// Both random numbers, the byte of the direction, the position.
    context: [u8; 2 * LOT + 9],
    position: u64,
}

impl Direction {
    fn new(opener: [u8; LOT], acceptor: [u8; LOT], from: Side) -> Self {
        let mut context = [0; 2 * LOT + 9];
        context[..LOT].copy_from_slice(&opener);
        context[LOT..2 * LOT].copy_from_slice(&acceptor);
        context[2 * LOT] = u8::from(from == Side::Acceptor);
        Self { context, position: 0 }
    }

    fn next(&mut self) -> &[u8] {
        self.context[2 * LOT + 1..].copy_from_slice(&self.position.to_be_bytes());
        self.position += 1;
        &self.context
    }

    /// Returns the frame of a message. With `plain`, or without keys, the frame is not sealed.
    pub(crate) fn seal(
        &mut self,
        ring: &Ring,
        plain: bool,
        nonce: [u8; NONCE],
        message: &Message,
    ) -> Result<Vec<u8>, FrameError> {
        let bytes = message.encode()?;
        let context = self.next();
        if plain || ring.is_empty() {
            return Ok([&[PLAIN][..], &bytes].concat());
        }
        let (tag, sealed) = ring.seal(nonce, context, &bytes).ok_or(FrameError::TooLarge)?;
        Ok([&[SEALED][..], &tag.0, &nonce, &sealed].concat())
    }

    /// Reads a frame from untrusted bytes, and returns whether it was sealed.
    pub(crate) fn open(
        &mut self,
        ring: &Ring,
        accepts_plain: bool,
        frame: &[u8],
    ) -> Result<(Message, bool), Broken> {
        let context = self.next();
        let damaged = Broken::Refuses(Refusal::Damaged);
        let (kind, rest) = frame.split_first().ok_or(damaged)?;
        let opened;
        let bytes = match *kind {
            REFUSED => return Err(Refusal::decode(rest).map_or(damaged, Broken::Refused)),
            PLAIN if ring.is_empty() || accepts_plain => rest,
            PLAIN => return Err(Broken::Refuses(Refusal::Plain)),
            SEALED if ring.is_empty() => return Err(Broken::Refuses(Refusal::NoKeys)),
            SEALED => {
                let (tag, rest) = rest.split_first_chunk::<TAG>().ok_or(damaged)?;
                let (nonce, sealed) = rest.split_first_chunk::<NONCE>().ok_or(damaged)?;
                let tag = KeyTag(*tag);
                opened = match ring.open(tag, *nonce, context, sealed) {
                    None => return Err(Broken::Refuses(Refusal::UnknownKey(tag))),
                    Some(None) => return Err(damaged),
                    Some(Some(bytes)) => bytes,
                };
                &opened
            }
            _ => return Err(damaged),
        };
        let message = Message::decode(bytes).map_err(Broken::Invalid)?;
        Ok((message, *kind == SEALED))
    }
}

/// The state of a connection after both greetings.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// Frames of this side.
    pub(crate) outgoing: Direction,
    /// Frames of the other side.
    pub(crate) incoming: Direction,
}

impl Session {
    pub(crate) fn new(side: Side, own: [u8; LOT], other: [u8; LOT]) -> Self {
        let (opener, acceptor) = if side == Side::Opener { (own, other) } else { (other, own) };
        let from = |side| Direction::new(opener, acceptor, side);
        match side {
            Side::Opener => Self { outgoing: from(Side::Opener), incoming: from(Side::Acceptor) },
            Side::Acceptor => Self { outgoing: from(Side::Acceptor), incoming: from(Side::Opener) },
        }
    }
}

/// Returns the frame that reports a refusal.
pub(crate) fn refusal(reason: Refusal) -> Vec<u8> {
    reason.encode()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::KeyOperation;
    use crate::key::Key;
    use base64::Engine as _;
    use proptest::prelude::*;

    fn ring(bytes: &[u8]) -> Ring {
        let encode = |byte: &u8| base64::engine::general_purpose::STANDARD.encode([*byte; 16]);
        Ring::new(bytes.iter().map(|byte| Key::parse(&encode(byte)).unwrap()))
    }

    fn pair() -> (Session, Session) {
        (Session::new(Side::Opener, [1; LOT], [2; LOT]), Session::new(Side::Acceptor, [2; LOT], [1; LOT]))
    }

    fn message() -> Message {
        Message::Keys(KeyOperation::List)
    }

    #[test]
    fn frames_open_once_in_order_and_on_their_connection() {
        let keys = ring(&[1]);
        let (mut a, mut b) = pair();
        let first = a.outgoing.seal(&keys, false, [0; NONCE], &message()).unwrap();
        let second = a.outgoing.seal(&keys, false, [1; NONCE], &message()).unwrap();
        let (_, mut fresh) = pair();
        let damaged = Err(Broken::Refuses(Refusal::Damaged));
        assert_eq!(fresh.incoming.open(&keys, false, &second), damaged);
        assert_eq!(b.incoming.open(&keys, false, &first), Ok((message(), true)));
        assert_eq!(b.incoming.open(&keys, false, &first), damaged);
        let mut other = Session::new(Side::Acceptor, [3; LOT], [1; LOT]);
        assert_eq!(other.incoming.open(&keys, false, &first), damaged);
        // A frame does not return to its sender.
        assert_eq!(a.incoming.open(&keys, false, &first), damaged);
    }

    #[test]
    fn each_side_learns_which_key_is_wrong() {
        let (mut a, mut b) = pair();
        let (one, two) = (ring(&[1]), ring(&[2]));
        let frame = a.outgoing.seal(&one, false, [0; NONCE], &message()).unwrap();
        let reason = Refusal::UnknownKey(one.primary().unwrap().tag());
        assert_eq!(b.incoming.open(&two, false, &frame), Err(Broken::Refuses(reason)));
        assert_eq!(a.incoming.open(&one, false, &refusal(reason)), Err(Broken::Refused(reason)));
        assert!(reason.own_side().contains(&one.primary().unwrap().tag().to_string()));
    }

    #[test]
    fn plain_frames_pass_only_where_they_may() {
        let keys = ring(&[1]);
        for (ring, accepts, expected) in [
            (Ring::default(), false, Ok((message(), false))),
            (keys.clone(), true, Ok((message(), false))),
            (keys.clone(), false, Err(Broken::Refuses(Refusal::Plain))),
        ] {
            let (mut a, mut b) = pair();
            let frame = a.outgoing.seal(&Ring::default(), false, [0; NONCE], &message()).unwrap();
            assert_eq!(b.incoming.open(&ring, accepts, &frame), expected);
        }
        let (mut a, mut b) = pair();
        let frame = a.outgoing.seal(&keys, false, [0; NONCE], &message()).unwrap();
        let refused = Err(Broken::Refuses(Refusal::NoKeys));
        assert_eq!(b.incoming.open(&Ring::default(), true, &frame), refused);
    }

    #[test]
    fn greetings_name_the_protocol() {
        assert_eq!(read_greeting(&greeting([9; LOT])), Some([9; LOT]));
        assert_eq!(read_greeting(&[0; GREETING]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn hostile_frames_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), has_key in any::<bool>()) {
            let (_, mut b) = pair();
            let ring = if has_key { ring(&[1]) } else { Ring::default() };
            if let Ok((message, _)) = b.incoming.open(&ring, false, &bytes) {
                // Without a key, any valid message passes.
                prop_assert!(!has_key, "{message:?}");
            }
        }
    }
}
