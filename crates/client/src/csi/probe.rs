//! The first contact with a plugin and the light watch afterwards: slow is not broken, but the last error is
//! kept for whoever asks.

use crate::clock::Backoff;
use caravan_csi::{CsiClient, PluginInfo};
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks at a plugin that was healthy.
const PERIOD: Duration = Duration::from_secs(30);
/// Between two looks at one that was not.
const SOON: Duration = Duration::from_secs(1);

/// One look.
pub(super) async fn look(client: &CsiClient) -> Result<(), String> {
    match client.probe().await {
        Ok(ready) if ready.is_ready() => Ok(()),
        Ok(_) => Err("the plugin says that it is not ready".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Waits for the plugin to be ready and to tell its name: at first every few milliseconds, since the socket of
/// a fast plugin is there almost at once.
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

/// Waits for the next change of health and answers the new one.
pub(super) async fn next_change(client: &CsiClient, was_healthy: bool) -> Result<(), String> {
    loop {
        tokio::time::sleep(if was_healthy { PERIOD } else { SOON }).await;
        let seen = look(client).await;
        if seen.is_ok() != was_healthy {
            return seen;
        }
    }
}
