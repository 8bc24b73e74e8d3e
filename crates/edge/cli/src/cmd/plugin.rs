//! `plugin status`

use crate::cmd::alloc::{self, Columns};
use crate::cmd::at_most_one;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::{Clock, json};
use crate::resolve::{Found, pick};
use crate::table::{Pairs, Table};
use caravan_types::plugin::{CsiControllerInfo, CsiNodeInfo, Plugin, PluginListStub};
use clap::Subcommand;
use std::collections::BTreeSet;

/// Subcommands of `plugin`.
#[derive(Debug, Subcommand)]
pub(crate) enum PluginVerb {
    /// Show CSI plugins, or one plugin
    Status(StatusArgs),
}

/// Flags of `plugin status`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct StatusArgs {
    /// Type of plugin: csi
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Omit allocations
    #[arg(long)]
    short: bool,
    /// Show full ids and capabilities
    #[arg(long)]
    verbose: bool,
    /// Plugin id or prefix
    #[arg(value_name = "PLUGIN", num_args = 0..)]
    args: Vec<String>,
}

impl StatusArgs {
    /// Creates the arguments for a plugin that `status` found.
    pub(crate) fn new(id: &str, verbose: bool) -> Self {
        Self { verbose, args: vec![id.to_owned()], ..Self::default() }
    }
}

pub(crate) async fn status(ctx: &Ctx, args: &StatusArgs) -> Outcome {
    let supplied = at_most_one(&args.args, "This command takes either no arguments or one: <plugin>")?;
    if let Some(kind) = args.kind.as_deref()
        && kind != "csi"
    {
        return Err(CliError::Usage(format!("Unknown plugin type \"{kind}\": the only one is csi")));
    }
    let plugins = ctx.client.plugins();
    let Some(supplied) = supplied else {
        let list = plugins.list(&ctx.query()).await.doing("Error querying CSI plugins")?.value;
        if args.json {
            ctx.out.line(&json(&list)?);
            return Ok(0);
        }
        ctx.out.line("Container Storage Interface");
        match list.len() {
            0 => ctx.out.note("No CSI plugins"),
            _ => ctx.out.line(&table(&list)),
        }
        return Ok(0);
    };
    let list = plugins.list(&ctx.query().prefix(supplied)).await.doing("Error listing plugins")?.value;
    let stub = match pick(supplied, list, |plugin| plugin.id.as_str()) {
        Found::One(stub) => stub,
        Found::None => {
            return Err(CliError::failed(format!(
                "Error listing plugins: no plugins with prefix or ID \"{supplied}\" found"
            )));
        }
        Found::Many(list) => {
            return Err(CliError::failed(format!("Prefix matched multiple plugins\n\n{}", table(&list))));
        }
    };
    let plugin = plugins.info(stub.id.as_str(), &ctx.query()).await.doing("Error querying plugin")?.value;
    let text = match args.json {
        true => json(&plugin)?,
        false => render(&ctx.clock(), &plugin, args),
    };
    ctx.out.line(&text);
    Ok(0)
}

/// Returns the table of plugins.
fn table(plugins: &[PluginListStub]) -> String {
    let rows = plugins.iter().map(|plugin| {
        let controllers = match plugin.controller_required {
            true => format!("{}/{}", plugin.controllers_healthy, plugin.controllers_expected),
            false => "N/A".into(),
        };
        vec![
            plugin.id.to_string(),
            plugin.provider.clone(),
            controllers,
            format!("{}/{}", plugin.nodes_healthy, plugin.nodes_expected),
        ]
    });
    let heading = ["ID", "Provider", "Controllers Healthy/Expected", "Nodes Healthy/Expected"];
    Table::new(&heading).rows(rows).render()
}

