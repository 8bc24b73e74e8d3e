//! Checks for words that docs/glossary.md replaces, in comments of code and in the text of pages.

use super::{Finding, Source};
use anyhow::Context as _;
use regex::Regex;

/// Words that engineers of this field do not use in comments about code.
const PATTERN: &str = r"(?i)\b(whoever|whatever it|anew|forsaken|strikes? out|struck out|heard of|hears of|is told|are told|was told|told by|nobody's business|gone against|made anew|what is left|those that|what was|has it looked)\b";
/// Pages and code that quote or define the words.
const EXEMPT: [&str; 3] = ["docs/reference/", "docs/glossary.md", "xtask/src/check/words.rs"];

pub(super) fn check(sources: &[Source]) -> anyhow::Result<Vec<Finding>> {
    let words = Regex::new(PATTERN).context("the pattern of words")?;
    let mut findings = Vec::new();
    let checked =
        |source: &&Source| !source.is_generated() && !EXEMPT.iter().any(|path| source.path.starts_with(path));
    for source in sources.iter().filter(checked) {
        for (number, line) in (1..).zip(source.text.lines()) {
            if !source.is_page() && !line.contains("//") {
                continue;
            }
            for found in words.find_iter(line) {
                let text = format!("docs/glossary.md replaces {:?}", found.as_str());
                findings.push(Finding::new(format!("{}:{number}", source.path), text));
            }
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_pages_are_checked_and_code_is_not() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let sources = [
            source("crates/core/x/src/a.rs", "// made anew\nlet anew = 1;\n/// Whoever asks.\n"),
            source("docs/a.md", "Those that wait."),
            source("docs/reference/b.md", "anew"),
            source("crates/core/x/src/generated/c.rs", "// anew"),
        ];
        let found =
            |place: &str, word: &str| Finding::new(place, format!("docs/glossary.md replaces {word:?}"));
        let expected = [
            found("crates/core/x/src/a.rs:1", "made anew"),
            found("crates/core/x/src/a.rs:3", "Whoever"),
            found("docs/a.md:1", "Those that"),
        ];
        assert_eq!(check(&sources).unwrap(), expected);
    }
}
