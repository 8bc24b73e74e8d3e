//! The requests that other parts make of a server.

use super::Handle;
use crate::acl::Caller;
use crate::admin::Admin;
use crate::admission::Verdict;
use crate::broker::{BrokerDepth, QueueFigures};
use crate::deployment::{DeploymentRequest, DeploymentUpdated, Deployments};
use crate::endpoint::{
    AdmittedJob, Dispatch, Dispatched, DrainRequest, JobDraft, JobPlanned, JobRegistered, JobSubmission,
    NodeUpdated, Preserve, ScaleRequest,
};
use crate::error::ServerError;
use crate::gc;
use crate::pool::Workers;
use caravan_meters::Meters;
use caravan_rpc::{Channel, RpcError};
use caravan_state::Store;
use caravan_types::command::Change;
use caravan_types::node::Eligibility;
use caravan_types::scaling::VersionTag;
use caravan_types::volume::ConfirmedOff;
use caravan_types::{AllocId, DeploymentId, EvalId, JobKey, NodeId, ServiceId};
use std::sync::Arc;

impl Handle {
    /// Returns the state store.
    pub fn store(&self) -> &Arc<Store> {
        &self.core.store
    }

    /// Returns the endpoint for operators' changes.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// Returns the RPC addresses of the servers.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Whether this server is the leader.
    pub fn is_leader(&self) -> bool {
        self.core.log.is_leader()
    }

    /// Returns facts about the replicated log.
    pub fn log_metrics(&self) -> caravan_consensus::Metrics {
        self.core.log.metrics()
    }

    /// Returns the depths of the queues.
    pub fn broker_depth(&self) -> BrokerDepth {
        self.broker.depth()
    }

    /// Returns the numbers of waiting evaluations and plans, by cause.
    pub fn queues(&self) -> QueueFigures {
        QueueFigures {
            plans: self.planner.depth(),
            heartbeats: self.nodes.heartbeats.active(),
            ..self.broker.figures()
        }
    }

    /// Returns counters and timings of scheduling and plans since the server started.
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

    /// Returns a connection to a node.
    ///
    /// # Errors
    /// If the node is not connected.
    pub fn node_channel(&self, node: &NodeId) -> Result<Channel, RpcError> {
        self.registry.get(node.as_str())
    }

    /// Whether the secret belongs to the node; `None` if the node is not registered (yet).
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
    pub fn validate_job(&self, draft: JobDraft) -> Verdict {
        self.jobs.validate(draft)
    }

    /// Checks a job that a caller would register, for [`Handle::plan_job`] and [`Handle::what_if`].
    ///
    /// # Errors
    /// With all problems of the job in one text.
    pub fn admit_job(
        &self,
        caller: &Caller,
        draft: JobDraft,
        preserve: Preserve,
    ) -> Result<AdmittedJob, ServerError> {
        self.jobs.admit(&self.core.snapshot(), Some(caller), draft, preserve)
    }

    /// Returns what would happen if a job were registered.
    pub fn plan_job(&self, job: AdmittedJob) -> JobPlanned {
        self.jobs.plan(job)
    }

    /// Explains why the allocations of an evaluation are not placed now, and what would change that.
    ///
    /// # Errors
    /// If the evaluation does not exist.
    pub fn explain_eval(&self, id: &EvalId) -> Result<Vec<String>, ServerError> {
        crate::endpoint::explain::evaluation(&self.jobs.core, id)
    }

