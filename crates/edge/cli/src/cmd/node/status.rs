//! `node status`

use crate::cmd::alloc::{self, Columns};
use crate::cmd::at_most_one;
use crate::cmd::page::{BrowserArgs, PageArgs, more};
use crate::ctx::Ctx;
use crate::devices;
use crate::error::{Doing as _, Outcome};
use crate::format::{Clock, bytes, id, json, mib};
use crate::resolve;
use crate::table::{Pairs, Table};
use caravan_sdk::HostStats;
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::node::{Node, NodeListStub};
use caravan_types::time::Nanos;
use std::collections::BTreeMap;

/// Flags of `node status`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct StatusArgs {
    /// In the list: show how many allocations run on each node
    #[arg(long)]
    allocs: bool,
    #[command(flatten)]
    page: PageArgs,
    /// In the list: show the operating systems
    #[arg(long)]
    os: bool,
    #[command(flatten)]
    browser: BrowserArgs,
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// In the list: show only ids
    #[arg(long)]
    quiet: bool,
    /// Show the node of the agent that answers
    #[arg(long = "self")]
    own: bool,
    /// Omit events and resource usage
    #[arg(long)]
    short: bool,
    /// Show usage of processors and disks
    #[arg(long)]
    stats: bool,
    /// Show full ids, timestamps, attributes and drivers
    #[arg(long)]
    verbose: bool,
    /// Node id or prefix
    #[arg(value_name = "NODE", num_args = 0..)]
    args: Vec<String>,
}

impl StatusArgs {
    /// Creates the arguments for a node that `status` found.
    pub(crate) fn new(id: &str, verbose: bool) -> Self {
        Self { verbose, args: vec![id.to_owned()], ..Self::default() }
    }
}

pub(crate) async fn run(ctx: &Ctx, args: &StatusArgs) -> Outcome {
    let supplied = at_most_one(&args.args, "This command takes either one or no arguments")?;
    let id = match (supplied, args.own) {
        (Some(supplied), _) => resolve::node(ctx, supplied).await?.id.to_string(),
        (None, true) => resolve::own_node(ctx).await?,
        (None, false) => {
            crate::cmd::page::open(ctx, args.browser.ui, "clients");
            return all(ctx, args).await;
        }
    };
    crate::cmd::page::open(ctx, args.browser.ui, &format!("clients/{id}"));
    let nodes = ctx.client.nodes();
    let node = nodes.info(&id, &ctx.query()).await.doing("Error querying node info")?.value;
    if args.json {
        ctx.out.line(&json(&node)?);
        return Ok(0);
    }
    let allocs = nodes.allocations(&id, &ctx.query()).await.doing("Error querying node allocations")?.value;
    // Resource usage is optional: an unreachable node does not fail the command.
    let stats = match args.short {
        true => None,
        false => nodes.host_stats(&id, &ctx.query()).await.ok().map(|answer| answer.value),
    };
    ctx.out.line(&render(&ctx.clock(), &node, &allocs, stats.as_ref(), args));
    Ok(0)
}

async fn all(ctx: &Ctx, args: &StatusArgs) -> Outcome {
    let mut query = args.page.over(ctx.query());
    if args.os {
        query = query.param("os", "true");
    }
    let answer = ctx.client.nodes().list(&query).await.doing("Error querying node status")?;
    let (nodes, meta) = (answer.value, answer.meta);
    if args.json {
        ctx.out.line(&json(&nodes)?);
        return Ok(0);
    }
    if args.quiet {
        for node in &nodes {
            ctx.out.line(node.id.as_str());
        }
        return Ok(0);
    }
    if nodes.is_empty() {
        ctx.out.line("No nodes registered");
        return Ok(0);
    }
    let mut running = BTreeMap::new();
    if args.allocs {
        for node in &nodes {
            let allocs = ctx.client.nodes().allocations(node.id.as_str(), &ctx.query()).await;
            let allocs = allocs.doing("Error querying node allocations")?.value;
            let n = allocs.iter().filter(|a| a.client_status == ClientStatus::Running).count();
            running.insert(node.id.to_string(), n);
        }
    }
    ctx.out.line(&list(&nodes, args.verbose, args.os, args.allocs.then_some(&running)));
    more(ctx, &meta);
    Ok(0)
}

