//! The output of podman's containers, which the driver reads from podman's own files.

use crate::*;
use tokio::runtime::Runtime;

/// Lines on each output of a long run.
const LINES: usize = 200_000;

/// The first number on standard error.
const ERRORS: usize = 1_000_001;

/// Prints numbers on both outputs, as fast as possible, in parts.
const NUMBERS: &str = "n=0; while [ $n -lt 200000 ]; do \
    seq $((n+1)) $((n+50000)) & seq $((n+1000001)) $((n+1050000)) >&2; wait; n=$((n+50000)); sleep 0.2; done";

fn read(world: &World, output: &str) -> String {
    let logs = world.dir.path().join(&world.alloc).join("alloc/logs");
    std::fs::read_to_string(logs.join(format!("t.{output}.0"))).unwrap_or_default()
}

/// Checks that an output has the numbers from the first one on, each once.
fn check_numbers(text: &str, first: usize, count: usize) {
    let mut before = None;
    for (line, number) in text.lines().zip(first..) {
        assert_eq!(line, number.to_string(), "after {before:?}");
        before = Some(line);
    }
    assert_eq!(text.lines().count(), count, "after {before:?}");
    assert!(text.ends_with('\n'));
}

fn numbers(world: &World) -> TaskConfig {
    let mut config = world.script("t", NUMBERS);
    config.logs.as_mut().unwrap().max_file_size_mb = 64;
    config
}

async fn end(driver: &DockerDriver, world: &World, id: &TaskId) {
    let result = tokio::time::timeout(TIMEOUT, driver.wait(id)).await.unwrap().unwrap();
    assert!(result.is_success(), "{result:?}");
    check_numbers(&read(world, "stdout"), 1, LINES);
    check_numbers(&read(world, "stderr"), ERRORS, LINES);
    driver.destroy(id, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_arrives_whole() {
    let world = World::with_options(EngineKind::Podman, json!({}));
    let driver = world.docker();
    let config = numbers(&world);
    driver.start(config.clone()).await.unwrap();
    end(&driver, &world, &config.id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_arrives_once_over_restarts_of_the_agent() {
    let world = World::with_options(EngineKind::Podman, json!({}));
    let config = numbers(&world);
    let id = config.id.clone();
    let mut handle: Option<TaskHandle> = None;
    for round in 1..=3 {
        // Each agent has a separate runtime, which ends with it.
        let agent = Runtime::new().unwrap();
        let driver = Arc::new(world.docker());
        let (starting, config, known) = (driver.clone(), config.clone(), handle.take());
        let run = agent.spawn(async move {
            match known {
                None => starting.start(config).await.unwrap(),
                Some(known) => {
                    starting.recover(known.clone()).await.unwrap();
                    known
                }
            }
        });
        handle = Some(run.await.unwrap());
        let size = |world: &World| read(world, "stdout").len() + read(world, "stderr").len();
        until("some output", || size(&world) > round * 400_000).await;
        drop(driver);
        // Waits for the reader of the output, as for a process that ends.
        tokio::task::spawn_blocking(move || agent.shutdown_timeout(TIMEOUT)).await.unwrap();
    }
    let driver = world.docker();
    driver.recover(handle.unwrap()).await.unwrap();
    end(&driver, &world, &id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_podman_rotates_arrives_whole() {
    let world = World::with_options(EngineKind::Podman, json!({}));
    let driver = world.docker();
    let script = "n=0; while [ $n -lt 1600 ]; do seq $((n+1)) $((n+40)); n=$((n+40)); sleep 0.1; done";
    let mut config = world.script("t", script);
    config.driver_config["logging"] = json!({"type": "json-file", "config": {"max-size": "20kb"}});
    driver.start(config.clone()).await.unwrap();
    let path = world.inspect("t", "{{.LogPath}}");
    let result = tokio::time::timeout(TIMEOUT, driver.wait(&config.id)).await.unwrap().unwrap();
    assert!(result.is_success(), "{result:?}");
    assert!(std::fs::metadata(path).unwrap().len() < 40_000, "podman rotates the file");
    check_numbers(&read(&world, "stdout"), 1, 1600);
    driver.destroy(&config.id, false).await.unwrap();
}

/// The path may be that of another container's file, so only the engine reads it.
#[tokio::test(flavor = "multi_thread")]
async fn a_path_of_the_job_is_read_by_the_engine() {
    let world = World::with_options(EngineKind::Podman, json!({}));
    let driver = world.docker();
    let mut config = world.script("t", "echo hello; printf part; printf ial; echo; echo wrong >&2");
    let path = world.dir.path().join("own.log").display().to_string();
    config.driver_config["logging"] = json!({"type": "json-file", "config": {"path": path}});
    let handle = driver.start(config.clone()).await.unwrap();
    let reported = world.inspect("t", "{{.LogPath}}");
    assert_eq!(handle.state["output_file"].is_null(), reported == path, "{reported}");
    driver.wait(&config.id).await.unwrap();
    assert_eq!(read(&world, "stdout"), "hello\npartial\n");
    assert_eq!(read(&world, "stderr"), "wrong\n");
    driver.destroy(&config.id, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_any_form_arrive() {
    let world = World::with_options(EngineKind::Podman, json!({}));
    let driver = world.docker();
    // Longer than the parts in which podman keeps a line; an empty line; a last line without its end.
    let script = "i=0; while [ $i -lt 5000 ]; do printf 0123456789; i=$((i+1)); done; echo; echo; echo ' a  b '; printf end";
    let config = world.script("t", script);
    let handle = driver.start(config.clone()).await.unwrap();
    assert!(handle.state["output_file"].is_string(), "{:?}", handle.state);
    driver.wait(&config.id).await.unwrap();
    assert_eq!(read(&world, "stdout"), format!("{}\n\n a  b \nend", "0123456789".repeat(5000)));
    driver.destroy(&config.id, false).await.unwrap();
}
