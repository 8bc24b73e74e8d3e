//! Reverse connections: servers call clients over connections that the clients opened.

use crate::channel::ConnectOptions;
use crate::io::BoxIo;
use crate::wire::Role;
use crate::{Channel, Code, PeerIdentity, Router, RpcError, Secret, h2};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Maximum pause after a response of a server without a registration of this node.
const UNREGISTERED_PAUSE: Duration = Duration::from_millis(500);

/// The clients that can be called now, by node id. Clones share the same entries.
#[derive(Clone, Debug)]
pub struct ReverseRegistry {
    entries: Arc<Mutex<Entries>>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Entries {
    by_node: HashMap<String, Entry>,
    /// Number of the newest entry, so that the end of an older registration does not remove a newer one.
    newest: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    channel: Channel,
    /// The secret that the client authenticated with; `None` within the process.
    secret: Option<Secret>,
    /// Cancelled when the entry is revoked.
    revoked: CancellationToken,
}

impl Default for ReverseRegistry {
    fn default() -> Self {
        Self { entries: Arc::default(), changes: watch::Sender::new(0) }
    }
}

impl ReverseRegistry {
    /// Registers a channel to a client; the newest channel is used. A client in the same process registers a local
    /// channel. Dropping the registration removes it.
    #[must_use = "dropping the registration takes the client away"]
    pub fn register(&self, node_id: String, channel: Channel) -> Registration {
        self.enter(node_id, channel, None)
    }

    /// Registers a channel to a client that authenticated with a secret.
    pub(crate) fn enter(&self, node_id: String, channel: Channel, secret: Option<Secret>) -> Registration {
        let revoked = CancellationToken::new();
        let number = {
            let mut entries = self.lock();
            entries.newest += 1;
            let number = entries.newest;
            let entry = Entry { number, channel, secret, revoked: revoked.clone() };
            entries.by_node.insert(node_id.clone(), entry);
            number
        };
        self.changed();
        Registration { registry: self.clone(), node_id, number, revoked }
    }

    /// Removes the channel to a client and closes its connection, unless the client authenticated with a
    /// secret that is still valid.
    pub fn revoke_unless(&self, node_id: &str, is_good: impl FnOnce(&Secret) -> bool) {
        let revoked = {
            let mut entries = self.lock();
            let secret = entries.by_node.get(node_id).and_then(|entry| entry.secret.as_ref());
            let is_bad = secret.is_some_and(|secret| !is_good(secret));
            if is_bad { entries.by_node.remove(node_id) } else { None }
        };
        if let Some(entry) = revoked {
            entry.revoked.cancel();
            self.changed();
        }
    }

    /// Returns the channel to a client.
    ///
    /// # Errors
    /// [`Code::NoPath`] if the client has no connection to this server.
    pub fn get(&self, node_id: &str) -> Result<Channel, RpcError> {
        let entries = self.lock();
        match entries.by_node.get(node_id) {
            Some(entry) if !entry.channel.is_closed() => Ok(entry.channel.clone()),
            _ => Err(RpcError::new(Code::NoPath, format!("node {node_id} has no connection to this server"))),
        }
    }

    /// Returns the node ids of all clients that can be called, in no order.
    pub fn connected(&self) -> Vec<String> {
        let entries = self.lock();
        let open = entries.by_node.iter().filter(|(_, entry)| !entry.channel.is_closed());
        open.map(|(node_id, _)| node_id.clone()).collect()
    }

    /// Returns a receiver that changes whenever a client connects or disconnects.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    // Each holder completes its change under the lock, so a panic leaves no partial change.
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock()
    }
}

/// An entry in a [`ReverseRegistry`], until dropped.
#[derive(Debug)]
pub struct Registration {
    registry: ReverseRegistry,
    node_id: String,
    number: u64,
    revoked: CancellationToken,
}

impl Registration {
    /// Waits until the entry is revoked.
    pub(crate) async fn revoked(&self) {
        self.revoked.cancelled().await;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let removed = {
            let mut entries = self.registry.lock();
            let ours = entries.by_node.get(&self.node_id).is_some_and(|entry| entry.number == self.number);
            ours && entries.by_node.remove(&self.node_id).is_some()
        };
        if removed {
            self.registry.changed();
        }
    }
}

/// Whether a server can call this client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connectivity {
    /// A server can call the client.
    Connected {
        /// The server's identity, as the server reported it.
        server: PeerIdentity,
        /// The server's address.
        target: String,
    },
    /// No server can call the client.
    Disconnected {
        /// The error of the last attempt; absent before the first.
        error: Option<RpcError>,
    },
}

/// The settings of a client's reverse connection.
#[derive(Clone, Debug)]
pub struct ReverseOptions {
    /// Servers, identity and retry policy. [`crate::RetryPolicy::patience`] is not used: the service retries forever.
    pub connect: ConnectOptions,
    /// The methods that servers may call.
    pub router: Arc<Router>,
}

/// The service that keeps a connection open over which a server can call this client.
#[derive(Debug)]
#[must_use = "no server can call this client unless the service runs"]
pub struct ReverseService {
    options: ReverseOptions,
    state: watch::Sender<Connectivity>,
}

