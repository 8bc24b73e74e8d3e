//! Resource usage of the single processes of a task.

use crate::protocol::ProcessReport;
use caravan_sys::footprint::footprint;
use std::time::Duration;

/// Maximum number of processes in a report, which must fit in one message.
const MAX_PROCESSES: usize = 1024;

/// Reads the usage of processes; those already ended are left out.
pub(crate) fn processes(pids: &[u32]) -> Vec<ProcessReport> {
    let ns = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    let look = |pid: &u32| {
        let found = footprint(*pid)?;
        Some(ProcessReport {
            pid: *pid,
            cpu_user_ns: ns(found.user),
            cpu_system_ns: ns(found.system),
            rss: found.rss,
            swap: found.swap,
        })
    };
    pids.iter().take(MAX_PROCESSES).filter_map(look).collect()
}
