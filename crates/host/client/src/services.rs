//! Services of allocations: their registration, the reports to the servers, and the runs of their checks.
//!
//! The desired registrations follow from the allocation and the states of its tasks ([`desired`], pure). One loop per
//! allocation compares them with the reported ones, reports the difference, and keeps one [`looker`] per check.

mod address;
mod book;
mod desired;
mod looker;
mod probe;

pub(crate) use book::CheckBook;
pub use book::ChecksSummary;
pub(crate) use desired::{Desired, Inputs, desired};

use crate::clock::Backoff;
use crate::runner::{AllocState, Planner};
use crate::servers::Link;
use caravan_messages::ServiceSync;
use caravan_rpc::RpcError;
use caravan_types::service::ServiceRegistration;
use desired::DesiredCheck;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// An allocation's state of its services.
#[derive(Debug)]
pub(crate) struct ServiceState {
    /// Results of checks.
    pub(crate) book: CheckBook,
    /// The newest change of the allocation whose services were reported to the servers.
    pub(crate) settled: watch::Sender<u64>,
    /// A counter that grows when the servers may have lost the reported services.
    pub(crate) renew: watch::Sender<u64>,
}

impl Default for ServiceState {
    fn default() -> Self {
        Self { book: CheckBook::default(), settled: watch::Sender::new(0), renew: watch::Sender::new(0) }
    }
}

/// Keeps the services of an allocation registered and its checks running while the returned future is polled.
pub(crate) async fn mind(alloc: AllocState, planner: Arc<Planner>, link: Link) {
    let mut changes = alloc.changes();
    let mut renew = alloc.services().renew.subscribe();
    // The registrations of an earlier agent are unknown, so the first report contains all services.
    let mut reported: Option<Vec<ServiceRegistration>> = None;
    let mut reported_faults: Vec<String> = Vec::new();
    let mut lookers = Lookers::default();
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
    loop {
        let seen = *changes.borrow_and_update();
        if renew.has_changed().unwrap_or(false) {
            renew.mark_unchanged();
            reported = None;
        }
        let Desired { services, checks, may_have, faults } = planner.desired_services(&alloc);
        lookers.follow(&alloc, &planner, checks);
        if reported_faults != faults {
            reported_faults.clone_from(&faults);
            faults
                .iter()
                .for_each(|fault| tracing::warn!(alloc = %alloc.id(), fault, "a service is not registered"));
        }
        let mut again = None;
        if reported.is_none() && services.is_empty() && !may_have {
            reported = Some(Vec::new());
        } else if reported.as_ref() != Some(&services) {
            match tell(&link, &alloc, services.clone()).await {
                Ok(()) => {
                    backoff.reset();
                    reported = Some(services);
                }
                Err(error) => {
                    tracing::debug!(alloc = %alloc.id(), %error, "services cannot be reported; retrying");
                    again = Some(backoff.delay());
                }
            }
        }
        if again.is_none() {
            alloc.services().settled.send_replace(seen);
        }
        let pause = async {
            match again {
                Some(delay) => tokio::time::sleep(delay).await,
                None => std::future::pending().await,
            }
        };
        // The allocation owns both senders, and this task holds the allocation.
        tokio::select! {
            _ = changes.changed() => {}
            _ = renew.changed() => reported = None,
            () = pause => {}
        }
    }
}

async fn tell(link: &Link, alloc: &AllocState, services: Vec<ServiceRegistration>) -> Result<(), RpcError> {
    let request = ServiceSync {
        node_id: link.identity.node_id.clone(),
        secret: link.identity.secret.clone(),
        alloc_id: alloc.id(),
        services,
    };
    link.servers.sync_services(request).await.map(drop)
}

/// The running checks, by id.
#[derive(Debug, Default)]
struct Lookers {
    running: BTreeMap<String, (DesiredCheck, AbortHandle)>,
    /// The tasks of the checks, which are aborted when the set is dropped.
    tasks: JoinSet<()>,
}

impl Lookers {
    fn follow(
        &mut self,
        alloc: &AllocState,
        planner: &Arc<Planner>,
        desired: BTreeMap<String, DesiredCheck>,
    ) {
        let book = &alloc.services().book;
        self.running.retain(|id, (spec, handle)| {
            let stays = desired.get(id) == Some(spec);
            if !stays {
                handle.abort();
            }
            stays
        });
        book.keep_only(desired.keys());
        for (id, check) in desired {
            if !self.running.contains_key(&id) {
                let handle = self.tasks.spawn(looker::look_after(
                    alloc.clone(),
                    Arc::clone(planner),
                    id.clone(),
                    check.clone(),
                ));
                self.running.insert(id, (check, handle));
            }
        }
    }
}