impl ReverseService {
    /// Creates the service, and a receiver of its connectivity.
    pub fn new(options: ReverseOptions) -> (Self, watch::Receiver<Connectivity>) {
        let (state, watch) = watch::channel(Connectivity::Disconnected { error: None });
        (Self { options, state }, watch)
    }

    /// Runs until `cancel`; then calls in progress get a second to end.
    pub async fn run(self, cancel: CancellationToken) {
        let connect = &self.options.connect;
        let mut changes = connect.targets.changes();
        let (mut next, mut failures) = (0, 0u32);
        loop {
            let targets = changes.borrow_and_update().clone();
            let count = targets.len().max(1);
            let target = targets.get(next % count).cloned();
            let outcome = tokio::select! {
                () = cancel.cancelled() => break,
                outcome = self.dial(target) => outcome,
            };
            let error = match outcome {
                Ok(connected) => {
                    failures = 0;
                    match self.serve_while_assigned(connected, &cancel, &mut changes).await {
                        Some(error) => error,
                        None => continue,
                    }
                }
                Err(error) => error,
            };
            // The server has no registration of this node yet, but will probably have one soon.
            let unregistered = error.code == Code::NotFound;
            next = (next + 1) % count;
            failures = failures.saturating_add(1);
            tracing::debug!(%error, failures, "no server can call this client");
            self.state.send_replace(Connectivity::Disconnected { error: Some(error) });
            // Count rounds over all servers, because one failure per server does not justify a long pause.
            let rounds = failures / u32::try_from(count).unwrap_or(u32::MAX);
            let mut pause = connect.retry.pause(rounds.max(1), &mut rand::rng());
            if unregistered {
                pause = pause.min(UNREGISTERED_PAUSE);
            }
            tokio::select! {
                () = cancel.cancelled() => break,
                // The list exists as long as this service. After any change, read the list again.
                _ = changes.changed() => failures = 0,
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.state.send_replace(Connectivity::Disconnected { error: None });
    }

    async fn dial(&self, target: Option<String>) -> Result<Connected, RpcError> {
        let Some(target) = target else {
            return Err(RpcError::unavailable("no server is configured to connect to"));
        };
        let (io, server) = self.options.connect.dial(&target, Role::Reversed).await?;
        Ok(Connected { io, server, target })
    }

    /// Serves until the connection ends, and returns the reason; `None` once its server was removed from the targets.
    async fn serve_while_assigned(
        &self,
        connected: Connected,
        cancel: &CancellationToken,
        changes: &mut watch::Receiver<Vec<String>>,
    ) -> Option<RpcError> {
        let (stop, target) = (cancel.child_token(), connected.target.clone());
        let serve = self.serve(connected, &stop);
        tokio::pin!(serve);
        let gone = changes.wait_for(|targets| !targets.contains(&target));
        tokio::select! {
            error = &mut serve => return Some(error),
            _ = gone => stop.cancel(),
        }
        // Calls in progress may finish.
        serve.await;
        self.state.send_replace(Connectivity::Disconnected { error: None });
        None
    }

    /// Serves until the connection ends, and returns the reason.
    async fn serve(&self, connected: Connected, cancel: &CancellationToken) -> RpcError {
        let Connected { io, server, target } = connected;
        tracing::debug!(%server, target_server = %target, "a server can call this client");
        self.state.send_replace(Connectivity::Connected { server: server.clone(), target: target.clone() });
        let served = h2::Served { router: Arc::clone(&self.options.router), nodes: None };
        match h2::serve(io, served, server, None, self.options.connect.keep_alive, cancel.clone()).await {
            Ok(()) => RpcError::unavailable(format!("{target} closed the connection")),
            Err(error) => RpcError::unavailable(format!("the connection to {target} was lost: {error}")),
        }
    }
}

struct Connected {
    io: BoxIo,
    server: PeerIdentity,
    target: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel() -> Channel {
        Channel::local(Router::builder().build(), PeerIdentity::server("s"))
    }

    #[test]
    fn an_older_registration_does_not_take_a_newer_one_away() {
        let registry = ReverseRegistry::default();
        let old = registry.register("n".into(), channel());
        let new = registry.register("n".into(), channel());
        drop(old);
        assert!(registry.get("n").is_ok());
        assert_eq!(registry.connected(), ["n"]);
        drop(new);
        assert_eq!(registry.get("n").unwrap_err().code, Code::NoPath);
    }

    #[test]
    fn a_way_is_revoked_with_its_secret() {
        let registry = ReverseRegistry::default();
        let entry = registry.enter("n".into(), channel(), Some(Secret::new("s")));
        let own = registry.register("own".into(), channel());
        registry.revoke_unless("n", |secret| *secret == Secret::new("s"));
        assert!(registry.get("n").is_ok());
        for node in ["n", "own", "nobody"] {
            registry.revoke_unless(node, |_| false);
        }
        assert_eq!(registry.connected(), ["own"], "within the process nothing is proved by a secret");
        assert!(entry.revoked.is_cancelled() && !own.revoked.is_cancelled());
    }

    #[test]
    fn every_change_is_reported() {
        let registry = ReverseRegistry::default();
        let mut changes = registry.changes();
        let entry = registry.register("n".into(), channel());
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        drop(entry);
        assert!(changes.has_changed().unwrap());
    }
}
