//! The maximum number of volumes of a plugin on one node.

use caravan_types::VolumeKey;
use std::collections::BTreeSet;

/// Returns whether a plugin with room for `limit` volumes on a node has room for the `new` volumes next to the `held`
/// ones. Each volume counts once, for any number of claims, and a held volume needs no further room. Zero and less
/// are no limit (CSI specification, NodeGetInfo, `max_volumes_per_node`).
pub fn has_room<'a>(
    limit: i64,
    held: impl IntoIterator<Item = &'a VolumeKey>,
    new: impl IntoIterator<Item = &'a VolumeKey>,
) -> bool {
    let Some(limit) = usize::try_from(limit).ok().filter(|limit| *limit > 0) else { return true };
    let held: BTreeSet<&VolumeKey> = held.into_iter().collect();
    let new: BTreeSet<&VolumeKey> = new.into_iter().filter(|key| !held.contains(key)).collect();
    new.is_empty() || held.len().saturating_add(new.len()) <= limit
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(numbers: &[u8]) -> Vec<VolumeKey> {
        numbers.iter().map(|n| VolumeKey::new("default", format!("v{n}"))).collect()
    }

    fn room(limit: i64, held: &[u8], new: &[u8]) -> bool {
        has_room(limit, &keys(held), &keys(new))
    }

    #[test]
    fn each_volume_counts_once() {
        assert!(room(2, &[1], &[2]) && !room(2, &[1, 2], &[3]));
        assert!(room(2, &[1, 1, 1], &[2, 2]));
        assert!(!room(2, &[1], &[2, 3]));
        assert!(room(1, &[1, 2], &[2, 1]), "held volumes fit even where the limit was lowered");
        assert!(room(0, &[1, 2], &[3]) && room(-1, &[1], &[2]));
        assert!(room(i64::MAX, &[1, 2], &[3]));
    }

    proptest! {
        /// Volumes that fit one by one, as the scheduler places them, also fit together, as the planner checks them,
        /// and the other way round.
        #[test]
        fn one_by_one_is_the_same_as_together(
            limit in -1_i64..6,
            held in prop::collection::vec(0_u8..8, 0..6),
            new in prop::collection::vec(0_u8..8, 0..6),
        ) {
            let mut grown = held.clone();
            let one_by_one = new.iter().all(|n| {
                let fits = room(limit, &grown, &[*n]);
                grown.push(*n);
                fits
            });
            prop_assert_eq!(one_by_one, room(limit, &held, &new));
        }

        /// A volume that fits next to more held volumes fits next to fewer.
        #[test]
        fn fewer_held_volumes_never_take_room_away(
            limit in 0_i64..6,
            held in prop::collection::vec(0_u8..4, 1..6),
            new in 4_u8..8,
        ) {
            if room(limit, &held, &[new]) {
                prop_assert!(room(limit, &held[1..], &[new]));
            }
        }
    }
}
