//! `caravan-fleet NODES ALLOCATIONS [EACH [IN-FLIGHT [WORKERS [DIRECTORY]]]] [--servers N]`: prints figures of a
//! fleet under load, one JSON object a line. Jobs have EACH allocations. With a directory the logs are on disk,
//! otherwise in memory. Several servers vote, and connect to each other over loopback.
//! `caravan-fleet serve [--nodes N] [--allocs N] [--jobs N] [--volumes N] [--http ADDRESS]`: fills a cluster, serves
//! its HTTP API and web page, prints the address, and ends with its standard input.
//! `caravan-fleet storm [NODES [SEEDS]]`: nodes join, vanish and drain under jobs of all types; prints violations.

use caravan_fleet::{
    Cluster, FleetError, Load, Setup, Size, Storm, Web, fill, plain_nodes, run, storm, survey,
};
use caravan_sys::heap::{Counting, MiMalloc, delay_purges};
use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[global_allocator]
static HEAP: Counting<MiMalloc> = Counting::new(MiMalloc);

fn figure(case: &str, value: f64, unit: &str) {
    let value = (value * 100.0).round() / 100.0;
    println!("{}", serde_json::json!({ "bench": "fleet", "case": case, "value": value, "unit": unit }));
}

async fn bench(setup: Setup, load: Load) -> Result<(), FleetError> {
    let mut cluster = Cluster::start(&setup).await?;
    let before = HEAP.bytes();
    let servers = if setup.servers == 1 { String::new() } else { format!(" on {} servers", setup.servers) };
    let nodes = setup.nodes;
    run(&mut cluster, &load, |now| {
        let case = |what: &str| format!("{nodes}/{}{servers}: {what}", now.allocs);
        figure(&case("placed and acknowledged"), now.rate, "1/s");
        figure(&case("evaluation, p50"), now.p50, "ms");
        figure(&case("evaluation, p99"), now.p99, "ms");
        figure(&case("processor time, clients included"), now.cpu, "s");
        figure(&case("heap of server and clients an allocation"), per(HEAP.bytes(), before, now.allocs), "B");
    })
    .await?;
    let findings = survey(&cluster.root());
    figure(&format!("{nodes}/{}{servers}: findings", load.allocs), float(findings.len()), "");
    if let Some(first) = findings.first() {
        eprintln!("{first:?}");
    }
    cluster.stop().await
}

fn per(now: usize, before: usize, allocs: u64) -> f64 {
    float(now.saturating_sub(before)) / float(usize::try_from(allocs).unwrap_or(usize::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn float(n: usize) -> f64 {
    n as f64
}

/// Runs storms over a fleet, one for each seed.
async fn storms(nodes: usize, seeds: std::ops::Range<u64>) -> Result<bool, FleetError> {
    let mut well = true;
    for seed in seeds {
        let setup = Setup { nodes, heartbeat: Some(Duration::from_secs(4)), ..Setup::default() };
        let mut cluster = Cluster::start(&setup).await?;
        let found = storm(&mut cluster, nodes, Storm { seed, rounds: 10, percent: 3 }).await?;
        cluster.stop().await?;
        let reported: Vec<String> = found.iter().map(|finding| format!("{finding:?}")).collect();
        println!(
            "{}",
            serde_json::json!({ "bench": "storm", "nodes": nodes, "seed": seed, "found": reported })
        );
        well &= found.is_empty();
    }
    Ok(well)
}

/// Parses the flags of `serve`; `None` if a flag is not known or has no valid value.
fn flags(arguments: &[String]) -> Option<(Size, SocketAddr)> {
    let mut size = Size { nodes: 10_000, allocs: 100_000, each: 500, volumes: 1000, jobs: 50_000 };
    let mut address = SocketAddr::from(([127, 0, 0, 1], 0));
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { return None };
        match name.trim_start_matches('-') {
            "nodes" => size.nodes = value.parse().ok()?,
            "allocs" => size.allocs = value.parse().ok()?,
            "jobs" => size.jobs = value.parse().ok()?,
            "volumes" => size.volumes = value.parse().ok()?,
            "http" => address = value.parse().ok()?,
            _ => return None,
        }
    }
    size.each = u32::try_from(size.allocs.min(500)).unwrap_or(500).max(1);
    Some((size, address))
}

/// Serves a filled cluster until the standard input ends.
async fn serve(size: Size, address: SocketAddr) -> Result<(), FleetError> {
    let setup = Setup { nodes: plain_nodes(size), ..Setup::default() };
    let mut cluster = Cluster::start(&setup).await?;
    fill(&mut cluster, size).await?;
    let web = Web::start(&cluster, address).await?;
    println!("{}", serde_json::json!({ "address": format!("http://{}", web.address) }));
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    drop(web);
    cluster.stop().await
}

/// Returns the number at an index of the arguments.
fn number(arguments: &[String], at: usize, otherwise: Option<usize>) -> Option<usize> {
    arguments.get(at).map_or(otherwise, |text| text.parse().ok())
}

fn main() -> ExitCode {
    delay_purges();
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    if arguments.first().is_some_and(|first| first == "serve") {
        let Some((size, address)) = flags(&arguments[1..]) else {
            eprintln!(
                "usage: caravan-fleet serve [--nodes N] [--allocs N] [--jobs N] [--volumes N] [--http ADDRESS]"
            );
            return ExitCode::FAILURE;
        };
        return match runtime.block_on(serve(size, address)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        };
    }
    if arguments.first().is_some_and(|first| first == "storm") {
        arguments.remove(0);
        let nodes = number(&arguments, 0, Some(2000)).unwrap_or(2000);
        let seeds = number(&arguments, 1, Some(3)).unwrap_or(3) as u64;
        return match runtime.block_on(storms(nodes, 1..seeds + 1)) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => failed(&error),
        };
    }
    let servers = match arguments.iter().position(|argument| argument == "--servers") {
        Some(at) => {
            let number = arguments.get(at + 1).and_then(|text| text.parse().ok());
            arguments.drain(at..arguments.len().min(at + 2));
            number.filter(|number| [1, 3, 5].contains(number))
        }
        None => Some(1),
    };
    let numbers = (|| {
        let nodes = number(&arguments, 0, None)?;
        let allocs = number(&arguments, 1, None)? as u64;
        let each = u32::try_from(number(&arguments, 2, Some(500))?).ok()?;
        let in_flight = number(&arguments, 3, Some(3))?;
        let setup = Setup {
            nodes,
            servers: servers?,
            workers: number(&arguments, 4, Some(2))?,
            dir: arguments.get(5).map(PathBuf::from),
            heartbeat: None,
        };
        let step = (allocs / 5).max(1);
        Some((setup, Load { allocs, each, in_flight, ahead: 20_000, step }))
    })();
    let Some((setup, load)) = numbers else {
        eprintln!(
            "usage: caravan-fleet NODES ALLOCATIONS [EACH [IN-FLIGHT [WORKERS [DIRECTORY]]]] [--servers 1|3|5]"
        );
        return ExitCode::FAILURE;
    };
    match runtime.block_on(bench(setup, load)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &FleetError) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}
