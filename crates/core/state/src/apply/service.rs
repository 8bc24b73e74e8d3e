//! Commands about registered services. A registration is removed with its allocation or its node.

use super::Done;
use crate::tx::Tx;
use caravan_types::command::Refusal;
use caravan_types::service::ServiceRegistration;
use caravan_types::{AllocId, NodeId, ServiceId};

impl Tx {
    /// Writes registrations. Registrations of ended or removed allocations are skipped: the report was sent before
    /// the end.
    pub(super) fn services_register(&mut self, services: &[ServiceRegistration]) {
        for row in services {
            let live = self.root.alloc(&row.alloc_id).is_some_and(|alloc| !alloc.client_terminal());
            let known = self.root.service(&row.id).is_some_and(|old| old.same(row));
            if live && !known {
                self.put_service(row.clone());
            }
        }
    }

    /// Removes registrations; `strict` refuses ids that do not exist.
    pub(super) fn services_deregister(&mut self, ids: &[ServiceId], strict: bool) -> Done {
        for id in ids {
            if strict && self.root.service(id).is_none() {
                return Err(Refusal::Invalid("service registration not found".to_owned()));
            }
            self.remove_service(id);
        }
        Ok(())
    }
}

impl Tx {
    pub(crate) fn remove_services_of_alloc(&mut self, alloc: &AllocId) {
        let ids: Vec<ServiceId> = self.root.services_by_alloc(alloc).map(|row| row.id.clone()).collect();
        ids.iter().for_each(|id| self.remove_service(id));
    }

    pub(crate) fn remove_services_of_node(&mut self, node: &NodeId) {
        let ids: Vec<ServiceId> = self.root.services_by_node(node).map(|row| row.id.clone()).collect();
        ids.iter().for_each(|id| self.remove_service(id));
    }
}
