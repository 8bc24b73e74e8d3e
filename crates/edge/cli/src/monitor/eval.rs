//! Reports the progress of an evaluation.

use crate::format::{Clock, id};
use crate::metrics;
use caravan_types::alloc::{AllocListStub, ClientStatus};
use caravan_types::eval::{EvalStatus, Evaluation, Trigger};
use caravan_types::id::{AllocId, EvalId};
use std::collections::BTreeMap;

/// A monitor that keeps the reported state of an evaluation and reports only changes.
#[derive(Debug)]
pub(crate) struct EvalMonitor {
    id: EvalId,
    verbose: bool,
    triggered: bool,
    deployment: bool,
    status: EvalStatus,
    allocs: BTreeMap<AllocId, ClientStatus>,
    ended: Option<u8>,
}

impl EvalMonitor {
    /// Creates a monitor without reported state.
    pub(crate) fn new(id: EvalId, verbose: bool) -> Self {
        Self {
            id,
            verbose,
            triggered: false,
            deployment: false,
            status: EvalStatus::Pending,
            allocs: BTreeMap::new(),
            ended: None,
        }
    }

    /// Returns the first line.
    pub(crate) fn begin(&self, clock: &Clock) -> String {
        format!("==> {}: Monitoring evaluation \"{}\"", clock.stamp(), id(self.id.as_str(), self.verbose))
    }

    /// Returns the exit status once the evaluation has ended.
    pub(crate) fn ended(&self) -> Option<u8> {
        self.ended
    }

    /// Returns the reported allocations, each with its last reported status.
    pub(crate) fn into_statuses(self) -> BTreeMap<AllocId, ClientStatus> {
        self.allocs
    }

    /// Returns lines about everything that changed since the last call.
    pub(crate) fn update(
        &mut self,
        clock: &Clock,
        eval: &Evaluation,
        allocs: &[AllocListStub],
    ) -> Vec<String> {
        let verbose = self.verbose;
        let mut out = Vec::new();
        let mut say = |text: String| out.push(format!("    {}: {text}", clock.stamp()));
        if !self.triggered {
            self.triggered = true;
            match eval.triggered_by {
                Trigger::NodeUpdate => {
                    say(format!("Evaluation triggered by node \"{}\"", id(eval.node_id.as_str(), verbose)));
                }
                _ if !eval.job_id.is_empty() => {
                    say(format!("Evaluation triggered by job \"{}\"", eval.job_id));
                }
                other => say(format!("Evaluation triggered by {}", other.as_str())),
            }
        }
        if !self.deployment && !eval.deployment_id.is_empty() {
            self.deployment = true;
            say(format!("Evaluation within deployment: \"{}\"", id(eval.deployment_id.as_str(), verbose)));
        }
        for alloc in allocs {
            let name = id(alloc.id.as_str(), verbose);
            let before = self.allocs.insert(alloc.id.clone(), alloc.client_status);
            match before {
                None if alloc.create_index >= eval.create_index => {
                    say(format!(
                        "Allocation \"{name}\" created: node \"{}\", group \"{}\"",
                        id(alloc.node_id.as_str(), verbose),
                        alloc.task_group
                    ));
                    if alloc.client_status != ClientStatus::Pending {
                        say(changed(alloc, ClientStatus::Pending, verbose));
                    }
                }
                None => say(format!(
                    "Allocation \"{name}\" modified: node \"{}\", group \"{}\"",
                    id(alloc.node_id.as_str(), verbose),
                    alloc.task_group
                )),
                Some(before) if before != alloc.client_status => say(changed(alloc, before, verbose)),
                Some(_) => {}
            }
        }
        if eval.status != self.status {
            let (before, after) = (self.status.as_str(), eval.status.as_str());
            say(format!("Evaluation status changed: \"{before}\" -> \"{after}\""));
            self.status = eval.status;
        }
        if eval.status.is_terminal() {
            out.extend(self.end(clock, eval));
        }
        out
    }

    fn end(&mut self, clock: &Clock, eval: &Evaluation) -> Vec<String> {
        let (stamp, name) = (clock.stamp(), id(self.id.as_str(), self.verbose));
        let finished =
            format!("==> {stamp}: Evaluation \"{name}\" finished with status \"{}\"", eval.status.as_str());
        if eval.failed_tg_allocs.is_empty() {
            self.ended = Some(u8::from(eval.status != EvalStatus::Complete));
            let mut out = vec![finished];
            if eval.status == EvalStatus::Failed && !eval.status_description.is_empty() {
                out.push(format!("    {stamp}: {}", eval.status_description));
            }
            return out;
        }
        self.ended = Some(super::NOT_PLACED);
        let mut out = vec![format!("{finished} but failed to place all allocations:")];
        for (group, metric) in &eval.failed_tg_allocs {
            out.push(format!("    {stamp}: {}", metrics::heading(group, metric)));
            out.extend(metrics::reasons(metric, "      "));
        }
        if !eval.blocked_eval.is_empty() {
            out.push(format!(
                "    {stamp}: Evaluation \"{}\" waiting for additional capacity to place remainder",
                id(eval.blocked_eval.as_str(), self.verbose)
            ));
        }
        out
    }
}

