//! What others ask of a server.

use super::Handle;
use crate::acl::Caller;
use crate::admin::Admin;
use crate::admission::Verdict;
use crate::broker::{BrokerDepth, QueueFigures};
use crate::deployment::{DeploymentRequest, DeploymentUpdated, Deployments};
use crate::endpoint::{
    Dispatch, Dispatched, DrainRequest, JobPlanned, JobRegistered, JobSubmission, NodeUpdated, ScaleRequest,
};
use crate::error::ServerError;
use crate::gc;
use crate::pool::Workers;
use caravan_meters::Meters;
use caravan_rpc::{Channel, RpcError};
use caravan_state::Store;
use caravan_types::api::Misfits;
use caravan_types::command::Change;
use caravan_types::job::Job;
use caravan_types::node::Eligibility;
use caravan_types::scaling::VersionTag;
use caravan_types::volume::ConfirmedOff;
use caravan_types::{AllocId, DeploymentId, EvalId, JobKey, NodeId, ServiceId};
use std::sync::Arc;

impl Handle {
    /// The state.
    pub fn store(&self) -> &Arc<Store> {
        &self.core.store
    }

    /// What operators change.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// RPC addresses of the servers.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Whether this server leads.
    pub fn is_leader(&self) -> bool {
        self.core.log.is_leader()
    }

    /// Facts about the log.
    pub fn log_metrics(&self) -> caravan_consensus::Metrics {
        self.core.log.metrics()
    }

    /// Depths of the queues.
    pub fn broker_depth(&self) -> BrokerDepth {
        self.broker.depth()
    }

    /// What waits where.
    pub fn queues(&self) -> QueueFigures {
        QueueFigures {
            plans: self.planner.depth(),
            heartbeats: self.nodes.heartbeats.active(),
            ..self.broker.figures()
        }
    }

    /// What was counted and timed since the server started: scheduling and plans.
    pub fn meters(&self) -> &Meters {
        &self.core.meters
    }

    /// Returns how many workers schedule, and which types of evaluations they take.
    pub fn workers(&self) -> Workers {
        self.pool.settings()
    }

    /// Sets how many workers schedule, and which types of evaluations they take, until the server ends.
    pub fn set_workers(&self, workers: Workers) {
        self.pool.set(workers);
    }

    /// A way to a node.
    ///
    /// # Errors
    /// If the node is not connected.
    pub fn node_channel(&self, node: &NodeId) -> Result<Channel, RpcError> {
        self.registry.get(node.as_str())
    }

    /// Whether the secret is the node's: none if the node is not known (yet).
    pub fn is_node(&self, node: &NodeId, secret: &str) -> Option<bool> {
        let root = self.core.snapshot();
        root.node(node).map(|n| n.secret_id == caravan_types::node::NodeSecret::new(secret))
    }

    /// Registers a job.
    ///
    /// # Errors
    /// With all problems of the job in one text.
    pub async fn register_job(&self, submission: JobSubmission) -> Result<JobRegistered, ServerError> {
        self.jobs.register(submission).await
    }

    /// Checks a job without storing it.
    pub fn validate_job(&self, job: &Job, misfits: Misfits) -> Verdict {
        self.jobs.validate(job, misfits)
    }

    /// Whether all of a job fitted.
    ///
    /// # Errors
    /// With all problems of the job in one text, if it did not.
    pub fn job_fits(&self, job: &Job, misfits: Misfits) -> Result<(), ServerError> {
        self.jobs.fits(job, misfits)
    }

    /// Returns what would happen if a caller registered a job.
    ///
    /// # Errors
    /// With all problems of the job in one text.
    pub fn plan_job(&self, caller: &Caller, job: Job) -> Result<JobPlanned, ServerError> {
        self.jobs.plan(caller, job)
    }

    /// Why what an evaluation was about is not placed, if it is looked at now, and what would change it.
    ///
    /// # Errors
    /// If the evaluation does not exist.
    pub fn explain_eval(&self, id: &EvalId) -> Result<Vec<String>, ServerError> {
        crate::endpoint::explain::evaluation(&self.jobs.core, id)
    }

