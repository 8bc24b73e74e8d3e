//! `operator snapshot ...`

mod passphrase;
mod seal;

use crate::cmd::operator::at_rest;
use crate::cmd::{at_most_one, one};
use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::bytes;
use crate::table::{Pairs, Table};
use bytes::Bytes;
use caravan_api::ErrorReason;
use caravan_state::archive::{self, Archive, ArchiveKey, KEY};
use clap::Subcommand;
use passphrase::PassphraseArgs;
use serde_json::json;
use std::path::{Path, PathBuf};

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
    Restore(RestoreArgs),
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
    /// Remove key material from the snapshot
    #[arg(long, conflicts_with = "with_key")]
    redact: bool,
    /// Save the key of the cluster too, so that another cluster can restore the snapshot. A passphrase seals the key;
    /// -clear-key saves the key as it is
    #[arg(long)]
    with_key: bool,
    /// With -with-key: do not seal the key of the cluster
    #[arg(long, requires = "with_key", conflicts_with = "passphrase_file")]
    clear_key: bool,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    /// File to write
    #[arg(value_name = "FILE", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `operator snapshot restore`.
#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// File with the key of the cluster that the snapshot is of: server/keyring/cluster.key of one of its servers
    #[arg(long, value_name = "FILE", conflicts_with = "without_key")]
    key_file: Option<PathBuf>,
    /// Restore a snapshot of another cluster without its key: its variables and secrets of volumes stay unreadable
    #[arg(long)]
    without_key: bool,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    /// Snapshot file
    #[arg(value_name = "FILE", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, verb: &SnapshotVerb) -> Outcome {
    match verb {
        SnapshotVerb::Inspect(args) => inspect(ctx, args),
        SnapshotVerb::Restore(args) => restore(ctx, args).await,
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

/// Restores a snapshot. The key of the cluster that the snapshot is of is sent only if the servers need it.
async fn restore(ctx: &Ctx, args: &RestoreArgs) -> Outcome {
    let path = one(&args.args, "This command takes one argument: <filename>")?;
    let content = std::fs::read(path).doing(format!("Error opening snapshot file: {path:?}"))?;
    let failed = |why: String| CliError::failed(format!("Failed to restore snapshot: {why}"));
    let Archive { meta, state, key } =
        archive::unpack(&content).map_err(|error| failed(caravan_sys::describe(&error)))?;
    let mut query = ctx.query();
    if args.without_key {
        query = query.param("without_key", "true");
    }
    let with = |key: Option<[u8; KEY]>| {
        let key = key.map(ArchiveKey::Clear);
        archive::pack(&meta, &state, key.as_ref()).map(Bytes::from).doing("Failed to restore snapshot")
    };
    let from_file = args.passphrase.read_file()?;
    let opened = |sealed: &[u8], passphrase: &str| {
        seal::open(sealed, passphrase).map_err(|error| failed(error.to_string()))
    };
    let first = match (&args.key_file, &key) {
        (Some(path), _) => Some(key_of_file(path)?),
        (None, Some(ArchiveKey::Clear(key))) => Some(*key),
        (None, Some(ArchiveKey::Sealed(sealed))) => {
            from_file.as_deref().map(|passphrase| opened(sealed, passphrase)).transpose()?
        }
        (None, None) => None,
    };
    let operator = ctx.client.operator();
    let done = operator.restore_snapshot(with(first)?, &query).await;
    let done = match (done, &key) {
        (
            Err(caravan_sdk::Error::Status { reason: Some(ErrorReason::SnapshotKey), .. }),
            Some(ArchiveKey::Sealed(sealed)),
        ) if first.is_none() => {
            let question = "The key of the cluster in this snapshot is sealed. Passphrase:";
            let passphrase = passphrase::ask(ctx, question)?.ok_or_else(|| {
                failed(
                    "the key of the cluster in the snapshot is sealed with a passphrase: use -passphrase-file, or run \
                     this command on a terminal"
                        .to_owned(),
                )
            })?;
            operator.restore_snapshot(with(Some(opened(sealed, &passphrase)?))?, &query).await
        }
        (done, _) => done,
    };
    done.doing("Failed to restore snapshot")?;
    ctx.out.line("Snapshot Restored");
    Ok(0)
}

/// Reads the file `cluster.key` of a server.
fn key_of_file(path: &Path) -> Result<[u8; KEY], CliError> {
    let bytes = std::fs::read(path).doing(format!("Error reading the key file: {}", path.display()))?;
    let found = bytes.len();
    bytes.try_into().map_err(|_| {
        CliError::failed(format!(
            "Error reading the key file: {} has {found} bytes, and the key of a cluster has {KEY}",
            path.display()
        ))
    })
}

/// Removes the key of the cluster and the sealed root keys from a snapshot. Servers of the same cluster restore it still.
fn redact(ctx: &Ctx, args: &PathArgs) -> Outcome {
    let path = one(&args.args, "This command takes one argument: <filename>")?;
    let content = std::fs::read(path).doing(format!("Error opening snapshot file: {path:?}"))?;
    let (redacted, removed) = without_keys(&content)
        .map_err(|why| CliError::failed(format!("Failed to redact snapshot: {why}")))?;
    if removed == 0 {
        ctx.out.line("Snapshot redacted: it holds no key material; the file is unchanged");
    } else {
        write_private(path, &redacted).doing("Failed to redact snapshot")?;
        let plural = crate::format::plural(removed);
        ctx.out.line(&format!("Snapshot redacted: it holds no key material; {removed} key{plural} removed"));
    }
    ctx.out.note("Tokens of access control are in every snapshot; keep it as safe as they are.");
    Ok(0)
}

/// Returns an archive without key material, and how many keys were in it.
fn without_keys(content: &[u8]) -> Result<(Vec<u8>, u64), String> {
    let Archive { meta, state, key } =
        archive::unpack(content).map_err(|error| caravan_sys::describe(&error))?;
    let root = caravan_state::decode(&state).map_err(|error| caravan_sys::describe(&error))?;
    let removed = root.root_key_material().count() as u64 + u64::from(key.is_some());
    let state = caravan_state::encode(&root.with_root_key_material([]));
    Ok((archive::pack(&meta, &state, None).map_err(|error| error.to_string())?, removed))
}

async fn save(ctx: &Ctx, args: &SaveArgs) -> Outcome {
    let supplied = at_most_one(&args.args, "This command takes either no arguments or one: <filename>")?;
    let stamp = ctx.clock().stamp().replace([':', '-'], "");
    let path = supplied.map_or_else(|| format!("caravan-state-{stamp}.snap"), str::to_owned);
    if Path::new(&path).exists() {
        return Err(CliError::Usage(format!("Destination file already exists: {path:?}")));
    }
    let passphrase = new_passphrase(ctx, args)?;
    let mut query = ctx.query();
    query.stale = args.stale;
    if args.with_key {
        query = query.param("key", "true");
    }
    let content = ctx.client.operator().save_snapshot(&query).await;
    let mut content = content.doing("Failed to get a snapshot file")?.to_vec();
    let failed = |why: String| CliError::failed(format!("Failed to verify snapshot: {why}"));
    // A file that cannot be read back is no backup.
    let Archive { meta, state, key } =
        archive::unpack(&content).map_err(|error| failed(caravan_sys::describe(&error)))?;
    if args.with_key {
        let Some(ArchiveKey::Clear(key)) = key else {
            return Err(failed("the agent did not add the key of the cluster".to_owned()));
        };
        if let Some(passphrase) = &passphrase {
            let sealed = seal::seal(&key, passphrase).map_err(|error| failed(error.to_string()))?;
            content = archive::pack(&meta, &state, Some(&ArchiveKey::Sealed(sealed)))
                .doing("Failed to save snapshot file")?;
        }
    }
    if args.redact {
        content = without_keys(&content).map_err(failed)?.0;
    }
    write_private(&path, &content).doing(format!("Failed to save snapshot file {path}.tmp"))?;
    ctx.out.line(&format!("State file written to {path}"));
    if args.clear_key {
        ctx.out.note(
            "Warning: the file holds the key of the cluster as it is: a reader of the file can read all variables and secrets.",
        );
    }
    Ok(0)
}

/// Returns the passphrase that seals the key of the cluster; `None` if the key is not saved, or as it is.
fn new_passphrase(ctx: &Ctx, args: &SaveArgs) -> Result<Option<String>, CliError> {
    if !args.with_key || args.clear_key {
        return Ok(None);
    }
    let refused = |why: &str| CliError::failed(format!("Failed to save snapshot file: {why}"));
    let passphrase = match args.passphrase.read_file()? {
        Some(passphrase) => passphrase,
        None => {
            let first = passphrase::ask(ctx, "Passphrase that seals the key of the cluster:")?;
            let first = first.ok_or_else(|| {
                refused("-with-key needs a passphrase: use -passphrase-file, or -clear-key to save the key as it is")
            })?;
            if passphrase::ask(ctx, "The same passphrase again:")?.as_ref() != Some(&first) {
                return Err(refused("the passphrases differ"));
            }
            first
        }
    };
    if passphrase.is_empty() { Err(refused("the passphrase is empty")) } else { Ok(Some(passphrase)) }
}

/// Writes or replaces a file that only its owner can read, because snapshots contain tokens.
fn write_private(path: &str, content: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    // A partial file never has the name of a snapshot.
    let partial = format!("{path}.tmp");
    let options = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial);
    let written = options.and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    let placed = written.and_then(|()| std::fs::rename(&partial, path));
    if placed.as_ref().is_err_and(|error| error.kind() != std::io::ErrorKind::AlreadyExists) {
        // The first error counts.
        let _ = std::fs::remove_file(&partial);
    }
    placed
}

