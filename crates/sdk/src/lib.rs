//! The typed client of the HTTP API.
//!
//! A [`Client`] is cheap to clone and talks to one agent, over TCP (`http://host:port`) or a unix
//! socket (`unix:///path`). Its handles ([`Client::jobs`], [`Client::volumes`], …) have one method per
//! route. Answers to reads carry a [`Meta`] whose index feeds the next blocking query: see [`Watch`].
//!
//! ```no_run
//! use caravan_sdk::{Client, Config, QueryOptions};
//!
//! # async fn example() -> Result<(), caravan_sdk::Error> {
//! let client = Client::new(Config::from_env()?);
//! for job in client.jobs().list(&QueryOptions::new()).await?.value {
//!     println!("{} is {}", job.id, job.status.as_str());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Waiting for a change, without polling:
//!
//! ```no_run
//! use caravan_sdk::{Client, QueryOptions, Watch};
//!
//! # async fn example(client: Client) -> Result<(), caravan_sdk::Error> {
//! let mut watch = Watch::new(QueryOptions::new());
//! loop {
//!     let answer = client.evaluations().info("5456bd7a-9fc0-c0dd-6131-cbee77f57577", watch.query()).await?;
//!     if watch.saw(&answer.meta) && answer.value.status.is_terminal() {
//!         break;
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod acl;
mod allocations;
mod client;
mod cluster;
mod config;
mod deployments;
mod error;
mod evaluations;
mod host_volumes;
mod job_verbs;
mod jobs;
mod logs;
mod model;
mod namespaces;
mod nodes;
mod operator;
mod query;
mod scaling;
mod transport;
mod variables;
mod volumes;

pub use acl::Acl;
pub use allocations::{Allocations, LogOptions, LogSource, LogStart};
pub use client::Client;
pub use cluster::{Agent, AgentHealth, AgentSelf, HealthPart, Member, Members, Status, System};
pub use config::{Address, Config, Token};
pub use deployments::{DeploymentUpdateResponse, Deployments};
pub use error::Error;
pub use evaluations::Evaluations;
pub use host_volumes::{HostVolumeResponse, HostVolumes};
pub use job_verbs::{GroupEvents, ScalingEvent, ScalingEvents, VersionsOf};
pub use jobs::{
    DeregisterOptions, DeregisterResponse, DispatchOptions, DispatchResponse, FieldDiff, ForceResponse,
    JobDiff, JobVersions, Jobs, ObjectDiff, PlanRequest, PlanResponse, RegisterOptions, RegisterResponse,
    Submission, TaskDiff, TaskGroupDiff, ValidateResponse,
};
pub use logs::{Frame, FrameDecoder, LogStream};
pub use model::{
    AllocUsage, CpuUsage, HostCpu, HostDisk, HostMemory, HostStats, MemoryUsage, ResourceUsage, TaskUsage,
};
pub use namespaces::{Namespaces, NodePools};
pub use nodes::{DrainRequest, DrainSpec, NodeUpdateResponse, Nodes};
pub use operator::{
    AutopilotHealth, AutopilotServer, Operator, RaftConfiguration, RaftServer, SchedulerSettings,
};
pub use query::{Meta, QueryOptions, Response, Watch};
pub use scaling::{
    Action, GroupScaleStatus, ScaleRequest, ScaleStatus, Scaling, ScalingPolicy, ScalingPolicyStub,
    TagResponse,
};
pub use variables::{CheckIndex, Variables, Written};
pub use volumes::{
    ClaimView, ExternalVolumes, Plugins, SnapshotPage, VolumeDetail, Volumes, VolumesResponse,
};
