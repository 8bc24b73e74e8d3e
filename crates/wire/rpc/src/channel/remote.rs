//! A channel to servers: it finds a server that responds, and keeps its connection.

use super::targets::Targets;
use crate::error::innermost;
use crate::h2::{Connection, KeepAlive};
use crate::io::{BoxIo, Connector, TcpConnector};
use crate::member::{Nonce, ServerHello, ServerSide};
use crate::wire::{self, Hello, Role, VERSION};
use crate::{Code, PeerIdentity, RpcError};
use rand::Rng;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The time for which a connection is used on which the servers have not proved their membership to each other.
const UNPROVED_TIMEOUT: Duration = Duration::from_millis(500);

/// The times and the number of attempts to reach a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Upper limit of the pause after the first round in which no server responded. Pauses are random up to their
    /// limit, so that many clients do not reconnect at the same moment.
    pub first_pause: Duration,
    /// Maximum of the limit, which doubles after each round.
    pub longest_pause: Duration,
    /// The time for which a call waits for a connection before it fails. Zero tries each server once.
    pub patience: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(10),
            patience: Duration::from_secs(10),
        }
    }
}

impl RetryPolicy {
    /// Returns the pause after `failures` consecutive rounds without a server.
    pub(crate) fn pause(&self, failures: u32, rng: &mut impl Rng) -> Duration {
        let doubled = self.first_pause.saturating_mul(1 << failures.saturating_sub(1).min(16));
        let limit = doubled.min(self.longest_pause);
        limit.mul_f64(rng.random_range(0.5..=1.0))
    }
}

/// The servers of a connection, and the identity of this side.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Addresses of the servers. The first server that responds is used until it fails.
    pub targets: Targets,
    /// Identity of this agent.
    pub identity: PeerIdentity,
    /// Region of this agent.
    pub region: String,
    /// The times and the number of attempts.
    pub retry: RetryPolicy,
    /// The part that opens connections.
    pub connector: Arc<dyn Connector>,
    /// The times within which a server that no longer responds is detected.
    pub keep_alive: KeepAlive,
    /// The purpose of the connections.
    pub role: Role,
    /// The credential and the called server, if this agent is a server; `None` on clients.
    pub server: Option<Calling>,
}

/// The settings of a server that calls another server.
#[derive(Clone, Debug)]
pub struct Calling {
    /// The calling server.
    pub own: ServerSide,
    /// The UUID of the called server; empty if only its address is known.
    pub to: String,
}

impl ConnectOptions {
    /// Returns options with plain TCP and the default retry policy.
    pub fn new(targets: Vec<String>, identity: PeerIdentity, region: impl Into<String>) -> Self {
        Self {
            targets: targets.into(),
            identity,
            region: region.into(),
            retry: RetryPolicy::default(),
            connector: Arc::new(TcpConnector::default()),
            keep_alive: KeepAlive::default(),
            role: Role::Rpc,
            server: None,
        }
    }

    /// Connects to `target` and sends this side's greeting. Returns the connection and the server's identity.
    pub(crate) async fn dial(&self, target: &str, role: Role) -> Result<(BoxIo, PeerIdentity), RpcError> {
        let mut io = self.connector.connect(target).await.map_err(|error| {
            RpcError::unavailable(format!("cannot connect to {target}: {}", innermost(&error)))
        })?;
        let (region, identity) = (self.region.clone(), self.identity.clone());
        let credential = self.server.as_ref().and_then(|calling| calling.own.credential.get());
        let server = match &self.server {
            Some(calling) => Some(ServerHello {
                cluster: credential.as_ref().map(|credential| credential.cluster().to_owned()),
                to: calling.to.clone(),
                nonce: Nonce::random()
                    .ok_or_else(|| RpcError::internal("the system has no random numbers"))?,
            }),
            None => None,
        };
        let hello = Hello { version: VERSION, region, identity, server };
        let greeted = wire::greet(&mut io, role, &hello, credential.as_deref()).await;
        let peer = greeted.map_err(|mut error| {
            error.message = format!("{target} refused the connection: {}", error.message);
            error
        })?;
        if role.is_for_members() && !peer.is_member() {
            let reason = format!("{target}: {peer} has not proved that it belongs to this cluster");
            return Err(RpcError::new(Code::Permission, reason));
        }
        Ok((io, peer))
    }
}

