//! A request as the handlers see it.

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
use std::time::Duration;
use tokio::time::Instant;

/// A request with its path and query decoded and its body read.
pub(crate) struct Call {
    pub(crate) state: Arc<HttpState>,
    pub(crate) method: Method,
    /// The path and query as received, for forwarding to other agents.
    pub(crate) uri: String,
    /// The segments of the decoded path.
    pub(crate) segments: Vec<String>,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The number of agents that forwarded the request.
    pub(crate) hops: u8,
    /// The time at which the request arrived at this agent.
    pub(crate) arrived: Instant,
    /// The time that the request had waited at another server before.
    pub(crate) waited_before: Duration,
    /// The line of the route table that matches the request.
    pub(crate) line: &'static Line,
    /// The namespace that was checked for the request; `*` means all namespaces.
    pub(crate) namespace: Namespace,
    /// The caller with the rights of the latest check.
    pub(crate) caller: ArcSwap<Caller>,
}

impl Call {
    /// Returns a call with the same content, whose headers can be changed.
    pub(crate) fn duplicate(&self) -> Self {
        Self {
            state: self.state.clone(),
            method: self.method.clone(),
            uri: self.uri.clone(),
            segments: self.segments.clone(),
            query: self.query.clone(),
            headers: self.headers.clone(),
            body: self.body.clone(),
            hops: self.hops,
            arrived: self.arrived,
            waited_before: self.waited_before,
            line: self.line,
            namespace: self.namespace.clone(),
            caller: ArcSwap::new(self.caller.load_full()),
        }
    }

    /// Returns the time that the request has waited at all servers.
    pub(crate) fn waited(&self) -> Duration {
        self.waited_before + self.arrived.elapsed()
    }

    /// Returns the caller with the rights of the latest check. A later check may reduce the rights.
    pub(crate) fn caller(&self) -> Arc<Caller> {
        self.caller.load_full()
    }

    /// Returns the part of the path that matches a star of the line's path, counted from 0; empty without such a
    /// star.
    pub(crate) fn star(&self, at: usize) -> String {
        let segments: Vec<&str> = self.segments.iter().map(String::as_str).collect();
        self.line.stars(&segments).into_iter().nth(at).unwrap_or_default()
    }

    /// Returns the namespace of a list; `None` means all namespaces.
    pub(crate) fn list_namespace(&self) -> Option<Namespace> {
        (self.namespace != "*").then(|| self.namespace.clone())
    }

    /// Returns this agent's server.
    pub(crate) fn server(&self) -> Result<&Handle, ApiError> {
        self.state.server.as_ref().ok_or_else(|| ApiError::internal("this agent is not a server"))
    }

    /// Refuses all methods except `method`.
    pub(crate) fn only(&self, method: &Method) -> Result<(), ApiError> {
        if self.method == *method { Ok(()) } else { Err(ApiError::method()) }
    }

    /// Refuses all methods except PUT and POST, which are equivalent on most routes.
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
