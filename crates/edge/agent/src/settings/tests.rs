//! Tests of the settings that configurations resolve to.

use super::net::with_port;
use super::server::calls_per_plugin;
use super::*;
use serde_json::json;
use std::net::Ipv4Addr;
use std::time::Duration;

fn host() -> Host {
    Host {
        hostname: "box".into(),
        address: Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7))),
        addresses: vec![caravan_templates::sockaddr::Address {
            device: "eth7".into(),
            ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7)),
            prefix: 24,
            flags: vec!["up".into()],
            is_default: true,
        }],
        cores: 4,
        temporary: PathBuf::from("/tmp/dev"),
        variables: BTreeMap::new(),
    }
}

#[test]
fn addresses_and_interfaces_may_be_templates() {
    let text = "data_dir = \"/d\"\nbind_addr = \"{{ GetInterfaceIP \\\"eth7\\\" }}\"\n\
                advertise { http = \"{{ GetPrivateIP }}:4646\" }\n\
                client { enabled = true\nservers = [\"10.0.0.1\"]\n\
                network_interface = \"{{ GetDefaultInterfaces | attr \\\"name\\\" }}\"\n\
                host_network \"lan\" { interface = \"{{ GetPrivateInterfaces | attr \\\"name\\\" }}\" } }";
    let parse = |text: &str| files(&[("t.hcl", text)]);
    let settings = resolve(&flags(&[]), parse(text), &host()).unwrap();
    assert_eq!(settings.http.ip().to_string(), "10.0.0.7");
    assert_eq!(settings.advertise_http, "10.0.0.7:4646");
    let client = settings.client.unwrap();
    assert_eq!(client.network_interface.as_deref(), Some("eth7"));
    assert_eq!(client.host_networks["lan"].interface, "eth7");
    let refused =
        resolve(&flags(&[]), parse(&text.replace("eth7", "eth8")), &host()).unwrap_err().to_string();
    assert!(refused.contains("bind_addr") && refused.contains("no result on this machine"), "{refused}");
}

#[test]
fn the_number_of_calls_to_a_plugin_has_bounds() {
    assert_eq!(calls_per_plugin(None).unwrap(), caravan_server::CALLS_PER_PLUGIN);
    assert_eq!(calls_per_plugin(Some(3)).unwrap(), 3);
    for bad in [0, -1, 1001] {
        assert!(calls_per_plugin(Some(bad)).unwrap_err().to_string().contains("volume_calls_per_plugin"));
    }
}

fn flags(args: &[&str]) -> Flags {
    crate::flags::parse(args.iter().map(|a| (*a).to_owned())).unwrap()
}

#[test]
fn dev_needs_nothing() {
    let settings = resolve(&flags(&["-dev"]), AgentConfig::default(), &host()).unwrap();
    assert!(settings.server.is_some() && settings.client.is_some());
    assert_eq!(settings.http.to_string(), "127.0.0.1:4646");
    assert_eq!(settings.advertise_rpc, "127.0.0.1:4647");
    assert_eq!(settings.name, "box");
}

#[test]
fn an_open_port_for_agents_is_warned_of() {
    let warned = |args: &[&str], file: AgentConfig| {
        let settings = resolve(&flags(args), file, &host()).unwrap();
        crate::run::open_port(&settings)
    };
    let file = || AgentConfig { data_dir: Some("/d".into()), ..Default::default() };
    let text = warned(&["-server"], file()).unwrap();
    assert!(text.contains("tls { rpc = true } is not set") && text.contains(":4647"), "{text}");
    assert_eq!(warned(&["-dev"], AgentConfig::default()), None, "it listens on loopback");
    let local =
        "data_dir = \"/d\"\nbind_addr = \"127.0.0.1\"\nadvertise { http = \"a\" rpc = \"a\" serf = \"a\" }";
    assert_eq!(warned(&["-server"], files(&[("local.hcl", local)])), None);
    assert_eq!(warned(&["-client", "-servers", "10.0.0.1"], file()), None, "a client has no such port");
}

