//! TLS for whatever listens and connects: the HTTP API and its clients, calls between agents, and what is fetched from
//! web servers. Files of certificates in, [`Connector`] and [`Acceptor`] out; rustls with ring does the rest.
//!
//! Files are read when a connector or an acceptor is made, and again when it is told to ([`Acceptor::replace`],
//! [`Connector::replace`]): connections made before keep what they began with.

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
