//! Templates of addresses and interfaces in the agent's configuration, such as `{{ GetInterfaceIP "eth0" }}`, with
//! the functions of go-sockaddr that configurations use. Pure: the caller lists the interfaces.

mod math;

use crate::tree;
use crate::value::{as_count, as_int, as_list, as_text, map, text, texts};
use gotmpl::{FuncMap, Value};
use ipnet::IpNet;
use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The name of the interface.
    pub device: String,
    /// One address of the interface; an interface with several has an entry for each.
    pub ip: IpAddr,
    /// The length of the prefix of its network in bits.
    pub prefix: u8,
    /// The flags of the interface, in lower case: `up`, `loopback`, `broadcast`, `multicast`, `point-to-point`.
    pub flags: Vec<String>,
    /// Whether the default route leads through the interface.
    pub is_default: bool,
}

/// Networks that are not part of the public internet (RFC 6890).
const SPECIAL: [&str; 29] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "240.0.0.0/4",
    "255.255.255.255/32",
    "::1/128",
    "::/128",
    "64:ff9b::/96",
    "::ffff:0:0/96",
    "100::/64",
    "2001::/32",
    "2001:2::/48",
    "2001:10::/28",
    "2001:20::/28",
    "2001:db8::/32",
    "2002::/16",
    "fc00::/7",
    "fe80::/10",
    "2001::/23",
];
/// Networks of private hosts (RFC 1918).
const PRIVATE: [&str; 3] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"];

type Answer = Result<Value, String>;

/// Returns whether a text is a template.
pub fn is_template(text: &str) -> bool {
    text.contains("{{")
}

/// Expands a template to a text without blanks around it.
///
/// # Errors
/// Returns one sentence: the template cannot be parsed, names an unknown function, or has no result.
pub fn expand(template: &str, addresses: &[Address]) -> Result<String, String> {
    let all: Arc<[Address]> = addresses.into();
    let ready = gotmpl::Template::new("address").funcs(functions(&all)).parse(template);
    let done = ready.and_then(|ready| ready.execute_to_string(&Value::Nil));
    let text = done.map_err(|error| format!("the template {template:?} cannot be expanded: {error}"))?;
    match text.trim() {
        "" => Err(format!("the template {template:?} has no result on this machine")),
        text => Ok(text.to_owned()),
    }
}

