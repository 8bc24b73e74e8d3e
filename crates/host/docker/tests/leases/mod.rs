//! Containers that must end with the lease of their node.

use crate::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_container_ends_with_the_lease_of_its_node() {
    let world = World::new();
    let lease_file = world.dir.path().join("lease");
    let (writer, none) = LeaseWriter::open(&lease_file).unwrap();
    let now = BootTime::now();
    let lease: Lease = none.renewed(now, Duration::from_secs(3), now);
    writer.write(lease).unwrap();
    let driver = world.docker();
    let mut config = world.script("t", "trap '' TERM; sleep 100000");
    config.lease = Some(Term { file: lease_file, began: lease.began.0 });
    let id = config.id.clone();
    driver.start(config.clone()).await.unwrap();
    assert!(matches!(driver.inspect(&id).await.unwrap().state, TaskState::Running));
    // The agent hangs: nobody renews the lease.
    let result = tokio::time::timeout(TIMEOUT, driver.wait(&id)).await.unwrap().unwrap();
    assert_eq!(result.exit_code, 137);
    assert!(!lease.holds(BootTime::now()), "not before the lease ran out");
    driver.destroy(&id, true).await.unwrap();
    // A lease that has run out permits no start.
    let error = driver.start(config).await.unwrap_err();
    assert!(error.to_string().contains("guard"), "{error}");
    assert!(world.engine.containers().unwrap().is_empty());
}
