//! Random commands: small choices, from which commands are created that fit the current root.

use super::build::{claim_id, eval, job, periodic, plugin_job, plugin_node, update, volume, writer};
use crate::Root;
use crate::index::plugins_of_job;
use caravan_types::alloc::{Allocation, ClientStatus, DesiredTransition};
use caravan_types::command::{Change, ClaimStep, JobSource, LetGo, PlanCommit};
use caravan_types::deployment::{Deployment, DeploymentStatus};
use caravan_types::eval::{EvalStatus, Evaluation};
use caravan_types::host_volume::{HostVolume, HostVolumeClaim, HostVolumeIntent};
use caravan_types::job::{CsiPluginType, Job, JobType};
use caravan_types::node::{DrainStrategy, Eligibility, HostVolumeInfo, NodeEvent, NodeStatus};
use caravan_types::plan::StopAlloc;
use caravan_types::variable::{LockUse, Variable, VariableKey, VariableLock};
use caravan_types::volume::{
    AccessMode, Capability, Claim, ClaimMode, ClaimPhase, ConfirmedOff, MountProof, Volume, VolumePhase,
};
use caravan_types::{JobKey, PluginId, UnixNanos, VolumeKey};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const VOLUME_PHASES: [VolumePhase; 4] =
    [VolumePhase::Ready, VolumePhase::Creating, VolumePhase::Expanding, VolumePhase::Deleting];

/// The kind of a command, and four numbers that select its content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op {
    what: u8,
    a: u8,
    b: u8,
    c: u8,
    d: u8,
}

pub(super) fn ops(max: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = (0u8..41, 0u8..6, 0u8..6, 0u8..12, 0u8..12);
    let op = op.prop_map(|(what, a, b, c, d)| Op { what, a, b, c, d });
    proptest::collection::vec(op, 1..max).prop_map(|random| [prelude(), random].concat())
}

/// Returns commands for nodes, volumes and jobs, so that most later commands have objects.
fn prelude() -> Vec<Op> {
    let mut ops = Vec::new();
    for n in 0..3 {
        ops.push(Op { what: 0, a: n, b: n, c: 0, d: 0 });
    }
    for n in 0..2 {
        ops.push(Op { what: 25, a: n, b: n, c: 0, d: 0 });
    }
    for n in 0..5 {
        ops.push(Op { what: 7, a: n, b: 0, c: 1, d: n });
    }
    ops
}

/// Returns a command that writes, locks, unlocks or deletes one of three variables.
fn variable(op: Op) -> Change {
    let key = VariableKey::new("default", format!("v{}", op.a % 3));
    let id = format!("lock{}", op.c % 2);
    let lock = match op.b {
        0 => return Change::VariableDelete { key, check_index: None },
        1 => LockUse::None,
        2 | 3 => LockUse::Acquire,
        4 => LockUse::Held(id.clone()),
        _ => LockUse::Release(id.clone()),
    };
    let held = (lock == LockUse::Acquire).then(|| VariableLock { id, ..VariableLock::default() });
    let variable = Box::new(Variable { key, lock: held, ..Variable::default() });
    Change::VariableWrite { variable, check_index: None, lock }
}

fn pick<T: Copy>(from: &[T], n: u8) -> T {
    from[usize::from(n) % from.len()]
}

fn nodes(n: u8) -> String {
    format!("n{}", n % 3)
}

fn jobs(n: u8, variant: u8) -> Job {
    let count = u32::from(variant % 3);
    let id = format!("j{}", n % 5);
    match n % 5 {
        0 => job(&id, JobType::Service, count),
        1 => job(&id, JobType::Batch, count),
        2 => plugin_job(&id, JobType::System, count, "p0", CsiPluginType::Monolith),
        3 => plugin_job(&id, JobType::Service, count, "p1", CsiPluginType::Controller),
        _ => plugin_job(&id, JobType::System, 1, pick(&["p0", "p1"], variant), CsiPluginType::Node),
    }
}

fn job_key(n: u8) -> JobKey {
    jobs(n, 0).key()
}

fn volume_key(n: u8) -> VolumeKey {
    VolumeKey::new("default", format!("v{}", n % 2).as_str())
}

fn alloc_id(n: u8) -> String {
    format!("a{n}")
}

const STATUSES: [ClientStatus; 6] = [
    ClientStatus::Pending,
    ClientStatus::Running,
    ClientStatus::Complete,
    ClientStatus::Failed,
    ClientStatus::Lost,
    ClientStatus::Unknown,
];
const EVAL_STATUSES: [EvalStatus; 4] =
    [EvalStatus::Pending, EvalStatus::Blocked, EvalStatus::Complete, EvalStatus::Canceled];
