//! The preamble of a connection, before HTTP/2.
//!
//! The connecting side sends one byte for the role and a frame with its [`Hello`]. The other side responds with a
//! frame with a [`Welcome`]. A frame is its length (4 bytes, big-endian) and a MessagePack map. These formats may
//! only gain fields, because they carry the version.

use crate::error::innermost;
use crate::gate::within;
use crate::io::BoxIo;
use crate::member::{Covered, Credential, Nonce, Proof, ServerHello, ServerSide, Side};
use crate::{Code, PeerIdentity, RpcError, ServerPeer};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Version of the transport in this build.
pub const VERSION: u16 = 1;
/// Maximum size of an encoded request or response in bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;
/// Maximum size of the response to a greeting in bytes; it may contain a reason for refusal.
const MAX_FRAME: usize = 64 * 1024;
/// Maximum size of a greeting in bytes. The greeting is read before its sender is authenticated.
const MAX_HELLO: usize = 4 * 1024;
/// The time for each side's part of the preamble, unless a server is configured otherwise.
pub(crate) const PREAMBLE_TIMEOUT: Duration = Duration::from_secs(5);

/// The purpose of a connection, sent as its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// The connecting side calls.
    Rpc = 0x01,
    /// The connecting side is called: a client that opens a reverse connection.
    Reversed = 0x02,
    /// A server sends messages of the replicated log to another server. Both must have proved that they belong to the
    /// same cluster.
    Raft = 0x03,
    /// As [`Self::Raft`], for short messages: one request and one response at a time, without HTTP/2.
    Exchange = 0x04,
}

impl Role {
    fn parse(byte: u8) -> Option<Self> {
        [Self::Rpc, Self::Reversed, Self::Raft, Self::Exchange].into_iter().find(|role| *role as u8 == byte)
    }

    /// Returns whether both sides must have proved that they belong to the same cluster.
    pub(crate) fn is_for_members(self) -> bool {
        match self {
            Self::Raft | Self::Exchange => true,
            Self::Rpc | Self::Reversed => false,
        }
    }
}

/// The greeting of the connecting side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`] of the connecting side.
    pub version: u16,
    /// Region of the connecting side.
    pub region: String,
    /// The claimed identity of the connecting side.
    pub identity: PeerIdentity,
    /// The facts that a server sends to another server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerHello>,
}

/// The response to a [`Hello`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Welcome {
    Accepted {
        version: u16,
        identity: PeerIdentity,
    },
    Refused(RpcError),
    /// Both servers name the same cluster: the accepting side proves its membership, and requests a proof.
    Challenge {
        id: String,
        nonce: Nonce,
        proof: Proof,
    },
}

/// The response to a [`Welcome::Challenge`].
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Answer {
    proof: Proof,
}

async fn write_frame<T: Serialize>(io: &mut BoxIo, first: Option<u8>, value: &T) -> io::Result<()> {
    let body = rmp_serde::to_vec_named(value).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut bytes: Vec<u8> = first.into_iter().collect();
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&body);
    io.write_all(&bytes).await?;
    io.flush().await
}

