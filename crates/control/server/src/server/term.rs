//! One leader term: the work that only the leader does, from its beginning to its end.

use super::parts::{Blueprint, Parts};
use crate::absence;
use crate::cluster::{Cluster, Voters};
use crate::core::Term;
use crate::deployment::Watcher;
use crate::drain::Drainer;
use crate::gc::{Collector, GcConfig};
use crate::periodic::Launcher;
use crate::plan::PlannerService;
use crate::pool::{Crew, WorkerPool};
use crate::replication::Replication;
use crate::runtime;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The work of a leader in one term. Each of its writes contains the term, so that a leader that was replaced
/// unnoticed writes nothing. No data is kept from an earlier term: each part reads the state.
#[derive(Debug)]
pub(crate) struct LeaderTerm {
    term: Term,
    pub(super) parts: Arc<Parts>,
    planner: PlannerService,
    cluster: Cluster,
}

impl LeaderTerm {
    /// Creates the parts of a term. They can be used immediately; the background work begins with [`Self::run`].
    pub(super) fn new(blueprint: &Blueprint, term: Term) -> Self {
        let (parts, planner) = blueprint.parts(blueprint.core.in_term(term));
        // The first request of the term may need a secret.
        parts.admin.load_keys(&parts.core.snapshot());
        Self { term, parts, planner, cluster: blueprint.cluster.clone() }
    }

    pub(super) fn term(&self) -> Term {
        self.term
    }

    /// Performs the background work until `stop` is cancelled, and returns when all work of the term has ended.
    pub(super) async fn run(self, pool: Arc<WorkerPool>, gc: GcConfig, stop: CancellationToken) {
        let Self { parts, planner, cluster, term } = self;
        tracing::info!(term = term.number(), "the work of the leader begins");
        let settled = async {
            // The log may contain a key of an earlier leader that this server has not applied yet.
            parts.core.log.read_quorum().await?;
            parts.admin.settle_keys().await
        };
        if let Err(error) = settled.await {
            tracing::error!(%error, "the root keys could not be written or activated");
        }
        let tracker = TaskTracker::new();
        let core = || parts.core.clone();
        runtime::spawn_in(&tracker, planner.run(stop.clone()));
        runtime::spawn_in(&tracker, absence::watch(core(), stop.clone()));
        runtime::spawn_in(&tracker, parts.heartbeats.clone().run(stop.clone()));
        runtime::spawn_in(&tracker, parts.broker.clone().run(stop.clone()));
        runtime::spawn_in(&tracker, parts.volumes.reconciler.clone().run(stop.clone()));
        runtime::spawn_in(&tracker, parts.host_volumes.clone().run(stop.clone()));
        let waits = parts.volumes.reconciler.waits.clone();
        runtime::spawn_in(&tracker, Collector { core: core(), config: gc }.run(stop.clone()));
        runtime::spawn_in(&tracker, Watcher::new(core()).run(stop.clone()));
        runtime::spawn_in(&tracker, Drainer::new(core(), waits).run(stop.clone()));
        runtime::spawn_in(&tracker, Launcher { core: core() }.run(stop.clone()));
        runtime::spawn_in(&tracker, parts.locks.clone().run(stop.clone()));
        let replication = Replication::new(core(), cluster.clone(), parts.admin.acl_enabled());
        runtime::spawn_in(&tracker, replication.run(stop.clone()));
        runtime::spawn_in(&tracker, Voters::new(core(), cluster).run(stop.clone()));
        runtime::spawn_in(&tracker, crate::admin::Chores::new((*parts.admin).clone()).run(stop.clone()));
        let crew = Crew {
            pool,
            core: core(),
            broker: parts.broker.clone(),
            planner: parts.planner.clone(),
            tracker: tracker.clone(),
        };
        runtime::spawn_in(&tracker, crew.run(stop.clone()));
        tracker.close();
        tracker.wait().await;
        tracing::info!(term = term.number(), "the work of the leader has ended");
    }
}
