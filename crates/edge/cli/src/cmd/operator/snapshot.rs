//! `operator snapshot ...`

use crate::cmd::operator::at_rest;
use crate::cmd::{at_most_one, one};
use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::bytes;
use crate::table::{Pairs, Table};
use bytes::Bytes;
use caravan_state::archive::{self, ArchiveMeta};
use clap::Subcommand;
use serde_json::json;
use std::path::Path;

/// Subcommands of `operator snapshot`.
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotVerb {
    /// Save snapshots at regular intervals
    Agent(AgentArgs),
    /// Show the contents of a snapshot
    Inspect(InspectArgs),
    /// Remove key material from a snapshot file
    Redact(PathArgs),
    /// Replace the state of the servers by a snapshot
    Restore(PathArgs),
    /// Save a snapshot of the state
    Save(SaveArgs),
    /// Show the state in a snapshot as JSON
    State(PathArgs),
}

/// Arguments of `operator snapshot agent`.
#[derive(Debug, clap::Args)]
pub(crate) struct AgentArgs {
    /// Configuration file of the snapshot agent
    #[arg(value_name = "FILE", num_args = 0.., allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Flags of `operator snapshot inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Snapshot file
    #[arg(value_name = "FILE", num_args = 0..)]
    args: Vec<String>,
}

/// Arguments of the subcommands that take a file.
#[derive(Debug, clap::Args)]
pub(crate) struct PathArgs {
    /// Snapshot file
    #[arg(value_name = "FILE", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `operator snapshot save`.
#[derive(Debug, clap::Args)]
pub(crate) struct SaveArgs {
    /// Let any server answer, possibly with stale data
    #[arg(long)]
    stale: bool,
    /// File to write
    #[arg(value_name = "FILE", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, verb: &SnapshotVerb) -> Outcome {
    match verb {
        SnapshotVerb::Inspect(args) => inspect(ctx, args),
        SnapshotVerb::Restore(args) => {
            let path = one(&args.args, "This command takes one argument: <filename>")?;
            let content = std::fs::read(path).doing(format!("Error opening snapshot file: {path:?}"))?;
            ctx.client
                .operator()
                .restore_snapshot(Bytes::from(content), &ctx.query())
                .await
                .doing("Failed to restore snapshot")?;
            ctx.out.line("Snapshot Restored");
            Ok(0)
        }
        SnapshotVerb::Save(args) => save(ctx, args).await,
        SnapshotVerb::State(args) => {
            let path = one(&args.args, "This command takes one argument: <filename>")?;
            let root = at_rest::of_file(Path::new(path))
                .map_err(|error| CliError::failed(format!("Failed to read snapshot: {error}")))?;
            ctx.out.line(&serde_json::to_string_pretty(&caravan_state::dump(&root)?)?);
            Ok(0)
        }
        SnapshotVerb::Redact(args) => redact(ctx, args),
        SnapshotVerb::Agent(args) => {
            let _ = &args.args;
            Err(CliError::failed("Error running snapshot agent: Nomad Enterprise only endpoint"))
        }
    }
}

/// Checks the file and leaves it unchanged. Root keys are stored beside the state, never in it; a snapshot contains
/// only the keys' metadata.
fn redact(ctx: &Ctx, args: &PathArgs) -> Outcome {
    let path = one(&args.args, "This command takes one argument: <filename>")?;
    let content = std::fs::read(path).doing(format!("Error opening snapshot file: {path:?}"))?;
    let failed = |why: String| CliError::failed(format!("Failed to redact snapshot: {why}"));
    let (_, state) = archive::unpack(&content).map_err(|error| failed(error.to_string()))?;
    let root = caravan_state::decode(&state).map_err(|error| failed(error.to_string()))?;
    let keys = root.root_keys().count();
    ctx.out.line(&format!(
        "Snapshot redacted: it holds no key material, only the names of {keys} key{}; the file is unchanged",
        crate::format::plural(keys as u64),
    ));
    ctx.out.note("Tokens of access control are in every snapshot; keep it as safe as they are.");
    Ok(0)
}

async fn save(ctx: &Ctx, args: &SaveArgs) -> Outcome {
    let supplied = at_most_one(&args.args, "This command takes either no arguments or one: <filename>")?;
    let stamp = ctx.clock().stamp().replace([':', '-'], "");
    let path = supplied.map_or_else(|| format!("caravan-state-{stamp}.snap"), str::to_owned);
    if Path::new(&path).exists() {
        return Err(CliError::Usage(format!("Destination file already exists: {path:?}")));
    }
    let mut query = ctx.query();
    query.stale = args.stale;
    let content = ctx.client.operator().save_snapshot(&query).await;
    let content = content.doing("Failed to get a snapshot file")?;
    // A file that cannot be read back is no backup.
    archive::unpack(&content)
        .map_err(|error| CliError::failed(format!("Failed to verify snapshot: {error}")))?;
    write_private(&path, &content).doing("Failed to save snapshot file")?;
    ctx.out.line(&format!("State file written to {path}"));
    Ok(0)
}

/// Writes a file that only its owner can read, because snapshots contain tokens.
fn write_private(path: &str, content: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn inspect(ctx: &Ctx, args: &InspectArgs) -> Outcome {
    let path = one(&args.args, "This command takes one argument: <filename>")?;
    let content = std::fs::read(path).doing("Error opening snapshot file")?;
    let failed = |why: String| CliError::failed(format!("Error inspecting snapshot: {why}"));
    let (meta, state) = archive::unpack(&content).map_err(|error| failed(error.to_string()))?;
    let root = caravan_state::decode(&state).map_err(|error| failed(error.to_string()))?;
    let mut sizes = archive::table_sizes(&root);
    sizes.retain(|(_, rows, _)| *rows > 0);
    sizes.sort_by(|a, b| b.2.cmp(&a.2).then(a.0.cmp(b.0)));
    let stats: Vec<_> =
        sizes.iter().map(|(name, rows, size)| json!({"Name": name, "Count": rows, "Sum": size})).collect();
    let data = json!({"Meta": meta, "Size": state.len(), "Stats": stats});
    if let Some(shown) = args.data.show(ctx, &data) {
        return shown;
    }
    ctx.out.line(&shown(ctx, &meta, state.len() as u64, &sizes));
    Ok(0)
}

fn shown(ctx: &Ctx, meta: &ArchiveMeta, size: u64, sizes: &[(&'static str, u64, u64)]) -> String {
    let created = caravan_types::UnixNanos(meta.created.saturating_mul(1_000_000));
    let pairs = Pairs::new()
        .pair("Created", ctx.clock().time(created))
        .pair("ID", &meta.id)
        .pair("Size", bytes(size))
        .pair("Index", meta.index.to_string())
        .pair("Term", meta.term.to_string())
        .pair("Version", meta.version.to_string());
    let mut table = Table::new(&["Type", "Count", "Size"]);
    for (name, rows, size) in sizes {
        table.row(vec![(*name).to_owned(), rows.to_string(), bytes(*size)]);
    }
    let (rows, all) = sizes.iter().fold((0, 0), |(rows, all), (_, n, size)| (rows + n, all + size));
    table.row(vec!["Total".to_owned(), rows.to_string(), bytes(all)]);
    format!("{}\n\n{}", pairs.render(), table.render())
}