/// Returns the table of nodes.
pub(crate) fn list(
    nodes: &[NodeListStub],
    verbose: bool,
    os: bool,
    running: Option<&BTreeMap<String, usize>>,
) -> String {
    let mut heading = vec!["ID", "Node Pool", "DC", "Name", "Class"];
    if os {
        heading.push("OS");
    }
    if verbose {
        heading.extend(["Address", "Version"]);
    }
    heading.extend(["Drain", "Eligibility", "Status"]);
    if running.is_some() {
        heading.push("Running Allocs");
    }
    let rows = nodes.iter().map(|node| {
        let mut row = vec![
            id(node.id.as_str(), verbose),
            node.node_pool.clone(),
            node.datacenter.clone(),
            node.name.clone(),
            node.node_class.clone(),
        ];
        if os {
            let name = node.attributes.as_ref().and_then(|all| all.get("os.name"));
            row.push(name.cloned().unwrap_or_default());
        }
        if verbose {
            row.extend([node.address.clone(), node.version.clone()]);
        }
        row.extend([
            node.drain.to_string(),
            node.scheduling_eligibility.as_str().to_owned(),
            node.status.as_str().to_owned(),
        ]);
        if let Some(running) = running {
            row.push(running.get(node.id.as_str()).copied().unwrap_or(0).to_string());
        }
        row
    });
    Table::new(&heading).rows(rows).render()
}

fn render(
    clock: &Clock,
    node: &Node,
    allocs: &[Allocation],
    stats: Option<&HostStats>,
    args: &StatusArgs,
) -> String {
    let mut sections = vec![head(node, allocs, stats, args)];
    if args.verbose {
        sections.extend(volumes_and_drivers(clock, node));
    }
    if !args.short {
        sections.push(events(clock, node, args.verbose));
        sections.push(allocated(node, allocs));
        if let Some(stats) = stats {
            sections.push(utilisation(node, stats));
            let used = devices::summaries(&stats.device_stats);
            sections.extend(used.map(|text| format!("Device Resource Utilization\n{text}")));
            if args.stats {
                sections.extend(figures(stats));
                sections.extend(devices::headed("Device Stats", devices::figures(&stats.device_stats)));
            }
        }
    }
    let stubs: Vec<_> = allocs.iter().map(Allocation::stub).collect();
    let table = match stubs.len() {
        0 => "No allocations placed".to_owned(),
        _ => alloc::table(clock, &stubs, Columns { verbose: args.verbose, node_name: false }).render(),
    };
    sections.push(format!("Allocations\n{table}"));
    if args.verbose {
        let section = |heading: &str, map: &BTreeMap<String, String>| {
            let mut pairs = Pairs::new();
            for (key, value) in map {
                pairs.push(key, value);
            }
            format!("{heading}\n{}", pairs.render())
        };
        sections.push(section("Attributes", &node.attributes));
        let groups = devices::attributes(&node.node_resources.devices);
        sections.extend(devices::headed("Device Group Attributes", groups));
        sections.push(section("Meta", &node.meta));
    }
    sections.join("\n\n")
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(",")
}

fn head(node: &Node, allocs: &[Allocation], stats: Option<&HostStats>, args: &StatusArgs) -> String {
    let drain = match &node.drain_strategy {
        None => "false".to_owned(),
        Some(drain) if drain.force_deadline.is_zero() => "true; no deadline".to_owned(),
        Some(drain) => format!("true; {} deadline", drain.force_deadline),
    };
    let mut pairs = Pairs::new()
        .pair("ID", node.id.as_str())
        .pair("Name", node.name.as_str())
        .pair("Node Pool", node.node_pool.as_str())
        .pair("Class", node.node_class.as_str())
        .pair("DC", node.datacenter.as_str())
        .pair("Drain", drain)
        .pair("Eligibility", node.scheduling_eligibility.as_str())
        .pair("Status", node.status.as_str())
        .pair("CSI Controllers", names(node.csi_controller_plugins.keys().map(|p| p.as_str())))
        .pair("CSI Drivers", names(node.csi_node_plugins.keys().map(|p| p.as_str())));
    if let Some(stats) = stats {
        let uptime = i64::try_from(stats.uptime).unwrap_or(i64::MAX);
        pairs.push("Uptime", Nanos::from_secs(uptime).to_string());
    }
    if !args.verbose {
        let working = node.drivers.iter().filter(|(_, d)| d.detected);
        let drivers = working.map(|(name, driver)| match driver.healthy {
            true => name.clone(),
            false => format!("{name} (unhealthy)"),
        });
        let drivers = drivers.collect::<Vec<_>>().join(",");
        pairs.push("Host Volumes", names(node.host_volumes.keys().map(String::as_str)));
        pairs.push("Host Networks", names(node.host_networks.keys().map(String::as_str)));
        pairs.push("CSI Volumes", csi_volumes(allocs));
        pairs.push(if args.short { "Drivers" } else { "Driver Status" }, drivers);
    }
    pairs.render()
}

