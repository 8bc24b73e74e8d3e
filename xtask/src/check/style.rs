//! Checks the form of modules, imports and derives: one form each, so that no reader looks in two places.

use super::{Finding, Source};

/// The order of derived traits. Other traits follow these in any order.
const DERIVES: [&str; 11] = [
    "Clone",
    "Copy",
    "Debug",
    "Default",
    "PartialEq",
    "Eq",
    "PartialOrd",
    "Ord",
    "Hash",
    "Serialize",
    "Deserialize",
];

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let sources = sources.iter().filter(|source| source.is_rust() && !source.is_generated());
    let mut findings = Vec::new();
    for source in sources {
        findings.extend(module(source));
        findings.extend(paths(source));
        findings.extend(imports(source));
        findings.extend(derives(source));
    }
    findings
}

/// Returns a finding for a module `a/mod.rs`: the module `a` is the file `a.rs`, its parts are in `a/`.
fn module(source: &Source) -> Option<Finding> {
    // A file below `tests` is a separate test program, so that code that programs share is in `mod.rs` there.
    let folder = source.path.strip_suffix("/mod.rs").filter(|folder| folder.contains("/src/"))?;
    Some(Finding::new(&source.path, format!("the module is the file {folder}.rs")))
}

/// Returns a finding for each module whose file is elsewhere than its name says. A file that two programs share is above.
fn paths(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().enumerate();
    let named = lines.filter(|(_, line)| line.starts_with("#[path = \"") && !line.contains("\"../"));
    named
        .map(|(at, _)| {
            Finding::new(format!("{}:{}", source.path, at + 1), "the file of a module has the module's name")
        })
        .collect()
}

/// Returns a finding for each empty line between two imports. Without such lines, rustfmt sorts all imports of a file.
fn imports(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut is_open, mut follows) = (false, false);
    let mut has_gap = false;
    for (at, line) in source.text.lines().enumerate() {
        let starts = line.starts_with("use ");
        if starts && follows && has_gap {
            let place = format!("{}:{}", source.path, at + 1);
            findings.push(Finding::new(place, "imports are one list, without empty lines"));
        }
        if starts || is_open {
            is_open = !line.ends_with(';');
            (follows, has_gap) = (true, false);
        } else if line.is_empty() {
            has_gap = true;
        } else {
            follows = false;
        }
    }
    findings
}

fn derives(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, _) in source.text.match_indices("#[derive(") {
        let list = &source.text[at + "#[derive(".len()..];
        let Some(end) = list.find(')') else { continue };
        let ranks = list[..end].split(',').map(str::trim).filter(|name| !name.is_empty()).map(|name| {
            let name = name.rsplit("::").next().unwrap_or(name);
            DERIVES.iter().position(|known| *known == name).unwrap_or(DERIVES.len())
        });
        if !ranks.is_sorted() {
            let line = source.text[..at].lines().count() + 1;
            findings.push(Finding::new(
                format!("{}:{line}", source.path),
                format!("derived traits have the order {}, others", DERIVES.join(", ")),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(sources: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = sources
            .iter()
            .map(|(path, text)| Source { path: (*path).into(), text: (*text).into() })
            .collect();
        check(&sources).into_iter().map(|finding| finding.place).collect()
    }

    #[test]
    fn a_module_with_parts_is_a_file_beside_them() {
        let found = places(&[
            ("c/src/a.rs", ""),
            ("c/src/a/part.rs", ""),
            ("c/src/b/mod.rs", ""),
            ("c/tests/shared/mod.rs", ""),
        ]);
        assert_eq!(found, ["c/src/b/mod.rs"]);
    }

    #[test]
    fn imports_are_one_list() {
        let good = "use a::b;\nuse c::{\n    d,\n};\n\npub use e::f;\n\nconst A: u8 = 1;\n\nmod tests {\n    use super::*;\n}\n";
        let bad = "use a::b;\n\nuse c::{\n    d,\n};\n\nuse e::f;\n";
        assert_eq!(places(&[("a.rs", good), ("b.rs", bad)]), ["b.rs:3", "b.rs:7"]);
    }

    #[test]
    fn a_module_is_the_file_of_its_name() {
        let own = "#[path = \"a_tests.rs\"]\nmod tests;\n";
        let shared = "#[path = \"../a.rs\"]\nmod a;\n";
        assert_eq!(places(&[("c/src/a.rs", own), ("c/src/b/main.rs", shared)]), ["c/src/a.rs:1"]);
    }

    #[test]
    fn derived_traits_have_one_order() {
        // The check reads this file too, so that the wrong texts are not spelled out.
        let derive = "derive";
        let good = "\n#[derive(Clone, Debug, Hash, serde::Serialize, clap::Args, thiserror::Error)]\n";
        let bad = format!("\n#[{derive}(Clone)]\n#[{derive}(Debug, Clone)]\n");
        let late = format!("#[{derive}(\n    thiserror::Error,\n    Debug,\n)]");
        assert_eq!(places(&[("a.rs", good), ("b.rs", &bad), ("c.rs", &late)]), ["b.rs:3", "c.rs:1"]);
    }
}
