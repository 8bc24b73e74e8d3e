//! A listener that authenticates peers by their greeting, and serves or calls them.

use crate::exchange;
use crate::gate::{Entry, Limits, within};
use crate::h2::{self, Connection, KeepAlive};
use crate::io::{Accepted, Acceptor, BoxIo, TcpAcceptor};
use crate::member::ServerSide;
use crate::stranger::Strangers;
use crate::wire::{self, Hello, Role};
use crate::{Channel, Code, PeerIdentity, ReverseRegistry, Router, RpcError, ServeError};
use caravan_tls::Certificate;
use futures::future::BoxFuture;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Pause after the system refused to accept a connection, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of concurrent handshakes; further connections wait, unread.
const MAX_GREETINGS: usize = 512;

/// The check of peers that connect.
pub trait Authenticator: fmt::Debug + Send + Sync + 'static {
    /// Verifies `hello` for a connection with `role`, and returns the peer's identity.
    ///
    /// # Errors
    /// The reason for which the peer may not connect, usually [`Code::Permission`]; the peer receives the
    /// error unchanged.
    fn authenticate<'a>(
        &'a self,
        role: Role,
        hello: &'a Hello,
    ) -> BoxFuture<'a, Result<PeerIdentity, RpcError>>;

    /// Verifies `hello` together with the peer's certificate, if the connection is encrypted. An authenticator that
    /// requires certificates must check them here; by default they have no effect.
    ///
    /// # Errors
    /// As [`Authenticator::authenticate`].
    fn admit<'a>(
        &'a self,
        role: Role,
        hello: &'a Hello,
        certificate: Option<&'a Certificate>,
    ) -> BoxFuture<'a, Result<PeerIdentity, RpcError>> {
        let _ = certificate;
        self.authenticate(role, hello)
    }

    /// Returns whether an accepted peer has proved its identity. A peer without proof has tighter limits, and is
    /// checked again at each call.
    fn proves(&self, peer: &PeerIdentity, certificate: Option<&Certificate>) -> bool {
        let _ = (peer, certificate);
        true
    }
}

/// An authenticator that accepts every identity without proof. For tests, and agents whose port no other
/// process can reach.
#[derive(Clone, Copy, Debug)]
pub struct AllowAll;

impl Authenticator for AllowAll {
    fn authenticate<'a>(
        &'a self,
        _role: Role,
        hello: &'a Hello,
    ) -> BoxFuture<'a, Result<PeerIdentity, RpcError>> {
        Box::pin(std::future::ready(Ok(hello.identity.clone())))
    }
}

/// The settings of a server, without its address.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The identity that this server reports.
    pub identity: PeerIdentity,
    /// The methods to serve.
    pub router: Arc<Router>,
    /// The check of peers.
    pub authenticator: Arc<dyn Authenticator>,
    /// Registry of the clients with reverse connections.
    pub registry: ReverseRegistry,
    /// The handshake of accepted connections.
    pub acceptor: Arc<dyn Acceptor>,
    /// The times within which a peer that no longer responds is detected.
    pub keep_alive: KeepAlive,
    /// Maximum number of connections; further peers are refused and may retry later.
    pub max_connections: usize,
    /// Limits on peers that connect.
    pub limits: Limits,
    /// Shared limits of peers that have not proved their identity.
    pub strangers: Strangers,
    /// The identity and credential of this server towards other servers.
    pub own: ServerSide,
}

impl ServerOptions {
    /// Returns options with plain TCP, all peers accepted, 65,536 connections, five seconds for each handshake, and a
    /// new registry.
    pub fn new(identity: PeerIdentity, router: Arc<Router>) -> Self {
        Self {
            identity,
            router,
            authenticator: Arc::new(AllowAll),
            registry: ReverseRegistry::default(),
            acceptor: Arc::new(TcpAcceptor),
            keep_alive: KeepAlive::default(),
            max_connections: 65_536,
            limits: Limits::default(),
            strangers: Strangers::default(),
            own: ServerSide::default(),
        }
    }
}

/// A server that listens.
#[derive(Debug)]
pub struct RpcServer {
    listener: TcpListener,
    addr: SocketAddr,
    options: Arc<ServerOptions>,
}

impl RpcServer {
    /// Listens on `addr`; port 0 chooses a free port.
    ///
    /// # Errors
    /// [`ServeError::Bind`].
    pub async fn bind(addr: SocketAddr, options: ServerOptions) -> Result<Self, ServeError> {
        let bind = |source| ServeError::Bind { addr, source };
        let listener = TcpListener::bind(addr).await.map_err(bind)?;
        Self::on(listener, options).map_err(bind)
    }

    /// Serves on an existing listener, so that a caller can first check that the port is free.
    ///
    /// # Errors
    /// If the listener has no address.
    pub fn on(listener: TcpListener, options: ServerOptions) -> std::io::Result<Self> {
        let addr = listener.local_addr()?;
        Ok(Self { listener, addr, options: Arc::new(options) })
    }