/// Returns the volumes that live allocations of the node use.
fn csi_volumes(allocs: &[Allocation]) -> String {
    let mut ids: Vec<String> = allocs
        .iter()
        .filter(|alloc| !alloc.client_terminal())
        .filter_map(|alloc| Some((alloc, alloc.group()?)))
        .flat_map(|(alloc, group)| group.csi_volumes().map(move |(_, v)| v.source_for(&alloc.name)))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids.join(",")
}

fn volumes_and_drivers(clock: &Clock, node: &Node) -> Vec<String> {
    let mut out = Vec::new();
    if !node.host_volumes.is_empty() {
        let rows = node
            .host_volumes
            .iter()
            .map(|(name, volume)| vec![name.clone(), volume.read_only.to_string(), volume.path.clone()]);
        let table = Table::new(&["Name", "ReadOnly", "Source"]).rows(rows);
        out.push(format!("Host Volumes\n{}", table.render()));
    }
    for (heading, plugins) in
        [("CSI Controllers", &node.csi_controller_plugins), ("CSI Drivers", &node.csi_node_plugins)]
    {
        if plugins.is_empty() {
            continue;
        }
        let rows = plugins.iter().map(|(plugin, info)| {
            vec![
                plugin.to_string(),
                info.provider.clone(),
                info.healthy.to_string(),
                info.health_description.clone(),
                clock.maybe(info.update_time),
            ]
        });
        let table = Table::new(&["ID", "Provider", "Healthy", "Message", "Time"]).rows(rows);
        out.push(format!("{heading}\n{}", table.render()));
    }
    let rows = node.drivers.iter().map(|(name, driver)| {
        vec![
            name.clone(),
            driver.detected.to_string(),
            driver.healthy.to_string(),
            driver.health_description.clone(),
            clock.maybe(driver.update_time),
        ]
    });
    let table = Table::new(&["Driver", "Detected", "Healthy", "Message", "Time"]).rows(rows);
    out.push(format!("Drivers\n{}", table.render()));
    out
}

fn events(clock: &Clock, node: &Node, verbose: bool) -> String {
    let mut heading = vec!["Time", "Subsystem", "Message"];
    if verbose {
        heading.push("Details");
    }
    let rows = node.events.iter().rev().map(|event| {
        let mut row = vec![clock.maybe(event.timestamp), event.subsystem.clone(), event.message.clone()];
        if verbose {
            let details: Vec<String> = event.details.iter().map(|(k, v)| format!("{k}: {v}")).collect();
            row.push(details.join(", "));
        }
        row
    });
    format!("Node Events\n{}", Table::new(&heading).rows(rows).render())
}

fn allocated(node: &Node, allocs: &[Allocation]) -> String {
    let live = || allocs.iter().filter(|alloc| !alloc.client_terminal());
    let supplied = || live().filter_map(|alloc| alloc.allocated_resources.as_ref());
    let cpu: i64 = supplied().flat_map(|r| r.tasks.values()).map(|t| t.cpu.cpu_shares).sum();
    let memory: i64 = supplied().flat_map(|r| r.tasks.values()).map(|t| t.memory.memory_mb).sum();
    let disk: i64 = supplied().map(|r| r.shared.disk_mb).sum();
    let (all, kept) = (&node.node_resources, &node.reserved_resources);
    let row = vec![
        format!("{cpu}/{} MHz", all.cpu.cpu_shares - kept.cpu.cpu_shares),
        format!("{}/{}", mib(memory), mib(all.memory.memory_mb - kept.memory.memory_mb)),
        format!("{}/{}", mib(disk), mib(all.disk.disk_mb - kept.disk.disk_mb)),
        live().count().to_string(),
    ];
    let table = Table::new(&["CPU", "Memory", "Disk", "Alloc Count"]).rows([row]);
    format!("Allocated Resources\n{}", table.render())
}