fn render(clock: &Clock, plugin: &Plugin, args: &StatusArgs) -> String {
    let mut pairs = Pairs::new()
        .pair("ID", plugin.id.as_str())
        .pair("Provider", plugin.provider.as_str())
        .pair("Version", plugin.version.as_str());
    if plugin.controller_required {
        pairs.push("Controllers Healthy", plugin.controllers_healthy.to_string());
        pairs.push("Controllers Expected", plugin.controllers_expected.to_string());
    }
    let head = pairs
        .pair("Nodes Healthy", plugin.nodes_healthy.to_string())
        .pair("Nodes Expected", plugin.nodes_expected.to_string())
        .render();
    let mut sections = vec![head];
    sections.extend(troubles(plugin));
    sections.extend(left_mounts(plugin));
    if args.verbose {
        if let Some(info) = plugin.controllers.values().find_map(|info| info.controller_info) {
            sections.push(format!("Controller Capabilities\n{}", controller(&info).join("\n")));
        }
        if let Some(info) = plugin.nodes.values().find_map(|info| info.node_info.as_ref()) {
            sections.push(format!("Node Capabilities\n{}", node(info).join("\n")));
        }
        sections.extend(topologies(plugin));
    }
    if !args.short {
        let allocs = match plugin.allocations.len() {
            0 => "No allocations placed".to_owned(),
            _ => {
                let columns = Columns { verbose: args.verbose, node_name: args.verbose };
                alloc::table(clock, &plugin.allocations, columns).render()
            }
        };
        sections.push(format!("Allocations\n{allocs}"));
    }
    sections.join("\n\n")
}

/// Returns where the plugin is unhealthy, and why.
fn troubles(plugin: &Plugin) -> Option<String> {
    let mut seen = BTreeSet::new();
    let mut table = Table::new(&["Node ID", "Part", "Reason"]);
    let parts = plugin
        .controllers
        .iter()
        .map(|(node, info)| (node, "controller", info))
        .chain(plugin.nodes.iter().map(|(node, info)| (node, "node", info)));
    for (node, part, info) in parts.filter(|(_, _, info)| !info.healthy) {
        if seen.insert((node, part)) {
            table.row(vec![node.short().to_owned(), part.to_owned(), info.health_description.clone()]);
        }
    }
    (!seen.is_empty()).then(|| format!("Unhealthy\n{}", table.render()))
}

/// Returns the mounts that the plugin left on nodes, and why they stay.
fn left_mounts(plugin: &Plugin) -> Option<String> {
    let mut table = Table::new(&["Node ID", "Path", "Type", "Reason"]);
    for (node, mounts) in &plugin.left_mounts {
        for mount in mounts {
            let (path, fs_type, reason) = (mount.path.clone(), mount.fs_type.clone(), mount.reason.clone());
            table.row(vec![node.short().to_owned(), path, fs_type, reason]);
        }
    }
    (!plugin.left_mounts.is_empty()).then(|| format!("Left Mounts\n{}", table.render()))
}

/// Returns the names of the capabilities in the CSI specification (ControllerServiceCapability).
fn controller(info: &CsiControllerInfo) -> Vec<&'static str> {
    let all = [
        (info.supports_create_delete, "CREATE_DELETE_VOLUME"),
        (info.supports_attach_detach, "CONTROLLER_ATTACH_DETACH"),
        (info.supports_list_volumes, "LIST_VOLUMES"),
        (info.supports_get_capacity, "GET_CAPACITY"),
        (info.supports_create_delete_snapshot, "CREATE_DELETE_SNAPSHOT"),
        (info.supports_list_snapshots, "LIST_SNAPSHOTS"),
        (info.supports_clone, "CLONE_VOLUME"),
        (info.supports_read_only_attach, "ATTACH_READONLY"),
        (info.supports_expand, "EXPAND_VOLUME"),
        (info.supports_list_volumes_attached_nodes, "LIST_VOLUMES_PUBLISHED_NODES"),
        (info.supports_condition, "VOLUME_CONDITION"),
        (info.supports_get, "GET_VOLUME"),
    ];
    named(&all)
}

