//! Contact with the servers: registration, heartbeats, events, status, and the stream of allocations.

use crate::allocs::Allocs;
use crate::clock::Backoff;
use crate::runner::Context;
use caravan_types::wire::{NodeContact, NodeEvents, NodeHeartbeat, NodeRegister, WatchAllocs};
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The node is registered without its late drivers after this.
const DRIVER_PATIENCE: Duration = Duration::from_secs(60);
/// The node is registered without those of its host volumes whose plugins are late after this.
const VOLUME_PATIENCE: Duration = Duration::from_secs(10);
/// Changes of the node within this time after a registration go together.
const GATHER: Duration = Duration::from_millis(100);
/// Where the servers name no time to live.
const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// Stays in contact for as long as it is polled.
pub(crate) async fn stay(context: Arc<Context>, allocs: Allocs) {
    context.drivers.first_fingerprints(DRIVER_PATIENCE).await;
    context.host_volumes.first_pass(VOLUME_PATIENCE).await;
    let registered = watch::Sender::new(false);
    tokio::join!(
        register(&context, &registered),
        tell_events(&context, registered.subscribe()),
        follow_allocs(&context, &allocs, registered.subscribe()),
        async {
            until(registered.subscribe()).await;
            context.reporter.run(Arc::clone(&context.servers), Arc::clone(&context.identity)).await;
        },
    );
}

async fn until(mut registered: watch::Receiver<bool>) {
    // The sender lives as long as everything that waits here.
    let _ = registered.wait_for(|r| *r).await;
}

/// Registers the node, again after each change, and gives signs of life in between.
async fn register(context: &Context, registered: &watch::Sender<bool>) {
    let mut node = context.node.watch();
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(10));
    loop {
        let request = NodeRegister { node: (**node.borrow_and_update()).clone() };
        let told = Instant::now();
        match context.servers.register(request).await {
            Ok(contact) => {
                backoff.reset();
                if !registered.send_replace(true) {
                    tracing::info!(node = %context.identity.node_id, "node registered");
                }
                live(context, &mut node, ttl(&contact)).await;
                // What else changes now goes along, but the first change never waits.
                tokio::time::sleep_until(told + GATHER).await;
            }
            Err(error) => {
                let pause = backoff.delay();
                tracing::warn!(%error, retry_ms = pause.as_millis(), "node cannot be registered");
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Heartbeats until the node has to be registered again.
async fn live(
    context: &Context,
    node: &mut watch::Receiver<Arc<caravan_types::node::Node>>,
    first_ttl: Duration,
) {
    let mut ttl_now = first_ttl;
    let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));
    let mut pause = ttl_now / 2;
    loop {
        tokio::select! {
            // The sender is the context's.
            _ = node.changed() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let request = NodeHeartbeat {
            node_id: context.identity.node_id.clone(),
            secret: context.identity.secret.clone(),
        };
        match context.servers.heartbeat(request).await {
            Ok(contact) if contact.unknown => {
                tracing::warn!("the servers do not know this node any more: registering again");
                return;
            }
            Ok(contact) => {
                backoff.reset();
                ttl_now = ttl(&contact);
                pause = ttl_now / 2;
            }
            Err(error) => {
                pause = backoff.delay().min(ttl_now / 2);
                tracing::warn!(%error, retry_ms = pause.as_millis(), "heartbeat failed");
            }
        }
    }
}

fn ttl(contact: &NodeContact) -> Duration {
    match contact.heartbeat_ttl.to_std() {
        Duration::ZERO => DEFAULT_TTL,
        ttl => ttl.max(Duration::from_millis(200)),
    }
}

async fn tell_events(context: &Context, registered: watch::Receiver<bool>) {
    until(registered).await;
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(15));
    loop {
        let events = context.node.take_events().await;
        let request = NodeEvents {
            node_id: context.identity.node_id.clone(),
            secret: context.identity.secret.clone(),
            events: events.clone(),
        };
        match context.servers.node_events(request).await {
            Ok(_) => backoff.reset(),
            Err(error) => {
                tracing::debug!(%error, events = events.len(), "node events wait for the servers");
                context.node.give_back(events);
                tokio::time::sleep(backoff.delay()).await;
            }
        }
    }
}

async fn follow_allocs(context: &Arc<Context>, allocs: &Allocs, registered: watch::Receiver<bool>) {
    until(registered).await;
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
    loop {
        let request = WatchAllocs {
            node_id: context.identity.node_id.clone(),
            secret: context.identity.secret.clone(),
        };
        let mut deltas = context.servers.watch_allocs(request).await;
        while let Some(delta) = deltas.next().await {
            match delta {
                Ok(delta) => {
                    backoff.reset();
                    allocs.apply(delta).await;
                }
                Err(error) => tracing::debug!(%error, "the stream of allocations broke"),
            }
        }
        tokio::time::sleep(backoff.delay()).await;
    }
}
