//! A request as the routes see it.

use crate::access::Line;
use crate::error::ApiError;
use crate::query::Query;
use crate::state::HttpState;
use arc_swap::ArcSwap;
use bytes::Bytes;
use caravan_server::{Caller, Handle};
use caravan_types::Namespace;
use http::{HeaderMap, Method};
use std::sync::Arc;

/// A request, path and query decoded, body read.
pub(crate) struct Call {
    pub(crate) state: Arc<HttpState>,
    pub(crate) method: Method,
    /// Path and query as they came, for agents that it is passed on to.
    pub(crate) uri: String,
    /// Segments of the decoded path.
    pub(crate) segments: Vec<String>,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// How many agents passed it on.
    pub(crate) hops: u8,
    /// The line of the route table that is about the request.
    pub(crate) line: &'static Line,
    /// The namespace that the request is about: the one that was checked. `*` stands for all.
    pub(crate) namespace: Namespace,
    /// Who asks, as judged last.
    pub(crate) caller: ArcSwap<Caller>,
}

impl Call {
    /// Returns who asks. Their rights may be fewer the next time.
    pub(crate) fn caller(&self) -> Arc<Caller> {
        self.caller.load_full()
    }

    /// Returns the namespace of a list; none for all namespaces.
    pub(crate) fn list_namespace(&self) -> Option<Namespace> {
        (self.namespace != "*").then(|| self.namespace.clone())
    }

    /// The server in this agent.
    pub(crate) fn server(&self) -> Result<&Handle, ApiError> {
        self.state.server.as_ref().ok_or_else(|| ApiError::internal("this agent is not a server"))
    }

    /// Refuses all methods but one.
    pub(crate) fn only(&self, method: &Method) -> Result<(), ApiError> {
        if self.method == *method { Ok(()) } else { Err(ApiError::method()) }
    }

    /// Refuses all methods but PUT and POST, which are the same on most routes.
    pub(crate) fn put(&self) -> Result<(), ApiError> {
        if self.is_put() { Ok(()) } else { Err(ApiError::method()) }
    }

    pub(crate) fn is_put(&self) -> bool {
        self.method == Method::PUT || self.method == Method::POST
    }

    pub(crate) fn is_get(&self) -> bool {
        self.method == Method::GET
    }

    pub(crate) fn is_delete(&self) -> bool {
        self.method == Method::DELETE
    }
}
