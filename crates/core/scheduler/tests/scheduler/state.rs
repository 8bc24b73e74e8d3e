//! Tests with the real state: a volume moves between allocations through scheduler, state and the rules of claims.

use crate::world::{NOW, job, node, placed, volume, with_volume};
use caravan_scheduler::{Params, schedule};
use caravan_state::Root;
use caravan_types::alloc::{AllocUpdate, ClientStatus};
use caravan_types::command::{Change, ClaimStep, Command, PlanCommit};
use caravan_types::eval::{EvalStatus, Evaluation, Trigger};
use caravan_types::job::JobType;
use caravan_types::plan::Decision;
use caravan_types::plugin::{CsiControllerInfo, CsiInfo, CsiNodeInfo};
use caravan_types::volume::{AccessMode, Claim, ClaimPhase, MountProof};
use caravan_types::{AllocId, BootInstant, JobKey, VolumeKey};
use caravan_volumes::lease::Lease;
use caravan_volumes::reconcile::{self, Action, Facts, Presence, Seen};
use std::collections::BTreeMap;

struct Cluster(Root);

impl Cluster {
    fn apply(&mut self, change: Change) {
        let (next, outcome, _) = self.0.apply(self.0.index() + 1, &Command { now: NOW, change });
        assert_eq!(outcome.refused, None);
        self.0 = next;
    }

    fn decide(&mut self, eval: Evaluation) -> Decision {
        let decision = schedule(&self.0, &eval, &Params::new(NOW, 3));
        let plan = decision.plan.clone();
        let evals: Vec<Evaluation> =
            decision.follow_ups.iter().cloned().chain([decision.eval.clone()]).collect();
        self.apply(Change::Plan(Box::new(PlanCommit {
            eval_id: eval.id,
            job: plan.job,
            placements: plan.placements.into_values().flatten().collect(),
            stops: plan.stops.into_values().flatten().collect(),
            claims: plan.claims,
            host_claims: plan.host_claims,
            evals,
            deployment: plan.deployment,
            deployment_updates: plan.deployment_updates,
        })));
        decision
    }

    fn eval(&self, id: &str, job: &str) -> Evaluation {
        Evaluation {
            id: id.into(),
            namespace: "default".into(),
            job_id: job.into(),
            triggered_by: Trigger::JobRegister,
            ..Evaluation::default()
        }
    }

    fn claim(&self) -> Claim {
        let key = VolumeKey::new("default", "data");
        let held = self.0.claims_of(&key).filter(|c| c.phase.holds());
        Claim::clone(held.last().expect("a claim holds"))
    }

    fn step(&mut self, step: ClaimStep) {
        let claim = self.claim();
        self.apply(Change::ClaimStep { id: claim.id, expect_modify_index: claim.modify_index, step });
    }

    /// Returns the servers' next action for the claim.
    fn next(&self) -> Action {
        let claim = self.claim();
        reconcile::next(&Facts {
            volume: self.0.volume(&claim.id.volume).map(AsRef::as_ref),
            claim: &claim,
            others: &[],
            plugin: self.0.plugin(&claim.plugin_id).map(AsRef::as_ref),
            node: Presence::from_node(self.0.node(&claim.node_id).map(AsRef::as_ref)),
            lease: Lease::default(),
            seen: Seen::at(BootInstant::default()),
            now: BootInstant::default(),
        })
    }

    /// Attaches the volume as the servers do, and mounts it as the client does.
    fn bring_up(&mut self) {
        let Action::Attach { external_node_id } = self.next() else { panic!("{:?}", self.next()) };
        self.step(ClaimStep::IntendAttach { external_node_id: external_node_id.clone() });
        self.step(ClaimStep::Attached {
            publish_context: BTreeMap::new(),
            needs_attach: true,
            external_node_id,
        });
        self.step(ClaimStep::Mounted { proof: MountProof::default() });
        assert_eq!(self.next(), Action::Nothing);
    }

