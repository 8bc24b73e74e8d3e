//! The control group of a container on this machine, read without the engine: its use of resources, and its
//! processors. Fifty tasks would cost the engine seconds.

use crate::tasks::{Shared, State};
use caravan_drivers::{Pressure, Stall, Usage};
use caravan_sys::cgroup::{self, Cgroup, Hierarchy};
use caravan_sys::time::BootTime;

/// Returns the control group of a container; `None` if it has ended, or its engine is on another machine.
pub(crate) fn group(shared: &Shared, state: &State) -> Option<Cgroup> {
    let hierarchy = shared.hierarchy.get_or_init(|| Hierarchy::detect().ok().flatten()).as_ref()?;
    let found = Cgroup::of_process(hierarchy, state.pid?, &state.container);
    found.ok().flatten()
}

/// Returns the resources that a container uses; `None` if only the engine can report them.
pub(crate) fn usage(shared: &Shared, state: &State) -> Option<Usage> {
    let found = group(shared, state)?.usage().ok()?;
    let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Some(Usage {
        cpu_total_ns: nanos(found.cpu_total),
        cpu_user_ns: nanos(found.cpu_user),
        cpu_system_ns: nanos(found.cpu_system),
        throttled_periods: found.throttled_periods,
        throttled_ns: nanos(found.throttled),
        memory: found.memory,
        memory_peak: found.memory_peak,
        rss: found.rss,
        cache: found.cache,
        swap: found.swap,
        pids: found.pids,
        boot_time_ns: BootTime::now().0,
        processes: Vec::new(),
        pressure: Pressure {
            cpu: found.pressure.cpu.map(stall),
            memory: found.pressure.memory.map(stall),
            io: found.pressure.io.map(stall),
        },
    })
}

fn stall(found: cgroup::Stall) -> Stall {
    Stall {
        some_avg10: found.some_avg10,
        full_avg10: found.full_avg10,
        some_total_us: found.some_total_us,
        full_total_us: found.full_total_us,
    }
}
