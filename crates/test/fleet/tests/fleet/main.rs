//! Small fleets, with the checks of large ones.

use caravan_fleet::{Cluster, Load, Setup, Size, Storm, Web, fill, plain_nodes, run, storm, survey};
use std::time::Duration;

fn setup(nodes: usize, workers: usize) -> Setup {
    Setup { nodes, workers, ..Setup::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_is_placed_and_acknowledged_whole() {
    let mut cluster = Cluster::start(&setup(200, 2)).await.unwrap();
    let load = Load { allocs: 2000, each: 100, in_flight: 4, ahead: 1000, step: 1000 };
    let mut reported = Vec::new();
    run(&mut cluster, &load, |figures| reported.push(figures.allocs)).await.unwrap();
    assert_eq!(reported.last(), Some(&2000));
    assert_eq!(survey(&cluster.root()), []);
    assert_eq!(cluster.root().allocs().count(), 2000);
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_place_a_load_and_agree() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup { servers: 3, dir: Some(dir.path().to_owned()), ..setup(60, 2) };
    let mut cluster = Cluster::start(&setup).await.unwrap();
    let load = Load { allocs: 600, each: 50, in_flight: 3, ahead: 300, step: 600 };
    run(&mut cluster, &load, |_| ()).await.unwrap();
    let index = cluster.root().index();
    let begun = std::time::Instant::now();
    while cluster.roots().iter().any(|root| root.index() < index) {
        assert!(begun.elapsed() < Duration::from_secs(30), "a follower does not apply the load");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for root in cluster.roots() {
        assert_eq!(survey(&root), []);
        assert_eq!(root.allocs().count(), 600);
    }
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup { dir: Some(dir.path().to_owned()), ..setup(20, 1) };
    let mut cluster = Cluster::start(&setup).await.unwrap();
    let load = Load { allocs: 200, each: 50, in_flight: 2, ahead: 100, step: 200 };
    run(&mut cluster, &load, |_| ()).await.unwrap();
    cluster.stop().await.unwrap();
    let again = Cluster::start(&setup).await.unwrap();
    assert_eq!(again.root().allocs().filter(|alloc| !alloc.terminal()).count(), 200);
    assert_eq!(survey(&again.root()), []);
    again.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_leaves_nothing_lost_doubled_or_stranded() {
    let setup = Setup { heartbeat: Some(Duration::from_millis(500)), ..setup(60, 2) };
    let mut cluster = Cluster::start(&setup).await.unwrap();
    let found = storm(&mut cluster, 60, Storm { seed: 7, rounds: 6, percent: 6 }).await.unwrap();
    assert_eq!(found, []);
    cluster.stop().await.unwrap();
}

/// Checks the bytes, requests, elements and memory of the web page, over lists with more than one page of rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_web_page_stays_within_its_budgets() {
    let size = Size { nodes: 150, allocs: 2400, each: 20, volumes: 150, jobs: 150 };
    let mut cluster = Cluster::start(&setup(plain_nodes(size), 2)).await.unwrap();
    fill(&mut cluster, size).await.unwrap();
    let web = Web::start(&cluster, ([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = format!("http://{}", web.address);
    let session = tokio::task::spawn_blocking(move || {
        caravan_testkit::browser::session("budget.mjs", &address, &[], &[])?;
        caravan_testkit::browser::session("moves.mjs", &address, &[], &[])
    });
    session.await.unwrap().unwrap();
    drop(web);
    cluster.stop().await.unwrap();
}
