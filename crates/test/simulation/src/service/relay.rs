//! Calls and streams over the virtual network, with the forms of messages on the wire.

use super::world::{REGION, Sim, uuid};
use crate::net::Work;
use bytes::Bytes;
use caravan_consensus::sim::{HostId, sleep, spawn_on, timeout};
use caravan_rpc::{
    Channel, Method, PeerIdentity, Router, RouterBuilder, RpcError, Secret, ServerPeer, StreamMethod, methods,
};
use caravan_types::packed::Packed;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// The time for which a connection without responses lasts: a few keep-alives.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(8);
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval of the keep-alives of a stream.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// The pause before an interrupted stream is retried.
const RETRY: Duration = Duration::from_millis(100);

/// One side of a connection to a server.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) sim: Sim,
    pub(super) from: HostId,
    pub(super) to: HostId,
    pub(super) caller: Caller,
}

#[derive(Clone, Debug)]
pub(super) enum Caller {
    Server,
    Node { id: String, secret: String },
}

fn packed<T: Packed>(value: &T) -> Bytes {
    value.pack().expect("messages have a form on the wire").into()
}

fn unpacked<T: Packed>(bytes: &[u8]) -> T {
    T::unpack(bytes).expect("a message that was packed can be unpacked")
}

fn lost() -> RpcError {
    RpcError::unavailable("the connection was lost")
}

impl Line {
    /// Returns the channel within the receiving process, as its listener would open one; `None` if no process runs.
    fn arrive(&self) -> Option<Channel> {
        let peer = match &self.caller {
            Caller::Server => PeerIdentity::Server(ServerPeer {
                name: format!("s{}", self.from.0),
                id: uuid(self.from).to_string(),
                region: REGION.to_owned(),
                is_member: self.sim.is_member(self.from, self.to),
            }),
            Caller::Node { id, secret } => {
                PeerIdentity::Client { node_id: id.clone(), secret: Secret::new(secret.clone()) }
            }
        };
        Some(Channel::local(self.sim.router(self.to)?, peer))
    }

    /// Calls a method. The network may deliver a request twice only if `repeatable`.
    pub(super) async fn call<M: Method>(
        &self,
        request: M::Request,
        limit: Duration,
        repeatable: bool,
    ) -> Result<M::Response, RpcError> {
        let (line, request, taken) = (self.clone(), packed(&request), Arc::new(AtomicBool::new(false)));
        let work: Work<Result<Bytes, RpcError>> = Arc::new(move || {
            let (line, request, taken) = (line.clone(), request.clone(), taken.clone());
            Box::pin(async move {
                if !repeatable && taken.swap(true, Ordering::Relaxed) {
                    return None;
                }
                // A process that is starting refuses connections.
                let Some(channel) = line.arrive() else { return Some(Err(lost())) };
                let answer = channel.call::<M>(unpacked(&request), None).await;
                Some(answer.map(|answer| packed(&answer)))
            })
        });
        let answer = self.sim.net.call(self.from, self.to, limit, work).await;
        answer.unwrap_or_else(|| Err(lost())).map(|answer| unpacked(&answer))
    }

    /// Opens a stream. Its items arrive in order; a connection that stays interrupted is lost.
    pub(super) fn stream<M: StreamMethod>(
        &self,
        request: M::Request,
    ) -> BoxStream<'static, Result<M::Item, RpcError>> {
        let (deliver, items) = mpsc::unbounded_channel();
        spawn_on(HostId(0), self.clone().carry::<M>(packed(&request), deliver));
        let items = futures::stream::unfold(Some(items), |items| async move {
            let mut items = items?;
            match items.recv().await {
                Some(Ok(Some(item))) => Some((Ok(unpacked(&item)), Some(items))),
                Some(Ok(None)) => None,
                Some(Err(error)) => Some((Err(error), None)),
                None => Some((Err(lost()), None)),
            }
        });
        items.boxed()
    }

    /// Carries the items of a stream. The last item is `None`.
    async fn carry<M: StreamMethod>(self, request: Bytes, deliver: Deliver) {
        let lost_at_once = Err(lost());
        let Some(delay) = self.sim.net.carry(self.from, self.to) else {
            sleep(CONNECTION_TIMEOUT).await;
            // The receiver may have been dropped.
            let _ = deliver.send(lost_at_once);
            return;
        };
        sleep(delay).await;
        let (send, mut sent) = mpsc::unbounded_channel();
        let alive = Arc::new(AtomicBool::new(false));
        spawn_on(self.to, produce::<M>(self.clone(), request, send));
        let mut silent = Duration::ZERO;
        loop {
            let next = tokio::select! {
                biased;
                () = deliver.closed() => return,
                next = timeout(KEEP_ALIVE, sent.recv()) => next,
            };
            match next {
                Ok(Some(item)) => {
                    let Some(delay) = self.passage(&deliver).await else { return };
                    sleep(delay).await;
                    if deliver.send(item).is_err() {
                        return;
                    }
                }
                // The stream or its process has ended.
                Ok(None) => return,
                Err(_) => {
                    let passes =
                        self.sim.net.passes(self.from, self.to) && self.sim.net.passes(self.to, self.from);
                    silent = if alive.swap(false, Ordering::Relaxed) && passes {
                        Duration::ZERO
                    } else {
                        silent + KEEP_ALIVE
                    };
                    if silent > CONNECTION_TIMEOUT {
                        return;
                    }
                    // A suspended process responds to no keep-alive.
                    let answered = alive.clone();
                    spawn_on(self.to, async move { answered.store(true, Ordering::Relaxed) });
                }
            }
        }
    }

    /// Waits until an item passes, and returns its delay; `None` if the connection is lost before.
    async fn passage(&self, deliver: &Deliver) -> Option<Duration> {
        let mut waited = Duration::ZERO;
        while waited < CONNECTION_TIMEOUT && !deliver.is_closed() {
            // A lost packet is sent again.
            match self.sim.net.carry(self.to, self.from) {
                Some(delay) => return Some(delay),
                None => sleep(RETRY).await,
            }
            waited += RETRY;
        }
        None
    }
}

