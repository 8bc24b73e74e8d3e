//! Rights that end while an answer is still being sent: a token is deleted, expires, or loses a policy.
//!
//! A long answer is checked again whenever its caller's rights may have changed. It ends when the caller
//! no longer has them.

use super::{check_again, may_exec};
use crate::call::Call;
use crate::error::ApiError;
use caravan_messages::ExecOpen;
use caravan_server::{Caller, Handle};
use caravan_state::{AdminRow, Table, Topic};
use caravan_types::UnixNanos;
use std::time::Duration;
use tokio::time::Instant;

/// The longest sleep before a token's expiration is checked again, because the wall clock may be set meanwhile.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// Returns the rows that determine a caller's rights.
fn topics(caller: &Caller) -> Vec<Topic> {
    let mut topics = vec![Topic::Table(Table::AclPolicies), Topic::Table(Table::AclRoles)];
    topics.extend(
        caller
            .token
            .iter()
            .filter(|token| !token.secret_id.is_empty())
            .map(|token| Topic::Admin(AdminRow::Token(token.accessor_id.clone()))),
    );
    topics.extend(
        caller.claims.iter().map(|workload| Topic::Alloc(workload.claims.allocation_id.as_str().into())),
    );
    topics
}

/// Returns the time at which the rights of a caller must be checked again although no row changed.
fn again_at(caller: &Caller) -> Option<Instant> {
    let ends = caller.ends()?;
    let now = UnixNanos(caravan_sys::time::wall_nanos());
    let left = Duration::from_nanos(u64::try_from(ends.0.saturating_sub(now.0)).unwrap_or(0));
    Some(Instant::now() + left.min(MAX_SLEEP))
}

/// Waits until `at`, or forever without it.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// A watch of everything that determines a caller's rights. Check the rights after the start of the watch, so
/// that no change is missed.
pub(crate) struct Watched {
    watch: caravan_state::Watch,
    again: Option<Instant>,
}

impl Watched {
    /// Waits for the next change.
    pub(crate) async fn changed(&mut self) {
        tokio::select! {
            () = self.watch.changed() => {}
            () = sleep_until(self.again) => {}
        }
    }
}

/// Starts to watch the rights of a caller.
pub(crate) fn watched(server: &Handle, caller: &Caller) -> Watched {
    let watch = topics(caller).into_iter().fold(server.store().watch(), |watch, topic| watch.on(topic));
    Watched { watch: watch.start(), again: again_at(caller) }
}

/// Waits until the caller of a request loses the right to the request. Returns the refusal; never returns while
/// access control is off.
pub(crate) async fn lost(call: &Call, server: &Handle) -> ApiError {
    if !server.admin().acl_enabled() {
        return std::future::pending().await;
    }
    loop {
        let mut watched = watched(server, &call.caller.load());
        if let Err(error) = check_again(call, server, &server.store().snapshot()) {
            return error;
        }
        watched.changed().await;
    }
}

/// Waits as [`lost`] does, for a command that another agent opened for a caller.
pub(crate) async fn exec_lost(server: &Handle, open: &ExecOpen) -> ApiError {
    if !server.admin().acl_enabled() {
        return std::future::pending().await;
    }
    loop {
        let Ok(caller) = server.admin().caller(open.secret.expose()) else { return super::denied() };
        let mut watched = watched(server, &caller);
        if let Err(error) = may_exec(server, open) {
            return error;
        }
        watched.changed().await;
    }
}