const NODE_STATUSES: [NodeStatus; 4] =
    [NodeStatus::Ready, NodeStatus::Down, NodeStatus::Disconnected, NodeStatus::Initializing];

/// Returns the evaluation of a number, with a new status if it exists. Its job never changes.
fn moved_eval(root: &Root, n: u8, job: u8, op: Op) -> Evaluation {
    let id = format!("e{n}");
    let known = root.eval(&id.as_str().into()).map(|e| Evaluation::clone(e));
    let mut eval = known.unwrap_or_else(|| eval(&id, &jobs(job, 0)));
    eval.status = pick(&EVAL_STATUSES, op.c);
    eval.queued_allocations = BTreeMap::from([("g".to_owned(), u32::from(op.d % 3))]);
    if op.d > 8 {
        eval.failed_tg_allocs = BTreeMap::from([("g".to_owned(), Default::default())]);
    }
    eval
}

fn fresh_eval(root: &Root, op: Op) -> Option<Evaluation> {
    let id = format!("e{}", op.d);
    let free = root.eval(&id.as_str().into()).is_none();
    free.then(|| eval(&id, &jobs(op.a, 0)))
}

fn plan(root: &Root, op: Op) -> Change {
    let id = alloc_id(op.c);
    let old = root.alloc(&id.as_str().into());
    let job_key = old.map_or_else(|| job_key(op.a), |a| a.job_key());
    let node = old.map_or_else(|| nodes(op.b), |a| a.node_id.to_string());
    let mut commit = PlanCommit { job: root.job(&job_key).cloned(), ..Default::default() };
    if commit.job.is_some() {
        commit.placements.push(Allocation {
            id: id.as_str().into(),
            name: format!("{}.g[{}]", job_key.id, op.c),
            node_id: node.as_str().into(),
            namespace: job_key.namespace.clone(),
            job_id: job_key.id.clone(),
            task_group: "g".into(),
            eval_id: format!("e{}", op.d).as_str().into(),
            previous_allocation: alloc_id(op.d).as_str().into(),
            client_status: if op.d == 7 { ClientStatus::Unknown } else { ClientStatus::Pending },
            ..Default::default()
        });
        if op.d.is_multiple_of(3) {
            let volume = volume_key(op.b);
            let mut claim = Claim { job_id: job_key.id.clone(), ..writer(volume.id.as_str(), &id, &job_key) };
            if op.d == 6 {
                (claim.mode, claim.access_mode) = (ClaimMode::Read, AccessMode::MultiNodeSingleWriter);
            }
            commit.claims.push(claim);
        }
        if op.d.is_multiple_of(4) {
            commit.host_claims.push(HostVolumeClaim {
                id: format!("c{}", op.d),
                namespace: job_key.namespace.clone(),
                job_id: job_key.id.clone(),
                task_group_name: "g".into(),
                alloc_id: id.as_str().into(),
                volume_id: format!("h{}", op.b % 4).as_str().into(),
                ..Default::default()
            });
        }
    }
    Change::Plan(Box::new(commit))
}

fn host_volume(root: &Root, op: Op) -> Change {
    let id = format!("h{}", op.a % 4);
    let at = root.host_volume(&id.as_str().into()).map_or(0, |row| row.modify_index);
    let volume = HostVolume {
        namespace: "default".into(),
        name: format!("host{}", op.b % 2),
        node_id: nodes(op.a / 2).as_str().into(),
        intent: pick(&[HostVolumeIntent::None, HostVolumeIntent::Create, HostVolumeIntent::Delete], op.c),
        id: id.as_str().into(),
        ..HostVolume::default()
    };
    Change::HostVolumeWrite {
        volume: Box::new(volume),
        expect_modify_index: if op.d == 11 { at + 1 } else { at },
    }
}

fn attached(needs_attach: bool) -> ClaimStep {
    let (publish_context, external_node_id) = (BTreeMap::new(), "x".to_owned());
    ClaimStep::Attached { publish_context, needs_attach, external_node_id }
}

