//! The first contact with a plugin and the periodic probe afterwards. A slow plugin is not broken, but its last error
//! is kept for reports.

use crate::clock::Backoff;
use caravan_csi::{CsiClient, PluginInfo};
use std::time::Duration;
use tokio::time::Instant;

/// The interval between probes of a healthy plugin.
const PERIOD: Duration = Duration::from_secs(30);
/// The interval between probes of an unhealthy plugin.
const SOON: Duration = Duration::from_secs(1);

/// Probes the plugin once.
pub(super) async fn look(client: &CsiClient) -> Result<(), String> {
    match client.probe().await {
        Ok(ready) if ready.is_ready() => Ok(()),
        Ok(_) => Err("the plugin says that it is not ready".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Waits until the plugin is ready and returns its name. The first attempts follow within milliseconds, since the
/// socket of a fast plugin appears almost immediately.
pub(super) async fn first_contact(client: &CsiClient, patience: Duration) -> Result<PluginInfo, String> {
    let deadline = Instant::now() + patience;
    let mut backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(500));
    loop {
        let last = match look(client).await {
            Ok(()) => break,
            Err(why) => why,
        };
        let pause = backoff.delay();
        if Instant::now() + pause >= deadline {
            return Err(format!("CSI plugin failed probe: {last}"));
        }
        tokio::time::sleep(pause).await;
    }
    client.get_plugin_info().await.map_err(|error| format!("CSI plugin failed to register: {error}"))
}

/// Waits for the next change of health and returns the new one.
pub(super) async fn next_change(client: &CsiClient, was_healthy: bool) -> Result<(), String> {
    loop {
        tokio::time::sleep(if was_healthy { PERIOD } else { SOON }).await;
        let seen = look(client).await;
        if seen.is_ok() != was_healthy {
            return seen;
        }
    }
}
