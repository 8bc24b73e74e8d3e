//! The files `/etc/hosts` and `/etc/resolv.conf` of a container that joins the network of its group. Engines write
//! neither for such a container, and refuse the settings for them.

use super::joined;
use crate::config::Config;
use caravan_drivers::names::{HOSTS_FILE, HOSTS_PATH, LOCAL_HOSTS, RESOLV_FILE, RESOLV_PATH};
use caravan_drivers::{Dns, Error, HostsLine, NetworkIsolation, Result, TaskConfig};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

/// The name of the file in the task's state directory, and its path in the container.
pub(super) const HOSTS: (&str, &str) = (HOSTS_FILE, HOSTS_PATH);
/// The name of the resolver's file in the task's state directory, and its path in the container.
pub(super) const RESOLV: (&str, &str) = (RESOLV_FILE, RESOLV_PATH);

/// Writes the files of a task whose container joins the network of its group.
pub(crate) fn write(task: &TaskConfig, config: &Config) -> Result<()> {
    let Some(network) = joined(task, config) else { return Ok(()) };
    let put = |name: &str, text: &str| {
        caravan_sys::files::atomic_write_until_restart(
            &task.dirs.state_dir.join(name),
            text.as_bytes(),
            0o644,
        )
    };
    put(HOSTS.0, &hosts(network, &config.network.extra_hosts)?)?;
    if let Some(dns) = resolver(task, config) {
        put(RESOLV.0, &dns.render())?;
    }
    Ok(())
}

/// Removes the files that `write` created.
pub(crate) fn clear(state_dir: &Path) {
    for (name, _) in [HOSTS, RESOLV] {
        let _absent = std::fs::remove_file(state_dir.join(name));
    }
}

fn hosts(network: &NetworkIsolation, extra: &[String]) -> Result<String> {
    let mut text = LOCAL_HOSTS.to_owned();
    let named = |line: &&HostsLine| !line.address.is_empty() && !line.hostname.is_empty();
    if let Some(line) = network.hosts.as_ref().filter(named) {
        let _infallible = writeln!(text, "{} {}", line.address, line.hostname);
    }
    for entry in extra {
        let (name, address) = entry
            .split_once(':')
            .filter(|(name, _)| !name.is_empty() && !name.contains(char::is_whitespace))
            .ok_or_else(|| Error::Config(format!("invalid hosts entry {entry:?}")))?;
        let address: IpAddr = address
            .trim_matches(['[', ']'])
            .parse()
            .map_err(|_| Error::Config(format!("invalid IP address {entry:?}")))?;
        let _infallible = writeln!(text, "{address} {name}");
    }
    Ok(text)
}

/// Returns the settings of the task's resolver: those of its group, else those of its `config`; `None` leaves the
/// engine's.
pub(super) fn resolver(task: &TaskConfig, config: &Config) -> Option<Dns> {
    let network = &config.network;
    let own = || Dns {
        servers: network.dns_servers.clone(),
        searches: network.dns_search.clone(),
        options: network.dns_options.clone(),
    };
    task.dns.clone().or_else(|| Some(own()).filter(|dns| !dns.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_hosts_are_checked() {
        let line = HostsLine { hostname: "web".into(), address: "10.0.0.7".into() };
        let network = NetworkIsolation { hosts: Some(line), ..NetworkIsolation::default() };
        let text = hosts(&network, &["db:10.0.0.9".into(), "six:[fd00::1]".into()]).unwrap();
        assert!(text.starts_with("127.0.0.1 localhost\n"));
        assert!(text.ends_with("10.0.0.7 web\n10.0.0.9 db\nfd00::1 six\n"), "{text}");
        for (entry, words) in [
            ("db", "invalid hosts entry"),
            (":1.1.1.1", "invalid hosts entry"),
            ("a:b", "invalid IP address"),
        ] {
            let error = hosts(&network, &[entry.into()]).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        // A network without an address yet has no separate line.
        assert_eq!(hosts(&NetworkIsolation::default(), &[]).unwrap(), LOCAL_HOSTS);
    }
}