/// Returns the names of the capabilities in the CSI specification (NodeServiceCapability).
fn node(info: &CsiNodeInfo) -> Vec<&'static str> {
    let all = [
        (info.requires_node_stage_volume, "STAGE_UNSTAGE_VOLUME"),
        (info.supports_stats, "GET_VOLUME_STATS"),
        (info.supports_expand, "EXPAND_VOLUME"),
        (info.supports_condition, "VOLUME_CONDITION"),
        (info.accessible_topology.is_some(), "VOLUME_ACCESSIBILITY_CONSTRAINTS"),
    ];
    named(&all)
}

fn named(all: &[(bool, &'static str)]) -> Vec<&'static str> {
    let mut names: Vec<_> = all.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
    if names.is_empty() {
        names.push("<none>");
    }
    names.sort_unstable();
    names
}

fn topologies(plugin: &Plugin) -> Option<String> {
    let rows: Vec<Vec<String>> = plugin
        .nodes
        .iter()
        .filter_map(|(node, info)| Some((node, info.node_info.as_ref()?.accessible_topology.as_ref()?)))
        .map(|(node, topology)| {
            let segments: Vec<String> = topology.segments.iter().map(|(k, v)| format!("{k}={v}")).collect();
            vec![node.short().to_owned(), segments.join(", ")]
        })
        .collect();
    if rows.is_empty() {
        return None;
    }
    let table = Table::new(&["Node ID", "Accessible Topology"]).rows(rows);
    Some(format!("Accessible Topologies\n{}", table.render()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::clock;
    use caravan_types::plugin::{CsiInfo, LeftMount, Reports};
    use std::collections::BTreeMap;

    fn plugin(healthy: bool) -> Plugin {
        let info = CsiInfo {
            healthy,
            health_description: "probe: deadline exceeded".into(),
            controller_info: Some(CsiControllerInfo { supports_create_delete: true, ..Default::default() }),
            ..Default::default()
        };
        Plugin {
            id: "hostpath".into(),
            provider: "csi-hostpath".into(),
            version: "v1".into(),
            controller_required: true,
            controllers: Reports::unit("63126d9d-dd5a".into(), info.into()),
            nodes_healthy: 1,
            nodes_expected: 1,
            ..Default::default()
        }
    }

    #[test]
    fn plugins_are_listed_with_their_health() {
        let text = table(&[plugin(true).stub()]);
        assert_eq!(
            text,
            "ID        Provider      Controllers Healthy/Expected  Nodes Healthy/Expected\n\
             hostpath  csi-hostpath  0/0                           1/1"
        );
    }

    #[test]
    fn an_unhealthy_part_tells_why() {
        let clock = clock("2026-11-21T09:23:12Z");
        let args = StatusArgs { verbose: true, ..Default::default() };
        let text = render(&clock, &plugin(false), &args);
        assert!(text.contains("63126d9d  controller  probe: deadline exceeded"), "{text}");
        assert!(text.contains("Controller Capabilities\nCREATE_DELETE_VOLUME"), "{text}");
        assert!(!render(&clock, &plugin(true), &args).contains("Unhealthy"));
    }

    #[test]
    fn mounts_that_a_plugin_left_are_shown_with_their_reason() {
        let clock = clock("2026-11-21T09:23:12Z");
        let mount = LeftMount {
            path: "/data/client/csi/node/hostpath/work".into(),
            fs_type: "ext4".into(),
            reason: "a process uses it".into(),
            ..LeftMount::default()
        };
        let left =
            Plugin { left_mounts: BTreeMap::from([("63126d9d-dd5a".into(), vec![mount])]), ..plugin(true) };
        let text = render(&clock, &left, &StatusArgs::default());
        let row = "63126d9d  /data/client/csi/node/hostpath/work  ext4  a process uses it";
        assert!(text.contains("Left Mounts\nNode ID") && text.contains(row), "{text}");
        assert!(!render(&clock, &plugin(true), &StatusArgs::default()).contains("Left Mounts"));
    }
}
