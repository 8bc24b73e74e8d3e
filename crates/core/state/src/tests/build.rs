//! Small rows and commands for the tests.

use crate::{Root, check};
use caravan_types::alloc::{AllocUpdate, Allocation, ClientStatus, TaskState};
use caravan_types::command::{Change, Command, Outcome, PlanCommit};
use caravan_types::eval::{EvalStatus, Evaluation};
use caravan_types::job::{CsiPluginConfig, CsiPluginType, Job, JobType, Periodic, Task, TaskGroup};
use caravan_types::node::{Node, NodeStatus};
use caravan_types::plan::StopAlloc;
use caravan_types::plugin::{CsiControllerInfo, CsiInfo, CsiNodeInfo};
use caravan_types::volume::{AccessMode, AttachmentMode, Capability, Claim, ClaimId, ClaimMode, Volume};
use caravan_types::{JobKey, UnixNanos, VolumeKey};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A root under test; every applied command must leave it sound.
#[derive(Default)]
pub(super) struct World {
    pub(super) root: Root,
}

impl World {
    pub(super) fn try_apply(&mut self, change: Change) -> Outcome {
        let index = self.root.index() + 1;
        let now = UnixNanos(1_000 + i64::try_from(index).unwrap());
        let (root, outcome, _) = self.root.apply(index, &Command { now, change });
        assert_eq!(check(&root), Vec::<String>::new());
        self.root = root;
        outcome
    }
    pub(super) fn apply(&mut self, change: Change) -> u64 {
        let outcome = self.try_apply(change);
        assert_eq!(outcome.refused, None);
        outcome.index
    }
    pub(super) fn register(&mut self, job: &Job, eval_id: &str) -> u64 {
        let eval = Some(eval(eval_id, job));
        let job = Box::new(job.clone());
        self.apply(Change::JobRegister { job, expect_modify_index: None, eval, source: None })
    }
    pub(super) fn node(&mut self, node: Node) -> u64 {
        self.apply(Change::NodeRegister { node: Box::new(node), evals: vec![] })
    }
    /// Places an allocation of the job's first group on a node.
    pub(super) fn place(&mut self, id: &str, job: &JobKey, node: &str) -> u64 {
        let commit = self.commit(id, job, node, vec![]);
        self.apply(Change::Plan(Box::new(commit)))
    }
    pub(super) fn commit(&self, id: &str, job: &JobKey, node: &str, claims: Vec<Claim>) -> PlanCommit {
        let job = self.root.job(job).cloned().unwrap();
        let placement = Allocation {
            id: id.into(),
            name: format!("{}.g[0]", job.id),
            node_id: node.into(),
            namespace: job.namespace.clone(),
            job_id: job.id.clone(),
            task_group: job.task_groups[0].name.as_str().into(),
            ..Default::default()
        };
        PlanCommit { job: Some(job), placements: vec![placement], claims, ..Default::default() }
    }
    pub(super) fn stop(&mut self, id: &str, status: Option<ClientStatus>) -> u64 {
        let stop = StopAlloc {
            alloc_id: id.into(),
            description: "alloc not needed due to job update".into(),
            client_status: status,
            ..Default::default()
        };
        self.apply(Change::Plan(Box::new(PlanCommit { stops: vec![stop], ..Default::default() })))
    }
    pub(super) fn report(&mut self, id: &str, status: ClientStatus) -> u64 {
        self.apply(Change::AllocUpdates { updates: vec![update(id, status)], evals: vec![] })
    }
    pub(super) fn end_eval(&mut self, id: &str, status: EvalStatus, queued: &[(&str, u32)]) -> u64 {
        let mut eval = Evaluation::clone(self.root.eval(&id.into()).unwrap());
        eval.status = status;
        eval.queued_allocations = queued.iter().map(|(g, n)| ((*g).to_owned(), *n)).collect();
        self.apply(Change::Evals { evals: vec![eval] })
    }
}

pub(super) fn update(id: &str, status: ClientStatus) -> AllocUpdate {
    AllocUpdate {
        alloc_id: id.into(),
        client_status: status,
        client_description: status.as_str().into(),
        task_states: [("t".to_owned(), TaskState::default())].into(),
        ..Default::default()
    }
}

