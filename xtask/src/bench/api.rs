//! Measures the HTTP API: answers a second with a hundred allocations, ten thousand idle blocking queries,
//! pages of a list of a hundred thousand. Prints ratios to Nomad's figures where they are known.

use super::agent::{build, millis, put, resident, sleeper, wait_count};
use super::volumes::Ghost;
use super::{figure, median};
use anyhow::{Context, Result, bail};
use caravan_testkit::{Agent, AgentOptions};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The number of listed allocations, and the duration of a measurement.
const ALLOCS: usize = 100;
const SPAN: Duration = Duration::from_secs(5);
/// The number of concurrent connections.
const ASKERS: usize = 4;
/// The number of idle queries, the jobs that they wait for, and the number of job changes.
const IDLE: usize = 10_000;
const JOBS: usize = 1000;
const CHANGES: usize = 50;
/// The size of the large state.
const NODES: usize = 20;
const LARGE_JOBS: usize = 20;
const LARGE_COUNT: usize = 5000;
const PAGES: usize = 101;

/// Nomad's answers a second on a comparable machine.
const REFERENCE: [(&str, f64); 2] = [("/v1/allocations", 364.0), ("/v1/jobs", 3242.0)];

fn print(case: &str, value: f64, unit: &str) {
    figure("api", case, value, unit);
}

pub fn run(release: bool) -> Result<()> {
    build(release)?;
    rates()?;
    idle()?;
    pages()
}

fn options() -> AgentOptions {
    let extra = "limits {\n  http_max_conns_per_client = 0\n}\n".to_owned();
    AgentOptions { dev: true, extra, ..AgentOptions::default() }
}

fn rates() -> Result<()> {
    let agent = Agent::with(options())?;
    put(&agent, "/v1/jobs", &sleeper("many", "raw_exec", ALLOCS))?;
    wait_count(&agent, "many", "Running", ALLOCS)?;
    for (path, reference) in REFERENCE {
        for (what, header) in [("", ""), (", packed", "Accept-Encoding: gzip\r\n")] {
            let rate = rate(&agent, path, header)?;
            print(&format!("GET {path} with {ALLOCS} allocations{what}"), rate, "1/s");
            print(&format!("GET {path}{what}, times the reference's {reference}"), rate / reference, "");
        }
    }
    Ok(())
}

/// Returns the answers a second on several connections without pauses.
fn rate(agent: &Agent, path: &str, header: &str) -> Result<f64> {
    let deadline = Instant::now() + SPAN;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n");
    let askers: Vec<_> = (0..ASKERS)
        .map(|_| {
            let (address, request) = (agent.address(), request.clone());
            thread::spawn(move || ask(&address, request.as_bytes(), deadline))
        })
        .collect();
    let begun = Instant::now();
    let mut answers = 0;
    for asker in askers {
        answers += asker.join().map_err(|_| anyhow::anyhow!("an asker failed"))??;
    }
    Ok(f64::from(answers) / begun.elapsed().as_secs_f64())
}

fn ask(address: &str, request: &[u8], deadline: Instant) -> Result<u32> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(256 * 1024, stream.try_clone()?);
    let (mut answers, mut line, mut body) = (0, String::new(), Vec::new());
    while Instant::now() < deadline {
        stream.write_all(request)?;
        let mut length = None;
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let text = line.trim_end();
            if text.is_empty() {
                break;
            }
            if let Some((name, value)) = text.split_once(": ")
                && name.eq_ignore_ascii_case("content-length")
            {
                length = Some(value.parse()?);
            }
        }
        body.resize(length.context("an answer without a length")?, 0);
        reader.read_exact(&mut body)?;
        answers += 1;
    }
    Ok(answers)
}

/// Returns a job without allocations, so that an update changes only its text.
fn nothing(n: usize, text: &str) -> Value {
    let mut job = sleeper(&format!("idle-{n}"), "raw_exec", 0);
    job["Job"]["Meta"] = json!({ "text": text });
    job
}

fn idle() -> Result<()> {
    let agent = Agent::with(options())?;
    for n in 0..JOBS {
        put(&agent, "/v1/jobs", &nothing(n, "a"))?;
    }
    let before = resident(agent.pid())?;
    print(&format!("resident memory with {JOBS} jobs"), before, "MiB");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(wait_and_wake(&agent, before))
}

