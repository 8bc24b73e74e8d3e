//! TLS for all listeners and connections: the HTTP API and its clients, RPC between agents, and downloads from web
//! servers. [`Connector`] and [`Acceptor`] read certificate files; rustls with ring implements TLS.
//!
//! Files are read when a connector or an acceptor is created, and again by [`Acceptor::replace`] and
//! [`Connector::replace`]. Existing connections keep their settings.

mod client;
mod error;
mod files;
mod problem;
mod protocol;
mod server;
mod stream;
mod verify;

#[cfg(test)]
mod tests;

pub use client::{Checked, ClientSettings, Connector};
pub use error::TlsError;
pub use problem::{Handshake, Problem};
pub use protocol::Protocol;
pub use server::{Acceptor, ServerSettings};
pub use stream::{Certificate, Stream};
