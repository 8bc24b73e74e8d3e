use super::*;
use std::collections::BTreeMap;

fn server(n: u128) -> ServerUuid {
    ServerUuid(Uuid::from_u128(n))
}

fn cluster(n: u128) -> ClusterId {
    ClusterId(Uuid::from_u128(n))
}

fn own(n: u128) -> Own {
    Own { server: server(n), expect: 3, cluster: None, promise: None }
}

fn seen(servers: &[u128]) -> Vec<Candidate> {
    servers.iter().map(|n| Candidate { server: server(*n), expect: 3, cluster: None }).collect()
}

fn founding(id: u128, servers: &[u128]) -> Founding {
    let servers: BTreeSet<ServerUuid> = servers.iter().map(|n| server(*n)).collect();
    Founding { cluster: cluster(id), proposer: *servers.first().unwrap(), servers }
}

fn promised(n: u128, founding: &Founding) -> Own {
    Own { promise: Some(Promise { founding: founding.clone() }), ..own(n) }
}

fn step(own: &Own, members: &[Candidate]) -> Step {
    next(own, members, &BTreeMap::new())
}

#[test]
fn the_smallest_of_enough_servers_proposes_the_smallest_servers() {
    let few = Step::Wait(Wait::Few { found: 2, expect: 3 });
    assert_eq!(step(&own(1), &seen(&[1, 2])), few);
    assert_eq!(step(&own(2), &seen(&[1, 2, 3])), Step::Wait(Wait::Proposer(server(1))));
    let Step::Propose { servers } = step(&own(1), &seen(&[4, 3, 2])) else { panic!() };
    assert_eq!(servers, founding(0, &[1, 2, 3]).servers);
}

#[test]
fn servers_that_found_nothing_say_why() {
    let waits = Own { expect: 0, ..own(1) };
    assert_eq!(step(&waits, &seen(&[1, 2, 3])), Step::Wait(Wait::Admission));
    let mut members = seen(&[2, 3]);
    members[1].expect = 5;
    let Step::Wait(wait) = step(&own(1), &members) else { panic!() };
    let text = format!("server {} has bootstrap_expect 5, this one has 3", server(3));
    assert_eq!(wait.to_string(), text);
    // A server that waits for admission is no candidate.
    members[1].expect = 0;
    assert_eq!(step(&own(1), &members), Step::Wait(Wait::Few { found: 2, expect: 3 }));
    members[0].cluster = Some(cluster(9));
    assert_eq!(step(&own(1), &members), Step::Wait(Wait::Cluster(cluster(9))));
    assert_eq!(step(&Own { cluster: Some(cluster(9)), ..own(1) }, &members), Step::Done);
}

#[test]
fn a_proposer_needs_all_promises() {
    let founding = founding(7, &[1, 2, 3]);
    let proposer = promised(1, &founding);
    let mut answers = BTreeMap::from([(server(2), Answer::Promised)]);
    let missing = BTreeSet::from([server(3)]);
    let ask = Step::Ask { founding: founding.clone(), missing };
    assert_eq!(next(&proposer, &[], &answers), ask);
    answers.insert(server(3), Answer::Promised);
    assert_eq!(next(&proposer, &[], &answers), Step::Found(founding.clone()));
    assert_eq!(founding.number(server(3)), Some(3));
    assert_eq!(founding.number(server(4)), None);
}

#[test]
fn the_proposer_with_the_smaller_id_wins() {
    let (small, large) = (founding(7, &[1, 2, 3]), founding(8, &[2, 3, 4]));
    let refusal = |founding: &Founding| Answer::Refused(Refusal::Promised(founding.clone()));
    let from_3 = |answer| BTreeMap::from([(server(3), answer)]);
    let step = next(&promised(1, &small), &[], &from_3(refusal(&large)));
    assert!(matches!(step, Step::Ask { .. }), "server 1 asks again: {step:?}");
    let step = next(&promised(2, &large), &[], &from_3(refusal(&small)));
    assert_eq!(step, Step::Withdraw { because: Refusal::Promised(small.clone()) });
    // Server 2 withdraws as soon as it is asked; server 3 only when server 2 has withdrawn.
    let promise = Promise { founding: small.clone() };
    assert_eq!(reply(&promised(2, &large), &small), Reply::Store(promise.clone()));
    assert_eq!(reply(&promised(3, &large), &small), Reply::Send(refusal(&large)));
    assert!(!stands(&promised(2, &small), &large) && stands(&promised(2, &large), &large));
    assert_eq!(
        reply(&promised(1, &small), &large),
        Reply::Send(Answer::Refused(Refusal::NotNamed { server: server(1) }))
    );
    assert_eq!(reply(&own(3), &small), Reply::Store(promise));
    assert_eq!(reply(&promised(3, &small), &small), Reply::Send(Answer::Promised));
}

#[test]
fn a_promise_binds_until_the_founding_has_fallen() {
    let founding = founding(7, &[1, 2, 3]);
    let bound = promised(3, &founding);
    assert_eq!(step(&bound, &[]), Step::Inquire { founding: founding.clone() });
    let mut members = seen(&[1, 2]);
    members[0].cluster = Some(cluster(7));
    assert_eq!(step(&bound, &members), Step::Wait(Wait::Log(cluster(7))));
    assert!(
        accepts_log(&bound, cluster(7))
            && !accepts_log(&bound, cluster(8))
            && !accepts_log(&own(3), cluster(7))
    );
    assert!(!accepts_admission(&bound, cluster(8)) && accepts_admission(&own(3), cluster(8)));
    let founded = Own { cluster: Some(cluster(7)), ..bound };
    assert!(stands(&founded, &founding) && !accepts_admission(&founded, cluster(8)));
    assert_eq!(reply(&founded, &founding), Reply::Send(Answer::Promised));
    members[0].cluster = Some(cluster(8));
    let asks = step(&promised(1, &founding), &members[..1]);
    assert!(matches!(asks, Step::Ask { .. }), "its own row is not another cluster: {asks:?}");
    // The first entry may be missing after a crash of the proposer, but not after one of another founder.
    let restarted = Own { cluster: Some(cluster(7)), ..promised(1, &founding) };
    assert_eq!(step(&restarted, &[]), Step::Found(founding.clone()));
    assert_eq!(step(&founded, &[]), Step::Done);
    let other = Own { expect: 5, ..own(3) };
    assert_eq!(
        reply(&other, &founding),
        Reply::Send(Answer::Refused(Refusal::Expect { server: server(3), expect: 5 }))
    );
}
