//! Containers that must end with the lease of their node.

use crate::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_container_ends_with_the_lease_of_its_node() {
    let world = World::new();
    let lease_file = world.dir.path().join("lease");
    let (writer, none) = LeaseWriter::open(&lease_file).unwrap();
    let now = BootTime::now();
    // Longer than a busy machine takes to start the container.
    let lease: Lease = none.renewed(now, Duration::from_secs(20), now);
    writer.write(lease).unwrap();
    let driver = world.docker();
    let mut config = world.script("t", "trap '' TERM; sleep 100000");
    config.lease = Some(Term { file: lease_file, began: lease.began.0 });
    let id = config.id.clone();
    driver.start(config.clone()).await.unwrap();
    assert!(matches!(driver.inspect(&id).await.unwrap().state, TaskState::Running));
    // The agent hangs: no process renews the lease.
    let result = tokio::time::timeout(TIMEOUT, driver.wait(&id)).await.unwrap().unwrap();
    assert_eq!(result.exit_code, 137);
    assert!(!lease.holds(BootTime::now()), "not before the lease ran out");
    driver.destroy(&id, true).await.unwrap();
    // A lease that has run out permits no start.
    let error = driver.start(config).await.unwrap_err();
    assert!(error.to_string().contains("guard"), "{error}");
    assert!(world.engine.containers().unwrap().is_empty());
}

/// Returns the process of the guard.
fn guard(config: &TaskConfig) -> Option<u32> {
    let text = std::fs::read(config.dirs.state_dir.join("guard.json")).ok()?;
    let record: Value = serde_json::from_slice(&text).unwrap();
    u32::try_from(record["pid"].as_u64()?).ok()
}

fn kill(pid: u32) {
    let process = caravan_sys::process::PidFd::open(pid).unwrap().unwrap();
    assert!(process.send_signal(9).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_was_killed_is_replaced() {
    let world = World::new();
    let lease_file = world.dir.path().join("lease");
    let (writer, none) = LeaseWriter::open(&lease_file).unwrap();
    let now = BootTime::now();
    let lease: Lease = none.renewed(now, Duration::from_secs(3600), now);
    writer.write(lease).unwrap();
    let driver = world.docker();
    let mut config = world.script("t", "trap '' TERM; sleep 100000");
    config.lease = Some(Term { file: lease_file, began: lease.began.0 });
    let id = config.id.clone();
    let handle = driver.start(config.clone()).await.unwrap();
    let mut events = driver.events().unwrap();
    let first = guard(&config).unwrap();
    kill(first);
    until("another guard", || guard(&config).is_some_and(|pid| pid != first)).await;
    let event = tokio::time::timeout(TIMEOUT, events.recv()).await.unwrap().unwrap();
    assert!(event.message.contains("the guard of the container ended early"), "{event:?}");
    assert!(matches!(driver.inspect(&id).await.unwrap().state, TaskState::Running));
    // The guard dies while there is no agent.
    driver.shutdown().await;
    drop(driver);
    let second = guard(&config).unwrap();
    kill(second);
    let driver = world.docker();
    driver.recover(handle).await.unwrap();
    until("a third guard", || guard(&config).is_some_and(|pid| pid != second)).await;
    // The last guard enforces the lease, which its term no longer has.
    let over: Lease = lease.renewed(BootTime::now(), Duration::ZERO, now);
    writer.write(over).unwrap();
    kill(guard(&config).unwrap());
    let result = tokio::time::timeout(TIMEOUT, driver.wait(&id)).await.unwrap().unwrap();
    assert_eq!(result.exit_code, 137);
    driver.destroy(&id, true).await.unwrap();
    assert!(world.engine.containers().unwrap().is_empty());
}
