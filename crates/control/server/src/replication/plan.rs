//! The decision which rows a region writes and deletes.

use super::keys;
use super::rows::{Rows, bare, delete, write};
use caravan_messages::region::{ReplicatedKind, ReplicatedRow, RowsPart};
use caravan_types::admin::AdminChange;

/// The parts of one update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Update {
    /// Whether `rows` are all rows of the authoritative region.
    pub(super) full: bool,
    pub(super) rows: Vec<ReplicatedRow>,
    pub(super) removed: Vec<String>,
}

impl Update {
    pub(super) fn add(&mut self, part: RowsPart) {
        self.full |= part.full;
        self.rows.extend(part.rows);
        self.removed.extend(part.removed);
    }
}

/// Returns the changes that turn the own rows of a kind into those of the authoritative region. Deletions come first,
/// because a new row may have the name of a deleted one. Rows of another kind are ignored.
pub(super) fn plan(kind: ReplicatedKind, own: &Rows, update: Update) -> Vec<AdminChange> {
    let Update { full, mut rows, removed } = update;
    rows.retain(|row| row.kind() == kind);
    let kept = keys(&rows);
    let gone: Vec<&str> = match full {
        true => own.keys().map(String::as_str).filter(|key| !kept.contains(key)).collect(),
        false => removed.iter().map(String::as_str).filter(|key| own.contains_key(*key)).collect(),
    };
    let deletions = gone.into_iter().filter_map(|key| delete(kind, key));
    let is_new = |row: &&ReplicatedRow| own.get(row.key()).is_none_or(|own| bare(own) != bare(row));
    deletions.chain(rows.iter().filter(is_new).map(write)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::source::differences;
    use super::*;
    use caravan_types::acl::{AuthMethod, Policy, Token};
    use caravan_types::namespace::NamespaceSpec;
    use caravan_types::{Time, node_pool::NodePool};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn policy(name: &str, rules: &str, index: u64) -> ReplicatedRow {
        ReplicatedRow::Policy(Arc::new(Policy {
            name: name.into(),
            rules: rules.into(),
            modify_index: index,
            ..Policy::default()
        }))
    }

    fn rows(list: Vec<ReplicatedRow>) -> Rows {
        list.into_iter().map(|row| (row.key().to_owned(), row)).collect()
    }

    /// Applies changes of policies as the state does.
    fn applied(own: &Rows, changes: Vec<AdminChange>) -> Rows {
        let mut out = own.clone();
        for change in changes {
            match change {
                AdminChange::PolicyWrite(row) => {
                    out.insert(row.name.clone(), ReplicatedRow::Policy(Arc::new(*row)));
                }
                AdminChange::PolicyDelete(name) => assert!(out.remove(&name).is_some(), "{name}"),
                other => panic!("{other:?}"),
            }
        }
        out
    }

    fn content(rows: &Rows) -> BTreeMap<String, ReplicatedRow> {
        rows.iter().map(|(key, row)| (key.clone(), bare(row))).collect()
    }

    #[test]
    fn equal_rows_are_not_written_again() {
        let own = rows(vec![policy("a", "x", 3), policy("b", "y", 4)]);
        let update = Update {
            full: true,
            rows: vec![policy("a", "x", 90), policy("b", "z", 91)],
            ..Update::default()
        };
        let changes = plan(ReplicatedKind::Policies, &own, update);
        let [AdminChange::PolicyWrite(row)] = changes.as_slice() else { panic!("{changes:?}") };
        assert_eq!((row.name.as_str(), row.rules.as_str(), row.modify_index), ("b", "z", 0));
    }

    #[test]
    fn the_default_namespace_is_never_deleted() {
        let namespace = |name: &str| {
            ReplicatedRow::Namespace(Arc::new(NamespaceSpec {
                name: name.into(),
                ..NamespaceSpec::default()
            }))
        };
        let own = rows(vec![namespace("default"), namespace("apps")]);
        let changes = plan(ReplicatedKind::Namespaces, &own, Update { full: true, ..Update::default() });
        let [AdminChange::NamespaceDelete { name, .. }] = changes.as_slice() else { panic!("{changes:?}") };
        assert_eq!(name.as_str(), "apps");
    }

    #[test]
    fn times_that_each_region_sets_do_not_make_a_row_new() {
        let method = |time| {
            ReplicatedRow::AuthMethod(Arc::new(AuthMethod {
                name: "sso".into(),
                create_time: Time(time),
                modify_time: Time(time),
                ..AuthMethod::default()
            }))
        };
        let own = rows(vec![method(5)]);
        let update = Update { full: true, rows: vec![method(9)], ..Update::default() };
        assert_eq!(plan(ReplicatedKind::AuthMethods, &own, update), []);
    }

    #[test]
    fn rows_of_another_kind_are_ignored() {
        let token = ReplicatedRow::Token(Arc::new(Token { accessor_id: "t".into(), ..Token::default() }));
        let pool = ReplicatedRow::NodePool(Arc::new(NodePool { name: "gpu".into(), ..NodePool::default() }));
        let update = Update { full: true, rows: vec![token, pool], ..Update::default() };
        assert_eq!(plan(ReplicatedKind::Policies, &Rows::new(), update), []);
    }

    fn some_rows() -> impl Strategy<Value = Rows> {
        let row = ("[a-e]", "[xyz]", 0..3u64).prop_map(|(name, rules, index)| policy(&name, &rules, index));
        proptest::collection::vec(row, 0..6).prop_map(rows)
    }

    proptest! {
        #[test]
        fn after_a_full_update_the_rows_are_those_of_the_other_region(own in some_rows(), theirs in some_rows()) {
            let update = Update { full: true, rows: theirs.values().cloned().collect(), ..Update::default() };
            let after = applied(&own, plan(ReplicatedKind::Policies, &own, update.clone()));
            prop_assert_eq!(content(&after), content(&theirs));
            prop_assert_eq!(plan(ReplicatedKind::Policies, &after, update), []);
        }

        #[test]
        fn the_differences_lead_to_the_same_rows_as_all_rows(before in some_rows(), theirs in some_rows()) {
            let (rows, removed) = differences(&before, &theirs);
            let update = Update { full: false, rows, removed };
            let after = applied(&before, plan(ReplicatedKind::Policies, &before, update));
            prop_assert_eq!(content(&after), content(&theirs));
        }
    }
}