/// Returns a step that is legal in a phase.
fn next_step(phase: ClaimPhase, even: bool) -> ClaimStep {
    match phase {
        ClaimPhase::Reserved if even => ClaimStep::IntendAttach { external_node_id: "x".to_owned() },
        ClaimPhase::Reserved => attached(false),
        ClaimPhase::Attaching => attached(true),
        ClaimPhase::Attached | ClaimPhase::Mounted if even => {
            ClaimStep::Mounted { proof: MountProof::default() }
        }
        ClaimPhase::Attached | ClaimPhase::Mounted => ClaimStep::Release,
        ClaimPhase::Releasing | ClaimPhase::Fencing => ClaimStep::Unpublished,
        ClaimPhase::Unpublished => ClaimStep::Unstaged,
        ClaimPhase::Unstaged if even => ClaimStep::IntendDetach,
        ClaimPhase::Unstaged | ClaimPhase::Detaching | ClaimPhase::Gone => ClaimStep::Freed,
    }
}

fn claim_step(root: &Root, op: Op) -> Change {
    let claims: Vec<&Arc<Claim>> = root.claims().filter(|c| c.phase.holds() || op.d == 10).collect();
    let found = claims.get(usize::from(op.a) % claims.len().max(1));
    let at = found.map_or(1, |c| c.modify_index);
    let step = match op.c {
        8 => ClaimStep::Release,
        9 => ClaimStep::Freed,
        10 => {
            let node = found.and_then(|claim| root.node(&claim.node_id));
            let silence = Some(node.map_or(0, |node| node.last_missed_heartbeat_index));
            ClaimStep::Fence { until: UnixNanos(5), silence: silence.filter(|_| op.d != 9) }
        }
        7 => {
            let fence = found.and_then(|claim| claim.fence_index).unwrap_or(0);
            let then = pick(&[LetGo::IntendDetach, LetGo::LeftAttached, LetGo::Freed], op.d);
            ClaimStep::Waited { fence, then }
        }
        11 => ClaimStep::Failed { error: "no".into(), next_try: UnixNanos(9) },
        _ => next_step(found.map(|c| c.phase).unwrap_or_default(), op.d.is_multiple_of(2)),
    };
    let id = found.map_or_else(|| claim_id("v0", "a0"), |c| c.id.clone());
    Change::ClaimStep { id, expect_modify_index: if op.d == 11 { 0 } else { at }, step }
}

