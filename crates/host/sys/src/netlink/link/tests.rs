use super::*;
use crate::netns;
use std::fs::File;
use std::net::{TcpListener, TcpStream};

const MAC: Mac = [2, 0, 0, 0, 0, 1];

#[test]
fn a_bridge_connects_a_namespace_with_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("net");
    netns::hold(&path).unwrap();
    netns::in_new(|| {
        let mut links = Links::open().unwrap();
        links.add_bridge("br", MAC, 1400).unwrap();
        let again = links.add_bridge("br", MAC, 1400).unwrap_err();
        assert_eq!(again.io().unwrap().kind(), std::io::ErrorKind::AlreadyExists);
        let find = |links: &mut Links, name: &str| {
            links.list().unwrap().into_iter().find(|link| link.name == name).unwrap()
        };
        let bridge = find(&mut links, "br");
        assert_eq!((bridge.kind.as_str(), bridge.mac, bridge.mtu, bridge.is_up), ("bridge", MAC, 1400, true));
        let gateway: IpAddr = "10.7.0.1".parse().unwrap();
        links.add_address(&bridge, gateway, 24).unwrap();
        let namespace = File::open(&path).unwrap();
        let pair = Pair {
            name: "v0",
            bridge: bridge.index,
            mtu: 1400,
            peer: "eth0",
            peer_mac: [2, 0, 0, 0, 0, 2],
            namespace,
        };
        links.add_pair(&pair).unwrap();
        links.set_alias("v0", "whose").unwrap();
        let port = find(&mut links, "v0");
        links.set_hairpin(&port, true).unwrap();
        let port = find(&mut links, "v0");
        assert_eq!((port.alias.as_str(), port.hairpin, port.master), ("whose", true, Some(bridge.index)));
        let mut inside = netns::within(&path, Links::open).unwrap().unwrap();
        let eth0 = find(&mut inside, "eth0");
        assert_eq!((eth0.mac, eth0.mtu, eth0.is_up), ([2, 0, 0, 0, 0, 2], 1400, false));
        assert!(find(&mut inside, "lo").is_loopback);
        inside.add_address(&eth0, "10.7.0.2".parse().unwrap(), 24).unwrap();
        inside.add_address(&eth0, "fd07::2".parse().unwrap(), 64).unwrap();
        inside.set_up(&eth0).unwrap();
        inside.set_default_route(&eth0, gateway).unwrap();
        inside.set_default_route(&eth0, gateway).unwrap();
        let routes = inside.default_routes().unwrap();
        assert_eq!(routes, [DefaultRoute { index: eth0.index, metric: 0, is_ipv6: false }]);
        let own: Vec<Address> = inside.addresses().unwrap();
        assert!(own.iter().any(|a| a.ip.to_string() == "10.7.0.2" && a.prefix == 24 && !a.is_link_local));
        let listener = netns::within(&path, || TcpListener::bind("10.7.0.2:0").unwrap()).unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        inside.remove_address(&eth0, "10.7.0.2".parse().unwrap(), 24).unwrap();
        links.delete("v0").unwrap();
        assert!(links.delete("v0").unwrap_err().to_string().starts_with("cannot delete interface v0"));
        assert!(!inside.list().unwrap().iter().any(|link| link.name == "eth0"), "both ends are gone");
    })
    .unwrap();
    netns::let_go(&path).unwrap();
}

#[test]
fn names_are_short_and_plain() {
    for (text, valid) in [("nomad", true), ("", false), ("a/b", false), ("a b", false), ("..", false)] {
        assert_eq!(is_name(text), valid, "{text:?}");
    }
    assert!(is_name(&"x".repeat(MAX_NAME)) && !is_name(&"x".repeat(MAX_NAME + 1)));
}
