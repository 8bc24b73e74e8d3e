//! Services of allocations: decides which to register, reports them to the servers, and runs their checks.
//!
//! The wanted registrations follow from the allocation and the states of its tasks ([`wanted`], pure). One loop per
//! allocation compares them with those it reported, reports the difference, and keeps one [`looker`] per check.

mod address;
mod book;
mod looker;
mod probe;
mod wanted;

pub(crate) use book::CheckBook;
pub use book::ChecksSummary;
pub(crate) use wanted::{Inputs, Wanted, wanted};

use crate::clock::Backoff;
use crate::runner::AllocRunner;
use caravan_rpc::RpcError;
use caravan_types::service::ServiceRegistration;
use caravan_types::wire::ServiceSync;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use wanted::WantedCheck;

/// An allocation's state of its services.
#[derive(Debug)]
pub(crate) struct ServiceState {
    /// Results of checks.
    pub(crate) book: CheckBook,
    /// The newest change of the allocation whose services were reported to the servers.
    pub(crate) settled: watch::Sender<u64>,
    /// Grows when the servers may have lost the reported services.
    pub(crate) renew: watch::Sender<u64>,
}

impl Default for ServiceState {
    fn default() -> Self {
        Self { book: CheckBook::default(), settled: watch::Sender::new(0), renew: watch::Sender::new(0) }
    }
}

/// Keeps the services of an allocation registered and its checks running, for as long as it is polled.
pub(crate) async fn mind(alloc: AllocRunner) {
    let mut changes = alloc.changes();
    let mut renew = alloc.services().renew.subscribe();
    // The registrations of an earlier agent are unknown, so the first report contains all services.
    let mut told: Option<Vec<ServiceRegistration>> = None;
    let mut said: Vec<String> = Vec::new();
    let mut lookers = Lookers::default();
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
    loop {
        let seen = *changes.borrow_and_update();
        if renew.has_changed().unwrap_or(false) {
            renew.mark_unchanged();
            told = None;
        }
        let Wanted { services, checks, may_have, faults } = alloc.wanted_services();
        lookers.follow(&alloc, checks);
        if said != faults {
            said.clone_from(&faults);
            faults
                .iter()
                .for_each(|fault| tracing::warn!(alloc = %alloc.id(), fault, "a service is left out"));
        }
        let mut again = None;
        if told.is_none() && services.is_empty() && !may_have {
            told = Some(Vec::new());
        } else if told.as_ref() != Some(&services) {
            match tell(&alloc, services.clone()).await {
                Ok(()) => {
                    backoff.reset();
                    told = Some(services);
                }
                Err(error) => {
                    tracing::debug!(alloc = %alloc.id(), %error, "services wait for the servers");
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
            _ = renew.changed() => told = None,
            () = pause => {}
        }
    }
}

async fn tell(alloc: &AllocRunner, services: Vec<ServiceRegistration>) -> Result<(), RpcError> {
    let context = alloc.context();
    let request = ServiceSync {
        node_id: context.identity.node_id.clone(),
        secret: context.identity.secret.clone(),
        alloc_id: alloc.id(),
        services,
    };
    context.servers.sync_services(request).await.map(drop)
}

/// The running checks, by id.
#[derive(Debug, Default)]
struct Lookers {
    running: BTreeMap<String, (WantedCheck, AbortHandle)>,
    /// Aborts all of them when it is dropped.
    tasks: JoinSet<()>,
}

impl Lookers {
    fn follow(&mut self, alloc: &AllocRunner, wanted: BTreeMap<String, WantedCheck>) {
        let book = &alloc.services().book;
        self.running.retain(|id, (spec, handle)| {
            let stays = wanted.get(id) == Some(spec);
            if !stays {
                handle.abort();
            }
            stays
        });
        book.keep_only(wanted.keys());
        for (id, check) in wanted {
            if !self.running.contains_key(&id) {
                let handle = self.tasks.spawn(looker::look_after(alloc.clone(), id.clone(), check.clone()));
                self.running.insert(id, (check, handle));
            }
        }
    }
}