fn functions(all: &Arc<[Address]>) -> FuncMap {
    type Run = fn(&[Address], &[Value]) -> Answer;
    let table: [(&str, usize, Run); 19] = [
        ("GetAllInterfaces", 0, |all, _| Ok(values(all.to_vec()))),
        ("GetDefaultInterfaces", 0, |all, _| Ok(values(ordered(all.iter().filter(|own| own.is_default))))),
        ("GetPrivateInterfaces", 0, |all, _| Ok(values(reached(all, true)))),
        ("GetPublicInterfaces", 0, |all, _| Ok(values(reached(all, false)))),
        ("GetPrivateIP", 0, |all, _| Ok(first_ip(&reached(all, true)))),
        ("GetPrivateIPs", 0, |all, _| Ok(ips(&reached(all, true)))),
        ("GetPublicIP", 0, |all, _| Ok(first_ip(&reached(all, false)))),
        ("GetPublicIPs", 0, |all, _| Ok(ips(&reached(all, false)))),
        ("GetInterfaceIP", 1, |all, a| Ok(first_ip(&of_interface(all, as_text(&a[0])?)?))),
        ("GetInterfaceIPs", 1, |all, a| Ok(ips(&of_interface(all, as_text(&a[0])?)?))),
        ("include", 3, |_, a| selected(a, true)),
        ("exclude", 3, |_, a| selected(a, false)),
        ("math", 3, |_, a| {
            let (operation, value) = (as_text(&a[0])?, as_text(&a[1])?);
            let done: Result<Vec<Address>, String> =
                read(&a[2])?.iter().map(|own| math::calculate(operation, value, own)).collect();
            Ok(values(done?))
        }),
        ("unique", 2, |_, a| {
            let mut list = read(&a[1])?;
            match as_text(&a[0])?.to_lowercase().as_str() {
                "address" | "addr" => list.dedup_by_key(|own| own.ip),
                "name" => list.dedup_by(|a, b| a.device == b.device),
                other => return Err(format!("{other:?} is unknown: address and name are known")),
            }
            Ok(values(list))
        }),
        ("sort", 2, |_, a| {
            let mut list = read(&a[1])?;
            sort(&mut list, as_text(&a[0])?)?;
            Ok(values(list))
        }),
        ("limit", 2, |_, a| {
            let mut list = read(&a[1])?;
            list.truncate(as_count(&a[0])?);
            Ok(values(list))
        }),
        ("offset", 2, |_, a| {
            let list = read(&a[1])?;
            Ok(values(list.into_iter().skip(as_count(&a[0])?).collect()))
        }),
        ("join", 3, |_, a| {
            let name = as_text(&a[0])?;
            let found: Result<Vec<String>, String> =
                read(&a[2])?.iter().map(|own| attribute(own, name)).collect();
            Ok(text(found?.join(as_text(&a[1])?)))
        }),
        ("attr", 2, |_, a| {
            let name = as_text(&a[0])?;
            read(&a[1])?.first().map_or_else(|| Ok(text("")), |own| attribute(own, name).map(text))
        }),
    ];
    let mut known = FuncMap::new();
    for (name, arguments, run) in table {
        let all = Arc::clone(all);
        let call = move |args: &[Value]| {
            let done = match args.len() == arguments {
                true => run(&all, args),
                false => Err(format!("{} arguments are given, {arguments} are needed", args.len())),
            };
            done.map_err(|why| tree::error(format!("function \"{name}\": {why}")))
        };
        known.insert(name.to_owned(), Arc::new(call));
    }
    known
}

/// Returns a list as a value of templates: the position and the parts of each address.
fn values(list: Vec<Address>) -> Value {
    let one = |own: Address| {
        map([
            ("Name", text(&own.device)),
            ("Address", text(own.ip.to_string())),
            ("Prefix", Value::Int(own.prefix.into())),
            ("Flags", texts(&own.flags)),
            ("Default", Value::Bool(own.is_default)),
        ])
    };
    Value::List(list.into_iter().map(one).collect())
}

/// Returns the addresses of a list that a function returned, or of one element of it.
fn read(value: &Value) -> Result<Vec<Address>, String> {
    match value {
        Value::Map(_) => Ok(vec![one(value)?]),
        list => as_list(list)?.iter().map(one).collect(),
    }
}

fn one(item: &Value) -> Result<Address, String> {
    let wrong = || "a list of interfaces is needed".to_owned();
    let field = |name| item.field(name).ok_or_else(wrong);
    let flags = as_list(field("Flags")?)?;
    Ok(Address {
        device: as_text(field("Name")?)?.to_owned(),
        ip: as_text(field("Address")?)?.parse().map_err(|_| wrong())?,
        prefix: u8::try_from(as_int(field("Prefix")?)?).map_err(|_| wrong())?,
        flags: flags.iter().map(|flag| as_text(flag).map(str::to_owned)).collect::<Result<_, _>>()?,
        is_default: matches!(field("Default")?, Value::Bool(true)),
    })
}

fn within(ip: IpAddr, networks: &[&str]) -> bool {
    networks.iter().any(|net| net.parse::<IpNet>().is_ok_and(|net| net.contains(&ip)))
}

/// Returns whether routers forward packets of an address.
fn is_forwardable(ip: IpAddr) -> bool {
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(is_link_local || ip.is_loopback() || ip.is_unspecified() || ip.is_multicast())
}

