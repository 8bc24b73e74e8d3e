//! Checks that every document of the repository that a comment or a page cites exists and has the cited section.

use super::{Finding, Source};
use regex::Regex;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

/// A page of the repository, with the cited sections.
static PAGE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(docs/[A-Za-z0-9_./-]+\.md)`?(?:(?:,| at| in)? sections? (?P<sections>[0-9][0-9.]*(?:(?:, | and | to )[0-9][0-9.]*)*))?",
    )
});
/// A reference page without its path, which readers cannot open.
static BARE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"`?\b(http-api|storage|jobspec|cluster|drivers|network|wire-csi|wire-plugins)(\.md)?`? (sections? )?[0-9]+\.[0-9]|\b[Rr]ough edges? [0-9]",
    )
});
static LINK: LazyLock<Regex> = LazyLock::new(|| pattern(r"\]\(([^)#\s]+)(?:#[^)]*)?\)"));
static HEADING: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?m)^#{1,4} ([0-9]+(?:\.[0-9]+)*)"));

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is a constant that the tests compile")
}

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let sections: HashMap<&str, Vec<&str>> = sources
        .iter()
        .filter(|source| source.is_page())
        .map(|page| {
            let headings = HEADING.captures_iter(&page.text).filter_map(|found| found.get(1));
            (page.path.as_str(), headings.map(|heading| heading.as_str()).collect())
        })
        .collect();
    let mut findings = Vec::new();
    // The reference pages cite each other by short names, as their first lines explain. The tests of these checks
    // hold citations that do not open.
    let exempt = ["docs/reference/", "xtask/src/check/"];
    let cites =
        |source: &&Source| !source.is_generated() && !exempt.iter().any(|dir| source.path.starts_with(dir));
    for source in sources.iter().filter(cites) {
        for (number, line) in source.text.lines().enumerate() {
            let place = || format!("{}:{}", source.path, number + 1);
            for found in PAGE.captures_iter(line) {
                let page = &found[1];
                let Some(known) = sections.get(page) else {
                    findings.push(Finding::new(place(), format!("{page} does not exist")));
                    continue;
                };
                let Some(named) = found.name("sections") else { continue };
                for section in named
                    .as_str()
                    .split([',', ' '])
                    .filter(|part| part.starts_with(|c: char| c.is_ascii_digit()))
                {
                    let section = section.trim_end_matches('.');
                    if !known.contains(&section) {
                        findings.push(Finding::new(place(), format!("{page} has no section {section}")));
                    }
                }
            }
            // The pattern above matches reference pages with a path; a bare name has no path before it.
            if let Some(found) =
                BARE.find(line).filter(|found| !line[..found.start()].ends_with("docs/reference/"))
            {
                let text =
                    format!("{:?} names no page of the repository: docs/reference/….md", found.as_str());
                findings.push(Finding::new(place(), text));
            }
            if source.is_page() {
                findings.extend(broken_links(source, line, sources).map(|text| Finding::new(place(), text)));
            }
        }
    }
    findings
}

fn broken_links<'a>(
    page: &'a Source,
    line: &'a str,
    sources: &'a [Source],
) -> impl Iterator<Item = String> + 'a {
    LINK.captures_iter(line).filter_map(move |found| {
        let target = found.get(1)?.as_str();
        if target.contains("://") || target.starts_with("mailto:") {
            return None;
        }
        let folder = Path::new(&page.path).parent().unwrap_or(Path::new(""));
        let path = plain(&folder.join(target));
        let exists = sources.iter().any(|source| Path::new(&source.path) == path)
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(&path).exists();
        (!exists).then(|| format!("the link {target} leads nowhere"))
    })
}

fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
        plain
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(line: &str) -> Vec<String> {
        let page = Source {
            path: "docs/reference/storage.md".into(),
            text: "# Storage\n## 1. First\n### 1.2 Second\n".into(),
        };
        let code = Source { path: "crates/x/src/lib.rs".into(), text: line.into() };
        check(&[page, code]).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn sections_that_exist_are_content() {
        for line in [
            "//! docs/reference/storage.md",
            "/// See docs/reference/storage.md, section 1.2.",
            "// docs/reference/storage.md, sections 1 and 1.2",
            "// storage of 1.2 GiB",
        ] {
            assert_eq!(findings(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn what_does_not_open_is_found() {
        for line in [
            "//! docs/reference/storages.md",
            "/// See docs/reference/storage.md, section 1.3.",
            "// docs/reference/storage.md, sections 1 and 3",
            "// (`storage` section 1.2)",
            "// storage.md 1.2",
            "// rough edge 34",
        ] {
            assert_eq!(findings(line).len(), 1, "{line}: {:?}", findings(line));
        }
    }

    #[test]
    fn links_of_pages_are_followed() {
        let page = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let pages = [
            page(
                "docs/a.md",
                "[b](sub/b.md#part) [c](../README.md) [web](https://example.invalid/x) [d](none.md)",
            ),
            page("docs/sub/b.md", "[a](../a.md)"),
            page("README.md", ""),
        ];
        let found = check(&pages);
        assert_eq!(found, [Finding::new("docs/a.md:1", "the link none.md leads nowhere")]);
    }
}
