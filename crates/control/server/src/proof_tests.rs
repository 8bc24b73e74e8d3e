//! Tests that only a state with everything that any server has shown lets a server discard a node's report or deny a
//! claim.

use crate::cluster::{Addresses, NoDirectory};
use crate::core::{Core, Machine};
use crate::endpoint::Nodes;
use crate::error::ServerError;
use crate::heartbeat::{HeartbeatConfig, Heartbeats};
use crate::reports::Reports;
use crate::volume::{ClaimWaits, Claims};
use caravan_consensus::{BoxError, Capture, Meaning, StateMachine};
use caravan_messages::{AllocStatus, ClaimProgress, ClaimReport, ClaimReportStep, ClaimVolume};
use caravan_types::alloc::{AllocUpdate, Allocation, ClientStatus};
use caravan_types::command::{Change, PlanCommit};
use caravan_types::job::JobType;
use caravan_types::node::NodeSecret;
use caravan_types::volume::{
    AccessMode, AttachmentMode, Capability, Claim, ClaimId, ClaimMode, ClaimPhase, Volume,
};
use caravan_types::{AllocId, Nanos, VolumeKey};
use futures::StreamExt as _;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// A gate that delays the application of committed entries while it is closed.
#[derive(Debug, Default)]
struct Gate {
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, closed: bool) {
        *self.closed.lock() = closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut closed = self.closed.lock();
        self.changed.wait_while(&mut closed, |closed| *closed);
    }
}

struct Gated(Machine, Arc<Gate>);

impl StateMachine for Gated {
    fn apply(&mut self, index: u64, command: &[u8], meaning: Option<Meaning>) -> Result<Vec<u8>, BoxError> {
        self.1.pass();
        self.0.apply(index, command, meaning)
    }

    fn snapshot(&self) -> Capture {
        self.0.snapshot()
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), BoxError> {
        self.0.restore(snapshot)
    }
}

/// A leader, and a node that may receive an allocation with a claim.
struct World {
    core: Core,
    gate: Arc<Gate>,
    claims: Claims,
    nodes: Nodes,
}

fn claim_id() -> ClaimId {
    ClaimId { volume: VolumeKey::new("default", "data"), alloc: "a".into() }
}

fn secret() -> NodeSecret {
    NodeSecret::new("s")
}

impl World {
    async fn start() -> Self {
        let gate = Arc::new(Gate::default());
        let core = Core::with_machine(|machine| Gated(machine, gate.clone())).await;
        let nodes = Nodes {
            core: core.clone(),
            heartbeats: Heartbeats::new(core.clone(), HeartbeatConfig::default()),
            addresses: Addresses::new(
                Vec::new(),
                uuid::Uuid::nil(),
                "global",
                Arc::new(NoDirectory::default()),
            ),
            lease_ttl: Nanos::from_secs(1),
            reports: Reports::new(core.clone()),
            region: "global".to_owned(),
        };
        let claims = Claims { core: core.clone(), waits: ClaimWaits::default() };
        let this = Self { core, gate, claims, nodes };
        let mut node = caravan_sim::node("n");
        node.secret_id = secret();
        this.commit(Change::NodeRegister { node: Box::new(node), evals: Vec::new() }).await;
        let mode = Capability {
            access_mode: AccessMode::SingleNodeWriter,
            attachment_mode: AttachmentMode::FileSystem,
        };
        let volume = Volume {
            namespace: "default".into(),
            id: "data".into(),
            plugin_id: "p".into(),
            requested_capabilities: vec![mode],
            ..Volume::default()
        };
        this.commit(Change::VolumeWrite {
            volume: Box::new(volume),
            expect_modify_index: 0,
            exclusive: true,
        })
        .await;
        this
    }

    async fn commit(&self, change: Change) {
        self.core.commit(change).await.unwrap();
    }

