//! Checks that crates depend only on crates of their own or lower layers, and that servers and clients never depend
//! on each other.

use super::Finding;
use anyhow::Context as _;
use std::path::Path;

/// The folder and the layer of each crate; ARCHITECTURE.md describes them.
const CRATES: &[(&str, &str, u8)] = &[
    ("core", "admission", 0),
    ("core", "api", 0),
    ("core", "founding", 0),
    ("core", "hcl", 0),
    ("core", "lang", 0),
    ("core", "messages", 0),
    ("core", "scheduler", 0),
    ("core", "schema", 0),
    ("core", "state", 0),
    ("core", "templates", 0),
    ("core", "types", 0),
    ("core", "volumes", 0),
    ("core", "base", 1),
    ("wire", "csi", 1),
    ("wire", "fetch", 1),
    ("wire", "proto", 1),
    ("wire", "rpc", 1),
    ("wire", "tls", 1),
    ("control", "base2histogram", 1),
    ("control", "consensus", 1),
    ("control", "members", 1),
    ("control", "meters", 1),
    ("host", "sys", 1),
    ("edge", "args", 1),
    ("edge", "ui", 1),
    ("control", "server", 2),
    ("host", "client", 2),
    ("host", "docker", 2),
    ("host", "plugins", 2),
    ("host", "drivers", 2),
    ("host", "hostpath", 2),
    ("host", "networks", 2),
    ("host", "shim", 2),
    ("edge", "agent", 3),
    ("edge", "cli", 3),
    ("edge", "http", 3),
    ("edge", "plugin-sdk", 3),
    ("edge", "sdk", 3),
    ("edge", "caravan", 4),
    ("test", "fleet", 4),
    ("test", "sim", 4),
    ("test", "e2e", 5),
    ("test", "machines", 5),
    ("test", "simulation", 5),
    ("test", "testkit", 5),
    ("test", "testplugin", 5),
];
/// Pairs that must not depend on each other, in either direction.
const APART: &[(&str, &str)] =
    &[("server", "client"), ("server", "drivers"), ("server", "shim"), ("sdk", "http")];

pub(super) fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let architecture =
        std::fs::read_to_string(root.join("ARCHITECTURE.md")).context("reading ARCHITECTURE.md")?;
    let mut crates = Vec::new();
    let mut findings = Vec::new();
    for folder in folders(&root.join("crates"))? {
        for name in folders(&root.join("crates").join(&folder))? {
            let place = format!("crates/{folder}/{name}/Cargo.toml");
            let path = root.join(&place);
            let manifest = std::fs::read_to_string(&path).with_context(|| format!("reading {place}"))?;
            if CRATES.iter().any(|(expected, known, _)| *known == name && *expected != folder) {
                findings.push(Finding::new(&place, "xtask/src/check/layers.rs names another folder"));
            }
            let pure = CRATES.iter().any(|(_, known, layer)| *known == name && *layer == 0);
            if pure && !path.with_file_name("clippy.toml").exists() {
                findings
                    .push(Finding::new(place, "a pure crate needs clippy.toml, a link to clippy-pure.toml"));
            }
            crates.push((name, dependencies(&manifest)));
        }
    }
    crates.sort();
    findings.extend(judge(&crates));
    for (name, _) in &crates {
        if !architecture.contains(&format!("`{name}`")) {
            findings.push(Finding::new("ARCHITECTURE.md", format!("the crate {name} is missing")));
        }
    }
    Ok(findings)
}

fn folders(path: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).with_context(|| format!("listing {}", path.display()))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

fn judge(crates: &[(String, Vec<String>)]) -> Vec<Finding> {
    let layer = |name: &str| CRATES.iter().find(|(_, known, _)| *known == name);
    let mut findings = Vec::new();
    for (name, dependencies) in crates {
        let Some((folder, _, own)) = layer(name) else {
            let text = "the crate has no layer in xtask/src/check/layers.rs";
            findings.push(Finding::new(format!("the crate {name}"), text));
            continue;
        };
        let place = format!("crates/{folder}/{name}/Cargo.toml");
        for dependency in dependencies {
            if layer(dependency).is_some_and(|(_, _, other)| other > own) {
                findings.push(Finding::new(&place, format!("{dependency} is of a higher layer")));
            }
            let apart = APART.iter().any(|(a, b)| (a, b) == (&name.as_str(), &dependency.as_str()));
            let apart = apart || APART.iter().any(|(a, b)| (b, a) == (&name.as_str(), &dependency.as_str()));
            if apart {
                findings
                    .push(Finding::new(&place, format!("{name} and {dependency} must not know each other")));
            }
        }
    }
    findings
}

/// Returns the workspace's own crates in the table `dependencies`; tests may use any crate.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == "[dependencies]"
                || (line.starts_with("[target.") && line.ends_with(".dependencies]"));
            continue;
        }
        let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
        if let (true, Some(own)) = (inside, name.strip_prefix("caravan-")) {
            found.push(own.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_real_dependencies_count() {
        let manifest = "[package]\nname = \"caravan-x\"\n[dependencies]\ncaravan-types.workspace = true\nserde = \"1\"\n\
                        caravan-state = { workspace = true }\n[dev-dependencies]\ncaravan-testkit.workspace = true\n";
        assert_eq!(dependencies(manifest), ["types", "state"]);
    }

    #[test]
    fn arrows_go_downwards_and_some_crates_stay_apart() {
        let supplied =
            |name: &str, on: &[&str]| (name.to_owned(), on.iter().map(|on| (*on).to_owned()).collect());
        assert!(judge(&[supplied("client", &["sys", "types", "drivers"])]).is_empty());
        for (name, on) in [
            ("types", "state"),
            ("state", "sys"),
            ("volumes", "http"),
            ("client", "server"),
            ("shim", "server"),
        ] {
            let found = judge(&[supplied(name, &[on])]);
            assert_eq!(found.is_empty(), (name, on) == ("types", "state"), "{name} {on}");
        }
        assert_eq!(judge(&[supplied("unknown", &[])]).len(), 1);
    }
}
