//! Methods, servers and a proxy that the tests share.

use caravan_rpc::{
    Calling, Code, ConnectOptions, Context, Credential, DuplexMethod, ItemStream, Method, PeerIdentity,
    RetryPolicy, Router, RpcError, RpcServer, Secret, ServerOptions, ServerPeer, ServerSide, StreamMethod,
};
use futures::{Stream, StreamExt};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;

/// The longest time that a test waits for one step.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

caravan_types::packed!(Echo, Count);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Echo {
    pub(crate) text: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) nothing: Option<u64>,
}

impl Method for Echo {
    const NAME: &'static str = "Test.Echo";
    type Request = Self;
    type Response = Self;
}

/// A method that returns the caller's identity as text.
pub(crate) struct WhoAmI;

impl Method for WhoAmI {
    const NAME: &'static str = "Test.WhoAmI";
    type Request = ();
    type Response = String;
}

/// A method that fails with the requested error.
pub(crate) struct Fail;

impl Method for Fail {
    const NAME: &'static str = "Test.Fail";
    type Request = RpcError;
    type Response = ();
}

pub(crate) struct Panic;

impl Method for Panic {
    const NAME: &'static str = "Test.Panic";
    type Request = ();
    type Response = ();
}

/// A method that never returns.
pub(crate) struct Hang;

impl Method for Hang {
    const NAME: &'static str = "Test.Hang";
    type Request = ();
    type Response = ();
}

pub(crate) struct Unserved;

impl Method for Unserved {
    const NAME: &'static str = "Test.Unserved";
    type Request = ();
    type Response = ();
}

/// A method that counts up to a number, then ends, fails or stays silent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) upto: u32,
    pub(crate) then: Then,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Then {
    End,
    Fail,
    Panic,
    Silence,
}

impl StreamMethod for Count {
    const NAME: &'static str = "Test.Count";
    type Request = Self;
    type Item = u32;
}

