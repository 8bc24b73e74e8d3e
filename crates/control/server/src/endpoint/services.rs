//! Service instances of allocations: reported by their nodes, deregistered by users.

use super::Nodes;
use super::fault::NodeFault;
use crate::error::ServerError;
use caravan_messages::{Done, ServiceSync};
use caravan_state::Root;
use caravan_types::command::Change;
use caravan_types::service::ServiceRegistration;
use caravan_types::{AllocId, Namespace, NodeId, ServiceId};
use std::collections::BTreeSet;

/// Returns the effect of a node's report: rows to write and rows to remove.
fn difference(
    root: &Root,
    node: &NodeId,
    alloc: &AllocId,
    reported: Vec<ServiceRegistration>,
) -> (Vec<ServiceRegistration>, Vec<ServiceId>) {
    // A node reports its own allocations only; reports about removed allocations have no effect.
    let Some(row) = root.alloc(alloc).filter(|row| row.node_id == *node) else { return Default::default() };
    let reported: Vec<ServiceRegistration> = reported
        .into_iter()
        .map(|service| ServiceRegistration {
            namespace: row.namespace.clone(),
            job_id: row.job_id.clone(),
            alloc_id: row.id.clone(),
            node_id: node.clone(),
            ..service
        })
        .collect();
    let named: BTreeSet<&ServiceId> = reported.iter().map(|service| &service.id).collect();
    let gone = root
        .services_by_alloc(alloc)
        .filter(|old| !named.contains(&old.id))
        .map(|old| old.id.clone())
        .collect();
    let fresh = reported
        .iter()
        .filter(|service| {
            let old = root.service(&service.id);
            // An allocation cannot take over a registration of another allocation.
            old.is_none_or(|old| old.alloc_id == *alloc && !old.same(service))
        })
        .cloned()
        .collect();
    (fresh, gone)
}

impl Nodes {
    /// Applies a node's report about the services of one of its allocations.
    pub(crate) async fn sync_services(&self, request: ServiceSync) -> Result<Done, ServerError> {
        self.authentic(&request.node_id, &request.secret)?;
        let root = self.core.snapshot();
        let (fresh, gone) = difference(&root, &request.node_id, &request.alloc_id, request.services);
        let mut index = root.index();
        if !gone.is_empty() {
            index = self.core.commit(Change::ServicesDeregister { services: gone, strict: false }).await?;
        }
        if !fresh.is_empty() {
            index = self.core.commit(Change::ServicesRegister { services: fresh }).await?;
        }
        Ok(Done { index })
    }

    /// Deregisters a service instance. Returns the index.
    ///
    /// # Errors
    /// If the service instance does not exist.
    pub async fn deregister_service(
        &self,
        namespace: &Namespace,
        name: &str,
        id: ServiceId,
    ) -> Result<u64, ServerError> {
        let root = self.core.snapshot();
        let found =
            root.service(&id).is_some_and(|row| row.namespace == *namespace && row.service_name == name);
        if !found {
            return Err(NodeFault::NoService.into());
        }
        let index = self.core.commit(Change::ServicesDeregister { services: vec![id], strict: true }).await?;
        self.core.store.wait_for_index(index).await;
        Ok(index)
    }
}
