//! The routes of operators (docs/reference/http-api.md, section 3.7).

use crate::client::Client;
use crate::error::Error;
use crate::query::{QueryOptions, Response, path};
use bytes::Bytes;
use caravan_types::Time;
use caravan_types::operator::{AutopilotConfig, RootKeyMeta, SchedulerConfig};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A member of the Raft cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.7")]
pub struct RaftServer {
    #[serde(rename = "ID")]
    pub id: String,
    pub node: String,
    pub address: String,
    pub leader: bool,
    pub voter: bool,
    pub raft_protocol: String,
}

/// The members of the Raft cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.7")]
pub struct RaftConfiguration {
    pub servers: Vec<RaftServer>,
    pub index: u64,
}

/// The scheduler's configuration and the index of its last change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 3.7")]
pub struct SchedulerSettings {
    pub scheduler_config: SchedulerConfig,
    pub index: u64,
    pub known_leader: bool,
    pub last_contact: u64,
    pub next_token: String,
}

/// The health of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.7")]
pub struct AutopilotServer {
    #[serde(rename = "ID")]
    pub id: String,
    pub name: String,
    pub address: String,
    pub serf_status: String,
    pub version: String,
    pub leader: bool,
    pub voter: bool,
    pub healthy: bool,
    pub last_contact: String,
    pub last_term: u64,
    pub last_index: u64,
    pub stable_since: Time,
    /// The difference of the server's wall clock to the leader's, as a Go duration; empty from agents of other kinds.
    #[serde(rename = "CaravanClockSkew", skip_serializing_if = "String::is_empty")]
    pub clock_skew: String,
    /// The feature level that the server supports; absent from agents of other kinds.
    #[serde(rename = "CaravanFeatureLevel", skip_serializing_if = "Option::is_none")]
    pub feature_level: Option<u32>,
}

/// The health of the servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.7")]
pub struct AutopilotHealth {
    pub healthy: bool,
    pub failure_tolerance: u64,
    pub leader: String,
    pub voters: Vec<String>,
    pub servers: Vec<AutopilotServer>,
    /// The feature level of the cluster; absent from agents of other kinds.
    #[serde(rename = "CaravanFeatureLevel", skip_serializing_if = "Option::is_none")]
    pub feature_level: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Updated {
    updated: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Rotated {
    key: RootKeyMeta,
}

/// The routes of operators, from [`Client::operator`].
#[derive(Clone, Copy, Debug)]
pub struct Operator<'a>(&'a Client);

impl Client {
    /// Returns the routes of operators.
    pub fn operator(&self) -> Operator<'_> {
        Operator(self)
    }
}

fn conditional(query: &QueryOptions, check: Option<u64>) -> QueryOptions {
    match check {
        None => query.clone(),
        Some(index) => query.clone().param("cas", index.to_string()),
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Operator<'_> {
    /// Returns the members of the Raft cluster.
    pub async fn raft(&self, query: &QueryOptions) -> Result<RaftConfiguration, Error> {
        Ok(self.0.get("/v1/operator/raft/configuration", query).await?.value)
    }
    /// Removes a member from the Raft cluster.
    pub async fn remove_peer(&self, id: &str, query: &QueryOptions) -> Result<Response<()>, Error> {
        self.0.delete("/v1/operator/raft/peer", &query.clone().param("id", id)).await
    }
    /// Transfers leadership to another member. `by` is `id` or `address`.
    pub async fn transfer_leadership(
        &self,
        by: &str,
        peer: &str,
        query: &QueryOptions,
    ) -> Result<Value, Error> {
        let query = query.clone().param(by, peer);
        Ok(self.0.put("/v1/operator/raft/transfer-leadership", &query, &()).await?.value)
    }

    /// Returns the autopilot configuration.
    pub async fn autopilot(&self, query: &QueryOptions) -> Result<AutopilotConfig, Error> {
        Ok(self.0.get("/v1/operator/autopilot/configuration", query).await?.value)
    }
    /// Sets the autopilot configuration. With `check`, only if the last change has that index. Returns whether the
    /// configuration was set.
    pub async fn set_autopilot(
        &self,
        config: &AutopilotConfig,
        check: Option<u64>,
        query: &QueryOptions,
    ) -> Result<bool, Error> {
        let query = conditional(query, check);
        Ok(self.0.put("/v1/operator/autopilot/configuration", &query, config).await?.value)
    }
    /// Returns the health of the servers. An unhealthy cluster answers with status 429, whose body is decoded too.
    pub async fn autopilot_health(&self, query: &QueryOptions) -> Result<AutopilotHealth, Error> {
        let path = "/v1/operator/autopilot/health";
        match self.0.get(path, query).await {
            Ok(answer) => Ok(answer.value),
            Err(Error::Status { code: 429, body, .. }) => {
                serde_json::from_str(&body).map_err(|source| Error::Decode { path: path.to_owned(), source })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the scheduler's configuration.
    pub async fn scheduler(&self, query: &QueryOptions) -> Result<SchedulerSettings, Error> {
        Ok(self.0.get("/v1/operator/scheduler/configuration", query).await?.value)
    }
    /// Sets the scheduler's configuration. With `check`, only if the last change has that index. Returns whether the
    /// configuration was set.
    pub async fn set_scheduler(
        &self,
        config: &SchedulerConfig,
        check: Option<u64>,
        query: &QueryOptions,
    ) -> Result<bool, Error> {
        let query = conditional(query, check);
        let answer: Response<Updated> =
            self.0.put("/v1/operator/scheduler/configuration", &query, config).await?;
        Ok(answer.value.updated)
    }

    /// Lists the root keys.
    pub async fn keys(&self, query: &QueryOptions) -> Result<Vec<RootKeyMeta>, Error> {
        Ok(self.0.get("/v1/operator/keyring/keys", query).await?.value)
    }
    /// Creates a new root key. The query parameters are `full` and `publish_time`.
    pub async fn rotate_key(&self, query: &QueryOptions) -> Result<RootKeyMeta, Error> {
        let answer: Response<Rotated> = self.0.put("/v1/operator/keyring/rotate", query, &()).await?;
        Ok(answer.value.key)
    }
    /// Deletes a root key.
    pub async fn delete_key(&self, id: &str, query: &QueryOptions) -> Result<Value, Error> {
        Ok(self.0.delete(&path("/v1/operator/keyring/key/{}", &[id]), query).await?.value)
    }

    /// Returns a snapshot of the whole state as an archive.
    pub async fn save_snapshot(&self, query: &QueryOptions) -> Result<Bytes, Error> {
        self.0.raw(Method::GET, "/v1/operator/snapshot", query, Bytes::new()).await
    }
    /// Replaces the whole state by the state of a snapshot archive.
    pub async fn restore_snapshot(&self, archive: Bytes, query: &QueryOptions) -> Result<(), Error> {
        self.0.raw(Method::PUT, "/v1/operator/snapshot", query, archive).await.map(drop)
    }
}
