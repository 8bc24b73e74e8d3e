//! Measurements of the scheduler on the clusters of Nomad's own benchmark.
//!
//! Nodes are in 25 racks. The job is allowed in every other rack, and is optionally spread over the racks.

use crate::cluster::Cluster;
use crate::report::report;
use crate::samples::{job, node};
use caravan_types::AllocId;
use caravan_types::alloc::{AllocUpdate, ClientStatus};
use caravan_types::command::{Change, Refusal};
use caravan_types::job::{Constraint, Job, JobType, Spread};
use std::hint::black_box;
use std::time::{Duration, Instant};

const RACKS: usize = 25;
const ROUNDS: u64 = 21;

/// A measured figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The case: the numbers of nodes and allocations, and the job's options.
    pub case: String,
    /// The time of one decision on one thread in milliseconds: the median of several.
    pub millis: f64,
}

/// The errors of a measurement.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The state refuses a command.
    #[error("the cluster of the bench cannot be made: {0:?}")]
    Refused(Refusal),
    /// Not all allocations were placed, so a figure would be meaningless.
    #[error("{0} of {1} allocations were placed")]
    NotPlaced(usize, u32),
}

/// Returns a cluster of `nodes` nodes in racks.
///
/// # Errors
/// Fails if the state refuses a command.
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

/// Returns a job with `count` allocations for every other rack.
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
/// Fails if the state refuses a command, or not all allocations are placed.
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

/// Measures all cases, and passes each figure to `tell`.
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

/// The result of filling a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Filled {
    /// The final number of allocations.
    pub allocs: usize,
    /// The number of allocations per second that were placed, written and acknowledged as running.
    pub rate: f64,
    /// The time from an evaluation to its written plan in milliseconds: the 99th percentile.
    pub p99: f64,
    /// The heap bytes of one additional allocation, with its share of jobs, evaluations and indexes.
    pub bytes: f64,
}

/// Fills a cluster of `nodes` nodes with jobs of a thousand allocations. Each job is submitted, decided, written, and
/// acknowledged by its nodes. Only state and scheduler take part, without a log and without messages.
///
/// # Errors
/// Fails if the state refuses a command, or not all allocations are placed.
///
/// `heap` returns the number of bytes in use.
pub fn fill(
    nodes: usize,
    allocs: usize,
    heap: impl Fn() -> usize,
    mut tell: impl FnMut(&Filled),
) -> Result<(), BenchError> {
    const EACH: u32 = 1000;
    let mut cluster = cluster(nodes)?;
    let (before, mut times, begun) = (heap(), Vec::new(), Instant::now());
    let mut reported = Duration::ZERO;
    let step = (allocs / 5).max(1);
    let mut done = 0_usize;
    while done < allocs {
        let mut job = job(&format!("job-{done}"), JobType::Service, EACH);
        let resources = &mut job.task_groups[0].tasks[0].resources;
        (resources.cpu, resources.memory_mb) = (10, 10);
        job.task_groups[0].ephemeral_disk.get_or_insert_default().size_mb = 10;
        let asked = Instant::now();
        let eval = cluster.register(job).map_err(BenchError::Refused)?;
        let decision = cluster.decide(&eval, done as u64);
        let placed: Vec<AllocId> =
            decision.plan.placements.values().flatten().map(|a| a.id.clone()).collect();
        cluster.commit(decision).map_err(BenchError::Refused)?;
        times.push(asked.elapsed().as_secs_f64() * 1000.0);
        if u32::try_from(placed.len()) != Ok(EACH) {
            return Err(BenchError::NotPlaced(placed.len(), EACH));
        }
        let stored = placed.iter().filter_map(|id| cluster.root().alloc(id));
        let updates: Vec<AllocUpdate> = stored.map(|alloc| report(alloc, ClientStatus::Running)).collect();
        for batch in updates.chunks(50) {
            let change = Change::AllocUpdates { updates: batch.to_vec(), evals: Vec::new() };
            cluster.change(change).map_err(BenchError::Refused)?;
        }
        let earlier = done / step;
        done += placed_count(EACH);
        if done / step > earlier || done >= allocs {
            let elapsed = begun.elapsed();
            times.sort_by(f64::total_cmp);
            let at = (times.len() * 99 / 100).min(times.len() - 1);
            let bytes = float(heap().saturating_sub(before)) / float(done);
            let rate = float(step.min(done)) / (elapsed - reported).as_secs_f64();
            tell(&Filled { allocs: done, rate, p99: times[at], bytes });
            reported = elapsed;
        }
    }
    Ok(())
}

fn placed_count(each: u32) -> usize {
    usize::try_from(each).unwrap_or(usize::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn float(n: usize) -> f64 {
    n as f64
}
