//! Checks what a CSI plugin was asked to do: its log, then what is left in quiet.
//!
//! The fault plugin writes one line of JSON for each beginning and each end of a call ([`Line`]). [`check`]
//! replays the lines of all instances, by time, through the rules of `caravan_volumes::invariants`, and
//! answers what was wrong and what the plugin holds at the end. [`settled`] compares that with claims and
//! mount tables. All of it is pure: a story collects the logs, notes what it did to the cluster, and asks.
//!
//! The caller of a plugin knows only what it was answered. So a call that makes something counts as done
//! when it was answered with OK, and otherwise as something that may be there and is owed its undoing; a call
//! that undoes something counts when it was answered with OK or NotFound, or refused because nothing of it is there.

mod replay;
mod settle;
#[cfg(test)]
mod tests;

pub use replay::{Checked, Held, check};
pub use settle::{Users, alloc_of_target, claims_of, settled, users_of_mounts};

use anyhow::{Context, Result};
use caravan_volumes::invariants::Needs;
use serde::{Deserialize, Serialize};

/// What a line tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// The plugin's process began; calls of an earlier one of the instance will not be answered any more.
    Start,
    /// A call arrived.
    Begin,
    /// It was answered, or given up by its caller (code `Cancelled`).
    End,
}

/// A line of a plugin's log. Fields that do not apply are left out or empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// `CLOCK_BOOTTIME` in nanoseconds: the same clock for all processes of a machine, also in namespaces of
    /// their own.
    pub t_ns: u64,
    /// Process.
    pub pid: u32,
    /// The plugin's id of the node that it runs on.
    pub instance: String,
    /// Number of the call in its process.
    #[serde(default)]
    pub id: u64,
    /// What.
    pub event: Event,
    /// Name of the CSI call.
    #[serde(default)]
    pub call: String,
    /// The plugin's id of the volume.
    #[serde(default)]
    pub volume: String,
    /// The node that the call is about; empty in calls to the node itself.
    #[serde(default)]
    pub node: String,
    /// Target path.
    #[serde(default)]
    pub target: String,
    /// Staging path.
    #[serde(default)]
    pub staging: String,
    /// Whether only reading was asked for.
    #[serde(default)]
    pub readonly: bool,
    /// Code of the answer.
    #[serde(default)]
    pub code: String,
    /// Whether the call was carried out, whatever was answered.
    #[serde(default)]
    pub effect: bool,
    /// The call was to undo what the plugin does not know, and was refused for that.
    #[serde(default)]
    pub unknown: bool,
}

/// Something that the story did, or saw the servers do, which the plugin cannot know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// The servers handed a volume on that the node held: its lease had certainly run out.
    Lost {
        /// The plugin's id of the node.
        node: String,
    },
    /// A lost node has ended what it held and counts again.
    Back {
        /// The plugin's id of the node.
        node: String,
    },
    /// The agent beside this instance died: its calls are nobody's any more, and those of the next agent may
    /// overlap with them.
    AgentDied {
        /// The plugin's id of the node.
        node: String,
    },
    /// The node was started anew: nothing is mounted there.
    Wiped {
        /// The plugin's id of the node.
        node: String,
    },
}

/// A deed and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// `CLOCK_BOOTTIME` in nanoseconds.
    pub t_ns: u64,
    /// What.
    pub deed: Deed,
}

/// What the plugin was started with and what the story did.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// What the plugin and the volumes' modes ask for.
    pub needs: Needs,
    /// In any order.
    pub notes: Vec<Note>,
}

/// Reads the logs of all instances into one, by time.
///
/// # Errors
/// If a line is not what [`Line`] says. A last line without its line break was cut off by a kill and is left
/// out.
pub fn read<'a>(logs: impl IntoIterator<Item = &'a str>) -> Result<Vec<Line>> {
    let mut lines: Vec<Line> = Vec::new();
    for log in logs {
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        for (n, text) in whole.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
            let line = serde_json::from_str(text);
            lines.push(line.with_context(|| format!("line {} of a plugin's log: {text}", n + 1))?);
        }
    }
    // Stable: lines of one process at the same time stay in their order.
    lines.sort_by_key(|line| line.t_ns);
    Ok(lines)
}
