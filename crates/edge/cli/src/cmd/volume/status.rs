//! `volume status`

use super::{Kind, host, kind, meant};
use crate::cmd::alloc::{self, Columns};
use crate::cmd::at_most_one;
use crate::cmd::page::{PageArgs, more};
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::{Clock, bytes, coarse, id, json};
use crate::table::{Pairs, Table};
use caravan_sdk::{ClaimView, QueryOptions, VolumeDetail};
use caravan_types::volume::{ClaimMode, CsiVolumeStub, VolumeExternalStub, VolumePhase};

/// Flags of `volume status`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct StatusArgs {
    /// Type of volume: csi or host
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Show only host volumes of this node
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Show only host volumes of this node pool
    #[arg(long, value_name = "POOL")]
    node_pool: Option<String>,
    #[command(flatten)]
    page: PageArgs,
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Omit topologies, capabilities and claims
    #[arg(long)]
    short: bool,
    /// Show full ids; in the list, also the volumes that the plugins report
    #[arg(long)]
    verbose: bool,
    /// Volume id or prefix
    #[arg(value_name = "VOLUME", num_args = 0..)]
    args: Vec<String>,
}

impl StatusArgs {
    /// Creates the arguments for a volume that `status` found.
    pub(crate) fn new(id: &str, verbose: bool) -> Self {
        Self { verbose, args: vec![id.to_owned()], ..Self::default() }
    }

    fn of_hosts(&self) -> host::Shown<'_> {
        host::Shown {
            page: Some(&self.page),
            json: self.json,
            short: self.short,
            verbose: self.verbose,
            node: self.node.as_deref(),
            node_pool: self.node_pool.as_deref(),
        }
    }
}

/// The number of entries on a page of the volumes that plugins report.
const PAGE: u32 = 30;

pub(crate) async fn run(ctx: &Ctx, args: &StatusArgs) -> Outcome {
    let supplied = at_most_one(&args.args, "This command takes either no arguments or one: <id>")?;
    let kind = kind(args.kind.as_deref())?;
    if kind == Some(Kind::Csi) && (args.node.is_some() || args.node_pool.is_some()) {
        return Err(CliError::Usage("-node and -node-pool are for host volumes".into()));
    }
    let Some(supplied) = supplied else {
        // With -json, print only one of the lists, so that the output is one JSON document.
        if kind == Some(Kind::Host) || (kind.is_none() && !args.json) {
            host::list(ctx, args.of_hosts()).await?;
        }
        if kind == Some(Kind::Host) {
            return Ok(0);
        }
        if kind.is_none() && !args.json {
            ctx.out.line("");
        }
        return all(ctx, args).await;
    };
    if kind != Some(Kind::Csi) && host::status(ctx, supplied, args.of_hosts()).await? {
        return Ok(0);
    }
    if kind == Some(Kind::Host) {
        let text = format!("Error querying volumes: no volumes with prefix or ID \"{supplied}\" found");
        return Err(CliError::failed(text));
    }
    let stub = meant(ctx, supplied).await?;
    let query = ctx.query().namespace(stub.namespace.as_str());
    let detail =
        ctx.client.volumes().info(stub.id.as_str(), &query).await.doing("Error querying volume")?.value;
    let text = match args.json {
        true => json(&detail)?,
        false => render(&ctx.clock(), &detail, args),
    };
    ctx.out.line(&text);
    Ok(0)
}

async fn all(ctx: &Ctx, args: &StatusArgs) -> Outcome {
    let query = args.page.over(ctx.query());
    let answer = ctx.client.volumes().list(&query).await.doing("Error querying CSI volumes")?;
    let volumes = answer.value;
    if args.json {
        ctx.out.line(&json(&volumes)?);
        return Ok(0);
    }
    ctx.out.line("Container Storage Interface");
    match volumes.len() {
        0 => ctx.out.note("No CSI volumes"),
        _ => ctx.out.line(&table(&volumes)),
    }
    more(ctx, &answer.meta);
    if args.verbose {
        external(ctx).await?;
    }
    Ok(0)
}

/// Prints the volumes that the plugins report, page by page.
async fn external(ctx: &Ctx) -> Result<(), CliError> {
    let plugins = ctx.client.plugins().list(&ctx.query()).await.doing("Error querying CSI plugins")?.value;
    for plugin in plugins.iter().filter(|plugin| plugin.controllers_healthy > 0) {
        let mut query = QueryOptions { per_page: PAGE, ..ctx.query() };
        ctx.out.line(&format!("\nVolumes of plugin {}", plugin.id));
        loop {
            let page = match ctx.client.volumes().list_external(plugin.id.as_str(), &query).await {
                Ok(page) => page.value,
                Err(error) => {
                    // Listing volumes is an optional capability of a plugin.
                    ctx.out.note(&format!(
                        "Error querying CSI external volumes for plugin \"{}\": {error}",
                        plugin.id
                    ));
                    break;
                }
            };
            if page.volumes.is_empty() {
                ctx.out.line("No external volumes");
            } else {
                ctx.out.line(&external_table(&page.volumes));
            }
            if page.next_token.is_empty() {
                break;
            }
            ctx.out.line("...");
            query.next_token = page.next_token;
        }
    }
    Ok(())
}