    /// Ends the allocation and unmounts as the client does, and detaches as the servers do.
    fn take_down(&mut self, alloc: &AllocId) {
        let update = AllocUpdate {
            alloc_id: alloc.clone(),
            client_status: ClientStatus::Complete,
            ..AllocUpdate::default()
        };
        self.apply(Change::AllocUpdates { updates: vec![update], evals: vec![] });
        assert_eq!(self.claim().phase, ClaimPhase::Releasing);
        self.step(ClaimStep::Unpublished);
        self.step(ClaimStep::Unstaged);
        assert_eq!(self.next(), Action::Detach);
        self.step(ClaimStep::IntendDetach);
        self.step(ClaimStep::Freed);
    }
}

fn cluster() -> Cluster {
    let mut cluster = Cluster(Root::default());
    let mut host = node("n1");
    let info = CsiInfo {
        plugin_id: "p".into(),
        healthy: true,
        requires_controller_plugin: true,
        node_info: Some(CsiNodeInfo { id: "csi-n1".into(), ..CsiNodeInfo::default() }),
        ..CsiInfo::default()
    };
    let services = CsiControllerInfo { supports_attach_detach: true, ..CsiControllerInfo::default() };
    let controller = CsiInfo { controller_info: Some(services), node_info: None, ..info.clone() };
    host.csi_node_plugins.insert("p".into(), info);
    host.csi_controller_plugins.insert("p".into(), controller);
    cluster.apply(Change::NodeRegister { node: Box::new(host), evals: vec![] });
    let volume = Box::new(volume("data", AccessMode::SingleNodeWriter));
    cluster.apply(Change::VolumeWrite { volume, expect_modify_index: 0, exclusive: true });
    cluster
}

fn register(cluster: &mut Cluster, version: &str) {
    let mut writer = with_volume(job("writer", JobType::Service, 1), "data", AccessMode::SingleNodeWriter);
    writer.meta.insert("version".into(), version.into());
    cluster.apply(Change::JobRegister {
        job: Box::new(writer),
        expect_modify_index: None,
        eval: None,
        source: None,
    });
}

#[test]
fn a_volume_changes_hands_with_every_proof() {
    let mut cluster = cluster();
    register(&mut cluster, "1");
    let decision = cluster.decide(cluster.eval("e1", "writer"));
    assert_eq!(placed(&decision), ["writer.g[0] on n1"]);
    let first = decision.plan.claims[0].id.alloc.clone();
    cluster.bring_up();
    assert!(cluster.decide(cluster.eval("e2", "writer")).plan.is_empty());

    register(&mut cluster, "2");
    let decision = cluster.decide(cluster.eval("e3", "writer"));
    assert_eq!(decision.plan.stops["n1"].len(), 1);
    assert!(decision.plan.placements.is_empty());
    let waiting = decision.follow_ups[0].clone();
    assert_eq!(waiting.missing_non_node_resources, ["csi-claim:default:data"]);
    // Stopping is not enough: the claim is active until the client and the plugin have proven its end.
    assert_eq!(cluster.decide(waiting.clone()).eval.status, EvalStatus::Blocked);

    cluster.take_down(&first);
    let decision = cluster.decide(waiting);
    assert_eq!(placed(&decision), ["writer.g[0] on n1"]);
    let second = decision.plan.claims[0].id.alloc.clone();
    assert_eq!(cluster.0.alloc(&second).map(|a| a.previous_allocation.clone()), Some(first.clone()));
    assert_eq!(cluster.0.alloc(&first).map(|a| a.next_allocation.clone()), Some(second.clone()));
    cluster.bring_up();

    cluster.apply(Change::JobDeregister { key: JobKey::new("default", "writer"), purge: true, eval: None });
    let decision = cluster.decide(cluster.eval("e4", "writer"));
    assert_eq!(decision.plan.stops["n1"].len(), 1);
    cluster.take_down(&second);
    let key = VolumeKey::new("default", "data");
    assert!(cluster.0.claims_of(&key).all(|claim| claim.phase == ClaimPhase::Gone));
}
