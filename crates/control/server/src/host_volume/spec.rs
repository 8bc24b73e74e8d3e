//! Specifications of host volumes: their validation, their merge into an existing row, and the choice of a node.
//! Pure; docs/reference/storage.md, section 8.2, has the rules and texts.

use super::fault::{HostVolumeFault, PlaceProblem, SpecProblem, UpdateProblem};
use caravan_lang::constraint;
use caravan_state::Root;
use caravan_types::alloc::Allocation;
use caravan_types::component::check_component;
use caravan_types::host_volume::{HostVolume, HostVolumeIntent, HostVolumeSpec};
use caravan_types::node::Node;
use caravan_types::volume::{AccessMode, AttachmentMode, Capability};
use std::str::FromStr;
use std::sync::Arc;

/// Parses a specification into a row, or returns all problems.
pub(super) fn parse(spec: &HostVolumeSpec) -> Result<HostVolume, HostVolumeFault> {
    let mut problems: Vec<SpecProblem> = Vec::new();
    if !spec.id.is_empty() && uuid::Uuid::parse_str(&spec.id).is_err() {
        problems.push(SpecProblem::Id(spec.id.clone()));
    }
    if spec.name.is_empty() {
        problems.push(SpecProblem::NoName);
    } else if let Err(error) = check_component("name", &spec.name) {
        // No job could request a volume of such a name.
        problems.push(error.into());
    }
    if !spec.plugin_id.is_empty()
        && let Err(error) = check_component("plugin ID", &spec.plugin_id)
    {
        problems.push(error.into());
    }
    let (min, max) = (spec.requested_capacity_min_bytes, spec.requested_capacity_max_bytes);
    if max < min {
        problems.push(SpecProblem::MaxBelowMin { max, min });
    }
    let mut capabilities = Vec::new();
    for supplied in &spec.requested_capabilities {
        let access = AccessMode::from_str(&supplied.access_mode).ok().filter(|mode| of_hosts(*mode));
        let attachment = AttachmentMode::from_str(&supplied.attachment_mode)
            .ok()
            .filter(|mode| *mode == AttachmentMode::FileSystem);
        // Clients expect one problem for each capability.
        match (attachment, access) {
            (None, _) => problems.push(SpecProblem::AttachmentMode(supplied.attachment_mode.clone())),
            (_, None) => problems.push(SpecProblem::AccessMode(supplied.access_mode.clone())),
            (Some(attachment_mode), Some(access_mode)) => {
                capabilities.push(Capability { attachment_mode, access_mode });
            }
        }
    }
    for supplied in &spec.constraints {
        match constraint::validate(&supplied.operand, &supplied.r_target) {
            Err(error) => problems.push(SpecProblem::Constraint(error)),
            Ok(operator) if operator.is_distinct() => {
                problems.push(SpecProblem::Distinct(supplied.operand.clone()));
            }
            Ok(_) => {}
        }
    }
    if !problems.is_empty() {
        return Err(HostVolumeFault::Invalid(problems));
    }
    Ok(HostVolume {
        namespace: spec.namespace.as_str().into(),
        id: spec.id.as_str().into(),
        name: spec.name.clone(),
        plugin_id: spec.plugin_id.clone(),
        node_pool: spec.node_pool.clone(),
        node_id: spec.node_id.as_str().into(),
        constraints: spec.constraints.clone(),
        requested_capacity_min_bytes: min,
        requested_capacity_max_bytes: max,
        capacity_bytes: spec.capacity_bytes,
        requested_capabilities: capabilities,
        parameters: spec.parameters.clone(),
        host_path: spec.host_path.clone(),
        ..HostVolume::default()
    })
}

fn of_hosts(mode: AccessMode) -> bool {
    matches!(mode, AccessMode::SingleNodeReaderOnly | AccessMode::SingleNodeWriter) || mode.host_only()
}

/// Sets the default capability of a volume whose specification has none.
pub(super) fn default_capabilities(volume: &mut HostVolume) {
    if volume.requested_capabilities.is_empty() {
        volume.requested_capabilities.push(Capability {
            attachment_mode: AttachmentMode::FileSystem,
            access_mode: AccessMode::SingleNodeWriter,
        });
    }
}

