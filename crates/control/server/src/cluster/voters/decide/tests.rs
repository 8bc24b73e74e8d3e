use super::*;
use std::time::Duration;

const CLUSTER: Uuid = Uuid::from_u128(99);

fn server(n: u64, voter: bool) -> Server {
    let id = Uuid::from_u128(u128::from(n));
    let name = format!("s{n}.global");
    let addr = format!("10.0.0.{n}:4647");
    let peer = Peer { server: id, name: name.clone(), addr: addr.clone() };
    Server {
        id,
        name,
        address: addr,
        status: Some(Status::Alive),
        status_age: Nanos::from_secs(100),
        was_known: true,
        is_held: false,
        is_stuck: false,
        cluster: Some(CLUSTER),
        number: Some(ServerId(n)),
        level: Some(2),
        never_votes: false,
        healthy_for: Some(Nanos::from_secs(100)),
        recorded: Some(MemberState {
            number: ServerId(n),
            peer,
            voter,
            matched: Some(10),
            last_contact: Some(Duration::ZERO),
        }),
    }
}

fn new(n: u64) -> Server {
    Server { cluster: None, number: None, healthy_for: None, recorded: None, ..server(n, false) }
}

fn failed(n: u64) -> Server {
    let mut server = server(n, true);
    server.status = Some(Status::Failed);
    server.healthy_for = None;
    server.recorded.as_mut().unwrap().last_contact = Some(Duration::from_secs(40));
    server
}

fn three() -> Vec<Server> {
    (1..=3).map(|n| server(n, true)).collect()
}

fn due_with(config: &AutopilotConfig, servers: &[Server], age: i64) -> Option<Change> {
    let (own, term_age) = (ServerId(1), Nanos::from_secs(age));
    decide(&Facts { own, level: 2, cluster: CLUSTER, term_age, config, servers })
}

fn due(servers: &[Server]) -> Option<Change> {
    due_with(&AutopilotConfig::default(), servers, 100)
}

#[test]
fn a_healthy_cluster_stays_as_it_is() {
    assert_eq!(due(&three()), None);
}

#[test]
fn a_server_without_a_log_is_admitted_and_later_promoted() {
    let mut servers = three();
    servers.push(new(4));
    let peer = servers[3].peer();
    assert_eq!(due(&servers), Some(Change::Admit { server: servers[3].id, peer, replaces: None }));
    servers[3] = Server { healthy_for: None, ..server(4, false) };
    assert_eq!(due(&servers), None, "not healthy yet");
    servers[3].healthy_for = Some(Nanos::from_secs(9));
    assert_eq!(due(&servers), None, "not stable yet");
    let young = due_with(&AutopilotConfig::default(), &servers, 5);
    assert_eq!(young, Some(Change::Promote { number: ServerId(4) }), "a young term does not wait");
    servers[3].healthy_for = Some(Nanos::from_secs(10));
    assert_eq!(due(&servers), Some(Change::Promote { number: ServerId(4) }));
    servers[3].never_votes = true;
    assert_eq!(due(&servers), None);
}

#[test]
fn a_server_that_cannot_be_admitted_delays_no_other_one() {
    let mut servers = three();
    servers.extend([Server { is_stuck: true, ..new(4) }, server(5, false)]);
    assert_eq!(due(&servers), Some(Change::Promote { number: ServerId(5) }));
    servers[4] = new(5);
    assert!(matches!(due(&servers), Some(Change::Admit { server, .. }) if server == servers[4].id));
    servers[4] = failed(5);
    servers[4].recorded.as_mut().unwrap().voter = false;
    servers[4].status_age = Nanos::from_secs(100);
    assert!(matches!(due(&servers), Some(Change::Remove { number: ServerId(5), forced: true, .. })));
}

