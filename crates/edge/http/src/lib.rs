//! The HTTP API: routes, blocking queries, shapes and error texts.
//!
//! Every agent serves all routes. The data of a route may be in this agent or in another one. An agent
//! without a server forwards requests about the cluster to a server ([`HttpState::relay`]). A server forwards
//! requests about an allocation's files and tasks to its node. In both cases the same routes answer
//! ([`answer`]).
//!
//! Most shapes are types of `caravan-types`; shapes that exist only in answers are defined here.

mod access;
mod blocking;
mod body;
mod body_read;
mod cache;
mod call;
mod client_side;
mod compress;
mod disks;
mod dispatch;
mod encode;
mod error;
mod exec;
mod figures;
mod filter;
mod frames;
mod host;
mod http_body;
mod jobdiff;
mod leader;
mod log_source;
mod order;
mod page;
mod profiler;
mod query;
mod region;
mod relay;
mod reply;
mod routes;
mod serve;
mod state;
mod task_api;
mod transport;
mod typed;
mod usage;

pub use access::{Route, page as routes_page, routes};
pub use body_read::MAX_BODY;
pub use caravan_state::{EVENT_BUFFER, EventLimit};
pub use client_side::ClientSide;
pub use encode::encode;
pub use error::ApiError;
pub use log_source::{LogLevel, LogRecord, LogRecords, LogSource};
pub use profiler::{ProfileError, Profiler};
pub use relay::{answer, rpc};
pub use serve::{Listener, serve};
pub use state::{AgentInfo, HttpState, MetricsConfig, Reload, Shared, Shown};
pub use task_api::TaskRoutes;
pub use transport::Transport;