/// Returns the command of a choice.
pub(super) fn change(root: &Root, op: Op) -> Change {
    let node = nodes(op.a).as_str().into();
    let evals = vec![moved_eval(root, op.d, op.a, op)];
    match op.what {
        0 | 1 => {
            let plugin = pick(&["p0", "p1"], op.b);
            let mut node = plugin_node(&nodes(op.a), plugin, op.c.is_multiple_of(2));
            // The plugin has no controller, and an allocation of any node may run it.
            let runs = |alloc: &&Arc<Allocation>| {
                alloc.job.iter().any(|job| plugins_of_job(job).contains(&PluginId::from(plugin)))
            };
            let alloc = root.allocs().filter(runs).nth(usize::from(op.d % 3)).map(|alloc| alloc.id.clone());
            let infos = node.csi_node_plugins.values_mut().chain(node.csi_controller_plugins.values_mut());
            for info in infos {
                info.requires_controller_plugin = op.d.is_multiple_of(2);
                info.alloc_id = alloc.clone().unwrap_or_default();
            }
            node.status = pick(&NODE_STATUSES, op.d / 3);
            if op.c > 9 {
                node.csi_controller_plugins.clear();
            }
            node.gc_volumes_on_node_gc = op.c == 3;
            for row in root.host_volumes_by_node(&node.id).skip(usize::from(op.b % 2)) {
                let info = HostVolumeInfo { id: row.id.to_string(), ..HostVolumeInfo::default() };
                node.host_volumes.insert(row.name.clone(), info);
            }
            Change::NodeRegister { node: Box::new(node), evals: vec![] }
        }
        2 => Change::NodeStatus { node, status: pick(&NODE_STATUSES, op.c), event: None, evals },
        3 => Change::NodeEvents { events: BTreeMap::from([(node, vec![NodeEvent::default()])]) },
        4 => {
            let eligibility = pick(&[Eligibility::Eligible, Eligibility::Ineligible], op.b);
            Change::NodeEligibility { node, eligibility, evals: vec![] }
        }
        5 => {
            let drain = op.b.is_multiple_of(2).then(DrainStrategy::default);
            Change::NodeDrain {
                node,
                drain,
                mark_eligible: op.c.is_multiple_of(2),
                meta: BTreeMap::new(),
                accessor: String::new(),
                end: None,
                evals,
            }
        }
        6 if op.c > 8 => Change::NodeDelete { node, evals: vec![] },
        6 if op.c > 6 => {
            Change::NodeFence { node, off: ConfirmedOff { name: "ops".into(), ..Default::default() } }
        }
        7..=10 => Change::JobRegister {
            job: Box::new(jobs(op.a, op.c)),
            expect_modify_index: (op.c == 11).then_some(u64::from(op.b)),
            eval: fresh_eval(root, op),
            source: op.b.is_multiple_of(2).then(JobSource::default),
        },
        11 => {
            let (key, purge) = (job_key(op.a), op.b.is_multiple_of(2));
            Change::JobDeregister { key, purge, eval: fresh_eval(root, op) }
        }
        12 | 13 => Change::Evals { evals },
        39 => {
            let job = Box::new(Job { stop: op.c > 8, ..periodic("cron", op.a.is_multiple_of(3)) });
            Change::JobRegister { job, expect_modify_index: None, eval: None, source: None }
        }
        40 => {
            let mut child = job(&format!("cron/periodic-{}", op.a), JobType::Batch, 1);
            child.parent_id = "cron".into();
            child.dispatch_idempotency_token =
                if op.b > 3 { format!("t{}", op.c % 3) } else { String::new() };
            let launched = op.d.is_multiple_of(2).then_some(UnixNanos(i64::from(op.d)));
            Change::JobChild { eval: None, launched, job: Box::new(child) }
        }
        14 => Change::Collect {
            evals: vec![format!("e{}", op.c).as_str().into(), format!("e{}", op.d).as_str().into()],
            allocs: vec![alloc_id(op.c).as_str().into(), alloc_id(op.d).as_str().into()],
        },
        15..=18 => plan(root, op),
        19 => Change::Plan(Box::new(PlanCommit {
            stops: vec![StopAlloc {
                alloc_id: alloc_id(op.c).as_str().into(),
                description: "stopped".into(),
                client_status: op.b.is_multiple_of(2).then_some(ClientStatus::Lost),
                ..Default::default()
            }],
            evals,
            ..Default::default()
        })),
        20..=22 => Change::AllocUpdates {
            updates: vec![
                update(&alloc_id(op.c), pick(&STATUSES, op.a)),
                update(&alloc_id(op.d), pick(&STATUSES, op.b)),
            ],
            evals: vec![],
        },
        23 => {
            let asked = DesiredTransition { migrate: Some(true), ..Default::default() };
            let transitions = BTreeMap::from([(alloc_id(op.c).as_str().into(), asked)]);
            Change::AllocTransitions { transitions, evals }
        }
        24 => {
            let key = job_key(op.a);
            let row = Deployment {
                id: format!("d{}", op.a).as_str().into(),
                namespace: key.namespace,
                job_id: key.id,
                status: pick(&[DeploymentStatus::Running, DeploymentStatus::Failed], op.b),
                ..Default::default()
            };
            Change::Deployments { deployments: vec![row] }
        }
        25 => {
            let key = volume_key(op.a);
            let at = root.volume(&key).map_or(0, |v| v.modify_index);
            let mut row = volume(key.id.as_str(), pick(&["p0", "p1"], op.b));
            row.requested_capabilities.clear();
            if op.c > 5 {
                let access_mode =
                    pick(&[AccessMode::MultiNodeReaderOnly, AccessMode::SingleNodeWriter], op.d);
                row.requested_capabilities = vec![Capability { access_mode, ..Capability::default() }];
                row.shared_storage = op.d < 8;
            }
            // There are few storages and names, so that rows conflict.
            row.external_id = pick(&["x", "y", ""], op.d / 2).to_owned();
            row.name = pick(&["n", "m"], op.c).to_owned();
            row.phase = pick(&VOLUME_PHASES, op.b / 2);
            let expect_modify_index = if op.c == 11 { at + 1 } else { at };
            Change::VolumeWrite {
                volume: Box::new(Volume { tries: op.d.into(), last_error: "no".into(), ..row }),
                expect_modify_index,
                exclusive: true,
            }
        }
        26 if op.c > 9 => Change::VolumeDelete { key: volume_key(op.a), force: op.b.is_multiple_of(2) },
        26..=33 => claim_step(root, op),
        34..=36 => host_volume(root, op),
        37 if op.c > 8 => Change::HostVolumeDelete {
            namespace: "default".into(),
            id: format!("h{}", op.a % 4).as_str().into(),
            force: op.b.is_multiple_of(2),
        },
        37 => Change::HostClaimDelete { id: format!("c{}", op.d) },
        38 => variable(op),
        _ => Change::Noop,
    }
}
