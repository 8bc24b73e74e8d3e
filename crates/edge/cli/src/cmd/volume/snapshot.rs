//! `volume snapshot …`

use super::meant;
use super::remove::{Secret, pairs};
use crate::cmd::{none, wrong_count};
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::{Clock, bytes};
use crate::resolve::{Found, pick};
use crate::table::Table;
use caravan_sdk::QueryOptions;
use caravan_types::time::UnixNanos;
use caravan_types::volume::CsiSnapshot;
use clap::Subcommand;

/// Subcommands of `volume snapshot`.
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotVerb {
    /// Create a snapshot of a volume
    Create(CreateArgs),
    /// Delete a snapshot
    Delete(DeleteArgs),
    /// List the snapshots of a plugin
    List(ListArgs),
}

/// Flags of `volume snapshot create`.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(override_usage = "caravan volume snapshot create [OPTIONS] <VOLUME> <NAME>")]
pub(crate) struct CreateArgs {
    /// Parameter for the plugin, KEY=VALUE; may be repeated
    #[arg(long = "parameter", value_name = "KEY=VALUE")]
    parameters: Vec<String>,
    /// Secret for the plugin, KEY=VALUE; may be repeated
    #[arg(long = "secret", value_name = "KEY=VALUE")]
    secrets: Vec<Secret>,
    /// Show full ids of volumes
    #[arg(long)]
    verbose: bool,
    /// Volume id or prefix, and a unique name for the snapshot
    #[arg(value_name = "VOLUME NAME", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `volume snapshot delete`.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(override_usage = "caravan volume snapshot delete [OPTIONS] <PLUGIN> <SNAPSHOT>")]
pub(crate) struct DeleteArgs {
    /// Secret for the plugin, KEY=VALUE; may be repeated
    #[arg(long = "secret", value_name = "KEY=VALUE")]
    secrets: Vec<Secret>,
    /// Plugin, and the plugin's id of the snapshot
    #[arg(value_name = "PLUGIN SNAPSHOT", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `volume snapshot list`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ListArgs {
    /// Plugin, or a prefix of its id
    #[arg(long, value_name = "PLUGIN")]
    plugin: Option<String>,
    /// Secret for the plugin, KEY=VALUE; may be repeated
    #[arg(long = "secret", value_name = "KEY=VALUE")]
    secrets: Vec<Secret>,
    /// Number of snapshots on a page
    #[arg(long, value_name = "N", default_value_t = 30)]
    per_page: u32,
    /// Token of the page, printed at the end of the previous one
    #[arg(long, value_name = "TOKEN")]
    page_token: Option<String>,
    /// Show full ids of volumes
    #[arg(long)]
    verbose: bool,
    #[arg(hide = true, num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, verb: &SnapshotVerb) -> Outcome {
    match verb {
        SnapshotVerb::Create(args) => create(ctx, args).await,
        SnapshotVerb::Delete(args) => delete(ctx, args).await,
        SnapshotVerb::List(args) => list(ctx, args).await,
    }
}

async fn create(ctx: &Ctx, args: &CreateArgs) -> Outcome {
    let [volume, name] = args.args.as_slice() else {
        return Err(wrong_count(&args.args, 2, "This command takes two arguments: <vol id> <snapshot name>"));
    };
    let parameters: Option<_> = args.parameters.iter().map(|pair| pair.split_once('=')).collect();
    let parameters: Vec<(&str, &str)> =
        parameters.ok_or_else(|| CliError::failed("A parameter must be of the form KEY=VALUE"))?;
    let secrets = pairs(&args.secrets)?;
    let volume = meant(ctx, volume).await?;
    let snapshot = CsiSnapshot {
        source_volume_id: volume.id,
        plugin_id: volume.plugin_id,
        name: name.clone(),
        secrets,
        parameters: parameters.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        ..CsiSnapshot::default()
    };
    let query = ctx.query().namespace(volume.namespace.as_str());
    let made = ctx.client.volumes().create_snapshot(&snapshot, &query).await;
    let made = made.doing("Error snapshotting volume")?.value;
    ctx.out.line(&table(&ctx.clock(), made.snapshots, args.verbose));
    Ok(0)
}

async fn delete(ctx: &Ctx, args: &DeleteArgs) -> Outcome {
    let [plugin, snapshot] = args.args.as_slice() else {
        return Err(wrong_count(
            &args.args,
            2,
            "This command takes two arguments: <plugin id> <snapshot id>",
        ));
    };
    let secrets = pairs(&args.secrets)?;
    let done = ctx.client.volumes().delete_snapshot(plugin, snapshot, &secrets, &ctx.query()).await;
    done.doing("Error deleting volume snapshot")?;
    Ok(0)
}

async fn list(ctx: &Ctx, args: &ListArgs) -> Outcome {
    none(&args.args)?;
    let secrets = pairs(&args.secrets)?;
    let plugin = plugin(ctx, args.plugin.as_deref()).await?;
    let query = QueryOptions {
        per_page: args.per_page,
        next_token: args.page_token.clone().unwrap_or_default(),
        ..ctx.query()
    };
    let page = ctx.client.volumes().list_snapshots(&plugin, &secrets, &query).await;
    let page = page.doing(format!("Error querying CSI external snapshots for plugin \"{plugin}\""))?.value;
    if page.snapshots.is_empty() {
        ctx.out.note("No snapshots found");
        return Ok(0);
    }
    ctx.out.line(&table(&ctx.clock(), page.snapshots, args.verbose));
    if !page.next_token.is_empty() {
        ctx.out.line(&format!(
            "\nResults have been paginated. To get the next page run with:\n\n-page-token {}",
            page.next_token
        ));
    }
    Ok(0)
}

/// Returns the plugin with this id or unique prefix, or the only plugin if `given` is absent.
async fn plugin(ctx: &Ctx, supplied: Option<&str>) -> Result<String, CliError> {
    let query = ctx.query().prefix(supplied.unwrap_or_default());
    let plugins = ctx.client.plugins().list(&query).await.doing("Error querying CSI plugins")?.value;
    match (pick(supplied.unwrap_or_default(), plugins, |plugin| plugin.id.as_str()), supplied) {
        (Found::One(plugin), _) => Ok(plugin.id.to_string()),
        (Found::None, Some(supplied)) => {
            Err(CliError::failed(format!("No plugins(s) with prefix or ID \"{supplied}\" found")))
        }
        (Found::None, None) => Err(CliError::failed("No CSI plugins")),
        (Found::Many(plugins), supplied) => {
            let ids: Vec<&str> = plugins.iter().map(|plugin| plugin.id.as_str()).collect();
            let ids = ids.join("\n");
            Err(CliError::failed(match supplied {
                Some(_) => format!("Prefix matched multiple plugins\n\n{ids}"),
                None => format!("There are several plugins, name one with -plugin\n\n{ids}"),
            }))
        }
    }
}

/// Returns the table of snapshots, oldest first. Ids of snapshots are always complete, because `delete` requires
/// them.
fn table(clock: &Clock, mut snapshots: Vec<CsiSnapshot>, verbose: bool) -> String {
    snapshots.sort_by(|a, b| (a.create_time, &a.id).cmp(&(b.create_time, &b.id)));
    let rows = snapshots.iter().map(|snapshot| {
        let volume = &snapshot.external_source_volume_id;
        vec![
            snapshot.id.clone(),
            if verbose { volume.clone() } else { volume.chars().take(12).collect() },
            bytes(u64::try_from(snapshot.size_bytes).unwrap_or(0)),
            match snapshot.create_time {
                0 => String::new(),
                secs => clock.time(UnixNanos(secs.saturating_mul(1_000_000_000))),
            },
            snapshot.is_ready.to_string(),
        ]
    });
    Table::new(&["Snapshot ID", "Volume ID", "Size", "Create Time", "Ready?"]).rows(rows).render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::clock;

    #[test]
    fn snapshots_are_shown_oldest_first() {
        let of = |id: &str, create_time| CsiSnapshot {
            id: id.into(),
            external_source_volume_id: "e182258f-e58c-11f1".into(),
            size_bytes: 10 << 20,
            create_time,
            is_ready: true,
            ..CsiSnapshot::default()
        };
        let list = vec![of("later", 1_795_252_870), of("e188aa8d-e58c-11f1-a1c2", 1_795_252_866)];
        let text = table(&clock("2026-11-21T09:23:12Z"), list, false);
        assert_eq!(
            text,
            "Snapshot ID              Volume ID     Size    Create Time           Ready?\n\
             e188aa8d-e58c-11f1-a1c2  e182258f-e58  10 MiB  2026-11-21T09:21:06Z  true\n\
             later                    e182258f-e58  10 MiB  2026-11-21T09:21:10Z  true"
        );
    }
}
