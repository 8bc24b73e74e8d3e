//! Checks that no file is too long to read in one piece.

use super::{Finding, Source};

const MAX_LINES: usize = 700;

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let long = |source: &&Source| source.is_rust() && !source.is_generated();
    let lines = |source: &Source| source.text.lines().count();
    sources
        .iter()
        .filter(long)
        .filter(|source| lines(source) > MAX_LINES)
        .map(|source| {
            Finding::new(
                &source.path,
                format!("{} lines, at most {MAX_LINES}: split the file", lines(source)),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_found_and_generated_ones_are_not() {
        let source = |path: &str, lines: usize| Source { path: path.into(), text: "x\n".repeat(lines) };
        let sources =
            [source("a.rs", 700), source("b.rs", 701), source("c/generated/d.rs", 9000), source("e.md", 900)];
        let found = check(&sources);
        assert_eq!(found.iter().map(|f| f.place.as_str()).collect::<Vec<_>>(), ["b.rs"]);
    }
}
