//! Checks that crates depend only on crates of their own or lower layers, and that servers and clients never depend on
//! each other.

use super::Finding;
use anyhow::Context as _;
use std::path::Path;

/// The layer of each crate; ARCHITECTURE.md describes them.
const LAYERS: &[(&str, u8)] = &[
    ("types", 0),
    ("hcl", 0),
    ("lang", 0),
    ("admission", 0),
    ("templates", 0),
    ("volumes", 0),
    ("state", 0),
    ("scheduler", 0),
    ("args", 1),
    ("base", 1),
    ("base2histogram", 1),
    ("consensus", 1),
    ("csi", 1),
    ("fetch", 1),
    ("meters", 1),
    ("proto", 1),
    ("rpc", 1),
    ("sys", 1),
    ("tls", 1),
    ("client", 2),
    ("drivers", 2),
    ("hostpath", 2),
    ("server", 2),
    ("shim", 2),
    ("agent", 3),
    ("cli", 3),
    ("http", 3),
    ("sdk", 3),
    ("caravan", 4),
    ("fleet", 4),
    ("sim", 4),
    ("testkit", 5),
    ("testplugin", 5),
    ("e2e", 5),
];
/// Pairs that must not depend on each other, in either direction.
const APART: &[(&str, &str)] =
    &[("server", "client"), ("server", "drivers"), ("server", "shim"), ("sdk", "http")];

pub(super) fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let architecture =
        std::fs::read_to_string(root.join("ARCHITECTURE.md")).context("reading ARCHITECTURE.md")?;
    let mut crates = Vec::new();
    for entry in std::fs::read_dir(root.join("crates")).context("listing crates")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let path = root.join("crates").join(&name).join("Cargo.toml");
        let manifest =
            std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        crates.push((name, dependencies(&manifest)));
    }
    crates.sort();
    let mut findings = judge(&crates);
    for (name, _) in &crates {
        if !architecture.contains(&format!("`{name}`")) {
            findings.push(Finding::new("ARCHITECTURE.md", format!("the crate {name} is missing")));
        }
    }
    Ok(findings)
}

fn judge(crates: &[(String, Vec<String>)]) -> Vec<Finding> {
    let layer = |name: &str| LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer);
    let mut findings = Vec::new();
    for (name, dependencies) in crates {
        let place = format!("crates/{name}/Cargo.toml");
        let Some(own) = layer(name) else {
            findings.push(Finding::new(place, "the crate has no layer in xtask/src/check/layers.rs"));
            continue;
        };
        for dependency in dependencies {
            if layer(dependency).is_some_and(|other| other > own) {
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
        let given =
            |name: &str, on: &[&str]| (name.to_owned(), on.iter().map(|on| (*on).to_owned()).collect());
        assert!(judge(&[given("client", &["sys", "types", "drivers"])]).is_empty());
        for (name, on) in [
            ("types", "state"),
            ("state", "sys"),
            ("volumes", "http"),
            ("client", "server"),
            ("shim", "server"),
        ] {
            let found = judge(&[given(name, &[on])]);
            assert_eq!(found.is_empty(), (name, on) == ("types", "state"), "{name} {on}");
        }
        assert_eq!(judge(&[given("unknown", &[])]).len(), 1);
    }
}