    /// Returns the address in use.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until `cancel`; then calls in progress get a second to end.
    pub async fn run(self, cancel: CancellationToken) {
        let permits = Arc::new(Semaphore::new(self.options.max_connections));
        let greeting = Arc::new(Semaphore::new(MAX_GREETINGS));
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = cancel.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            let (stream, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an RPC connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let gate = self.options.limits.gate();
            let (ticket, surplus) = match gate.enter(from.ip().to_canonical(), Instant::now()) {
                Entry::In(ticket) => (ticket, None),
                Entry::Out { answered: true } => (None, Some(gate.most())),
                Entry::Out { answered: false } => continue,
            };
            let permit = Arc::clone(&permits).try_acquire_owned().ok();
            let refusal = match surplus {
                Some(most) => Some(format!(
                    "this server lets an address have {most} connections (limits.rpc_max_conns_per_client)"
                )),
                None if permit.is_none() => Some("this server has as many connections as it may".to_owned()),
                None => None,
            };
            let (options, cancel) = (Arc::clone(&self.options), cancel.clone());
            let greeting = Arc::clone(&greeting);
            connections.spawn(async move {
                if let Err(error) = connection(stream, refusal, &options, &greeting, cancel).await {
                    tracing::debug!(%from, %error, "an RPC connection was refused or failed");
                }
                drop((permit, ticket));
            });
        }
        drop(self.listener);
        connections.close();
        connections.wait().await;
    }
}

async fn connection(
    stream: TcpStream,
    refusal: Option<String>,
    options: &Arc<ServerOptions>,
    greeting: &Semaphore,
    cancel: CancellationToken,
) -> Result<(), RpcError> {
    // No byte has been read yet from the connections that wait here.
    let turn = tokio::select! {
        turn = within(options.limits.handshake(), greeting.acquire()) => turn.and_then(Result::ok),
        () = cancel.cancelled() => None,
    };
    let Some(turn) = turn else {
        return Err(RpcError::unavailable("this server is busy with other greetings"));
    };
    let handshake = tokio::select! {
        done = within(options.limits.handshake(), options.acceptor.accept(stream)) => done,
        () = cancel.cancelled() => return Err(RpcError::unavailable("this server is stopping")),
    };
    let Accepted { mut io, certificate } = match handshake {
        Some(Ok(accepted)) => accepted,
        Some(Err(error)) => return Err(RpcError::unavailable(format!("the handshake failed: {error}"))),
        None => return Err(RpcError::new(Code::Deadline, "the handshake took too long")),
    };
    let introduced = tokio::select! {
        introduced = introduce(&mut io, certificate.as_ref(), refusal, options) => introduced,
        () = cancel.cancelled() => Err(RpcError::unavailable("this server is stopping")),
    };
    drop(turn);
    match introduced {
        Ok((role, peer)) => talk(io, role, peer, certificate, options, cancel).await,
        Err(error) => {
            wire::refuse(io, error.clone()).await;
            Err(error)
        }
    }
}

async fn introduce(
    io: &mut BoxIo,
    certificate: Option<&Certificate>,
    refusal: Option<String>,
    options: &ServerOptions,
) -> Result<(Role, PeerIdentity), RpcError> {
    if let Some(reason) = refusal {
        return Err(RpcError::unavailable(reason));
    }
    let (role, hello) = wire::read_hello(io, options.limits.handshake()).await?;
    let mut peer = options.authenticator.admit(role, &hello, certificate).await?;
    if let PeerIdentity::Server(server) = &mut peer {
        server.is_member = wire::challenge(io, role, &hello, &options.own).await?;
    }
    if role.is_for_members() && !peer.is_member() {
        let reason = format!("{peer} has not proved that it belongs to this cluster");
        return Err(RpcError::new(Code::Permission, reason));
    }
    if role == Role::Reversed && !matches!(peer, PeerIdentity::Client { .. }) {
        return Err(RpcError::new(Code::Invalid, format!("only clients offer a way back, not {peer}")));
    }
    Ok((role, peer))
}

async fn talk(
    mut io: BoxIo,
    role: Role,
    peer: PeerIdentity,
    certificate: Option<Certificate>,
    options: &Arc<ServerOptions>,
    cancel: CancellationToken,
) -> Result<(), RpcError> {
    let lost = |error: &dyn fmt::Display| RpcError::unavailable(format!("the connection was lost: {error}"));
    let (own, who, shown) = (Arc::clone(options), peer.clone(), certificate.clone());
    let proves = move || own.authenticator.proves(&who, shown.as_ref());
    let stranger = match role {
        Role::Rpc if !peer.is_member() && !proves() => match options.strangers.enter(proves) {
            Ok(stranger) => Some(stranger),
            Err(error) => {
                wire::refuse(io, error.clone()).await;
                return Err(error);
            }
        },
        _ => None,
    };
    wire::accept(&mut io, &options.identity).await.map_err(|error| lost(&error))?;
    match (role, &peer) {
        (Role::Reversed, PeerIdentity::Client { node_id, secret }) => {
            let connection = Connection::handshake(io, options.keep_alive).await?;
            let (closed, cut) = (connection.closed(), connection.clone());
            let channel = Channel::over(connection, peer.clone());
            let entry = options.registry.enter(node_id.clone(), channel, Some(secret.clone()));
            // The secret may have been revoked after the greeting, before the entry existed.
            if !options.authenticator.proves(&peer, None) {
                cut.cut();
                return Err(RpcError::new(Code::Permission, format!("{peer} is not known any more")));
            }
            tokio::select! {
                () = closed => {}
                () = entry.revoked() => {
                    tracing::info!(%peer, "a client's reverse connection is closed: its secret was revoked");
                    cut.cut();
                }
                () = cancel.cancelled() => {}
            }
            Ok(())
        }
        (Role::Exchange, _) => {
            let ended = exchange::serve(io, &options.router, &peer, &cancel).await;
            ended.map_err(|error| lost(&error))
        }
        _ => {
            let (router, nodes) = (Arc::clone(&options.router), Some(options.registry.clone()));
            let served = h2::Served { router, nodes };
            let ended = h2::serve(io, served, peer, stranger, options.keep_alive, cancel).await;
            ended.map_err(|error| lost(&error))
        }
    }
}
