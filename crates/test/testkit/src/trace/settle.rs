//! A comparison of the final state with the claims.

use super::{Checked, Setting};
use caravan_volumes::invariants::{Verb, same_users};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The users of a volume: node and allocation.
pub type Users = BTreeSet<(String, String)>;

/// Returns the allocation of a target path: the part after `per-alloc`.
pub fn alloc_of_target(path: &str) -> Option<&str> {
    let mut parts = path.split('/');
    parts.find(|part| *part == "per-alloc")?;
    parts.next().filter(|alloc| !alloc.is_empty())
}

/// Returns the active claims in a response of `/v1/volume/csi/:id`. `name` converts a node's id into the id that
/// its plugin uses.
pub fn claims_of(volume: &Value, name: impl Fn(&str) -> String) -> Users {
    let claims = volume["CaravanClaims"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |claim: &Value, key: &str| claim[key].as_str().unwrap_or_default().to_owned();
    claims
        .iter()
        .filter(|claim| claim["Phase"] != "gone")
        .map(|claim| (name(&text(claim, "NodeID")), text(claim, "AllocID")))
        .collect()
}

/// Returns the users of volumes in a node's mount table, by the volume's name in the path. A user has a mount point
/// below the agent's directory that is a published target (`.../per-alloc/<alloc>/<volume>/<usage>`).
pub fn users_of_mounts<'a>(node: &str, mounts: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, Users> {
    let mut found: BTreeMap<String, Users> = BTreeMap::new();
    for path in mounts {
        let mut parts = path.split('/').skip_while(|part| *part != "per-alloc").skip(1);
        if let (Some(alloc), Some(volume)) = (parts.next(), parts.next()) {
            found.entry(volume.to_owned()).or_default().insert((node.to_owned(), alloc.to_owned()));
        }
    }
    found
}

/// Checks rule 3 at the end of a test: claims = published targets = mounts, nothing is staged or attached without a
/// claim, and no effect remains to be undone. `claims` and `mounts` have the plugin's id of the volume as key, nodes
/// have the plugin's ids; `mounts` is absent if it was not read.
pub fn settled(
    checked: &Checked,
    setting: &Setting,
    claims: &BTreeMap<String, Users>,
    mounts: Option<&BTreeMap<String, Users>>,
) -> Vec<String> {
    let (nobody, nothing) = (Users::new(), super::Held::default());
    let all: BTreeSet<&String> =
        claims.keys().chain(checked.held.keys()).chain(mounts.into_iter().flat_map(BTreeMap::keys)).collect();
    let mut wrong = Vec::new();
    for name in all {
        let claimed = claims.get(name).unwrap_or(&nobody);
        let held = checked.held.get(name).unwrap_or(&nothing);
        let published: Users = held
            .published
            .iter()
            .map(|(node, path)| (node.clone(), alloc_of_target(path).unwrap_or(path).to_owned()))
            .collect();
        let mut views = vec![("a published target", &published)];
        if let Some(mounts) = mounts {
            views.push(("a mount", mounts.get(name).unwrap_or(&nobody)));
        }
        wrong.extend(same_users(name, claimed, &views).into_iter().map(|w| w.text));
        let nodes: BTreeSet<&String> = claimed.iter().map(|(node, _)| node).collect();
        for (node, path) in held.staged.iter().filter(|(node, _)| !nodes.contains(node)) {
            wrong.push(format!("volume {name} is staged at {path} on node {node} without a claim"));
        }
        for node in held.attached.iter().filter(|node| !nodes.contains(node)) {
            wrong.push(format!("volume {name} is attached to node {node} without a claim"));
        }
        for node in nodes.iter().filter(|node| setting.needs.attach && !held.attached.contains(**node)) {
            wrong.push(format!("volume {name} is claimed on node {node} and not attached to it"));
        }
        for (verb, node, path) in &held.owed {
            let place = match verb {
                Verb::ControllerPublish => String::new(),
                _ => format!(" at {path}"),
            };
            wrong.push(format!(
                "volume {name}: {} for node {node}{place} may have been carried out and was never undone or repeated",
                verb.as_str()
            ));
        }
    }
    wrong
}
