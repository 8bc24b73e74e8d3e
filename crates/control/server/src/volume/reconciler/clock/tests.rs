use super::*;
use crate::cluster::NodePaths;
use crate::core::{Core, Moment};
use crate::volume::Controllers;
use caravan_rpc::ReverseRegistry;
use caravan_types::Nanos;
use caravan_types::alloc::Allocation;
use caravan_types::command::{Change, ClaimStep, PlanCommit};
use caravan_types::job::JobType;
use caravan_types::node::NodeStatus;
use caravan_types::volume::{AccessMode, AttachmentMode, Capability, ClaimMode, ClaimPhase, MountProof};
use caravan_volumes::lease::Lease;

fn at(secs: i64) -> BootInstant {
    BootInstant::from_nanos(1).plus(Nanos::from_secs(secs))
}

#[test]
fn a_silence_counts_from_when_it_was_seen_and_the_next_one_anew() {
    let (seens, silent) = (Seens::default(), |index| Presence::Silent { index });
    let claim = Claim { node_id: "n".into(), phase: ClaimPhase::Mounted, ..Claim::default() };
    assert_eq!(seens.of_claim(&claim, silent(5), None, at(10)).silence, at(10));
    assert_eq!(seens.of_claim(&claim, silent(5), None, at(30)).silence, at(10));
    assert_eq!(seens.of_claim(&claim, Presence::Here, None, at(31)).silence, at(31));
    assert_eq!(seens.of_claim(&claim, silent(6), None, at(40)).silence, at(40));
    // The node is removed in its silence: the claim records the silence that is waited out. Another claim may wait
    // for another silence.
    let fenced = |index| Claim { fence_index: Some(index), phase: ClaimPhase::Fencing, ..claim.clone() };
    assert_eq!(seens.of_claim(&fenced(6), Presence::Unknown, None, at(50)).silence, at(40));
    assert_eq!(seens.of_claim(&fenced(0), Presence::Unknown, None, at(50)).silence, at(50));
    assert_eq!(Seens::default().of_claim(&fenced(6), Presence::Unknown, None, at(60)).silence, at(60));
}

#[test]
fn a_failure_is_waited_out_whatever_the_wall_clock_promised() {
    let seens = Seens::default();
    let failed = |tries, next_try| Volume { tries, next_try: UnixNanos(next_try), ..Volume::default() };
    for wall in [1, i64::MAX] {
        let due = at(10).plus(retry::delay(3));
        let seens = Seens::default();
        assert_eq!(seens.due(&failed(3, wall), at(10)), Some(due));
        assert_eq!(seens.due(&failed(3, wall), at(11)), Some(due));
        assert_eq!(seens.due(&failed(3, wall), at(12)), None);
    }
    assert_eq!(seens.due(&failed(3, 0), at(10)), None);
    // The next failure begins a separate wait.
    seens.due(&failed(3, 7), at(10));
    assert_eq!(seens.due(&failed(4, 8), at(20)), Some(at(20).plus(retry::delay(4))));
}

/// A chaos schedule with a plugin that was busy for long and then refused kept a claim for minutes.
#[test]
fn the_first_refusal_after_open_outcomes_is_retried_soon() {
    let (seens, id) = (Seens::default(), ClaimId { alloc: "a".into(), ..ClaimId::default() });
    let failed = |tries: u32| Claim {
        id: id.clone(),
        phase: ClaimPhase::Detaching,
        tries,
        next_try: UnixNanos(i64::from(tries)),
        ..Claim::default()
    };
    let counted = |tries, failure| {
        seens.failed(&failed(tries - 1), failure);
        tries - seens.of_claim(&failed(tries), Presence::Here, None, at(i64::from(tries))).earlier_tries
    };
    for tries in 1..9 {
        assert_eq!(counted(tries, CallFailure::Unknown), tries);
    }
    assert_eq!(counted(9, CallFailure::NotMade), 9);
    assert_eq!(counted(10, CallFailure::Failed), 1);
    assert_eq!(counted(11, CallFailure::Failed), 2);
    assert_eq!(counted(12, CallFailure::Unknown), 3);
    assert_eq!(counted(13, CallFailure::Failed), 4, "only the first refusal begins them again");
}

/// A writer's claim on a node that fell silent, and a reconciler whose clocks the test moves.
struct World {
    reconciler: Reconciler,
    moment: Arc<Mutex<Moment>>,
    id: ClaimId,
}

impl World {
    async fn start() -> Self {
        let begin = Moment { wall: UnixNanos(5_000_000_000_000), boot: at(100) };
        let (core, moment) = Core::with_clock(begin).await;
        let reconciler = Self::reconciler(&core);
        let id = ClaimId { volume: VolumeKey::new("default", "data"), alloc: "a".into() };
        let job = Arc::new(caravan_sim::job("web", JobType::Service, 1));
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
        let claim = Claim {
            id: id.clone(),
            job_id: job.id.clone(),
            node_id: "n".into(),
            mode: ClaimMode::Write,
            access_mode: mode.access_mode,
            attachment_mode: mode.attachment_mode,
            ..Claim::default()
        };
        let alloc = Allocation {
            id: id.alloc.clone(),
            name: "web.g[0]".into(),
            node_id: "n".into(),
            task_group: "g".into(),
            ..Allocation::default()
        };
        let plan = PlanCommit {
            job: Some(job.clone()),
            placements: vec![alloc],
            claims: vec![claim],
            ..PlanCommit::default()
        };
        let this = Self { reconciler, moment, id };
        this.commit(Change::NodeRegister { node: Box::new(caravan_sim::node("n")), evals: vec![] }).await;
        this.commit(Change::JobRegister {
            job: Box::new((*job).clone()),
            expect_modify_index: None,
            eval: None,
            source: None,
        })
        .await;
        this.commit(Change::VolumeWrite {
            volume: Box::new(volume),
            expect_modify_index: 0,
            exclusive: true,
        })
        .await;
        this.commit(Change::Plan(Box::new(plan))).await;
        this.step(ClaimStep::Attached {
            publish_context: Default::default(),
            needs_attach: false,
            external_node_id: String::new(),
        })
        .await;
        this.step(ClaimStep::Mounted { proof: MountProof { path: "/x".into(), ..Default::default() } }).await;
        this
    }

