//! MessagePack, and gRPC messages as plain bytes.
//!
//! tonic handles only bytes, so its code is compiled once and not per method.

use crate::{Code, RpcError};
use bytes::{Buf, BufMut, Bytes};
use caravan_types::packed::Packed;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

pub(crate) fn encode<T: Packed>(what: &str, value: &T) -> Result<Bytes, RpcError> {
    value.pack().map(Bytes::from).map_err(|error| RpcError::encode(what, error))
}

pub(crate) fn decode_request<T: Packed>(method: &str, bytes: &[u8]) -> Result<T, RpcError> {
    T::unpack(bytes).map_err(|error| {
        RpcError::new(Code::Invalid, format!("the request of {method} cannot be read: {error}"))
    })
}

pub(crate) fn decode_response<T: Packed>(method: &str, bytes: &[u8]) -> Result<T, RpcError> {
    T::unpack(bytes)
        .map_err(|error| RpcError::internal(format!("the answer of {method} cannot be read: {error}")))
}

/// A codec that passes messages through unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = buffer.remaining();
        Ok(Some(buffer.copy_to_bytes(length)))
    }
}
