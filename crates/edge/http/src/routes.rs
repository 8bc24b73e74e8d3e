//! The handlers of the routes, one module for each kind of object.

pub(crate) mod acl;
pub(crate) mod actions;
pub(crate) mod agent;
pub(crate) mod agent_admin;
pub(crate) mod allocs;
pub(crate) mod children;
pub(crate) mod claims;
pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod convert;
pub(crate) mod deployments;
pub(crate) mod evals;
pub(crate) mod event;
pub(crate) mod exec;
pub(crate) mod explain;
pub(crate) mod files;
pub(crate) mod fuzzy;
pub(crate) mod group_logs;
pub(crate) mod host_volumes;
mod interfaces;
pub(crate) mod job;
pub(crate) mod job_versions;
pub(crate) mod jobs;
pub(crate) mod metrics;
pub(crate) mod monitor;
pub(crate) mod monitor_export;
pub(crate) mod namespaces;
pub(crate) mod node_changes;
pub(crate) mod node_pools;
pub(crate) mod node_usage;
pub(crate) mod nodes;
pub(crate) mod operator;
pub(crate) mod overview;
pub(crate) mod plan;
pub(crate) mod plugins;
mod problems;
pub(crate) mod profiles;
pub(crate) mod scaling;
pub(crate) mod search;
pub(crate) mod servers;
pub(crate) mod services;
pub(crate) mod snapshots;
pub(crate) mod statuses;
pub(crate) mod storage_map;
pub(crate) mod system;
pub(crate) mod tags;
pub(crate) mod ui;
pub(crate) mod vars;
pub(crate) mod volume;
pub(crate) mod volumes;
pub(crate) mod what_if;

use crate::error::ApiError;
use crate::reply::{Meta, Next};
use caravan_state::{Root, Table};

/// The answer to a path that names an object but no known part of it.
pub(crate) const NO_RESOURCE: &str = "resource not found";

/// Checks an id of an allocation, evaluation, deployment or node, which is a UUID; `what` names the kind.
fn check_uuid(what: &str, id: &str) -> Result<(), ApiError> {
    if id.len() == 36 {
        return Ok(());
    }
    Err(ApiError::internal(match what {
        "deployment" if id.is_empty() => "missing deployment ID".to_owned(),
        "eval" => {
            "failed to lookup eval: eval lookup failed: index error: UUID must be 36 characters".to_owned()
        }
        _ => format!("{what} lookup failed: index error: UUID must be 36 characters"),
    }))
}

/// Checks a prefix of a UUID, which must be hexadecimal.
fn check_prefix(what: &str, prefix: &str) -> Result<(), ApiError> {
    let lookup = if what == "deployment" { String::new() } else { format!("{what} lookup failed: ") };
    if prefix.chars().filter(|c| *c != '-').count() % 2 != 0 {
        let text = format!("{lookup}index error: Input (without hyphens) must be even length");
        return Err(ApiError::internal(text));
    }
    match prefix.chars().find(|c| !c.is_ascii_hexdigit() && *c != '-') {
        None => Ok(()),
        Some(c) => Err(ApiError::internal(format!(
            "{lookup}index error: Invalid UUID: encoding/hex: invalid byte: U+{:04X} '{c}'",
            u32::from(c)
        ))),
    }
}

/// Returns the error for a missing object, with the index from which clients can block until it exists.
fn absent(root: &Root, table: Table, message: &str) -> ApiError {
    let index = root.table_index(table);
    let meta = Meta { index, known_leader: true, next: Next::default() };
    ApiError::not_found(message).with_meta(meta)
}
