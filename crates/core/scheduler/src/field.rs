//! The candidate nodes of a job.

use crate::feasible;
use crate::view::View;
use caravan_types::job::Job;
use caravan_types::node::Node;
use caravan_types::small::Map;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// The counts of the candidate nodes of a job, and of the other nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Census {
    pub pool: String,
    pub in_pool: u32,
    pub by_datacenter: Map<String, u32>,
    /// The nodes in the pool and datacenters that accept no new allocations, by their state.
    pub away: BTreeMap<&'static str, u32>,
}

/// The nodes in the job's pool and datacenters that accept allocations.
#[derive(Debug, Default)]
pub(crate) struct Field {
    /// The candidate nodes, sorted by id.
    pub nodes: Vec<Arc<Node>>,
    /// The number of each node's computed class; `None` for nodes without a class.
    pub classes: Vec<Option<usize>>,
    /// The number of classes.
    pub class_count: usize,
    pub census: Census,
}

/// A cache of candidate nodes for later evaluations. As long as no node changes, jobs of the same pool and
/// datacenters have the same candidates.
#[derive(Debug, Default)]
pub struct Memory {
    /// The [`View::nodes_index`] to which the cache applies.
    index: Option<u64>,
    /// The cached candidates, by node pool and datacenters.
    fields: Vec<(String, Vec<String>, Arc<Field>)>,
}

impl Memory {
    /// The maximum number of entries; jobs use few combinations of pool and datacenters.
    const MAX_ENTRIES: usize = 8;

    pub(crate) fn field<V: View>(&mut self, view: &V, job: &Job) -> Arc<Field> {
        let index = view.nodes_index();
        if index.is_none() || index != self.index {
            self.fields.clear();
            self.index = index;
        }
        let same = |(pool, datacenters, _): &&(String, Vec<String>, Arc<Field>)| {
            *pool == job.node_pool && *datacenters == job.datacenters
        };
        if let Some((.., field)) = self.fields.iter().find(same) {
            return Arc::clone(field);
        }
        let field = Arc::new(Field::collect(view, job));
        if self.fields.len() >= Self::MAX_ENTRIES {
            self.fields.remove(0);
        }
        self.fields.push((job.node_pool.clone(), job.datacenters.clone(), Arc::clone(&field)));
        field
    }
}

/// The properties that all nodes of a class share.
struct Class {
    number: usize,
    in_pool: bool,
    in_datacenters: bool,
    /// The number of nodes that accept allocations.
    ready: u32,
    datacenter: String,
}

/// A hasher with FNV-1a. The keys are short, and no user can choose them to collide.
#[derive(Default)]
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Field {
    /// Reads all nodes once. Pool and datacenter are part of a class, so they are checked once for each class.
    pub fn collect<V: View>(view: &V, job: &Job) -> Self {
        let pool = if job.node_pool.is_empty() { "default".to_owned() } else { job.node_pool.clone() };
        let mut field = Self { census: Census { pool, ..Census::default() }, ..Self::default() };
        let mut known: HashMap<&str, Class, BuildHasherDefault<Fnv>> = HashMap::default();
        // Each node without a class is a separate class.
        let mut alone: Vec<Class> = Vec::new();
        for node in view.nodes() {
            let fresh = |number| Class {
                number,
                in_pool: feasible::in_pool(job, node),
                in_datacenters: feasible::in_datacenters(job, node),
                ready: 0,
                datacenter: node.datacenter.clone(),
            };
            let class = if node.computed_class.is_empty() {
                alone.push(fresh(usize::MAX));
                alone.last_mut()
            } else {
                let next = known.len();
                Some(known.entry(&node.computed_class).or_insert_with(|| fresh(next)))
            };
            let Some(class) = class.filter(|class| class.in_pool) else { continue };
            match node.away() {
                Some(away) if class.in_datacenters => *field.census.away.entry(away).or_default() += 1,
                Some(_) => {}
                None => {
                    class.ready += 1;
                    if class.in_datacenters {
                        field.nodes.push(Arc::clone(node));
                        field.classes.push((class.number != usize::MAX).then_some(class.number));
                    }
                }
            }
        }
        field.class_count = known.len();
        for class in known.into_values().chain(alone) {
            field.census.in_pool += class.ready;
            if class.in_datacenters && class.ready > 0 {
                *field.census.by_datacenter.or_default(class.datacenter) += class.ready;
            }
        }
        field.sort();
        field
    }

    /// Sorts the nodes by id. Most views return nodes in this order already.
    fn sort(&mut self) {
        if self.nodes.is_sorted_by(|a, b| a.id < b.id) {
            return;
        }
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by(|a, b| self.nodes[*a].id.cmp(&self.nodes[*b].id));
        self.classes = order.iter().map(|at| self.classes[*at]).collect();
        self.nodes = order.iter().map(|at| Arc::clone(&self.nodes[*at])).collect();
    }
}