    /// Commits an allocation with a claim, which is not applied until the gate opens. Followers may show it
    /// meanwhile.
    async fn place(&self) {
        let job = Arc::new(caravan_sim::job("web", JobType::Service, 1));
        let alloc = Allocation {
            id: claim_id().alloc,
            name: "web.g[0]".into(),
            node_id: "n".into(),
            task_group: "g".into(),
            ..Allocation::default()
        };
        let claim = Claim {
            id: claim_id(),
            job_id: job.id.clone(),
            node_id: "n".into(),
            mode: ClaimMode::Write,
            access_mode: AccessMode::SingleNodeWriter,
            attachment_mode: AttachmentMode::FileSystem,
            ..Claim::default()
        };
        let (placements, claims) = (vec![alloc], vec![claim]);
        let plan = PlanCommit { job: Some(job), placements, claims, ..PlanCommit::default() };
        self.gate.set(true);
        let core = self.core.clone();
        tokio::spawn(async move { core.commit(Change::Plan(Box::new(plan))).await.unwrap() });
        let committed = async {
            while self.core.log.metrics().committed_index <= self.core.snapshot().index() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LIMIT, committed).await.unwrap();
        assert!(self.core.snapshot().claim(&claim_id()).is_none());
    }

    /// Returns the result of work that begins while an entry is committed and not applied.
    async fn across<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.place().await;
        let work = tokio::spawn(work);
        // The pause lets the work read the old state. On a machine that is too slow, the test may miss a fault, but
        // does not fail.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        self.gate.set(false);
        tokio::time::timeout(LIMIT, work).await.unwrap().unwrap()
    }

    fn unstaged(&self) -> impl Future<Output = Result<(), ServerError>> + Send + 'static {
        let claims = self.claims.clone();
        let report = ClaimReport {
            node_id: "n".into(),
            secret: secret(),
            claim: claim_id(),
            generation: 0,
            step: ClaimReportStep::Unstaged,
        };
        async move { claims.report(report).await.map(drop) }
    }

    fn progress(&self) -> impl Future<Output = Option<ClaimProgress>> + Send + 'static {
        let request = ClaimVolume { node_id: "n".into(), secret: secret(), claim: claim_id() };
        let mut progress = Box::pin(self.claims.claim(request));
        async move { progress.next().await.map(|progress| progress.unwrap()) }
    }

    fn failed(&self) -> impl Future<Output = Result<(), ServerError>> + Send + 'static {
        let nodes = self.nodes.clone();
        let update = AllocUpdate {
            alloc_id: claim_id().alloc,
            client_status: ClientStatus::Failed,
            ..AllocUpdate::default()
        };
        let report = AllocStatus { node_id: "n".into(), secret: secret(), updates: vec![update] };
        async move { nodes.alloc_status(report).await.map(drop) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_about_a_claim_that_is_committed_and_not_applied_counts() {
    let world = World::start().await;
    world.across(world.unstaged()).await.unwrap();
    assert_eq!(world.core.snapshot().claim(&claim_id()).unwrap().phase, ClaimPhase::Gone);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_committed_and_not_applied_is_not_denied() {
    let world = World::start().await;
    let progress = world.across(world.progress()).await;
    assert!(matches!(progress, Some(ClaimProgress::Waiting { .. })), "{progress:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_about_an_allocation_that_is_committed_and_not_applied_counts() {
    let world = World::start().await;
    world.across(world.failed()).await.unwrap();
    let alloc = AllocId::from("a");
    assert_eq!(world.core.snapshot().alloc(&alloc).unwrap().client_status, ClientStatus::Failed);
}

#[tokio::test]
async fn a_leader_discards_reports_about_unknown_objects_and_denies_unknown_claims() {
    let world = World::start().await;
    world.unstaged().await.unwrap();
    world.failed().await.unwrap();
    assert!(matches!(world.progress().await, Some(ClaimProgress::Denied { .. })));
}

/// The log has stopped, so this server can prove nothing. An error lets the client retry.
#[tokio::test]
async fn a_server_without_proof_of_leadership_discards_and_denies_nothing() {
    let world = World::start().await;
    world.core.log.shutdown().await;
    assert!(world.unstaged().await.is_err());
    assert!(world.failed().await.is_err());
    assert!(world.progress().await.is_none());
    let unknown = world.nodes.surely_authentic(&"m".into(), &secret()).await.unwrap_err();
    assert!(!unknown.to_string().contains("not found"), "{unknown}");
}