fn has_flag(own: &Address, flag: &str) -> Result<bool, String> {
    Ok(match flag {
        "forwardable" => is_forwardable(own.ip),
        "global unicast" => !(own.ip.is_loopback() || own.ip.is_multicast() || own.ip.is_unspecified()),
        "link-local unicast" => within(own.ip, &["169.254.0.0/16", "fe80::/10"]),
        "loopback" => own.ip.is_loopback(),
        "multicast" => own.ip.is_multicast() || own.flags.iter().any(|known| known == flag),
        "unspecified" => own.ip.is_unspecified(),
        "up" | "broadcast" | "point-to-point" => own.flags.iter().any(|known| known == flag),
        "down" => !own.flags.iter().any(|known| known == "up"),
        other => return Err(format!("the flag {other:?} is unknown")),
    })
}

/// Returns addresses in the order in which a machine is reached: those of the default route, IPv4, large networks.
fn ordered<'a>(list: impl Iterator<Item = &'a Address>) -> Vec<Address> {
    let mut list: Vec<Address> = list.cloned().collect();
    list.sort_by_key(|own| (!own.is_default, own.ip.is_ipv6(), own.prefix));
    list
}

fn reached(all: &[Address], is_special: bool) -> Vec<Address> {
    let is_up = |own: &&Address| own.flags.iter().any(|flag| flag == "up");
    let usable = all.iter().filter(is_up).filter(|own| is_forwardable(own.ip));
    ordered(usable.filter(|own| within(own.ip, &SPECIAL) == is_special))
}

fn of_interface(all: &[Address], name: &str) -> Result<Vec<Address>, String> {
    let named = pattern(name)?;
    let found = all.iter().filter(|own| named.is_match(&own.device) && is_forwardable(own.ip));
    // An interface such as `lo` has no other address.
    let found = ordered(found);
    Ok(if found.is_empty() { ordered(all.iter().filter(|own| named.is_match(&own.device))) } else { found })
}

fn pattern(text: &str) -> Result<regex::Regex, String> {
    regex::Regex::new(text).map_err(|_| format!("{text:?} is no regular expression"))
}

fn first_ip(list: &[Address]) -> Value {
    text(list.first().map(|own| own.ip.to_string()).unwrap_or_default())
}

fn ips(list: &[Address]) -> Value {
    text(list.iter().map(|own| own.ip.to_string()).collect::<Vec<_>>().join(" "))
}

/// A condition on an address.
type Filter<'a> = Box<dyn Fn(&Address) -> Result<bool, String> + 'a>;

fn selected(arguments: &[Value], includes: bool) -> Answer {
    let (key, value) = (as_text(&arguments[0])?.to_lowercase(), as_text(&arguments[1])?);
    let alternatives = || value.split('|').map(str::trim);
    let matches: Filter<'_> = match key.as_str() {
        "name" => {
            let named = pattern(value)?;
            Box::new(move |own| Ok(named.is_match(&own.device)))
        }
        "address" => {
            let named = pattern(value)?;
            Box::new(move |own| Ok(named.is_match(&own.ip.to_string())))
        }
        "flag" | "flags" => Box::new(move |own| {
            alternatives().try_fold(true, |all, flag| Ok(has_flag(own, &flag.to_lowercase())? && all))
        }),
        "network" => {
            let networks: Result<Vec<IpNet>, String> = alternatives()
                .map(|net| net.parse().map_err(|_| format!("{net:?} is not a network in CIDR notation")))
                .collect();
            let networks = networks?;
            Box::new(move |own| Ok(networks.iter().any(|net| net.contains(&own.ip))))
        }
        "rfc" => Box::new(move |own| {
            alternatives().try_fold(false, |any, number| match number {
                "1918" => Ok(any || within(own.ip, &PRIVATE)),
                "6890" => Ok(any || within(own.ip, &SPECIAL)),
                other => Err(format!("RFC {other} is unknown: 1918 and 6890 are known")),
            })
        }),
        "type" => Box::new(move |own| {
            alternatives().try_fold(false, |any, kind| match kind.to_lowercase().as_str() {
                "ip" => Ok(true),
                "ipv4" => Ok(any || own.ip.is_ipv4()),
                "ipv6" => Ok(any || own.ip.is_ipv6()),
                "unix" => Ok(any),
                other => Err(format!("the type {other:?} is unknown: ip, ipv4 and ipv6 are known")),
            })
        }),
        other => {
            return Err(format!(
                "{other:?} is unknown: address, flags, name, network, rfc and type are known"
            ));
        }
    };
    let mut kept = Vec::new();
    for own in read(&arguments[2])? {
        if matches(&own)? == includes {
            kept.push(own);
        }
    }
    Ok(values(kept))
}

