//! Checks for words that docs/glossary.md replaces. `xtask/words.txt` has the count of each crate;
//! a count may only shrink.

use super::{Finding, Source};
use anyhow::Context as _;
use regex::Regex;
use std::collections::BTreeMap;

/// Words that engineers of this field do not use in comments about code.
const PATTERN: &str = r"(?i)\b(whoever|whatever it|anew|forsaken|strikes? out|struck out|heard of|hears of|is told|are told|was told|told by|nobody's business|gone against|made anew|what is left|those that|what was|has it looked)\b";
/// The allowed counts.
const COUNTS: &str = include_str!("../../words.txt");

pub(super) fn check(sources: &[Source]) -> anyhow::Result<Vec<Finding>> {
    judge(&count(sources)?, &parse(COUNTS)?)
}

fn judge(found: &BTreeMap<String, usize>, kept: &BTreeMap<String, usize>) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (area, count) in found {
        let most = kept.get(area).copied().unwrap_or(0);
        if *count > most {
            let text = format!("{count} words that docs/glossary.md replaces, at most {most}");
            findings.push(Finding::new(area, text));
        }
        if *count < most {
            findings.push(Finding::new("xtask/words.txt", format!("{area} has {count} now: lower its line")));
        }
    }
    for area in kept.keys().filter(|area| !found.contains_key(*area)) {
        findings.push(Finding::new("xtask/words.txt", format!("{area} has none now: remove its line")));
    }
    Ok(findings)
}

/// Counts the words by crate, in comments of code and in the text of pages.
fn count(sources: &[Source]) -> anyhow::Result<BTreeMap<String, usize>> {
    let words = Regex::new(PATTERN).context("the pattern of words")?;
    let mut counts = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_generated()) {
        // These pages quote or define the words.
        let exempt = ["docs/reference/", "docs/glossary.md", "xtask/src/check/words.rs"];
        if exempt.iter().any(|path| source.path.starts_with(path)) {
            continue;
        }
        let lines = source.text.lines().filter(|line| source.is_page() || line.contains("//"));
        let found: usize = lines.map(|line| words.find_iter(line).count()).sum();
        if found > 0 {
            let mut parts = source.path.split('/');
            let area = match (parts.next(), parts.next(), parts.next()) {
                (Some("crates"), Some(folder), Some(name)) => format!("crates/{folder}/{name}"),
                (Some(first), ..) => first.to_owned(),
                _ => continue,
            };
            *counts.entry(area).or_insert(0) += found;
        }
    }
    Ok(counts)
}

fn parse(text: &str) -> anyhow::Result<BTreeMap<String, usize>> {
    let line = |line: &str| -> anyhow::Result<(String, usize)> {
        let (area, count) = line.split_once(' ').with_context(|| format!("xtask/words.txt: {line:?}"))?;
        Ok((area.to_owned(), count.parse().with_context(|| format!("xtask/words.txt: {line:?}"))?))
    };
    text.lines().filter(|line| !line.is_empty()).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_pages_count_and_code_does_not() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let sources = [
            source("crates/core/x/src/a.rs", "// made anew\nlet anew = 1;\n/// Whoever asks.\n"),
            source("docs/a.md", "Those that wait."),
            source("docs/reference/b.md", "anew"),
        ];
        let counts = count(&sources).unwrap();
        assert_eq!(counts, parse("crates/core/x 2\ndocs 1\n").unwrap());
    }

    #[test]
    fn counts_only_shrink_and_the_file_follows() {
        let counts = |text: &str| parse(text).unwrap();
        let judged = |found: &str, kept: &str| judge(&counts(found), &counts(kept)).unwrap().len();
        assert_eq!(judged("a 2\n", "a 2\n"), 0);
        assert_eq!(judged("a 3\n", "a 2\n"), 1);
        assert_eq!(judged("a 1\n", "a 2\n"), 1);
        assert_eq!(judged("", "a 2\n"), 1);
        assert_eq!(judged("b 1\n", ""), 1);
    }
}
