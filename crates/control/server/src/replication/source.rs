//! The response of the authoritative region: all rows of a kind, then the changes.

use super::rows::{self, Rows};
use crate::admin::Admin;
use crate::core::Core;
use crate::runtime;
use caravan_messages::region::{FollowRows, ReplicatedRow, RowsPart};
use caravan_rpc::{Code, RpcError};
use caravan_state::{Table, Topic};
use futures::Stream;
use std::collections::VecDeque;
use std::time::Duration;

/// The maximum number of rows in a part.
const PART_ROWS: usize = 500;
/// The pause between two updates, so that many changes become one update.
const UPDATE_PAUSE: Duration = Duration::from_millis(100);

/// The stream of rows for another region.
struct Source {
    core: Core,
    admin: Admin,
    asked: FollowRows,
    /// The rows that the other region has, or `None` at the beginning.
    sent: Option<Rows>,
    parts: VecDeque<RowsPart>,
}

/// Returns the rows that a region follows: first all of them, then changes. The stream ends with the refusal once the
/// token of the region no longer has the right.
pub(crate) fn source(
    core: Core,
    admin: Admin,
    asked: FollowRows,
) -> impl Stream<Item = Result<RowsPart, RpcError>> + Send + use<> {
    let source = Source { core, admin, asked, sent: None, parts: VecDeque::new() };
    futures::stream::unfold(Some(source), |source| async {
        let mut source = source?;
        match source.next().await {
            Ok(part) => Some((Ok(part), Some(source))),
            Err(error) => Some((Err(error), None)),
        }
    })
}

impl Source {
    async fn next(&mut self) -> Result<RowsPart, RpcError> {
        loop {
            if let Some(part) = self.parts.pop_front() {
                return Ok(part);
            }
            if self.sent.is_some() {
                runtime::sleep(UPDATE_PAUSE).await;
            }
            let watch = self.core.store.watch().on(Topic::Table(rows::table(self.asked.kind)));
            let mut watch = watch.on(Topic::Table(Table::AclTokens)).start();
            self.allowed()?;
            let root = self.core.snapshot();
            let now = rows::list(&root, self.asked.kind);
            self.parts = match &self.sent {
                None => parts(root.index(), true, now.values().cloned().collect(), Vec::new()),
                Some(before) if *before == now => {
                    watch.changed().await;
                    continue;
                }
                Some(before) => {
                    let (rows, removed) = differences(before, &now);
                    parts(root.index(), false, rows, removed)
                }
            };
            self.sent = Some(now);
        }
    }

    /// Checks the token of the other region: it must be a management token while access control is enabled.
    fn allowed(&self) -> Result<(), RpcError> {
        let refused = |reason: &str| Err(RpcError::new(Code::Permission, reason));
        if !self.admin.acl_enabled() {
            return match self.asked.kind.is_access_control() {
                true => refused("ACL support disabled in the authoritative region"),
                false => Ok(()),
            };
        }
        match self.admin.caller(self.asked.token.expose()) {
            Ok(caller) if caller.is_management() => Ok(()),
            Ok(_) if self.asked.token.is_empty() => refused(
                "the region sends no replication_token; the authoritative region needs a management token",
            ),
            Ok(_) => refused("the replication_token is no management token of the authoritative region"),
            Err(why) => refused(&format!("the replication_token is refused: {why}")),
        }
    }
}

/// Divides an update into at least one part.
fn parts(index: u64, full: bool, rows: Vec<ReplicatedRow>, removed: Vec<String>) -> VecDeque<RowsPart> {
    let part = |rows: &[ReplicatedRow]| RowsPart {
        index,
        full,
        complete: false,
        rows: rows.to_vec(),
        removed: Vec::new(),
    };
    let mut parts: VecDeque<RowsPart> = rows.chunks(PART_ROWS).map(part).collect();
    parts.push_back(RowsPart { complete: true, removed, ..part(&[]) });
    parts
}

