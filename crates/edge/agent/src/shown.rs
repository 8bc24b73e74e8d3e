//! The `config` of `/v1/agent/self`: all keys that users expect, with the set values and without secrets.

use crate::drivers::allows_privileged_plugins;
use crate::settings::{ClientSettings, ServerSettings, Settings};
use caravan_docker::DockerOptions;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The value of each key that is not set (docs/reference/http-api.md, section 5.7).
const UNSET: &str = include_str!("shown.json");

/// Returns the settings of an agent in the displayed form.
pub(crate) fn config(settings: &Settings, external: &BTreeMap<String, Value>) -> Value {
    let unset: Value = serde_json::from_str(UNSET).expect("the table is JSON, as its test shows");
    let mut config = Map::new();
    over(&mut config, unset);
    over(&mut config, general(settings, external));
    if let Some(server) = &settings.server {
        over(&mut config, json!({ "Server": of_server(server, settings) }));
    }
    if let Some(client) = &settings.client {
        over(&mut config, json!({ "Client": of_client(client) }));
    }
    Value::Object(config)
}

/// Merges `upper` into an object. A map with users' own keys is replaced as a whole.
fn over(map: &mut Map<String, Value>, upper: Value) {
    let Value::Object(upper) = upper else { return };
    for (key, value) in upper {
        match (map.get_mut(&key), value) {
            (Some(Value::Object(own)), Value::Object(more)) => over(own, Value::Object(more)),
            (_, value) => drop(map.insert(key, value)),
        }
    }
}

fn general(settings: &Settings, external: &BTreeMap<String, Value>) -> Value {
    let headers: Map<String, Value> = settings
        .transport
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), json!(String::from_utf8_lossy(value.as_bytes()))))
        .collect();
    let mut blocks = settings.plugins.clone();
    if settings.dev && settings.client.is_some() {
        // A development agent enables more than the defaults.
        blocks.entry("exec".to_owned()).or_default();
    }
    let plugins: Vec<Value> = blocks
        .iter()
        .map(|(name, block)| {
            let mut own = Map::new();
            over(&mut own, defaults(name));
            over(&mut own, external.get(name).unwrap_or(&block.config).clone());
            if name == "exec" {
                own.insert("allow_privileged_plugins".to_owned(), json!(allows_privileged_plugins(settings)));
            }
            let args = if block.args.is_empty() { Value::Null } else { json!(block.args) };
            json!({"Name": name, "Args": args, "Config": own})
        })
        .collect();
    json!({
        "Region": settings.region,
        "Datacenter": settings.datacenter,
        "NodeName": settings.name,
        "DataDir": if settings.dev { String::new() } else { settings.data_dir.display().to_string() },
        "LogLevel": settings.log_level,
        "LogJson": settings.log_json,
        "LogFile": settings.log_file.as_ref().map_or_else(String::new, |file| file.path.display().to_string()),
        "EnableDebug": settings.enable_debug,
        "BindAddr": settings.http.ip().to_string(),
        "DevMode": settings.dev,
        "Ports": { "HTTP": settings.http.port(), "RPC": settings.rpc.port() },
        "Addresses": { "HTTP": settings.http.ip().to_string(), "RPC": settings.rpc.ip().to_string() },
        "AdvertiseAddrs": { "HTTP": settings.advertise_http, "RPC": settings.advertise_rpc },
        "ACL": {
            "Enabled": settings.acl.enabled,
            "TokenMinExpirationTTL": settings.acl.min_expiration,
            "TokenMaxExpirationTTL": settings.acl.max_expiration,
        },
        "Limits": {
            "HTTPMaxConnsPerClient": settings.limits.http_connections,
            "HTTPSHandshakeTimeout": span(settings.limits.https_handshake),
            "RPCMaxConnsPerClient": settings.limits.rpc_connections,
            "RPCHandshakeTimeout": span(settings.limits.rpc_handshake),
        },
        "HTTPAPIResponseHeaders": headers,
        "Telemetry": {
            "PublishAllocationMetrics": settings.metrics.allocations,
            "PublishNodeMetrics": settings.metrics.node,
            "PrometheusMetrics": settings.metrics.prometheus,
        },
        "TLSConfig": settings.tls.shown(),
        "UI": settings.ui.shown(),
        "Plugins": if plugins.is_empty() { Value::Null } else { json!(plugins) },
        "ConfigPaths": settings.files,
        "Files": settings.files,
        "Version": {
            "Version": settings.build.version,
            "Revision": settings.build.commit,
            "BuildDate": settings.build.date,
        },
    })
}

fn span(time: std::time::Duration) -> String {
    caravan_types::Nanos::from_std(time).to_string()
}

/// Returns the default options of the bundled drivers.
fn defaults(plugin: &str) -> Value {
    match plugin {
        "raw_exec" => json!({
            "enabled": false, "denied_envvars": null, "denied_host_uids": null, "denied_host_gids": null,
        }),
        "mock_driver" => json!({
            "fs_isolation": "none", "shutdown_periodic_after": false, "shutdown_periodic_duration": null,
        }),
        "exec" => json!({
            "allow_caps": caravan_drivers::DEFAULT_CAPABILITIES, "default_ipc_mode": "private", "default_pid_mode": "private",
            "denied_host_uids": null, "denied_host_gids": null, "no_pivot_root": false,
        }),
        "java" => json!({
            "allow_caps": caravan_drivers::DEFAULT_CAPABILITIES, "default_ipc_mode": "private",
            "default_pid_mode": "private",
        }),
        "docker" => docker(),
        "qemu" => json!({ "args_allowlist": null, "emulators_allowlist": null, "image_paths": null }),
        _ => Value::Null,
    }
}