#[test]
fn the_consent_to_privileged_plugins_is_shown_as_it_is_in_effect() {
    let shown = |args: &[&str], option: &str| {
        let text = format!("plugin \"exec\" {{\n  config {{\n{option}\n}}\n}}\n");
        let mut file = if option.is_empty() { AgentConfig::default() } else { files(&[("a.hcl", &text)]) };
        file.data_dir = Some("/d".into());
        let settings = resolve(&flags(args), file, &host()).unwrap();
        let plugins = crate::shown::config(&settings, &BTreeMap::new())["Plugins"].clone();
        let exec =
            plugins.as_array().and_then(|all| all.iter().find(|plugin| plugin["Name"] == "exec").cloned());
        let consent = exec.map(|exec| exec["Config"]["allow_privileged_plugins"].clone());
        (consent.map(|value| value == true), crate::run::root_notice(&settings).is_some())
    };
    let client = &["-client", "-servers", "10.0.0.1"][..];
    assert_eq!(shown(&["-dev"], ""), (Some(true), true));
    assert_eq!(shown(&["-dev"], "no_pivot_root = false"), (Some(true), true));
    assert_eq!(shown(&["-dev"], "allow_privileged_plugins = false"), (Some(false), false));
    assert_eq!(shown(client, ""), (None, false));
    assert_eq!(shown(client, "no_pivot_root = false"), (Some(false), false));
    assert_eq!(shown(client, "allow_privileged_plugins = true"), (Some(true), false));
    assert_eq!(shown(client, "allow_privileged_plugins = \"true\""), (Some(true), false));
}

#[test]
fn capabilities_that_the_kernel_does_not_know_are_refused() {
    let result = |names: &str| {
        let mut file =
            files(&[("a.hcl", &format!("plugin \"exec\" {{\n config {{\n allow_caps = {names}\n }}\n}}\n"))]);
        file.data_dir = Some("/d".into());
        let settings = resolve(&flags(&["-client", "-servers", "10.0.0.1"]), file, &host()).unwrap();
        crate::drivers::all(&settings, "n1").map(drop).map_err(|error| caravan_sys::describe(&error))
    };
    for good in ["[]", "[\"all\"]", "[\"CAP_NET_ADMIN\", \"chown\"]"] {
        assert_eq!(result(good), Ok(()), "{good}");
    }
    let error = result("[\"chown\", \"fly\"]").unwrap_err();
    assert!(error.contains("\"exec\": allow_caps: unknown capability \"fly\""), "{error}");
}

#[test]
fn options_of_drivers_are_read_and_shown() {
    let resolved = |driver: &str, option: &str| {
        let text = format!("plugin \"{driver}\" {{\n config {{\n {option}\n }}\n}}\n");
        let mut file = files(&[("a.hcl", &text)]);
        file.data_dir = Some("/d".into());
        resolve(&flags(&["-client", "-servers", "10.0.0.1"]), file, &host()).unwrap()
    };
    for (driver, good, shown) in [
        (
            "java",
            "allow_caps = [\"chown\"]",
            json!({"allow_caps": ["chown"], "default_pid_mode": "private", "default_ipc_mode": "private"}),
        ),
        (
            "qemu",
            "image_paths = [\"/i\"]",
            json!({"image_paths": ["/i"], "args_allowlist": null, "emulators_allowlist": null}),
        ),
    ] {
        let settings = resolved(driver, good);
        let names: Vec<String> =
            crate::drivers::all(&settings, "n1").unwrap().iter().map(|d| d.name().to_owned()).collect();
        assert!(names.iter().any(|name| name == driver), "{names:?}");
        assert_eq!(crate::shown::config(&settings, &BTreeMap::new())["Plugins"][0]["Config"], shown);
    }
    for (driver, bad, needle) in [
        ("java", "default_pid_mode = \"own\"", "\"java\": default_pid_mode must be"),
        ("java", "denied_host_uids = \"0\"", "\"java\": there is no option \"denied_host_uids\""),
        ("qemu", "image_paths = \"/i\"", "\"qemu\": image_paths must be a list of strings"),
    ] {
        let error = crate::drivers::all(&resolved(driver, bad), "n1").unwrap_err().to_string();
        assert!(error.contains(needle), "{error}");
    }
}

