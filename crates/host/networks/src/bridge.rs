//! The set-up, the removal and the repair of a bridge and of the networks of its allocations.

use crate::attachment::{Attachment, interface_of};
use crate::compare::{Actual, Finding, check_owner, differences, mark_of};
use crate::config::BridgeConfig;
use crate::desired::{MAPS, build_table, elements, firewall, passage, passage_note};
use crate::fault::Fault;
use crate::foreign::{self, Foreign};
use crate::inside;
use crate::stale::{self, Moved};
use caravan_sys::netlink::link::{Link, Links, Pair};
use caravan_sys::netlink::nft::{Element, Family, Rules, Transaction};
use caravan_sys::{Error, netns};
use caravan_types::AllocId;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::ErrorKind;
use std::net::IpAddr;

/// The largest packet on a host without a default route, in bytes.
const DEFAULT_MTU: u32 = 1500;

/// A step of the set-up of an allocation's network. Each step may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetUp {
    /// Holds the namespace.
    Namespace,
    /// Creates the bridge, its rules and the settings of the kernel.
    Bridge,
    /// Creates the pair of interfaces.
    Interface,
    /// Marks the interface as the allocation's.
    Mark,
    /// Assigns the addresses and routes to the interface in the namespace.
    Inside,
    /// Removes tracked connections of free addresses, unless the removals of networks did that.
    Connections,
    /// Maps the ports.
    Ports,
}

impl SetUp {
    /// The steps in their order.
    pub const ALL: [Self; 7] = [
        Self::Namespace,
        Self::Bridge,
        Self::Interface,
        Self::Mark,
        Self::Inside,
        Self::Connections,
        Self::Ports,
    ];
}

/// A step of the removal of an allocation's network. Each step may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TearDown {
    /// Unmaps the ports.
    Ports,
    /// Removes the tracked connections of the addresses.
    Connections,
    /// Deletes the interfaces.
    Interface,
}

impl TearDown {
    /// The steps in their order.
    pub const ALL: [Self; 3] = [Self::Ports, Self::Connections, Self::Interface];
}

/// The result of a repair.
#[derive(Debug, Default)]
pub struct Repaired {
    /// The differences that the repair removed.
    pub found: Vec<Finding>,
    /// The allocations whose interface could not be created again.
    pub failed: Vec<(AllocId, Fault)>,
}

/// The bridge of a node, in the network namespace of the thread that opens it. All calls block for milliseconds.
#[derive(Debug)]
pub struct Bridge {
    config: BridgeConfig,
    links: Links,
    rules: Rules,
    attachments: BTreeMap<AllocId, Attachment>,
    /// The index of the bridge; `None` if something changed after the last check.
    checked: Option<u32>,
    mtu: u32,
    /// The firewalls of other programs that may drop packets of the bridge, at the last comparison.
    foreign: Vec<Foreign>,
    /// Whether free addresses may have tracked connections, because of an earlier agent or a failed removal.
    may_be_tracked: bool,
    /// The ports whose destination changed since [`Bridge::take_moved`].
    moved: Moved,
}

impl Bridge {
    /// Opens the connections with the kernel. `attached` are the networks whose set-up an earlier agent finished.
    ///
    /// # Errors
    /// If a connection cannot be opened.
    pub fn open(config: BridgeConfig, attached: impl IntoIterator<Item = Attachment>) -> Result<Self, Fault> {
        let attachments = attached.into_iter().map(|own| (own.alloc.clone(), own)).collect();
        let (links, rules) = (Links::open()?, Rules::open()?);
        Ok(Self {
            config,
            links,
            rules,
            attachments,
            checked: None,
            mtu: DEFAULT_MTU,
            foreign: Vec::new(),
            may_be_tracked: true,
            moved: Moved::default(),
        })
    }

    /// Returns the settings.
    pub fn config(&self) -> &BridgeConfig {
        &self.config
    }

