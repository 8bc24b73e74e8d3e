//! Engines that end, hang or are absent, and agents that die.

use crate::*;

#[tokio::test(flavor = "multi_thread")]
async fn output_survives_agents_and_engines() {
    let mut world = World::new();
    // The first agent has a runtime of its own, which ends with it.
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
    // The engine ends, and its containers with it. That is reported when an engine is back.
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
