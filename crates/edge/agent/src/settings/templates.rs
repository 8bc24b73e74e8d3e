//! Templates of addresses in the configuration, which are expanded when the agent starts.

use super::bad;
use crate::error::AgentError;
use caravan_hcl::config::AgentConfig;
use caravan_templates::sockaddr::{self, Address};

/// Expands the settings that may be templates.
///
/// # Errors
/// If a template cannot be expanded; the error names the setting.
pub(super) fn expand(file: &mut AgentConfig, known: &[Address]) -> Result<(), AgentError> {
    let one = |field: &'static str, text: &mut Option<String>| -> Result<(), AgentError> {
        if let Some(template) = text.as_mut().filter(|text| sockaddr::is_template(text)) {
            *template = sockaddr::expand(template, known).map_err(|reason| bad(field, reason))?;
        }
        Ok(())
    };
    one("bind_addr", &mut file.bind_addr)?;
    if let Some(addresses) = &mut file.addresses {
        one("addresses.http", &mut addresses.http)?;
        one("addresses.rpc", &mut addresses.rpc)?;
        one("addresses.serf", &mut addresses.serf)?;
    }
    if let Some(advertise) = &mut file.advertise {
        one("advertise.http", &mut advertise.http)?;
        one("advertise.rpc", &mut advertise.rpc)?;
        one("advertise.serf", &mut advertise.serf)?;
    }
    if let Some(client) = &mut file.client {
        one("client.network_interface", &mut client.network_interface)?;
        for block in client.host_network.iter_mut().flat_map(|all| all.values_mut()) {
            one("client.host_network.interface", &mut block.interface)?;
        }
    }
    Ok(())
}
