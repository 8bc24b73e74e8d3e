//! The measurement of set-ups, removals and repairs of networks in a separate namespace, as one JSON object a line.
//! `cargo xtask bench networks` runs this program.

use caravan_networks::{Attachment, Bridge, BridgeConfig, Forward, Pool};
use caravan_sys::netlink::nft::{Rules, Transaction};
use caravan_sys::netns;
use caravan_types::AllocId;
use std::error::Error;
use std::path::Path;
use std::time::Instant;

/// The number of allocations.
const COUNT: u16 = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let measured = netns::in_new(|| measure(dir.path()).map_err(|error| error.to_string()))?;
    for entry in std::fs::read_dir(dir.path())? {
        netns::let_go(&entry?.path())?;
    }
    Ok(measured?)
}

fn measure(dir: &Path) -> Result<(), Box<dyn Error>> {
    let config = BridgeConfig { owner: "bench".into(), ..BridgeConfig::default() };
    let mut bridge = Bridge::open(config.clone(), [])?;
    let mut pool = Pool::new(config.clone(), None);
    let mut attachments = Vec::new();
    for number in 0..COUNT {
        let alloc = AllocId::from(format!("alloc-{number}"));
        let addresses = pool.assign(&alloc)?;
        let forwards = vec![Forward { address: None, port: 20_000 + number, to: 80 }];
        let namespace = dir.join(alloc.as_str());
        attachments.push(Attachment { alloc, namespace, addresses, forwards });
    }
    let (mut walls, mut processors) = (Vec::new(), Vec::new());
    for attachment in &attachments {
        let (wall, processor) = time(|| bridge.attach(attachment).map(drop))?;
        walls.push(wall);
        processors.push(processor);
    }
    report("set-up of an allocation, median", median(&mut walls));
    report("set-up of an allocation, slowest of twenty", walls[walls.len() * 19 / 20]);
    report("set-up of an allocation, processor, median", median(&mut processors));
    report("comparison of 50 allocations without a difference", time(|| bridge.repair().map(drop))?.0);
    let mut flush = Transaction::default();
    flush.delete_table(&config.table());
    Rules::open()?.commit(flush)?;
    report("repair of flushed rules of 50 allocations", time(|| bridge.repair().map(drop))?.0);
    let mut walls = Vec::new();
    for attachment in &attachments {
        walls.push(time(|| bridge.detach(attachment))?.0);
    }
    report("removal of an allocation, median", median(&mut walls));
    Ok(())
}

/// Returns the wall time and the processor time of some work, in milliseconds.
fn time<E: Error + 'static>(work: impl FnOnce() -> Result<(), E>) -> Result<(f64, f64), Box<dyn Error>> {
    let (before, start) = (processor_millis()?, Instant::now());
    work()?;
    let wall = start.elapsed().as_secs_f64() * 1000.0;
    Ok((wall, processor_millis()? - before))
}

/// Returns the processor time of this process, from the first field of schedstat (proc_pid_schedstat(5)), of its threads
/// that are alive.
fn processor_millis() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos: f64 = text.split_whitespace().next().ok_or("schedstat is empty")?.parse()?;
    Ok(nanos / 1_000_000.0)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn report(case: &str, millis: f64) {
    println!("{{\"bench\":\"networks\",\"case\":\"{case}\",\"value\":{millis:.2},\"unit\":\"ms\"}}");
}
