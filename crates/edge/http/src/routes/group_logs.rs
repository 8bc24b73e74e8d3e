//! The logs of a job or of one of its groups as one stream: outputs of tasks join as they start, and end with their
//! tasks.
//!
//! Each output is read through the route of a single log, so its rights, its node and its errors are those of that
//! route.

mod follower;
mod sources;

use crate::access::{denied, secret};
use crate::call::Call;
use crate::error::ApiError;
use crate::http_body::Body;
use crate::reply::{JSON, Reply};
use caravan_client::fs::{LogKind, LogPlace};
use caravan_server::NsCap;
use caravan_state::Root;
use caravan_types::JobKey;
use caravan_types::alloc::{Allocation, TaskRunState, TaskState};
use follower::Follower;
use sources::{Candidate, Output, Source};

/// The bytes before the end of each output that a stream begins with, without `offset`.
const TAIL: u64 = 10_000;
/// The most bytes before the end of each output.
const MAX_TAIL: u64 = 10 * 1024 * 1024;

/// The most outputs of an earlier stream that a request names.
const MAX_AFTER: usize = 200;

/// The outputs that a caller selects.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Selection {
    key: JobKey,
    /// The group; empty for all groups.
    group: String,
    /// The task; empty for all tasks.
    task: String,
    outputs: &'static [Output],
    /// The bytes before the end of each output.
    tail: u64,
    follow: bool,
    /// The index at which an earlier stream began.
    since: Option<u64>,
    after: Vec<(Source, LogPlace)>,
}

impl Selection {
    fn read(call: &Call) -> Result<Self, ApiError> {
        let id = call.query.text("job_id");
        if id.is_empty() {
            return Err(ApiError::bad_request("`job_id` is missing: the id of the job whose logs are read"));
        }
        if call.namespace == "*" {
            return Err(ApiError::bad_request("`namespace` is \"*\"; expected the namespace of the job"));
        }
        let outputs: &[Output] = match call.query.text("type") {
            "" | "both" => &[Output(LogKind::Stdout), Output(LogKind::Stderr)],
            "stdout" => &[Output(LogKind::Stdout)],
            "stderr" => &[Output(LogKind::Stderr)],
            other => {
                return Err(ApiError::bad_request(format!(
                    "`type` is {other:?}; expected `stdout`, `stderr` or `both`"
                )));
            }
        };
        let tail = match call.query.text("offset") {
            "" => TAIL,
            text => text.parse().ok().filter(|tail| *tail <= MAX_TAIL).ok_or_else(|| {
                ApiError::bad_request(format!("`offset` is {text:?}; expected 0 to {MAX_TAIL} bytes"))
            })?,
        };
        Ok(Self {
            key: JobKey { namespace: call.namespace.clone(), id: id.into() },
            group: call.query.text("group").to_owned(),
            task: call.query.text("task").to_owned(),
            outputs,
            tail,
            follow: call.query.bool("follow")?.unwrap_or(true),
            since: match call.query.text("since") {
                "" => None,
                text => Some(text.parse().map_err(|_| {
                    ApiError::bad_request(format!(
                        "`since` is {text:?}; expected the `Since` of an earlier stream"
                    ))
                })?),
            },
            after: read_places(call)?,
        })
    }

    /// Refuses a job or a group that does not exist.
    fn check(&self, root: &Root) -> Result<(), ApiError> {
        let job = root.job(&self.key);
        let mut allocs = root.allocs_by_job(&self.key).peekable();
        if job.is_none() && allocs.peek().is_none() {
            return Err(ApiError::not_found("job not found"));
        }
        let is_known = self.group.is_empty()
            || job.is_some_and(|job| job.group(&self.group).is_some())
            || allocs.any(|alloc| *alloc.task_group == *self.group);
        match is_known {
            true => Ok(()),
            false => Err(ApiError::not_found(format!("the job has no group {:?}", self.group))),
        }
    }

    /// Returns the selected outputs of tasks that have started.
    fn candidates(&self, root: &Root) -> Vec<Candidate> {
        let allocs = root.allocs_by_job(&self.key);
        let selected = allocs.filter(|alloc| self.group.is_empty() || *alloc.task_group == *self.group);
        selected.flat_map(|alloc| self.of_alloc(alloc)).collect()
    }

    fn of_alloc(&self, alloc: &Allocation) -> Vec<Candidate> {
        let has_started = |state: &TaskState| !state.started_at.is_zero();
        let tasks = alloc.task_states.iter().filter(|(name, state)| {
            has_started(state) && (self.task.is_empty() || name.as_str() == self.task)
        });
        tasks
            .flat_map(|(name, state)| {
                self.outputs.iter().map(move |output| Candidate {
                    source: Source { alloc: alloc.id.clone(), task: name.clone(), output: *output },
                    group: alloc.task_group.to_string(),
                    name: alloc.name.clone(),
                    node: alloc.node_name.to_string(),
                    created: alloc.create_index,
                    modified: alloc.modify_index,
                    is_live: !alloc.client_terminal() && state.state != TaskRunState::Dead,
                })
            })
            .collect()
    }
}

/// Reads the places of `after`: `<allocation>/<task>/<output>/<place>`.
fn read_places(call: &Call) -> Result<Vec<(Source, LogPlace)>, ApiError> {
    let places = call.query.all("after").take(MAX_AFTER + 1).map(|text| {
        let parts = || {
            let (alloc, rest) = text.split_once('/')?;
            let (rest, place) = rest.rsplit_once('/')?;
            let (task, output) = rest.rsplit_once('/')?;
            let output = Output(LogKind::parse(output)?);
            Some((Source { alloc: alloc.into(), task: task.to_owned(), output }, place))
        };
        let (source, place) = parts().ok_or_else(|| {
            ApiError::bad_request(format!("`after` is {text:?}; expected allocation/task/output/position"))
        })?;
        Ok((source, super::files::place(place)?))
    });
    let places: Vec<_> = places.collect::<Result<_, ApiError>>()?;
    match places.len() > MAX_AFTER {
        true => Err(ApiError::bad_request(format!("`after` occurs more than {MAX_AFTER} times"))),
        false => Ok(places),
    }
}

/// Streams the logs, one JSON object a line (`docs/design/http-api.md`, "Logs of groups").
pub(crate) fn stream(call: &Call) -> Result<Reply, ApiError> {
    let selection = Selection::read(call)?;
    let server = call.server()?;
    // The line of the route checks the right to logs. The answer also names allocations and tasks.
    if !call.may(&call.namespace, NsCap::ReadJob) {
        return Err(denied());
    }
    selection.check(&server.store().snapshot())?;
    let follower = Follower::new(call.state.clone(), server.clone(), secret(&call.headers), selection);
    let lines =
        futures::StreamExt::take_until(follower.lines(), call.state.stopping.clone().cancelled_owned());
    Ok(Reply::raw(JSON, Body::from_stream(lines)).header("cache-control", "no-cache"))
}