    fn reconciler(core: &Core) -> Reconciler {
        let controllers = Controllers::new(NodePaths::local(ReverseRegistry::default()), 1);
        Reconciler::new(core.clone(), controllers, Lease::default())
    }

    async fn commit(&self, change: Change) {
        self.reconciler.core.commit(change).await.unwrap();
    }

    fn claim(&self) -> Claim {
        Claim::clone(self.reconciler.core.snapshot().claim(&self.id).unwrap())
    }

    async fn step(&self, step: ClaimStep) {
        let expect_modify_index = self.claim().modify_index;
        self.commit(Change::ClaimStep { id: self.id.clone(), expect_modify_index, step }).await;
    }

    async fn node_is(&self, status: NodeStatus) {
        self.commit(Change::NodeStatus { node: "n".into(), status, event: None, evals: vec![] }).await;
    }

    /// Advances both clocks by `secs`, and the wall clock by `step` more seconds.
    fn pass(&self, secs: i64, step: i64) {
        let mut moment = self.moment.lock();
        moment.boot = moment.boot.plus(Nanos::from_secs(secs));
        moment.wall = moment.wall.plus(Nanos::from_secs(secs + step));
    }

    /// Checks the volume until no step is possible; returns the claim's phase.
    async fn settled(&self) -> ClaimPhase {
        while self.reconciler.look(&self.id.volume).await.progressed {}
        self.claim().phase
    }

    fn fence_left(&self) -> Option<Nanos> {
        let root = self.reconciler.core.snapshot();
        self.reconciler.with_facts(&root, &self.claim(), caravan_volumes::reconcile::fence_left)
    }
}

#[tokio::test]
async fn a_fence_lasts_as_long_as_it_lasts_whatever_the_wall_clock_does() {
    for step in [0, 120, -3_600, 86_400 * 365] {
        let w = World::start().await;
        w.node_is(NodeStatus::Down).await;
        assert_eq!(w.settled().await, ClaimPhase::Mounted, "its task may still run");
        w.pass(1, step);
        assert_eq!(w.settled().await, ClaimPhase::Mounted, "the clock stepped by {step} s");
        // The allocation is lost: the claim is being released, and is still fenced.
        w.step(ClaimStep::Release).await;
        assert_eq!(w.settled().await, ClaimPhase::Fencing);
        w.pass(38, step);
        assert_eq!((w.settled().await, w.fence_left()), (ClaimPhase::Fencing, Some(Nanos::from_secs(1))));
        w.pass(1, -step);
        assert_eq!(w.settled().await, ClaimPhase::Gone, "the clock stepped by {step} s");
    }
}

#[tokio::test]
async fn a_server_that_did_not_see_the_beginning_waits_the_whole_time() {
    let mut w = World::start().await;
    w.node_is(NodeStatus::Down).await;
    w.step(ClaimStep::Release).await;
    assert_eq!(w.settled().await, ClaimPhase::Fencing);
    w.pass(39, 0);
    let core = w.reconciler.core.clone();
    w.reconciler = World::reconciler(&core);
    assert_eq!(w.settled().await, ClaimPhase::Fencing);
    w.pass(39, 0);
    assert_eq!(w.settled().await, ClaimPhase::Fencing);
    w.pass(1, 0);
    assert_eq!(w.settled().await, ClaimPhase::Gone);
}

#[tokio::test]
async fn a_node_that_was_back_is_waited_for_anew() {
    let w = World::start().await;
    w.node_is(NodeStatus::Down).await;
    w.step(ClaimStep::Release).await;
    assert_eq!(w.settled().await, ClaimPhase::Fencing);
    w.pass(39, 0);
    w.node_is(NodeStatus::Ready).await;
    w.node_is(NodeStatus::Disconnected).await;
    w.pass(30, 0);
    assert_eq!((w.settled().await, w.fence_left()), (ClaimPhase::Fencing, Some(Nanos::from_secs(40))));
    w.pass(40, 0);
    assert_eq!(w.settled().await, ClaimPhase::Gone);
}

#[tokio::test]
async fn the_word_of_an_operator_ends_the_wait_and_stays_on_record() {
    let w = World::start().await;
    w.node_is(NodeStatus::Down).await;
    assert_eq!(w.settled().await, ClaimPhase::Mounted);
    let off = caravan_types::volume::ConfirmedOff { name: "ops".into(), ..Default::default() };
    w.commit(Change::NodeFence { node: "n".into(), off }).await;
    assert_eq!(w.settled().await, ClaimPhase::Gone);
    let history: Vec<String> = w.claim().history.into_iter().map(|entry| entry.note).collect();
    assert!(
        history.iter().any(|note| note.contains("\"ops\" confirmed that the node is off")),
        "{history:?}"
    );
}