/// Renders a change of status: `Allocation "x" status changed: "pending" -> "running" (Tasks are running)`
pub(crate) fn changed(alloc: &AllocListStub, before: ClientStatus, verbose: bool) -> String {
    format!(
        "Allocation \"{}\" status changed: \"{}\" -> \"{}\" ({})",
        id(alloc.id.as_str(), verbose),
        before.as_str(),
        alloc.client_status.as_str(),
        alloc.client_description
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::clock;
    use caravan_types::eval::{AllocMetric, Counts};
    use caravan_types::small::Map;

    #[test]
    fn a_failed_placement_reads_like_the_recorded_one() {
        let clock = clock("2026-11-21T09:22:36Z");
        let metric = AllocMetric::from(Counts {
            nodes_evaluated: 1,
            nodes_exhausted: 1,
            class_exhausted: Map::from([("fixture".into(), 1)]),
            dimension_exhausted: Map::from([("cpu".into(), 1)]),
            ..Default::default()
        });
        let eval = Evaluation {
            id: "93f6a121-6a3a-acad-b020-87d8b42910d8".into(),
            job_id: "huge".into(),
            status: EvalStatus::Complete,
            blocked_eval: "7502bada-818b-d0b0-3f62-ec230fcdace5".into(),
            failed_tg_allocs: BTreeMap::from([("g".into(), metric)]),
            ..Default::default()
        };
        let mut monitor = EvalMonitor::new(eval.id.clone(), false);
        let mut lines = vec![monitor.begin(&clock)];
        lines.extend(monitor.update(&clock, &eval, &[]));
        assert_eq!(lines.join("\n") + "\n", include_str!("../../fixtures/run-huge.txt"));
        assert_eq!(monitor.ended(), Some(2));
    }

    #[test]
    fn a_success_reads_like_the_recorded_one() {
        let mut at = clock("2026-11-21T09:22:20Z");
        let mut eval = Evaluation {
            id: "d3afc5b0-1be8-059d-599b-f4a2d59cfe57".into(),
            job_id: "web".into(),
            ..Default::default()
        };
        let alloc = |id: &str| AllocListStub {
            id: id.into(),
            node_id: "63126d9d-dd5a-f032-b3e4-c1537acb6cc7".into(),
            task_group: "web".into(),
            ..Default::default()
        };
        let mut allocs =
            [alloc("59017f05-ce1f-e465-2f23-ec853ed93de9"), alloc("a810f467-f0e7-a3bb-14f0-c4fb9ce404c6")];
        let mut monitor = EvalMonitor::new(eval.id.clone(), false);
        let mut lines = vec![monitor.begin(&at)];
        lines.extend(monitor.update(&at, &eval, &allocs));
        assert_eq!(monitor.ended(), None);
        at = clock("2026-11-21T09:22:21Z");
        eval.status = EvalStatus::Complete;
        eval.deployment_id = "353743b5-1be8-059d-599b-f4a2d59cfe57".into();
        for alloc in &mut allocs {
            alloc.client_status = ClientStatus::Running;
            alloc.client_description = "Tasks are running".into();
        }
        lines.extend(monitor.update(&at, &eval, &allocs));
        let recorded = include_str!("../../fixtures/run-web.txt");
        let from = recorded.find("==>").unwrap();
        let to = recorded.find("==> 2026-11-21T09:22:21Z: Monitoring deployment").unwrap();
        assert_eq!(lines.join("\n") + "\n", &recorded[from..to]);
        assert_eq!(monitor.ended(), Some(0));
    }

    #[test]
    fn an_allocation_that_runs_at_once_says_so_and_an_older_one_was_modified() {
        let clock = clock("2026-11-21T09:22:20Z");
        let eval = Evaluation { id: "e".into(), job_id: "j".into(), create_index: 5, ..Default::default() };
        let alloc = |id: &str, index| AllocListStub {
            id: id.into(),
            create_index: index,
            client_status: ClientStatus::Running,
            client_description: "Tasks are running".into(),
            ..Default::default()
        };
        let mut monitor = EvalMonitor::new(eval.id.clone(), false);
        let lines = monitor.update(&clock, &eval, &[alloc("new", 6), alloc("old", 4)]).join("\n");
        assert!(lines.contains("\"new\" created") && lines.contains("\"new\" status changed"), "{lines}");
        assert!(lines.contains("\"old\" modified") && !lines.contains("\"old\" status"), "{lines}");
        assert_eq!(monitor.into_statuses().len(), 2);
    }

    #[test]
    fn nothing_is_printed_twice_and_a_failed_evaluation_is_an_error() {
        let clock = clock("2026-11-21T09:22:20Z");
        let mut eval = Evaluation { id: "e".into(), job_id: "j".into(), ..Default::default() };
        let mut monitor = EvalMonitor::new(eval.id.clone(), true);
        assert_eq!(monitor.update(&clock, &eval, &[]).len(), 1);
        assert!(monitor.update(&clock, &eval, &[]).is_empty());
        eval.status = EvalStatus::Failed;
        eval.status_description = "maximum attempts reached (5)".into();
        assert_eq!(monitor.update(&clock, &eval, &[]).len(), 3);
        assert_eq!(monitor.ended(), Some(1));
    }
}
