//! RPC between agents.
//!
//! A call is a [`Method`], a [`StreamMethod`] or a [`DuplexMethod`] (a name and its types). A [`Router`]
//! serves calls, and a [`Channel`] sends them. Both sides work the same for each place of the router:
//!
//! - in the same process ([`Channel::local`]): values are passed unchanged, without socket and encoding;
//! - at a server ([`Channel::connect`]): HTTP/2 with gRPC framing over TCP, MessagePack inside, with reconnects and
//!   several servers to choose from;
//! - at a client ([`ReverseRegistry::get`]): over a connection that the client opened ([`ReverseService`]), so that a
//!   client behind NAT can be called.
//!
//! In all three cases, dropping a call drops its handler, a panic in a handler becomes an [`RpcError`] with
//! [`Code::Internal`], and errors arrive unchanged.
//!
//! The calls between agents are in [`methods`].
//!
//! `docs/design/rpc.md` describes the wire format.

mod channel;
mod codec;
mod error;
mod exchange;
mod gate;
mod h2;
mod io;
mod member;
mod method;
pub mod methods;
mod reverse;
mod router;
mod server;
mod stranger;
mod wire;

pub use caravan_tls::Certificate;
pub use channel::{Calling, Channel, ConnectOptions, ItemStream, RetryPolicy, ServerList, Targets};
pub use error::{Code, RpcError, ServeError};
pub use exchange::Exchange;
pub use gate::{Entry, Gate, Limits, Ticket};
pub use h2::KeepAlive;
pub use io::{
    Accepted, Acceptor, BoxIo, Connector, Io, TcpAcceptor, TcpConnector, TlsAcceptor, TlsConnector,
};
pub use member::{Credential, Nonce, ServerHello, ServerSide, SharedCredential};
pub use method::{Context, DuplexMethod, Method, PeerIdentity, Secret, ServerPeer, StreamMethod};
pub use reverse::{Connectivity, Registration, ReverseOptions, ReverseRegistry, ReverseService};
pub use router::{Router, RouterBuilder};
pub use server::{AllowAll, Authenticator, RpcServer, ServerOptions};
pub use stranger::Strangers;
pub use wire::{Hello, MAX_MESSAGE_BYTES, Role, VERSION};
