//! How fast evaluations are decided: the clusters of the reference's own benchmark.
//!
//! Nodes lie in 25 racks; the job may use every other one, and is, or is not, spread over them.

use crate::cluster::{Cluster, job, node};
use caravan_types::command::Refusal;
use caravan_types::job::{Constraint, Job, JobType, Spread};
use std::hint::black_box;
use std::time::Instant;

const RACKS: usize = 25;
const ROUNDS: u64 = 21;

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Nodes, allocations, and what else is asked for.
    pub case: String,
    /// Milliseconds for one decision on one thread: the middle of several.
    pub millis: f64,
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The state refuses the cluster.
    #[error("the cluster of the bench cannot be made: {0:?}")]
    Refused(Refusal),
    /// A figure would say nothing.
    #[error("{0} of {1} allocations were placed")]
    NotPlaced(usize, u32),
}

/// A cluster of so many nodes in racks.
///
/// # Errors
/// When the state refuses it.
pub fn cluster(nodes: usize) -> Result<Cluster, BenchError> {
    let mut cluster = Cluster::new();
    for n in 0..nodes {
        let rack = n % RACKS;
        let mut made = node(&format!("{n:08x}-0000-4000-8000-{n:012x}"));
        made.meta.insert("rack".into(), format!("r{rack}"));
        cluster.add_node(made).map_err(BenchError::Refused)?;
    }
    Ok(cluster)
}

/// A job of so many allocations for every other rack.
pub fn racked(count: u32, spread: bool) -> Job {
    let mut job = job("bench", JobType::Service, count);
    let racks: Vec<String> = (0..RACKS).step_by(2).map(|rack| format!("r{rack}")).collect();
    job.constraints.push(Constraint {
        l_target: "${meta.rack}".into(),
        operand: "set_contains_any".into(),
        r_target: racks.join(","),
    });
    if spread {
        let spread = Spread { attribute: "${meta.rack}".into(), weight: 100, spread_target: Vec::new() };
        job.spreads.push(spread);
    }
    job
}

/// Measures one case.
///
/// # Errors
/// When the cluster cannot be made, or not everything is placed.
pub fn measure(cluster: &Cluster, nodes: usize, count: u32, spread: bool) -> Result<Figure, BenchError> {
    let mut cluster = cluster.clone();
    let eval = cluster.register(racked(count, spread)).map_err(BenchError::Refused)?;
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let begun = Instant::now();
        let decision = black_box(cluster.decide(&eval, round));
        times.push(begun.elapsed().as_secs_f64() * 1000.0);
        let placed: usize = decision.plan.placements.values().map(Vec::len).sum();
        if u32::try_from(placed) != Ok(count) {
            return Err(BenchError::NotPlaced(placed, count));
        }
    }
    times.sort_by(f64::total_cmp);
    let case = format!("{nodes}/{count}{}", if spread { "/spread" } else { "" });
    Ok(Figure { case, millis: times[times.len() / 2] })
}

/// Measures all cases, telling each figure as it comes.
///
/// # Errors
/// As [`measure`].
pub fn scheduler(mut tell: impl FnMut(&Figure)) -> Result<(), BenchError> {
    for (nodes, counts) in [(1000, &[300, 600][..]), (5000, &[300, 600])] {
        let cluster = cluster(nodes)?;
        for count in counts {
            for spread in [false, true] {
                tell(&measure(&cluster, nodes, *count, spread)?);
            }
        }
    }
    Ok(())
}