    /// Returns whether any allocation has a network.
    pub fn is_used(&self) -> bool {
        !self.attachments.is_empty()
    }

    /// Returns whether an allocation's network is finished.
    pub fn has(&self, attachment: &Attachment) -> bool {
        self.attachments.get(&attachment.alloc) == Some(attachment)
    }

    /// Returns the firewalls of other programs that may drop packets of the bridge, as the last repair found them.
    pub fn foreign(&self) -> &[Foreign] {
        &self.foreign
    }

    /// Returns the ports whose destination changed since the last call.
    pub fn take_moved(&mut self) -> Moved {
        std::mem::take(&mut self.moved)
    }

    /// Records that something changed: the next use compares the kernel with the desired state first.
    pub fn doubt(&mut self) {
        self.checked = None;
    }

    /// Creates the network of an allocation, also over the remains of an interrupted set-up. Returns the other
    /// repairs.
    ///
    /// # Errors
    /// If a step fails. [`Bridge::detach`] removes the steps before it.
    pub fn attach(&mut self, attachment: &Attachment) -> Result<Repaired, Fault> {
        let mut repaired = Repaired::default();
        for step in SetUp::ALL {
            let more = self.set_up(step, attachment)?;
            repaired.found.extend(more.found);
            repaired.failed.extend(more.failed);
        }
        self.attachments.insert(attachment.alloc.clone(), attachment.clone());
        Ok(repaired)
    }

    /// Checks whether a finished network is still in the allocation's namespace, which its creator may have replaced.
    /// If not, creates the interface again. Repairs the rest as well.
    ///
    /// # Errors
    /// If the namespace cannot be entered, or the kernel refuses.
    pub fn renew(&mut self, attachment: &Attachment) -> Result<Repaired, Fault> {
        netns::hold(&attachment.namespace)?;
        if !inside::is_configured(attachment)? {
            // The other end is in the earlier namespace, or lacks addresses. The repair creates both ends.
            self.delete_link(&attachment.interface())?;
            self.end_connections(attachment);
        }
        self.repair()
    }

    /// Executes one step of a set-up.
    ///
    /// # Errors
    /// If the step fails.
    pub fn set_up(&mut self, step: SetUp, attachment: &Attachment) -> Result<Repaired, Fault> {
        match step {
            SetUp::Namespace => netns::hold(&attachment.namespace)?,
            SetUp::Bridge if self.checked.is_none() => {
                let is_used = self.is_used();
                let mut repaired = self.reconcile(true)?;
                if !is_used {
                    // The first allocation creates the bridge: nothing was broken.
                    repaired.found.clear();
                }
                return Ok(repaired);
            }
            SetUp::Bridge => {}
            SetUp::Interface => self.make_pair(attachment)?,
            SetUp::Mark => self.mark(attachment)?,
            SetUp::Inside => inside::configure(&self.config, attachment)?,
            SetUp::Connections => self.end_left_connections(),
            SetUp::Ports => self.map_ports(attachment)?,
        }
        Ok(Repaired::default())
    }

    /// Removes the network of an allocation, also if only a part of the network exists.
    ///
    /// # Errors
    /// If a step fails. The call may be repeated.
    pub fn detach(&mut self, attachment: &Attachment) -> Result<(), Fault> {
        for step in TearDown::ALL {
            self.tear_down(step, attachment)?;
        }
        Ok(())
    }

    /// Executes one step of a removal.
    ///
    /// # Errors
    /// If the step fails.
    pub fn tear_down(&mut self, step: TearDown, attachment: &Attachment) -> Result<(), Fault> {
        // A repair in between must not create the network again.
        self.attachments.remove(&attachment.alloc);
        match step {
            TearDown::Ports => self.unmap_ports(attachment)?,
            TearDown::Connections => self.end_connections(attachment),
            TearDown::Interface => self.delete_link(&attachment.interface())?,
        }
        Ok(())
    }

