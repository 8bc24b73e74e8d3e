//! The bridge in separate network namespaces: a host with an uplink to a namespace outside.

mod plugins;
mod rounds;

use caravan_networks::{
    Addresses, Attachment, Bridge, BridgeConfig, Fault, Finding, Forward, Pool, SetUp, TearDown,
};
use caravan_sys::netlink::link::{Link, Links, Pair};
use caravan_sys::netlink::nft::{Clause, Family, Hook, Rules, Table, Transaction, Verdict};
use caravan_sys::netns;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

const HOST: &str = "192.0.2.1";
const OUTSIDE: &str = "192.0.2.9";
/// The timeout of a connection, long enough for packets that are sent again after the first search for a hardware
/// address was lost.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A host in its own namespace. Dropping it releases the namespaces.
struct World {
    dir: tempfile::TempDir,
    config: BridgeConfig,
    pool: Pool,
}

impl World {
    /// Runs a test on a host. The calling thread is in the host's namespace.
    fn run(hairpin: bool, test: impl FnOnce(&mut World) + Send) {
        let ipv6 = "fd00:26::/64";
        let mut config = BridgeConfig::parse("", "", ipv6, hairpin).unwrap();
        config.owner = "node".into();
        netns::in_new(|| {
            let dir = tempfile::tempdir().unwrap();
            let pool = Pool::new(config.clone(), None);
            let mut world = World { dir, config, pool };
            world.connect();
            test(&mut world);
        })
        .unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Connects the host with a namespace outside, by a bridge that represents the uplink.
    fn connect(&self) {
        let outside = self.path("outside");
        netns::hold(&outside).unwrap();
        let mut links = Links::open().unwrap();
        links.add_bridge("uplink", [2, 9, 0, 0, 0, 1], 1500).unwrap();
        let uplink = find(&mut links, "uplink");
        links.add_address(&uplink, HOST.parse().unwrap(), 24).unwrap();
        let pair = Pair {
            name: "up0",
            bridge: uplink.index,
            mtu: 1500,
            peer: "eth0",
            peer_mac: [2, 9, 0, 0, 0, 2],
            namespace: File::open(&outside).unwrap(),
        };
        links.add_pair(&pair).unwrap();
        let mut beyond = netns::within(&outside, Links::open).unwrap().unwrap();
        let eth0 = find(&mut beyond, "eth0");
        beyond.add_address(&eth0, OUTSIDE.parse().unwrap(), 24).unwrap();
        beyond.set_up(&eth0).unwrap();
        links.set_default_route(&uplink, OUTSIDE.parse().unwrap()).unwrap();
    }

    fn attachment(&mut self, alloc: &str, forwards: Vec<Forward>) -> Attachment {
        let namespace = self.path(alloc);
        let addresses = self.pool.assign(&alloc.into()).unwrap();
        Attachment { alloc: alloc.into(), namespace, addresses, forwards }
    }

    fn open(&self, attached: &[&Attachment]) -> Bridge {
        Bridge::open(self.config.clone(), attached.iter().map(|own| (*own).clone())).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(self.dir.path()).unwrap() {
            netns::let_go(&entry.unwrap().path()).unwrap();
        }
    }
}

fn find(links: &mut Links, name: &str) -> Link {
    links.list().unwrap().into_iter().find(|link| link.name == name).unwrap_or_else(|| panic!("no {name}"))
}

fn forward(address: Option<&str>, port: u16, to: u16) -> Forward {
    Forward { address: address.map(|ip| ip.parse().unwrap()), port, to }
}

/// Listens within a namespace, and answers each connection with the address of its peer.
fn serve(namespace: &Path, address: &str) -> TcpListener {
    let listener = netns::within(namespace, || TcpListener::bind(address).unwrap()).unwrap();
    let own = listener.try_clone().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, peer)) = own.accept() {
            // A peer that has disconnected needs no answer.
            let _ = stream.write_all(peer.ip().to_canonical().to_string().as_bytes());
        }
    });
    listener
}

