//! The plugin ends, hangs, or is replaced while tasks run.

use super::*;
use caravan_shim::protocol::encode;
use caravan_shim::spec::LogSpec;
use caravan_shim::{COLLECT, COLLECTING, CollectSpec, RECORDED};
use rustix::process::Signal;
use tokio::io::AsyncWriteExt as _;

/// A script that writes `line 0`, `line 1` and so on until it is stopped.
const COUNT: &str = "i=0; while true; do echo line $i; i=$((i+1)); sleep 0.02; done";

fn lines(world: &World, name: &str) -> usize {
    let text = world.output(name);
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    for (number, line) in complete.lines().enumerate() {
        assert_eq!(line, format!("line {number}"), "a line is missing or doubled");
    }
    complete.lines().count()
}

async fn more_lines(world: &World, name: &str) {
    let before = lines(world, name);
    until("more output", async || lines(world, name) > before + 5).await;
}

/// Returns the next event that contains a text.
async fn event(events: &mut tokio::sync::mpsc::UnboundedReceiver<DriverEvent>, text: &str) -> DriverEvent {
    loop {
        let next = tokio::time::timeout(TIMEOUT, events.recv()).await;
        let next = next.unwrap_or_else(|_| panic!("no event has {text:?}")).expect("an event");
        if next.message.contains(text) {
            return next;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_outlives_its_plugin() {
    let world = World::new();
    let driver = world.external().await;
    let mut events = driver.events().expect("events");
    let config = world.script("count", COUNT);
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    more_lines(&world, "count").await;

    let first = world.pid(DRIVER);
    kill(first, Signal::KILL);
    let down = event(&mut events, "is down").await;
    assert_eq!((down.alloc_id.as_str(), down.task_name.as_str()), ("alloc", "count"));
    assert!(down.message.contains(&format!("{first}")) && down.message.contains("SIGKILL"), "{down:?}");
    event(&mut events, "runs again").await;
    assert_ne!(world.pid(DRIVER), first);
    until("health", async || driver.fingerprint().await.state == Health::Healthy).await;
    more_lines(&world, "count").await;

    // A call that was in flight when the process ended is repeated on the next one.
    let (waiting, waited) = (Arc::clone(&driver), id.clone());
    let wait = tokio::spawn(async move { waiting.wait(&waited).await });
    kill(world.pid(DRIVER), Signal::KILL);
    driver.stop(&id, Duration::from_secs(5), Some("SIGTERM")).await.unwrap();
    let exit = wait.await.unwrap().unwrap();
    assert!(exit.err.is_none(), "{exit:?}");
    driver.destroy(&id, false).await.unwrap();
    assert!(!world.dir.path().join("tasks/count").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_hangs_is_unhealthy_then_replaced() {
    let mut world = World::new();
    let short = Duration::from_millis(300);
    world.timing = Timing { ping_interval: short, silent_after: short, kill_after: 3 * short };
    let driver = world.external().await;
    let mut events = driver.events().expect("events");
    let config = world.script("count", COUNT);
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    let first = world.pid(DRIVER);
    kill(first, Signal::STOP);
    event(&mut events, "does not answer; the task goes on").await;
    event(&mut events, "did not answer for 900ms and was killed").await;
    event(&mut events, "runs again").await;
    assert!(!runs(first));
    more_lines(&world, "count").await;
    // A short pause does not end the process.
    let second = world.pid(DRIVER);
    kill(second, Signal::STOP);
    event(&mut events, "does not answer").await;
    kill(second, Signal::CONT);
    event(&mut events, "runs again").await;
    until("health", async || driver.fingerprint().await.state == Health::Healthy).await;
    driver.destroy(&id, true).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_whose_end_the_plugin_missed_has_its_exit_code() {
    let world = World::new();
    let driver = world.external().await;
    let release = world.dir.path().join("release");
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done; exit 23", release.display());
    let config = world.script("late", &script);
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    // The plugin is stopped, then killed: the task ends between two processes of the plugin.
    let pid = world.pid(DRIVER);
    kill(pid, Signal::STOP);
    std::fs::write(&release, "").unwrap();
    kill(pid, Signal::KILL);
    let exit = tokio::time::timeout(TIMEOUT, driver.wait(&id)).await.unwrap().unwrap();
    assert_eq!((exit.exit_code, exit.err), (23, None));
    driver.destroy(&id, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_takes_over_the_plugin_of_the_last_one() {
    let world = World::new();
    let driver = world.external().await;
    let handle = driver.start(world.script("count", COUNT)).await.unwrap();
    let (id, first) = (handle.task_id.clone(), world.pid(DRIVER));
    drop(driver);

    let driver = world.external().await;
    driver.recover(handle.clone()).await.unwrap();
    assert_eq!(world.pid(DRIVER), first, "the process goes on");
    more_lines(&world, "count").await;
    drop(driver);

    // A newer version replaces the process, and the task continues.
    let mut program = std::fs::read(world.program(DRIVER)).unwrap();
    program.push(0);
    std::fs::remove_file(world.program(DRIVER)).unwrap();
    std::fs::write(world.program(DRIVER), program).unwrap();
    std::fs::set_permissions(world.program(DRIVER), std::fs::Permissions::from_mode(0o755)).unwrap();
    let driver = world.external().await;
    driver.recover(handle).await.unwrap();
    assert_ne!(world.pid(DRIVER), first);
    assert!(!runs(first), "the earlier version is gone");
    more_lines(&world, "count").await;
    driver.stop(&id, Duration::from_secs(5), None).await.unwrap();
    driver.destroy(&id, true).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_ends_is_replaced() {
    let world = World::new();
    let driver = world.external().await;
    let config = world.script("count", COUNT);
    let (id, state) = (config.id.clone(), config.dirs.state_dir.clone());
    driver.start(config).await.unwrap();
    more_lines(&world, "count").await;
    let collector = || collector(&state);
    let first = collector().unwrap();
    kill(first, Signal::KILL);
    until("another collector", async || collector().is_some_and(|pid| pid != first)).await;
    // A collector that is killed between a read and a write loses at most what it read.
    let before = world.output("count").len();
    until("more output", async || world.output("count").len() > before + 50).await;
    driver.destroy(&id, true).await.unwrap();
    until("the collector's end", async || collector().is_none_or(|pid| !runs(pid))).await;
}

/// Returns the recorded collector of a task.
fn collector(state_dir: &Path) -> Option<u32> {
    let record: Value =
        serde_json::from_slice(&std::fs::read(state_dir.join("collector.json")).ok()?).ok()?;
    u32::try_from(record["pid"].as_u64()?).ok()
}

/// Returns the collectors that have the pipes of a task open.
fn collectors(state_dir: &Path) -> Vec<u32> {
    let is_open = |process: &Path| {
        let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        files
            .into_iter()
            .any(|file| std::fs::read_link(file.path()).is_ok_and(|link| link.starts_with(state_dir)))
    };
    let is_collector = |process: &Path| {
        std::fs::read_to_string(process.join("comm")).is_ok_and(|name| name.trim_end() == "caravan-collect")
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let process = Path::new("/proc").join(pid.to_string());
            is_collector(&process) && is_open(&process)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_is_replaced_once_after_a_takeover() {
    let world = World::new();
    let driver = world.external().await;
    let config = world.script("count", COUNT);
    let (id, state) = (config.id.clone(), config.dirs.state_dir.clone());
    let handle = driver.start(config).await.unwrap();
    drop(driver);
    let driver = world.external().await;
    driver.recover(handle).await.unwrap();
    // The takeover may be replacing the record.
    until("a collector", async || collector(&state).is_some_and(runs)).await;
    let mut last = collector(&state).unwrap();
    for _ in 0..5 {
        kill(last, Signal::KILL);
        until("another collector", async || collector(&state).is_some_and(|pid| pid != last && runs(pid)))
            .await;
        last = collector(&state).unwrap();
        let before = world.output("count").len();
        until("more output", async || world.output("count").len() > before + 50).await;
        assert_eq!(collectors(&state), [last]);
    }
    driver.destroy(&id, true).await.unwrap();
    assert!(collectors(&state).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_without_a_record_ends() {
    let dir = tempfile::tempdir().unwrap();
    for pipe in ["out", "err"] {
        let made = std::process::Command::new("mkfifo").arg(dir.path().join(pipe)).status().unwrap();
        assert!(made.success());
    }
    let logs = LogSpec {
        dir: dir.path().to_owned(),
        stdout: "a.stdout".into(),
        stderr: "a.stderr".into(),
        max_files: 1,
        max_bytes: 1 << 20,
    };
    let spec = CollectSpec { stdout: dir.path().join("out"), stderr: dir.path().join("err"), logs };
    let shim = ShimCommand { program: env!("CARGO_BIN_EXE_caravan-plugin-shim").into(), args: vec![] };
    let start = async || {
        let log = dir.path().join("collector.log");
        shim.start_helper(COLLECT, &log, &encode(&spec).unwrap(), COLLECTING, TIMEOUT).await.unwrap()
    };
    let lost = start().await;
    let pid = lost.process.unwrap().pid;
    // The agent ends before it has recorded the process.
    drop(lost);
    until("the end of the collector", async || !runs(pid)).await;

    let mut kept = start().await;
    let pid = kept.process.unwrap().pid;
    kept.input.write_all(RECORDED).await.unwrap();
    drop(kept);
    std::fs::write(dir.path().join("out"), "line\n").unwrap();
    let written = || std::fs::read_to_string(dir.path().join("a.stdout.0")).unwrap_or_default();
    until("the line", async || written() == "line\n").await;
    kill(pid, Signal::TERM);
    until("the end of the collector", async || !runs(pid)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_never_stored_is_ended() {
    let world = World::new();
    let driver = world.external().await;
    let config = world.script("lost", "echo $$; exec sleep 100000");
    let (id, state) = (config.id.clone(), config.dirs.state_dir.clone());
    driver.start(config).await.unwrap();
    until("output", async || world.output("lost").ends_with('\n')).await;
    let pid: u32 = world.output("lost").trim().parse().unwrap();
    drop(driver);
    kill(world.pid(DRIVER), Signal::KILL);

    let driver = world.external().await;
    assert!(runs(pid));
    driver.end_lost(&id, &state).await.unwrap();
    until("the end of the run", async || !runs(pid)).await;
    assert!(!state.exists());
    driver.end_lost(&id, &state).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_an_agent_ends_the_plugin_and_no_task() {
    let world = World::new();
    let driver = world.external().await;
    let handle = driver.start(world.script("count", COUNT)).await.unwrap();
    let pid = world.pid(DRIVER);
    driver.shutdown().await;
    until("the end of the plugin", async || !runs(pid)).await;
    assert!(!world.dir.path().join("state").join(DRIVER).join("process.json").exists());
    more_lines(&world, "count").await;
    let driver = world.external().await;
    let id = handle.task_id.clone();
    driver.recover(handle).await.unwrap();
    more_lines(&world, "count").await;
    driver.destroy(&id, true).await.unwrap();
}