    /// Compares the kernel with the desired state, and removes the differences.
    ///
    /// # Errors
    /// If the bridge belongs to another program, or the kernel refuses.
    pub fn repair(&mut self) -> Result<Repaired, Fault> {
        let is_used = self.is_used();
        self.reconcile(is_used)
    }

    fn reconcile(&mut self, needs_bridge: bool) -> Result<Repaired, Fault> {
        self.checked = None;
        let actual = self.read()?;
        self.foreign.clone_from(&actual.foreign);
        let exists = actual.link(&self.config.name).is_some();
        if needs_bridge || exists {
            check_owner(&self.config, &actual, &self.attachments)?;
        }
        let found = differences(&self.config, &actual, &self.attachments, needs_bridge);
        let mut repaired = Repaired::default();
        for finding in found {
            match (self.fix(&finding, &actual), &finding) {
                (Ok(()), _) => repaired.found.push(finding),
                // The other allocations continue without the failed one.
                (Err(fault), Finding::Interface(alloc) | Finding::Detached(alloc)) => {
                    repaired.failed.push((alloc.clone(), fault));
                }
                (Err(fault), _) => return Err(fault),
            }
        }
        let is_repaired = |finding: &Finding| match finding {
            // The unused bridge of another agent, which this agent takes over.
            Finding::Unmarked => false,
            // Some hosts do not let the agent change the setting, which is logged.
            Finding::Setting(path) => !differs(&self.config, path),
            _ => true,
        };
        repaired.found.retain(is_repaired);
        if needs_bridge {
            self.checked = Some(self.bridge_index()?);
        }
        Ok(repaired)
    }

    fn read(&mut self) -> Result<Actual, Fault> {
        let table = self.config.table();
        let links = self.links.list()?;
        let mut actual = Actual {
            addresses: self.links.addresses()?,
            rules: self.rules.rules(&table)?,
            ..Actual::default()
        };
        for (at, map) in MAPS.into_iter().enumerate() {
            actual.elements[at] = self.rules.elements(&table, map)?;
        }
        let families = [Some(Family::Ip), self.config.ipv6.map(|_| Family::Ip6)];
        let inet = self.rules.chains(Family::Inet)?;
        actual.foreign = foreign::chains(&self.config, Family::Inet, &inet, false);
        if caravan_sys::iptables::drops_forwarded()? {
            actual.foreign.push(Foreign::Legacy);
        }
        for family in families.into_iter().flatten() {
            let chains = self.rules.chains(family)?;
            let needed = passage(&self.config, family, &chains);
            actual.foreign.extend(foreign::chains(&self.config, family, &chains, needed.is_some()));
            if let Some(needed) = needed {
                let rules = self.rules.rules(&firewall(family))?;
                actual.firewalls.push((needed, rules));
            }
        }
        if let Some(mtu) = self.uplink_mtu(&links)? {
            self.mtu = mtu;
        }
        let has_bridge = links.iter().any(|link| link.name == self.config.name);
        let settings = settings(&self.config).into_iter();
        actual.settings = settings
            // The kernel creates the setting of the bridge together with the bridge.
            .filter(|(path, _)| has_bridge || !path.contains(&format!("/{}/", self.config.name)))
            .filter(|(path, value)| read_setting(path).as_deref() != Some(*value))
            .map(|(path, _)| path)
            .collect();
        actual.links = links;
        Ok(actual)
    }

    /// Returns the largest packet of the interface that leads to other hosts, in bytes.
    fn uplink_mtu(&mut self, links: &[Link]) -> Result<Option<u32>, Fault> {
        let routes = self.links.default_routes()?;
        let best = routes.iter().filter(|route| !route.is_ipv6).min_by_key(|route| route.metric);
        Ok(best.and_then(|route| links.iter().find(|link| link.index == route.index)).map(|link| link.mtu))
    }

    fn bridge_index(&mut self) -> Result<u32, Fault> {
        let found = self.links.list()?.into_iter().find(|link| link.name == self.config.name);
        found.map(|link| link.index).ok_or_else(|| Fault::NoBridge { name: self.config.name.clone() })
    }