/// Returns the row after an update, or the reason of the refusal. Fields that the update omits stay; node, pool and
/// constraints always stay.
pub(super) fn merge(
    current: &HostVolume,
    supplied: HostVolume,
    users: &[&Arc<Allocation>],
) -> Result<HostVolume, HostVolumeFault> {
    let mut problems = Vec::new();
    if !users.is_empty() {
        problems.push(UpdateProblem::InUse(users.iter().map(|alloc| alloc.id.clone()).collect()));
    }
    if !supplied.node_id.is_empty() && supplied.node_id != current.node_id {
        problems.push(UpdateProblem::Fixed("node ID"));
    }
    if !supplied.node_pool.is_empty() && supplied.node_pool != current.node_pool {
        problems.push(UpdateProblem::Fixed("node pool"));
    }
    if supplied.name != current.name {
        problems.push(UpdateProblem::Fixed("name"));
    }
    if !supplied.plugin_id.is_empty() && supplied.plugin_id != current.plugin_id {
        problems.push(UpdateProblem::Fixed("plugin ID"));
    }
    let (max, capacity) = (supplied.requested_capacity_max_bytes, current.capacity_bytes);
    if max > 0 && max < capacity {
        problems.push(UpdateProblem::MaxBelowCapacity { max, capacity });
    }
    if current.intent == HostVolumeIntent::Delete {
        problems.push(UpdateProblem::BeingDeleted);
    }
    if !problems.is_empty() {
        return Err(HostVolumeFault::InvalidUpdate { volume: current.id.clone(), problems });
    }
    let mut row = HostVolume {
        requested_capacity_min_bytes: supplied.requested_capacity_min_bytes,
        requested_capacity_max_bytes: supplied.requested_capacity_max_bytes,
        parameters: supplied.parameters,
        ..current.clone()
    };
    if !supplied.requested_capabilities.is_empty() {
        row.requested_capabilities = supplied.requested_capabilities;
    }
    if supplied.capacity_bytes > 0 {
        row.capacity_bytes = supplied.capacity_bytes;
    }
    if !supplied.host_path.is_empty() {
        row.host_path = supplied.host_path;
    }
    Ok(row)
}

fn pool_of(name: &str) -> &str {
    if name.is_empty() { "default" } else { name }
}

/// Returns whether a pool of this name exists: an operator created the pool, or nodes report it.
pub(super) fn pool_exists(root: &Root, pool: &str) -> bool {
    root.node_pool(pool).is_some()
        || matches!(pool, "default" | "all")
        || root.nodes().any(|node| pool_of(&node.node_pool) == pool)
}

/// Checks the node and the pool that a specification names, and fills in the node's pool.
pub(super) fn locate(root: &Root, volume: &mut HostVolume) -> Result<(), HostVolumeFault> {
    let name = &volume.name;
    let refused = |problem| HostVolumeFault::Misplaced { volume: name.clone(), problem };
    if !volume.node_pool.is_empty() && !pool_exists(root, &volume.node_pool) {
        return Err(refused(PlaceProblem::NoPool(volume.node_pool.clone())));
    }
    if volume.node_id.is_empty() {
        return Ok(());
    }
    let node =
        root.node(&volume.node_id).ok_or_else(|| refused(PlaceProblem::NoNode(volume.node_id.clone())))?;
    let pool = pool_of(&node.node_pool);
    if !volume.node_pool.is_empty() && volume.node_pool != "all" && volume.node_pool != pool {
        let (node, pool) = (volume.node_id.clone(), volume.node_pool.clone());
        return Err(refused(PlaceProblem::OtherPool { node, pool }));
    }
    volume.node_pool = pool.to_owned();
    Ok(())
}

/// Returns whether a node can hold a volume: the node satisfies the constraints, and has the plugin.
fn feasible(node: &Node, volume: &HostVolume) -> bool {
    node.attributes.contains_key(&HostVolume::plugin_attribute(&volume.plugin_id))
        && caravan_scheduler::meets(node, &volume.constraints)
}

/// Returns the node for a new volume: the requested node, or the suitable node with the fewest volumes. Without a
/// requested node, a suitable node is also ready and eligible.
pub(super) fn place(root: &Root, volume: &HostVolume) -> Result<Arc<Node>, HostVolumeFault> {
    if let Some(node) = root.node(&volume.node_id) {
        if !feasible(node, volume) {
            return Err(HostVolumeFault::Infeasible(volume.node_id.clone()));
        }
        if has_name(root, node, volume) {
            return Err(HostVolumeFault::NameTaken);
        }
        return Ok(node.clone());
    }
    let (mut existing, mut filtered, mut infeasible) = (0, 0, 0);
    let mut best: Option<(usize, &Arc<Node>)> = None;
    for node in root.nodes() {
        let desired = volume.node_pool.as_str();
        if !matches!(desired, "" | "all") && pool_of(&node.node_pool) != desired {
            filtered += 1;
        } else if has_name(root, node, volume) {
            existing += 1;
        } else if !node.is_schedulable() || !feasible(node, volume) {
            infeasible += 1;
        } else {
            let has = root.host_volumes_by_node(&node.id).count();
            if best.is_none_or(|(fewest, _)| has < fewest) {
                best = Some((has, node));
            }
        }
    }
    best.map(|(_, node)| node.clone()).ok_or_else(|| HostVolumeFault::NoNode {
        volume: volume.name.clone(),
        existing,
        filtered,
        infeasible,
    })
}