type Item = Result<Option<Bytes>, RpcError>;
type Deliver = mpsc::UnboundedSender<Item>;

/// Sends the items of a stream, until the stream or the connection ends.
async fn produce<M: StreamMethod>(line: Line, request: Bytes, send: Deliver) {
    let Some(channel) = line.arrive() else { return };
    let mut items = channel.stream::<M>(unpacked(&request));
    loop {
        let item = tokio::select! {
            biased;
            () = send.closed() => return,
            item = items.next() => item,
        };
        let is_last = !matches!(item, Some(Ok(_)));
        let item = item.transpose().map(|item| item.map(|item| packed(&item)));
        if send.send(item).is_err() || is_last {
            return;
        }
    }
}

/// Returns a channel from one server to another.
pub(super) fn to_server(sim: &Sim, from: HostId, to: HostId) -> Channel {
    let line = Line { sim: sim.clone(), from, to, caller: Caller::Server };
    let mut builder = Router::builder();
    builder = line.serve::<methods::LogCall>(builder, true);
    builder = line.serve::<methods::ServerStatus>(builder, true);
    builder = line.serve::<methods::ServerPromise>(builder, false);
    builder = line.serve::<methods::ServerFounding>(builder, false);
    builder = line.serve::<methods::ServerAdmit>(builder, false);
    builder = line.serve::<methods::ServerRemoval>(builder, false);
    builder = line.serve::<methods::NodeRegister>(builder, false);
    builder = line.serve::<methods::NodeHeartbeat>(builder, false);
    builder = line.serve::<methods::AllocStatus>(builder, false);
    builder = line.serve::<methods::ClaimReport>(builder, false);
    builder = line.serve_stream::<methods::ServerNodes>(builder);
    builder = line.serve_stream::<methods::ClaimVolume>(builder);
    builder = line.serve_snapshots(builder);
    Channel::local(builder.build(), PeerIdentity::server(format!("s{}", from.0)))
}

impl Line {
    fn serve<M: Method>(&self, builder: RouterBuilder, repeatable: bool) -> RouterBuilder {
        let line = self.clone();
        builder.unary::<M, _, _>(move |_, request| {
            let line = line.clone();
            async move { line.call::<M>(request, CONNECTION_TIMEOUT, repeatable).await }
        })
    }

    fn serve_stream<M: StreamMethod>(&self, builder: RouterBuilder) -> RouterBuilder {
        let line = self.clone();
        builder.stream::<M, _, _, _>(move |_, request| {
            let items = line.stream::<M>(request);
            async move { Ok(items) }
        })
    }

    fn serve_snapshots(&self, builder: RouterBuilder) -> RouterBuilder {
        let line = self.clone();
        builder.duplex::<methods::LogSnapshot, _, _, _>(move |_, head, parts| {
            let line = line.clone();
            async move {
                let parts: Vec<Result<_, RpcError>> = parts.collect().await;
                let parts: Vec<_> = parts.into_iter().collect::<Result<_, _>>()?;
                let parts: Arc<Vec<Bytes>> = Arc::new(parts.iter().map(packed).collect());
                let (from, to, net, head) = (line.from, line.to, line.sim.net.clone(), packed(&head));
                let work: Work<Result<Bytes, RpcError>> = Arc::new(move || {
                    let (line, head, parts) = (line.clone(), head.clone(), parts.clone());
                    Box::pin(async move {
                        let parts: Vec<_> = parts.iter().map(|part| unpacked(part)).collect();
                        let parts = futures::stream::iter(parts);
                        let channel = line.arrive()?;
                        let mut answers = channel.duplex::<methods::LogSnapshot>(unpacked(&head), parts);
                        Some(
                            answers.next().await.unwrap_or_else(|| Err(lost())).map(|answer| packed(&answer)),
                        )
                    })
                });
                let answer = net.call(from, to, SNAPSHOT_TIMEOUT, work).await;
                let answer = answer.unwrap_or_else(|| Err(lost())).map(|answer| unpacked(&answer));
                Ok(one(answer))
            }
        })
    }
}

fn one<T: Send + 'static>(answer: Result<T, RpcError>) -> impl Stream<Item = Result<T, RpcError>> + Send {
    futures::stream::once(std::future::ready(answer))
}
