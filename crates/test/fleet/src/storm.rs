//! Storms: nodes that join, vanish, drain and return under jobs of all types that grow, shrink, change and end.

use crate::cluster::{Cluster, FleetError};
use crate::load::job;
use crate::survey::{Finding, survey};
use caravan_server::{DrainRequest, JobSubmission};
use caravan_types::job::{Job, JobType};
use caravan_types::node::Eligibility;
use caravan_types::{JobKey, Nanos, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The deadline of a drain for batch allocations, which never complete here.
const DEADLINE: Nanos = Nanos::from_secs(2);
/// The timeout for a cluster to settle.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A storm that its seed determines.
#[derive(Clone, Copy, Debug)]
pub struct Storm {
    /// The seed of the random choices.
    pub seed: u64,
    /// The number of rounds of changes. A round may meet unfinished work of earlier rounds.
    pub rounds: usize,
    /// The percentage of nodes that change in each round.
    pub percent: usize,
}

/// A generator of random numbers: SplitMix64 (Steele, Lea, Flood 2014).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        usize::try_from(z % (limit.max(1) as u64)).unwrap_or(0)
    }

    fn some(&mut self, of: &BTreeSet<usize>, count: usize) -> Vec<usize> {
        let mut left: Vec<usize> = of.iter().copied().collect();
        (0..count.min(left.len())).map(|_| left.swap_remove(self.below(left.len()))).collect()
    }
}

struct Weather<'c> {
    cluster: &'c mut Cluster,
    dice: Dice,
    /// The positions of the present, vanished and drained nodes.
    up: BTreeSet<usize>,
    away: BTreeSet<usize>,
    drained: BTreeSet<usize>,
    jobs: BTreeMap<String, Job>,
    next: usize,
}

impl Weather<'_> {
    async fn submit(&mut self, job: Job) -> Result<(), FleetError> {
        self.jobs.insert(job.id.to_string(), job.clone());
        let submission = JobSubmission { draft: job.into(), ..JobSubmission::default() };
        self.cluster.handle.jobs().register(submission).await?;
        Ok(())
    }

    async fn new_job(&mut self, round: usize, kind: JobType) -> Result<(), FleetError> {
        let wide = matches!(kind, JobType::System | JobType::Sysbatch);
        let count = if wide { 1 } else { u32::try_from(1 + self.dice.below(20)).unwrap_or(1) };
        self.submit(job(&format!("{}-{round}", kind.as_str()), kind, count)).await
    }

    async fn change_a_job(&mut self) -> Result<(), FleetError> {
        let at = self.dice.below(self.jobs.len());
        let Some((id, mut job)) = self.jobs.iter().nth(at).map(|(id, job)| (id.clone(), job.clone())) else {
            return Ok(());
        };
        match self.dice.below(4) {
            0 => {
                self.jobs.remove(&id);
                let key = JobKey::new("default", id.as_str());
                self.cluster.handle.jobs().deregister(key, false, None).await?;
                return Ok(());
            }
            1 => job.task_groups[0].tasks[0].resources.cpu += 1,
            2 if !job.kind.is_system() => job.task_groups[0].count += 5,
            _ if !job.kind.is_system() => job.task_groups[0].count = job.task_groups[0].count.div_ceil(2),
            _ => job.task_groups[0].tasks[0].env.insert("ROUND".into(), at.to_string()).map_or((), drop),
        }
        self.submit(job).await
    }

    async fn strike(&mut self, struck: usize) -> Result<(), FleetError> {
        let lost = self.dice.some(&self.up, struck);
        for n in &lost {
            self.up.remove(n);
            self.away.insert(*n);
        }
        self.cluster.vanish(lost);
        let leaving = self.dice.some(&self.up, struck);
        for n in leaving {
            self.up.remove(&n);
            self.drained.insert(n);
            let request = DrainRequest { deadline: Some(DEADLINE), ..DrainRequest::default() };
            self.cluster.handle.nodes().drain(&id(n), request).await?;
        }
        Ok(())
    }

    async fn calm(&mut self, struck: usize) -> Result<(), FleetError> {
        let back = self.dice.some(&self.away, struck / 2);
        for n in &back {
            self.away.remove(n);
            self.up.insert(*n);
        }
        self.cluster.join(back).await?;
        for n in self.dice.some(&self.drained, struck / 2) {
            let still = self.cluster.root().node(&id(n)).is_none_or(|node| node.drain_strategy.is_some());
            if !still {
                self.drained.remove(&n);
                self.up.insert(n);
                self.cluster.handle.nodes().set_eligibility(&id(n), Eligibility::Eligible).await?;
            }
        }
        let new: Vec<usize> = (self.next..self.next + struck / 2).collect();
        self.next += struck / 2;
        self.up.extend(&new);
        self.cluster.join(new).await
    }
}

fn id(n: usize) -> NodeId {
    crate::cluster::node(n).id
}

/// Runs a storm over a cluster with this number of nodes, and waits until the cluster has settled. Returns the
/// violations.
///
/// # Errors
/// Fails if the server refuses a request, or a client fails.
pub async fn storm(cluster: &mut Cluster, nodes: usize, storm: Storm) -> Result<Vec<Finding>, FleetError> {
    let kinds = [JobType::Service, JobType::Batch, JobType::System, JobType::Sysbatch];
    let mut weather = Weather {
        cluster,
        dice: Dice(storm.seed),
        up: (0..nodes).collect(),
        away: BTreeSet::new(),
        drained: BTreeSet::new(),
        jobs: BTreeMap::new(),
        next: nodes,
    };
    let struck = (nodes * storm.percent / 100).max(2);
    for round in 0..storm.rounds {
        for kind in kinds {
            // A few jobs that run on all nodes are enough.
            if !kind.is_system() || round < 2 {
                weather.new_job(round, kind).await?;
            }
        }
        weather.strike(struck).await?;
        weather.change_a_job().await?;
        weather.calm(struck).await?;
        weather.cluster.check()?;
    }
    let begun = Instant::now();
    loop {
        let root = weather.cluster.root();
        let mut findings = survey(&root);
        for n in &weather.drained {
            // A drained node must have no running allocations.
            let left = root.allocs_by_node(&id(*n)).filter(|alloc| !alloc.client_terminal());
            findings.extend(left.map(|alloc| Finding::Stranded {
                name: alloc.name.clone(),
                node: alloc.node_name.to_string(),
            }));
        }
        weather.cluster.check()?;
        let depth = weather.cluster.handle.scheduling().depth();
        let busy = depth.ready + depth.in_flight > 0;
        if (findings.is_empty() && !busy) || begun.elapsed() > TIMEOUT {
            return Ok(findings);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