/// Connects, and returns the own address as the server sees it; `None` if nothing answers.
fn ask(address: &str) -> Option<String> {
    let address: SocketAddr = address.parse().unwrap();
    let mut stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

fn ask_from(namespace: &Path, address: &str) -> Option<String> {
    netns::within(namespace, || ask(address)).unwrap()
}

fn at(address: &Addresses, port: u16) -> String {
    format!("{}:{port}", address.ipv4)
}

#[test]
fn everybody_reaches_a_mapped_port() {
    World::run(true, |world| {
        let mut bridge = world.open(&[]);
        let one = world.attachment("one", vec![forward(None, 8001, 80)]);
        let two = world.attachment("two", vec![forward(Some(HOST), 8002, 80)]);
        for own in [&one, &two] {
            let repaired = bridge.attach(own).unwrap();
            assert!(repaired.found.is_empty(), "{repaired:?}");
        }
        // A port below 1024 needs no privilege within a separate namespace.
        let range = netns::within(&one.namespace, || {
            std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap()
        });
        assert_eq!(range.unwrap().trim(), "0");
        let _one = serve(&one.namespace, "[::]:80");
        let _two = serve(&two.namespace, "[::]:80");
        let gateway = "172.26.64.1".to_owned();
        assert_eq!(ask("127.0.0.1:8001"), Some(gateway.clone()));
        assert_eq!(ask(&format!("{HOST}:8001")), Some(HOST.into()));
        assert_eq!(ask(&format!("{HOST}:8002")), Some(HOST.into()));
        assert_eq!(ask("127.0.0.1:8002"), None, "its map is for one address");
        let outside = world.path("outside");
        assert_eq!(ask_from(&outside, &format!("{HOST}:8001")), Some(OUTSIDE.into()));
        assert_eq!(ask_from(&outside, &format!("{HOST}:8003")), None);
        let direct = ask_from(&one.namespace, &at(&two.addresses, 80));
        assert_eq!(direct, Some(one.addresses.ipv4.to_string()));
        let over_host = ask_from(&one.namespace, &format!("{HOST}:8002"));
        assert_eq!(over_host, Some(gateway.clone()));
        let itself = ask_from(&one.namespace, &format!("{HOST}:8001"));
        assert_eq!(itself, Some(gateway), "hairpin mode");
        let six = two.addresses.ipv6.unwrap();
        assert_eq!(
            ask_from(&one.namespace, &format!("[{six}]:80")),
            one.addresses.ipv6.map(|ip| ip.to_string())
        );
        let _beyond = serve(&outside, "0.0.0.0:9000");
        assert_eq!(ask_from(&one.namespace, &format!("{OUTSIDE}:9000")), Some(HOST.into()), "masqueraded");

        for own in [&one, &two] {
            bridge.detach(own).unwrap();
            bridge.detach(own).unwrap();
        }
        assert_eq!(ask("127.0.0.1:8001"), None);
        assert!(bridge.repair().unwrap().found.is_empty());
        bridge.remove().unwrap();
        let mut links = Links::open().unwrap();
        assert!(!links.list().unwrap().iter().any(|link| link.name == "nomad"));
        assert!(Rules::open().unwrap().chains(Family::Inet).unwrap().is_empty());
    });
}

#[test]
fn whatever_is_destroyed_is_repaired_and_nothing_else_is_found() {
    World::run(false, |world| {
        let mut bridge = world.open(&[]);
        let one = world.attachment("one", vec![forward(None, 8001, 80)]);
        let two = world.attachment("two", vec![forward(None, 8002, 80)]);
        bridge.attach(&one).unwrap();
        bridge.attach(&two).unwrap();
        let _served = serve(&one.namespace, "0.0.0.0:80");
        assert!(ask("127.0.0.1:8001").is_some());
        assert!(bridge.repair().unwrap().found.is_empty());
        let table = world.config.table();
        let mut links = Links::open().unwrap();
        let mut rules = Rules::open().unwrap();

        let mut flush = Transaction::default();
        flush.delete_table(&table);
        rules.commit(flush).unwrap();
        assert!(ask("127.0.0.1:8001").is_none());
        assert_eq!(bridge.repair().unwrap().found, [Finding::Table]);
        assert!(ask("127.0.0.1:8001").is_some());

        let rule = rules.rules(&table).unwrap().remove(0);
        let mut flush = Transaction::default();
        flush.delete_rule(&table, &rule);
        rules.commit(flush).unwrap();
        assert_eq!(bridge.repair().unwrap().found, [Finding::Table]);

        links.delete("nomad").unwrap();
        let found = bridge.repair().unwrap().found;
        assert_eq!(
            found,
            [Finding::Bridge, Finding::Detached("one".into()), Finding::Detached("two".into())]
        );
        assert!(ask("127.0.0.1:8001").is_some());

        let port = links.list().unwrap().into_iter().find(|link| link.alias == "caravan:node:one").unwrap();
        links.delete(&port.name).unwrap();
        assert_eq!(bridge.repair().unwrap().found, [Finding::Interface("one".into())]);
        assert!(ask("127.0.0.1:8001").is_some(), "with the same address");

        std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap();
        assert_eq!(bridge.repair().unwrap().found, [Finding::Setting("ipv4/ip_forward".into())]);
        let gone = find(&mut links, "nomad");
        links.remove_address(&gone, "172.26.64.1".parse().unwrap(), 20).unwrap();
        let found = bridge.repair().unwrap().found;
        assert!(found.contains(&Finding::Gateway("172.26.64.1".parse().unwrap(), 20)), "{found:?}");
        assert!(bridge.repair().unwrap().found.is_empty());
    });
}

#[test]
fn a_reboot_and_another_agent_find_the_networks_again() {
    World::run(false, |world| {
        let one = world.attachment("one", vec![forward(None, 8001, 80)]);
        let two = world.attachment("two", vec![forward(None, 8002, 80)]);
        let mut bridge = world.open(&[]);
        bridge.attach(&one).unwrap();
        bridge.attach(&two).unwrap();
        let served = serve(&one.namespace, "0.0.0.0:80");
        drop(bridge);
        // A connection survives the restart of the agent, whose comparison changes nothing.
        let mut bridge = world.open(&[&one, &two]);
        assert!(bridge.repair().unwrap().found.is_empty());
        assert!(bridge.attach(&one).unwrap().found.is_empty());
        assert!(ask("127.0.0.1:8001").is_some());
        // Only one allocation still exists after the next restart.
        let mut bridge = world.open(&[&one]);
        let found = bridge.repair().unwrap().found;
        assert!(
            matches!(
                &found[..],
                [Finding::LeftInterface(_), Finding::LeftPorts(1, _), Finding::LeftPorts(3, _)]
            ),
            "{found:?}"
        );
        assert!(ask("127.0.0.1:8001").is_some());
        // A reboot leaves the file of the namespace without the namespace.
        drop(served);
        netns::let_go(&one.namespace).unwrap();
        File::create(&one.namespace).unwrap();
        let mut links = Links::open().unwrap();
        let ports: Vec<Link> =
            links.list().unwrap().into_iter().filter(|l| l.alias.starts_with("caravan:")).collect();
        for port in ports {
            links.delete(&port.name).unwrap();
        }
        let mut flush = Transaction::default();
        flush.delete_table(&world.config.table());
        Rules::open().unwrap().commit(flush).unwrap();
        let mut bridge = world.open(&[&one]);
        let repaired = bridge.repair().unwrap();
        assert_eq!(repaired.found, [Finding::Bridge, Finding::Interface("one".into()), Finding::Table]);
        assert!(repaired.failed.is_empty());
        let _served = serve(&one.namespace, "0.0.0.0:80");
        assert!(ask("127.0.0.1:8001").is_some());
    });
}

#[test]
fn a_namespace_that_its_maker_replaced_gets_the_network_again() {
    World::run(false, |world| {
        let own = world.attachment("one", vec![forward(None, 8001, 80)]);
        let other = world.attachment("other", vec![forward(None, 7000, 80)]);
        let mut bridge = world.open(&[]);
        let maker = world.path("maker");
        netns::hold(&maker).unwrap();
        netns::hold_other(&maker, &own.namespace).unwrap();
        bridge.attach(&own).unwrap();
        bridge.attach(&other).unwrap();
        let served = serve(&own.namespace, "0.0.0.0:80");
        assert!(bridge.renew(&own).unwrap().found.is_empty(), "nothing has changed");
        assert!(ask("127.0.0.1:8001").is_some());
        for renewed in [true, false] {
            // The maker restarts. A process lives on in the old namespace.
            netns::let_go(&maker).unwrap();
            netns::hold(&maker).unwrap();
            netns::hold_other(&maker, &own.namespace).unwrap();
            let mut next = match renewed {
                true => bridge,
                // The agent restarts too, after it died with the new namespace held.
                false => world.open(&[&own, &other]),
            };
            let found = next.renew(&own).unwrap().found;
            assert_eq!(found, [Finding::Interface("one".into())]);
            let _served = serve(&own.namespace, "0.0.0.0:80");
            assert!(ask("127.0.0.1:8001").is_some());
            assert!(next.renew(&own).unwrap().found.is_empty());
            bridge = next;
        }
        drop(served);
        let _other = serve(&other.namespace, "0.0.0.0:80");
        assert!(ask("127.0.0.1:7000").is_some(), "the other allocation was not touched");
        // The interface has lost its address.
        netns::within(&own.namespace, || {
            let mut links = Links::open().unwrap();
            let eth0 = find(&mut links, "eth0");
            links.remove_address(&eth0, IpAddr::V4(own.addresses.ipv4), 20).unwrap();
        })
        .unwrap();
        assert_eq!(bridge.renew(&own).unwrap().found, [Finding::Interface("one".into())]);
    });
}

/// The remains of an agent that dies after each number of steps: the next agent finishes the set-up, or removes it.
#[test]
fn an_agent_that_dies_in_any_step_leaves_nothing_that_the_next_one_cannot_use_or_remove() {
    World::run(true, |world| {
        let other = world.attachment("other", vec![forward(None, 7000, 80)]);
        world.open(&[]).attach(&other).unwrap();
        let _other = serve(&other.namespace, "0.0.0.0:80");
        let cases = |count: usize| 0..=count;
        for done in cases(SetUp::ALL.len()) {
            for survives in [true, false] {
                let alloc = format!("s{done}{survives}");
                let own = world.attachment(&alloc, vec![forward(None, 8001, 80)]);
                let mut dying = world.open(&[&other]);
                for step in SetUp::ALL.into_iter().take(done) {
                    dying.set_up(step, &own).unwrap();
                }
                drop(dying);
                let mut next = world.open(&[&other]);
                next.repair().unwrap();
                if survives {
                    next.attach(&own).unwrap();
                    let _served = serve(&own.namespace, "0.0.0.0:80");
                    assert!(ask("127.0.0.1:8001").is_some(), "{done} steps of the set-up");
                }
                next.detach(&own).unwrap();
                netns::let_go(&own.namespace).unwrap();
                assert_eq!(left(&own), Vec::<String>::new(), "{done} steps of the set-up");
                assert!(next.repair().unwrap().found.is_empty());
            }
        }
        for done in cases(TearDown::ALL.len()) {
            let own = world.attachment(&format!("t{done}"), vec![forward(None, 8001, 80)]);
            let mut dying = world.open(&[&other]);
            dying.attach(&own).unwrap();
            for step in TearDown::ALL.into_iter().take(done) {
                dying.tear_down(step, &own).unwrap();
            }
            drop(dying);
            let mut next = world.open(&[&other]);
            next.repair().unwrap();
            next.detach(&own).unwrap();
            netns::let_go(&own.namespace).unwrap();
            assert_eq!(left(&own), Vec::<String>::new(), "{done} steps of the removal");
            assert!(next.repair().unwrap().found.is_empty());
        }
        assert!(ask("127.0.0.1:7000").is_some(), "the other allocation was not touched");
    });
}

/// Returns the remains of an allocation.
fn left(own: &Attachment) -> Vec<String> {
    let mut links = Links::open().unwrap();
    let ports =
        links.list().unwrap().into_iter().filter(|link| link.alias.ends_with(&format!(":{}", own.alloc)));
    let mut left: Vec<String> = ports.map(|link| link.name).collect();
    left.extend(ask("127.0.0.1:8001"));
    left.extend(own.namespace.exists().then(|| own.namespace.display().to_string()));
    left
}

#[test]
fn a_taken_port_is_refused_and_one_of_a_dead_allocation_is_not() {
    World::run(false, |world| {
        let mut bridge = world.open(&[]);
        let one = world.attachment("one", vec![forward(None, 8001, 80)]);
        bridge.attach(&one).unwrap();
        let two = world.attachment("two", vec![forward(None, 8001, 80)]);
        let fault = bridge.attach(&two).unwrap_err();
        assert_eq!(fault.to_string(), "port 8001 of the node is already mapped for allocation one");
        bridge.detach(&two).unwrap();
        let _served = serve(&one.namespace, "0.0.0.0:80");
        assert!(ask("127.0.0.1:8001").is_some(), "the failed one left the map of the other");
        // The record of the first allocation is removed, but not its maps.
        let mut bridge = world.open(&[]);
        bridge.attach(&two).unwrap();
        let _served = serve(&two.namespace, "0.0.0.0:80");
        assert!(ask("127.0.0.1:8001").is_some());
    });
}

#[test]
fn a_bridge_of_another_program_and_an_overlap_are_refused() {
    World::run(false, |world| {
        let own = world.attachment("one", Vec::new());
        let mut links = Links::open().unwrap();
        links.add_bridge("nomad", [2, 0, 0, 0, 0, 7], 1500).unwrap();
        let bridge = find(&mut links, "nomad");
        links.add_loose_pair("tap0", "tap1").unwrap();
        let tap = find(&mut links, "tap0");
        links.set_bridge(&tap, bridge.index).unwrap();
        let fault = world.open(&[]).attach(&own).unwrap_err();
        assert!(matches!(fault, Fault::ForeignBridge { .. }), "{fault}");
        links.delete("tap0").unwrap();
        let uplink = find(&mut links, "uplink");
        links.add_address(&uplink, "172.26.65.1".parse().unwrap(), 24).unwrap();
        let fault = world.open(&[]).attach(&own).unwrap_err();
        assert!(matches!(fault, Fault::Overlap { .. }), "{fault}");
        links.remove_address(&uplink, "172.26.65.1".parse().unwrap(), 24).unwrap();
        world.open(&[]).attach(&own).unwrap();
        assert_eq!(find(&mut links, "nomad").alias, "caravan:node", "a bridge without users is taken over");
    });
}

#[test]
fn a_firewall_that_drops_lets_the_bridge_pass() {
    World::run(false, |world| {
        let mut rules = Rules::open().unwrap();
        let mut firewall = Transaction::default();
        let table = Table { family: Family::Ip, name: "filter".into() };
        firewall.add_table(&table);
        firewall.add_chain(&table, "FORWARD", Hook::Forward);
        firewall.append_rule(&table, "FORWARD", &[Clause::Then(Verdict::Drop)], "");
        rules.commit(firewall).unwrap();
        let mut bridge = world.open(&[]);
        let one = world.attachment("one", vec![forward(None, 8001, 80)]);
        let two = world.attachment("two", Vec::new());
        bridge.attach(&one).unwrap();
        bridge.attach(&two).unwrap();
        let _served = serve(&one.namespace, "0.0.0.0:80");
        let outside = world.path("outside");
        assert_eq!(ask_from(&outside, &format!("{HOST}:8001")), Some(OUTSIDE.into()));
        assert!(ask_from(&two.namespace, &at(&one.addresses, 80)).is_some());
        // The firewall is loaded again, as by its own program.
        let mut firewall = Transaction::default();
        firewall.delete_table(&table);
        firewall.add_table(&table);
        firewall.add_chain(&table, "FORWARD", Hook::Forward);
        firewall.append_rule(&table, "FORWARD", &[Clause::Then(Verdict::Drop)], "");
        rules.commit(firewall).unwrap();
        assert_eq!(ask_from(&outside, &format!("{HOST}:8001")), None);
        assert_eq!(bridge.repair().unwrap().found, [Finding::Passage(0)]);
        assert_eq!(ask_from(&outside, &format!("{HOST}:8001")), Some(OUTSIDE.into()));
    });
}

#[test]
fn a_firewall_that_cannot_be_passed_is_found() {
    World::run(false, |world| {
        let mut bridge = world.open(&[]);
        let one = world.attachment("one", vec![forward(None, 8001, 80)]);
        bridge.attach(&one).unwrap();
        assert_eq!(bridge.foreign(), []);
        let _served = serve(&one.namespace, "0.0.0.0:80");
        let outside = world.path("outside");
        assert!(ask_from(&outside, &format!("{HOST}:8001")).is_some());
        let mut rules = Rules::open().unwrap();
        let mut firewall = Transaction::default();
        let table = Table { family: Family::Inet, name: "theirs".into() };
        firewall.add_table(&table);
        firewall.add_chain(&table, "forward", Hook::Forward);
        firewall.drop_by_default(&table, "forward");
        rules.commit(firewall).unwrap();
        assert_eq!(ask_from(&outside, &format!("{HOST}:8001")), None, "packets are dropped");
        assert!(bridge.repair().unwrap().found.is_empty());
        let found: Vec<String> = bridge.foreign().iter().map(ToString::to_string).collect();
        assert_eq!(found, ["chain forward of table inet theirs drops forwarded packets by default"]);
        let mut ended = Transaction::default();
        ended.delete_table(&table);
        rules.commit(ended).unwrap();
        bridge.repair().unwrap();
        assert_eq!(bridge.foreign(), []);
        // firewalld ends its chain with such a rule.
        let mut firewall = Transaction::default();
        firewall.add_table(&table);
        firewall.add_chain(&table, "forward", Hook::Forward);
        firewall.append_rule(&table, "forward", &[Clause::Count, Clause::Then(Verdict::Drop)], "");
        rules.commit(firewall).unwrap();
        assert_eq!(ask_from(&outside, &format!("{HOST}:8001")), None, "packets are dropped");
        bridge.repair().unwrap();
        let found: Vec<String> = bridge.foreign().iter().map(ToString::to_string).collect();
        assert_eq!(found, ["chain forward of table inet theirs drops forwarded packets by default"]);
    });
}

/// Waits until the host has answered that nothing listens, which the socket reports once.
fn await_refusal(client: &UdpSocket) {
    let refused = client.recv(&mut [0; 16]).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_client_with_a_fixed_port_reaches_the_next_allocation() {
    World::run(false, |world| {
        let mut bridge = world.open(&[]);
        let outside = world.path("outside");
        let client = netns::within(&outside, || UdpSocket::bind("0.0.0.0:5000").unwrap()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        client.connect((HOST.parse::<IpAddr>().unwrap(), 8001)).unwrap();
        for alloc in ["one", "two"] {
            // No allocation has the port: the connection is tracked as one with the host.
            client.send(b"early").unwrap();
            await_refusal(&client);
            let own = world.attachment(alloc, vec![forward(None, 8001, 53)]);
            bridge.attach(&own).unwrap();
            bridge.take_moved().remove_connections().unwrap();
            let server = netns::within(&own.namespace, || UdpSocket::bind("0.0.0.0:53").unwrap()).unwrap();
            client.send(alloc.as_bytes()).unwrap();
            server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut buffer = [0; 16];
            let (count, peer) = server.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..count], peer.to_string().as_str()), (alloc.as_bytes(), "192.0.2.9:5000"));
            bridge.detach(&own).unwrap();
        }
    });
}