fn inspect(ctx: &Ctx, args: &InspectArgs) -> Outcome {
    let path = one(&args.args, "This command takes one argument: <filename>")?;
    let content = std::fs::read(path).doing("Error opening snapshot file")?;
    let failed = |why: String| CliError::failed(format!("Error inspecting snapshot: {why}"));
    let archive = archive::unpack(&content).map_err(|error| failed(error.to_string()))?;
    let root = caravan_state::decode(&archive.state).map_err(|error| failed(error.to_string()))?;
    let mut sizes = archive::table_sizes(&root);
    sizes.retain(|(_, rows, _)| *rows > 0);
    sizes.sort_by(|a, b| b.2.cmp(&a.2).then(a.0.cmp(b.0)));
    let stats: Vec<_> =
        sizes.iter().map(|(name, rows, size)| json!({"Name": name, "Count": rows, "Sum": size})).collect();
    let mut data = json!({"Meta": archive.meta, "Size": archive.state.len(), "Stats": stats});
    if let Some(key) = key_form(&archive) {
        data["CaravanClusterKey"] = json!(key);
    }
    if let Some(shown) = args.data.show(ctx, &data) {
        return shown;
    }
    ctx.out.line(&shown(ctx, &archive, &sizes));
    Ok(0)
}

/// Returns in what form the archive has the key of the cluster.
fn key_form(archive: &Archive) -> Option<&'static str> {
    archive.key.as_ref().map(|key| match key {
        ArchiveKey::Clear(_) => "clear",
        ArchiveKey::Sealed(_) => "sealed",
    })
}

fn shown(ctx: &Ctx, archive: &Archive, sizes: &[(&'static str, u64, u64)]) -> String {
    let meta = &archive.meta;
    let created = caravan_types::UnixNanos(meta.created.saturating_mul(1_000_000));
    let mut pairs = Pairs::new()
        .pair("Created", ctx.clock().time(created))
        .pair("ID", &meta.id)
        .pair("Size", bytes(archive.state.len() as u64))
        .pair("Index", meta.index.to_string())
        .pair("Term", meta.term.to_string())
        .pair("Version", meta.version.to_string());
    if let Some(key) = key_form(archive) {
        pairs.push("Cluster Key", key);
    }
    let mut table = Table::new(&["Type", "Count", "Size"]);
    for (name, rows, size) in sizes {
        table.row(vec![(*name).to_owned(), rows.to_string(), bytes(*size)]);
    }
    let (rows, all) = sizes.iter().fold((0, 0), |(rows, all), (_, n, size)| (rows + n, all + size));
    table.row(vec!["Total".to_owned(), rows.to_string(), bytes(all)]);
    format!("{}\n\n{}", pairs.render(), table.render())
}
