//! Tests of failure detection alone.

use super::codec::{PEER_BYTES, get_peer, put_peer};
use super::*;
use crate::frame::Intent;
use proptest::prelude::*;
use rand_010::SeedableRng as _;

fn peer(n: u128) -> Peer {
    Peer { id: Uuid::from_u128(n), generation: 1, addr: ([10, 0, 0, 1], 4648).into() }
}

fn swim(n: u128) -> Swim {
    Swim::new(peer(n), StdRng::seed_from_u64(1))
}

fn claim(n: u128, liveness: Liveness) -> Claim {
    let Peer { id, generation, addr } = peer(n);
    Claim { id, addr, generation, incarnation: 0, liveness, version: 1, intent: Intent::Present }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_datagrams_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut swim = swim(1);
        swim.receive(Duration::ZERO, &bytes);
    }

    #[test]
    fn damaged_datagrams_do_no_harm(at in any::<prop::sample::Index>(), bits in any::<u8>()) {
        let (mut a, mut b) = (swim(1), swim(2));
        a.apply(Duration::ZERO, &[claim(2, Liveness::Alive), claim(3, Liveness::Suspect)]);
        a.run_due(Duration::from_secs(2));
        for (_, mut bytes) in a.take_sends() {
            let at = at.index(bytes.len());
            bytes[at] ^= bits;
            b.receive(Duration::ZERO, &bytes);
            b.receive(Duration::ZERO, &bytes[..at]);
        }
    }
}

#[test]
fn a_server_that_others_call_down_returns_with_a_higher_generation() {
    let mut swim = swim(1);
    swim.apply(Duration::ZERO, &[claim(1, Liveness::Down)]);
    assert_eq!(swim.peer().generation, 2);
    assert!(swim.take_changed());
    swim.raise(Duration::ZERO, 9);
    assert_eq!(swim.peer().generation, 9);
}

/// Runs servers 1 and 2 for some time. Returns the number of wakeups of server 1 for its timers.
fn run(swims: &mut [Swim; 2], from: Duration, to: Duration) -> usize {
    let mut now = from;
    let mut wakeups = 0;
    loop {
        let due = |swim: &Swim| swim.next_due().unwrap_or(to);
        now = due(&swims[0]).min(due(&swims[1])).max(now);
        if now >= to {
            return wakeups;
        }
        wakeups += usize::from(due(&swims[0]) <= now);
        swims.iter_mut().for_each(|swim| {
            if due(swim) <= now {
                swim.run_due(now)
            }
        });
        loop {
            let sent: Vec<_> = swims.iter_mut().map(Swim::take_sends).collect();
            if sent.iter().all(Vec::is_empty) {
                break;
            }
            for (sender, messages) in sent.into_iter().enumerate() {
                messages.iter().for_each(|(_, bytes)| swims[1 - sender].receive(now, bytes));
            }
        }
    }
}

#[test]
fn gossip_without_changes_wakes_nobody() {
    let second = Duration::from_secs;
    let mut swims = [swim(1), swim(2)];
    swims[0].apply(Duration::ZERO, &[claim(2, Liveness::Alive)]);
    run(&mut swims, Duration::ZERO, second(30));
    // A probe each second, and an announcement in half a minute. An answered probe has no timeout.
    let wakeups = run(&mut swims, second(30), second(90));
    assert!((60..=66).contains(&wakeups), "{wakeups}");
    assert!(swims.iter().all(|swim| swim.seen().len() == 1));
    // A change is spread immediately, however late the gossip is.
    let now = second(90) + Duration::from_millis(700);
    run(&mut swims, second(90), now);
    swims[0].apply(now, &[claim(3, Liveness::Alive)]);
    assert!(swims[0].next_due() <= Some(now + GOSSIP.0), "{:?}", swims[0].next_due());
    assert!(swims[0].next_due() >= Some(now), "a tick that is late means that the process did not run");
    run(&mut swims, now, second(93));
    assert_eq!(swims[1].seen().len(), 2);
}

/// Checks that a response ends the wait for its sender only: other members probe a member that does not respond.
#[test]
fn a_probe_without_an_answer_has_its_timeout() {
    let mut swim = swim(1);
    swim.apply(Duration::ZERO, &[claim(2, Liveness::Alive), claim(3, Liveness::Alive)]);
    let mut pinged = None;
    while pinged.is_none() {
        let now = swim.next_due().unwrap();
        swim.run_due(now);
        pinged = swim.take_sends().iter().find_map(|(_, bytes)| {
            let header = WireCodec.decode_header(&bytes[..]).ok()?;
            matches!(header.message, Message::Ping(_)).then_some((now, header.dst.id.as_u128()))
        });
    }
    let (probe, asked) = pinged.expect("a member is probed");
    // The response of the other member, to an earlier probe.
    let other =
        foca::Header { src: peer(5 - asked), src_incarnation: 0, dst: peer(1), message: Message::Ack(0) };
    let mut late = Vec::new();
    WireCodec.encode_header(&other, &mut late).unwrap();
    let asks = |swim: &mut Swim| {
        swim.take_sends().iter().any(|(_, bytes)| {
            let header = WireCodec.decode_header(&bytes[..]);
            header.is_ok_and(|header| matches!(header.message, Message::PingReq { .. }))
        })
    };
    swim.receive(probe, &late);
    assert!(!asks(&mut swim), "the probed member still has its time");
    swim.run_due(probe + PROBE_TIMEOUT);
    assert!(asks(&mut swim), "another member is asked to probe the silent one");
}

#[test]
fn addresses_of_both_families_survive_the_wire() {
    for addr in ["10.1.2.3:4648", "[2001:db8::1]:99"] {
        let peer = Peer { addr: addr.parse().unwrap(), ..peer(4) };
        let mut bytes = Vec::new();
        put_peer(&peer, &mut bytes);
        assert_eq!(bytes.len(), PEER_BYTES);
        assert_eq!(get_peer(&mut &bytes[..]).unwrap(), peer);
    }
}