    /// Returns what would move where if something happened to nodes (`node=<id>:down`, or `drain`, `ineligible`,
    /// `up`), and if this job were registered: as far as the caller may read the jobs concerned.
    ///
    /// # Errors
    /// If a text cannot be read, a node is not known, or too many ask at a time.
    pub async fn what_if(
        &self,
        caller: Arc<Caller>,
        job: Option<Job>,
        imagined: &[String],
    ) -> Result<caravan_scheduler::Consequences, ServerError> {
        crate::endpoint::explain::what_if(&self.jobs, caller, job, imagined).await
    }

    /// Stops a job, or removes it. A job that does not exist is no error.
    ///
    /// # Errors
    /// If the change cannot be made durable.
    pub async fn deregister_job(
        &self,
        key: JobKey,
        purge: bool,
        eval_priority: Option<i64>,
    ) -> Result<JobRegistered, ServerError> {
        self.jobs.deregister(key, purge, eval_priority).await
    }

    /// Has a job looked at again.
    ///
    /// # Errors
    /// If there is no such job.
    pub async fn evaluate_job(&self, key: JobKey) -> Result<JobRegistered, ServerError> {
        self.jobs.evaluate(key).await
    }

    /// Makes a child of a parameterized job.
    ///
    /// # Errors
    /// If there is no such job, it cannot be dispatched, or what is given is not what it wants.
    pub async fn dispatch_job(&self, key: JobKey, dispatch: Dispatch) -> Result<Dispatched, ServerError> {
        self.jobs.dispatch(key, dispatch).await
    }

    /// Makes a child of a periodic job now.
    ///
    /// # Errors
    /// If there is no such job, or it is not periodic, stopped or switched off.
    pub async fn force_periodic(&self, key: JobKey) -> Result<Dispatched, ServerError> {
        self.jobs.force_periodic(key).await
    }

    /// Marks a version of a job as good, or not. Answers the index.
    ///
    /// # Errors
    /// If there is no such version.
    pub async fn set_job_stable(&self, key: JobKey, version: u64, stable: bool) -> Result<u64, ServerError> {
        self.jobs.set_stable(key, version, stable).await
    }

    /// Registers an earlier version of a job again. With `prior`, only if that is the version there is.
    ///
    /// # Errors
    /// If there is no such version, or it is the one there is, or the job has problems by now.
    pub async fn revert_job(
        &self,
        caller: Arc<Caller>,
        key: JobKey,
        version: u64,
        prior: Option<u64>,
    ) -> Result<JobRegistered, ServerError> {
        self.jobs.revert(caller, key, version, prior).await
    }

    /// Changes a deployment.
    ///
    /// # Errors
    /// If there is no such deployment, it is over, or too few of its canaries are healthy.
    pub async fn change_deployment(
        &self,
        id: &DeploymentId,
        request: DeploymentRequest,
    ) -> Result<DeploymentUpdated, ServerError> {
        Deployments { core: self.core.clone() }.change(id, request).await
    }

    /// Has a job looked at again, its failed allocations placed anew at once.
    ///
    /// # Errors
    /// If there is no such job.
    pub async fn force_reschedule(&self, key: JobKey) -> Result<JobRegistered, ServerError> {
        self.jobs.force_reschedule(key).await
    }

    /// Stops a job's allocations without their shutdown delays, once they are stopped.
    ///
    /// # Errors
    /// If the change cannot be made durable.
    pub async fn skip_shutdown_delay(&self, key: &JobKey) -> Result<(), ServerError> {
        self.jobs.without_delay(key).await
    }

    /// Changes the count of a group, or keeps an event about it.
    ///
    /// # Errors
    /// If there is no such job or group, or the count is out of bounds.
    pub async fn scale_job(
        &self,
        caller: &Caller,
        key: JobKey,
        request: ScaleRequest,
    ) -> Result<JobRegistered, ServerError> {
        self.jobs.scale(caller, key, request).await
    }

