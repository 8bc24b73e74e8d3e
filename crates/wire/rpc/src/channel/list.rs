//! The list of servers of an agent without a server, which a user may replace.

use super::remote::ConnectOptions;
use crate::RpcError;
use crate::wire::Role;
use futures::future::join_all;
use std::time::Duration;

/// The time in which a server must respond before it is added to the list.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The servers that an agent calls. Clones share one list.
#[derive(Clone, Debug)]
pub struct ServerList(ConnectOptions);

impl ServerList {
    /// Creates the list from the options of the agent's channel.
    pub fn new(options: ConnectOptions) -> Self {
        Self(options)
    }

    /// Returns the servers.
    pub fn list(&self) -> Vec<String> {
        self.0.targets.list()
    }

    /// Replaces the servers by the servers of `addresses` that respond. An address without a server would
    /// cut the agent off.
    ///
    /// # Errors
    /// If no server responds; the list is then unchanged. The text has the reason of each address.
    pub async fn replace(&self, addresses: &[String]) -> Result<(), RpcError> {
        let asked = join_all(addresses.iter().map(|address| self.ask(address))).await;
        let (mut list, mut failures) = (Vec::new(), Vec::new());
        for (address, answer) in addresses.iter().zip(asked) {
            match answer {
                Ok(()) => list.push(address.clone()),
                Err(error) => failures.push(error.message),
            }
        }
        if list.is_empty() {
            return Err(RpcError::unavailable(failures.join("; ")));
        }
        for failure in failures {
            tracing::warn!(failure, "a server was not added to the list");
        }
        self.0.targets.set_fallback(list.clone());
        self.0.targets.set(list);
        Ok(())
    }

    async fn ask(&self, address: &str) -> Result<(), RpcError> {
        let dialed = tokio::time::timeout(ANSWER_TIMEOUT, self.0.dial(address, Role::Rpc)).await;
        dialed.unwrap_or_else(|_| Err(RpcError::unavailable(format!("{address} does not answer")))).map(drop)
    }
}
