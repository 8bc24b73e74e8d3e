//! Checks of the calls to a CSI plugin: of its log, and of the final state when the cluster is quiet.
//!
//! The fault plugin writes one line of JSON for each beginning and each end of a call ([`Line`]). [`check`]
//! replays the lines of all instances, by time, through the rules of `caravan_volumes::invariants`. It
//! returns all violations and the plugin's final state. [`settled`] compares that state with claims and
//! mount tables. All functions are pure: a test collects the logs, records its actions on the cluster, and
//! runs the checks.
//!
//! The caller of a plugin has only the responses that it received. A call that creates an effect is
//! therefore complete if the response was OK. Otherwise its effect may exist and must be undone. A call
//! that undoes an effect is complete if the response was OK or NotFound, or a refusal because no such
//! effect exists.

mod replay;
mod settle;
#[cfg(test)]
mod tests;

pub use replay::{Checked, Held, check};
pub use settle::{Users, alloc_of_target, claims_of, settled, users_of_mounts};

use anyhow::{Context, Result};
use caravan_volumes::invariants::Needs;
use serde::{Deserialize, Serialize};

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// The plugin's process started; calls of the instance's earlier processes get no response any more.
    Start,
    /// A call arrived.
    Begin,
    /// The plugin responded to the call, or its caller cancelled it (code `Cancelled`).
    End,
}

/// A line of a plugin's log. Fields that do not apply are absent or empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// `CLOCK_BOOTTIME` in nanoseconds: the same clock for all processes of a machine, also in separate
    /// namespaces.
    pub t_ns: u64,
    /// The process id.
    pub pid: u32,
    /// The plugin's id of the node on which the process runs.
    pub instance: String,
    /// The number of the call in its process.
    #[serde(default)]
    pub id: u64,
    /// The kind of the line.
    pub event: Event,
    /// The name of the CSI call.
    #[serde(default)]
    pub call: String,
    /// The plugin's id of the volume.
    #[serde(default)]
    pub volume: String,
    /// The node of the call; empty in calls to the node itself.
    #[serde(default)]
    pub node: String,
    /// The target path.
    #[serde(default)]
    pub target: String,
    /// The staging path.
    #[serde(default)]
    pub staging: String,
    /// Whether the request was read-only.
    #[serde(default)]
    pub readonly: bool,
    /// The code of the response.
    #[serde(default)]
    pub code: String,
    /// Whether the call took effect, whatever its response was.
    #[serde(default)]
    pub effect: bool,
    /// Whether the call was refused because the plugin has no record of the effect to undo.
    #[serde(default)]
    pub unknown: bool,
}

/// An action of the test or of the servers, of which the plugin has no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// The servers used a volume of the node again, whose lease had certainly expired.
    Lost {
        /// The plugin's id of the node.
        node: String,
    },
    /// A lost node has released its volumes and is connected again.
    Back {
        /// The plugin's id of the node.
        node: String,
    },
    /// The agent of this instance was killed: its calls have lost their caller, and calls of the next agent may
    /// overlap with them.
    AgentDied {
        /// The plugin's id of the node.
        node: String,
    },
    /// The node was rebooted: all its mounts are gone.
    Wiped {
        /// The plugin's id of the node.
        node: String,
    },
}

/// An action and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// `CLOCK_BOOTTIME` in nanoseconds.
    pub t_ns: u64,
    /// The action.
    pub deed: Deed,
}

/// The plugin's requirements and the actions of the test.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// The steps that the plugin and the volumes' modes require.
    pub needs: Needs,
    /// The notes, in any order.
    pub notes: Vec<Note>,
}

/// Merges the logs of all instances, by time.
///
/// # Errors
/// Fails if a line is not a [`Line`]. A last line without a line break was cut off by a kill and is
/// ignored.
pub fn read<'a>(logs: impl IntoIterator<Item = &'a str>) -> Result<Vec<Line>> {
    let mut lines: Vec<Line> = Vec::new();
    for log in logs {
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        for (n, text) in whole.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
            let line = serde_json::from_str(text);
            lines.push(line.with_context(|| format!("line {} of a plugin's log: {text}", n + 1))?);
        }
    }
    // The sort is stable: lines of one process with equal times keep their order.
    lines.sort_by_key(|line| line.t_ns);
    Ok(lines)
}
