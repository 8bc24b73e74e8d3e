//! The agent, the servers and their maintenance (docs/reference/http-api.md, section 3.7).

use crate::client::Client;
use crate::error::Error;
use crate::query::{QueryOptions, Response};
use caravan_types::ser::null_default;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The facts that an agent reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AgentSelf {
    /// The agent's configuration.
    pub config: serde_json::Value,
    /// The agent's entry in the member list; empty for an agent that is not a server.
    #[serde(deserialize_with = "null_default")]
    pub member: Member,
    /// The agent's figures, by group.
    #[serde(deserialize_with = "null_default")]
    pub stats: BTreeMap<String, BTreeMap<String, String>>,
}

impl AgentSelf {
    /// Returns the id of the agent's node; `None` if the agent runs no client.
    pub fn node_id(&self) -> Option<&str> {
        self.stats.get("client")?.get("node_id").map(String::as_str)
    }
}

/// The health of an agent. The part of a role that the agent does not have is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AgentHealth {
    /// The health of the client role.
    pub client: Option<HealthPart>,
    /// The health of the server role.
    pub server: Option<HealthPart>,
}

/// The health of one role of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HealthPart {
    /// Whether the role is healthy.
    pub ok: bool,
    /// The reason if the role is not healthy, otherwise `ok`.
    pub message: String,
}

/// A server as a member of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.7")]
pub struct Member {
    pub name: String,
    pub addr: String,
    pub port: u16,
    #[serde(deserialize_with = "null_default")]
    pub tags: BTreeMap<String, String>,
    pub status: String,
    pub protocol_min: u8,
    pub protocol_max: u8,
    pub protocol_cur: u8,
    pub delegate_min: u8,
    pub delegate_max: u8,
    pub delegate_cur: u8,
}

/// The servers in an agent's member table, and the name and the place of the agent itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Members {
    /// The name of the agent that answered.
    pub server_name: String,
    /// The region of the agent that answered.
    pub server_region: String,
    /// The datacenter of the agent that answered.
    #[serde(rename = "ServerDC")]
    pub server_dc: String,
    /// The servers in the member table.
    #[serde(deserialize_with = "null_default")]
    pub members: Vec<Member>,
}

/// The routes of the agent, from [`Client::agent`].
#[derive(Clone, Copy, Debug)]
pub struct Agent<'a>(&'a Client);

/// The routes of the servers' status, from [`Client::status`].
#[derive(Clone, Copy, Debug)]
pub struct Status<'a>(&'a Client);

/// The routes of the servers' maintenance, from [`Client::system`].
#[derive(Clone, Copy, Debug)]
pub struct System<'a>(&'a Client);

impl Client {
    /// Returns the routes of the agent.
    pub fn agent(&self) -> Agent<'_> {
        Agent(self)
    }
    /// Returns the routes of the servers' status.
    pub fn status(&self) -> Status<'_> {
        Status(self)
    }
    /// Returns the routes of the servers' maintenance.
    pub fn system(&self) -> System<'_> {
        System(self)
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Agent<'_> {
    /// Returns the agent's configuration, membership and figures.
    pub async fn info(&self) -> Result<AgentSelf, Error> {
        Ok(self.0.get("/v1/agent/self", &QueryOptions::new()).await?.value)
    }

    /// Returns the agent's health. An unhealthy agent answers with status 500, whose body is decoded too.
    pub async fn health(&self) -> Result<AgentHealth, Error> {
        let path = "/v1/agent/health";
        match self.0.get(path, &QueryOptions::new()).await {
            Ok(answer) => Ok(answer.value),
            Err(Error::Status { code: 500, body, .. }) => {
                serde_json::from_str(&body).map_err(|source| Error::Decode { path: path.to_owned(), source })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the RPC addresses of the servers that the agent, a client, uses.
    pub async fn servers(&self) -> Result<Vec<String>, Error> {
        let answer: Response<Option<Vec<String>>> =
            self.0.get("/v1/agent/servers", &QueryOptions::new()).await?;
        Ok(answer.value.unwrap_or_default())
    }
    /// Sets the servers that the agent, a client, uses.
    pub async fn set_servers(&self, addresses: &[String]) -> Result<(), Error> {
        let query = addresses.iter().fold(QueryOptions::new(), |query, a| query.param("address", a));
        self.0.put::<_, ()>("/v1/agent/servers", &query, &()).await.map(drop)
    }

    /// Returns the servers in the agent's member table.
    pub async fn members(&self) -> Result<Members, Error> {
        Ok(self.0.get("/v1/agent/members", &QueryOptions::new()).await?.value)
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Status<'_> {
    /// Returns the RPC address of the leader; empty without a leader.
    pub async fn leader(&self, query: &QueryOptions) -> Result<String, Error> {
        Ok(self.0.get("/v1/status/leader", query).await?.value)
    }

    /// Returns the RPC addresses of the voters.
    pub async fn peers(&self, query: &QueryOptions) -> Result<Vec<String>, Error> {
        Ok(self.0.get("/v1/status/peers", query).await?.value)
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl System<'_> {
    /// Runs garbage collection now.
    pub async fn gc(&self) -> Result<Response<()>, Error> {
        self.0.put("/v1/system/gc", &QueryOptions::new(), &()).await
    }

    /// Recomputes the counts that the servers derive from allocations.
    pub async fn reconcile_summaries(&self) -> Result<Response<()>, Error> {
        self.0.put("/v1/system/reconcile/summaries", &QueryOptions::new(), &()).await
    }
}
