//! Tests of the life of members, one situation at a time.

use super::*;

const ALIVE: Option<Status> = Some(Status::Alive);
const FAILED: Option<Status> = Some(Status::Failed);

#[test]
fn one_seed_is_one_trace() {
    let trace = |seed| {
        let mut sim = Sim::cluster(seed, 8);
        sim.loss = 0.1;
        sim.kill(3);
        sim.run(secs(60));
        sim.trace()
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}

#[test]
fn a_dead_member_is_failed_everywhere_within_15_seconds() {
    for count in [2, 3, 10, 50] {
        let mut sim = Sim::cluster(u64::from(count), count);
        sim.run(secs(20));
        sim.kill(1);
        let took = sim.wait("failed", secs(15), |sim| sim.all_show(1, FAILED));
        println!("{count} members: {took:?}");
        sim.start(1);
        sim.join(1, 0);
        sim.wait("back", secs(5), |sim| sim.agrees());
    }
}

#[test]
fn a_stopped_member_is_failed_and_returns_at_once() {
    let mut sim = Sim::cluster(1, 5);
    sim.run(secs(10));
    sim.stop(2);
    sim.wait("failed", secs(15), |sim| sim.all_show(2, FAILED));
    sim.run(secs(10));
    let others = |sim: &Sim| -> Vec<&'static str> { sim.events(0, 3) };
    let before = others(&sim).len();
    sim.resume(2);
    sim.wait("back", secs(5), |sim| sim.agrees());
    sim.run(secs(20));
    assert!(sim.agrees());
    // The server did not report the others as failed because of its own pause.
    assert_eq!(others(&sim).len(), before);
    assert_eq!(sim.events(2, 3), ["joined"]);
}

#[test]
fn a_member_that_leaves_is_left_and_not_failed() {
    let mut sim = Sim::cluster(1, 4);
    sim.act(3, |core, now| core.leave(now));
    sim.wait("leaving", secs(2), |sim| sim.all_show(3, Some(Status::Leaving)));
    sim.act(3, |core, now| core.left(now));
    sim.wait("left", secs(2), |sim| sim.all_show(3, Some(Status::Left)));
    sim.kill(3);
    sim.run(secs(60));
    assert!(sim.all_show(3, Some(Status::Left)));
    assert_eq!(sim.events(0, 3), ["joined", "leaving", "left"]);
    sim.start(3);
    sim.join(3, 1);
    sim.wait("back", secs(5), |sim| sim.agrees());
}

/// Checks that a member that leaves informs a member that has returned, before the first one has noticed the return.
#[test]
fn a_member_that_leaves_informs_failed_members_that_have_returned() {
    let mut sim = Sim::cluster(1, 4);
    sim.kill(2);
    sim.wait("failed", secs(15), |sim| sim.all_show(2, FAILED));
    sim.start(2);
    sim.act(3, |core, now| core.leave(now));
    sim.act(3, |core, now| core.left(now));
    sim.kill(3);
    sim.wait("left", secs(1), |sim| sim.status(2, 3) == Some(Status::Left));
}

#[test]
fn absent_members_are_reaped_and_do_not_return() {
    let mut sim = Sim::new(1);
    sim.timing = Timing { reap_failed: secs(300), reap_left: secs(120), tombstone: secs(600), ..sim.timing };
    sim.add(4);
    sim.act(3, |core, now| core.left(now));
    sim.kill(3);
    sim.kill(2);
    sim.run(secs(60));
    assert_eq!((sim.status(0, 2), sim.status(0, 3)), (FAILED, Some(Status::Left)));
    // The server receives both rows late, and must not restore the members.
    sim.start(9);
    sim.join(9, 0);
    sim.wait("left is reaped", secs(150), |sim| sim.all_show(3, None));
    assert_eq!(sim.status(0, 2), FAILED);
    sim.wait("failed is reaped", secs(300), |sim| sim.all_show(2, None));
    sim.run(secs(1200));
    assert!(sim.all_show(2, None) && sim.all_show(3, None) && sim.agrees());
    assert_eq!(sim.events(0, 3).last(), Some(&"reaped"));
    sim.start(2);
    sim.join(2, 1);
    sim.wait("back", secs(5), |sim| sim.agrees());
}

#[test]
fn a_member_that_dies_while_it_leaves_is_left() {
    let mut sim = Sim::cluster(1, 4);
    sim.act(3, |core, now| core.leave(now));
    sim.run(secs(1));
    sim.kill(3);
    sim.wait("left", secs(15), |sim| sim.all_show(3, Some(Status::Left)));
}

#[test]
fn force_leave_of_a_failed_member_is_left_until_it_returns() {
    let mut sim = Sim::cluster(1, 4);
    sim.kill(3);
    sim.wait("failed", secs(15), |sim| sim.all_show(3, FAILED));
    sim.act(0, |core, now| assert!(core.force_leave(now, &name(3), false)));
    sim.wait("left", secs(1), |sim| sim.all_show(3, Some(Status::Left)));
    sim.act(0, |core, now| assert!(!core.force_leave(now, "nope", false)));
    sim.start(3);
    sim.join(3, 1);
    sim.wait("back", secs(5), |sim| sim.agrees());
}

#[test]
fn force_leave_of_an_alive_member_shows_leaving_until_it_refutes() {
    let mut sim = Sim::cluster(1, 3);
    sim.act(0, |core, now| assert!(core.force_leave(now, &name(2), false)));
    for _ in 3..=6 {
        sim.run(secs(1));
        assert!(sim.all_show(2, Some(Status::Leaving)), "{}", sim.describe());
    }
    sim.wait("refuted", secs(10), |sim| sim.agrees());
    assert_eq!(sim.events(0, 2), ["joined", "leaving", "joined"]);
}

#[test]
fn prune_removes_at_once_and_the_living_return() {
    let mut sim = Sim::cluster(1, 4);
    // The process has just ended: no member has detected the failure yet.
    sim.kill(3);
    sim.act(0, |core, now| assert!(core.force_leave(now, &name(3), true)));
    sim.wait("removed", secs(1), |sim| sim.all_show(3, None));
    sim.run(secs(60));
    assert!(sim.all_show(3, None));
    sim.act(0, |core, now| assert!(core.force_leave(now, &name(2), true)));
    sim.wait("removed", secs(1), |sim| sim.status(0, 2).is_none() && sim.status(1, 2).is_none());
    sim.wait("back", secs(15), |sim| sim.agrees());
}

#[test]
fn members_survive_cuts() {
    let mut sim = Sim::cluster(1, 6);
    // One broken direction between two members has no effect: other members probe indirectly.
    sim.cut(1, 2);
    sim.run(secs(60));
    assert!(sim.agrees(), "{}", sim.describe());
    // Two halves report each other as failed, and reach each other again.
    sim.cut_groups(&[0, 1, 2], &[3, 4, 5]);
    sim.wait("halves", secs(20), |sim| (3..6).all(|n| sim.status(0, n) == FAILED));
    sim.run(secs(300));
    sim.cuts.clear();
    sim.wait("healed", secs(40), |sim| sim.agrees());
}

#[test]
fn isolated_members_find_each_other_again() {
    let mut sim = Sim::cluster(1, 3);
    sim.cut_groups(&[0], &[1, 2]);
    sim.cut_groups(&[1], &[2]);
    sim.wait("isolated", secs(20), |sim| (1..3).all(|n| sim.status(0, n) == FAILED));
    sim.run(secs(600));
    sim.cuts.clear();
    sim.wait("healed", secs(15), |sim| sim.agrees());
}

#[test]
fn a_new_address_and_new_tags_spread() {
    let mut sim = Sim::cluster(1, 5);
    sim.act(2, |core, now| {
        let mut tags = tags(2);
        tags.insert("caravan_cluster".into(), "x".repeat(100_000));
        core.set_tags(now, tags);
    });
    sim.wait("tags", secs(1), |sim| sim.agrees());
    assert_eq!(sim.events(0, 2), ["joined", "updated"]);
    sim.kill(2);
    sim.start_at(2, addr(99));
    sim.join(2, 0);
    sim.wait("address", secs(5), |sim| sim.agrees());
    assert_eq!(sim.members(0).iter().find(|m| m.id == id(2)).unwrap().addr, addr(99));
}

#[test]
fn another_server_of_the_same_name_replaces_a_failed_one() {
    let mut sim = Sim::cluster(1, 4);
    sim.kill(3);
    let own = Own { id: id(77), name: name(3), addr: addr(77), tags: tags(3), epoch: 1 };
    let core = Core::new(own, Timing::default(), 5, sim.now);
    sim.servers.insert(77, Server::new(core, addr(77)));
    sim.join(77, 0);
    sim.wait("replaced", secs(20), |sim| {
        sim.all_show(77, ALIVE) && (0..3).all(|n| sim.status(n, 3).is_none())
    });
}

/// Checks that members of two clusters in one region report each other. Members of another region are not reported.
#[test]
fn servers_of_two_clusters_are_reported_on_both_sides() {
    let mut sim = Sim::cluster(3, 3);
    let tags_of = |n: u16, cluster: Option<u128>| {
        let cluster = cluster.map(Uuid::from_u128);
        ServerTags { region: region(n).into(), id: id(n), cluster, ..ServerTags::default() }.to_tags()
    };
    // Server 0 is in the west, 1 and 2 are in the east.
    for (n, cluster) in [(0, Some(7)), (1, Some(8)), (2, None)] {
        sim.act(n, |core, now| core.set_tags(now, tags_of(n, cluster)));
    }
    sim.wait("tags", secs(5), |sim| sim.agrees());
    assert!(sim.notices(1).is_empty(), "{:?}", sim.notices(1));
    sim.act(2, |core, now| core.set_tags(now, tags_of(2, Some(9))));
    sim.wait("reports", secs(5), |sim| !sim.notices(1).is_empty() && !sim.notices(2).is_empty());
    let (own, cluster) = (Uuid::from_u128(8).to_string(), Uuid::from_u128(9).to_string());
    let report = Notice::OtherCluster { name: name(2), at: addr(2), cluster, own };
    assert_eq!(sim.notices(1), [report]);
}
