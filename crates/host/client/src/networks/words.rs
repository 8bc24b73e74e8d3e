//! The sentence of a repair.

use caravan_networks::Finding;

/// The kinds of differences, in the order of the sentence.
const KINDS: [&str; 9] = [
    "settings of the kernel",
    "the bridge",
    "addresses of the bridge",
    "interfaces of allocations",
    "packet rules",
    "port maps",
    "rules of the firewall",
    "left-over interfaces",
    "left-over port maps",
];

/// Returns the sentence that reports the repair; `None` without a repair.
pub(super) fn sentence(found: &[Finding]) -> Option<String> {
    let mut counts = [0usize; KINDS.len()];
    for finding in found {
        let (kind, count) = match finding {
            Finding::Unmarked => continue,
            Finding::Setting(_) => (0, 1),
            Finding::Bridge | Finding::Down => (1, 1),
            Finding::Gateway(..) | Finding::OldAddress(..) => (2, 1),
            Finding::Interface(_) | Finding::Detached(_) => (3, 1),
            Finding::Table => (4, 1),
            Finding::Ports(_, missing) => (5, missing.len()),
            Finding::Passage(_) => (6, 1),
            Finding::LeftInterface(_) => (7, 1),
            Finding::LeftPorts(_, left) => (8, left.len()),
        };
        counts[kind] += count;
    }
    let parts: Vec<String> = KINDS
        .into_iter()
        .zip(counts)
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| match kind {
            "the bridge" | "packet rules" | "rules of the firewall" => kind.to_owned(),
            _ => format!("{count} {kind}"),
        })
        .collect();
    (!parts.is_empty()).then(|| format!("Network repaired: {}", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_is_one_sentence() {
        assert_eq!(sentence(&[]), None);
        assert_eq!(sentence(&[Finding::Unmarked]), None);
        let found =
            [Finding::Table, Finding::Detached("a".into()), Finding::Bridge, Finding::Interface("b".into())];
        assert_eq!(
            sentence(&found).unwrap(),
            "Network repaired: the bridge, 2 interfaces of allocations, packet rules"
        );
    }
}
