//! Capabilities (capabilities(7)) that tasks add by name, and the nodes that allow them.

use caravan_types::job::{Task, TaskGroup};
use caravan_types::node::Node;
use serde_json::Value;
use std::collections::BTreeSet;

/// The node attribute of driver exec: capability names separated by commas, or [`ALL`].
const ALLOWED: &str = "driver.exec.allow_caps";

/// The name that stands for every capability that the node allows.
const ALL: &str = "all";

/// The start of the reason for a node that lacks capabilities; their names follow.
pub(crate) const NOT_ALLOWED: &str = "node does not allow the capabilities ";

/// The capabilities that the tasks of a group name in `cap_add`, under a driver that limits them.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddedCapabilities(BTreeSet<String>);

impl AddedCapabilities {
    /// Collects the capabilities of the tasks for which `counts` returns true.
    pub(crate) fn new(group: &TaskGroup, counts: impl Fn(&Task) -> bool) -> Self {
        let tasks = group.tasks.iter().filter(|task| task.driver == "exec" && counts(task));
        let lists = tasks.filter_map(|task| task.config.get("cap_add")).filter_map(Value::as_array);
        let names = lists.flatten().filter_map(Value::as_str);
        // The client expands variables, and the driver checks the results.
        let known = names.filter(|name| !name.eq_ignore_ascii_case(ALL) && !name.contains("${"));
        Self(known.map(normalized).collect())
    }

    /// Checks that the node allows all of the capabilities. A node that does not report capabilities (an older
    /// client, a driver without root) passes: its driver decides. The error is the key of the metric.
    pub(crate) fn check(&self, node: &Node) -> Result<(), String> {
        if self.0.is_empty() {
            return Ok(());
        }
        let Some(allowed) = node.attributes.get(ALLOWED) else { return Ok(()) };
        let allowed: BTreeSet<String> = allowed.split(',').map(|name| normalized(name.trim())).collect();
        if allowed.contains(ALL) {
            return Ok(());
        }
        let refused: Vec<&str> = self.0.difference(&allowed).map(String::as_str).collect();
        if refused.is_empty() { Ok(()) } else { Err(format!("{NOT_ALLOWED}{}", refused.join(", "))) }
    }
}

/// Returns the name as in the kernel's list: `net_raw` for `CAP_NET_RAW`.
fn normalized(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    lower.strip_prefix("cap_").map(str::to_owned).unwrap_or(lower)
}