async fn read_frame<T: DeserializeOwned>(io: &mut BoxIo, most: usize) -> io::Result<T> {
    let length = usize::try_from(io.read_u32().await?).map_err(io::Error::other)?;
    if length > most {
        let reason = format!("a preamble of {length} bytes was announced, {most} are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    let mut body = vec![0; length];
    io.read_exact(&mut body).await?;
    rmp_serde::from_slice(&body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Sends this side's greeting on a connection that it opened. Returns the other side's identity.
/// `credential` belongs to this side, if this side is a server.
pub(crate) async fn greet(
    io: &mut BoxIo,
    role: Role,
    hello: &Hello,
    credential: Option<&Credential>,
) -> Result<PeerIdentity, RpcError> {
    let talk = async {
        write_frame(io, Some(role as u8), hello).await?;
        let welcome = read_frame::<Welcome>(io, MAX_FRAME).await?;
        let Welcome::Challenge { id, nonce, proof } = welcome else { return Ok((welcome, false)) };
        let proved = answer(role, hello, credential, (&id, nonce), &proof);
        let Some(answer) = proved else { return Ok((unproved(&id), false)) };
        write_frame(io, None, &answer).await?;
        Ok((read_frame::<Welcome>(io, MAX_FRAME).await?, true))
    };
    match tokio::time::timeout(PREAMBLE_TIMEOUT, talk).await {
        Ok(Ok((Welcome::Accepted { identity, .. }, is_member))) => Ok(match identity {
            PeerIdentity::Server(server) => PeerIdentity::Server(ServerPeer { is_member, ..server }),
            other => other,
        }),
        Ok(Ok((Welcome::Refused(error), _))) => Err(error),
        Ok(Ok((Welcome::Challenge { .. }, _))) => {
            Err(RpcError::new(Code::Invalid, "the other side asks for a second proof"))
        }
        Ok(Err(error)) => {
            let error: io::Error = error;
            Err(RpcError::unavailable(format!("the connection ended in the greeting: {}", innermost(&error))))
        }
        Err(_) => Err(RpcError::unavailable("the greeting was not answered in time")),
    }
}

/// Returns the response to a challenge, if the other side has proved its membership in the cluster of this side.
fn answer(
    role: Role,
    hello: &Hello,
    credential: Option<&Credential>,
    accepting: (&str, Nonce),
    proof: &Proof,
) -> Option<Answer> {
    let (PeerIdentity::Server(own), Some(sent)) = (&hello.identity, &hello.server) else { return None };
    let covered = Covered { role: role as u8, connecting: (&own.id, sent.nonce), accepting };
    let credential = credential?;
    let is_right = credential.verify(Side::Accepting, &covered, proof);
    is_right.then(|| Answer { proof: credential.prove(Side::Connecting, &covered) })
}

fn unproved(id: &str) -> Welcome {
    Welcome::Refused(RpcError::new(
        Code::Permission,
        format!("server {id} names this cluster, but does not have its key"),
    ))
}

/// Returns whether the connecting server has proved its membership in the cluster of this server.
///
/// # Errors
/// The refusal to send: the caller intended another server, belongs to another cluster, or lacks the key.
pub(crate) async fn challenge(
    io: &mut BoxIo,
    role: Role,
    hello: &Hello,
    own: &ServerSide,
) -> Result<bool, RpcError> {
    let (PeerIdentity::Server(peer), Some(sent)) = (&hello.identity, &hello.server) else { return Ok(false) };
    if !sent.to.is_empty() && sent.to != own.id {
        let reason = format!("server {} was called, but this is server {}", sent.to, own.id);
        return Err(RpcError::new(Code::NotFound, reason));
    }
    let (Some(credential), Some(cluster)) = (own.credential.get(), &sent.cluster) else { return Ok(false) };
    if credential.cluster() != cluster {
        let reason = format!(
            "server {} belongs to cluster {cluster}, but this server belongs to cluster {}: to join the other cluster, a server \
             needs an empty data directory (move its directory \"server\" away)",
            peer.name,
            credential.cluster()
        );
        return Err(RpcError::new(Code::Permission, reason));
    }
    let nonce = Nonce::random().ok_or_else(|| RpcError::internal("the system has no random numbers"))?;
    let covered =
        Covered { role: role as u8, connecting: (&peer.id, sent.nonce), accepting: (&own.id, nonce) };
    let proof = credential.prove(Side::Accepting, &covered);
    let talk = async {
        write_frame(io, None, &Welcome::Challenge { id: own.id.clone(), nonce, proof }).await?;
        read_frame::<Answer>(io, MAX_HELLO).await
    };
    match tokio::time::timeout(PREAMBLE_TIMEOUT, talk).await {
        Ok(Ok(answer)) if credential.verify(Side::Connecting, &covered, &answer.proof) => Ok(true),
        Ok(Ok(_)) => Err(RpcError::new(
            Code::Permission,
            format!("server {} names cluster {cluster}, but does not have its key", peer.name),
        )),
        Ok(Err(error)) => Err(RpcError::new(Code::Invalid, innermost(&error))),
        Err(_) => Err(RpcError::new(Code::Deadline, "no proof came in time")),
    }
}

/// Reads the greeting of the connecting side. An error is the refusal to send. `patience` is the time limit; zero
/// means no limit.
pub(crate) async fn read_hello(io: &mut BoxIo, patience: Duration) -> Result<(Role, Hello), RpcError> {
    let read = async {
        let byte = io.read_u8().await?;
        let Some(role) = Role::parse(byte) else {
            let reason = format!("the first byte is {byte:#04x}, which is no role of this protocol");
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        };
        let hello: Hello = read_frame(io, MAX_HELLO).await?;
        Ok((role, hello))
    };
    let (role, hello) = match within(patience, read).await {
        Some(Ok(read)) => read,
        Some(Err(error)) => return Err(RpcError::new(Code::Invalid, innermost(&error))),
        None => return Err(RpcError::new(Code::Deadline, "no greeting came in time")),
    };
    if hello.version != VERSION {
        let reason = format!("protocol version {} is not spoken here, only {VERSION}", hello.version);
        return Err(RpcError::new(Code::Invalid, reason));
    }
    Ok((role, hello))
}

pub(crate) async fn accept(io: &mut BoxIo, identity: &PeerIdentity) -> io::Result<()> {
    let welcome = Welcome::Accepted { version: VERSION, identity: identity.clone() };
    write_frame(io, None, &welcome).await
}

/// Sends the refusal and closes so that the other side can read it: closing with unread received bytes would
/// discard the refusal.
pub(crate) async fn refuse(mut io: BoxIo, error: RpcError) {
    let talk = async {
        write_frame(&mut io, None, &Welcome::Refused(error)).await?;
        io.shutdown().await?;
        let mut rest = [0; 1024];
        while io.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    // The other side may have disconnected already, which has no effect.
    let _ = tokio::time::timeout(Duration::from_secs(1), talk).await;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Secret;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    async fn after(bytes: &[u8]) -> Result<(Role, Hello), RpcError> {
        let (mut near, far) = tokio::io::duplex(bytes.len().max(1));
        near.write_all(bytes).await.unwrap();
        drop(near);
        let mut io: BoxIo = Box::new(far);
        read_hello(&mut io, PREAMBLE_TIMEOUT).await
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_do_more_than_be_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            run(async { assert!(after(&bytes).await.is_err()) });
        }

        #[test]
        fn a_greeting_arrives_whole_or_not_at_all(
            region in ".{0,40}",
            node_id in ".{0,40}",
            reversed in any::<bool>(),
            cut in 0..400usize,
        ) {
            run(async {
                let identity = PeerIdentity::Client { node_id, secret: Secret::new("s") };
                let hello = Hello { version: VERSION, region, identity, server: None };
                let role = if reversed { Role::Reversed } else { Role::Rpc };
                let (near, mut far) = tokio::io::duplex(4096);
                let mut near: BoxIo = Box::new(near);
                write_frame(&mut near, Some(role as u8), &hello).await.unwrap();
                drop(near);
                let mut bytes = Vec::new();
                far.read_to_end(&mut bytes).await.unwrap();

                assert_eq!(after(&bytes).await, Ok((role, hello)));
                if cut < bytes.len() {
                    assert!(after(&bytes[..cut]).await.is_err());
                }
            });
        }
    }
}
