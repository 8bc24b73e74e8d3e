//! The figures that the repository keeps (`xtask/figures/`), and their comparison with a run.
//!
//! Times differ between machines, so only two kinds of figures are kept: memory, and times as multiples of a
//! yardstick that the same run measures.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

/// The largest accepted ratio of a figure to the kept figure.
const MAX_GROWTH: f64 = 1.2;
/// Units of figures that are comparable between machines. Less is better in both.
const COMPARED: [&str; 2] = ["MiB", "x"];

/// One measured value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    pub bench: String,
    pub case: String,
    pub value: f64,
    /// The unit of the value; `x` is a multiple of the yardstick of the run.
    pub unit: String,
}

/// The figures of this run, for the comparison at its end.
static MEASURED: Mutex<Vec<Figure>> = Mutex::new(Vec::new());

/// Records a figure of this run for the comparison.
pub fn record(figure: Figure) {
    if let Ok(mut measured) = MEASURED.lock() {
        measured.push(figure);
    }
}

/// The use of the figures of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Print the figures only.
    Print,
    /// Fail if a figure grew too far above the kept figure.
    Check,
    /// Replace the kept figures.
    Keep,
}

impl Use {
    /// Reads `--check` or `--keep`.
    pub fn from_arguments(arguments: &[String]) -> Self {
        let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
        match (has("--check"), has("--keep")) {
            (_, true) => Self::Keep,
            (true, false) => Self::Check,
            (false, false) => Self::Print,
        }
    }
}

fn path(release: bool) -> PathBuf {
    let build = if release { "release" } else { "debug" };
    caravan_testkit::workspace("xtask/figures").join(format!("{build}.jsonl"))
}

fn read(release: bool) -> Result<Vec<Figure>> {
    let path = path(release);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    text.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

/// Checks or keeps the figures of this run.
pub fn finish(action: Use, release: bool) -> Result<()> {
    let measured: Vec<Figure> = match MEASURED.lock() {
        Ok(measured) => measured.clone(),
        Err(_) => bail!("a measurement failed"),
    };
    match action {
        Use::Print => Ok(()),
        Use::Check => {
            let grown = compare(&measured, &read(release)?);
            if !grown.is_empty() {
                bail!("figures grew by more than a fifth:\n{}", grown.join("\n"));
            }
            Ok(())
        }
        Use::Keep => {
            let mut lines = String::new();
            for figure in merged(read(release).unwrap_or_default(), &measured) {
                lines.push_str(&serde_json::to_string(&figure)?);
                lines.push('\n');
            }
            Ok(fs::write(path(release), lines)?)
        }
    }
}

/// Returns a sentence for each figure that grew too far, and for each kept figure of these benches that is absent.
fn compare(measured: &[Figure], kept: &[Figure]) -> Vec<String> {
    let ran = |bench: &str| measured.iter().any(|figure| figure.bench == bench);
    let same = |a: &Figure, b: &Figure| a.bench == b.bench && a.case == b.case;
    let mut grown = Vec::new();
    for before in kept.iter().filter(|figure| ran(&figure.bench)) {
        match measured.iter().find(|now| same(now, before)) {
            Some(now) if now.value > before.value * MAX_GROWTH => grown.push(format!(
                "{}: {}: {:.2} {} now, {:.2} kept",
                now.bench, now.case, now.value, now.unit, before.value
            )),
            Some(_) => {}
            None => grown.push(format!("{}: {}: not measured", before.bench, before.case)),
        }
    }
    grown
}

/// Returns the comparable figures, with the figures of the benches that ran replaced.
fn merged(kept: Vec<Figure>, measured: &[Figure]) -> Vec<Figure> {
    let ran = |bench: &str| measured.iter().any(|figure| figure.bench == bench);
    let mut all: Vec<Figure> = kept.into_iter().filter(|figure| !ran(&figure.bench)).collect();
    all.extend(measured.iter().filter(|figure| COMPARED.contains(&figure.unit.as_str())).cloned());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(case: &str, value: f64, unit: &str) -> Figure {
        Figure { bench: "agent".into(), case: case.into(), value, unit: unit.into() }
    }

    #[test]
    fn growth_beyond_a_fifth_is_found() {
        let kept = [figure("idle", 20.0, "MiB"), figure("start", 5.0, "x")];
        assert!(compare(&[figure("idle", 23.9, "MiB"), figure("start", 4.0, "x")], &kept).is_empty());
        let found = compare(&[figure("idle", 24.1, "MiB"), figure("start", 5.0, "x")], &kept);
        assert_eq!(found, ["agent: idle: 24.10 MiB now, 20.00 kept"]);
    }

    #[test]
    fn a_figure_that_is_no_longer_measured_is_found() {
        let kept = [figure("idle", 20.0, "MiB")];
        assert_eq!(compare(&[figure("other", 1.0, "MiB")], &kept), ["agent: idle: not measured"]);
        let other = Figure { bench: "api".into(), ..figure("idle", 1.0, "MiB") };
        assert!(compare(&[other], &kept).is_empty());
    }

    #[test]
    fn only_comparable_figures_are_kept() {
        let old = Figure { bench: "api".into(), ..figure("pages", 3.0, "MiB") };
        let all = merged(
            vec![old.clone(), figure("idle", 30.0, "MiB")],
            &[figure("idle", 20.0, "MiB"), figure("start", 20.0, "ms"), figure("start", 5.0, "x")],
        );
        assert_eq!(all, [old, figure("idle", 20.0, "MiB"), figure("start", 5.0, "x")]);
    }
}
