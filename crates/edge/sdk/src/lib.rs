//! The typed client of the HTTP API.
//!
//! A [`Client`] is cheap to clone and sends requests to one agent, over TCP (`http://host:port`) or a unix
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
//!
//! The settings of a client apply to every call; the options of a call override them.
//!
//! ```no_run
//! use caravan_sdk::{Client, Config, QueryOptions, Retry, Token};
//!
//! # async fn example() -> Result<(), caravan_sdk::Error> {
//! let mut config = Config::from_env()?;
//! config.token = Some(Token::new("24be8c5c-ba87-44a8-85a9-48e9b29696b1"));
//! config.namespace = Some("team-a".to_owned());
//! // Reads are retried while the servers elect a leader; writes never are.
//! config.retry = Retry::times(5);
//! let client = Client::new(config);
//! let everywhere = QueryOptions::new().namespace("*");
//! let jobs = client.jobs().list(&everywhere).await?.value;
//! # drop(jobs);
//! # Ok(())
//! # }
//! ```
//!
//! Lists in pages, with a filter expression:
//!
//! ```no_run
//! use caravan_sdk::{Client, QueryOptions};
//!
//! # async fn example(client: Client) -> Result<(), caravan_sdk::Error> {
//! let mut query = QueryOptions { per_page: 100, ..QueryOptions::new() };
//! query.filter = r#"Type == "batch" and Status == "dead""#.to_owned();
//! loop {
//!     let page = client.jobs().list(&query).await?;
//!     page.value.iter().for_each(|job| println!("{}", job.id));
//!     if page.meta.next_token.is_empty() {
//!         break;
//!     }
//!     query.next_token = page.meta.next_token;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Streams, such as the output of a task while it runs:
//!
//! ```no_run
//! use caravan_sdk::{Client, LogOptions, LogSource, LogStart, QueryOptions};
//!
//! # async fn example(client: Client, alloc: &str) -> Result<(), caravan_sdk::Error> {
//! let options = LogOptions {
//!     task: "server".to_owned(),
//!     source: LogSource::Stdout,
//!     start: LogStart::Start(0),
//!     follow: true,
//! };
//! let mut log = client.allocations().logs(alloc, &options, &QueryOptions::new()).await?;
//! while let Some(frame) = log.next().await? {
//!     print!("{}", String::from_utf8_lossy(&frame.data));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Failed calls return an [`Error`]. [`Error::Status`] carries the agent's own message, because other tools match
//! on it. `cargo run -p caravan-sdk --example session` shows all of it against an agent.

mod acl;
mod allocations;
mod client;
mod cluster;
mod config;
mod deployments;
mod error;
mod evaluations;
mod events;
mod exec;
mod fetch;
mod files;
mod group_logs;
mod host_volumes;
mod job_verbs;
mod jobs;
mod logs;
mod model;
mod namespaces;
mod nodes;
mod operator;
mod overview;
mod query;
mod retry;
mod scaling;
mod statuses;
mod transport;
mod variables;
mod volumes;

pub use acl::Acl;
pub use allocations::{Allocations, LogOptions, LogSource, LogStart};
pub use client::Client;
pub use cluster::{Agent, AgentHealth, AgentSelf, HealthPart, Member, Members, Status, System};
pub use config::{Address, Config, Tls, Token};
pub use deployments::{DeploymentUpdateResponse, Deployments};
pub use error::Error;
pub use evaluations::{EvalsDeleted, EvalsToDelete, Evaluations, Explanation};
pub use events::{EventBatch, EventStream};
pub use exec::{ExecInput, ExecOptions, ExecOutput, ExecReceiver, ExecSender};
pub use fetch::{FetchError, fetch};
pub use files::{
    AllocFile, ExportOptions, MonitorOptions, NodeMetadata, OnNode, ServiceName, ServiceNames, Services,
};
pub use group_logs::{GroupLogMessage, GroupLogOmitted, GroupLogSource, GroupLogStream};
pub use host_volumes::{HostVolumeResponse, HostVolumes};
pub use job_verbs::{GroupEvents, ScalingEvent, ScalingEvents, VersionsOf};
pub use jobs::{
    DeregisterOptions, DeregisterResponse, DispatchOptions, DispatchResponse, FieldDiff, ForceResponse,
    JobDiff, JobVersions, Jobs, ObjectDiff, PlanRequest, PlanResponse, RegisterOptions, RegisterResponse,
    Submission, TaskDiff, TaskGroupDiff, ValidateResponse, WhatIf, WhatIfMove,
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
pub use overview::{
    AttentionItem, BlockedJob, Caravan, HostVolumeExplain, HostVolumeHolder, HostVolumeRow, HostVolumeUser,
    Lane, Needs, NodeColumns, Overview, PluginCall, PluginExplain, PluginFacts, ServerList, StaticVolume,
    StorageMap,
};
pub use query::{Meta, QueryOptions, Response, Watch};
pub use retry::Retry;
pub use scaling::{
    Action, GroupScaleStatus, ScaleRequest, ScaleStatus, Scaling, ScalingPolicy, ScalingPolicyStub,
    TagResponse,
};
pub use statuses::{Capabilities, ClaimRow, JobStatusAlloc, JobStatusDeployment, JobStatusRow, VariableRule};
pub use variables::{CheckIndex, Variables, Written};
pub use volumes::{
    ClaimView, ExternalVolumes, Plugins, SnapshotPage, VolumeDetail, Volumes, VolumesResponse,
};