#[test]
fn a_server_of_another_cluster_or_an_older_version_is_not_admitted() {
    let mut servers = three();
    servers.push(Server { cluster: Some(Uuid::from_u128(5)), ..new(4) });
    assert_eq!(due(&servers), None);
    servers[3] = Server { level: Some(0), ..new(4) };
    assert_eq!(due(&servers), None);
}

#[test]
fn a_wiped_server_gets_another_number() {
    let mut servers = three();
    servers[2] = Server { cluster: None, number: None, ..server(3, true) };
    let (server, peer) = (servers[2].id, servers[2].peer());
    assert_eq!(due(&servers), Some(Change::Admit { server, peer, replaces: Some(ServerId(3)) }));
}

#[test]
fn a_server_with_a_new_identity_at_its_old_address_takes_its_own_place_at_once() {
    let mut servers = three();
    let before = servers[2].clone();
    servers.push(Server { name: before.name.clone(), address: before.address.clone(), ..new(4) });
    let (server, peer) = (servers[3].id, servers[3].peer());
    assert_eq!(due(&servers), Some(Change::Admit { server, peer, replaces: Some(ServerId(3)) }));
    // A name alone may be a mistake: the server of that name still runs elsewhere.
    servers[3].address = "elsewhere:4647".into();
    let (server, peer) = (servers[3].id, servers[3].peer());
    assert_eq!(due(&servers), Some(Change::Admit { server, peer, replaces: None }));
}

#[test]
fn a_new_server_takes_the_place_of_a_failed_one_of_its_name() {
    let mut servers = three();
    servers[2] = Server { status_age: Nanos::ZERO, ..failed(3) };
    servers.push(Server { name: servers[2].name.clone(), ..new(4) });
    let (server, peer) = (servers[3].id, servers[3].peer());
    assert_eq!(due(&servers), Some(Change::Admit { server, peer, replaces: Some(ServerId(3)) }));
}

#[test]
fn a_server_that_was_removed_returns_under_its_number() {
    let mut servers = three();
    servers.push(Server { recorded: None, ..server(4, false) });
    let peer = servers[3].peer();
    assert_eq!(due(&servers), Some(Change::Return { number: ServerId(4), peer }));
    servers[3].is_held = true;
    assert_eq!(due(&servers), None, "an operator has just removed it");
}

#[test]
fn a_replaced_server_that_still_shows_as_alive_does_not_return() {
    let mut servers = three();
    let replaced = Server { recorded: None, ..server(3, true) };
    servers[2] = Server { address: replaced.address.clone(), ..server(4, true) };
    servers[2].recorded.as_mut().unwrap().peer = servers[2].peer();
    servers.push(replaced);
    assert_eq!(due(&servers), None);
    // The server at the address has failed: the replaced server may be the server that runs.
    servers[2] = Server { address: servers[2].address.clone(), status_age: Nanos::ZERO, ..failed(4) };
    assert!(matches!(due(&servers), Some(Change::Return { number: ServerId(3), .. })));
}

#[test]
fn a_server_that_was_pruned_is_removed_once_it_is_silent() {
    let mut servers = three();
    servers[2] = Server { status: None, healthy_for: None, status_age: Nanos::ZERO, ..server(3, true) };
    assert_eq!(due(&servers), None, "the server runs, and returns to the table");
    servers[2].recorded.as_mut().unwrap().last_contact = Some(Duration::from_secs(5));
    assert!(matches!(due(&servers), Some(Change::Remove { number: ServerId(3), forced: false, .. })));
    servers[2].was_known = false;
    assert_eq!(due_with(&AutopilotConfig::default(), &servers, 5), None, "the table may still fill");
}

#[test]
fn a_changed_address_is_recorded() {
    let mut servers = three();
    servers[1].address = "10.9.9.9:4647".into();
    let peer = servers[1].peer();
    assert_eq!(due(&servers), Some(Change::Describe { number: ServerId(2), peer }));
    // The record of an old log has no id; the leader finds its record by its own number.
    let mut own = server(1, true);
    own.recorded.as_mut().unwrap().peer = Peer::at("127.0.0.1:4647");
    assert!(matches!(due(&[own]), Some(Change::Describe { number: ServerId(1), .. })));
}

