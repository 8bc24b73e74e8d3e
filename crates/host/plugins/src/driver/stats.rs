//! The statistics of a task: one stream from the plugin, kept open while callers request measurements.

use crate::convert;
use crate::process::Process;
use caravan_drivers::Usage;
use caravan_proto::plugins::driver::{self, driver_client::DriverClient};
use caravan_sys::time::BootTime;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tonic::transport::Channel;

/// The time between two measurements.
const INTERVAL: Duration = Duration::from_secs(1);
/// The time without a request after which a stream is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest wait for the first measurement.
pub(super) const FIRST_TIMEOUT: Duration = Duration::from_secs(5);

/// The latest measurement of a task, and totals over all streams.
#[derive(Debug, Default)]
pub(super) struct Stats {
    latest: Arc<watch::Sender<Option<Result<Usage, String>>>>,
    totals: Arc<Mutex<Totals>>,
    state: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    asked: watch::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// CPU time, which plugins report as a share: the sum of share times duration.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    measured: Option<BootTime>,
    total_ns: u64,
    user_ns: u64,
    system_ns: u64,
}

impl Stats {
    /// Returns the latest measurement, and waits for the first.
    pub(super) async fn usage(&self, process: Arc<Process>, id: &str) -> Result<Usage, String> {
        {
            let mut state = self.state.lock();
            match state.as_ref().filter(|open| !open.task.is_finished()) {
                Some(open) => {
                    let _same = open.asked.send(());
                }
                None => {
                    self.latest.send_replace(None);
                    *state = Some(self.open(process, id.to_owned()));
                }
            }
        }
        let mut latest = self.latest.subscribe();
        let first = latest.wait_for(Option::is_some);
        match tokio::time::timeout(FIRST_TIMEOUT, first).await {
            Ok(Ok(found)) => found.clone().unwrap_or_else(|| Err("no measurement".into())),
            Ok(Err(_)) | Err(_) => Err(format!("no measurement within {} s", FIRST_TIMEOUT.as_secs())),
        }
    }

    /// Closes the stream: the plugin's process ended, or the task did.
    pub(super) fn close(&self) {
        self.state.lock().take();
    }

    fn open(&self, process: Arc<Process>, id: String) -> Open {
        let (asked, is_asked) = watch::channel(());
        let (latest, totals) = (Arc::clone(&self.latest), Arc::clone(&self.totals));
        let client = super::client(process.channel());
        let task = tokio::spawn(async move {
            if let Err(reason) = read(client, id, &latest, &totals, is_asked).await {
                latest.send_replace(Some(Err(reason)));
            }
        });
        Open { asked, task }
    }
}

/// Reads measurements until no caller requests them any more.
async fn read(
    mut client: DriverClient<Channel>,
    id: String,
    latest: &watch::Sender<Option<Result<Usage, String>>>,
    totals: &Mutex<Totals>,
    mut asked: watch::Receiver<()>,
) -> Result<(), String> {
    let request =
        driver::TaskStatsRequest { task_id: id, collection_interval: Some(convert::duration(INTERVAL)) };
    let describe = |status: tonic::Status| crate::error::describe(&status);
    let mut stream = client.task_stats(request).await.map_err(describe)?.into_inner();
    let mut deadline = tokio::time::Instant::now() + IDLE_TIMEOUT;
    loop {
        tokio::select! {
            message = stream.message() => {
                let Some(message) = message.map_err(describe)? else {
                    return Err("the plugin ended the measurement".into());
                };
                if let Some(stats) = message.stats {
                    let usage = totals.lock().add(&stats, BootTime::now());
                    latest.send_replace(Some(Ok(usage)));
                }
            }
            changed = asked.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                deadline = tokio::time::Instant::now() + IDLE_TIMEOUT;
            }
            () = tokio::time::sleep_until(deadline) => return Ok(()),
        }
    }
}

impl Totals {
    fn add(&mut self, stats: &driver::TaskStats, now: BootTime) -> Usage {
        let resources = stats.agg_resource_usage.clone().unwrap_or_default();
        let (cpu, memory) = (resources.cpu.unwrap_or_default(), resources.memory.unwrap_or_default());
        let elapsed = self.measured.map_or(INTERVAL, |before| now.since(before));
        self.measured = Some(now);
        let spent = |percent: f64| {
            elapsed.mul_f64(if percent.is_finite() { percent.clamp(0.0, 1e6) / 100.0 } else { 0.0 })
        };
        let add = |total: &mut u64, percent: f64| {
            *total = total.saturating_add(u64::try_from(spent(percent).as_nanos()).unwrap_or(u64::MAX));
        };
        add(&mut self.total_ns, cpu.percent);
        add(&mut self.user_ns, cpu.user_mode);
        add(&mut self.system_ns, cpu.system_mode);
        let processes = &stats.resource_usage_by_pid;
        let processes: Vec<_> =
            processes.iter().filter_map(|(pid, usage)| convert::process_usage(pid, usage)).collect();
        Usage {
            cpu_total_ns: self.total_ns,
            cpu_user_ns: self.user_ns,
            cpu_system_ns: self.system_ns,
            throttled_periods: cpu.throttled_periods,
            throttled_ns: cpu.throttled_time,
            memory: if memory.usage > 0 { memory.usage } else { memory.rss },
            memory_peak: memory.max_usage,
            rss: memory.rss,
            cache: memory.cache,
            swap: memory.swap,
            pids: u64::try_from(processes.len()).unwrap_or(0),
            boot_time_ns: now.0,
            processes,
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_cpu_add_up_to_time() {
        let stats = |percent| driver::TaskStats {
            agg_resource_usage: Some(driver::TaskResourceUsage {
                cpu: Some(driver::CpuUsage { percent, user_mode: f64::NAN, ..Default::default() }),
                memory: Some(driver::MemoryUsage { rss: 5, ..Default::default() }),
            }),
            ..Default::default()
        };
        let second = Duration::from_secs(1);
        let mut totals = Totals::default();
        totals.add(&stats(50.0), BootTime(0));
        let usage = totals.add(&stats(150.0), BootTime(0).after(second * 2));
        assert_eq!(usage.cpu_total_ns, 3_500_000_000);
        assert_eq!((usage.cpu_user_ns, usage.memory, usage.rss), (0, 5, 5));
    }
}
