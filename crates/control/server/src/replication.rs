//! The replication between regions (docs/reference/cluster.md, section 13). Each region reads policies, roles, global
//! tokens, auth methods, binding rules, namespaces and node pools from the authoritative region.
//!
//! The leader of the authoritative region answers with all rows of a kind, then with the changes ([`source`]). At
//! each connection, the leader of another region compares all rows with its own. Therefore an interrupted replication
//! resumes without a record of its progress. [`plan`] decides what to write; it is pure.

mod plan;
mod rows;
mod source;
mod status;

pub use status::{ReplicationState, ReplicationStatus};

pub(crate) use source::source;
pub(crate) use status::StatusBook;

use crate::cluster::Cluster;
use crate::core::Core;
use crate::error::ServerError;
use crate::runtime::{self, select};
use caravan_members::{Member, View};
use caravan_messages::region::{FollowRows, ReplicatedKind, ReplicatedRow, RowsPart};
use caravan_rpc::methods;
use caravan_types::admin::AdminChange;
use caravan_types::command::Change;
use futures::StreamExt as _;
use plan::{Update, plan};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The pause after the first failure in a row.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The maximum of the pause, which doubles with each failure in a row, as in Nomad.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// The maximum number of writes in progress.
const MAX_WRITES: usize = 32;

/// The reason that a kind is not replicated at the moment.
#[derive(Debug)]
enum Fault {
    /// The authoritative region does not respond, or refuses.
    Region(String),
    /// Rows could not be written; the text names one of them.
    Rows { refused: usize, first: String },
    /// The log could not be written.
    Write(ServerError),
    /// A snapshot replaced the own state, so all rows must be compared again.
    Restored,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Region(reason) => f.write_str(reason),
            Self::Rows { refused: 1, first } => f.write_str(first),
            Self::Rows { refused, first } => write!(f, "{refused} rows were refused; the first one: {first}"),
            Self::Write(error) => error.fmt(f),
            Self::Restored => {
                f.write_str("the state was restored from a snapshot: all rows are compared again")
            }
        }
    }
}

/// The service that replicates from the authoritative region, during one leader term of another region.
#[derive(Clone, Debug)]
pub(crate) struct Replication {
    core: Core,
    cluster: Cluster,
    /// Whether access control is enabled.
    acl: bool,
}

impl Replication {
    pub(crate) fn new(core: Core, cluster: Cluster, acl: bool) -> Self {
        Self { core, cluster, acl }
    }

    /// Replicates until cancelled. Returns immediately in the authoritative region.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        self.cluster.replication.clear();
        let from = self.cluster.authoritative().to_owned();
        if from == *self.cluster.region {
            return;
        }
        if self.acl && self.cluster.config.replication.token.is_empty() {
            tracing::warn!(
                authoritative_region = from,
                "access control is enabled and acl.replication_token is not set: policies, roles and tokens cannot be \
                 replicated"
            );
        }
        let tracker = TaskTracker::new();
        for kind in ReplicatedKind::ALL {
            if self.acl || !kind.is_access_control() {
                self.cluster.replication.begin(kind);
                runtime::spawn_in(&tracker, self.clone().kind(from.clone(), kind, cancel.clone()));
            }
        }
        tracker.close();
        tracker.wait().await;
        self.cluster.replication.clear();
    }

    /// Replicates one kind until cancelled.
    async fn kind(self, from: String, kind: ReplicatedKind, cancel: CancellationToken) {
        let mut pause = FIRST_PAUSE;
        loop {
            let before = self.cluster.replication.successes(kind);
            let fault = select! {
                () = cancel.cancelled() => return,
                fault = self.follow(&from, kind) => fault,
            };
            if self.cluster.replication.successes(kind) > before {
                pause = FIRST_PAUSE;
            }
            let reason = fault.to_string();
            if self.cluster.replication.failed(kind, &reason) {
                tracing::warn!(authoritative_region = from, %kind, reason, "rows could not be replicated");
            }
            select! {
                () = cancel.cancelled() => return,
                () = runtime::sleep(pause.mul_f64(0.5 + runtime::random_share() / 2.0)) => {}
                () = self.appears(&from) => {}
            }
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Waits until the member table has an alive server of a region. Never returns if it has one at the beginning.
    async fn appears(&self, region: &str) {
        let mut view = self.cluster.config.directory.changes();
        let is_there = |view: &View| view.in_region(region).any(Member::is_alive);
        let is_known = is_there(&view.borrow_and_update());
        // The member table lives as long as the agent.
        if is_known || view.wait_for(|view| is_there(view)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Follows the rows of a kind until a failure, and returns the failure.
    async fn follow(&self, from: &str, kind: ReplicatedKind) -> Fault {
        // The number is read before the first row is compared, so that a later restore is not missed.
        let restores = self.core.store.restores();
        let channel = match self.cluster.reach(from).await {
            Ok(channel) => channel,
            Err(fault) => return Fault::Region(fault.to_string()),
        };
        let token = match kind.is_access_control() || self.acl {
            true => self.cluster.config.replication.token.clone(),
            false => Default::default(),
        };
        let mut parts = channel.stream::<methods::FollowRows>(FollowRows { kind, token });
        let mut update = Update::default();
        loop {
            let part = select! {
                part = parts.next() => part,
                () = self.core.store.replaced(restores) => return Fault::Restored,
            };
            let Some(part) = part else { break };
            let part: RowsPart = match part {
                Ok(part) => part,
                Err(error) => return Fault::Region(error.message),
            };
            let (index, is_complete) = (part.index, part.complete);
            update.add(part);
            if !is_complete {
                continue;
            }
            if let Err(fault) = self.write(kind, std::mem::take(&mut update)).await {
                return fault;
            }
            let rows = rows::list(&self.core.snapshot(), kind).len();
            self.cluster.replication.succeeded(kind, index, rows, self.core.now());
        }
        Fault::Region(format!("region \"{from}\" ended the answer"))
    }

    /// Writes an update, as far as the state permits it.
    async fn write(&self, kind: ReplicatedKind, update: Update) -> Result<(), Fault> {
        let root = self.core.snapshot();
        let mut changes = plan(kind, &rows::list(&root, kind), update);
        // A node creates its pool, which stays while nodes or jobs use it.
        changes.retain(|change| match change {
            AdminChange::NodePoolDelete { name, .. } => !rows::uses_pool(&root, name),
            _ => true,
        });
        if changes.is_empty() {
            return Ok(());
        }
        let (mut newest, mut refused, mut first) = (0, 0, String::new());
        let writes = changes.into_iter().map(|change| self.core.propose(Change::Admin(change)));
        let mut writes = futures::stream::iter(writes).buffer_unordered(MAX_WRITES);
        while let Some(written) = writes.next().await {
            let outcome = written.map_err(Fault::Write)?;
            newest = newest.max(outcome.index);
            if let Some(refusal) = outcome.refused {
                refused += 1;
                first = refusal.to_string();
            }
        }
        self.core.store.wait_for_index(newest).await;
        if refused > 0 { Err(Fault::Rows { refused, first }) } else { Ok(()) }
    }
}

/// Returns the keys of rows.
fn keys<'a>(rows: impl IntoIterator<Item = &'a ReplicatedRow>) -> BTreeSet<&'a str> {
    rows.into_iter().map(ReplicatedRow::key).collect()
}
