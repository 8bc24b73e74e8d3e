//! `alloc …`

pub(crate) mod checks;
pub(crate) mod exec;
pub(crate) mod fs;
pub(crate) mod logs;
pub(crate) mod status;
pub(crate) mod stop;

use crate::format::{Clock, id};
use crate::table::Table;
use caravan_types::alloc::AllocListStub;
use clap::Subcommand;

/// Subcommands of `alloc`.
#[derive(Debug, Subcommand)]
pub(crate) enum AllocVerb {
    /// Show an allocation
    Status(status::StatusArgs),
    /// Show the log of a task
    Logs(logs::LogsArgs),
    /// Stop an allocation; the scheduler places a replacement
    Stop(stop::StopArgs),
    /// Restart tasks in place, on the same node
    Restart(stop::RestartArgs),
    /// Run a command in a task
    Exec(exec::ExecArgs),
    /// List directories and show files of an allocation
    Fs(fs::FsArgs),
    /// Show the health checks of an allocation's services
    Checks(checks::ChecksArgs),
    /// Send a signal to tasks
    Signal(checks::SignalArgs),
    /// Pause a task that has a schedule, or resume it
    Pause(checks::PauseArgs),
}

/// The optional columns of the table of allocations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Columns {
    /// Show full ids and timestamps, and the evaluation.
    pub(crate) verbose: bool,
    /// Show the node's name.
    pub(crate) node_name: bool,
}

/// Returns the table of allocations, newest first.
pub(crate) fn table(clock: &Clock, allocs: &[AllocListStub], columns: Columns) -> Table {
    let verbose = columns.verbose;
    let mut heading = vec!["ID"];
    if verbose {
        heading.push("Eval ID");
    }
    heading.push("Node ID");
    if columns.node_name {
        heading.push("Node Name");
    }
    heading.extend(["Task Group", "Version", "Desired", "Status", "Created", "Modified"]);
    let mut allocs: Vec<&AllocListStub> = allocs.iter().collect();
    allocs.sort_by_key(|alloc| std::cmp::Reverse(alloc.create_index));
    Table::new(&heading).rows(allocs.into_iter().map(|alloc| {
        let mut row = vec![id(alloc.id.as_str(), verbose)];
        if verbose {
            row.push(alloc.eval_id.to_string());
        }
        row.push(id(alloc.node_id.as_str(), verbose));
        if columns.node_name {
            row.push(alloc.node_name.to_string());
        }
        row.extend([
            alloc.task_group.to_string(),
            alloc.job_version.to_string(),
            alloc.desired_status.as_str().to_owned(),
            alloc.client_status.as_str().to_owned(),
            clock.when(alloc.create_time, verbose),
            clock.when(alloc.modify_time, verbose),
        ]);
        row
    }))
}