    /// Names a version of a job; without a version the newest. Answers the tag and the index.
    ///
    /// # Errors
    /// If there is no such version, or another one has the name.
    pub async fn tag_version(
        &self,
        key: JobKey,
        name: &str,
        version: Option<u64>,
        description: &str,
    ) -> Result<(VersionTag, u64), ServerError> {
        self.jobs.tag(key, name, version, description).await
    }

    /// Takes a version's name away. Answers the index.
    ///
    /// # Errors
    /// If no version has the name.
    pub async fn untag_version(&self, key: JobKey, name: &str) -> Result<u64, ServerError> {
        self.jobs.untag(key, name).await
    }

    /// Has an allocation stopped and replaced. Answers the evaluation and its index.
    ///
    /// # Errors
    /// If there is no such allocation.
    pub async fn stop_alloc(&self, id: AllocId) -> Result<(EvalId, u64), ServerError> {
        self.jobs.stop_alloc(id, false, false).await
    }

    /// The same; `at_once`: without waiting for the shutdown delay of its tasks; `reschedule`: as if it had failed.
    ///
    /// # Errors
    /// If there is no such allocation.
    pub async fn stop_alloc_with(
        &self,
        id: AllocId,
        at_once: bool,
        reschedule: bool,
    ) -> Result<(EvalId, u64), ServerError> {
        self.jobs.stop_alloc(id, at_once, reschedule).await
    }

    /// Starts, changes or ends the drain of a node.
    ///
    /// # Errors
    /// If there is no such node.
    pub async fn drain_node(&self, id: &NodeId, request: DrainRequest) -> Result<NodeUpdated, ServerError> {
        self.nodes.drain(id, request).await
    }

    /// Sets whether a node takes new work.
    ///
    /// # Errors
    /// If there is no such node, or it is to be eligible while it drains.
    pub async fn set_node_eligibility(
        &self,
        id: &NodeId,
        eligibility: Eligibility,
    ) -> Result<NodeUpdated, ServerError> {
        self.nodes.eligibility(id, eligibility).await
    }

    /// Has the jobs with work on a node looked at again.
    ///
    /// # Errors
    /// If there is no such node.
    pub async fn evaluate_node(&self, id: &NodeId) -> Result<NodeUpdated, ServerError> {
        self.nodes.evaluate(id).await
    }

    /// Confirms that the machine of a node is off: the volumes that it held are handed on without a wait for its lease.
    ///
    /// # Errors
    /// If the node is in contact, or nothing is known of it.
    pub async fn fence_node(
        &self,
        id: &NodeId,
        accessor_id: String,
        name: String,
    ) -> Result<NodeUpdated, ServerError> {
        let off = ConfirmedOff { accessor_id, name, at: self.core.now() };
        self.nodes.fence(id, off).await
    }

    /// Forgets a node.
    ///
    /// # Errors
    /// If there is no such node.
    pub async fn purge_node(&self, id: &NodeId) -> Result<NodeUpdated, ServerError> {
        self.nodes.purge(id).await
    }

    /// Strikes a registration of a service out. Answers the index.
    ///
    /// # Errors
    /// If there is no such registration.
    pub async fn deregister_service(
        &self,
        namespace: &caravan_types::Namespace,
        name: &str,
        id: ServiceId,
    ) -> Result<u64, ServerError> {
        self.nodes.deregister_service(namespace, name, id).await
    }

    /// Collects everything that is over, however young: evaluations, allocations, deployments, jobs, nodes.
    ///
    /// # Errors
    /// If the change cannot be made durable.
    pub async fn collect_garbage(&self) -> Result<(), ServerError> {
        gc::collect(&self.core, &gc::Ages::default()).await
    }

    /// An index that includes everything committed before the call.
    ///
    /// # Errors
    /// If there is no leader.
    pub async fn barrier(&self) -> Result<u64, ServerError> {
        self.core.commit(Change::Noop).await
    }
}