/// Sorts a list by keys that are separated by commas. A key with a minus sign sorts in reverse.
fn sort(list: &mut [Address], keys: &str) -> Result<(), String> {
    let keys: Vec<(bool, &str)> = keys
        .split(',')
        .map(str::trim)
        .map(|key| key.strip_prefix('-').map_or((false, key.trim_start_matches('+')), |key| (true, key)))
        .collect();
    const KNOWN: [&str; 6] = ["address", "default", "name", "private", "size", "type"];
    if let Some((_, bad)) = keys.iter().find(|(_, key)| !KNOWN.contains(key)) {
        return Err(format!("the key {bad:?} is unknown: {} are known", KNOWN.join(", ")));
    }
    let compare = |key: &str, a: &Address, b: &Address| match key {
        "address" => a.ip.cmp(&b.ip),
        "default" => b.is_default.cmp(&a.is_default),
        "name" => a.device.cmp(&b.device),
        "private" => within(b.ip, &SPECIAL).cmp(&within(a.ip, &SPECIAL)),
        "size" => a.prefix.cmp(&b.prefix),
        _ => a.ip.is_ipv6().cmp(&b.ip.is_ipv6()),
    };
    list.sort_by(|a, b| {
        keys.iter().fold(Ordering::Equal, |order, (is_reverse, key)| {
            let next = compare(key, a, b);
            order.then(if *is_reverse { next.reverse() } else { next })
        })
    });
    Ok(())
}

