//! The data that task templates read, sent again whenever it changes. A node requests it for a task of one of its
//! allocations, and the task's own rights decide.

use crate::acl::{Caller, NsCap, VarCap};
use crate::admin::Admin;
use crate::core::Core;
use crate::endpoint::TaskFault;
use crate::error::ServerError;
use caravan_rpc::RpcError;
use caravan_state::{Root, Table, Topic};
use caravan_types::lookup::{
    Found, Lookup, LookupsFound, ServiceStub, VariableFound, VariableStub, WatchLookups,
};
use caravan_types::variable::{VariableKey, VariableMetadata};
use futures::Stream;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of items that the templates of one task read.
const MAX_ITEMS: usize = 1000;

/// The endpoint for the data that templates read; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Lookups {
    pub(crate) core: Core,
    pub(crate) admin: Admin,
}

impl Lookups {
    /// Returns a stream of all requested data, then of its changes. The stream ends with an error when the allocation
    /// ends.
    pub(crate) fn watch(
        &self,
        request: WatchLookups,
    ) -> Result<impl Stream<Item = Result<LookupsFound, RpcError>> + Send + use<>, ServerError> {
        if request.lookups.len() > MAX_ITEMS {
            return Err(TaskFault::ManyLookups { task: request.task, max: MAX_ITEMS }.into());
        }
        let follow = Follow { lookups: self.clone(), request, sent: BTreeMap::new(), over: false };
        Ok(futures::stream::unfold(follow, |mut follow| async move {
            let next = follow.next().await?;
            Some((next, follow))
        }))
    }
}

struct Follow {
    lookups: Lookups,
    request: WatchLookups,
    sent: BTreeMap<Lookup, Found>,
    over: bool,
}

impl Follow {
    async fn next(&mut self) -> Option<Result<LookupsFound, RpcError>> {
        if self.over {
            return None;
        }
        let core = self.lookups.core.clone();
        loop {
            let watch = core.store.watch().on(Topic::Alloc(self.request.alloc_id.clone()));
            // The rights of the task may change too.
            let watch = watch.table(Table::AclPolicies);
            let mut watch =
                self.request.lookups.iter().fold(watch, |watch, lookup| watch.on(topic(lookup))).start();
            let root = core.snapshot();
            let caller = match self.caller(&root) {
                Ok(caller) => caller,
                Err(error) => {
                    self.over = true;
                    return Some(Err(ServerError::from(error).into()));
                }
            };
            let look = |lookup: &Lookup| (lookup.clone(), find(&core, &root, &caller, lookup));
            let first = self.sent.is_empty();
            let news: Vec<(Lookup, Found)> = self
                .request
                .lookups
                .iter()
                .map(look)
                .filter(|(lookup, found)| self.sent.get(lookup) != Some(found))
                .collect();
            drop(root);
            if first || !news.is_empty() {
                self.sent.extend(news.iter().cloned());
                return Some(Ok(LookupsFound { found: news }));
            }
            watch.changed().await;
        }
    }

    /// Returns the task with its rights.
    fn caller(&self, root: &Root) -> Result<Caller, TaskFault> {
        let WatchLookups { node_id, alloc_id, task, .. } = &self.request;
        let alloc = root.alloc(alloc_id).filter(|alloc| alloc.node_id == *node_id);
        let alloc = alloc.ok_or(TaskFault::NoAlloc)?;
        if alloc.client_terminal() {
            return Err(TaskFault::Over);
        }
        if alloc.group().and_then(|group| group.task(task)).is_none() {
            return Err(TaskFault::NoTask(task.clone()));
        }
        Ok(self.lookups.admin.task(root, alloc, task))
    }
}

fn topic(lookup: &Lookup) -> Topic {
    match lookup {
        Lookup::Variable { namespace, path } => {
            Topic::Variable(VariableKey::new(namespace.clone(), path.clone()))
        }
        Lookup::Variables { .. } => Topic::Table(Table::Variables),
        Lookup::Service { namespace, name } => Topic::ServicesOfName(namespace.clone(), name.clone()),
        Lookup::Services { .. } => Topic::Table(Table::Services),
    }
}

fn find(core: &Core, root: &Root, caller: &Caller, lookup: &Lookup) -> Found {
    let denied = || Found::Denied("Permission denied".to_owned());
    // A task may read the services of its own namespace without a policy.
    let sees = |namespace: &str| {
        let own = caller.claims.as_ref().is_some_and(|workload| workload.claims.namespace == namespace);
        own || caller.may(namespace, NsCap::ReadJob)
    };
    match lookup {
        Lookup::Variable { namespace, path } => {
            if !caller.variable(namespace.as_str(), path, VarCap::Read) {
                return denied();
            }
            let row = root.variable(&VariableKey::new(namespace.clone(), path.clone()));
            match row.map(|row| core.open_variable(row)).transpose() {
                Ok(opened) => Found::Variable(opened.map(|opened| {
                    Box::new(VariableFound { stub: stub(opened.metadata), items: opened.items })
                })),
                Err(error) => Found::Denied(error.to_string()),
            }
        }
        Lookup::Variables { namespace, prefix } => {
            let rows = root.variables_with_prefix(Some(namespace), prefix);
            let seen =
                rows.filter(|row| caller.variable(namespace.as_str(), row.key.path.as_str(), VarCap::List));
            Found::Variables(seen.map(|row| stub(row.metadata())).collect())
        }
        Lookup::Service { namespace, name } if sees(namespace.as_str()) => {
            Found::Service(root.services_by_name(namespace, name).map(|row| (**row).clone()).collect())
        }
        Lookup::Services { namespace } if sees(namespace.as_str()) => {
            let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
            for row in root.services().filter(|row| row.namespace == *namespace) {
                names.entry(&row.service_name).or_default().extend(row.tags.iter().map(String::as_str));
            }
            let of = |(name, tags): (&str, BTreeSet<&str>)| ServiceStub {
                name: name.to_owned(),
                tags: tags.into_iter().map(str::to_owned).collect(),
            };
            Found::Services(names.into_iter().map(of).collect())
        }
        Lookup::Service { .. } | Lookup::Services { .. } => denied(),
    }
}

fn stub(metadata: VariableMetadata) -> VariableStub {
    VariableStub {
        namespace: metadata.namespace,
        path: metadata.path,
        create_index: metadata.create_index,
        modify_index: metadata.modify_index,
        create_time: metadata.create_time,
        modify_time: metadata.modify_time,
    }
}
