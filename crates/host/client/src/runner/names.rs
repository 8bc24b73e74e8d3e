//! The resolver of a task, from the job's network, the CNI plugin, or the node (docs/reference/network.md, section
//! 9). A resolver on the node's loopback interface is not reached from another network namespace: the servers that
//! this resolver queries replace it.

use super::network::mode;
use super::plan::Plan;
use super::task_hooks::{Prepared, StartFault, TaskContext, TaskHook};
use crate::clock;
use async_trait::async_trait;
use caravan_drivers::Dns;
use caravan_drivers::names::RESOLV_PATH;
use caravan_types::alloc::{TaskEvent, event};
use caravan_types::job;
use std::net::IpAddr;

/// Files with the servers that a resolver on the loopback interface queries: of systemd-resolved, and of
/// NetworkManager.
const UPSTREAMS: [&str; 2] = ["/run/systemd/resolve/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf"];

/// The resolver of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OfNode {
    /// The settings that programs of the node use.
    own: Dns,
    /// The settings with the servers that local resolvers of the node query; empty if the node has none.
    upstreams: Dns,
}

impl OfNode {
    fn read() -> Self {
        let read = |path: &str| Dns::parse(&std::fs::read_to_string(path).unwrap_or_default());
        let found = UPSTREAMS.map(read).into_iter().find(|dns| dns.servers.iter().any(|ip| is_reached(ip)));
        Self { own: read(RESOLV_PATH), upstreams: found.unwrap_or_default() }
    }

    /// Returns whether a task in a separate namespace reaches all servers of the node.
    fn is_reached(&self) -> bool {
        // Without a server, programs query a server on the loopback interface (resolv.conf(5)).
        !self.own.servers.is_empty() && self.own.servers.iter().all(|ip| is_reached(ip))
    }

    /// Returns the settings without servers on the loopback interface; `None` if no other server is known.
    fn reached(&self) -> Option<Dns> {
        let reached =
            |dns: &Dns| -> Vec<String> { dns.servers.iter().filter(|ip| is_reached(ip)).cloned().collect() };
        let own = reached(&self.own);
        if !own.is_empty() {
            return Some(Dns { servers: own, ..self.own.clone() });
        }
        let servers = reached(&self.upstreams);
        (!servers.is_empty()).then(|| Dns { servers, ..self.upstreams.clone() })
    }
}

/// Returns whether a server is reached from another network namespace. An address that cannot be read is left to the
/// resolver.
fn is_reached(server: &str) -> bool {
    let address = server.split('%').next().unwrap_or_default();
    !address.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// The resolver that a task needs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Resolver {
    /// The resolver of the node.
    OfNode,
    /// These settings, because the job or a plugin names them.
    Named(Dns),
    /// These settings, because the task does not reach the node's resolver.
    Instead(Dns),
    /// The task does not reach the node's resolver, and no other is known.
    Unreachable,
}

/// Decides the resolver of a task. `block` is the `dns` block of the job with its references replaced, `reported` the
/// settings of a plugin; `is_apart` is whether the task is in a namespace with separate addresses.
fn decide(
    block: Option<Dns>,
    reported: Option<Dns>,
    is_apart: bool,
    node: &OfNode,
) -> Result<Resolver, String> {
    let named = block.filter(|dns| !dns.is_empty());
    if let Some(mut dns) = named {
        if let Some(bad) = dns.servers.iter().find(|server| server.parse::<IpAddr>().is_err()) {
            return Err(format!("bad nameserver address: {bad:?} is no IP address"));
        }
        let is_stub = !node.is_reached();
        let rest =
            if is_apart || is_stub { node.reached() } else { None }.unwrap_or_else(|| node.own.clone());
        for (part, other) in [
            (&mut dns.servers, rest.servers),
            (&mut dns.searches, rest.searches),
            (&mut dns.options, rest.options),
        ] {
            if part.is_empty() {
                *part = other;
            }
        }
        return Ok(Resolver::Named(dns));
    }
    if let Some(dns) = reported.filter(|dns| !dns.servers.is_empty()) {
        return Ok(Resolver::Named(dns));
    }
    if !is_apart || node.is_reached() {
        return Ok(Resolver::OfNode);
    }
    Ok(node.reached().map_or(Resolver::Unreachable, Resolver::Instead))
}

/// The hook that finds the resolver of a task.
#[derive(Debug, Default)]
pub(super) struct NamesHook {
    /// The last reported sentence.
    reported: Option<String>,
}

fn texts(values: Option<&Vec<String>>, plan: &Plan) -> Vec<String> {
    values.into_iter().flatten().map(|text| plan.text(text)).collect()
}

fn of_job(dns: &job::Dns, plan: &Plan) -> Dns {
    Dns {
        servers: texts(dns.servers.as_ref(), plan),
        searches: texts(dns.searches.as_ref(), plan),
        options: texts(dns.options.as_ref(), plan),
    }
}

