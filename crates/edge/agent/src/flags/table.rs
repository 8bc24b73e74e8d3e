//! The flags of `caravan agent`: their values, settings and help texts.

use Effect::{Carried, None};
use Takes::{List, Many, Number, Pairs, Secret, Span, Switch, Text, Truth};

/// The value of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// No value; the flag's presence is its value.
    Switch,
    /// No value, or `=true` or `=false`.
    Truth,
    /// A text; the help shows the contained name in its place.
    Text(&'static str),
    /// A text that is never printed.
    Secret(&'static str),
    /// A signed integer in decimal notation.
    Number(&'static str),
    /// A duration such as `30s`.
    Span(&'static str),
    /// A text; the flag may be repeated.
    Many(&'static str),
    /// Texts separated by commas; the flag may be repeated.
    List(&'static str),
    /// `KEY=VALUE`; the flag may be repeated.
    Pairs,
}

/// The effect of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The flag sets its setting.
    Carried,
    /// The flag has no effect, for this reason, and the agent warns.
    None(&'static str),
}

/// A flag of the agent's command line and the setting that it writes.
#[derive(Debug)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) takes: Takes,
    /// Dotted path of the configuration setting that the flag sets; empty if no setting has its effect.
    pub(super) setting: &'static str,
    pub(super) help: &'static str,
    pub(super) effect: Effect,
}

const fn flag(
    name: &'static str,
    takes: Takes,
    setting: &'static str,
    help: &'static str,
    effect: Effect,
) -> Flag {
    Flag { name, takes, setting, help, effect }
}

const NO_CONNECT: &str = "there is no service mesh: the agent starts as with -dev";
const NO_IDENTITIES: &str = "nothing is fetched from there: the agent starts as with -dev";
const NO_REGISTRATION: &str = "nothing is registered in Consul";
const NO_VAULT_TOKENS: &str = "no tokens are fetched from Vault";
const WINDOWS: &str = "there is an event log on Windows only";

/// The flags under the headings of the help.
pub(super) const TABLE: &[(&str, &[Flag])] = &[
    (
        "General",
        &[
            flag(
                "config",
                Many("PATH"),
                "",
                "Configuration file, or directory of *.hcl and *.json; may be repeated",
                Carried,
            ),
            flag("data-dir", Text("PATH"), "data_dir", "Directory of the agent's state", Carried),
            flag("bind", Text("ADDRESS"), "bind_addr", "Address to listen on", Carried),
            flag("region", Text("NAME"), "region", "Region of the agent (global)", Carried),
            flag("dc", Text("NAME"), "datacenter", "Datacenter of the agent (dc1)", Carried),
            flag("node", Text("NAME"), "name", "Name of the agent (the host's name)", Carried),
            flag("log-level", Text("LEVEL"), "log_level", "TRACE, DEBUG, INFO, WARN, ERROR or OFF", Carried),
            flag("log-json", Switch, "log_json", "Log in JSON", Carried),
            flag(
                "log-include-location",
                Switch,
                "log_include_location",
                "Log file and line",
                None("monitor -log-include-location shows them"),
            ),
            flag("plugin-dir", Text("PATH"), "plugin_dir", "Directory of driver and device plugins", Carried),
            flag("eventlog", Switch, "", "Log to the event log of Windows", None(WINDOWS)),
            flag("eventlog-level", Text("LEVEL"), "", "Level of the event log of Windows", None(WINDOWS)),
        ],
    ),
    (
        "Development",
        &[
            flag("dev", Switch, "", "Server and client in one; nothing is kept on disk", Carried),
            flag("dev-connect", Switch, "", "As -dev", None(NO_CONNECT)),
            flag("dev-consul", Switch, "", "As -dev", None(NO_IDENTITIES)),
            flag("dev-vault", Switch, "", "As -dev", None(NO_IDENTITIES)),
        ],
    ),
    (
        "Server",
        &[
            flag("server", Switch, "server.enabled", "Run a server", Carried),
            flag(
                "bootstrap-expect",
                Number("N"),
                "server.bootstrap_expect",
                "Servers to wait for (1)",
                Carried,
            ),
            flag(
                "join",
                Many("ADDRESS"),
                "server.server_join.start_join",
                "Server to join; may be repeated",
                Carried,
            ),
            flag(
                "retry-join",
                Many("ADDRESS"),
                "server.server_join.retry_join",
                "Server to join, tried again until it answers; may be repeated",
                Carried,
            ),
            flag(
                "retry-max",
                Number("N"),
                "server.server_join.retry_max",
                "How often -retry-join tries",
                Carried,
            ),
            flag(
                "retry-interval",
                Span("DURATION"),
                "server.server_join.retry_interval",
                "Time between two tries of -retry-join",
                Carried,
            ),
            flag("rejoin", Switch, "server.rejoin_after_leave", "Join again after a leave", Carried),
            flag("encrypt", Secret("KEY"), "server.encrypt", "Key of the gossip between servers", Carried),
            flag(
                "raft-protocol",
                Number("N"),
                "server.raft_protocol",
                "Version of the Raft protocol",
                None("there is one version"),
            ),
        ],
    ),
    (
        "Client",
        &[
            flag("client", Switch, "client.enabled", "Run a client", Carried),
            flag("servers", List("HOST:PORT,..."), "client.servers", "Servers to begin with", Carried),
            flag("node-class", Text("NAME"), "client.node_class", "Class of the node", Carried),
            flag("node-pool", Text("NAME"), "client.node_pool", "Pool of the node (default)", Carried),
            flag("meta", Pairs, "client.meta", "Metadata of the node; may be repeated", Carried),
            flag(
                "network-interface",
                Text("NAME"),
                "client.network_interface",
                "Interface whose addresses are the node's",
                Carried,
            ),
            flag(
                "preferred-address-family",
                Text("FAMILY"),
                "client.preferred_address_family",
                "ipv4 or ipv6: which address of an interface comes first",
                Carried,
            ),
            flag(
                "network-speed",
                Number("MBITS"),
                "client.network_speed",
                "Speed of the network",
                None("bandwidth is not shared out"),
            ),
            flag("state-dir", Text("PATH"), "client.state_dir", "Directory of the client's state", Carried),
            flag("alloc-dir", Text("PATH"), "client.alloc_dir", "Directory of allocations", Carried),
            flag(
                "alloc-mounts-dir",
                Text("PATH"),
                "client.alloc_mounts_dir",
                "Directory of mounts of allocations",
                None("they are below the directory of allocations"),
            ),
            flag(
                "host-volumes-dir",
                Text("PATH"),
                "client.host_volumes_dir",
                "Directory of host volumes that users create",
                Carried,
            ),
            flag(
                "host-volume-plugin-dir",
                Text("PATH"),
                "client.host_volume_plugin_dir",
                "Directory of host volume plugins",
                Carried,
            ),
            flag(
                "client-intro-token",
                Secret("JWT"),
                "client.intro_token",
                "Token for the node's first registration",
                None("servers ask for none"),
            ),
        ],
    ),
    (
        "Access control",
        &[
            flag("acl-enabled", Switch, "acl.enabled", "Ask for tokens", Carried),
            flag(
                "acl-replication-token",
                Secret("TOKEN"),
                "acl.replication_token",
                "Token for the authoritative region",
                Carried,
            ),
        ],
    ),
    (
        "Consul",
        &[
            flag(
                "consul-address",
                Text("ADDRESS"),
                "consul.address",
                "Agent of Consul, for attributes of the node",
                Carried,
            ),
            flag("consul-token", Secret("TOKEN"), "consul.token", "Token for it", Carried),
            flag("consul-ssl", Truth, "consul.ssl", "Speak TLS with it", Carried),
            flag("consul-verify-ssl", Truth, "consul.verify_ssl", "Check its certificate", Carried),
            flag("consul-ca-file", Text("PATH"), "consul.ca_file", "Authority of its certificate", Carried),
            flag("consul-cert-file", Text("PATH"), "consul.cert_file", "Certificate to show it", Carried),
            flag("consul-key-file", Text("PATH"), "consul.key_file", "Key of that certificate", Carried),
            flag(
                "consul-auth",
                Secret("USER:PASSWORD"),
                "consul.auth",
                "Credentials for basic authentication",
                None(NO_REGISTRATION),
            ),
            flag(
                "consul-namespace",
                Text("NAME"),
                "consul.namespace",
                "Namespace of services",
                None(NO_REGISTRATION),
            ),
            flag(
                "consul-share-ssl",
                Truth,
                "consul.share_ssl",
                "Hand the TLS settings to tasks",
                None(NO_REGISTRATION),
            ),
            flag(
                "consul-auto-advertise",
                Truth,
                "consul.auto_advertise",
                "Register the agents",
                None(NO_REGISTRATION),
            ),
            flag(
                "consul-checks-use-advertise",
                Truth,
                "consul.checks_use_advertise",
                "Check the advertised address",
                None(NO_REGISTRATION),
            ),
            flag(
                "consul-client-auto-join",
                Truth,
                "consul.client_auto_join",
                "Find servers by Consul",
                None(NO_REGISTRATION),
            ),
            flag(
                "consul-server-auto-join",
                Truth,
                "consul.server_auto_join",
                "Find servers by Consul",
                None(NO_REGISTRATION),
            ),
            flag(
                "consul-client-service-name",
                Text("NAME"),
                "consul.client_service_name",
                "Service of clients",
                None(NO_REGISTRATION),
            ),
            flag(
                "consul-client-http-check-name",
                Text("NAME"),
                "consul.client_http_check_name",
                "Check of clients",
                None(NO_REGISTRATION),
            ),
            flag(
                "consul-server-service-name",
                Text("NAME"),
                "consul.server_service_name",
                "Service of servers",
                None(NO_REGISTRATION),
            ),
            flag(
                "consul-server-http-check-name",
                Text("NAME"),
                "consul.server_http_check_name",
                "HTTP check of servers",
                None(NO_REGISTRATION),
            ),
            flag(
                "consul-server-serf-check-name",
                Text("NAME"),
                "consul.server_serf_check_name",
                "Gossip check of servers",
                None(NO_REGISTRATION),
            ),
            flag(
                "consul-server-rpc-check-name",
                Text("NAME"),
                "consul.server_rpc_check_name",
                "RPC check of servers",
                None(NO_REGISTRATION),
            ),
        ],
    ),
    (
        "Vault",
        &[
            flag(
                "vault-enabled",
                Truth,
                "vault.enabled",
                "Look at Vault, for attributes of the node",
                Carried,
            ),
            flag("vault-address", Text("ADDRESS"), "vault.address", "Address of Vault", Carried),
            flag("vault-ca-file", Text("PATH"), "vault.ca_file", "Authority of its certificate", Carried),
            flag("vault-ca-path", Text("PATH"), "vault.ca_path", "Directory of authorities", Carried),
            flag("vault-cert-file", Text("PATH"), "vault.cert_file", "Certificate to show it", Carried),
            flag("vault-key-file", Text("PATH"), "vault.key_file", "Key of that certificate", Carried),
            flag(
                "vault-tls-skip-verify",
                Truth,
                "vault.tls_skip_verify",
                "Do not check its certificate",
                Carried,
            ),
            flag(
                "vault-tls-server-name",
                Text("NAME"),
                "vault.tls_server_name",
                "Name that its certificate has",
                Carried,
            ),
            flag(
                "vault-token",
                Secret("TOKEN"),
                "vault.token",
                "Token to make tokens with",
                None(NO_VAULT_TOKENS),
            ),
            flag(
                "vault-create-from-role",
                Text("ROLE"),
                "vault.create_from_role",
                "Role of the tokens of tasks",
                None(NO_VAULT_TOKENS),
            ),
            flag(
                "vault-allow-unauthenticated",
                Truth,
                "vault.allow_unauthenticated",
                "Jobs need no token of Vault",
                None(NO_VAULT_TOKENS),
            ),
            flag(
                "vault-namespace",
                Text("NAME"),
                "vault.namespace",
                "Namespace of Vault",
                None(NO_VAULT_TOKENS),
            ),
        ],
    ),
];

/// Returns all flags.
pub(super) fn all() -> impl Iterator<Item = &'static Flag> {
    TABLE.iter().flat_map(|(_, flags)| flags.iter())
}
