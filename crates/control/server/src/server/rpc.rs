//! The calls that clients make.
//!
//! Any server accepts a call. The leader executes every call that changes the state or depends on the leader's
//! memory. The server to which a client is connected serves streams of data that every server has.

use super::Handle;
use super::parts::Parts;
use crate::cluster::{LEADER_TIMEOUT, Origin, Place, leader};
use crate::error::ServerError;
use crate::node_identity;
use crate::reasons;
use crate::replication;
use crate::runtime;
use caravan_messages::Done;
use caravan_rpc::{Code, Context, Method, RouterBuilder, RpcError, StreamMethod, methods};
use futures::{Stream, StreamExt as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The pause before a request is sent again after leadership moved.
const MOVED_PAUSE: Duration = Duration::from_millis(50);

impl Handle {
    /// Returns the methods of clients and of other servers, to be served over RPC.
    pub fn rpc(&self) -> RouterBuilder {
        let builder = caravan_rpc::Router::builder();
        let registry = self.blueprint.paths.registry().clone();
        let builder = self.blueprint.cluster.serve(builder, registry);
        let builder = self.led::<methods::ServerRemoval, _, _>(builder, |parts, asked| async move {
            parts.cluster.remove_number(caravan_consensus::ServerId(asked.number)).await?;
            Ok(Done { index: parts.core.snapshot().index() })
        });
        let builder = self.led::<methods::NodeRegister, _, _>(builder, |parts, request| async move {
            parts.nodes.register(request).await
        });
        let builder = self.led::<methods::NodeHeartbeat, _, _>(builder, |parts, request| async move {
            let (node, proof) = (request.node_id.clone(), request.secret.clone());
            let asks = request.wants_identity;
            let mut contact = parts.nodes.heartbeat(request).await?;
            if !contact.unknown && node_identity::is_due(&parts.core, &proof, asks) {
                contact.identity = parts.admin.renewed_identity(&node).await;
            }
            Ok(contact)
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
            parts.nodes.surely_authentic(&report.node_id, &report.secret).await?;
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
        let builder = self.led_stream::<methods::FollowRows, _, _>(builder, |parts, asked| {
            Ok(replication::source(parts.core.clone(), (*parts.admin).clone(), asked))
        });
        let this = self.clone();
        let builder = builder.stream::<methods::WatchAllocs, _, _, _>(move |_, request| {
            let parts = this.parts();
            async move { parts.nodes.watch(request).await.map_err(RpcError::from) }
        });
        let this = self.clone();
        let builder = builder.stream::<methods::ServerReasons, _, _, _>(move |context, _| {
            let this = this.clone();
            async move {
                this.blueprint.cluster.only_members(&context)?;
                let parts = this.parts();
                if parts.core.term.is_none() {
                    return Err(ServerError::NotLeader.into());
                }
                let reasons = reasons::source(parts.claims.waits.clone());
                let ended = async move { this.replaced(&parts).await };
                Ok(reasons.take_until(Box::pin(ended)))
            }
        });
        let this = self.clone();
        let builder = builder.stream::<methods::FetchDisk, _, _, _>(move |_, request| {
            let this = this.clone();
            async move {
                let paths = this.blueprint.paths.clone();
                this.parts().nodes.fetch_disk(&paths, request).await.map_err(RpcError::from)
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

    /// Serves a method that the leader executes.
    fn led<M, F, Fut>(&self, builder: RouterBuilder, work: F) -> RouterBuilder
    where
        M: Method,
        M::Request: Clone + Sync,
        F: Fn(Arc<Parts>, M::Request) -> Fut + Copy + Send + Sync + 'static,
        Fut: Future<Output = Result<M::Response, ServerError>> + Send + 'static,
    {
        let this = self.clone();
        builder.unary::<M, _, _>(move |context: Context, request| {
            let this = this.clone();
            async move {
                let (origin, deadline) = (origin(&context), runtime::now() + LEADER_TIMEOUT);
                loop {
                    let result = match this.leader(origin, deadline).await? {
                        Place::Here(parts) => work(parts, request.clone()).await.map_err(RpcError::from),
                        Place::There(leader) => leader.call::<M>(request.clone(), None).await,
                    };
                    match result {
                        // Nothing was done, because leadership moved while the request was in transit.
                        Err(error) if is_moved(&error, origin) && runtime::now() < deadline => {
                            runtime::sleep(MOVED_PAUSE).await;
                        }
                        result => return result,
                    }
                }
            }
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
        builder.stream::<M, _, _, _>(move |context: Context, request| {
            let this = this.clone();
            async move {
                match this.leader(origin(&context), runtime::now() + LEADER_TIMEOUT).await? {
                    Place::Here(parts) => Ok(open(parts, request).map_err(RpcError::from)?.boxed()),
                    Place::There(leader) => Ok(leader.stream::<M>(request).boxed()),
                }
            }
        })
    }

    /// Finds the leader for a request.
    pub(crate) async fn leader(&self, origin: Origin, deadline: Instant) -> Result<Place, ServerError> {
        let cluster = &self.blueprint.cluster;
        let channels = &*cluster.config.channels;
        leader::find(&cluster.log, self.current.subscribe(), channels, origin, deadline).await
    }
}

fn origin(context: &Context) -> Origin {
    if context.peer.is_member() { Origin::Server } else { Origin::Caller }
}

/// Whether a request failed because the called server no longer leads. In this case, nothing was done.
fn is_moved(error: &RpcError, origin: Origin) -> bool {
    origin == Origin::Caller && error.code == Code::NotLeader
}