    fn fix(&mut self, finding: &Finding, actual: &Actual) -> Result<(), Fault> {
        match finding {
            Finding::Setting(path) => write_setting(&self.config, path),
            Finding::Bridge => self.make_bridge()?,
            Finding::Unmarked => self.links.set_alias(&self.config.name, &self.config.mark())?,
            Finding::Down => self.links.set_up(bridge_of(actual, &self.config)?)?,
            Finding::Gateway(ip, prefix) => {
                self.links.add_address(bridge_of(actual, &self.config)?, *ip, *prefix)?;
            }
            Finding::OldAddress(ip, prefix) => {
                self.links.remove_address(bridge_of(actual, &self.config)?, *ip, *prefix)?;
            }
            Finding::Interface(alloc) => {
                if let Some(attachment) = self.attachments.get(alloc).cloned() {
                    self.checked = Some(self.bridge_index()?);
                    netns::hold(&attachment.namespace)?;
                    self.make_pair(&attachment)?;
                    self.mark(&attachment)?;
                    inside::configure(&self.config, &attachment)?;
                }
            }
            Finding::Detached(alloc) => {
                let bridge = self.bridge_index()?;
                if let Some(link) = actual.link(&interface_of(alloc)) {
                    self.links.set_bridge(link, bridge)?;
                    self.links.set_up(link)?;
                    if self.config.hairpin {
                        self.links.set_hairpin(link, true)?;
                    }
                }
            }
            Finding::LeftInterface(name) => self.delete_link(name)?,
            Finding::Table => {
                let mut transaction = Transaction::default();
                build_table(&self.config, self.attachments.values(), &mut transaction);
                self.rules.commit(transaction)?;
                for attachment in self.attachments.values() {
                    MAPS.into_iter().for_each(|map| self.moved.note(&elements(attachment, map)));
                }
            }
            Finding::Ports(at, missing) => {
                let mut transaction = Transaction::default();
                transaction.add_elements(&self.config.table(), MAPS[*at], missing);
                self.rules.commit(transaction)?;
                self.moved.note(missing);
            }
            Finding::LeftPorts(at, left) => {
                let mut transaction = Transaction::default();
                transaction.delete_elements(&self.config.table(), MAPS[*at], left);
                self.rules.commit(transaction)?;
                let addresses = left.iter().map(|element| element.to.ip()).collect();
                self.end_connections_of(&addresses);
            }
            Finding::Passage(at) => {
                let (needed, rules) = &actual.firewalls[*at];
                let mut transaction = Transaction::default();
                let note = passage_note(&self.config);
                for rule in rules.iter().filter(|rule| rule.note.starts_with(&note)) {
                    transaction.delete_rule(&needed.table, rule);
                }
                for (clauses, note) in needed.rules.iter().rev() {
                    transaction.insert_rule(&needed.table, needed.chain, clauses, note);
                }
                self.rules.commit(transaction)?;
            }
        }
        Ok(())
    }

    fn make_bridge(&mut self) -> Result<(), Fault> {
        self.links.add_bridge(&self.config.name, self.config.mac(), self.mtu)?;
        self.links.set_alias(&self.config.name, &self.config.mark())?;
        let found = self.links.list()?.into_iter().find(|link| link.name == self.config.name);
        let bridge = found.ok_or_else(|| Fault::NoBridge { name: self.config.name.clone() })?;
        for (ip, prefix) in self.config.gateways() {
            self.links.add_address(&bridge, ip, prefix)?;
        }
        for (path, _) in settings(&self.config) {
            write_setting(&self.config, &path);
        }
        Ok(())
    }

