//! A snapshot that records the reads of a query, so that the query can wait for changes of exactly the rows that it
//! read.

use crate::root::{Root, ScalingEvents, Table};
use crate::tenancy::AdminRow;
use crate::watch::Topic;
use caravan_types::acl::{AuthMethod, BindingRule, Policy, Role, Token};
use caravan_types::alloc::Allocation;
use caravan_types::command::JobSource;
use caravan_types::deployment::Deployment;
use caravan_types::eval::Evaluation;
use caravan_types::host_volume::HostVolume;
use caravan_types::job::{Job, JobSummary};
use caravan_types::namespace::NamespaceSpec;
use caravan_types::node::Node;
use caravan_types::node_pool::NodePool;
use caravan_types::operator::SchedulerConfig;
use caravan_types::plugin::Plugin;
use caravan_types::service::ServiceRegistration;
use caravan_types::variable::{Variable, VariableKey};
use caravan_types::volume::{Claim, Volume};
use caravan_types::{
    AllocId, DeploymentId, EvalId, HostVolumeId, JobKey, Namespace, NodeId, PluginId, VolumeKey,
};
use std::cell::RefCell;
use std::sync::Arc;

/// A snapshot that records the topics of its reads.
///
/// A row counts as read even if it does not exist: its creation is a change of the same topic. A query that lists a
/// table takes the rows from [`Reads::snapshot`]; [`Reads::table_index`] records the table.
#[derive(Debug)]
pub struct Reads<'a> {
    root: &'a Root,
    /// The recorded topics. There are few, so a search is faster than a tree and takes less memory.
    topics: RefCell<Vec<Topic>>,
}

/// Defines methods that record a topic and forward to [`Root`].
macro_rules! recorded {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty => $topic:expr;)+) => {$(
        #[doc = concat!("Records the topic and forwards to [`Root::", stringify!($name), "`].")]
        pub fn $name(&self, $($arg: $type),*) -> $out {
            self.record($topic);
            self.root.$name($($arg),*)
        }
    )+};
}

impl<'a> Reads<'a> {
    /// Starts to record the reads of a snapshot.
    pub fn new(root: &'a Root) -> Self {
        Self { root, topics: RefCell::default() }
    }

    /// Returns the recorded topics, sorted.
    pub fn into_topics(self) -> Vec<Topic> {
        let mut topics = self.topics.into_inner();
        topics.sort();
        topics
    }

