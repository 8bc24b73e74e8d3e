//! The top level of the agent's configuration and its blocks (docs/reference/jobspec.md, section 11.1).

use super::client::{CLIENT, ClientConfig};
use super::macros::{block, by_label, raw, raw_by_label, raw_many, settings, strings};
use super::server::{SERVER, ServerConfig};
use super::{Hidden, Raw};
use caravan_types::time::Nanos;
use std::collections::BTreeMap;

settings! {
    /// All settings of an agent's configuration files.
    AgentConfig: AGENT "agent configuration" {
        region: String = Str;
        datacenter: String = Str;
        name: String = Str;
        data_dir: String = Str;
        plugin_dir: String = Str;
        bind_addr: String = Str;
        log_level: String = Str;
        log_json: bool = Bool;
        log_include_location: bool = Bool;
        log_file: String = Str;
        log_rotate_duration: Nanos = Duration;
        log_rotate_bytes: i64 = Int;
        log_rotate_max_files: i64 = Int;
        enable_debug: bool = Bool;
        leave_on_interrupt: bool = Bool;
        leave_on_terminate: bool = Bool;
        enable_syslog: bool = Bool;
        syslog_facility: String = Str;
        disable_update_check: bool = Bool;
        disable_anonymous_signature: bool = Bool;
    } blocks {
        ports: PortsConfig = block(&PORTS);
        addresses: AddressesConfig = block(&ADDRESSES);
        advertise: AdvertiseConfig = block(&ADVERTISE);
        server: ServerConfig = block(&SERVER);
        client: ClientConfig = block(&CLIENT);
        acl: AclConfig = block(&ACL);
        tls: TlsConfig = block(&TLS);
        limits: LimitsConfig = block(&LIMITS);
        rpc: RpcConfig = block(&RPC);
        telemetry: TelemetryConfig = block(&TELEMETRY);
        ui: UiConfig = block(&UI);
        autopilot: AutopilotConfig = block(&AUTOPILOT);
        plugin: BTreeMap<String, PluginConfig> = by_label(&PLUGIN);
        http_api_response_headers: BTreeMap<String, String> = strings();
        keyring: BTreeMap<String, Raw> = raw_by_label();
        consul: Vec<Raw> = raw_many();
        vault: Vec<Raw> = raw_many();
        audit: Raw = raw();
        sentinel: Raw = raw();
        reporting: Raw = raw();
        eventlog: Raw = raw();
    }

    /// Ports that the agent listens on.
    PortsConfig: PORTS "ports" {
        http: i64 = Int;
        rpc: i64 = Int;
        serf: i64 = Int;
    } blocks {}

    /// Addresses that the agent listens on. `http` may list several, separated by spaces.
    AddressesConfig: ADDRESSES "addresses" {
        http: String = Str;
        rpc: String = Str;
        serf: String = Str;
    } blocks {}

    /// Addresses that the agent advertises to other agents.
    AdvertiseConfig: ADVERTISE "advertise" {
        http: String = Str;
        rpc: String = Str;
        serf: String = Str;
    } blocks {}

    /// Settings of access control.
    AclConfig: ACL "acl" {
        enabled: bool = Bool;
        token_ttl: Nanos = Duration;
        policy_ttl: Nanos = Duration;
        role_ttl: Nanos = Duration;
        replication_token: Hidden = Str;
        token_min_expiration_ttl: Nanos = Duration;
        token_max_expiration_ttl: Nanos = Duration;
    } blocks {}

    /// Settings of TLS.
    TlsConfig: TLS "tls" {
        http: bool = Bool;
        rpc: bool = Bool;
        verify_server_hostname: bool = Bool;
        verify_https_client: bool = Bool;
        rpc_upgrade_mode: bool = Bool;
        ca_file: String = Str;
        cert_file: String = Str;
        key_file: String = Str;
        tls_cipher_suites: String = Str;
        tls_min_version: String = Str;
        tls_prefer_server_cipher_suites: bool = Bool;
    } blocks {}

    /// Limits of client connections.
    LimitsConfig: LIMITS "limits" {
        https_handshake_timeout: Nanos = Duration;
        http_max_conns_per_client: i64 = Int;
        rpc_handshake_timeout: Nanos = Duration;
        rpc_max_conns_per_client: i64 = Int;
    } blocks {}

    /// Settings of multiplexed RPC connections.
    RpcConfig: RPC "rpc" {
        accept_backlog: i64 = Int;
        keep_alive_interval: Nanos = Duration;
        connection_write_timeout: Nanos = Duration;
        max_stream_window_size: i64 = Int;
        stream_open_timeout: Nanos = Duration;
        stream_close_timeout: Nanos = Duration;
        dial_timeout: Nanos = Duration;
    } blocks {}

    /// Settings of metrics.
    TelemetryConfig: TELEMETRY "telemetry" {
        collection_interval: Nanos = Duration;
        in_memory_collection_interval: Nanos = Duration;
        in_memory_retention_period: Nanos = Duration;
        publish_allocation_metrics: bool = Bool;
        publish_node_metrics: bool = Bool;
        include_alloc_metadata_in_metrics: bool = Bool;
        allowed_metadata_keys_in_metrics: Vec<String> = Strings;
        prometheus_metrics: bool = Bool;
        disable_hostname: bool = Bool;
        use_node_name: bool = Bool;
        prefix_filter: Vec<String> = Strings;
        filter_default: bool = Bool;
        disable_dispatched_job_summary_metrics: bool = Bool;
        disable_quota_utilization_metrics: bool = Bool;
        disable_rpc_rate_metrics_labels: bool = Bool;
        disable_allocation_hook_metrics: bool = Bool;
        statsd_address: String = Str;
        statsite_address: String = Str;
        datadog_address: String = Str;
        datadog_tags: Vec<String> = Strings;
        circonus_api_token: Hidden = Str;
        circonus_api_app: String = Str;
        circonus_api_url: String = Str;
        circonus_submission_interval: String = Str;
        circonus_submission_url: String = Str;
        circonus_check_id: String = Str;
        circonus_check_force_metric_activation: String = Str;
        circonus_check_instance_id: String = Str;
        circonus_check_search_tag: String = Str;
        circonus_check_display_name: String = Str;
        circonus_check_tags: String = Str;
        circonus_broker_id: String = Str;
        circonus_broker_select_tag: String = Str;
    } blocks {}

    /// Settings of the web UI.
    UiConfig: UI "ui" {
        enabled: bool = Bool;
        show_cli_hints: bool = Bool;
    } blocks {
        content_security_policy: UiPolicyConfig = block(&UI_POLICY);
        consul: UiLinkConfig = block(&UI_LINK);
        vault: UiLinkConfig = block(&UI_LINK);
        label: UiLabelConfig = block(&UI_LABEL);
    }

    /// The content security policy of the web UI.
    UiPolicyConfig: UI_POLICY "content_security_policy" {
        connect_src: Vec<String> = Strings;
        default_src: Vec<String> = Strings;
        form_action: Vec<String> = Strings;
        frame_ancestors: Vec<String> = Strings;
        img_src: Vec<String> = Strings;
        script_src: Vec<String> = Strings;
        style_src: Vec<String> = Strings;
    } blocks {}

    /// The link of the web UI to the UI of another program.
    UiLinkConfig: UI_LINK "consul or vault" {
        ui_url: String = Str;
    } blocks {}

    /// The label of the web UI.
    UiLabelConfig: UI_LABEL "label" {
        text: String = Str;
        background_color: String = Str;
        text_color: String = Str;
    } blocks {}

    /// Settings of autopilot, which manages the set of servers.
    AutopilotConfig: AUTOPILOT "autopilot" {
        cleanup_dead_servers: bool = Bool;
        last_contact_threshold: Nanos = Duration;
        max_trailing_logs: i64 = Int;
        min_quorum: i64 = Int;
        server_stabilization_time: Nanos = Duration;
        enable_redundancy_zones: bool = Bool;
        disable_upgrade_migration: bool = Bool;
        enable_custom_upgrades: bool = Bool;
    } blocks {}

    /// Settings of a driver or device plugin.
    PluginConfig: PLUGIN "plugin" {
        args: Vec<String> = Strings;
    } blocks {
        config: Raw = raw();
    }
}
