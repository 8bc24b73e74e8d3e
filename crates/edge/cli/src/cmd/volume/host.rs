//! Host volumes in the `volume` commands.

use crate::cmd::alloc::{self, Columns};
use crate::cmd::page::{PageArgs, more};
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::{Clock, bytes, id as shown, json};
use crate::resolve::{Found, pick};
use crate::table::{Pairs, Table};
use caravan_sdk::QueryOptions;
use caravan_types::host_volume::{HostVolume, HostVolumeSpec, HostVolumeState, HostVolumeStub};
use std::time::Duration;

/// The longest time that one blocking query for a volume waits for a change.
const LOOK: Duration = Duration::from_secs(30);

/// Returns a query for the file's namespace, unless a flag or the environment names another.
fn namespace(ctx: &Ctx, spec: &HostVolumeSpec) -> QueryOptions {
    match ctx.client.config().namespace {
        None if !spec.namespace.is_empty() => ctx.query().namespace(spec.namespace.as_str()),
        _ => ctx.query(),
    }
}

/// Runs `volume create` for a host volume. Waits until its node offers the volume or creation has failed.
pub(crate) async fn create(ctx: &Ctx, spec: &HostVolumeSpec, detach: bool, verbose: bool) -> Outcome {
    let query = namespace(ctx, spec);
    let made = ctx.client.host_volumes().create(spec, &query).await.doing("Error creating volume")?.value;
    warn(ctx, &made.warnings);
    let volume = made.volume;
    ctx.out.line(&format!("==> Created host volume {} with ID {}", volume.name, volume.id));
    if detach {
        return Ok(0);
    }
    monitor(ctx, volume, &query, verbose).await
}

/// Runs `volume register` for a host volume.
pub(crate) async fn register(ctx: &Ctx, spec: &HostVolumeSpec) -> Outcome {
    let query = namespace(ctx, spec);
    let made =
        ctx.client.host_volumes().register(spec, &query).await.doing("Error registering volume")?.value;
    warn(ctx, &made.warnings);
    ctx.out.line(&format!("Registered host volume {} with ID {}", made.volume.name, made.volume.id));
    Ok(0)
}

fn warn(ctx: &Ctx, warnings: &str) {
    if !warnings.is_empty() {
        ctx.out.note(&format!("Volume Warnings:\n{warnings}\n"));
    }
}

/// Follows a volume until it is ready. A volume that becomes unavailable or vanishes does not recover by itself
/// (docs/design/rough-edges.md, 47).
async fn monitor(ctx: &Ctx, volume: HostVolume, query: &QueryOptions, verbose: bool) -> Outcome {
    let id = volume.id.clone();
    let short = shown(id.as_str(), verbose);
    let mut volume = volume;
    let mut printed = None;
    loop {
        if printed != Some(volume.state) {
            printed = Some(volume.state);
            ctx.out.note(&format!(
                "    {}: Volume \"{short}\" on node \"{}\" is {}",
                ctx.clock().stamp(),
                shown(volume.node_id.as_str(), verbose),
                volume.state.as_str()
            ));
        }
        match volume.state {
            HostVolumeState::Ready => return Ok(0),
            HostVolumeState::Unavailable => {
                let text =
                    format!("Volume \"{short}\" is unavailable: its node is down or does not offer it");
                return Err(CliError::failed(text));
            }
            HostVolumeState::Pending => {}
        }
        let wait = query.clone().newer_than(volume.modify_index, LOOK);
        let next = ctx.client.host_volumes().info(id.as_str(), &wait).await;
        volume = next.doing("Error monitoring volume")?.value;
    }
}

/// Returns the host volume with this id or unique prefix. With `by_name`, also matches names.
async fn meant(ctx: &Ctx, prefix: &str, by_name: bool) -> Result<Option<HostVolumeStub>, CliError> {
    let mut list = ctx
        .client
        .host_volumes()
        .list(&ctx.query().prefix(prefix))
        .await
        .doing("Error querying volumes")?
        .value;
    if !by_name {
        list.retain(|volume| volume.id.as_str().starts_with(prefix));
    }
    match pick(prefix, list, |volume| volume.id.as_str()) {
        Found::One(volume) => Ok(Some(volume)),
        Found::None => Ok(None),
        Found::Many(list) => {
            Err(CliError::failed(format!("Prefix matched multiple volumes\n\n{}", table(&list, true))))
        }
    }
}

/// Runs `volume delete` for a host volume.
pub(crate) async fn delete(ctx: &Ctx, prefix: &str, force: bool) -> Outcome {
    // A full id needs no query, and the agent's error for a missing volume is more precise.
    let (id, query) = match prefix.len() {
        36 => (prefix.to_owned(), ctx.query()),
        _ => {
            let none = || {
                CliError::failed(format!(
                    "Error deleting volume: no volumes with prefix or ID \"{prefix}\" found"
                ))
            };
            let stub = meant(ctx, prefix, false).await?.ok_or_else(none)?;
            (stub.id.to_string(), ctx.query().namespace(stub.namespace.as_str()))
        }
    };
    ctx.client.host_volumes().delete(&id, force, &query).await.doing("Error deleting volume")?;
    ctx.out.line(&format!("Successfully deleted volume \"{id}\"!"));
    Ok(0)
}