    /// Returns the snapshot. Its reads are not recorded. Callers use it for the rows of a list, and for columns whose
    /// changes do not end a wait.
    pub fn snapshot(&self) -> &'a Root {
        self.root
    }

    /// Returns the index of a table's last change, and records the whole table.
    pub fn table_index(&self, table: Table) -> u64 {
        self.record(Topic::Table(table));
        self.root.table_index(table)
    }

    /// Returns the highest index of several tables, and records all of them.
    pub fn tables_index(&self, tables: &[Table]) -> u64 {
        tables.iter().map(|table| self.table_index(*table)).max().unwrap_or(0)
    }

    /// Returns the highest index of several tables for a query that reads only some of their rows. Only the rows that
    /// the query reads are recorded.
    pub fn part_index(&self, tables: &[Table]) -> u64 {
        self.root.tables_index(tables)
    }

    /// Records a topic, for a read that another component makes.
    pub fn record(&self, topic: Topic) {
        let mut topics = self.topics.borrow_mut();
        if !topics.contains(&topic) {
            topics.push(topic);
        }
    }

    recorded! {
        node(id: &NodeId) -> Option<&'a Arc<Node>> => Topic::Node(id.clone());
        job(key: &JobKey) -> Option<&'a Arc<Job>> => Topic::Job(key.clone());
        job_version(key: &JobKey, version: u64) -> Option<&'a Arc<Job>> => Topic::Job(key.clone());
        job_versions(key: &JobKey) -> impl DoubleEndedIterator<Item = &'a Arc<Job>> + use<'a> => Topic::Job(key.clone());
        submission(key: &JobKey, version: u64) -> Option<&'a Arc<JobSource>> => Topic::Job(key.clone());
        job_summary(key: &JobKey) -> Option<JobSummary> => Topic::Job(key.clone());
        scaling_events(key: &JobKey) -> Option<&'a Arc<ScalingEvents>> => Topic::Job(key.clone());
        eval(id: &EvalId) -> Option<&'a Arc<Evaluation>> => Topic::Eval(id.clone());
        evals_by_job(key: &JobKey) -> impl Iterator<Item = &'a Arc<Evaluation>> + use<'a> => Topic::EvalsOfJob(key.clone());
        alloc(id: &AllocId) -> Option<&'a Arc<Allocation>> => Topic::Alloc(id.clone());
        allocs_by_job(key: &JobKey) -> impl Iterator<Item = &'a Arc<Allocation>> + use<'a> => Topic::AllocsOfJob(key.clone());
        allocs_by_node(id: &NodeId) -> impl Iterator<Item = &'a Arc<Allocation>> + use<'a> => Topic::AllocsOfNode(id.clone());
        allocs_by_eval(id: &EvalId) -> impl Iterator<Item = &'a Arc<Allocation>> + use<'a> => Topic::AllocsOfEval(id.clone());
        deployment(id: &DeploymentId) -> Option<&'a Arc<Deployment>> => Topic::Deployment(id.clone());
        deployments_by_job(key: &JobKey) -> impl Iterator<Item = &'a Arc<Deployment>> + use<'a> => Topic::DeploymentsOfJob(key.clone());
        volume(key: &VolumeKey) -> Option<&'a Arc<Volume>> => Topic::Volume(key.clone());
        claims_of(key: &VolumeKey) -> impl Iterator<Item = &'a Arc<Claim>> + use<'a> => Topic::ClaimsOfVolume(key.clone());
        plugin(id: &PluginId) -> Option<&'a Arc<Plugin>> => Topic::Plugin(id.clone());
        host_volume(id: &HostVolumeId) -> Option<&'a Arc<HostVolume>> => Topic::HostVolume(id.clone());
        variable(key: &VariableKey) -> Option<&'a Arc<Variable>> => Topic::Variable(key.clone());
        services_by_name(namespace: &Namespace, name: &str) -> impl Iterator<Item = &'a Arc<ServiceRegistration>> + use<'a>
            => Topic::ServicesOfName(namespace.clone(), name.to_owned());
        services_by_alloc(id: &AllocId) -> impl Iterator<Item = &'a Arc<ServiceRegistration>> + use<'a>
            => Topic::ServicesOfAlloc(id.clone());
        services_by_job(key: &JobKey) -> impl Iterator<Item = &'a Arc<ServiceRegistration>> + use<'a>
            => Topic::ServicesOfJob(key.clone());
        namespace(name: &Namespace) -> Option<&'a Arc<NamespaceSpec>> => Topic::Admin(AdminRow::Namespace(name.clone()));
        node_pool(name: &str) -> Option<&'a Arc<NodePool>> => Topic::Admin(AdminRow::NodePool(name.to_owned()));
        acl_policy(name: &str) -> Option<&'a Arc<Policy>> => Topic::Admin(AdminRow::Policy(name.to_owned()));
        acl_token(accessor: &str) -> Option<&'a Arc<Token>> => Topic::Admin(AdminRow::Token(accessor.to_owned()));
        acl_role(id: &str) -> Option<&'a Arc<Role>> => Topic::Admin(AdminRow::Role(id.to_owned()));
        acl_role_named(name: &str) -> Option<&'a Arc<Role>> => Topic::Table(Table::AclRoles);
        auth_method(name: &str) -> Option<&'a Arc<AuthMethod>> => Topic::Admin(AdminRow::AuthMethod(name.to_owned()));
        binding_rule(id: &str) -> Option<&'a Arc<BindingRule>> => Topic::Admin(AdminRow::BindingRule(id.to_owned()));
        scheduler_config() -> &'a SchedulerConfig => Topic::Admin(AdminRow::Settings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(read: impl Fn(&Reads<'_>)) -> Vec<Topic> {
        let root = Root::default();
        let reads = Reads::new(&root);
        read(&reads);
        reads.into_topics()
    }

    #[test]
    fn a_row_that_does_not_exist_is_recorded() {
        let key = JobKey { namespace: "default".into(), id: "web".into() };
        assert_eq!(topics(|reads| assert!(reads.job(&key).is_none())), [Topic::Job(key.clone())]);
        let found = topics(|reads| assert_eq!(reads.allocs_by_job(&key).count(), 0));
        assert_eq!(found, [Topic::AllocsOfJob(key.clone())]);
    }

    #[test]
    fn an_index_records_the_table_unless_only_a_part_is_read() {
        let of_table = topics(|reads| assert_eq!(reads.tables_index(&[Table::Jobs, Table::Evals]), 0));
        assert_eq!(of_table, [Topic::Table(Table::Jobs), Topic::Table(Table::Evals)]);
        let of_part = topics(|reads| {
            reads.part_index(&[Table::Allocs]);
            reads.node(&NodeId::new("n"));
        });
        assert_eq!(of_part, [Topic::Node(NodeId::new("n"))]);
        assert!(topics(|reads| assert_eq!(reads.snapshot().nodes().count(), 0)).is_empty());
    }
}