pub(super) fn key(id: &str) -> JobKey {
    JobKey::new("default", id)
}

pub(super) fn job(id: &str, kind: JobType, count: u32) -> Job {
    let task = Task { name: "t".into(), driver: "raw_exec".into(), ..Default::default() };
    Job {
        id: id.into(),
        name: id.into(),
        namespace: "default".into(),
        kind,
        priority: 50,
        datacenters: vec!["dc*".into()],
        node_pool: "default".into(),
        task_groups: vec![TaskGroup { name: "g".into(), count, tasks: vec![task], ..Default::default() }],
        ..Default::default()
    }
}

pub(super) fn plugin_job(id: &str, kind: JobType, count: u32, plugin: &str, role: CsiPluginType) -> Job {
    let mut job = job(id, kind, count);
    job.task_groups[0].tasks[0].csi_plugin_config =
        Some(CsiPluginConfig { id: plugin.into(), kind: role, ..Default::default() });
    job
}

pub(super) fn eval(id: &str, job: &Job) -> Evaluation {
    Evaluation {
        id: id.into(),
        namespace: job.namespace.clone(),
        job_id: job.id.clone(),
        priority: job.priority,
        kind: job.kind.as_str().into(),
        ..Default::default()
    }
}

pub(super) fn node(id: &str) -> Node {
    Node {
        id: id.into(),
        name: id.into(),
        datacenter: "dc1".into(),
        node_pool: "default".into(),
        status: NodeStatus::Ready,
        ..Default::default()
    }
}

pub(super) fn info(plugin: &str, healthy: bool) -> CsiInfo {
    CsiInfo {
        plugin_id: plugin.into(),
        healthy,
        provider: "org.example.csi".into(),
        provider_version: "1.0".into(),
        ..Default::default()
    }
}

/// Returns a node that runs both services of a plugin.
pub(super) fn plugin_node(id: &str, plugin: &str, healthy: bool) -> Node {
    let controller = CsiInfo {
        requires_controller_plugin: true,
        controller_info: Some(CsiControllerInfo { supports_attach_detach: true, ..Default::default() }),
        ..info(plugin, healthy)
    };
    let service = CsiInfo {
        requires_controller_plugin: true,
        node_info: Some(CsiNodeInfo { id: format!("ext-{id}"), max_volumes: i64::MAX, ..Default::default() }),
        ..info(plugin, healthy)
    };
    Node {
        csi_controller_plugins: BTreeMap::from([(plugin.into(), controller)]),
        csi_node_plugins: BTreeMap::from([(plugin.into(), service)]),
        ..node(id)
    }
}

pub(super) fn volume(id: &str, plugin: &str) -> Volume {
    Volume {
        namespace: "default".into(),
        id: id.into(),
        external_id: format!("ext-{id}"),
        plugin_id: plugin.into(),
        requested_capabilities: vec![Capability {
            attachment_mode: AttachmentMode::FileSystem,
            access_mode: AccessMode::SingleNodeWriter,
        }],
        ..Default::default()
    }
}

pub(super) fn claim_id(volume: &str, alloc: &str) -> ClaimId {
    ClaimId { volume: VolumeKey::new("default", volume), alloc: alloc.into() }
}

pub(super) fn writer(volume: &str, alloc: &str, job: &JobKey) -> Claim {
    Claim {
        id: claim_id(volume, alloc),
        job_id: job.id.clone(),
        task_group: "g".into(),
        alias: "data".into(),
        mode: ClaimMode::Write,
        access_mode: AccessMode::SingleNodeWriter,
        attachment_mode: AttachmentMode::FileSystem,
        ..Default::default()
    }
}

pub(super) fn shared<T>(row: Option<&Arc<T>>) -> &T {
    row.expect("the row is there")
}

/// Returns a job that creates a child every day, if it is enabled.
pub(super) fn periodic(id: &str, enabled: bool) -> Job {
    let rule =
        Periodic { enabled, specs: vec!["@daily".into()], spec_type: "cron".into(), ..Periodic::default() };
    Job { periodic: Some(rule.into()), ..job(id, JobType::Batch, 1) }
}