#[test]
fn flags_win_over_files() {
    let file = AgentConfig {
        region: Some("east".into()),
        datacenter: Some("d".into()),
        data_dir: Some("/var/lib/c".into()),
        ..Default::default()
    };
    let settings = resolve(&flags(&["-server", "-region", "west"]), file, &host()).unwrap();
    assert_eq!((settings.region.as_str(), settings.datacenter.as_str()), ("west", "d"));
    assert_eq!(settings.server.unwrap().data_dir, PathBuf::from("/var/lib/c/server"));
    assert_eq!(settings.advertise_rpc, "10.0.0.7:4647");
}

#[test]
fn what_is_missing_is_named() {
    let error = |args: &[&str], file| resolve(&flags(args), file, &host()).unwrap_err().to_string();
    assert!(error(&[], AgentConfig::default()).contains("-dev"));
    assert!(error(&["-server"], AgentConfig::default()).contains("data_dir"));
    let file = AgentConfig { data_dir: Some("/d".into()), ..Default::default() };
    assert!(error(&["-client"], file.clone()).contains("client.servers"));
    assert!(error(&["-server", "-bind", "nowhere"], file.clone()).contains("bind_addr"));
    assert!(error(&["-server", "-bind", "127.0.0.1"], file).contains("advertise.http"));
}

#[test]
fn settings_of_a_cluster_that_cannot_work_are_named() {
    for (text, field, words) in [
        ("server { raft_protocol = 2 }", "server.raft_protocol", "2 is not supported"),
        ("datacenter = \"dc*\"", "datacenter", "\"dc*\""),
        (
            "client { enabled = true server_join { start_join = [\"a\"] } }",
            "client.server_join.start_join",
            "retry_join",
        ),
        (
            "client { enabled = true server_join { retry_max = -1 } }",
            "client.server_join.retry_max",
            "-1 is below 0",
        ),
        (
            "client { enabled = true server_join { retry_join = [\"provider=aws tag_key=a\"] } }",
            "client.server_join.retry_join",
            "\"aws\" is not supported",
        ),
    ] {
        let error = resolve(&flags(&["-dev"]), files(&[("a.hcl", text)]), &host()).unwrap_err().to_string();
        assert!(error.contains(&format!("{field}: ")) && error.contains(words), "{text}: {error}");
    }
    let file = files(&[(
        "a.hcl",
        "data_dir = \"/d\"\nclient { enabled = true server_join { retry_join = [\"exec=/bin/echo 10.0.0.1\", \"b\"] } }",
    )]);
    let client = resolve(&flags(&[]), file, &host()).unwrap().client.unwrap();
    assert_eq!((client.servers.len(), client.server_programs.len()), (1, 1));
}

fn files(texts: &[(&str, &str)]) -> AgentConfig {
    let sources: Vec<_> =
        texts.iter().map(|(name, text)| caravan_hcl::Source::new((*name).to_owned(), *text)).collect();
    caravan_hcl::config::parse(&sources).unwrap()
}

#[test]
fn addresses_and_what_is_advertised() {
    let file = files(&[(
        "a.hcl",
        "data_dir = \"/d\"\nbind_addr = \"10.0.0.9\"\nports { http = 5646 rpc = 5647 }\n\
         addresses { http = \"127.0.0.1\" }\nadvertise { http = \"api.example\" rpc = \"203.0.113.5:99\" }\n\
         server { enabled = true min_heartbeat_ttl = \"2s\" }",
    )]);
    let settings = resolve(&flags(&[]), file, &host()).unwrap();
    assert_eq!(settings.http.to_string(), "127.0.0.1:5646");
    assert_eq!(settings.rpc.to_string(), "10.0.0.9:5647");
    assert_eq!(
        (settings.advertise_http.as_str(), settings.advertise_rpc.as_str()),
        ("api.example:5646", "203.0.113.5:99")
    );
    assert_eq!(settings.server.unwrap().min_heartbeat_ttl, Duration::from_secs(2));
}

