//! The exchanges with known differences, each with its reason: `fixtures/http/gaps.txt`.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The reasons by place in the topic; [`WHOLE`] means the whole topic.
pub type Gaps = BTreeMap<usize, String>;

pub const WHOLE: usize = usize::MAX;

/// The lock of the file: topics are replayed concurrently, and one file has the gaps of all topics.
static FILE: Mutex<()> = Mutex::new(());

fn file() -> PathBuf {
    caravan_testkit::workspace("fixtures/http/gaps.txt")
}

/// Parses `topic 3 GET /v1/jobs: reason` or `topic *: reason`.
fn parse(line: &str) -> Option<(&str, usize, &str)> {
    let (topic, rest) = line.split_once(' ')?;
    if let Some(reason) = rest.strip_prefix("*: ") {
        return Some((topic, WHOLE, reason));
    }
    let (at, rest) = rest.split_once(' ')?;
    Some((topic, at.parse().ok()?, rest.split_once(": ")?.1))
}

/// Loads the gaps of a topic.
pub fn load(topic: &str) -> Result<Gaps> {
    let _held = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let text = fs::read_to_string(file()).context("read fixtures/http/gaps.txt")?;
    let of_topic = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let mut gaps = Gaps::new();
    for line in of_topic {
        let (of, at, reason) = parse(line).with_context(|| format!("fixtures/http/gaps.txt: {line:?}"))?;
        if of == topic {
            gaps.insert(at, reason.to_owned());
        }
    }
    Ok(gaps)
}

/// Replaces a topic's gaps in the file. `lines` are whole lines.
pub fn store(topic: &str, lines: &[String]) -> Result<()> {
    let _held = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let text = fs::read_to_string(file()).unwrap_or_default();
    let of_topic = |line: &&str| line.split(' ').next() == Some(topic);
    let mut kept: Vec<&str> = text.lines().filter(|line| !of_topic(line)).collect();
    let comments = kept.iter().take_while(|line| line.starts_with('#') || line.is_empty()).count();
    let mut rest = kept.split_off(comments);
    rest.extend(lines.iter().map(String::as_str));
    // Topics are sorted; the lines of each keep their order.
    rest.sort_by_key(|line| line.split(' ').next());
    kept.extend(rest);
    fs::write(file(), kept.join("\n") + "\n")?;
    Ok(())
}
