//! Reachability of volumes (CSI specification, `Topology` and `NodeGetInfo`).

use caravan_types::volume::Topology;

/// Returns whether a node reaches a volume. One of the volume's topologies must be a subset of the node's segments,
/// as the plugin reports them. A volume without topologies is reachable from every node. A volume with topologies is
/// never reachable from a node without segments.
pub fn accessible(volume: &[Topology], node: Option<&Topology>) -> bool {
    if volume.is_empty() {
        return true;
    }
    let Some(node) = node else { return false };
    volume
        .iter()
        .any(|topology| topology.segments.iter().all(|(key, value)| node.segments.get(key) == Some(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(pairs: &[(&str, &str)]) -> Topology {
        Topology { segments: pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect() }
    }

    #[test]
    fn one_topology_must_be_a_subset_of_the_nodes() {
        let node = topology(&[("zone", "z1"), ("rack", "r1")]);
        assert!(accessible(&[], None));
        assert!(accessible(&[topology(&[("zone", "z1")])], Some(&node)));
        assert!(accessible(&[topology(&[("zone", "z2")]), topology(&[("rack", "r1")])], Some(&node)));
        assert!(!accessible(&[topology(&[("zone", "z1"), ("rack", "r2")])], Some(&node)));
        assert!(!accessible(&[topology(&[("shelf", "1")])], Some(&node)));
        assert!(!accessible(&[topology(&[("zone", "z1")])], None));
    }
}