#[test]
fn the_gossip_address_follows_an_explicit_rpc_address() {
    let text = "data_dir = \"/d\"\nbind_addr = \"127.0.0.1\"\nserver { enabled = true }\n\
                advertise { http = \"127.0.0.1\" rpc = \"127.0.0.1\" }";
    let settings = resolve(&flags(&[]), files(&[("a.hcl", text)]), &host()).unwrap();
    assert_eq!(settings.server.unwrap().cluster.advertise_serf, "127.0.0.1:4648");
}

#[test]
fn what_makes_no_sense_is_named() {
    for (text, field, reason) in [
        ("ports { http = 70000 }", "ports.http", "70000 is not a port"),
        ("ports { rpc = -1 }", "ports.rpc", "-1 is not a port"),
        ("client { min_dynamic_port = 99999 }", "client.min_dynamic_port", "99999 is not a port"),
        (
            "client { max_dynamic_port = 100 }",
            "client.min_dynamic_port",
            "above client.max_dynamic_port, 100",
        ),
        ("client { state_dir = \"s\" }", "client.state_dir", "s is not an absolute path"),
        ("client { alloc_dir = \"./a\" }", "client.alloc_dir", "not an absolute path"),
        ("server { lease_ttl = \"200ms\" }", "server.lease_ttl", "too short: at least 1s"),
        ("server { lease_margin = \"0s\" }", "server.lease_margin", "too short: at least 100ms"),
        ("server { data_dir = \"x\" }", "server.data_dir", "not an absolute path"),
        ("data_dir = \"x\"", "data_dir", "not an absolute path"),
        ("server { bootstrap_expect = 300 }", "server.bootstrap_expect", "300 is not between 0 and 100"),
        ("server { raft_multiplier = 11 }", "server.raft_multiplier", "11 is not between 1 and 10"),
        ("server { encrypt = \"c2VjcmV0\" }", "server.encrypt", "16, 24 or 32"),
        (
            "server { server_join { retry_join = [\"provider=aws tag_key=x\"] } }",
            "server_join.retry_join",
            "aws",
        ),
        (
            "server {\n retry_join = [\"a\"]\n server_join { retry_join = [\"b\"] }\n}",
            "server.server_join",
            "set them here only",
        ),
        ("log_level = \"LOUD\"", "log_level", "\"LOUD\" is not TRACE"),
        ("bind_addr = \"host.example\"", "bind_addr", "is not an IP address"),
        ("addresses { rpc = \"x\" }", "addresses.rpc", "is not an IP address"),
        (
            "acl { token_min_expiration_ttl = \"2h\" token_max_expiration_ttl = \"1h\" }",
            "acl.token_min_expiration_ttl",
            "longer than",
        ),
        ("limits { rpc_handshake_timeout = \"-1s\" }", "limits.rpc_handshake_timeout", "is below 0"),
        ("limits { rpc_max_conns_per_client = -1 }", "limits.rpc_max_conns_per_client", "is below 0"),
        ("limits { https_handshake_timeout = \"-1s\" }", "limits.https_handshake_timeout", "is below 0"),
        ("limits { http_max_conns_per_client = -1 }", "limits.http_max_conns_per_client", "is below 0"),
        ("consul { address = \"unix:///c\" }", "consul.address", "neither http:// nor https://"),
        ("tls { rpc = true }", "tls", "cert_file and key_file must be set"),
    ] {
        let error = resolve(&flags(&["-dev"]), files(&[("a.hcl", text)]), &host()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("configuration: {field}: ")), "{text}: {error}");
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn connections_have_limits_unless_they_are_taken_away() {
    let limits = |text: &str| resolve(&flags(&["-dev"]), files(&[("a.hcl", text)]), &host()).unwrap().limits;
    let five = Duration::from_secs(5);
    let usual =
        Limits { https_handshake: five, http_connections: 100, rpc_handshake: five, rpc_connections: 100 };
    assert_eq!(limits(""), usual);
    let some = limits("limits { rpc_handshake_timeout = \"2s\" rpc_max_conns_per_client = 7 }");
    assert_eq!(some, Limits { rpc_handshake: Duration::from_secs(2), rpc_connections: 7, ..usual });
    let none = limits("limits { https_handshake_timeout = \"0s\" http_max_conns_per_client = 0 }");
    assert_eq!(none, Limits { https_handshake: Duration::ZERO, http_connections: 0, ..usual });
}

#[test]
fn later_files_and_flags_add_to_what_is_there() {
    let file = files(&[
        ("a.hcl", "client { meta { rack = \"1\" row = \"1\" } servers = [\"s1\"] }"),
        ("b.json", r#"{"client": {"meta": {"row": "2"}, "node_class": "json"}}"#),
    ]);
    let supplied = flags(&["-dev", "-meta", "unit=3", "-meta", "rack=9", "-servers", "s2,s3:1"]);
    let client = resolve(&supplied, file, &host()).unwrap().client.unwrap();
    let meta: Vec<_> = client.meta.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(meta, [("rack", "9"), ("row", "2"), ("unit", "3")]);
    assert_eq!(client.node_class, "json");
    assert_eq!(client.servers, ["s2:4647", "s3:1", "s1:4647"]);
}

#[test]
fn servers_get_the_default_port() {
    assert_eq!(with_port("10.1.1.1", 4647), "10.1.1.1:4647");
    assert_eq!(with_port("10.1.1.1:99", 4647), "10.1.1.1:99");
    assert_eq!(with_port("[::1]:99", 4647), "[::1]:99");
    assert_eq!(with_port("[::1]", 4647), "[::1]:4647");
    assert_eq!(with_port("fd00::1", 4647), "[fd00::1]:4647");
    assert_eq!(with_port("::1:99", 4647), "[::1:99]:4647");
    assert_eq!(with_port("server-1", 4647), "server-1:4647");
}

#[test]
fn workers_are_as_many_and_take_what_the_server_block_says() {
    let workers = |block: &str| {
        let text = format!("data_dir = \"/d\"\nserver {{\n enabled = true\n {block}\n}}\n");
        resolve(&flags(&[]), files(&[("a.hcl", &text)]), &host()).map(|s| s.server.unwrap().workers)
    };
    let all = workers("").unwrap();
    assert_eq!((all.number(), all.enabled().len()), (4, 5));
    assert_eq!(workers("num_schedulers = 0").unwrap().number(), 0);
    let some = workers("num_schedulers = 2\n enabled_schedulers = [\"batch\"]").unwrap();
    let names: Vec<&str> = some.enabled().iter().map(|scheduler| scheduler.as_str()).collect();
    assert_eq!((some.number(), names), (2, vec!["batch", "_core"]));
    for (block, field) in [
        ("num_schedulers = -1", "server.num_schedulers"),
        ("num_schedulers = 1000", "server.num_schedulers"),
        ("enabled_schedulers = [\"cron\"]", "server.enabled_schedulers"),
    ] {
        let error = workers(block).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
}

#[test]
fn a_region_is_its_own_authority_unless_another_one_is_named() {
    let replication = |text: &str| {
        let text = format!("data_dir = \"/d\"\nregion = \"west\"\n{text}");
        let settings = resolve(&flags(&["-server"]), files(&[("a.hcl", &text)]), &host()).unwrap();
        settings.server.unwrap().cluster.replication
    };
    assert_eq!(replication("").authoritative, "west");
    let named = replication(
        "server {\n authoritative_region = \"east\"\n}\nacl {\n replication_token = \"hunter2\"\n}\n",
    );
    assert_eq!((named.authoritative.as_str(), named.token.expose()), ("east", "hunter2"));
    assert!(!format!("{named:?}").contains("hunter2"), "{named:?}");
}