/// The output options for a volume or the list of volumes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shown<'a> {
    pub(crate) page: Option<&'a PageArgs>,
    pub(crate) json: bool,
    pub(crate) short: bool,
    pub(crate) verbose: bool,
    pub(crate) node: Option<&'a str>,
    pub(crate) node_pool: Option<&'a str>,
}

/// Shows one volume. Returns whether it exists.
pub(crate) async fn status(ctx: &Ctx, prefix: &str, shown: Shown<'_>) -> Result<bool, CliError> {
    let Some(stub) = meant(ctx, prefix, true).await? else { return Ok(false) };
    let query = ctx.query().namespace(stub.namespace.as_str());
    let volume =
        ctx.client.host_volumes().info(stub.id.as_str(), &query).await.doing("Error querying volume")?.value;
    let text = match shown.json {
        true => json(&volume)?,
        false => render(&ctx.clock(), &volume, shown),
    };
    ctx.out.line(&text);
    Ok(true)
}

/// Shows all host volumes.
pub(crate) async fn list(ctx: &Ctx, shown: Shown<'_>) -> Result<(), CliError> {
    let mut query = shown.page.map_or_else(|| ctx.query(), |page| page.over(ctx.query()));
    for (key, value) in [("node_id", shown.node), ("node_pool", shown.node_pool)] {
        if let Some(value) = value {
            query = query.param(key, value);
        }
    }
    let answer = ctx.client.host_volumes().list(&query).await.doing("Error querying host volumes")?;
    let volumes = answer.value;
    if shown.json {
        ctx.out.line(&json(&volumes)?);
        return Ok(());
    }
    ctx.out.line("Dynamic Host Volumes");
    match volumes.len() {
        0 => ctx.out.note("No dynamic host volumes"),
        _ => ctx.out.line(&table(&volumes, shown.verbose)),
    }
    more(ctx, &answer.meta);
    Ok(())
}

fn table(volumes: &[HostVolumeStub], verbose: bool) -> String {
    let rows = volumes.iter().map(|volume| {
        vec![
            shown(volume.id.as_str(), verbose),
            volume.name.clone(),
            volume.namespace.to_string(),
            volume.plugin_id.clone(),
            shown(volume.node_id.as_str(), verbose),
            volume.node_pool.clone(),
            volume.state.as_str().to_owned(),
        ]
    });
    let heading = ["ID", "Name", "Namespace", "Plugin ID", "Node ID", "Node Pool", "State"];
    Table::new(&heading).rows(rows).render()
}

fn render(clock: &Clock, volume: &HostVolume, how: Shown<'_>) -> String {
    let mut pairs = Pairs::new()
        .pair("ID", volume.id.as_str())
        .pair("Name", volume.name.as_str())
        .pair("Namespace", volume.namespace.as_str())
        .pair("Plugin ID", volume.plugin_id.as_str())
        .pair("Node ID", volume.node_id.as_str())
        .pair("Node Pool", volume.node_pool.as_str())
        .pair("Capacity", bytes(u64::try_from(volume.capacity_bytes).unwrap_or(0)))
        .pair("State", volume.state.as_str())
        .pair("Host Path", volume.host_path.as_str());
    if !volume.last_error.is_empty() {
        pairs.push("Last Error", volume.last_error.as_str());
    }
    let mut sections = vec![pairs.render()];
    if !how.short {
        let rows = volume
            .requested_capabilities
            .iter()
            .map(|c| vec![c.access_mode.to_string(), c.attachment_mode.to_string()]);
        let table = Table::new(&["Access Mode", "Attachment Mode"]).rows(rows);
        sections.push(format!("Capabilities\n{}", table.render()));
        let table = match volume.allocations.len() {
            0 => "No allocations placed".to_owned(),
            _ => {
                let columns = Columns { verbose: how.verbose, node_name: how.verbose };
                alloc::table(clock, &volume.allocations, columns).render()
            }
        };
        sections.push(format!("Allocations\n{table}"));
    }
    sections.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::clock;
    use caravan_types::volume::{AccessMode, AttachmentMode, Capability};

    #[test]
    fn a_volume_is_shown_with_its_node_and_modes() {
        let volume = HostVolume {
            id: "8e5b1e1a-0000-0000-0000-000000000001".into(),
            name: "data".into(),
            namespace: "default".into(),
            plugin_id: "mkdir".into(),
            node_id: "63126d9d-dd5a".into(),
            node_pool: "default".into(),
            state: HostVolumeState::Ready,
            host_path: "/srv/x".into(),
            requested_capabilities: vec![Capability {
                access_mode: AccessMode::SingleNodeWriter,
                attachment_mode: AttachmentMode::FileSystem,
            }],
            ..HostVolume::default()
        };
        let clock = clock("2026-11-21T09:23:12Z");
        let text = render(&clock, &volume, Shown::default());
        for part in [
            "ID        = 8e5b1e1a-0000-0000-0000-000000000001\n",
            "Capacity  = 0 B\nState     = ready\nHost Path = /srv/x\n\nCapabilities\n",
            "single-node-writer  file-system\n\nAllocations\nNo allocations placed",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let short = render(&clock, &volume, Shown { short: true, ..Shown::default() });
        assert!(!short.contains("Capabilities") && !short.contains("Last Error"));
        let row = table(&[volume.stub()], false);
        assert!(row.ends_with("\n8e5b1e1a  data  default    mkdir      63126d9d  default    ready"), "{row}");
    }
}
