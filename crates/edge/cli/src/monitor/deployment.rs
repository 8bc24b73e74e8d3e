//! Reports the progress of a deployment.

use crate::format::{Clock, id};
use crate::table::{Pairs, Table};
use caravan_types::deployment::Deployment;
use caravan_types::id::DeploymentId;

/// A monitor that keeps the reported state of a deployment and reports only changes.
#[derive(Debug)]
pub(crate) struct DeploymentMonitor {
    verbose: bool,
    shown: String,
}

impl DeploymentMonitor {
    /// Creates a monitor without reported state.
    pub(crate) fn new(verbose: bool) -> Self {
        Self { verbose, shown: String::new() }
    }

    /// Returns the first line.
    pub(crate) fn begin(&self, clock: &Clock, deployment: &DeploymentId) -> String {
        format!("==> {}: Monitoring deployment \"{}\"", clock.stamp(), id(deployment.as_str(), self.verbose))
    }

    /// Returns the present state of the deployment, or `None` if it is unchanged.
    pub(crate) fn update(&mut self, clock: &Clock, deployment: &Deployment) -> Option<String> {
        self.news(clock, deployment).map(|text| format!("    \n{text}"))
    }

    /// Returns the same as `update`, with only the time as its heading.
    pub(crate) fn news(&mut self, clock: &Clock, deployment: &Deployment) -> Option<String> {
        let text = details(clock, deployment, self.verbose);
        if text == self.shown {
            return None;
        }
        self.shown.clone_from(&text);
        Some(format!("{}\n{text}", clock.stamp()))
    }
}

/// Renders a deployment with its groups.
pub(crate) fn details(clock: &Clock, deployment: &Deployment, verbose: bool) -> String {
    format!(
        "{}\n\n{}",
        Pairs::new()
            .pair("ID", id(deployment.id.as_str(), verbose))
            .pair("Job ID", deployment.job_id.as_str())
            .pair("Job Version", deployment.job_version.to_string())
            .pair("Status", deployment.status.as_str())
            .pair("Description", deployment.status_description.as_str())
            .render(),
        groups(clock, deployment)
    )
}

/// Renders the groups of a deployment under the heading `Deployed`, without columns that no group uses.
pub(crate) fn groups(clock: &Clock, deployment: &Deployment) -> String {
    let states = || deployment.task_groups.values();
    let canaries = states().any(|state| state.desired_canaries > 0);
    let revert = states().any(|state| state.auto_revert);
    let mut heading = vec!["Task Group"];
    if revert {
        heading.push("Auto Revert");
    }
    if canaries {
        heading.push("Promoted");
    }
    heading.push("Desired");
    if canaries {
        heading.push("Canaries");
    }
    heading.extend(["Placed", "Healthy", "Unhealthy", "Progress Deadline"]);
    let mut table = Table::new(&heading);
    for (name, state) in &deployment.task_groups {
        let mut row = vec![name.clone()];
        if revert {
            row.push(state.auto_revert.to_string());
        }
        if canaries {
            row.push(if state.desired_canaries > 0 { state.promoted.to_string() } else { "N/A".into() });
        }
        row.push(state.desired_total.to_string());
        if canaries {
            row.push(if state.desired_canaries > 0 {
                state.desired_canaries.to_string()
            } else {
                "N/A".into()
            });
        }
        row.extend([
            state.placed_allocs.to_string(),
            state.healthy_allocs.to_string(),
            state.unhealthy_allocs.to_string(),
            clock.maybe(state.require_progress_by),
        ]);
        table.row(row);
    }
    format!("Deployed\n{}", table.render())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::clock;
    use caravan_types::deployment::DeploymentState;
    use std::collections::BTreeMap;

    #[test]
    fn a_deployment_reads_like_the_recorded_one() {
        let at = clock("2026-11-21T09:22:21Z");
        let by: caravan_types::Time = serde_json::from_str("\"2026-11-21T09:23:00Z\"").unwrap();
        let state = DeploymentState {
            desired_total: 2,
            placed_allocs: 2,
            require_progress_by: by,
            ..Default::default()
        };
        let deployment = Deployment {
            id: "353743b5-1be8".into(),
            job_id: "web".into(),
            status_description: "Deployment is running".into(),
            task_groups: BTreeMap::from([("web".into(), state)]),
            ..Default::default()
        };
        let mut monitor = DeploymentMonitor::new(false);
        let text = monitor.update(&at, &deployment).unwrap();
        let recorded = include_str!("../../fixtures/run-web.txt");
        assert!(recorded.contains(&text), "{text}");
        assert!(monitor.update(&at, &deployment).is_none());
    }
}