/// Returns the table of volumes.
pub(crate) fn table(volumes: &[CsiVolumeStub]) -> String {
    let rows = volumes.iter().map(|volume| {
        vec![
            volume.id.to_string(),
            volume.name.clone(),
            volume.namespace.to_string(),
            volume.plugin_id.to_string(),
            volume.schedulable.to_string(),
            volume.access_mode.to_string(),
        ]
    });
    let heading = ["ID", "Name", "Namespace", "Plugin ID", "Schedulable", "Access Mode"];
    Table::new(&heading).rows(rows).render()
}

fn external_table(volumes: &[VolumeExternalStub]) -> String {
    let rows = volumes.iter().map(|volume| {
        let condition = match volume.is_abnormal {
            true => format!("Abnormal ({})", volume.status),
            false => "OK".into(),
        };
        vec![volume.external_id.clone(), condition, volume.published_external_node_ids.join(",")]
    });
    Table::new(&["External ID", "Condition", "Nodes"]).rows(rows).render()
}

fn render(clock: &Clock, detail: &VolumeDetail, args: &StatusArgs) -> String {
    let mut sections = vec![head(detail)];
    if !args.short {
        sections.extend(topologies(detail));
        sections.push(capabilities(detail));
        if !detail.claims.is_empty() {
            sections.push(format!("Claims\n{}", claims(clock, &detail.claims, args.verbose)));
        }
        let allocs = &detail.volume.allocations;
        let table = match allocs.len() {
            0 => "No allocations placed".to_owned(),
            _ => {
                let columns = Columns { verbose: args.verbose, node_name: args.verbose };
                alloc::table(clock, allocs, columns).render()
            }
        };
        sections.push(format!("Allocations\n{table}"));
    }
    sections.join("\n\n")
}

fn head(detail: &VolumeDetail) -> String {
    let volume = &detail.volume;
    let supplied = volume.mount_options.as_ref().filter(|options| !options.is_empty());
    let options = supplied.map(|options| {
        let mut parts = Vec::new();
        if !options.fs_type.is_empty() {
            parts.push(format!("fs_type: {}", options.fs_type));
        }
        if !options.mount_flags.is_empty() {
            parts.push("flags: [REDACTED]".to_owned());
        }
        parts.join(" ")
    });
    let mut pairs = Pairs::new()
        .pair("ID", volume.id.as_str())
        .pair("Name", volume.name.as_str())
        .pair("Namespace", volume.namespace.as_str())
        .pair("External ID", volume.external_id.as_str())
        .pair("Plugin ID", volume.plugin_id.as_str())
        .pair("Provider", volume.provider.as_str())
        .pair("Version", volume.provider_version.as_str())
        .pair("Capacity", bytes(u64::try_from(volume.capacity).unwrap_or(0)))
        .pair("Schedulable", volume.schedulable.to_string())
        .pair("Controllers Healthy", volume.controllers_healthy.to_string())
        .pair("Controllers Expected", volume.controllers_expected.to_string())
        .pair("Nodes Healthy", volume.nodes_healthy.to_string())
        .pair("Nodes Expected", volume.nodes_expected.to_string())
        .pair("Access Mode", volume.access_mode.as_str())
        .pair("Attachment Mode", volume.attachment_mode.as_str())
        .pair("Mount Options", options.unwrap_or_default());
    if volume.shared_storage {
        pairs.push("Shared Storage", "true");
    }
    for (key, value) in super::explain::usage(&detail.usage, false) {
        pairs.push(key, value);
    }
    match detail.phase {
        Some(VolumePhase::Creating) => pairs.push("Phase", "creating"),
        Some(VolumePhase::Deleting) => pairs.push("Phase", "deleting"),
        Some(VolumePhase::Expanding) => pairs.push("Phase", "expanding"),
        Some(VolumePhase::Ready) | None => {}
    }
    if !detail.last_error.is_empty() {
        pairs.push("Last Error", detail.last_error.as_str());
    }
    pairs.render()
}

fn topologies(detail: &VolumeDetail) -> Option<String> {
    let volume = &detail.volume;
    let rows = volume.topologies.iter().enumerate().map(|(n, topology)| {
        let segments: Vec<String> = topology.segments.iter().map(|(k, v)| format!("{k}={v}")).collect();
        vec![format!("{n:02}"), segments.join(", ")]
    });
    (!volume.topologies.is_empty())
        .then(|| format!("Topologies\n{}", Table::new(&["Topology", "Segments"]).rows(rows).render()))
}

fn capabilities(detail: &VolumeDetail) -> String {
    let rows =
        detail.volume.requested_capabilities.iter().map(|capability| {
            vec![capability.access_mode.to_string(), capability.attachment_mode.to_string()]
        });
    format!("Capabilities\n{}", Table::new(&["Access Mode", "Attachment Mode"]).rows(rows).render())
}

