//! A load: jobs that are submitted as fast as a fleet accepts them, and its figures.

use crate::cluster::{Cluster, FleetError};
use caravan_server::{Handle, JobRegistered, JobSubmission, Kind};
use caravan_state::Topic;
use caravan_types::Nanos;
use caravan_types::eval::EvalStatus;
use caravan_types::job::{Job, JobType, RestartPolicy};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::time::{Duration, Instant};

/// The parameters of a load.
#[derive(Clone, Debug)]
pub struct Load {
    /// The final number of allocations.
    pub allocs: u64,
    /// The number of allocations of each job.
    pub each: u32,
    /// The number of concurrent jobs whose evaluations are awaited.
    pub in_flight: usize,
    /// The maximum number of placed allocations that clients have not acknowledged yet.
    pub ahead: u64,
    /// The number of acknowledged allocations between two reports of figures.
    pub step: u64,
}

/// The figures of a load since the previous figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// The number of running allocations.
    pub allocs: u64,
    /// Placed and acknowledged allocations a second, since the previous figures.
    pub rate: f64,
    /// Milliseconds from an evaluation's submission to its end: the median since the previous figures.
    pub p50: f64,
    /// The same duration: the 99th percentile.
    pub p99: f64,
    /// Seconds of CPU time of the whole process since the previous figures, clients included.
    pub cpu: f64,
}

/// The timeout without progress.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The pause before a request is repeated at the next leader.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Returns a job with this number of small allocations.
pub(crate) fn job(id: &str, kind: JobType, count: u32) -> Job {
    let mut job = caravan_sim::job(id, kind, count);
    let group = &mut job.task_groups[0];
    (group.tasks[0].resources.cpu, group.tasks[0].resources.memory_mb) = (10, 10);
    group.tasks[0].config.insert("command".into(), "/bin/true".into());
    // Disk space for the logs of a task, and nothing else.
    group.ephemeral_disk.get_or_insert_default().size_mb = 110;
    group.restart_policy = Some(RestartPolicy {
        attempts: 3,
        interval: Nanos::from_secs(24 * 3600),
        delay: Nanos::from_secs(15),
        ..RestartPolicy::default()
    });
    job
}

/// Registers a job at the leader, also if leadership moves meanwhile. Returns the leader and the result.
async fn register(servers: &[Handle], job: &Job) -> Result<(Handle, JobRegistered), FleetError> {
    let begun = Instant::now();
    loop {
        let leader = servers.iter().find(|server| server.is_leader()).unwrap_or(&servers[0]);
        let submission = JobSubmission { draft: job.clone().into(), ..JobSubmission::default() };
        match leader.jobs().register(submission).await {
            Ok(registered) => return Ok((leader.clone(), registered)),
            Err(error) if error.kind() != Kind::NotLeader || begun.elapsed() > TIMEOUT => {
                return Err(error.into());
            }
            Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
        }
    }
}

/// Registers a job and waits until its evaluation has succeeded. Returns the duration.
async fn place(servers: Vec<Handle>, job: Job) -> Result<Duration, FleetError> {
    let (id, begun) = (job.id.to_string(), Instant::now());
    let (handle, registered) = register(&servers, &job).await?;
    let mut changes = handle.store().watch().on(Topic::Eval(registered.eval_id.clone())).start();
    loop {
        let root = handle.store().snapshot();
        let eval = root.eval(&registered.eval_id);
        match eval.map(|eval| eval.status) {
            Some(EvalStatus::Complete) if eval.is_some_and(|eval| eval.failed_tg_allocs.is_empty()) => {
                return Ok(begun.elapsed());
            }
            Some(EvalStatus::Pending) => changes.changed().await,
            other => {
                let why = eval.map(|eval| caravan_scheduler::explain(eval).join(" "));
                let what = format!("its evaluation is {other:?}: {}", why.unwrap_or_default());
                return Err(FleetError::Job { job: id, what });
            }
        }
    }
}

struct Interval {
    begun: Instant,
    cpu: Duration,
    acknowledged: u64,
    times: Vec<f64>,
}

impl Interval {
    fn begin(acknowledged: u64) -> Self {
        Self { begun: Instant::now(), cpu: caravan_sys::time::process(), acknowledged, times: Vec::new() }
    }

    fn figures(mut self, acknowledged: u64) -> Figures {
        self.times.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let index = (self.times.len() * percent / 100).min(self.times.len().saturating_sub(1));
            self.times.get(index).copied().unwrap_or(f64::NAN)
        };
        let seconds = self.begun.elapsed().as_secs_f64();
        Figures {
            allocs: acknowledged,
            rate: float(acknowledged - self.acknowledged) / seconds,
            p50: at(50),
            p99: at(99),
            cpu: caravan_sys::time::process().saturating_sub(self.cpu).as_secs_f64(),
        }
    }
}

/// Submits jobs until the number of allocations run, and reports figures.
///
/// # Errors
/// Fails if a job is refused or not completely placed, a client fails, or there is no progress.
pub async fn run(
    cluster: &mut Cluster,
    load: &Load,
    mut tell: impl FnMut(&Figures),
) -> Result<(), FleetError> {
    let first = cluster.acknowledged();
    let (mut submitted, mut placed) = (0, 0);
    let mut under_way = FuturesUnordered::new();
    let mut interval = Interval::begin(first);
    let mut moved = (Instant::now(), first);
    loop {
        let running = cluster.acknowledged() - first;
        if running - (interval.acknowledged - first) >= load.step || running >= load.allocs {
            let next = Interval::begin(running + first);
            tell(&std::mem::replace(&mut interval, next).figures(running + first));
        }
        if running >= load.allocs {
            return Ok(());
        }
        while submitted < load.allocs
            && under_way.len() < load.in_flight.max(1)
            && placed <= running + load.ahead
        {
            let job = job(&format!("load-{first}-{submitted}"), JobType::Batch, load.each);
            under_way.push(place(cluster.handles(), job));
            submitted += u64::from(load.each);
        }
        if moved.1 != running + placed {
            moved = (Instant::now(), running + placed);
        } else if moved.0.elapsed() > TIMEOUT {
            let what = format!("{placed} of {submitted} are placed, {running} run");
            return Err(FleetError::Stuck(TIMEOUT, what));
        }
        cluster.check()?;
        tokio::select! {
            Some(took) = under_way.next() => {
                interval.times.push(took?.as_secs_f64() * 1000.0);
                placed += u64::from(load.each);
            }
            // Clients count acknowledgements without notifications, so the counter is polled.
            () = tokio::time::sleep(Duration::from_millis(2)) => {}
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn float(n: u64) -> f64 {
    n as f64
}
