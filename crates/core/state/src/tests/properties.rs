//! Properties of every sequence of commands.

use super::ops::{change, ops};
use crate::check::storages;
use crate::{Changed, Root, Table, check, decode, encode};
use caravan_types::UnixNanos;
use caravan_types::command::Command;
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Returns the keys of rows that differ between two versions of a table: written rows, then removed rows.
fn differing<K: Ord + Clone, V: PartialEq>(
    before: &OrdMap<K, Arc<V>>,
    after: &OrdMap<K, Arc<V>>,
) -> (Vec<K>, Vec<K>) {
    let (mut written, mut removed) = (Vec::new(), Vec::new());
    for item in before.diff(after) {
        match item {
            DiffItem::Add(key, _) | DiffItem::Update { new: (key, _), .. } => written.push(key.clone()),
            DiffItem::Remove(key, _) => removed.push(key.clone()),
        }
    }
    (written, removed)
}

/// Returns all rows whose content differs.
fn really_changed(before: &Root, after: &Root) -> BTreeSet<Changed> {
    let mut all = BTreeSet::new();
    macro_rules! table {
        ($field:ident, $written:ident, $removed:ident) => {
            let (written, removed) = differing(&before.$field, &after.$field);
            all.extend(written.into_iter().map(Changed::$written));
            all.extend(removed.into_iter().map(Changed::$removed));
        };
    }
    table!(nodes, Node, NodeRemoved);
    table!(jobs, Job, JobRemoved);
    table!(evals, Eval, EvalRemoved);
    table!(allocs, Alloc, AllocRemoved);
    table!(deployments, Deployment, DeploymentRemoved);
    table!(volumes, Volume, VolumeRemoved);
    table!(claims, Claim, ClaimRemoved);
    table!(plugins, Plugin, PluginRemoved);
    table!(host_volumes, HostVolume, HostVolumeRemoved);
    table!(host_claims, HostClaim, HostClaimRemoved);
    table!(variables, Variable, VariableRemoved);
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn every_sequence_leaves_a_sound_state(ops in ops(80)) {
        let mut root = Root::default();
        for op in ops {
            let index = root.index() + 1;
            let now = UnixNanos(i64::try_from(index).unwrap());
            let command = Command { now, change: change(&root, op) };
            let (next, outcome, set, allocs) = root.apply_with_rows(index, &command);
            prop_assert_eq!(check(&next), Vec::<String>::new(), "after {:?}", command);
            prop_assert_eq!(storages(&next), Vec::<String>::new(), "after {:?}", command);
            prop_assert_eq!(&root.apply(index, &command), &(next.clone(), outcome.clone(), set.clone()));

            let reported: BTreeSet<Changed> =
                set.changes.iter().filter(|c| c.table() != Table::JobSummaries).cloned().collect();
            prop_assert_eq!(really_changed(&root, &next), reported, "after {:?}", command);
            for changed in &set.changes {
                if let Changed::Alloc(id) | Changed::AllocRemoved(id) = changed {
                    prop_assert_eq!(allocs.get(id), (root.alloc(id), next.alloc(id)), "after {:?}", command);
                }
            }
            if outcome.refused.is_some() {
                let same = Root { index, ..root.clone() };
                prop_assert_eq!(&same, &next, "refused: {:?}", command);
            }
            root = next;
        }
        let bytes = encode(&root);
        let back = decode(&bytes).unwrap();
        prop_assert_eq!(&back, &root);
        prop_assert_eq!(encode(&back), bytes);
    }

    #[test]
    fn a_decoded_state_goes_on_like_the_original(ops in ops(40)) {
        let (mut original, mut restored) = (Root::default(), Root::default());
        for op in ops {
            let index = original.index() + 1;
            let command = Command { now: UnixNanos(3), change: change(&original, op) };
            let packed = rmp_serde::to_vec_named(&command).unwrap();
            let command: Command = rmp_serde::from_slice(&packed).unwrap();
            original = original.apply(index, &command).0;
            restored = decode(&encode(&restored)).unwrap().apply(index, &command).0;
            prop_assert_eq!(&original, &restored);
        }
    }
}