async fn wait_and_wake(agent: &Agent, before: f64) -> Result<()> {
    let (woken, mut received) = tokio::sync::mpsc::unbounded_channel();
    let address = agent.address();
    for n in 0..IDLE {
        let mut stream = tokio::net::TcpStream::connect(&address).await?;
        let path = format!("/v1/job/idle-{}", n % JOBS);
        let index = agent.get(&path).map(|job| job["ModifyIndex"].as_u64().unwrap_or(1))?;
        let request = format!("GET {path}?index={index}&wait=300s HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let woken = woken.clone();
        tokio::spawn(async move {
            let mut first = [0; 1];
            if stream.read_exact(&mut first).await.is_ok() {
                // The receiver lives until the end.
                let _ = woken.send((n % JOBS, Instant::now()));
            }
            // The connection stays open, as the other connections do.
            let mut rest = [0; 1024];
            while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
        });
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    if let Ok((job, _)) = received.try_recv() {
        bail!("a query for job {job} did not wait");
    }
    print(&format!("{IDLE} idle blocking queries, resident memory"), resident(agent.pid())? - before, "MiB");
    let mut slowest = Vec::new();
    for n in 0..CHANGES {
        let begun = Instant::now();
        put(agent, "/v1/jobs", &nothing(n, "b"))?;
        let mut last = 0.0_f64;
        for _ in 0..IDLE / JOBS {
            let waited = tokio::time::timeout(Duration::from_secs(10), received.recv()).await;
            let (job, at) = waited.context("a query was not woken")?.context("nobody is left to be woken")?;
            if job != n {
                bail!("the change of job {n} woke a query for job {job}");
            }
            last = last.max((at - begun).as_secs_f64() * 1000.0);
        }
        slowest.push(last);
    }
    let worst = slowest.iter().copied().fold(0.0, f64::max);
    let each = IDLE / JOBS;
    print(
        &format!("change of a job until the last of its {each} queries is answered, median"),
        median(slowest),
        "ms",
    );
    print("the same, slowest", worst, "ms");
    Ok(())
}

fn pages() -> Result<()> {
    let extra = options().extra;
    let agent = Agent::with(AgentOptions { client: false, extra, ..AgentOptions::default() })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        for n in 0..NODES {
            let ghost = Ghost::new(&agent, n);
            ghost.register().await?;
            ghost.stay_alive();
        }
        anyhow::Ok(())
    })?;
    let all = LARGE_JOBS * LARGE_COUNT;
    for n in 0..LARGE_JOBS {
        let mut job = sleeper(&format!("large-{n}"), "raw_exec", LARGE_COUNT);
        job["Job"]["Type"] = json!("batch");
        put(&agent, "/v1/jobs", &job)?;
    }
    let deadline = Instant::now() + Duration::from_secs(900);
    for n in 0..LARGE_JOBS {
        loop {
            let summary = agent.get(&format!("/v1/job/large-{n}/summary"))?;
            if summary["Summary"]["g"]["Starting"] == LARGE_COUNT {
                break;
            }
            if Instant::now() > deadline {
                bail!("job large-{n} was not placed: {summary}");
            }
            thread::sleep(Duration::from_millis(200));
        }
    }
    let mut token = String::new();
    let mut times = Vec::new();
    for _ in 0..PAGES {
        let begun = Instant::now();
        let reply =
            agent.request("GET", &format!("/v1/allocations?per_page=100&next_token={token}"), None)?;
        times.push(millis(begun));
        if reply.json()?.as_array().map(Vec::len) != Some(100) {
            bail!("the page is not full");
        }
        token = reply.header("x-nomad-nexttoken").context("no next page")?.to_owned();
    }
    print(&format!("page of 100 of {all} allocations, median"), median(times.clone()), "ms");
    times.sort_by(f64::total_cmp);
    print("the same, slowest", times.last().copied().unwrap_or(f64::NAN), "ms");
    let begun = Instant::now();
    let filter = "/v1/allocations?per_page=100&reverse=true&filter=ClientStatus%20%3D%3D%20pending";
    agent.get(filter)?;
    print("a page of those that are pending, newest first", millis(begun), "ms");
    Ok(())
}
