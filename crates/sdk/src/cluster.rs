//! The agent itself, the servers and their chores (docs/reference/http-api.md, section 3.7).

use crate::client::Client;
use crate::error::Error;
use crate::query::{QueryOptions, Response};
use caravan_types::ser::null_default;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What an agent tells about itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AgentSelf {
    /// Its configuration.
    pub config: serde_json::Value,
    /// Its membership, for servers.
    #[serde(deserialize_with = "null_default")]
    pub member: Member,
    /// Its figures, by group.
    #[serde(deserialize_with = "null_default")]
    pub stats: BTreeMap<String, BTreeMap<String, String>>,
}

impl AgentSelf {
    /// The id of the node that the agent is, if it is one.
    pub fn node_id(&self) -> Option<&str> {
        self.stats.get("client")?.get("node_id").map(String::as_str)
    }
}

/// Health of an agent; parts it does not have are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AgentHealth {
    /// As a client.
    pub client: Option<HealthPart>,
    /// As a server.
    pub server: Option<HealthPart>,
}

/// Health of one part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HealthPart {
    /// Whether it works.
    pub ok: bool,
    /// Why not.
    pub message: String,
}

/// A server.
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

/// The servers that an agent knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Members {
    /// Name of the agent asked.
    pub server_name: String,
    /// Its region.
    pub server_region: String,
    /// Its datacenter.
    #[serde(rename = "ServerDC")]
    pub server_dc: String,
    /// The servers.
    #[serde(deserialize_with = "null_default")]
    pub members: Vec<Member>,
}

/// Routes of the agent.
#[derive(Clone, Copy, Debug)]
pub struct Agent<'a>(&'a Client);

/// Routes of the servers' status.
#[derive(Clone, Copy, Debug)]
pub struct Status<'a>(&'a Client);

/// Chores of the servers.
#[derive(Clone, Copy, Debug)]
pub struct System<'a>(&'a Client);

impl Client {
    /// Routes of the agent.
    pub fn agent(&self) -> Agent<'_> {
        Agent(self)
    }
    /// Routes of the servers' status.
    pub fn status(&self) -> Status<'_> {
        Status(self)
    }
    /// Chores of the servers.
    pub fn system(&self) -> System<'_> {
        System(self)
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "told once for all methods")]
impl Agent<'_> {
    /// What the agent is.
    pub async fn info(&self) -> Result<AgentSelf, Error> {
        Ok(self.0.get("/v1/agent/self", &QueryOptions::new()).await?.value)
    }

    /// Whether the agent works. An unhealthy agent answers with status 500, which is read as well.
    pub async fn health(&self) -> Result<AgentHealth, Error> {
        let path = "/v1/agent/health";
        match self.0.get(path, &QueryOptions::new()).await {
            Ok(answer) => Ok(answer.value),
            Err(Error::Status { code: 500, body }) => {
                serde_json::from_str(&body).map_err(|source| Error::Decode { path: path.to_owned(), source })
            }
            Err(error) => Err(error),
        }
    }

    /// RPC addresses of the servers that the agent, a client, speaks to.
    pub async fn servers(&self) -> Result<Vec<String>, Error> {
        let answer: Response<Option<Vec<String>>> =
            self.0.get("/v1/agent/servers", &QueryOptions::new()).await?;
        Ok(answer.value.unwrap_or_default())
    }
    /// Has the agent, a client, speak to other servers.
    pub async fn set_servers(&self, addresses: &[String]) -> Result<(), Error> {
        let query = addresses.iter().fold(QueryOptions::new(), |query, a| query.param("address", a));
        self.0.put::<_, ()>("/v1/agent/servers", &query, &()).await.map(drop)
    }

    /// The servers that the agent knows.
    pub async fn members(&self) -> Result<Members, Error> {
        Ok(self.0.get("/v1/agent/members", &QueryOptions::new()).await?.value)
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "told once for all methods")]
impl Status<'_> {
    /// RPC address of the leader; empty when there is none.
    pub async fn leader(&self, query: &QueryOptions) -> Result<String, Error> {
        Ok(self.0.get("/v1/status/leader", query).await?.value)
    }

    /// RPC addresses of the voters.
    pub async fn peers(&self, query: &QueryOptions) -> Result<Vec<String>, Error> {
        Ok(self.0.get("/v1/status/peers", query).await?.value)
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "told once for all methods")]
impl System<'_> {
    /// Forgets what is over, now.
    pub async fn gc(&self) -> Result<Response<()>, Error> {
        self.0.put("/v1/system/gc", &QueryOptions::new(), &()).await
    }

    /// Brings derived counts into step.
    pub async fn reconcile_summaries(&self) -> Result<Response<()>, Error> {
        self.0.put("/v1/system/reconcile/summaries", &QueryOptions::new(), &()).await
    }
}