pub(super) struct Remote {
    options: ConnectOptions,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<Connection>,
    /// Address of the connected server.
    target: String,
    /// Position of the server to try first: the server in use, or the next one after a failure.
    next: usize,
    /// Consecutive rounds without a server.
    failures: u32,
    /// The time at which the connection was opened, if neither server could prove its membership to the other.
    unproved: Option<Instant>,
}

impl Remote {
    pub(super) fn new(options: ConnectOptions) -> Self {
        Self { options, state: Mutex::default() }
    }

    pub(super) fn targets(&self) -> String {
        self.options.targets.list().join(", ")
    }

    /// Returns the current connection, or a new one. Concurrent callers wait for one connection attempt.
    pub(super) async fn connection(&self) -> Result<Connection, RpcError> {
        let give_up = Instant::now() + self.options.retry.patience;
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection {
            let desired = self.options.targets.has(&state.target) && !self.may_prove_more(&state);
            if desired && !connection.is_closed() && connection.ready().await.is_ok() {
                return Ok(connection.clone());
            }
            state.connection = None;
            // The server that just failed is tried last.
            state.next += 1;
        }
        loop {
            let error = match self.round(&mut state).await {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            state.failures = state.failures.saturating_add(1);
            let pause = self.options.retry.pause(state.failures, &mut rand::rng());
            let final_answer = matches!(error.code, Code::Permission | Code::Invalid);
            if final_answer || Instant::now() + pause > give_up {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Leaves the current connection to the calls in progress, if the list has another server for later
    /// calls. A connection attempt in progress already tries another server.
    pub(super) fn leave(&self) {
        let Ok(mut state) = self.state.try_lock() else { return };
        if self.options.targets.list().len() > 1 && state.connection.take().is_some() {
            state.next += 1;
        }
    }

    /// Returns whether a new connection may prove more than the current one: either server may have been admitted to the
    /// cluster since.
    fn may_prove_more(&self, state: &State) -> bool {
        let has_key = self.options.server.as_ref().is_some_and(|own| own.own.credential.get().is_some());
        has_key && state.unproved.is_some_and(|since| since.elapsed() >= UNPROVED_TIMEOUT)
    }

    /// Tries every server once, then the fallback addresses.
    async fn round(&self, state: &mut State) -> Result<Connection, RpcError> {
        let targets = self.options.targets.list();
        let (count, first) = (targets.len(), state.next);
        let mut last = RpcError::unavailable("no server is configured to connect to");
        for offset in 0..count {
            let index = (first + offset) % count;
            // The caller may drop the call before this server responds; the next call then begins with
            // another server.
            state.next = index + 1;
            match self.attempt(&targets[index], index, state).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        for target in self.options.targets.others() {
            if let Ok(connection) = self.attempt(&target, 0, state).await {
                self.options.targets.adopt(&target);
                return Ok(connection);
            }
        }
        Err(last)
    }

    /// Connects to a server, whose position in the list is `index`.
    async fn attempt(&self, target: &str, index: usize, state: &mut State) -> Result<Connection, RpcError> {
        let connecting = async {
            let (io, peer) = self.options.dial(target, self.options.role).await?;
            Ok::<_, RpcError>((Connection::handshake(io, self.options.keep_alive).await?, peer))
        };
        match connecting.await {
            Ok((connection, peer)) => {
                tracing::debug!(target_server = %target, "connected");
                let unproved = (self.options.server.is_some() && !peer.is_member()).then(Instant::now);
                let (target, kept) = (target.to_owned(), Some(connection.clone()));
                *state = State { connection: kept, target, next: index, failures: 0, unproved };
                Ok(connection)
            }
            Err(error) => {
                tracing::debug!(target_server = %target, %error, "a server cannot be reached");
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn pauses_grow_to_their_limit_and_differ() {
        let policy = RetryPolicy {
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(2),
            patience: Duration::ZERO,
        };
        let mut rng = StdRng::seed_from_u64(7);
        for (failures, limit) in [(1, 100), (2, 200), (3, 400), (5, 1600), (6, 2000), (u32::MAX, 2000)] {
            let pauses: Vec<_> = (0..50).map(|_| policy.pause(failures, &mut rng)).collect();
            let limit = Duration::from_millis(limit);
            assert!(pauses.iter().all(|pause| *pause <= limit && *pause >= limit / 2), "{pauses:?}");
            assert!(pauses.iter().any(|pause| pause != &pauses[0]));
        }
    }
}
