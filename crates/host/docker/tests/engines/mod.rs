//! Engines that end, hang or are absent, and agents that die.

use crate::*;

#[tokio::test(flavor = "multi_thread")]
async fn output_survives_agents_and_engines() {
    let mut world = World::new();
    // The first agent has a separate runtime, which ends with it.
    let agent = tokio::runtime::Runtime::new().unwrap();
    let driver = Arc::new(world.docker());
    let config =
        world.script("t", "i=0; while [ $i -lt 100000 ]; do echo line $i; i=$((i+1)); sleep 0.02; done");
    let id = config.id.clone();
    let starting = driver.clone();
    let handle = agent.spawn(async move { starting.start(config).await }).await.unwrap().unwrap();
    until("some output", || world.output("t").lines().count() > 20).await;
    agent.shutdown_background();
    drop(driver);
    let driver = world.docker();
    driver.recover(handle.clone()).await.unwrap();
    let before = world.output("t").lines().count();
    until("more output", || world.output("t").lines().count() > before + 20).await;
    let check = |text: &str| {
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            assert_eq!(*line, format!("line {number}"), "after {:?}", lines.get(number.saturating_sub(1)));
        }
    };
    check(&world.output("t"));
    // The engine ends, and its containers with it. Their end is reported when an engine runs again.
    let mut events = driver.events().unwrap();
    world.engine.halt().unwrap();
    let event = tokio::time::timeout(TIMEOUT, events.recv()).await.unwrap().unwrap();
    assert!(event.message.contains("does not answer"), "{event:?}");
    assert_eq!((event.alloc_id.as_str(), event.task_name.as_str()), (world.alloc.as_str(), "t"));
    assert!(matches!(driver.inspect(&id).await.unwrap().state, TaskState::Running));
    assert_eq!(driver.fingerprint().await.state, Health::Unhealthy);
    world.engine.resume().unwrap();
    let result = tokio::time::timeout(TIMEOUT, driver.wait(&id)).await.unwrap().unwrap();
    assert!(!result.is_success(), "{result:?}");
    check(&world.output("t"));
    assert_eq!(driver.fingerprint().await.state, Health::Healthy);
    driver.destroy(&id, false).await.unwrap();
    assert!(world.engine.containers().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_the_engine() {
    let mut world = World::new();
    let driver = Arc::new(world.docker());
    let config = world.script("t", FOREVER);
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    world.engine.kill().unwrap();
    let (stopping, stopped) = (driver.clone(), id.clone());
    let mut stop = tokio::spawn(async move { stopping.stop(&stopped, TIMEOUT, None).await });
    let waits = tokio::time::timeout(Duration::from_millis(500), &mut stop).await;
    assert!(waits.is_err(), "it does not claim an end that it cannot know");
    world.engine.resume().unwrap();
    tokio::time::timeout(TIMEOUT, stop).await.unwrap().unwrap().unwrap();
    driver.destroy(&id, true).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_run_is_ended_and_replaced() {
    let world = World::new();
    let first = world.docker();
    first.start(world.script("t", FOREVER)).await.unwrap();
    drop(first);
    // The agent died before it stored the handle. The next run has another id and the same name.
    let second = world.docker();
    let mut config = world.script("t", FOREVER);
    config.id = TaskId(format!("{}/t/2", world.alloc));
    let id = config.id.clone();
    second.start(config).await.unwrap();
    assert_eq!(world.engine.containers().unwrap(), [format!("t-{}", world.alloc)]);
    second.end_lost(&TaskId(format!("{}/t/1", world.alloc)), "/".as_ref()).await.unwrap();
    assert_eq!(world.engine.containers().unwrap().len(), 1, "another run stays");
    second.end_lost(&id, "/".as_ref()).await.unwrap();
    assert!(world.engine.containers().unwrap().is_empty());
    let result = tokio::time::timeout(TIMEOUT, second.wait(&id)).await.unwrap().unwrap();
    assert!(result.err.is_some(), "{result:?}");
}

#[tokio::test]
async fn a_missing_engine_is_named() {
    let options = DockerOptions::read(&json!({"endpoint": "unix:///no/such/engine.sock"})).unwrap();
    let driver = DockerDriver::new(options, "node-1", ShimCommand::default());
    let found = driver.fingerprint().await;
    assert_eq!(found.state, Health::Undetected);
    assert!(found.description.contains("nothing listens at unix:///no/such/engine.sock"), "{found:?}");
}

const COUNT: &str = "trap 'exit 7' TERM; i=0; while true; do echo line $i; i=$((i+1)); sleep 0.02; done";

/// Waits for an event with certain words. A busy machine adds others, such as that a start waits for the engine.
async fn next_event(
    events: &mut tokio::sync::mpsc::UnboundedReceiver<caravan_drivers::DriverEvent>,
    words: &str,
) {
    let arrives = async {
        loop {
            let event = events.recv().await.unwrap();
            if event.message.contains(words) {
                return;
            }
        }
    };
    assert!(tokio::time::timeout(TIMEOUT, arrives).await.is_ok(), "never reported: {words}");
}

/// Examines the engine at each change, until it is healthy.
async fn until_healthy(driver: &DockerDriver) {
    let examines = async {
        loop {
            driver.changed().await;
            if driver.fingerprint().await.state == Health::Healthy {
                return;
            }
        }
    };
    assert!(tokio::time::timeout(TIMEOUT, examines).await.is_ok(), "the change was never reported");
}

/// Kills the engine and starts it again. The container continues meanwhile.
async fn outlives_engine(kind: EngineKind) {
    let mut world = World::with_options(kind, json!({}));
    let driver = world.docker();
    let config = world.script("t", COUNT);
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    driver.fingerprint().await;
    let container = world.inspect("t", "{{.Id}} {{.State.Pid}}");
    let lines = |world: &World| world.output("t").lines().count();
    until("some output", || lines(&world) > 10).await;
    let mut events = driver.events().unwrap();
    world.engine.kill().unwrap();
    next_event(&mut events, "does not answer, the task goes on").await;
    let found = driver.fingerprint().await;
    assert_eq!(found.state, Health::Unhealthy, "{found:?}");
    assert!(
        found.description.starts_with("Failed to connect to docker daemon: nothing listens at"),
        "{found:?}"
    );
    world.engine.resume().unwrap();
    next_event(&mut events, "the Docker engine answers again").await;
    // The engine answers before a caller waits for the change, which is reported nevertheless.
    until_healthy(&driver).await;
    let before = lines(&world);
    until("more output", || lines(&world) > before + 10).await;
    assert!(matches!(driver.inspect(&id).await.unwrap().state, TaskState::Running));
    assert_eq!(world.inspect("t", "{{.Id}} {{.State.Pid}}"), container, "the same process");
    driver.stop(&id, TIMEOUT, None).await.unwrap();
    assert_eq!(driver.wait(&id).await.unwrap().exit_code, 7);
    for (number, line) in world.output("t").lines().enumerate() {
        assert_eq!(line, format!("line {number}"));
    }
    driver.destroy(&id, false).await.unwrap();
    assert!(world.engine.containers().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_outlives_its_engine() {
    outlives_engine(EngineKind::Live).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_outlives_the_service_of_podman() {
    outlives_engine(EngineKind::Podman).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_hangs_is_waited_for() {
    let world = World::new();
    let driver = Arc::new(world.docker());
    let config = world.script("old", FOREVER);
    let old = config.id.clone();
    driver.start(config).await.unwrap();
    assert_eq!(driver.fingerprint().await.state, Health::Healthy);
    let mut events = driver.events().unwrap();
    world.engine.freeze(true).unwrap();
    let config = world.script("new", FOREVER);
    let new = config.id.clone();
    let (starting, stopping, stopped) = (driver.clone(), driver.clone(), old.clone());
    let start = tokio::spawn(async move { starting.start(config).await });
    let stop = tokio::spawn(async move { stopping.stop(&stopped, TIMEOUT, None).await });
    let found = driver.fingerprint().await;
    assert_eq!(found.state, Health::Unhealthy, "{found:?}");
    assert!(found.description.contains("there was no answer for 10s"), "{found:?}");
    let mut reported = Vec::new();
    while !(reported.contains(&("new".to_owned(), "the start"))
        && reported.contains(&("old".to_owned(), "the stop")))
    {
        let event = tokio::time::timeout(TIMEOUT, events.recv()).await.unwrap().unwrap();
        for what in ["the start", "the stop"] {
            if event.message.starts_with(&format!("{what} waits for the Docker engine")) {
                reported.push((event.task_name.clone(), what));
            }
        }
    }
    assert!(!start.is_finished() && !stop.is_finished());
    world.engine.freeze(false).unwrap();
    tokio::time::timeout(TIMEOUT, start).await.unwrap().unwrap().unwrap();
    tokio::time::timeout(TIMEOUT, stop).await.unwrap().unwrap().unwrap();
    assert_eq!(driver.wait(&old).await.unwrap().exit_code, 7);
    assert_eq!(driver.fingerprint().await.state, Health::Healthy);
    for id in [old, new] {
        driver.destroy(&id, true).await.unwrap();
    }
    assert!(world.engine.containers().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_without_an_engine_may_be_repeated() {
    let mut world = World::new();
    let driver = world.docker();
    world.engine.halt().unwrap();
    let config = world.script("t", FOREVER);
    let error = driver.start(config.clone()).await.unwrap_err();
    let words = "Failed to connect to docker daemon: nothing listens at unix://";
    assert!(error.to_string().contains(words), "{error}");
    assert!(matches!(error, Error::Start { recoverable: true, .. }), "{error:?}");
    world.engine.resume().unwrap();
    driver.start(config.clone()).await.unwrap();
    driver.destroy(&config.id, true).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_another_program_removes_is_reported() {
    let world = World::new();
    let driver = world.docker();
    let config = world.script("t", FOREVER);
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    world.engine.docker(&["rm", "-f", &format!("t-{}", world.alloc)]).unwrap();
    let result = tokio::time::timeout(TIMEOUT, driver.wait(&id)).await.unwrap().unwrap();
    // The engine may report the end before the removal.
    assert!(!result.is_success(), "{result:?}");
    driver.destroy(&id, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_without_a_task_are_removed() {
    let world = World::new();
    let mut options = DockerOptions::read(&world.options).unwrap();
    options.gc.dangling.creation_grace = Duration::ZERO;
    options.gc.dangling.period = Duration::from_millis(100);
    let make = |name: &str, node: &str| {
        let (node, alloc) = (format!("caravan.node_id={node}"), "com.hashicorp.nomad.alloc_id=gone");
        let labels = ["--label", &node, "--label", alloc];
        let command = [
            &["run", "-d", "--network", "none", "--name", name],
            &labels[..],
            &[ContainerEngine::IMAGE, "sleep", "1000"],
        ]
        .concat();
        world.engine.docker(&command).unwrap();
    };
    make("lost-1", "node-1");
    make("other-node", "node-2");
    world
        .engine
        .docker(&["create", "--network", "none", "--name", "foreign", ContainerEngine::IMAGE, "sh"])
        .unwrap();
    options.gc.dangling.dry_run = true;
    let careful = world.docker_with(options.clone());
    careful.fingerprint().await;
    options.gc.dangling.dry_run = false;
    let config = world.script("t", FOREVER);
    let driver = world.docker_with(options);
    driver.start(config.clone()).await.unwrap();
    assert_eq!(world.engine.containers().unwrap().len(), 4, "a dry run removes nothing");
    driver.fingerprint().await;
    let tracked = format!("t-{}", world.alloc);
    let mut left = vec!["foreign".to_owned(), "other-node".to_owned(), tracked];
    left.sort();
    until("the lost container to be removed", || world.engine.containers().unwrap() == left).await;
    driver.destroy(&config.id, true).await.unwrap();
}