fn utilisation(node: &Node, stats: &HostStats) -> String {
    let disk = stats.disk_stats.iter().find(|disk| {
        node.attributes.get("unique.storage.volume").is_none_or(|device| *device == disk.device)
    });
    let row = vec![
        format!("{:.0}/{} MHz", stats.cpu_ticks_consumed, node.node_resources.cpu.cpu_shares),
        format!("{}/{}", bytes(stats.memory.used), bytes(stats.memory.total)),
        disk.map(|disk| format!("{}/{}", bytes(disk.used), bytes(disk.size))).unwrap_or_default(),
    ];
    let table = Table::new(&["CPU", "Memory", "Disk"]).rows([row]);
    format!("Host Resource Utilization\n{}", table.render())
}

fn figures(stats: &HostStats) -> Vec<String> {
    let percent = |n: f64| format!("{n:.2}%");
    let mut out = Vec::new();
    for (n, cpu) in stats.cpu.iter().enumerate() {
        let text = Pairs::new()
            .pair("CPU", cpu.cpu.as_str())
            .pair("User", percent(cpu.user))
            .pair("System", percent(cpu.system))
            .pair("Idle", percent(cpu.idle))
            .render();
        out.push(if n == 0 { format!("CPU Stats\n{text}") } else { text });
    }
    let memory = Pairs::new()
        .pair("Total", bytes(stats.memory.total))
        .pair("Available", bytes(stats.memory.available))
        .pair("Used", bytes(stats.memory.used))
        .pair("Free", bytes(stats.memory.free));
    out.push(format!("Memory Stats\n{}", memory.render()));
    for (n, disk) in stats.disk_stats.iter().enumerate() {
        let text = Pairs::new()
            .pair("Device", disk.device.as_str())
            .pair("MountPoint", disk.mountpoint.as_str())
            .pair("Size", bytes(disk.size))
            .pair("Used", bytes(disk.used))
            .pair("Available", bytes(disk.available))
            .pair("Used Percent", percent(disk.used_percent))
            .pair("Inodes Percent", percent(disk.inodes_used_percent))
            .render();
        out.push(if n == 0 { format!("Disk Stats\n{text}") } else { text });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::clock;
    use caravan_types::node::{DriverInfo, HostVolumeInfo, NodeStatus};

    fn node() -> Node {
        let driver = DriverInfo { detected: true, healthy: true, ..Default::default() };
        let drivers = ["exec", "java", "mock_driver", "raw_exec"];
        Node {
            id: "63126d9d-dd5a-f032-b3e4-c1537acb6cc7".into(),
            name: "fixture-node".into(),
            node_pool: "default".into(),
            node_class: "fixture".into(),
            datacenter: "dc1".into(),
            status: NodeStatus::Ready,
            drivers: drivers.iter().map(|name| ((*name).to_owned(), driver.clone())).collect(),
            host_volumes: BTreeMap::from([("scratch".into(), HostVolumeInfo::default())]),
            ..Default::default()
        }
    }

    #[test]
    fn the_list_reads_like_the_recorded_one() {
        let nodes = [node().stub()];
        assert_eq!(list(&nodes, false, false, None) + "\n", include_str!("../../../fixtures/node-list.txt"));
        let running = BTreeMap::from([(nodes[0].id.to_string(), 4)]);
        let text = list(&nodes, false, false, Some(&running));
        assert_eq!(text + "\n", include_str!("../../../fixtures/node-list-allocs.txt"));
    }

    #[test]
    fn a_short_node_reads_like_the_recorded_one() {
        let args = StatusArgs { short: true, ..Default::default() };
        let text = render(&clock("2026-11-21T09:23:12Z"), &node(), &[], None, &args);
        let recorded = include_str!("../../../fixtures/node-short.txt");
        let head = &recorded[..recorded.find("Allocations\n").unwrap()];
        assert_eq!(text, format!("{head}Allocations\nNo allocations placed"));
    }

    #[test]
    fn an_unhealthy_driver_says_so() {
        let mut node = node();
        node.drivers.insert("docker".into(), DriverInfo { detected: true, ..Default::default() });
        let text = render(&clock("2026-11-21T09:23:12Z"), &node, &[], None, &StatusArgs::default());
        assert!(text.contains("Driver Status   = docker (unhealthy),exec"), "{text}");
        assert!(text.contains("\n0/0 MHz  0 B/0 B  0 B/0 B  0\n"), "{text}");
    }
}