/// Whether the node already has another volume of the name, in any namespace or in its agent's configuration, which a
/// user's volume must not hide.
pub(super) fn has_name(root: &Root, node: &Node, volume: &HostVolume) -> bool {
    let reported = node.host_volumes.get(&volume.name);
    root.host_volumes_by_node(&node.id).any(|row| row.name == volume.name && row.id != volume.id)
        || reported.is_some_and(|info| info.id != volume.id.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::UnixNanos;
    use caravan_types::command::{Change, Command};
    use caravan_types::host_volume::HostCapability;
    use caravan_types::job::Constraint;
    use caravan_types::node::{Eligibility, NodeStatus};

    fn spec() -> HostVolumeSpec {
        HostVolumeSpec { name: "data".into(), namespace: "default".into(), ..HostVolumeSpec::default() }
    }

    fn error<T: std::fmt::Debug>(result: Result<T, HostVolumeFault>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        assert_eq!(error(parse(&HostVolumeSpec::default())), "volume validation failed: missing name");
        let wrong = |change: fn(&mut HostVolumeSpec)| {
            let mut spec = spec();
            change(&mut spec);
            error(parse(&spec)).trim_start_matches("volume validation failed: ").to_owned()
        };
        assert_eq!(wrong(|s| s.id = "x".into()), "invalid ID \"x\"");
        assert_eq!(
            wrong(|s| s.requested_capacity_min_bytes = 5),
            "capacity_max (0) must be larger than capacity_min (5)"
        );
        let slash = "cannot name a directory: it contains a slash";
        assert_eq!(wrong(|s| s.name = "a/b".into()), format!("name \"a/b\" {slash}"));
        assert!(wrong(|s| s.name = "x".repeat(256)).ends_with("it is longer than 255 bytes"));
        assert!(wrong(|s| s.name = "a\0".into()).ends_with("it contains a NUL character"));
        assert_eq!(wrong(|s| s.plugin_id = "a/b".into()), format!("plugin ID \"a/b\" {slash}"));
        let capability = |attachment: &str, access: &str| {
            vec![HostCapability { attachment_mode: attachment.into(), access_mode: access.into() }]
        };
        let mut both = spec();
        both.requested_capabilities = capability("tape", "multi-node-multi-writer");
        assert_eq!(error(parse(&both)), "volume validation failed: invalid attachment mode: \"tape\"");
        both.requested_capabilities = capability("file-system", "multi-node-multi-writer");
        both.name.clear();
        let text = error(parse(&both));
        assert!(text.contains("2 errors occurred") && text.contains("missing name"), "{text}");
        assert!(text.contains("invalid access mode: \"multi-node-multi-writer\""), "{text}");
        both.name = "data".into();
        both.requested_capabilities = capability("file-system", "single-node-single-writer");
        assert_eq!(parse(&both).unwrap().requested_capabilities.len(), 1);
        assert_eq!(
            wrong(|s| s.constraints =
                vec![Constraint { operand: "distinct_hosts".into(), ..Constraint::default() }]),
            "invalid constraint distinct_hosts: host volumes of the same name are always on distinct hosts"
        );
        assert!(
            wrong(|s| s.constraints = vec![Constraint { operand: "?".into(), ..Constraint::default() }])
                .starts_with("invalid constraint: ")
        );
    }

    #[test]
    fn an_update_keeps_where_it_is() {
        let current = HostVolume {
            id: "v".into(),
            name: "data".into(),
            node_id: "n1".into(),
            node_pool: "default".into(),
            capacity_bytes: 100,
            ..HostVolume::default()
        };
        let supplied = HostVolume { requested_capacity_max_bytes: 200, ..current.clone() };
        assert_eq!(merge(&current, supplied.clone(), &[]).unwrap().requested_capacity_max_bytes, 200);
        let wrong = HostVolume {
            node_id: "n2".into(),
            node_pool: "other".into(),
            requested_capacity_max_bytes: 50,
            ..supplied.clone()
        };
        let text = error(merge(&current, wrong, &[]));
        for part in [
            "validating volume \"v\" update failed: 3 errors",
            "node ID cannot be updated",
            "node pool cannot be updated",
            "capacity_max (50) cannot be less than existing provisioned capacity (100)",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let user = Arc::new(Allocation { id: "a1".into(), ..Allocation::default() });
        assert_eq!(
            error(merge(&current, supplied, &[&user])),
            "validating volume \"v\" update failed: cannot update a volume in use: claimed by allocs (a1)"
        );
    }

    fn node(id: &str) -> Node {
        let mut node =
            Node { id: id.into(), node_pool: "default".into(), status: NodeStatus::Ready, ..Node::default() };
        node.attributes.insert("plugins.host_volume.mkdir.version".into(), "0.0.1".into());
        node.attributes.insert("kernel.name".into(), "linux".into());
        node
    }

    fn root(nodes: Vec<Node>) -> Root {
        let mut root = Root::default();
        for node in nodes {
            root = apply(&root, Change::NodeRegister { node: Box::new(node), evals: vec![] });
        }
        root
    }

    fn apply(root: &Root, change: Change) -> Root {
        let (next, outcome, _) = root.apply(root.index() + 1, &Command { now: UnixNanos(1), change });
        assert_eq!(outcome.refused, None);
        next
    }

    /// docs/design/rough-edges.md, 40: status and eligibility count.
    #[test]
    fn a_new_volume_goes_where_it_can_be_made() {
        let volume =
            |name: &str| HostVolume { name: name.into(), plugin_id: "mkdir".into(), ..HostVolume::default() };
        let down = Node { status: NodeStatus::Down, ..node("n1") };
        let closed = Node { scheduling_eligibility: Eligibility::Ineligible, ..node("n2") };
        let mut bare = node("n3");
        bare.attributes.clear();
        let pool = Node { node_pool: "other".into(), ..node("n4") };
        let mut root = root(vec![down, closed, bare, pool, node("n5"), node("n6")]);
        let expected = HostVolume { node_pool: "default".into(), ..volume("data") };
        assert_eq!(place(&root, &expected).unwrap().id, "n5");
        let row = HostVolume { id: "v1".into(), node_id: "n5".into(), ..volume("data") };
        root = apply(&root, Change::HostVolumeWrite { volume: Box::new(row), expect_modify_index: 0 });
        assert_eq!(place(&root, &expected).unwrap().id, "n6");
        assert_eq!(place(&root, &HostVolume { node_pool: "other".into(), ..volume("x") }).unwrap().id, "n4");
        let mut picky = expected.clone();
        picky.constraints = vec![Constraint {
            l_target: "${attr.kernel.name}".into(),
            r_target: "plan9".into(),
            operand: "=".into(),
        }];
        assert_eq!(
            error(place(&root, &picky)),
            "could not place volume \"data\": no node meets constraints: 1 nodes had existing volume, 1 nodes filtered by node pool governance, 4 nodes were infeasible"
        );
        picky.node_id = "n5".into();
        assert_eq!(error(place(&root, &picky)), "node n5 is not feasible for volume");
        let supplied = HostVolume { node_id: "n5".into(), ..expected };
        assert_eq!(error(place(&root, &supplied)), "volume name already exists on this node");
    }

    #[test]
    fn nodes_and_pools_must_be_there() {
        let root = root(vec![node("n1"), Node { node_pool: "other".into(), ..node("n2") }]);
        let check = |pool: &str, id: &str| {
            let mut volume =
                HostVolume { node_pool: pool.into(), node_id: id.into(), ..HostVolume::default() };
            locate(&root, &mut volume).map(|()| volume.node_pool)
        };
        let reported = |pool: &str, id: &str| {
            error(check(pool, id))
                .trim_start_matches("validating volume \"\" against state failed: ")
                .to_owned()
        };
        assert_eq!(reported("none", ""), "node pool \"none\" does not exist");
        assert_eq!(reported("", "n9"), "node \"n9\" does not exist");
        assert_eq!(reported("default", "n2"), "node ID \"n2\" is not in pool \"default\"");
        assert_eq!(check("", "n2").unwrap(), "other");
        assert_eq!(check("all", "n1").unwrap(), "default");
    }
}