fn attribute(own: &Address, name: &str) -> Result<String, String> {
    let network = || IpNet::new(own.ip, own.prefix).map(|net| net.trunc());
    Ok(match name.to_lowercase().as_str() {
        "name" => own.device.clone(),
        "flags" => own.flags.join("|"),
        "address" | "host" => own.ip.to_string(),
        "type" => if own.ip.is_ipv4() { "IPv4" } else { "IPv6" }.to_owned(),
        "network" => network().map_or_else(|_| own.ip.to_string(), |net| net.to_string()),
        "netmask" => network().map_or_else(|_| own.ip.to_string(), |net| net.netmask().to_string()),
        other => {
            return Err(format!(
                "the attribute {other:?} is unknown: address, flags, host, name, netmask, network and type are known"
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addresses() -> Vec<Address> {
        let address = |device: &str, ip: &str, prefix, flags: &[&str], is_default| Address {
            device: device.into(),
            ip: ip.parse().unwrap(),
            prefix,
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            is_default,
        };
        vec![
            address("lo", "127.0.0.1", 8, &["up", "loopback"], false),
            address("eth1", "10.1.0.7", 16, &["up", "broadcast"], false),
            address("eth0", "192.168.1.5", 24, &["up", "broadcast"], true),
            address("eth0", "fe80::1", 64, &["up", "broadcast"], true),
            address("eth0", "2a00::5", 64, &["up", "broadcast"], true),
            address("eth2", "93.184.216.34", 24, &["broadcast"], false),
        ]
    }

    #[test]
    fn templates_of_configurations_are_expanded() {
        let expand = |text: &str| expand(text, &addresses());
        for (template, result) in [
            ("{{ GetPrivateIP }}", "192.168.1.5"),
            ("{{GetPrivateIPs}}", "192.168.1.5 10.1.0.7"),
            ("{{ GetPublicIP }}", "2a00::5"),
            ("{{ GetInterfaceIP \"eth1\" }}", "10.1.0.7"),
            ("{{ GetInterfaceIP \"lo\" }}", "127.0.0.1"),
            ("{{ GetInterfaceIPs \"^eth0$\" }}", "192.168.1.5 2a00::5"),
            ("{{ GetDefaultInterfaces | attr \"name\" }}", "eth0"),
            ("{{ GetAllInterfaces | include \"network\" \"10.0.0.0/8\" | attr \"name\" }}", "eth1"),
            ("{{ GetPrivateInterfaces | exclude \"name\" \"eth0\" | join \"address\" \" \" }}", "10.1.0.7"),
            (
                "{{ GetAllInterfaces | include \"type\" \"ipv4\" | include \"flags\" \"up|forwardable\" | sort \"-address\" | limit 1 | attr \"address\" }}",
                "192.168.1.5",
            ),
            (
                "{{ GetAllInterfaces | include \"rfc\" \"1918\" | sort \"size\" | offset 1 | attr \"network\" }}",
                "192.168.1.0/24",
            ),
            (
                "{{ GetPrivateInterfaces | limit 1 | math \"network\" \"+1\" | attr \"address\" }}",
                "192.168.1.1",
            ),
            (
                "{{ GetPrivateInterfaces | math \"address\" \"+1\" | join \"address\" \" \" }}",
                "192.168.1.6 10.1.0.8",
            ),
            (
                "{{ GetAllInterfaces | sort \"name\" | unique \"name\" | join \"name\" \" \" }}",
                "eth0 eth1 eth2 lo",
            ),
            (
                "{{ GetPrivateInterfaces | math \"mask\" \"8\" | unique \"address\" | join \"network\" \" \" }}",
                "192.0.0.0/8 10.0.0.0/8",
            ),
            ("{{ range GetDefaultInterfaces }}{{ attr \"type\" . }} {{ end }}", "IPv4 IPv6 IPv6"),
            ("{{ GetInterfaceIP \"eth1\" }}:4646", "10.1.0.7:4646"),
        ] {
            assert_eq!(expand(template).as_deref(), Ok(result), "{template}");
        }
    }

    #[test]
    fn a_bad_template_is_named() {
        let expand = |text: &str| expand(text, &addresses()).unwrap_err();
        for (template, needle) in [
            ("{{ GetInterfaceIP \"eth9\" }}", "has no result on this machine"),
            ("{{ GetPrivateIP", "cannot be expanded"),
            ("{{ GetNothing }}", "GetNothing"),
            ("{{ GetAllInterfaces | include \"color\" \"red\" | attr \"name\" }}", "\"color\" is unknown"),
            ("{{ GetAllInterfaces | attr \"speed\" }}", "\"speed\" is unknown"),
            ("{{ GetAllInterfaces | include \"network\" \"10\" | attr \"name\" }}", "CIDR"),
            ("{{ GetAllInterfaces | sort \"color\" | attr \"name\" }}", "the key \"color\""),
            ("{{ GetAllInterfaces | unique \"color\" | attr \"name\" }}", "\"color\" is unknown"),
            ("{{ GetAllInterfaces | math \"address\" \"1\" | attr \"name\" }}", "with its sign"),
            ("{{ \"x\" | attr \"name\" }}", "attr"),
            ("{{ GetInterfaceIP }}", "1 are needed"),
        ] {
            let error = expand(template);
            assert!(error.contains(needle), "{template}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_expanded_or_refused(text in ".{0,60}") {
            let _ = expand(&text, &addresses());
        }
    }
}
