//! The calls that clients make.

use super::Handle;
use caravan_messages::Done;
use caravan_rpc::{RouterBuilder, RpcError, methods};

impl Handle {
    /// Returns the methods of clients, to be served over RPC.
    pub fn rpc(&self) -> RouterBuilder {
        let builder = caravan_rpc::Router::builder();
        let nodes = self.nodes.clone();
        let builder = builder.unary::<methods::NodeRegister, _, _>(move |_, request| {
            let nodes = nodes.clone();
            async move { nodes.register(request).await.map_err(RpcError::from) }
        });
        let nodes = self.nodes.clone();
        let builder = builder.unary::<methods::NodeHeartbeat, _, _>(move |_, request| {
            let nodes = nodes.clone();
            async move { nodes.heartbeat(request).await.map_err(RpcError::from) }
        });
        let nodes = self.nodes.clone();
        let builder = builder.unary::<methods::NodeEvents, _, _>(move |_, request| {
            let nodes = nodes.clone();
            async move { nodes.events(request).await.map_err(RpcError::from) }
        });
        let nodes = self.nodes.clone();
        let builder = builder.unary::<methods::AllocStatus, _, _>(move |_, request| {
            let nodes = nodes.clone();
            async move { nodes.alloc_status(request).await.map_err(RpcError::from) }
        });
        let nodes = self.nodes.clone();
        let builder = builder.stream::<methods::WatchAllocs, _, _, _>(move |_, request| {
            let nodes = nodes.clone();
            async move { nodes.watch(request).map_err(RpcError::from) }
        });
        let (nodes, claims) = (self.nodes.clone(), self.claims.clone());
        let builder = builder.stream::<methods::ClaimVolume, _, _, _>(move |_, request| {
            let (nodes, claims) = (nodes.clone(), claims.clone());
            async move {
                nodes.authentic(&request.node_id, &request.secret)?;
                Ok(claims.claim(request))
            }
        });
        let (nodes, book, core) = (self.nodes.clone(), self.usage.clone(), self.core.clone());
        let builder = builder.unary::<methods::VolumeStats, _, _>(move |_, stats| {
            let (nodes, book, core) = (nodes.clone(), book.clone(), core.clone());
            async move {
                nodes.authentic(&stats.node_id, &stats.secret)?;
                let root = core.snapshot();
                book.replace(&root, &stats.node_id, stats.usage);
                Ok(Done { index: root.index() })
            }
        });
        let nodes = self.nodes.clone();
        let builder = builder.unary::<methods::ServiceSync, _, _>(move |_, request| {
            let nodes = nodes.clone();
            async move { nodes.sync_services(request).await.map_err(RpcError::from) }
        });
        let (nodes, registry) = (self.nodes.clone(), self.registry.clone());
        let builder = builder.stream::<methods::FetchDisk, _, _, _>(move |_, request| {
            let (nodes, registry) = (nodes.clone(), registry.clone());
            async move { nodes.fetch_disk(&registry, request).await.map_err(RpcError::from) }
        });
        let (nodes, admin) = (self.nodes.clone(), self.admin.clone());
        let builder = builder.unary::<methods::SignIdentities, _, _>(move |_, request| {
            let (nodes, admin) = (nodes.clone(), admin.clone());
            async move {
                nodes.authentic(&request.node_id, &request.secret)?;
                admin.sign_identities(request).await.map_err(RpcError::from)
            }
        });
        let (nodes, lookups) = (self.nodes.clone(), self.lookups.clone());
        let builder = builder.stream::<methods::WatchLookups, _, _, _>(move |_, request| {
            let (nodes, lookups) = (nodes.clone(), lookups.clone());
            async move {
                nodes.authentic(&request.node_id, &request.secret)?;
                lookups.watch(request).map_err(RpcError::from)
            }
        });
        let (nodes, admin) = (self.nodes.clone(), self.admin.clone());
        let builder = builder.unary::<methods::SignNode, _, _>(move |_, request| {
            let (nodes, admin) = (nodes.clone(), admin.clone());
            async move {
                nodes.authentic(&request.node_id, &request.secret)?;
                admin.sign_node(&request.node_id).await.map_err(RpcError::from)
            }
        });
        let (nodes, claims) = (self.nodes.clone(), self.claims.clone());
        builder.unary::<methods::ClaimReport, _, _>(move |_, report| {
            let (nodes, claims) = (nodes.clone(), claims.clone());
            async move {
                nodes.authentic(&report.node_id, &report.secret)?;
                claims.report(report).await.map_err(RpcError::from)
            }
        })
    }
}