/// An observed event of a handler.
#[derive(Debug, PartialEq)]
pub(crate) enum Seen {
    Started(&'static str),
    Dropped(&'static str),
    Cancelled(&'static str),
}

pub(crate) struct OnDrop(mpsc::UnboundedSender<Seen>, &'static str);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.send(Seen::Dropped(self.1));
    }
}

/// Reports when the call starts, when its future is dropped, and when its token is cancelled.
fn watch(seen: &mpsc::UnboundedSender<Seen>, cx: &Context, name: &'static str) -> OnDrop {
    let _ = seen.send(Seen::Started(name));
    let (sender, token) = (seen.clone(), cx.cancel.clone());
    tokio::spawn(async move {
        token.cancelled().await;
        let _ = sender.send(Seen::Cancelled(name));
    });
    OnDrop(seen.clone(), name)
}

/// A method that sends a greeting, then each word in capitals, and "bye" at the end of the words.
pub(crate) struct Shout;

impl DuplexMethod for Shout {
    const NAME: &'static str = "Test.Shout";
    type Request = String;
    type Input = String;
    type Output = String;
}

fn shout(name: String, words: ItemStream<String>) -> impl Stream<Item = Result<String, RpcError>> + Send {
    let hello = futures::stream::iter([Ok(format!("hello {name}"))]);
    let bye = futures::stream::iter([Ok(String::from("bye"))]);
    hello.chain(words.map(|word| Ok(word?.to_uppercase()))).chain(bye)
}

pub(crate) fn router() -> (Arc<Router>, mpsc::UnboundedReceiver<Seen>) {
    let (seen, watching) = mpsc::unbounded_channel();
    let for_stream = seen.clone();
    let router = Router::builder()
        .unary::<Echo, _, _>(async |_, echo| Ok(echo))
        .unary::<WhoAmI, _, _>(async |cx: Context, ()| Ok(cx.peer.to_string()))
        .unary::<Fail, _, _>(async |_, error| Err(error))
        .unary::<Panic, _, _>(async |_, ()| panic!("asked to"))
        .unary::<Hang, _, _>(move |cx, ()| {
            let watch = watch(&seen, &cx, "hang");
            async move {
                let _watch = watch;
                std::future::pending().await
            }
        })
        .duplex::<Shout, _, _, _>(async |_, name, words| Ok(shout(name, words)))
        .stream::<Count, _, _, _>(move |cx, count| {
            let watch = watch(&for_stream, &cx, "count");
            async move { Ok(count_up(count, watch)) }
        })
        .build();
    (router, watching)
}

fn count_up(count: Count, watch: OnDrop) -> impl futures::Stream<Item = Result<u32, RpcError>> + Send {
    futures::stream::unfold((0, watch), move |(n, watch)| {
        let then = count.then.clone();
        let upto = count.upto;
        async move {
            if n < upto {
                return Some((Ok(n), (n + 1, watch)));
            }
            match then {
                Then::End => None,
                Then::Fail => Some((Err(RpcError::new(Code::Conflict, "counted enough")), (n, watch))),
                Then::Panic => panic!("asked to"),
                Then::Silence => std::future::pending().await,
            }
        }
    })
}

pub(crate) async fn expect(watching: &mut mpsc::UnboundedReceiver<Seen>, expected: &[Seen]) {
    let mut missing: Vec<&Seen> = expected.iter().collect();
    while !missing.is_empty() {
        let seen = tokio::time::timeout(TIMEOUT, watching.recv()).await;
        let seen = seen.unwrap_or_else(|_| panic!("never seen: {missing:?}")).unwrap();
        missing.retain(|expected| **expected != seen);
    }
}

pub(crate) fn client() -> PeerIdentity {
    PeerIdentity::Client { node_id: "node-1".into(), secret: Secret::new("s3cret") }
}

pub(crate) fn server() -> PeerIdentity {
    PeerIdentity::server("server-1")
}

/// Returns a server with this UUID in the cluster of the tests.
pub(crate) fn member(id: &str) -> ServerSide {
    let own = ServerSide { id: id.to_owned(), ..ServerSide::default() };
    own.credential.set(Credential::new("cluster", 1, [7; 32]));
    own
}

/// Returns options with which one member calls another.
pub(crate) fn from_member(from: &str, to: &str, targets: &[SocketAddr]) -> ConnectOptions {
    calling(member(from), to, targets)
}

/// Returns options with which a server calls another.
pub(crate) fn calling(own: ServerSide, to: &str, targets: &[SocketAddr]) -> ConnectOptions {
    let name = format!("server-{}", own.id);
    let identity = PeerIdentity::Server(ServerPeer { name, id: own.id.clone(), ..ServerPeer::default() });
    ConnectOptions { identity, server: Some(Calling { own, to: to.to_owned() }), ..impatient(targets) }
}

pub(crate) fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub(crate) fn options(targets: &[SocketAddr]) -> ConnectOptions {
    let targets = targets.iter().map(ToString::to_string).collect();
    ConnectOptions {
        retry: RetryPolicy {
            first_pause: Duration::from_millis(5),
            longest_pause: Duration::from_millis(50),
            patience: TIMEOUT,
        },
        ..ConnectOptions::new(targets, client(), "global")
    }
}

/// Returns options for a call that fails after one round of attempts.
pub(crate) fn impatient(targets: &[SocketAddr]) -> ConnectOptions {
    let mut options = options(targets);
    options.retry.patience = Duration::ZERO;
    options
}

pub(crate) struct Running {
    pub(crate) addr: SocketAddr,
    pub(crate) cancel: CancellationToken,
    pub(crate) task: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn start(addr: SocketAddr, options: ServerOptions) -> Self {
        let server = RpcServer::bind(addr, options).await.unwrap();
        let (addr, cancel) = (server.local_addr(), CancellationToken::new());
        let task = tokio::spawn(server.run(cancel.clone()));
        Self { addr, cancel, task }
    }

    pub(crate) async fn stop(self) {
        self.cancel.cancel();
        tokio::time::timeout(TIMEOUT, self.task).await.expect("the server did not stop").unwrap();
    }
}

/// A TCP proxy that can cut connections, as a NAT does when it drops its state.
pub(crate) struct Proxy {
    pub(crate) addr: SocketAddr,
    connections: Arc<std::sync::Mutex<Vec<AbortHandle>>>,
    accept: AbortHandle,
    frozen: Arc<AtomicBool>,
    held: watch::Sender<bool>,
}

impl Proxy {
    pub(crate) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind(any_port()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let connections: Arc<std::sync::Mutex<Vec<AbortHandle>>> = Arc::default();
        let opened = Arc::clone(&connections);
        let frozen = Arc::new(AtomicBool::new(false));
        let freeze = Arc::clone(&frozen);
        let held = watch::Sender::new(false);
        let hold = held.clone();
        let accept = tokio::spawn(async move {
            loop {
                let (near, _) = listener.accept().await.unwrap();
                let freeze = Arc::clone(&freeze);
                let (to_far, to_near) = (hold.subscribe(), hold.subscribe());
                let pipe = tokio::spawn(async move {
                    if let Ok(far) = TcpStream::connect(to).await {
                        let (near, far) = (near.into_split(), far.into_split());
                        tokio::join!(
                            pipe(near.0, far.1, &freeze, to_far),
                            pipe(far.0, near.1, &freeze, to_near)
                        );
                    }
                });
                opened.lock().unwrap().push(pipe.abort_handle());
            }
        });
        Self { addr, connections, accept: accept.abort_handle(), frozen, held }
    }

    /// Stops forwarding without closing connections.
    pub(crate) fn freeze(&self) {
        self.frozen.store(true, Ordering::SeqCst);
    }

    /// Holds all bytes back, or forwards them again.
    pub(crate) fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// Returns the number of connections that were opened since the start or the last cut.
    pub(crate) fn connections(&self) -> usize {
        self.connections.lock().unwrap().len()
    }

    pub(crate) fn cut(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            connection.abort();
        }
    }
}

async fn pipe(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    frozen: &AtomicBool,
    mut held: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        held.wait_for(|held| !held).await.unwrap();
        if !frozen.load(Ordering::SeqCst) && to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
    // While frozen, the proxy does not forward the end of a connection either.
    if frozen.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
        self.accept.abort();
    }
}
