//! Hosts of a test: network namespaces with separate addresses, joined by switches and routers.
//!
//! Only the network differs between hosts; they share the machine's files, mounts and cgroups. ip(8) and nft(8)
//! create all objects, and dropping the last value that uses an object removes it.

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

/// The timeout for a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// A network namespace (network_namespaces(7)) with a name that is unique on the machine.
#[derive(Debug)]
struct Namespace(String);

impl Namespace {
    fn new() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("caravan-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        run("ip", &["netns", "add", &name])?;
        let this = Self(name);
        this.ip(&["link", "set", "lo", "up"])?;
        Ok(this)
    }

    fn ip(&self, args: &[&str]) -> Result<()> {
        run("ip", &[&["-n", &self.0], args].concat())
    }

    /// Runs a function in this namespace: only the network of one thread is changed.
    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let path = format!("/run/netns/{}", self.0);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let namespace = File::open(&path).with_context(|| format!("open {path}"))?;
                setns(namespace, CloneFlags::CLONE_NEWNET).with_context(|| format!("enter {path}"))?;
                Ok(work())
            });
            thread.join().map_err(|_| anyhow!("the work inside {path} panicked"))?
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Best effort: the test already has its result.
        let _ = run("ip", &["netns", "del", &self.0]);
    }
}

fn run(program: &str, args: &[&str]) -> Result<()> {
    let out = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("run {program} (scripts/tools.sh test installs it)"))?;
    if !out.status.success() {
        bail!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(())
}

/// A network with connected hosts. Clones are the same network.
#[derive(Clone, Debug)]
pub struct Switch(Arc<SwitchInner>);

#[derive(Debug)]
struct SwitchInner {
    namespace: Namespace,
    /// The number in `10.77.subnet.0/24`.
    subnet: u8,
    used: AtomicU8,
}

impl Switch {
    /// Creates a network `10.77.subnet.0/24`. Networks of different tests are isolated, so they may use the same
    /// numbers.
    ///
    /// # Errors
    /// Fails if the kernel or ip(8) refuses.
    pub fn new(subnet: u8) -> Result<Self> {
        let namespace = Namespace::new()?;
        namespace.ip(&["link", "add", "switch", "type", "bridge"])?;
        namespace.ip(&["link", "set", "switch", "up"])?;
        Ok(Self(Arc::new(SwitchInner { namespace, subnet, used: AtomicU8::new(0) })))
    }

    /// Creates an interface of a namespace on this network. Returns its address and the switch's end of the cable.
    fn plug(&self, into: &Namespace, interface: &str) -> Result<(Ipv4Addr, String)> {
        let number = self.0.used.fetch_add(1, Ordering::Relaxed) + 1;
        ensure!(number < 255, "the network has no address left");
        let (address, port) = (Ipv4Addr::new(10, 77, self.0.subnet, number), format!("port{number}"));
        let switch = &self.0.namespace;
        into.ip(&["link", "add", interface, "type", "veth", "peer", "name", &port, "netns", &switch.0])?;
        into.ip(&["address", "add", &format!("{address}/24"), "dev", interface])?;
        into.ip(&["link", "set", interface, "up"])?;
        switch.ip(&["link", "set", &port, "master", "switch"])?;
        switch.ip(&["link", "set", &port, "up"])?;
        Ok((address, port))
    }
}

/// A router to a private network. It masquerades (NAT): the private hosts can connect to outside hosts, but
/// outside hosts cannot connect to private hosts.
#[derive(Clone, Debug)]
pub struct Router {
    inside: Switch,
    address: Ipv4Addr,
    _namespace: Arc<Namespace>,
}

impl Router {
    /// Creates a router on `outside`, before a network `10.77.subnet.0/24`.
    ///
    /// # Errors
    /// Fails if the kernel, ip(8) or nft(8) refuses.
    pub fn new(outside: &Switch, subnet: u8) -> Result<Self> {
        let namespace = Namespace::new()?;
        outside.plug(&namespace, "out")?;
        let inside = Switch::new(subnet)?;
        let (address, _) = inside.plug(&namespace, "in")?;
        namespace.inside(|| -> Result<()> {
            // Files below /proc/sys/net belong to the network namespace of the writing thread.
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("forward packets")?;
            run(
                "nft",
                &["add table ip nat; add chain ip nat out { type nat hook postrouting priority 100; }; \
                   add rule ip nat out oifname \"out\" masquerade"],
            )
        })??;
        Ok(Self { inside, address, _namespace: Arc::new(namespace) })
    }
}

/// A host. Clones are the same host.
#[derive(Clone, Debug)]
pub struct Host(Arc<HostInner>);

