//! Pressure: the share of time in which processes wait for a resource (`Documentation/accounting/psi.rst` of the
//! kernel).

use std::path::Path;

/// The pressure of a group. A resource is absent if the kernel does not measure it: without `CONFIG_PSI`, with
/// `psi=0`, or on version 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Waiting for a processor.
    pub cpu: Option<Stall>,
    /// Waiting for memory.
    pub memory: Option<Stall>,
    /// Waiting for input and output.
    pub io: Option<Stall>,
}

/// The time in which processes waited for one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stall {
    /// Percentage of the last 10 seconds in which at least one process waited.
    pub some_avg10: f64,
    /// Percentage of the last 10 seconds in which all processes waited.
    pub full_avg10: f64,
    /// Time in which at least one process waited, in microseconds.
    pub some_total_us: u64,
    /// Time in which all processes waited, in microseconds.
    pub full_total_us: u64,
}

impl Pressure {
    /// Reads the pressure of a group of version 2.
    pub(super) fn of_group(dir: &Path) -> Self {
        // A kernel that was started with `psi=0` has the files, and refuses to open or to read them.
        let read =
            |file: &str| std::fs::read_to_string(dir.join(file)).ok().and_then(|text| Stall::parse(&text));
        Self { cpu: read("cpu.pressure"), memory: read("memory.pressure"), io: read("io.pressure") }
    }
}

impl Stall {
    /// Parses a pressure file. Kernels before 5.13 have no line `full` for processors.
    fn parse(text: &str) -> Option<Self> {
        let mut stall = Self::default();
        let mut is_measured = false;
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let kind = words.next()?;
            let (mut average, mut total) = (None, None);
            for word in words {
                match word.split_once('=')? {
                    ("avg10", value) => average = value.parse::<f64>().ok(),
                    ("total", value) => total = value.parse::<u64>().ok(),
                    _ => {}
                }
            }
            let (average, total) = (average?, total?);
            match kind {
                "some" => (stall.some_avg10, stall.some_total_us, is_measured) = (average, total, true),
                "full" => (stall.full_avg10, stall.full_total_us) = (average, total),
                _ => {}
            }
        }
        is_measured.then_some(stall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_or_absent() {
        let both = "some avg10=7.64 avg60=6.58 avg300=6.45 total=33793\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=12\n";
        let expected = Stall { some_avg10: 7.64, full_avg10: 0.5, some_total_us: 33_793, full_total_us: 12 };
        assert_eq!(Stall::parse(both), Some(expected));
        let some = both.lines().next().unwrap();
        let expected = Stall { full_avg10: 0.0, full_total_us: 0, ..expected };
        assert_eq!(Stall::parse(some), Some(expected));
        for other in ["", "some", "some avg10=x total=1", "some total=1", "full avg10=0.00 total=12"] {
            assert_eq!(Stall::parse(other), None, "{other:?}");
        }
        assert_eq!(Pressure::of_group(Path::new("/nonexistent")), Pressure::default());
    }
}