#[test]
fn a_server_that_left_is_removed_at_once() {
    let mut servers = three();
    servers[2].status = Some(Status::Left);
    servers[2].status_age = Nanos::ZERO;
    let name = servers[2].name.clone();
    assert_eq!(due(&servers), Some(Change::Remove { number: ServerId(3), name, forced: false }));
}

#[test]
fn a_dead_server_is_removed_after_proof_of_its_death() {
    let servers = |dead: Server| vec![server(1, true), server(2, true), dead];
    let name = server(3, true).name;
    let removed = Some(Change::Remove { number: ServerId(3), name, forced: true });
    assert_eq!(due(&servers(failed(3))), removed);
    assert_eq!(due(&servers(Server { status_age: Nanos::from_secs(29), ..failed(3) })), None);
    let mut near = failed(3);
    near.recorded.as_mut().unwrap().last_contact = Some(Duration::from_secs(1));
    assert_eq!(due(&servers(near)), None, "the log still reaches it");
    let off = AutopilotConfig { cleanup_dead_servers: false, ..AutopilotConfig::default() };
    assert_eq!(due_with(&off, &servers(failed(3)), 100), None);
    let min = AutopilotConfig { min_quorum: 3, ..AutopilotConfig::default() };
    assert_eq!(due_with(&min, &servers(failed(3)), 100), None);
    // A server that the table does not contain, long after the term began.
    let unknown = Server { status: None, was_known: false, name: String::new(), ..failed(3) };
    let removed = Some(Change::Remove { number: ServerId(3), name: String::new(), forced: true });
    assert_eq!(due(&servers(unknown.clone())), removed);
    assert_eq!(due_with(&AutopilotConfig::default(), &servers(unknown), 59), None);
}

#[test]
fn a_dead_voter_beside_its_replacement_is_removed_soon() {
    let dead = |secs| {
        let mut dead = Server { status_age: Nanos::from_secs(secs), ..failed(3) };
        dead.recorded.as_mut().unwrap().last_contact = Some(Duration::from_secs(secs.unsigned_abs()));
        dead
    };
    let servers = |secs| [server(1, true), server(2, true), dead(secs), server(4, true)];
    assert!(matches!(due(&servers(5)), Some(Change::Remove { number: ServerId(3), forced: true, .. })));
    assert_eq!(due(&servers(4)), None);
    // With three voters, the return of the dead voter lets the cluster survive a failure again, so the cluster waits.
    assert_eq!(due(&[server(1, true), server(2, true), dead(5)]), None);
    assert_eq!(
        due(&[server(1, true), server(2, true), dead(5), server(4, false)]),
        Some(Change::Promote { number: ServerId(4) })
    );
}

#[test]
fn the_quorum_is_never_given_up() {
    // Two servers of four are dead: no quorum is left to decide, and a removal would only hide that.
    let servers = [server(1, true), server(2, true), failed(3), failed(4)];
    assert_eq!(due(&servers), None);
    // One server is dead, and another server is not healthy.
    let servers = [server(1, true), Server { healthy_for: None, ..server(2, true) }, failed(3)];
    assert_eq!(due(&servers), None);
    // The only other voter left: only this server stays.
    let mut left = server(2, true);
    left.status = Some(Status::Left);
    assert!(matches!(due(&[server(1, true), left]), Some(Change::Remove { .. })));
    // Two servers of five are dead: both are removed, one after the other.
    let mut five: Vec<Server> = (1..=3).map(|n| server(n, true)).collect();
    five.extend([failed(4), failed(5)]);
    assert!(matches!(due(&five), Some(Change::Remove { number: ServerId(4), .. })));
    five.remove(3);
    assert!(matches!(due(&five), Some(Change::Remove { number: ServerId(5), .. })));
}
