//! The connection to a plugin, and the common part of all calls.

mod controller;
mod identity;
mod node;
#[cfg(test)]
mod tests;

use crate::{Call, CsiError, Deadlines, MountFlags, Secrets};
use caravan_proto::csi::{
    controller_client::ControllerClient, identity_client::IdentityClient, node_client::NodeClient,
};
use caravan_sys::dir::Dir;
use hyper_util::rt::TokioIo;
use std::{future::Future, io, path::Path, sync::Arc};
use tokio::net::UnixStream;
use tonic::{
    Request, Response, Status,
    transport::{Channel, Endpoint},
};

/// Maximum size of a response in bytes; a list of a hundred thousand volumes fits.
const LARGEST_ANSWER: usize = 64 * 1024 * 1024;

/// A client of one plugin, by the path of its unix socket. Clones are cheap and share the connection.
///
/// The client connects at the first call and reconnects after a broken connection. While the plugin is
/// down, each call fails immediately with [`CsiError::Unreachable`]. Calls run concurrently. Dropping the
/// future of a call cancels the call, if the plugin supports cancellation.
#[derive(Clone, Debug)]
pub struct CsiClient {
    channel: Channel,
    socket: Arc<Path>,
    deadlines: Deadlines,
}

impl CsiClient {
    /// Creates a client for the plugin at `socket`, without connecting.
    ///
    /// # Panics
    /// Outside of a tokio runtime, which the connection's background task needs.
    pub fn new(socket: impl AsRef<Path>, deadlines: Deadlines) -> Self {
        let socket: Arc<Path> = Arc::from(socket.as_ref());
        let path = Arc::clone(&socket);
        // The authority is never resolved, but servers in other languages refuse an empty one.
        let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(
            tower::service_fn(move |_| {
                let path = Arc::clone(&path);
                async move { connect(&path).await.map(TokioIo::new) }
            }),
        );
        Self { channel, socket, deadlines }
    }

    /// Returns the path of the plugin's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    fn identity(&self) -> IdentityClient<Channel> {
        IdentityClient::new(self.channel.clone()).max_decoding_message_size(LARGEST_ANSWER)
    }

    fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel.clone()).max_decoding_message_size(LARGEST_ANSWER)
    }

    fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel.clone()).max_decoding_message_size(LARGEST_ANSWER)
    }

    /// Sends one call: sets and enforces the deadline, classifies errors, redacts secrets.
    async fn call<Q, A, F>(
        &self,
        call: Call,
        sensitive: &Sensitive,
        message: Q,
        send: impl FnOnce(Request<Q>) -> F,
    ) -> Result<A, CsiError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let after = self.deadlines.timeout(call);
        let mut request = Request::new(message);
        request.set_timeout(after);
        let result = match tokio::time::timeout(after, send(request)).await {
            Err(_elapsed) => Err(CsiError::Deadline { call, after }),
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => {
                Err(CsiError::from_status(call, &self.socket, after, &status, |text| sensitive.scrub(text)))
            }
        };
        match &result {
            Ok(_) => tracing::trace!(%call, socket = %self.socket.display(), "plugin answered"),
            Err(error) => tracing::debug!(%call, socket = %self.socket.display(), %error, "call failed"),
        }
        result
    }
}

/// Connects to a socket by descriptor: the plugin may replace the socket by a link, which must not lead out of the
/// directory. The path may be longer than a socket address (107 bytes, unix(7)).
pub async fn connect(socket: &Path) -> io::Result<UnixStream> {
    let failed = |error: caravan_sys::Error| match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::other(caravan_sys::describe(&error)),
    };
    let name = socket.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let dir = match socket.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let opened = Dir::open(dir).and_then(|dir| dir.handle_linked(Path::new(name))).map_err(failed)?;
    let stream = UnixStream::connect(opened.proc_path()).await;
    drop(opened);
    stream
}

/// The secrets of a call, which its errors must not contain.
#[derive(Clone, Debug, Default)]
struct Sensitive {
    secrets: Secrets,
    flags: MountFlags,
}

impl Sensitive {
    fn none() -> Self {
        Self::default()
    }

    fn secrets(secrets: &Secrets) -> Self {
        Self { secrets: secrets.clone(), flags: MountFlags::default() }
    }

    fn and_flags<'a>(mut self, flags: impl IntoIterator<Item = &'a MountFlags>) -> Self {
        for flags in flags {
            self.flags.0.extend(flags.0.iter().cloned());
        }
        self
    }

    fn scrub(&self, text: &str) -> String {
        self.flags.scrub(&self.secrets.scrub(text))
    }
}