/// Returns the claims on the volume: their allocations, phases and wait reasons.
fn claims(clock: &Clock, claims: &[ClaimView], verbose: bool) -> String {
    let heading = ["Alloc ID", "Node ID", "Job ID", "Mode", "Phase", "Since", "Waits For"];
    let rows = claims.iter().map(|claim| {
        vec![
            id(claim.alloc_id.as_str(), verbose),
            id(claim.node_id.as_str(), verbose),
            claim.job_id.to_string(),
            match claim.mode {
                ClaimMode::Read => "read".into(),
                ClaimMode::Write => "write".into(),
            },
            claim.phase.as_str().to_owned(),
            clock.when(claim.modify_time, verbose),
            waits(clock, claim),
        ]
    });
    Table::new(&heading).keep_empty().rows(rows).render()
}

/// Renders what a claim waits for: `another node; last error: volume busy (2 tries, next in 5s)`
fn waits(clock: &Clock, claim: &ClaimView) -> String {
    let mut notes = Vec::new();
    if claim.tries > 0 {
        notes.push(format!("{} {}", claim.tries, if claim.tries == 1 { "try" } else { "tries" }));
        if claim.next_try > clock.now {
            notes.push(format!("next in {}", coarse(claim.next_try.since(clock.now))));
        }
    }
    let what = match (claim.waits_for.as_str(), claim.last_error.as_str()) {
        (waits, "") => waits.to_owned(),
        ("", error) => error.to_owned(),
        (waits, error) if waits.contains(error) => waits.to_owned(),
        (waits, error) => format!("{waits}; last error: {error}"),
    };
    match (what.is_empty(), notes.is_empty()) {
        (_, true) => what,
        (true, false) => notes.join(", "),
        (false, false) => format!("{what} ({})", notes.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::clock;
    use caravan_types::job::MountOptions;
    use caravan_types::time::{Nanos, UnixNanos};
    use caravan_types::volume::{AccessMode, AttachmentMode, Capability, ClaimPhase, CsiVolume, Topology};
    use std::collections::BTreeMap;

    fn detail() -> VolumeDetail {
        let volume = CsiVolume {
            id: "data".into(),
            name: "data".into(),
            namespace: "default".into(),
            external_id: "e182258f".into(),
            plugin_id: "hostpath".into(),
            capacity: 10 << 20,
            schedulable: true,
            access_mode: AccessMode::SingleNodeWriter,
            attachment_mode: AttachmentMode::FileSystem,
            mount_options: Some(MountOptions { fs_type: "ext4".into(), mount_flags: vec!["x".into()] }),
            topologies: vec![Topology { segments: BTreeMap::from([("zone".into(), "z1".into())]) }],
            requested_capabilities: vec![Capability {
                access_mode: AccessMode::SingleNodeWriter,
                attachment_mode: AttachmentMode::FileSystem,
            }],
            ..Default::default()
        };
        VolumeDetail { volume, ..Default::default() }
    }

    #[test]
    fn a_volume_is_shown_with_its_plugin_and_modes() {
        let text = render(&clock("2026-11-21T09:23:12Z"), &detail(), &StatusArgs::default());
        for part in [
            "ID                   = data\n",
            "Capacity             = 10 MiB\n",
            "Mount Options        = fs_type: ext4 flags: [REDACTED]",
            "\n\nTopologies\nTopology  Segments\n00        zone=z1\n\n",
            "Capabilities\nAccess Mode         Attachment Mode\nsingle-node-writer  file-system",
            "Allocations\nNo allocations placed",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("Claims") && !text.contains("Last Error"));
    }

    #[test]
    fn claims_tell_what_they_wait_for() {
        let clock = clock("2026-11-21T09:23:12Z");
        let mut detail = detail();
        let at = |secs: i64| UnixNanos(clock.now.0).plus(Nanos::from_secs(secs));
        detail.phase = Some(VolumePhase::Creating);
        detail.last_error = "no healthy controller".into();
        detail.claims = vec![
            ClaimView {
                alloc_id: "59017f05-ce1f".into(),
                node_id: "63126d9d-dd5a".into(),
                job_id: "web".into(),
                mode: ClaimMode::Write,
                phase: ClaimPhase::Attaching,
                tries: 2,
                last_error: "volume busy".into(),
                next_try: at(5),
                modify_time: at(-3),
                ..Default::default()
            },
            ClaimView {
                phase: ClaimPhase::Releasing,
                waits_for: "the node's proof".into(),
                last_error: "target busy".into(),
                ..Default::default()
            },
        ];
        let text = render(&clock, &detail, &StatusArgs::default());
        let claims =
            "59017f05  63126d9d  web     write  attaching  3s ago  volume busy (2 tries, next in 5s)";
        assert!(text.contains(claims), "{text}");
        assert!(
            text.contains("Phase                = creating\nLast Error           = no healthy controller")
        );
    }
}
