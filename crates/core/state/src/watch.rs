//! Watches: register first, then read, then wait.
//!
//! A watch wakes only for its topics: each change is expanded into its topics, and only the watches of these topics
//! are checked.

use crate::changes::{ChangeSet, Changed};
use crate::root::{Root, Table};
use crate::rows::AllocRows;
use crate::tenancy::AdminRow;
use crate::work::{Followers, Inbox, NodeWork};
use caravan_types::alloc::Allocation;
use caravan_types::variable::VariableKey;
use caravan_types::volume::ClaimId;
use caravan_types::{
    AllocId, DeploymentId, EvalId, HostVolumeId, JobKey, Namespace, NodeId, PluginId, ServiceId, VolumeKey,
};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::Notify;

/// A topic of a watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Any row of a table.
    Table(Table),
    /// A node.
    Node(NodeId),
    /// A job, its versions and its summary.
    Job(JobKey),
    /// An evaluation.
    Eval(EvalId),
    /// An allocation.
    Alloc(AllocId),
    /// A deployment.
    Deployment(DeploymentId),
    /// A volume.
    Volume(VolumeKey),
    /// A claim.
    Claim(ClaimId),
    /// A plugin.
    Plugin(PluginId),
    /// A host volume.
    HostVolume(HostVolumeId),
    /// A variable.
    Variable(VariableKey),
    /// Registrations of a service's name.
    ServicesOfName(Namespace, String),
    /// Services of an allocation.
    ServicesOfAlloc(AllocId),
    /// Services of a job.
    ServicesOfJob(JobKey),
    /// A row that an operator writes.
    Admin(AdminRow),
    /// Evaluations of a job.
    EvalsOfJob(JobKey),
    /// Allocations of a job.
    AllocsOfJob(JobKey),
    /// Allocations on a node.
    AllocsOfNode(NodeId),
    /// Allocations of an evaluation.
    AllocsOfEval(EvalId),
    /// Deployments of a job.
    DeploymentsOfJob(JobKey),
    /// Claims on a volume.
    ClaimsOfVolume(VolumeKey),
    /// Claims on a node.
    ClaimsOfNode(NodeId),
    /// Claims of an allocation.
    ClaimsOfAlloc(AllocId),
}

impl Topic {
    fn is_of_allocs(&self) -> bool {
        matches!(self, Self::Alloc(_) | Self::AllocsOfJob(_) | Self::AllocsOfNode(_) | Self::AllocsOfEval(_))
    }
}

fn service_topics(id: &ServiceId, before: &Root, after: &Root, tell: &mut impl FnMut(Topic)) {
    for row in [before, after].into_iter().filter_map(|root| root.service(id)) {
        tell(Topic::ServicesOfName(row.namespace.clone(), row.service_name.clone()));
        tell(Topic::ServicesOfAlloc(row.alloc_id.clone()));
        tell(Topic::ServicesOfJob(row.job_key()));
    }
}

/// Passes the topics of a change, except for its table, to `tell`. Rows are read before and after the change, because
/// a row that moves from one owner to another concerns both.
fn topics_of(changed: &Changed, before: &Root, after: &Root, tell: &mut impl FnMut(Topic)) {
    match changed {
        Changed::Node(id) | Changed::NodeRemoved(id) => {
            tell(Topic::Node(id.clone()));
        }
        Changed::Job(key)
        | Changed::JobRemoved(key)
        | Changed::JobSummary(key)
        | Changed::ScalingPolicies(key)
        | Changed::ScalingEvents(key) => {
            tell(Topic::Job(key.clone()));
        }
        Changed::Eval(id) | Changed::EvalRemoved(id) => {
            tell(Topic::Eval(id.clone()));
            for row in [before, after].into_iter().filter_map(|root| root.eval(id)) {
                tell(Topic::EvalsOfJob(row.job_key()));
            }
        }
        // Allocations change by the thousand, so they are handled separately: see `Waiting::tell_of_alloc`.
        Changed::Alloc(_) | Changed::AllocRemoved(_) => {}
        Changed::Deployment(id) | Changed::DeploymentRemoved(id) => {
            tell(Topic::Deployment(id.clone()));
            for row in [before, after].into_iter().filter_map(|root| root.deployment(id)) {
                let key = JobKey { namespace: row.namespace.clone(), id: row.job_id.clone() };
                tell(Topic::DeploymentsOfJob(key));
            }
        }
        Changed::Volume(key) | Changed::VolumeRemoved(key) => {
            tell(Topic::Volume(key.clone()));
        }
        Changed::Claim(id) | Changed::ClaimRemoved(id) => {
            tell(Topic::Claim(id.clone()));
            tell(Topic::ClaimsOfVolume(id.volume.clone()));
            tell(Topic::ClaimsOfAlloc(id.alloc.clone()));
            for row in [before, after].into_iter().filter_map(|root| root.claim(id)) {
                tell(Topic::ClaimsOfNode(row.node_id.clone()));
            }
        }
        Changed::Plugin(id) | Changed::PluginRemoved(id) => {
            tell(Topic::Plugin(id.clone()));
        }
        Changed::HostVolume(id) | Changed::HostVolumeRemoved(id) => {
            tell(Topic::HostVolume(id.clone()));
        }
        Changed::HostClaim(_) | Changed::HostClaimRemoved(_) => {}
        Changed::Service(id) | Changed::ServiceRemoved(id) => service_topics(id, before, after, tell),
        Changed::Variable(key) | Changed::VariableRemoved(key) => {
            tell(Topic::Variable(key.clone()));
        }
        Changed::Admin(row) | Changed::AdminRemoved(row) => {
            tell(Topic::Admin(row.clone()));
        }
    }
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    by_topic: HashMap<Topic, HashMap<u64, Arc<Notify>>>,
    /// Number of watches that wait for topics of allocations.
    for_allocs: usize,
    followers: Followers,
}

