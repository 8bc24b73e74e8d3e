//! `client {}` (docs/reference/jobspec.md, section 11.3).

use super::Raw;
use super::macros::{block, by_label, raw, raw_by_label, settings, strings};
use super::server::{SERVER_JOIN, ServerJoin};
use caravan_types::time::Nanos;
use std::collections::BTreeMap;

settings! {
    /// Settings of a client.
    ClientConfig: CLIENT "client" {
        enabled: bool = Bool;
        state_dir: String = Str;
        alloc_dir: String = Str;
        alloc_mounts_dir: String = Str;
        host_volumes_dir: String = Str;
        host_volume_plugin_dir: String = Str;
        common_plugin_dir: String = Str;
        servers: Vec<String> = Strings;
        node_class: String = Str;
        node_pool: String = Str;
        network_interface: String = Str;
        preferred_address_family: String = Str;
        network_speed: i64 = Int;
        cpu_total_compute: i64 = Int;
        memory_total_mb: i64 = Int;
        disk_total_mb: i64 = Int;
        disk_free_mb: i64 = Int;
        reservable_cores: String = Str;
        min_dynamic_port: i64 = Int;
        max_dynamic_port: i64 = Int;
        client_min_port: i64 = Int;
        client_max_port: i64 = Int;
        max_kill_timeout: Nanos = Duration;
        gc_interval: Nanos = Duration;
        gc_parallel_destroys: i64 = Int;
        gc_disk_usage_threshold: i64 = Int;
        gc_inode_usage_threshold: i64 = Int;
        gc_max_allocs: i64 = Int;
        gc_volumes_on_node_gc: bool = Bool;
        no_host_uuid: bool = Bool;
        disable_remote_exec: bool = Bool;
        cni_path: String = Str;
        cni_config_dir: String = Str;
        bridge_network_name: String = Str;
        bridge_network_subnet: String = Str;
        bridge_network_subnet_ipv6: String = Str;
        bridge_network_hairpin_mode: bool = Bool;
        bind_wildcard_default_host_network: bool = Bool;
        cgroup_parent: String = Str;
        nomad_service_discovery: bool = Bool;
        node_max_allocs: i64 = Int;
        default_ineligible: bool = Bool;
        cpu_disable_dmidecode: bool = Bool;
        intro_token: super::Hidden = Str;
    } blocks {
        server_join: ServerJoin = block(&SERVER_JOIN);
        meta: BTreeMap<String, String> = strings();
        options: BTreeMap<String, String> = strings();
        chroot_env: BTreeMap<String, String> = strings();
        reserved: ReservedConfig = block(&RESERVED);
        host_volume: BTreeMap<String, HostVolumeConfig> = by_label(&HOST_VOLUME);
        host_network: BTreeMap<String, HostNetworkConfig> = by_label(&HOST_NETWORK);
        drain_on_shutdown: DrainOnShutdown = block(&DRAIN_ON_SHUTDOWN);
        users: UsersConfig = block(&USERS);
        artifact: Raw = raw();
        template: Raw = raw();
        fingerprint: BTreeMap<String, Raw> = raw_by_label();
    }

    /// Resources that the node reserves for itself.
    ReservedConfig: RESERVED "reserved" {
        cpu: i64 = Int;
        memory: i64 = Int;
        disk: i64 = Int;
        reserved_ports: String = Str;
        cores: String = Str;
    } blocks {}

    /// A directory offered as a volume.
    HostVolumeConfig: HOST_VOLUME "host_volume" {
        path: String = Str;
        read_only: bool = Bool;
    } blocks {}

    /// A named network of the host.
    HostNetworkConfig: HOST_NETWORK "host_network" {
        cidr: String = Str;
        interface: String = Str;
        reserved_ports: String = Str;
    } blocks {}

    /// The drain of the node when the agent shuts down.
    DrainOnShutdown: DRAIN_ON_SHUTDOWN "drain_on_shutdown" {
        deadline: Nanos = Duration;
        ignore_system_jobs: bool = Bool;
        force: bool = Bool;
    } blocks {}

    /// Users that the client creates for tasks.
    UsersConfig: USERS "users" {
        dynamic_user_min: i64 = Int;
        dynamic_user_max: i64 = Int;
    } blocks {}
}