/// Returns the default options of driver docker (docs/reference/drivers.md, section 1.2).
fn docker() -> Value {
    let defaults = DockerOptions::default();
    json!({
        "endpoint": null, "auth": null, "tls": null, "extra_labels": null,
        "logging": { "type": defaults.logging.driver, "config": defaults.logging.config },
        "gc": {
            "image": defaults.gc.image, "image_delay": "3m", "container": defaults.gc.container,
            "dangling_containers": {
                "enabled": defaults.gc.dangling.enabled, "period": "5m", "creation_grace": "5m",
                "dry_run": defaults.gc.dangling.dry_run,
            },
        },
        "volumes": { "enabled": defaults.volumes, "selinuxlabel": defaults.selinux_label },
        "allow_privileged": defaults.allow_privileged, "allow_caps": defaults.allow_caps,
        "allow_runtimes": defaults.allow_runtimes, "nvidia_runtime": defaults.nvidia_runtime,
        "infra_image": defaults.infra_image, "infra_image_pull_timeout": "5m", "image_pull_timeout": "5m",
        "pull_activity_timeout": "2m", "container_exists_attempts": defaults.container_exists_attempts,
        "pids_limit": 0, "oom_score_adj": 0, "disable_log_collection": defaults.disable_log_collection,
        "windows_allow_insecure_container_admin": false,
        "allowed_modes": { "pid": [], "ipc": [], "userns": [], "uts": [] },
    })
}

fn of_server(server: &ServerSettings, settings: &Settings) -> Value {
    let nanos = |d: std::time::Duration| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX);
    json!({
        "Enabled": true,
        "BootstrapExpect": server.cluster.expect,
        "DataDir": if settings.dev { String::new() } else { server.data_dir.display().to_string() },
        "MinHeartbeatTTL": nanos(server.min_heartbeat_ttl),
        "HeartbeatGrace": nanos(server.heartbeat_grace),
        "FailoverHeartbeatTTL": server.failover_heartbeat_ttl.map_or(0, nanos),
        "EventBufferSize": server.event_buffer.unwrap_or(caravan_http::EVENT_BUFFER),
        "OIDCIssuer": server.issuer.clone().unwrap_or_default(),
        "PlanRejectionTracker": {
            "Enabled": server.rejections.enabled,
            "NodeThreshold": server.rejections.threshold,
            "NodeWindow": server.rejections.window,
        },
    })
}

fn of_client(client: &ClientSettings) -> Value {
    let file = &client.file;
    let volumes: Vec<Value> = file
        .host_volume
        .iter()
        .flatten()
        .map(|(name, volume)| {
            json!({
                "ID": "",
                "Name": name,
                "Path": volume.path.clone().unwrap_or_default(),
                "ReadOnly": volume.read_only.unwrap_or(false),
            })
        })
        .collect();
    json!({
        "Enabled": true,
        "Servers": if client.servers.is_empty() { Value::Null } else { json!(client.servers) },
        "StateDir": client.state_dir,
        "AllocDir": client.alloc_dir,
        "AllocMountsDir": client.file.alloc_mounts_dir.clone().unwrap_or_default(),
        "Users": {
            "MinDynamicUser": client.dynamic_users.start(),
            "MaxDynamicUser": client.dynamic_users.end(),
        },
        "HostVolumesDir": client.host_volumes_dir,
        "HostVolumePluginDir": client.host_volume_plugin_dir,
        "HostVolumes": if volumes.is_empty() { Value::Null } else { json!(volumes) },
        "CNIPath": client.cni_path,
        "NodeClass": client.node_class,
        "NodePool": client.node_pool,
        "NetworkInterface": client.network_interface.clone().unwrap_or_default(),
        "Meta": client.meta,
        "Options": file.options.clone().unwrap_or_default(),
        "MinDynamicPort": client.dynamic_ports.0,
        "MaxDynamicPort": client.dynamic_ports.1,
        "CpuCompute": file.cpu_total_compute.unwrap_or(0),
        "MemoryMB": file.memory_total_mb.unwrap_or(0),
        "DiskTotalMB": file.disk_total_mb.unwrap_or(0),
        "DiskFreeMB": file.disk_free_mb.unwrap_or(0),
        "NodeMaxAllocs": file.node_max_allocs.unwrap_or(0),
        "DefaultIneligible": file.default_ineligible.unwrap_or(false),
        "GCVolumesOnNodeGC": file.gc_volumes_on_node_gc.unwrap_or(false),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_docker_are_those_that_it_reads() {
        let shown = defaults("docker");
        assert_eq!(DockerOptions::read(&shown).unwrap(), DockerOptions::default());
        assert_eq!(shown["gc"]["dangling_containers"]["period"], "5m");
        assert_eq!(shown.as_object().unwrap().len(), 21);
    }

    #[test]
    fn what_is_set_lies_over_what_is_not() {
        let unset: Value = serde_json::from_str(UNSET).unwrap();
        assert_eq!(unset["Client"]["Enabled"], false);
        let mut map = Map::new();
        over(&mut map, unset);
        over(&mut map, json!({"Client": {"Enabled": true, "Meta": {"a": "b"}}, "Plugins": [1]}));
        let config = Value::Object(map);
        assert_eq!(config["Client"]["Enabled"], true);
        assert_eq!(config["Client"]["NodePool"], "default");
        assert_eq!((&config["Client"]["Meta"]["a"], &config["Plugins"][0]), (&json!("b"), &json!(1)));
    }
}