#[async_trait]
impl TaskHook for NamesHook {
    async fn start(
        &mut self,
        cx: TaskContext<'_>,
        plan: &Plan,
        prepared: &mut Prepared,
    ) -> Result<(), StartFault> {
        let block = plan.group().networks.first().and_then(|network| network.dns.as_deref());
        let reported = plan.alloc.network_status.as_ref().and_then(|status| status.dns.as_deref());
        let is_apart = !matches!(mode(plan.group()), "host" | "none");
        if block.is_none() && !is_apart {
            return Ok(());
        }
        let (block, reported) = (block.map(|dns| of_job(dns, plan)), reported.map(|dns| of_job(dns, plan)));
        let node = tokio::task::spawn_blocking(OfNode::read).await.unwrap_or_default();
        let resolver =
            decide(block, reported, is_apart, &node).map_err(|why| StartFault::of_hook("names", why))?;
        let driver = plan.driver.name();
        let is_applied = plan.driver.capabilities().names;
        let (dns, sentence) = match resolver {
            Resolver::OfNode => (None, None),
            Resolver::Named(dns) if is_applied => (Some(dns), None),
            Resolver::Instead(dns) if is_applied => (Some(dns), None),
            Resolver::Named(_) => (
                None,
                Some(format!(
                    "dns of the network has no effect: tasks of driver {driver} have the node's resolver"
                )),
            ),
            Resolver::Instead(_) => (
                None,
                Some(format!(
                    "names may not resolve: tasks of driver {driver} have the node's {RESOLV_PATH}, whose servers are on \
                     the node's loopback interface"
                )),
            ),
            Resolver::Unreachable => (
                None,
                Some(format!(
                    "names may not resolve: the servers of the node's {RESOLV_PATH} are on its loopback interface; set \
                     dns of the network"
                )),
            ),
        };
        prepared.dns = dns;
        if let Some(sentence) = sentence.as_ref().filter(|_| self.reported != sentence) {
            cx.emit(
                TaskEvent::new(event::HOOK_MESSAGE, clock::now()).message(format!("network: {sentence}")),
            );
        }
        self.reported = sentence;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dns(servers: &[&str], searches: &[&str]) -> Dns {
        let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
        Dns { servers: texts(servers), searches: texts(searches), options: Vec::new() }
    }

    fn node(own: &[&str], upstreams: &[&str]) -> OfNode {
        OfNode { own: dns(own, &["lan"]), upstreams: dns(upstreams, &["up"]) }
    }

    #[test]
    fn a_resolver_on_the_loopback_is_replaced_in_a_namespace() {
        let of = |is_apart, node: &OfNode| decide(None, None, is_apart, node).unwrap();
        let stub = node(&["127.0.0.53"], &["10.0.0.53"]);
        assert_eq!(of(true, &stub), Resolver::Instead(dns(&["10.0.0.53"], &["up"])));
        assert_eq!(of(false, &stub), Resolver::OfNode);
        assert_eq!(of(true, &node(&["10.0.0.1"], &[])), Resolver::OfNode);
        assert_eq!(of(true, &node(&["::1", "127.0.0.1"], &[])), Resolver::Unreachable);
        assert_eq!(of(true, &node(&[], &[])), Resolver::Unreachable);
        assert_eq!(
            of(true, &node(&["127.0.0.1", "10.0.0.1"], &["10.9.9.9"])),
            Resolver::Instead(dns(&["10.0.0.1"], &["lan"])),
            "the reached part of the node's servers"
        );
        assert_eq!(of(true, &node(&["fe80::1%eth0"], &[])), Resolver::OfNode);
    }

    #[test]
    fn the_jobs_block_counts_before_the_plugins_answer() {
        let stub = node(&["127.0.0.53"], &["10.0.0.53"]);
        let of = |block: Option<Dns>, reported| decide(block, reported, true, &stub);
        let plugin = Some(dns(&["10.88.0.1"], &["cni"]));
        assert_eq!(
            of(Some(dns(&["1.1.1.1"], &[])), plugin.clone()).unwrap(),
            Resolver::Named(dns(&["1.1.1.1"], &["up"]))
        );
        assert_eq!(of(Some(dns(&[], &["x"])), None).unwrap(), Resolver::Named(dns(&["10.0.0.53"], &["x"])));
        assert_eq!(
            of(Some(Dns::default()), plugin.clone()).unwrap(),
            Resolver::Named(dns(&["10.88.0.1"], &["cni"]))
        );
        assert_eq!(
            of(None, Some(dns(&[], &["cni"]))).unwrap(),
            Resolver::Instead(dns(&["10.0.0.53"], &["up"]))
        );
        let refused = of(Some(dns(&["ns.test"], &[])), None).unwrap_err();
        assert!(refused.starts_with("bad nameserver address: \"ns.test\""), "{refused}");
    }
}
