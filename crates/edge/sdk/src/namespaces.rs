//! Namespaces and node pools (docs/reference/http-api.md, sections 3.3 and 3.7).

use crate::client::Client;
use crate::error::Error;
use crate::query::{QueryOptions, Response, path};
use caravan_types::job::JobListStub;
use caravan_types::namespace::NamespaceSpec;
use caravan_types::node::NodeListStub;
use caravan_types::node_pool::NodePool;

/// The routes of namespaces, from [`Client::namespaces`].
#[derive(Clone, Copy, Debug)]
pub struct Namespaces<'a>(&'a Client);

/// The routes of node pools, from [`Client::node_pools`].
#[derive(Clone, Copy, Debug)]
pub struct NodePools<'a>(&'a Client);

impl Client {
    /// Returns the routes of namespaces.
    pub fn namespaces(&self) -> Namespaces<'_> {
        Namespaces(self)
    }
    /// Returns the routes of node pools.
    pub fn node_pools(&self) -> NodePools<'_> {
        NodePools(self)
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Namespaces<'_> {
    /// Lists namespaces.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<NamespaceSpec>>, Error> {
        self.0.get("/v1/namespaces", query).await
    }
    /// Returns a namespace by its name.
    pub async fn info(&self, name: &str, query: &QueryOptions) -> Result<Response<NamespaceSpec>, Error> {
        self.0.get(&path("/v1/namespace/{}", &[name]), query).await
    }
    /// Creates or replaces a namespace.
    pub async fn write(&self, spec: &NamespaceSpec, query: &QueryOptions) -> Result<Response<()>, Error> {
        self.0.put("/v1/namespace", query, spec).await
    }
    /// Deletes an empty namespace.
    pub async fn delete(&self, name: &str, query: &QueryOptions) -> Result<Response<()>, Error> {
        self.0.delete(&path("/v1/namespace/{}", &[name]), query).await
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl NodePools<'_> {
    /// Lists node pools.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<NodePool>>, Error> {
        self.0.get("/v1/node/pools", query).await
    }
    /// Returns a node pool by its name.
    pub async fn info(&self, name: &str, query: &QueryOptions) -> Result<Response<NodePool>, Error> {
        self.0.get(&path("/v1/node/pool/{}", &[name]), query).await
    }
    /// Creates or replaces a node pool.
    pub async fn write(&self, pool: &NodePool, query: &QueryOptions) -> Result<Response<()>, Error> {
        self.0.put("/v1/node/pools", query, pool).await
    }
    /// Deletes an empty node pool.
    pub async fn delete(&self, name: &str, query: &QueryOptions) -> Result<Response<()>, Error> {
        self.0.delete(&path("/v1/node/pool/{}", &[name]), query).await
    }
    /// Lists the nodes of a pool.
    pub async fn nodes(
        &self,
        name: &str,
        query: &QueryOptions,
    ) -> Result<Response<Vec<NodeListStub>>, Error> {
        self.0.get(&path("/v1/node/pool/{}/nodes", &[name]), query).await
    }
    /// Lists the jobs of a pool.
    pub async fn jobs(&self, name: &str, query: &QueryOptions) -> Result<Response<Vec<JobListStub>>, Error> {
        self.0.get(&path("/v1/node/pool/{}/jobs", &[name]), query).await
    }
}