    fn make_pair(&mut self, attachment: &Attachment) -> Result<(), Fault> {
        let bridge = match self.checked {
            Some(index) => index,
            None => self.bridge_index()?,
        };
        match self.add_pair(attachment, bridge) {
            // The pair is from an interrupted set-up. Nothing uses it yet.
            Err(error)
                if is(&error, ErrorKind::AlreadyExists)
                    && !self.attachments.contains_key(&attachment.alloc) =>
            {
                self.delete_link(&attachment.interface())?;
                Ok(self.add_pair(attachment, bridge)?)
            }
            Err(error) if is(&error, ErrorKind::AlreadyExists) => Ok(()),
            other => Ok(other?),
        }
    }

    fn add_pair(&mut self, attachment: &Attachment, bridge: u32) -> Result<(), Error> {
        let namespace = File::open(&attachment.namespace).map_err(|source| Error::Path {
            operation: "open",
            path: attachment.namespace.clone(),
            source,
        })?;
        self.links.add_pair(&Pair {
            name: &attachment.interface(),
            bridge,
            mtu: self.mtu,
            peer: Attachment::INTERFACE,
            peer_mac: attachment.mac(),
            namespace,
        })
    }

    fn mark(&mut self, attachment: &Attachment) -> Result<(), Fault> {
        let name = attachment.interface();
        self.links.set_alias(&name, &mark_of(&self.config, &attachment.alloc))?;
        if self.config.hairpin
            && let Some(link) = self.links.list()?.into_iter().find(|link| link.name == name)
        {
            self.links.set_hairpin(&link, true)?;
        }
        Ok(())
    }

    fn delete_link(&mut self, name: &str) -> Result<(), Fault> {
        match self.links.delete(name) {
            Err(error) if error.raw_os_error() == Some(ENODEV) => Ok(()),
            other => Ok(other?),
        }
    }

    fn end_connections(&mut self, attachment: &Attachment) {
        self.end_connections_of(&attachment.addresses.all());
    }

    /// Removes tracked connections. After a failure, packets of old connections may still reach an old address until
    /// the next set-up removes them.
    fn end_connections_of(&mut self, addresses: &BTreeSet<IpAddr>) {
        if let Err(error) = stale::remove_of(addresses) {
            tracing::warn!(
                error = caravan_sys::describe(&error),
                "tracked connections of an allocation cannot be removed yet"
            );
            self.may_be_tracked = true;
        }
    }

    /// Removes the tracked connections that no removal of a network could remove. Such connections are rare, and the
    /// kernel's walk through its table is most of the time of a set-up.
    fn end_left_connections(&mut self) {
        if !self.may_be_tracked {
            return;
        }
        match stale::remove_of_free(&self.config, self.attachments.values()) {
            Ok(()) => self.may_be_tracked = false,
            Err(error) => {
                tracing::warn!(
                    error = caravan_sys::describe(&error),
                    "tracked connections of free addresses cannot be removed yet"
                );
            }
        }
    }

    fn map_ports(&mut self, attachment: &Attachment) -> Result<(), Fault> {
        let table = self.config.table();
        let mut transaction = Transaction::default();
        for map in MAPS {
            let own = elements(attachment, map);
            transaction.add_elements(&table, map, &own);
            self.moved.note(&own);
        }
        if transaction.is_empty() {
            return Ok(());
        }
        match self.rules.commit(transaction) {
            Err(error) if is(&error, ErrorKind::AlreadyExists) => self.remap_ports(attachment),
            Err(error) if is(&error, ErrorKind::NotFound) => {
                // The table vanished since the step before.
                self.reconcile(true)?;
                self.remap_ports(attachment)
            }
            other => Ok(other?),
        }
    }

