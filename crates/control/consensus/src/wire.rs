//! The bytes of messages between servers.
//!
//! A message is a header of 33 bytes and a body in MessagePack with field names. The header holds the version of this
//! form (1), the cluster's id (16 bytes), and the numbers of sender and receiver (8 bytes each, little-endian). A
//! response has only a body.

use crate::{ClusterId, Error, ServerId};
use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

const VERSION: u8 = 1;
const HEADER: usize = 33;

/// The cluster, and the numbers of sender and receiver of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) cluster: ClusterId,
    pub(crate) from: ServerId,
    pub(crate) to: ServerId,
}

/// Encodes a message.
pub(crate) fn message(header: Header, body: &impl Serialize) -> Result<Bytes, Error> {
    let mut out = BytesMut::with_capacity(256);
    out.put_u8(VERSION);
    out.put_slice(header.cluster.0.as_bytes());
    out.put_u64_le(header.from.0);
    out.put_u64_le(header.to.0);
    let mut writer = out.writer();
    rmp_serde::encode::write_named(&mut writer, body).map_err(Error::message)?;
    Ok(writer.into_inner().freeze())
}

/// Splits a message into its header and its body.
pub(crate) fn split(mut message: Bytes) -> Result<(Header, Bytes), Error> {
    if message.len() < HEADER {
        return Err(Error::message("it is too short"));
    }
    let body = message.split_off(HEADER);
    let (version, rest) = (message[0], &message[1..]);
    if version != VERSION {
        return Err(Error::message(format!("its version {version} is unknown to this server")));
    }
    let (cluster, rest) = rest.split_at(16);
    let cluster = Uuid::from_slice(cluster).map_err(Error::message)?;
    let number = |bytes: &[u8]| ServerId(bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte)));
    let header = Header { cluster: ClusterId(cluster), from: number(&rest[..8]), to: number(&rest[8..]) };
    Ok((header, body))
}

/// Encodes a response.
pub(crate) fn response(body: &impl Serialize) -> Result<Bytes, Error> {
    rmp_serde::to_vec_named(body).map(Bytes::from).map_err(Error::message)
}

/// Decodes the body of a message or a response.
pub(crate) fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    rmp_serde::from_slice(body).map_err(Error::message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_back_and_torn_ones_are_refused() {
        let header = Header { cluster: ClusterId(Uuid::from_u128(5)), from: ServerId(1), to: ServerId(1003) };
        let bytes = message(header, &("text", 7u64)).unwrap();
        let (found, body) = split(bytes.clone()).unwrap();
        assert_eq!(found, header);
        assert_eq!(decode::<(String, u64)>(&body).unwrap(), ("text".to_owned(), 7));
        for length in 0..HEADER {
            assert!(split(bytes.slice(..length)).is_err(), "{length} bytes were accepted");
        }
        let mut newer = bytes.to_vec();
        newer[0] = 2;
        assert!(split(newer.into()).is_err());
    }
}