#[derive(Debug)]
struct HostInner {
    namespace: Namespace,
    address: Ipv4Addr,
    port: String,
    switch: Switch,
    _router: Option<Router>,
}

impl Host {
    /// Creates a host on a network; it reaches only that network.
    ///
    /// # Errors
    /// Fails if the kernel or ip(8) refuses.
    pub fn on(switch: &Switch) -> Result<Self> {
        let namespace = Namespace::new()?;
        let (address, port) = switch.plug(&namespace, "eth0")?;
        Ok(Self(Arc::new(HostInner { namespace, address, port, switch: switch.clone(), _router: None })))
    }

    /// Creates a host behind a router.
    ///
    /// # Errors
    /// Fails if the kernel or ip(8) refuses.
    pub fn behind(router: &Router) -> Result<Self> {
        let (namespace, switch) = (Namespace::new()?, router.inside.clone());
        let (address, port) = switch.plug(&namespace, "eth0")?;
        namespace.ip(&["route", "add", "default", "via", &router.address.to_string()])?;
        let router = Some(router.clone());
        Ok(Self(Arc::new(HostInner { namespace, address, port, switch, _router: router })))
    }

    /// Returns the host's address.
    pub fn address(&self) -> Ipv4Addr {
        self.0.address
    }

    /// Runs a function on this host: sockets and processes that `work` creates belong to the host.
    ///
    /// # Errors
    /// Fails if the host's network cannot be entered.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.0.namespace.inside(work)
    }

    /// Connects from this host.
    ///
    /// # Errors
    /// Fails if the address does not respond within ten seconds.
    pub fn connect(&self, to: SocketAddr) -> Result<TcpStream> {
        self.inside(|| TcpStream::connect_timeout(&to, CONNECT))?
            .with_context(|| format!("connect to {to} from {}", self.address()))
    }

    /// Returns the processes in this host's network: its agent, the agent's children, and processes that outlived the
    /// agent.
    ///
    /// # Errors
    /// Fails if `/proc` cannot be read.
    pub fn processes(&self) -> Result<Vec<u32>> {
        let path = format!("/run/netns/{}", self.0.namespace.0);
        let own = std::fs::metadata(&path).with_context(|| format!("look at {path}"))?.ino();
        let pids = std::fs::read_dir("/proc").context("read /proc")?;
        let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        // A process that has ended meanwhile, or a zombie, has no namespace.
        let is_here = |pid: &u32| {
            std::fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|namespace| namespace.ino() == own)
        };
        Ok(pids.filter(is_here).collect())
    }

    /// Returns another host on the network of this one.
    ///
    /// # Errors
    /// Fails if the kernel or ip(8) refuses.
    pub fn beside(&self) -> Result<Self> {
        Self::on(&self.0.switch)
    }

    /// Drops the packets that arrive from another host. Packets to that host still leave.
    ///
    /// # Errors
    /// Fails if nft(8) refuses.
    pub fn ignore(&self, from: Ipv4Addr) -> Result<()> {
        self.filter(&format!("add rule ip cuts in ip saddr {from} drop"))
    }

    /// Drops all packets that arrive or leave, without any signal to either side.
    ///
    /// # Errors
    /// Fails if nft(8) refuses.
    pub fn black_hole(&self) -> Result<()> {
        self.filter("add rule ip cuts in iifname eth0 drop; add rule ip cuts out oifname eth0 drop")
    }

    /// Removes the rules of [`Self::ignore`] and [`Self::black_hole`].
    ///
    /// # Errors
    /// Fails if nft(8) refuses.
    pub fn hear_all(&self) -> Result<()> {
        self.filter("flush chain ip cuts in; flush chain ip cuts out")
    }

    fn filter(&self, rules: &str) -> Result<()> {
        let chains = "add table ip cuts; \
                      add chain ip cuts in { type filter hook input priority 0; }; \
                      add chain ip cuts out { type filter hook output priority 0; };";
        self.inside(|| run("nft", &[&format!("{chains} {rules}")]))?
    }

    /// Disconnects the host: all packets are lost, without any signal to either side.
    ///
    /// # Errors
    /// Fails if ip(8) refuses.
    pub fn cut(&self) -> Result<()> {
        self.0.switch.0.namespace.ip(&["link", "set", &self.0.port, "down"])
    }

    /// Reconnects the host.
    ///
    /// # Errors
    /// Fails if ip(8) refuses.
    pub fn mend(&self) -> Result<()> {
        self.0.switch.0.namespace.ip(&["link", "set", &self.0.port, "up"])
    }
}
