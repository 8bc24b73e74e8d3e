//! The client of this agent, as the routes use it. Tests replace the client by their own implementation, with its
//! types.

use async_trait::async_trait;
use caravan_client::fs::AllocFs;
use caravan_client::{ClientError, ExecRequest, ExecStream, Handle, Metadata, Usage};
use caravan_meters::Meters;
use caravan_types::alloc::{Allocation, ClientStatus, TaskState};
use caravan_types::device::DeviceGroupStats;
use caravan_types::identity::Claims;
use caravan_types::node::Node;
use caravan_types::service::CheckResult;
use caravan_types::small::Map;
use caravan_types::{AllocId, NodeId};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The longest time that requests wait until the client has restored its allocations.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(10);

/// The operations of [`Handle`] that the routes use; each has the meaning of the method with the same name.
#[async_trait]
#[expect(missing_docs, reason = "the methods are those of the handle")]
#[expect(clippy::missing_errors_doc, reason = "the methods are those of the handle")]
pub trait ClientSide: fmt::Debug + Send + Sync + 'static {
    fn node_id(&self) -> NodeId;
    fn node(&self) -> Arc<Node>;
    fn last_heartbeat(&self) -> Option<(Duration, Duration)>;
    fn meters(&self) -> Meters;
    fn metadata(&self) -> Metadata;
    fn allocs_dir(&self) -> PathBuf;
    fn has_alloc(&self, alloc: &AllocId) -> bool;
    fn alloc_ids(&self) -> Vec<AllocId>;
    fn allocs(&self) -> Vec<(Arc<Allocation>, ClientStatus)>;
    fn status(&self, alloc: &AllocId) -> Result<(ClientStatus, Map<String, TaskState>), ClientError>;
    fn fs(&self, alloc: &AllocId) -> Result<AllocFs, ClientError>;
    fn checks(&self, alloc: &AllocId) -> Result<BTreeMap<String, CheckResult>, ClientError>;
    fn action(&self, alloc: &AllocId, task: &str, name: &str) -> Result<Vec<String>, ClientError>;
    fn restart(&self, alloc: &AllocId, task: Option<&str>, all: bool) -> Result<(), ClientError>;
    async fn restored(&self);
    async fn identity_claims(&self) -> Result<Claims, ClientError>;
    async fn renew_identity(&self) -> Result<(), ClientError>;
    async fn change_metadata(
        &self,
        changes: BTreeMap<String, Option<String>>,
    ) -> Result<Metadata, ClientError>;
    async fn stats(&self, alloc: &AllocId, task: &str) -> Result<Usage, ClientError>;
    fn device_stats(&self) -> Vec<DeviceGroupStats>;
    fn task_device_stats(&self, alloc: &AllocId, task: &str) -> Result<Vec<DeviceGroupStats>, ClientError>;
    async fn signal(&self, alloc: &AllocId, task: Option<&str>, signal: &str) -> Result<(), ClientError>;
    async fn exec_stream(
        &self,
        alloc: &AllocId,
        task: &str,
        request: ExecRequest,
    ) -> Result<ExecStream, ClientError>;
    async fn collect(&self, alloc: &AllocId) -> Result<bool, ClientError>;
    async fn collect_all(&self) -> Result<(), ClientError>;
}

#[async_trait]
impl ClientSide for Handle {
    fn node_id(&self) -> NodeId {
        Self::node_id(self)
    }
    fn node(&self) -> Arc<Node> {
        Self::node(self)
    }
    fn last_heartbeat(&self) -> Option<(Duration, Duration)> {
        Self::last_heartbeat(self)
    }
    fn meters(&self) -> Meters {
        Self::meters(self)
    }
    fn metadata(&self) -> Metadata {
        Self::metadata(self)
    }
    fn allocs_dir(&self) -> PathBuf {
        Self::allocs_dir(self)
    }
    fn has_alloc(&self, alloc: &AllocId) -> bool {
        Self::has_alloc(self, alloc)
    }
    fn alloc_ids(&self) -> Vec<AllocId> {
        Self::alloc_ids(self)
    }
    fn allocs(&self) -> Vec<(Arc<Allocation>, ClientStatus)> {
        Self::allocs(self)
    }
    fn status(&self, alloc: &AllocId) -> Result<(ClientStatus, Map<String, TaskState>), ClientError> {
        Self::status(self, alloc)
    }
    fn fs(&self, alloc: &AllocId) -> Result<AllocFs, ClientError> {
        Self::fs(self, alloc)
    }
    fn checks(&self, alloc: &AllocId) -> Result<BTreeMap<String, CheckResult>, ClientError> {
        Self::checks(self, alloc)
    }
    fn action(&self, alloc: &AllocId, task: &str, name: &str) -> Result<Vec<String>, ClientError> {
        Self::action(self, alloc, task, name)
    }
    fn restart(&self, alloc: &AllocId, task: Option<&str>, all: bool) -> Result<(), ClientError> {
        Self::restart(self, alloc, task, all)
    }
    async fn restored(&self) {
        Self::restored(self).await;
    }
    async fn identity_claims(&self) -> Result<Claims, ClientError> {
        Self::identity_claims(self).await
    }
    async fn renew_identity(&self) -> Result<(), ClientError> {
        Self::renew_identity(self).await
    }
    async fn change_metadata(
        &self,
        changes: BTreeMap<String, Option<String>>,
    ) -> Result<Metadata, ClientError> {
        Self::change_metadata(self, changes).await
    }
    async fn stats(&self, alloc: &AllocId, task: &str) -> Result<Usage, ClientError> {
        Self::stats(self, alloc, task).await
    }
    fn device_stats(&self) -> Vec<DeviceGroupStats> {
        Self::device_stats(self)
    }
    fn task_device_stats(&self, alloc: &AllocId, task: &str) -> Result<Vec<DeviceGroupStats>, ClientError> {
        Self::task_device_stats(self, alloc, task)
    }
    async fn signal(&self, alloc: &AllocId, task: Option<&str>, signal: &str) -> Result<(), ClientError> {
        Self::signal(self, alloc, task, signal).await
    }
    async fn exec_stream(
        &self,
        alloc: &AllocId,
        task: &str,
        request: ExecRequest,
    ) -> Result<ExecStream, ClientError> {
        Self::exec_stream(self, alloc, task, request).await
    }
    async fn collect(&self, alloc: &AllocId) -> Result<bool, ClientError> {
        Self::collect(self, alloc).await
    }
    async fn collect_all(&self) -> Result<(), ClientError> {
        Self::collect_all(self).await
    }
}

/// Waits, for a limited time, until the client has restored its allocations after a start.
pub(crate) async fn ready(client: &dyn ClientSide) {
    if tokio::time::timeout(RESTORE_TIMEOUT, client.restored()).await.is_err() {
        tracing::warn!("the client has not restored its allocations yet");
    }
}