impl Waiting {
    fn tell(&self, topic: &Topic) {
        if let Some(watchers) = self.by_topic.get(topic) {
            watchers.values().for_each(|notify| notify.notify_one());
        }
    }

    /// Wakes the watches of an allocation that changed, was created or was removed.
    fn tell_of_alloc(&self, id: &AllocId, old: Option<&Arc<Allocation>>, new: Option<&Arc<Allocation>>) {
        self.followers.tell(id, old, new);
        if self.for_allocs == 0 {
            return;
        }
        self.tell(&Topic::Alloc(id.clone()));
        // An allocation keeps its node and its job, and seldom gets another evaluation.
        let stays = matches!((old, new), (Some(old), Some(new)) if old.eval_id == new.eval_id);
        for row in old.filter(|_| !stays).into_iter().chain(new) {
            self.tell(&Topic::AllocsOfJob(row.job_key()));
            self.tell(&Topic::AllocsOfNode(row.node_id.clone()));
            self.tell(&Topic::AllocsOfEval(row.eval_id.clone()));
        }
    }
}

/// The watches by topic.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    waiting: Mutex<Waiting>,
}

impl Registry {
    /// Locks the table of watches. A panic of a lock holder leaves only complete entries, so the lock's poison is
    /// ignored.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }

    /// Wakes the watches of the changed topics.
    pub(crate) fn wake(&self, set: &ChangeSet, before: &Root, after: &Root, allocs: &AllocRows) {
        if set.changes.is_empty() {
            return;
        }
        let waiting = self.lock();
        if waiting.by_topic.is_empty() && waiting.followers.is_empty() {
            return;
        }
        let mut tables = BTreeSet::new();
        for changed in &set.changes {
            tables.insert(changed.table());
            match changed {
                Changed::Alloc(id) | Changed::AllocRemoved(id) => {
                    let (old, new) = allocs.get(id);
                    waiting.tell_of_alloc(id, old, new);
                }
                other => topics_of(other, before, after, &mut |topic| waiting.tell(&topic)),
            }
        }
        tables.into_iter().for_each(|table| waiting.tell(&Topic::Table(table)));
    }

    /// Wakes all watches, because the whole state was replaced.
    pub(crate) fn wake_all(&self) {
        let waiting = self.lock();
        waiting.by_topic.values().flat_map(HashMap::values).for_each(|notify| notify.notify_one());
        waiting.followers.tell_all();
    }

    pub(crate) fn follow(self: &Arc<Self>, node: NodeId) -> NodeWork {
        let inbox = self.lock().followers.add(&node);
        NodeWork::new(self.clone(), node, inbox)
    }

    pub(crate) fn unfollow(&self, node: &NodeId, inbox: &Arc<Inbox>) {
        self.lock().followers.remove(node, inbox);
    }

    fn register(&self, topics: &[Topic], notify: &Arc<Notify>) -> u64 {
        let mut waiting = self.lock();
        waiting.next += 1;
        let id = waiting.next;
        for topic in topics {
            waiting.by_topic.entry(topic.clone()).or_default().insert(id, notify.clone());
        }
        waiting.for_allocs += topics.iter().filter(|topic| topic.is_of_allocs()).count();
        id
    }

    fn unregister(&self, id: u64, topics: &[Topic]) {
        let mut waiting = self.lock();
        waiting.for_allocs -= topics.iter().filter(|topic| topic.is_of_allocs()).count();
        for topic in topics {
            if let Some(watchers) = waiting.by_topic.get_mut(topic) {
                watchers.remove(&id);
                if watchers.is_empty() {
                    waiting.by_topic.remove(topic);
                }
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let waiting = self.lock();
        waiting.by_topic.is_empty() && waiting.followers.is_empty()
    }
}

/// The builder of a watch, which collects its topics.
#[derive(Debug)]
pub struct WatchBuilder {
    registry: Arc<Registry>,
    topics: Vec<Topic>,
}

impl WatchBuilder {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self { registry, topics: Vec::new() }
    }
    /// Adds a topic.
    #[must_use]
    pub fn on(mut self, topic: Topic) -> Self {
        self.topics.push(topic);
        self
    }
    /// Adds a topic for all rows of a table.
    #[must_use]
    pub fn table(self, table: Table) -> Self {
        self.on(Topic::Table(table))
    }
    /// Adds several topics.
    #[must_use]
    pub fn on_all(mut self, topics: Vec<Topic>) -> Self {
        self.topics.extend(topics);
        self
    }
    /// Registers the watch. The caller reads only after this call, so that no change is missed.
    pub fn start(self) -> Watch {
        let notify = Arc::new(Notify::new());
        let id = self.registry.register(&self.topics, &notify);
        Watch { registry: self.registry, topics: self.topics, id, notify }
    }
}

/// A registered watch; unregistered when dropped.
#[derive(Debug)]
pub struct Watch {
    registry: Arc<Registry>,
    topics: Vec<Topic>,
    id: u64,
    notify: Arc<Notify>,
}

impl Watch {
    /// Returns whether the watch was registered for exactly these topics, in this order.
    pub fn is_on(&self, topics: &[Topic]) -> bool {
        self.topics == topics
    }
    /// Waits until a watched row has changed since the registration or since the last call. Returns immediately if it
    /// has already changed. Several changes between two calls count as one. Cancel safe.
    pub async fn changed(&mut self) {
        self.notify.notified().await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.registry.unregister(self.id, &self.topics);
    }
}