/// Returns the rows that are new or changed, and the keys of the removed rows.
pub(super) fn differences(before: &Rows, now: &Rows) -> (Vec<ReplicatedRow>, Vec<String>) {
    let is_new = |(key, row): &(&String, &ReplicatedRow)| before.get(*key) != Some(*row);
    let rows = now.iter().filter(is_new).map(|(_, row)| row.clone()).collect();
    let removed = before.keys().filter(|key| !now.contains_key(*key)).cloned().collect();
    (rows, removed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::AclConfig;
    use caravan_messages::region::ReplicatedKind;
    use caravan_types::acl::{Secret, Token, TokenType};
    use caravan_types::admin::AdminChange;
    use caravan_types::command::Change;
    use caravan_types::namespace::NamespaceSpec;
    use futures::StreamExt as _;

    async fn namespace(core: &Core, name: &str) {
        let row = NamespaceSpec { name: name.into(), ..NamespaceSpec::default() };
        let index = core.commit(Change::Admin(AdminChange::NamespaceWrite(Box::new(row)))).await.unwrap();
        core.store.wait_for_index(index).await;
    }

    fn keys(part: &RowsPart) -> Vec<&str> {
        part.rows.iter().map(ReplicatedRow::key).collect()
    }

    #[tokio::test]
    async fn all_rows_come_first_and_then_the_changes() {
        let core = Core::in_memory().await;
        let admin = Admin::new(core.clone(), "a".into(), AclConfig::default(), None);
        namespace(&core, "one").await;
        let asked = FollowRows { kind: ReplicatedKind::Namespaces, token: Secret::default() };
        let mut parts = Box::pin(source(core.clone(), admin, asked));
        let mut next = async || parts.next().await.unwrap().unwrap();
        let first = next().await;
        assert!(first.full && !first.complete && keys(&first) == ["default", "one"], "{first:?}");
        let end = next().await;
        assert!(end.full && end.complete && end.rows.is_empty(), "{end:?}");
        namespace(&core, "two").await;
        let changed = next().await;
        assert!(!changed.full && keys(&changed) == ["two"], "{changed:?}");
        assert!(next().await.complete);
        let delete = AdminChange::NamespaceDelete { name: "one".into(), region: String::new() };
        core.commit(Change::Admin(delete)).await.unwrap();
        let removed = next().await;
        assert!(removed.complete && removed.removed == ["one"], "{removed:?}");
    }

    #[tokio::test]
    async fn rows_of_access_control_need_a_management_token_all_the_time() {
        let core = Core::in_memory().await;
        let on = AclConfig { enabled: true, ..AclConfig::default() };
        let admin = Admin::new(core.clone(), "a".into(), on, None);
        let asked = |token: &str| FollowRows { kind: ReplicatedKind::Policies, token: Secret::new(token) };
        let refusal = async |asked: FollowRows| {
            let mut parts = Box::pin(source(core.clone(), admin.clone(), asked));
            let error = parts.next().await.unwrap().unwrap_err();
            assert!(parts.next().await.is_none());
            error
        };
        assert!(refusal(asked("")).await.message.contains("no replication_token"));
        assert_eq!(refusal(asked("unknown")).await.code, Code::Permission);
        let token = Token {
            accessor_id: "acc".into(),
            secret_id: Secret::new("s3cret"),
            kind: TokenType::Management,
            ..Token::default()
        };
        let write = AdminChange::TokenWrite(Box::new(token));
        let index = core.commit(Change::Admin(write)).await.unwrap();
        core.store.wait_for_index(index).await;
        let mut parts = Box::pin(source(core.clone(), admin.clone(), asked("s3cret")));
        assert!(parts.next().await.unwrap().unwrap().complete);
        core.commit(Change::Admin(AdminChange::TokensDelete(vec!["acc".into()]))).await.unwrap();
        let error = parts.next().await.unwrap().unwrap_err();
        assert!(error.code == Code::Permission && !error.message.contains("s3cret"), "{error:?}");
    }
}
