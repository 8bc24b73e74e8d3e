//! Nodes (docs/reference/http-api.md, section 3.3).

use crate::client::Client;
use crate::error::Error;
use crate::model::HostStats;
use crate::query::{QueryOptions, Response, path};
use caravan_types::alloc::Allocation;
use caravan_types::id::EvalId;
use caravan_types::node::{Eligibility, Node, NodeListStub};
use caravan_types::ser::null_default;
use caravan_types::time::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The rules of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct DrainSpec {
    /// The time limit of the drain; negative means an immediate drain, 0 means no limit.
    pub deadline: Nanos,
    /// Whether allocations of system jobs remain on the node.
    pub ignore_system_jobs: bool,
}

/// A request to start or end a drain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct DrainRequest {
    /// The rules of the drain; absent ends the drain.
    pub drain_spec: Option<DrainSpec>,
    /// Whether the node becomes eligible again when the drain is ended.
    pub mark_eligible: bool,
    /// User metadata that is stored with the drain.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
}

/// The answer to a change of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeUpdateResponse {
    /// The evaluations that the change created.
    #[serde(rename = "EvalIDs", deserialize_with = "null_default")]
    pub eval_ids: Vec<EvalId>,
    /// The index at which the evaluations were created.
    pub eval_create_index: u64,
    /// The modify index of the node.
    pub node_modify_index: u64,
}

/// The routes of nodes, from [`Client::nodes`].
#[derive(Clone, Copy, Debug)]
pub struct Nodes<'a>(&'a Client);

impl Client {
    /// Returns the routes of nodes.
    pub fn nodes(&self) -> Nodes<'_> {
        Nodes(self)
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Nodes<'_> {
    /// Lists nodes.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<NodeListStub>>, Error> {
        self.0.get("/v1/nodes", query).await
    }

    /// Returns a node by its full id.
    pub async fn info(&self, id: &str, query: &QueryOptions) -> Result<Response<Node>, Error> {
        self.0.get(&path("/v1/node/{}", &[id]), query).await
    }

    /// Lists the allocations of a node.
    pub async fn allocations(
        &self,
        id: &str,
        query: &QueryOptions,
    ) -> Result<Response<Vec<Allocation>>, Error> {
        self.0.get(&path("/v1/node/{}/allocations", &[id]), query).await
    }

    /// Returns the resource usage of a node's machine; the node itself answers.
    pub async fn host_stats(&self, id: &str, query: &QueryOptions) -> Result<Response<HostStats>, Error> {
        self.0.get("/v1/client/stats", &query.clone().param("node_id", id)).await
    }

    /// Sets the scheduling eligibility of a node.
    pub async fn eligibility(
        &self,
        id: &str,
        eligibility: Eligibility,
        query: &QueryOptions,
    ) -> Result<Response<NodeUpdateResponse>, Error> {
        let body = serde_json::json!({"NodeID": id, "Eligibility": eligibility});
        self.0.put(&path("/v1/node/{}/eligibility", &[id]), query, &body).await
    }

    /// Starts or ends a drain.
    pub async fn drain(
        &self,
        id: &str,
        request: &DrainRequest,
        query: &QueryOptions,
    ) -> Result<Response<NodeUpdateResponse>, Error> {
        self.0.put(&path("/v1/node/{}/drain", &[id]), query, request).await
    }

    /// Confirms that the machine of a node is off. Its volumes become available without the wait for the node's
    /// lease. Refused while the node is in contact. A removed node must be named by its full id.
    pub async fn confirm_off(
        &self,
        id: &str,
        query: &QueryOptions,
    ) -> Result<Response<NodeUpdateResponse>, Error> {
        let body = serde_json::json!({"ConfirmOff": true});
        self.0.put(&path("/v1/node/{}/fence", &[id]), query, &body).await
    }

    /// Deletes a node.
    pub async fn purge(&self, id: &str, query: &QueryOptions) -> Result<Response<NodeUpdateResponse>, Error> {
        self.0.put(&path("/v1/node/{}/purge", &[id]), query, &()).await
    }
}
