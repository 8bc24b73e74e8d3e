//! The files by which programs of a task resolve names: `resolv.conf` (resolv.conf(5)) and `hosts` (hosts(5)).

use crate::network::HostsLine;
use crate::task::TaskConfig;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

/// The name of the resolver's file in the state directory of a task.
pub const RESOLV_FILE: &str = "resolv.conf";
/// The name of the file with names of hosts in the state directory of a task.
pub const HOSTS_FILE: &str = "hosts";
/// The path of the resolver's file as programs open it.
pub const RESOLV_PATH: &str = "/etc/resolv.conf";
/// The path of the file with names of hosts as programs open it.
pub const HOSTS_PATH: &str = "/etc/hosts";

/// The lines that every file with names of hosts has.
pub const LOCAL_HOSTS: &str = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\nfe00::0 ip6-localnet\n\
                               ff00::0 ip6-mcastprefix\nff02::1 ip6-allnodes\nff02::2 ip6-allrouters\n";

/// The settings of a resolver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// The addresses of the name servers.
    pub servers: Vec<String>,
    /// The domains in which names are looked up.
    pub searches: Vec<String>,
    /// The options of the resolver.
    pub options: Vec<String>,
}

impl Dns {
    /// Returns whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.searches.is_empty() && self.options.is_empty()
    }

    /// Reads a resolver's file. Unknown lines are left out; of several `search` lines the last one counts.
    pub fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines() {
            let mut words = line.split(['#', ';']).next().unwrap_or_default().split_whitespace();
            let Some(keyword) = words.next() else { continue };
            let values = words.map(str::to_owned);
            match keyword {
                "nameserver" => found.servers.extend(values.take(1)),
                "search" | "domain" => found.searches = values.collect(),
                "options" => found.options.extend(values),
                _ => {}
            }
        }
        found
    }

    /// Returns the content of a resolver's file. The domain `.` means no search.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for server in &self.servers {
            let _infallible = writeln!(text, "nameserver {server}");
        }
        let searches: Vec<String> = self.searches.iter().filter(|name| *name != ".").cloned().collect();
        for (keyword, values) in [("search", &searches), ("options", &self.options)] {
            if !values.is_empty() {
                let _infallible = writeln!(text, "{keyword} {}", values.join(" "));
            }
        }
        text
    }
}

/// Returns the content of a task's file with names of hosts: loopback names, the line of the allocation, and the
/// entries of the node's file (`of_node`). The node's entries for loopback addresses are left out, because these
/// addresses lead elsewhere in another namespace.
pub fn hosts(line: &HostsLine, of_node: &str) -> String {
    let mut text = LOCAL_HOSTS.to_owned();
    if !line.address.is_empty() && !line.hostname.is_empty() {
        let _infallible = writeln!(text, "{} {}", line.address, line.hostname);
    }
    for entry in of_node.lines() {
        let content = entry.split('#').next().unwrap_or_default().trim();
        let Some((address, _)) = content.split_once(char::is_whitespace) else { continue };
        let is_kept = |ip: IpAddr| !ip.is_loopback() && !LOCAL_HOSTS.lines().any(|own| own == content);
        if address.parse().is_ok_and(is_kept) {
            let _infallible = writeln!(text, "{content}");
        }
    }
    text
}

/// The files that a task with a separate root has instead of the node's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) resolv: bool,
    pub(crate) hosts: bool,
}

/// Returns the files that a task needs.
pub(crate) fn needed(task: &TaskConfig) -> Written {
    let hosts = task.network.as_ref().and_then(|network| network.hosts.as_ref());
    Written { resolv: task.dns.is_some(), hosts: hosts.is_some_and(|line| !line.address.is_empty()) }
}

/// Writes the files that a task needs into its state directory.
pub(crate) fn write(task: &TaskConfig) -> Result<()> {
    let needed = needed(task);
    if needed == Written::default() {
        return Ok(());
    }
    let failed = |error: caravan_sys::Error| Error::Start {
        message: caravan_sys::describe(&error),
        recoverable: true,
    };
    caravan_sys::files::private_dir(&task.dirs.state_dir).map_err(failed)?;
    let put = |name: &str, text: &str| {
        let path = task.dirs.state_dir.join(name);
        caravan_sys::files::atomic_write_until_restart(&path, text.as_bytes(), 0o644).map_err(failed)
    };
    if let Some(dns) = &task.dns {
        put(RESOLV_FILE, &dns.render())?;
    }
    if let Some(line) = task.network.as_ref().and_then(|network| network.hosts.as_ref())
        && needed.hosts
    {
        let mut line = line.clone();
        if line.hostname.is_empty() {
            // The task has the node's name.
            line.hostname = node_name();
        }
        let of_node = std::fs::read_to_string(Path::new(HOSTS_PATH)).unwrap_or_default();
        put(HOSTS_FILE, &hosts(&line, &of_node))?;
    }
    Ok(())
}

fn node_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_file_of_the_resolver_is_read_and_written() {
        let text = "# by hand\nnameserver 10.0.0.53 # main\nnameserver fd00::53\ndomain old\nsearch a.test b.test\n\
                    options ndots:2\noptions rotate\nsortlist 1.2.3.4\n";
        let found = Dns::parse(text);
        assert_eq!(found.servers, ["10.0.0.53", "fd00::53"]);
        assert_eq!(
            (found.searches.join(","), found.options.join(",")),
            ("a.test,b.test".into(), "ndots:2,rotate".into())
        );
        assert_eq!(
            found.render(),
            "nameserver 10.0.0.53\nnameserver fd00::53\nsearch a.test b.test\noptions ndots:2 rotate\n"
        );
        let none = Dns { searches: vec![".".into()], ..Dns::default() };
        assert_eq!(none.render(), "");
        assert!(Dns::default().is_empty() && !none.is_empty());
    }

    #[test]
    fn entries_of_the_node_stay_except_those_for_itself() {
        let line = HostsLine { hostname: "web".into(), address: "172.26.64.2".into() };
        let of_node = "127.0.0.1 localhost\n127.0.1.1 node # me\n::1 localhost\nff02::1 ip6-allnodes\n\
                       10.0.0.9 db db.lan # base\nbroken\n";
        let text = hosts(&line, of_node);
        assert_eq!(text, format!("{LOCAL_HOSTS}172.26.64.2 web\n10.0.0.9 db db.lan\n"));
        assert_eq!(hosts(&HostsLine::default(), ""), LOCAL_HOSTS);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            servers in proptest::collection::vec("[0-9.]{1,12}", 0..3),
            searches in proptest::collection::vec("[a-z]{1,8}", 0..3),
            options in proptest::collection::vec("[a-z:0-9]{1,8}", 0..3),
        ) {
            let dns = Dns { servers, searches, options };
            prop_assert_eq!(Dns::parse(&dns.render()), dns);
        }

        #[test]
        fn any_text_is_read(text in ".*") {
            let _ = Dns::parse(&text);
        }
    }
}
