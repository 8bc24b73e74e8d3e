//! The networks that a plugin creates for allocations.

use super::calls::{Failed, call};
use super::{ExternalDriver, client};
use crate::convert;
use crate::error::describe;
use caravan_drivers::{Error, NetworkIsolation, NetworkRequest, Result};
use caravan_proto::plugins::driver::{CreateNetworkRequest, DestroyNetworkRequest};
use std::time::Duration;

/// The longest time for a call, which may pull an image.
const NETWORK_TIMEOUT: Duration = Duration::from_secs(300);

impl ExternalDriver {
    pub(super) async fn create_network_in_plugin(
        &self,
        request: &NetworkRequest,
    ) -> Result<NetworkIsolation> {
        let sent =
            CreateNetworkRequest { alloc_id: request.alloc_id.clone(), hostname: request.hostname.clone() };
        let process = self.serving()?;
        let mut client = client(process.channel());
        let asked = call(&process, client.create_network(sent));
        let found = self.network_answer(tokio::time::timeout(NETWORK_TIMEOUT, asked).await)?;
        let made = found.isolation_spec.map(convert::made_network);
        made.ok_or_else(|| Error::Refused(format!("driver {} made no network", self.name)))
    }

    pub(super) async fn destroy_network_in_plugin(
        &self,
        alloc_id: &str,
        network: Option<&NetworkIsolation>,
    ) -> Result<()> {
        let sent = DestroyNetworkRequest {
            alloc_id: alloc_id.to_owned(),
            isolation_spec: network.map(convert::network),
        };
        let process = self.serving()?;
        let mut client = client(process.channel());
        let asked = call(&process, client.destroy_network(sent));
        self.network_answer(tokio::time::timeout(NETWORK_TIMEOUT, asked).await).map(drop)
    }

    /// Returns the process of the plugin. A plugin that is down may serve the next attempt.
    fn serving(&self) -> Result<std::sync::Arc<crate::process::Process>> {
        self.process().map_err(|error| Error::Start { message: error.to_string(), recoverable: true })
    }

    fn network_answer<T>(
        &self,
        answer: Result<std::result::Result<T, Failed>, tokio::time::error::Elapsed>,
    ) -> Result<T> {
        match answer {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(Failed::Ended)) => Err(Error::Start {
                message: format!("driver {} ended during the call", self.name),
                recoverable: true,
            }),
            Ok(Err(Failed::UnknownTask)) => {
                Err(Error::Refused(format!("driver {} knows no such network", self.name)))
            }
            Ok(Err(Failed::Refused(status))) => {
                Err(Error::Refused(format!("driver {}: {}", self.name, describe(&status))))
            }
            Err(_) => Err(Error::Timeout { what: "the call about a network".into(), limit: NETWORK_TIMEOUT }),
        }
    }
}
