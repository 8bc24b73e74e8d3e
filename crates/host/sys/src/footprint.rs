//! Resource usage of single processes (proc_pid_stat(5), proc_pid_status(5)).

use nix::unistd::{SysconfVar, sysconf};
use std::time::Duration;

/// Resources that one process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// CPU time in user mode since its start.
    pub user: Duration,
    /// CPU time in the kernel since its start.
    pub system: Duration,
    /// Resident memory in bytes, shared pages included.
    pub rss: u64,
    /// Swap in bytes.
    pub swap: u64,
}

/// Reads the usage of a process; `None` if it does not exist.
pub fn footprint(pid: u32) -> Option<Footprint> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let status = std::fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    let units = Units { ticks: configured(SysconfVar::CLK_TCK, 100), page: page_size() };
    parse(&String::from_utf8_lossy(&stat), &String::from_utf8_lossy(&status), units)
}

/// Returns the bytes of a page.
pub(crate) fn page_size() -> u64 {
    configured(SysconfVar::PAGE_SIZE, 4096)
}

/// Returns a configuration value of the system (sysconf(3)), or `otherwise` if unavailable.
fn configured(name: SysconfVar, otherwise: u64) -> u64 {
    sysconf(name).ok().flatten().and_then(|value| u64::try_from(value).ok()).unwrap_or(otherwise).max(1)
}

/// The units of the kernel's counters.
#[derive(Clone, Copy)]
struct Units {
    /// Clock ticks per second.
    ticks: u64,
    /// Bytes per page.
    page: u64,
}

fn parse(stat: &str, status: &str, units: Units) -> Option<Footprint> {
    // The name is in parentheses and may itself contain parentheses; the last one ends it.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // `fields` starts at the state, which is field 3 in the manual page.
    let field = |number: usize| fields.get(number.checked_sub(3)?)?.parse::<u64>().ok();
    let time = |ticks: u64| Duration::from_millis(ticks.saturating_mul(1000) / units.ticks);
    let swap = status.lines().find_map(|line| line.strip_prefix("VmSwap:"));
    let kib = swap.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    Some(Footprint {
        user: time(field(14)?),
        system: time(field(15)?),
        rss: field(24)?.saturating_mul(units.page),
        swap: kib.unwrap_or(0).saturating_mul(1024),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat =
            "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 9 1000 3 18446744073709551615";
        let units = Units { ticks: 100, page: 4096 };
        let found = parse(stat, "Name:\ta\nVmSwap:\t      12 kB\n", units).unwrap();
        assert_eq!((found.user, found.system), (Duration::from_millis(2500), Duration::from_millis(500)));
        assert_eq!((found.rss, found.swap), (3 * 4096, 12 * 1024));
        assert_eq!(parse("7 (a", "", units), None);
    }

    #[test]
    fn this_process_uses_something_and_one_that_is_not_there_nothing() {
        assert!(footprint(std::process::id()).unwrap().rss > 0);
        assert_eq!(footprint(u32::MAX), None);
    }

    proptest::proptest! {
        #[test]
        fn no_text_of_the_kernel_breaks_it(stat in ".*", status in ".*") {
            let _ = parse(&stat, &status, Units { ticks: 100, page: 4096 });
        }
    }
}
