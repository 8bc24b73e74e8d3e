//! The agents' own transport.
//!
//! A call is a [`Method`], a [`StreamMethod`] or a [`DuplexMethod`] (a name and its types), served by a [`Router`] and
//! made through a [`Channel`]. Where the router is makes no difference to either side:
//!
//! - in the same process ([`Channel::local`]): values are handed over as they are, no socket, no
//!   encoding;
//! - at a server ([`Channel::connect`]): HTTP/2 with gRPC framing over TCP, MessagePack inside,
//!   reconnecting, with several servers to choose from;
//! - at a client ([`ReverseRegistry::get`]): over a connection that the client opened
//!   ([`ReverseService`]), so that a client behind NAT can be called.
//!
//! In all three a call that is dropped drops its handler, a panic in a handler is an
//! [`RpcError`] with [`Code::Internal`], and an error arrives as it was sent.
//!
//! The calls that agents make are in [`methods`].
//!
//! What is on the wire: `docs/design/rpc.md`.

mod channel;
mod codec;
mod error;
mod gate;
mod h2;
mod io;
mod method;
pub mod methods;
mod reverse;
mod router;
mod server;
mod stranger;
mod wire;

pub use caravan_tls::Certificate;
pub use channel::{Channel, ConnectOptions, ItemStream, RetryPolicy, Targets};
pub use error::{Code, RpcError, ServeError};
pub use gate::{Entry, Gate, Limits, Ticket};
pub use h2::KeepAlive;
pub use io::{
    Accepted, Acceptor, BoxIo, Connector, Io, TcpAcceptor, TcpConnector, TlsAcceptor, TlsConnector,
};
pub use method::{Context, DuplexMethod, Method, PeerIdentity, Secret, StreamMethod};
pub use reverse::{Connectivity, Registration, ReverseOptions, ReverseRegistry, ReverseService};
pub use router::{Router, RouterBuilder};
pub use server::{AllowAll, Authenticator, RpcServer, ServerOptions};
pub use stranger::Strangers;
pub use wire::{Hello, MAX_MESSAGE_BYTES, Role, VERSION};
