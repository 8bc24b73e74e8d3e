//! The objects that task templates read from servers: variables and services (docs/reference/jobspec.md, section
//! 4.8).
//!
//! A client requests a set of [`Lookup`]s with [`WatchLookups`] and receives a [`Found`] for each, and another one
//! whenever an object changes.

use crate::id::{AllocId, Namespace, NodeId};
use crate::node::NodeSecret;
use crate::ser::Secrets;
use crate::service::ServiceRegistration;
use crate::time::UnixNanos;
use serde::{Deserialize, Serialize};

/// An object that a template reads from the servers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Lookup {
    /// A variable.
    Variable {
        /// The namespace of the variable.
        namespace: Namespace,
        /// The path of the variable.
        path: String,
    },
    /// The variables whose paths begin with a text, without their items.
    Variables {
        /// The namespace of the variables.
        namespace: Namespace,
        /// The text with which the paths begin.
        prefix: String,
    },
    /// The registrations of a service.
    Service {
        /// The namespace of the service.
        namespace: Namespace,
        /// The name of the service.
        name: String,
    },
    /// The names of all services.
    Services {
        /// The namespace of the services.
        namespace: Namespace,
    },
}

impl Lookup {
    /// Returns the name of the lookup in task events. A variable appears as `nomad.var.block`.
    #[must_use]
    pub fn describe(&self, region: &str) -> String {
        match self {
            Self::Variable { namespace, path } => format!("nomad.var.block({path}@{namespace}.{region})"),
            Self::Variables { namespace, prefix } => {
                format!("nomad.var.list({prefix}@{namespace}.{region})")
            }
            Self::Service { name, .. } => format!("nomad.service({name})"),
            Self::Services { .. } => "nomad.services".to_owned(),
        }
    }
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Found {
    /// The variable, or `None` if it does not exist.
    Variable(Option<Box<VariableFound>>),
    /// The variables, ordered by path.
    Variables(Vec<VariableStub>),
    /// The registrations of the service, ordered by id.
    Service(Vec<ServiceRegistration>),
    /// The services, ordered by name.
    Services(Vec<ServiceStub>),
    /// The reason why the task may not read the object, or why the read fails at present.
    Denied(String),
}

/// A variable with its items. `Debug` shows only the names of the items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VariableFound {
    /// The metadata of the variable.
    pub stub: VariableStub,
    /// The items, by name.
    pub items: Secrets,
}

/// A variable without its items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VariableStub {
    /// The namespace of the variable.
    pub namespace: Namespace,
    /// The path of the variable.
    pub path: String,
    /// The Raft index at which the variable was created.
    pub create_index: u64,
    /// The Raft index of the last change of the variable.
    pub modify_index: u64,
    /// The time at which the variable was created.
    pub create_time: UnixNanos,
    /// The time of the last change of the variable.
    pub modify_time: UnixNanos,
}

/// A service without its registrations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceStub {
    /// The name of the service.
    pub name: String,
    /// The tags of all its registrations, sorted.
    pub tags: Vec<String>,
}

/// The request of a client to watch the objects that the templates of a task read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WatchLookups {
    /// The node that sends the request.
    pub node_id: NodeId,
    /// The secret that authenticates the node.
    pub secret: NodeSecret,
    /// The allocation of the task.
    pub alloc_id: AllocId,
    /// The name of the task. Its permissions decide which objects are returned.
    pub task: String,
    /// The lookups of the task's templates.
    pub lookups: Vec<Lookup>,
}

/// The results of watched lookups: all of them in the first message, then only the changed ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookupsFound {
    /// Each lookup with its result.
    pub found: Vec<(Lookup, Found)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn lookups_have_the_names_of_the_reference() {
        let namespace = Namespace::from("default");
        let reported = |lookup: Lookup| lookup.describe("global");
        assert_eq!(
            reported(Lookup::Variable { namespace: namespace.clone(), path: "nomad/jobs/web".into() }),
            "nomad.var.block(nomad/jobs/web@default.global)"
        );
        assert_eq!(
            reported(Lookup::Variables { namespace: namespace.clone(), prefix: "a".into() }),
            "nomad.var.list(a@default.global)"
        );
        assert_eq!(
            reported(Lookup::Service { namespace: namespace.clone(), name: "db".into() }),
            "nomad.service(db)"
        );
        assert_eq!(reported(Lookup::Services { namespace }), "nomad.services");
    }

    #[test]
    fn items_travel_and_do_not_print() {
        let items = Secrets::new(BTreeMap::from([("password".into(), "hunter2".into())]));
        let found = Found::Variable(Some(Box::new(VariableFound { items, ..VariableFound::default() })));
        assert!(!format!("{found:?}").contains("hunter2"));
        let text = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<Found>(&text).unwrap(), found);
    }
}
