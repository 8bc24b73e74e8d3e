//! The node's report about the engine.

use crate::NAME;
use crate::tasks::{PATIENCE, Shared};
use caravan_drivers::{Fingerprint, Health};
use std::collections::BTreeMap;

/// The network whose gateway the node reports.
const BRIDGE: &str = "bridge";

/// Examines the engine. `seen`: the engine has answered before, so its silence is a failure.
pub(crate) async fn look(shared: &Shared, seen: bool) -> Fingerprint {
    let answer = match tokio::time::timeout(PATIENCE, read(shared)).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("there was no answer for {PATIENCE:?}")),
    };
    match answer {
        Ok(attributes) => {
            let mut found = Fingerprint::healthy(NAME);
            found.attributes.extend(attributes);
            found
        }
        Err(reason) => {
            let description = format!("Failed to connect to docker daemon: {reason}");
            let state = if seen { Health::Unhealthy } else { Health::Undetected };
            Fingerprint { state, attributes: BTreeMap::new(), description }
        }
    }
}

async fn read(shared: &Shared) -> Result<BTreeMap<String, String>, String> {
    let client = shared.engine.client().await.map_err(|error| error.to_string())?;
    let info = match client.info().await {
        Ok(info) => info,
        Err(error) => {
            shared.engine.reset();
            return Err(shared.engine.explain(&error).to_string());
        }
    };
    let options = &shared.options;
    let mut attributes = BTreeMap::new();
    let mut set = |key: &str, value: String| {
        attributes.insert(format!("driver.{NAME}.{key}"), value);
    };
    if let Some(version) = info.server_version {
        set("version", version);
    }
    if options.allow_privileged {
        set("privileged.enabled", "true".into());
    }
    if options.volumes {
        set("volumes.enabled", "true".into());
    }
    if let Some(limit) = options.pids_limit {
        set("pids.limit", limit.to_string());
    }
    if let Some(runtimes) = info.runtimes {
        let mut names: Vec<String> = runtimes.into_keys().collect();
        names.sort();
        set("runtimes", names.join(","));
    }
    if let Some(os) = info.os_type {
        set("os_type", os);
    }
    // Engines without this network have no such attribute.
    if let Ok(network) = client.inspect_network(BRIDGE, None).await {
        let ranges = network.ipam.and_then(|ipam| ipam.config).unwrap_or_default();
        if let Some(gateway) = ranges.into_iter().find_map(|range| range.gateway) {
            set("bridge_ip", gateway);
        }
    }
    Ok(attributes)
}
