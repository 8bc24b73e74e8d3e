//! The messages of the replicated log, over the channels between servers.

use super::{Lane, PeerChannels};
use crate::runtime::{self, select};
use bytes::Bytes;
use caravan_consensus::{MessageKind, PeerAddress, PeerTransport};
use caravan_messages::cluster::LogMessage;
use caravan_rpc::{RpcError, methods};
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt as _};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The time without progress after which the transfer of a snapshot ends.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the number of a kind on the wire.
pub(super) fn number_of(kind: MessageKind) -> u8 {
    match kind {
        MessageKind::Append => 1,
        MessageKind::Vote => 2,
        MessageKind::PreVote => 3,
        MessageKind::TransferLeader => 4,
        MessageKind::ReadIndex => 5,
    }
}

/// Returns the kind of a number on the wire.
pub(super) fn kind_of(number: u8) -> Option<MessageKind> {
    use MessageKind::{Append, PreVote, ReadIndex, TransferLeader, Vote};
    [Append, Vote, PreVote, TransferLeader, ReadIndex].into_iter().find(|kind| number_of(*kind) == number)
}

fn failed(error: RpcError) -> io::Error {
    io::Error::other(error)
}

/// The sender of the log's messages to other servers.
#[derive(Debug)]
pub(crate) struct Transport(pub(crate) Arc<dyn PeerChannels>);

impl PeerTransport for Transport {
    fn call(
        &self,
        to: &PeerAddress,
        kind: MessageKind,
        body: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'static, io::Result<Bytes>> {
        // A ReadIndex message may arrive twice: over the exchange, and then over the channel.
        let exchange = if kind == MessageKind::ReadIndex { self.0.exchange(&to.peer) } else { None };
        let channel = self.0.channel(&to.peer, Lane::Log);
        Box::pin(async move {
            let message = LogMessage { kind: number_of(kind), body: body.into() };
            if let Some(exchange) = exchange
                && let Some(answer) = exchange.call(&message, timeout).await
            {
                return Ok(Bytes::from(answer.map_err(failed)?.body));
            }
            let answer =
                runtime::call::<methods::LogCall>(&channel, message, timeout).await.map_err(failed)?;
            Ok(Bytes::from(answer.body))
        })
    }

    fn snapshot(
        &self,
        to: &PeerAddress,
        head: Bytes,
        chunks: BoxStream<'static, io::Result<Bytes>>,
    ) -> BoxFuture<'static, io::Result<Bytes>> {
        let channel = self.0.channel(&to.peer, Lane::Bulk);
        Box::pin(async move {
            let (moved, mut progress) = tokio::sync::watch::channel(());
            // A part that cannot be read ends the input, and the receiver misses the rest.
            let parts =
                chunks.take_while(|chunk| std::future::ready(chunk.is_ok())).filter_map(move |chunk| {
                    moved.send_replace(());
                    std::future::ready(chunk.ok().map(|body| LogMessage { kind: 0, body: body.into() }))
                });
            let head = LogMessage { kind: 0, body: head.into() };
            let mut answers = channel.duplex::<methods::LogSnapshot>(head, parts);
            loop {
                select! {
                    answer = answers.next() => return match answer {
                        Some(Ok(answer)) => Ok(Bytes::from(answer.body)),
                        Some(Err(error)) => Err(failed(error)),
                        None => Err(io::Error::other("the snapshot was not acknowledged")),
                    },
                    Ok(()) = progress.changed() => {}
                    () = runtime::sleep(PROGRESS_TIMEOUT) => {
                        return Err(io::Error::new(io::ErrorKind::TimedOut, "the snapshot made no progress"));
                    }
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_survive_the_wire() {
        let kinds = [
            MessageKind::Append,
            MessageKind::Vote,
            MessageKind::PreVote,
            MessageKind::TransferLeader,
            MessageKind::ReadIndex,
        ];
        for kind in kinds {
            assert_eq!(kind_of(number_of(kind)), Some(kind));
        }
        assert_eq!(kind_of(0), None);
    }
}