    /// Maps ports that are already mapped, for this allocation or for an ended one.
    fn remap_ports(&mut self, attachment: &Attachment) -> Result<(), Fault> {
        let table = self.config.table();
        let mut transaction = Transaction::default();
        for map in MAPS {
            let desired = elements(attachment, map);
            let key = |element: &Element| (element.address, element.transport, element.port);
            let in_the_way: Vec<Element> = self
                .rules
                .elements(&table, map)?
                .into_iter()
                .filter(|known| desired.iter().any(|element| key(element) == key(known)))
                .collect();
            let owner = |element: &Element| AllocId::from(element.note.as_str());
            let lives = |element: &&Element| {
                owner(element) != attachment.alloc && self.attachments.contains_key(&owner(element))
            };
            if let Some(taken) = in_the_way.iter().find(lives) {
                return Err(Fault::PortTaken { port: taken.port, alloc: owner(taken) });
            }
            transaction.delete_elements(&table, map, &in_the_way);
            transaction.add_elements(&table, map, &desired);
        }
        Ok(self.rules.commit(transaction)?)
    }

    /// Unmaps the ports of an allocation, by the notes of the maps. A port of its record may belong to another
    /// allocation, if the set-up failed for that reason.
    fn unmap_ports(&mut self, attachment: &Attachment) -> Result<(), Fault> {
        let table = self.config.table();
        let mut transaction = Transaction::default();
        for map in MAPS {
            let mut own = self.rules.elements(&table, map)?;
            own.retain(|element| element.note == attachment.alloc.as_str());
            transaction.delete_elements(&table, map, &own);
        }
        if transaction.is_empty() {
            return Ok(());
        }
        Ok(self.rules.commit(transaction)?)
    }

    /// Removes the bridge and all rules, if no allocation uses them.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove(&mut self) -> Result<(), Fault> {
        if self.is_used() {
            return Ok(());
        }
        self.checked = None;
        let actual = self.read()?;
        let note = passage_note(&self.config);
        let mut transaction = Transaction::default();
        for (needed, rules) in &actual.firewalls {
            for rule in rules.iter().filter(|rule| rule.note.starts_with(&note)) {
                transaction.delete_rule(&needed.table, rule);
            }
        }
        if !actual.rules.is_empty() {
            transaction.delete_table(&self.config.table());
        }
        let own = actual.link(&self.config.name).filter(|link| link.alias == self.config.mark());
        if own.is_some() {
            if !transaction.is_empty() {
                self.rules.commit(transaction)?;
            }
            self.delete_link(&self.config.name.clone())?;
        }
        Ok(())
    }
}

/// The error of a request about an interface that does not exist.
const ENODEV: i32 = 19;

fn is(error: &Error, kind: ErrorKind) -> bool {
    error.io().is_some_and(|io| io.kind() == kind)
}

fn bridge_of<'a>(actual: &'a Actual, config: &BridgeConfig) -> Result<&'a Link, Fault> {
    actual.link(&config.name).ok_or_else(|| Fault::NoBridge { name: config.name.clone() })
}

/// Returns the settings of the kernel that a bridge requires, below `/proc/sys/net`.
fn settings(config: &BridgeConfig) -> Vec<(String, &'static str)> {
    let mut all = vec![
        ("ipv4/ip_forward".to_owned(), "1"),
        // Packets from 127.0.0.1 to a mapped port reach the bridge.
        (format!("ipv4/conf/{}/route_localnet", config.name), "1"),
    ];
    if config.ipv6.is_some() {
        all.push(("ipv6/conf/all/forwarding".to_owned(), "1"));
    }
    all
}

fn read_setting(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/sys/net/{path}"));
    text.ok().map(|text| text.trim().to_owned())
}

/// Returns whether a setting of the kernel differs from the value that the bridge requires.
fn differs(config: &BridgeConfig, path: &str) -> bool {
    let needed = settings(config).into_iter().find(|(known, _)| known == path);
    needed.is_some_and(|(_, value)| read_setting(path).as_deref() != Some(value))
}

fn write_setting(config: &BridgeConfig, path: &str) {
    let Some((_, value)) = settings(config).into_iter().find(|(known, _)| known == path) else { return };
    if let Err(error) = std::fs::write(format!("/proc/sys/net/{path}"), value) {
        tracing::warn!(path, %error, "a setting of the kernel that the bridge needs cannot be changed");
    }
}
