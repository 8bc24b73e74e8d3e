//! Fingerprint of the processors.

use std::collections::{BTreeMap, BTreeSet};

/// The content of `/proc/cpuinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cpu {
    /// The numbers of the logical processors.
    pub(super) cores: BTreeSet<u16>,
    /// The highest known clock, in MHz.
    pub(super) mhz: i64,
    model: String,
}

/// The clock of a machine that does not report one, so that jobs can still be placed.
const UNKNOWN_MHZ: i64 = 1000;

/// Parses `/proc/cpuinfo`; `max_khz` is the content of `cpuinfo_max_freq`, empty if the file is absent.
pub(super) fn parse(cpuinfo: &str, max_khz: &str) -> Cpu {
    let mut cpu = Cpu::default();
    let mut mhz = 0;
    for line in cpuinfo.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match key.trim() {
            "processor" => cpu.cores.extend(value.parse::<u16>().ok()),
            "model name" if cpu.model.is_empty() => value.clone_into(&mut cpu.model),
            "cpu MHz" => mhz = mhz.max(whole(value)),
            _ => {}
        }
    }
    let max = max_khz.parse::<i64>().unwrap_or(0) / 1000;
    if cpu.cores.is_empty() {
        cpu.cores.insert(0);
    }
    cpu.mhz = match max.max(mhz) {
        0 => UNKNOWN_MHZ,
        known => known,
    };
    cpu
}

fn whole(number: &str) -> i64 {
    number.split('.').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

impl Cpu {
    /// Returns the number of logical processors.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.cores.len()).unwrap_or(u32::MAX)
    }

    /// Adds the CPU attributes. `reserved` is the capacity that the host reserves, in MHz; `reservable` is the number
    /// of cores that jobs may reserve.
    pub(super) fn add_attributes(
        &self,
        total: i64,
        reserved: i64,
        reservable: usize,
        to: &mut BTreeMap<String, String>,
    ) {
        let arch = go_arch(std::env::consts::ARCH);
        for (key, value) in [
            ("arch", arch.to_owned()),
            ("cpu.arch", arch.to_owned()),
            ("cpu.frequency", self.mhz.to_string()),
            ("cpu.modelname", self.model.clone()),
            ("cpu.numcores", self.count().to_string()),
            ("cpu.reservablecores", reservable.to_string()),
            ("cpu.totalcompute", total.to_string()),
            ("cpu.usablecompute", (total - reserved).max(0).to_string()),
        ] {
            to.insert(key.to_owned(), value);
        }
    }
}

/// Returns Go's name of an architecture, which job files use.
pub fn go_arch(arch: &str) -> &str {
    match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TWO: &str = "processor\t: 0\nmodel name\t: Fast One\ncpu MHz\t\t: 2499.998\n\nprocessor\t: 1\ncpu MHz\t\t: 2600.5\n";

    #[test]
    fn cores_and_the_highest_clock_count() {
        let cpu = parse(TWO, "");
        assert_eq!((cpu.count(), cpu.mhz, cpu.model.as_str()), (2, 2600, "Fast One"));
        assert_eq!(parse(TWO, "3000000").mhz, 3000);
        assert_eq!(parse("", ""), Cpu { cores: [0].into(), mhz: UNKNOWN_MHZ, model: String::new() });
    }

    proptest! {
        #[test]
        fn any_text_parses(text in ".*", khz in ".*") {
            prop_assert!(parse(&text, &khz).mhz > 0);
        }
    }
}