    /// Returns the consequences of changes of nodes (`node=<id>:down`, or `drain`, `ineligible`, `up`), and of the
    /// registration of this job. Jobs that the caller may not read are omitted.
    ///
    /// # Errors
    /// If a text cannot be parsed, a node is not known, or too many of these requests are in progress.
    pub async fn what_if(
        &self,
        caller: Arc<Caller>,
        job: Option<&AdmittedJob>,
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

    /// Creates an evaluation for a job.
    ///
    /// # Errors
    /// If there is no such job.
    pub async fn evaluate_job(&self, key: JobKey) -> Result<JobRegistered, ServerError> {
        self.jobs.evaluate(key).await
    }

    /// Creates a child of a parameterized job.
    ///
    /// # Errors
    /// If the job does not exist, cannot be dispatched, or does not accept the payload or metadata.
    pub async fn dispatch_job(&self, key: JobKey, dispatch: Dispatch) -> Result<Dispatched, ServerError> {
        self.jobs.dispatch(key, dispatch).await
    }

    /// Creates a child of a periodic job now.
    ///
    /// # Errors
    /// If the job does not exist, is not periodic, or is stopped or disabled.
    pub async fn force_periodic(&self, key: JobKey) -> Result<Dispatched, ServerError> {
        self.jobs.force_periodic(key).await
    }

    /// Marks a version of a job as stable or not stable. Returns the index.
    ///
    /// # Errors
    /// If the version does not exist.
    pub async fn set_job_stable(&self, key: JobKey, version: u64, stable: bool) -> Result<u64, ServerError> {
        self.jobs.set_stable(key, version, stable).await
    }

    /// Registers an earlier version of a job again. With `prior`, only if that is the current version.
    ///
    /// # Errors
    /// If the version does not exist, it is the current one, or the job has problems by now.
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
    /// If the deployment does not exist, it has ended, or too few of its canaries are healthy.
    pub async fn change_deployment(
        &self,
        id: &DeploymentId,
        request: DeploymentRequest,
    ) -> Result<DeploymentUpdated, ServerError> {
        Deployments { core: self.core.clone() }.change(id, request).await
    }

    /// Creates an evaluation for a job that reschedules its failed allocations at once.
    ///
    /// # Errors
    /// If the job does not exist.
    pub async fn force_reschedule(&self, key: JobKey) -> Result<JobRegistered, ServerError> {
        self.jobs.force_reschedule(key).await
    }

    /// Lets a job's allocations skip their shutdown delays when they are stopped.
    ///
    /// # Errors
    /// If the change cannot be made durable.
    pub async fn skip_shutdown_delay(&self, key: &JobKey) -> Result<(), ServerError> {
        self.jobs.without_delay(key).await
    }

    /// Changes the count of a group, or records a scaling event about it.
    ///
    /// # Errors
    /// If the job or group does not exist, or the count is out of bounds.
    pub async fn scale_job(
        &self,
        caller: &Caller,
        key: JobKey,
        request: ScaleRequest,
    ) -> Result<JobRegistered, ServerError> {
        self.jobs.scale(caller, key, request).await
    }

    /// Tags a version of a job, or the newest version. Returns the tag and the index.
    ///
    /// # Errors
    /// If the version does not exist, or another version has the tag.
    pub async fn tag_version(
        &self,
        key: JobKey,
        name: &str,
        version: Option<u64>,
        description: &str,
    ) -> Result<(VersionTag, u64), ServerError> {
        self.jobs.tag(key, name, version, description).await
    }

    /// Removes a tag from its version. Returns the index.
    ///
    /// # Errors
    /// If no version has the tag.
    pub async fn untag_version(&self, key: JobKey, name: &str) -> Result<u64, ServerError> {
        self.jobs.untag(key, name).await
    }

    /// Stops and replaces an allocation. Returns the evaluation and its index.
    ///
    /// # Errors
    /// If the allocation does not exist.
    pub async fn stop_alloc(&self, id: AllocId) -> Result<(EvalId, u64), ServerError> {
        self.jobs.stop_alloc(id, false, false).await
    }

    /// As [`Handle::stop_alloc`]; `at_once` skips the shutdown delay of its tasks; `reschedule` treats it as failed.
    ///
    /// # Errors
    /// If the allocation does not exist.
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
    /// If the node does not exist.
    pub async fn drain_node(&self, id: &NodeId, request: DrainRequest) -> Result<NodeUpdated, ServerError> {
        self.nodes.drain(id, request).await
    }

    /// Sets whether a node accepts new placements.
    ///
    /// # Errors
    /// If the node does not exist, or it is draining and would become eligible.
    pub async fn set_node_eligibility(
        &self,
        id: &NodeId,
        eligibility: Eligibility,
    ) -> Result<NodeUpdated, ServerError> {
        self.nodes.eligibility(id, eligibility).await
    }

    /// Creates evaluations for the jobs with allocations on a node.
    ///
    /// # Errors
    /// If the node does not exist.
    pub async fn evaluate_node(&self, id: &NodeId) -> Result<NodeUpdated, ServerError> {
        self.nodes.evaluate(id).await
    }

    /// Confirms that the machine of a node is off. Its volumes are then handed over without waiting for its lease.
    ///
    /// # Errors
    /// If the node is in contact, or neither it nor its claims exist.
    pub async fn fence_node(
        &self,
        id: &NodeId,
        accessor_id: String,
        name: String,
    ) -> Result<NodeUpdated, ServerError> {
        let off = ConfirmedOff { accessor_id, name, at: self.core.now() };
        self.nodes.fence(id, off).await
    }

    /// Deregisters a node.
    ///
    /// # Errors
    /// If the node does not exist.
    pub async fn purge_node(&self, id: &NodeId) -> Result<NodeUpdated, ServerError> {
        self.nodes.purge(id).await
    }

    /// Deregisters a service instance. Returns the index.
    ///
    /// # Errors
    /// If the service instance does not exist.
    pub async fn deregister_service(
        &self,
        namespace: &caravan_types::Namespace,
        name: &str,
        id: ServiceId,
    ) -> Result<u64, ServerError> {
        self.nodes.deregister_service(namespace, name, id).await
    }

    /// Deletes all evaluations, allocations, deployments, jobs and nodes that have ended, regardless of age.
    ///
    /// # Errors
    /// If the change cannot be made durable.
    pub async fn collect_garbage(&self) -> Result<(), ServerError> {
        gc::collect(&self.core, &gc::Ages::default()).await
    }

    /// Returns an index that includes everything committed before the call.
    ///
    /// # Errors
    /// If there is no leader.
    pub async fn barrier(&self) -> Result<u64, ServerError> {
        self.core.commit(Change::Noop).await
    }
}
