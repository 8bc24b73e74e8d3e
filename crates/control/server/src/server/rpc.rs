//! The calls that clients make.
//!
//! Any server accepts a call. The leader carries out everything that changes the state or depends on its own memory;
//! streams of data that every server has are served where the client is connected.

use super::Handle;
use super::parts::Parts;
use crate::error::ServerError;
use caravan_messages::Done;
use caravan_rpc::{Context, Method, RouterBuilder, RpcError, StreamMethod, methods};
use futures::{Stream, StreamExt as _};
use std::sync::Arc;

impl Handle {
    /// Returns the methods of clients, to be served over RPC.
    pub fn rpc(&self) -> RouterBuilder {
        let builder = caravan_rpc::Router::builder();
        let builder = self.led::<methods::NodeRegister, _, _>(builder, |parts, request| async move {
            parts.nodes.register(request).await
        });
        let builder = self.led::<methods::NodeHeartbeat, _, _>(builder, |parts, request| async move {
            parts.nodes.heartbeat(request).await
        });
        let builder = self.led::<methods::NodeEvents, _, _>(builder, |parts, request| async move {
            parts.nodes.events(request).await
        });
        let builder = self.led::<methods::AllocStatus, _, _>(builder, |parts, request| async move {
            parts.nodes.alloc_status(request).await
        });
        let builder = self.led::<methods::ServiceSync, _, _>(builder, |parts, request| async move {
            parts.nodes.sync_services(request).await
        });
        let builder = self.led::<methods::ClaimReport, _, _>(builder, |parts, report| async move {
            parts.nodes.authentic(&report.node_id, &report.secret)?;
            parts.claims.report(report).await
        });
        let builder = self.led::<methods::SignIdentities, _, _>(builder, |parts, request| async move {
            parts.nodes.authentic(&request.node_id, &request.secret)?;
            parts.admin.sign_identities(request).await
        });
        let builder = self.led::<methods::SignNode, _, _>(builder, |parts, request| async move {
            parts.nodes.authentic(&request.node_id, &request.secret)?;
            parts.admin.sign_node(&request.node_id).await
        });
        let builder = self.led::<methods::VolumeStats, _, _>(builder, |parts, stats| async move {
            parts.nodes.authentic(&stats.node_id, &stats.secret)?;
            let root = parts.core.snapshot();
            parts.usage.replace(&root, &stats.node_id, stats.usage);
            Ok(Done { index: root.index() })
        });
        let builder = self.led_stream::<methods::ClaimVolume, _, _>(builder, |parts, request| {
            parts.nodes.authentic(&request.node_id, &request.secret)?;
            Ok(parts.claims.claim(request))
        });
        let this = self.clone();
        let builder = builder.stream::<methods::WatchAllocs, _, _, _>(move |_, request| {
            let parts = this.parts();
            async move { parts.nodes.watch(request).map_err(RpcError::from) }
        });
        let this = self.clone();
        let builder = builder.stream::<methods::FetchDisk, _, _, _>(move |_, request| {
            let this = this.clone();
            async move {
                let registry = this.blueprint.registry.clone();
                this.parts().nodes.fetch_disk(&registry, request).await.map_err(RpcError::from)
            }
        });
        let this = self.clone();
        builder.stream::<methods::WatchLookups, _, _, _>(move |_, request| {
            let parts = this.parts();
            async move {
                parts.nodes.authentic(&request.node_id, &request.secret)?;
                parts.lookups.watch(request).map_err(RpcError::from)
            }
        })
    }

    /// Serves a method that the leader carries out.
    fn led<M, F, Fut>(&self, builder: RouterBuilder, work: F) -> RouterBuilder
    where
        M: Method,
        F: Fn(Arc<Parts>, M::Request) -> Fut + Copy + Send + Sync + 'static,
        Fut: Future<Output = Result<M::Response, ServerError>> + Send + 'static,
    {
        let this = self.clone();
        builder.unary::<M, _, _>(move |_: Context, request| {
            let parts = this.parts();
            async move { work(parts, request).await.map_err(RpcError::from) }
        })
    }

    /// Serves a stream that the leader produces.
    fn led_stream<M, F, S>(&self, builder: RouterBuilder, open: F) -> RouterBuilder
    where
        M: StreamMethod,
        F: Fn(Arc<Parts>, M::Request) -> Result<S, ServerError> + Copy + Send + Sync + 'static,
        S: Stream<Item = Result<M::Item, RpcError>> + Send + 'static,
    {
        let this = self.clone();
        builder.stream::<M, _, _, _>(move |_: Context, request| {
            let parts = this.parts();
            async move { Ok(open(parts, request).map_err(RpcError::from)?.boxed()) }
        })
    }
}
