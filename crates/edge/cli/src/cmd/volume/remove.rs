//! `volume deregister`, `volume delete` and `volume detach`

use super::{Kind, host, kind, meant};
use crate::cmd::{one, wrong_count};
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::coarse;
use crate::resolve;
use caravan_api::ErrorReason;
use caravan_sdk::QueryOptions;
use caravan_types::ser::Secrets;
use caravan_types::time::Nanos;
use std::fmt;

/// Flags of `volume deregister`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DeregisterArgs {
    /// Deregister the volume even while it is in use; prompts first
    #[arg(long)]
    force: bool,
    /// Volume id or prefix
    #[arg(value_name = "VOLUME", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `volume delete`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DeleteArgs {
    /// Type of volume: csi or host [default: csi]
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Delete a host volume even if its node no longer exists
    #[arg(long)]
    force: bool,
    /// Secret for the plugin, KEY=VALUE; may be repeated
    #[arg(long = "secret", value_name = "KEY=VALUE")]
    secrets: Vec<Secret>,
    /// Volume id or prefix
    #[arg(value_name = "VOLUME", num_args = 0..)]
    args: Vec<String>,
}

/// A secret as typed. `Debug` hides the secret. Parsing the argument never fails, because the error would show it.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[REDACTED]")
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// Splits the typed secrets into keys and values.
pub(super) fn pairs(typed: &[Secret]) -> Result<Secrets, CliError> {
    let pair = |secret: &Secret| {
        let (key, value) = secret.0.split_once('=')?;
        Some((key.to_owned(), value.to_owned()))
    };
    let pairs: Option<_> = typed.iter().map(pair).collect();
    let pairs = pairs.ok_or_else(|| CliError::failed("A secret must be of the form KEY=VALUE"))?;
    Ok(Secrets::new(pairs))
}

/// Flags of `volume detach`.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(override_usage = "caravan volume detach [OPTIONS] <VOLUME> <NODE>")]
pub(crate) struct DetachArgs {
    /// Volume id, and a node id or prefix
    #[arg(value_name = "VOLUME NODE", num_args = 0..)]
    args: Vec<String>,
}

/// Runs `volume deregister`.
pub(crate) async fn deregister(ctx: &Ctx, args: &DeregisterArgs) -> Outcome {
    let supplied = one(&args.args, "This command takes one argument: <id>")?;
    let volume = meant(ctx, supplied).await?;
    let id = volume.id.as_str();
    if args.force {
        let question = format!("Are you sure you want to force deregister volume \"{id}\"? [y/N]");
        if !ctx.out.ask(&question, &["y"]) {
            return Err(CliError::failed("Cancelling volume deregister"));
        }
    }
    let query = ctx.query().namespace(volume.namespace.as_str());
    let done = ctx.client.volumes().deregister(id, args.force, &query).await;
    users(ctx, id, &query, done.as_ref().err()).await;
    done.doing("Error deregistering volume")?;
    ctx.out.line(&format!("Successfully deregistered volume \"{id}\"!"));
    Ok(0)
}

/// Prints which allocations use a volume that could not be removed because it is in use.
async fn users(ctx: &Ctx, id: &str, query: &QueryOptions, error: Option<&caravan_sdk::Error>) {
    let is_used = |error: &caravan_sdk::Error| match error.reason() {
        Some(reason) => reason == ErrorReason::VolumeInUse,
        // Nomad's servers and older releases send no reason.
        None => error.to_string().contains("volume in use"),
    };
    if !error.is_some_and(is_used) {
        return;
    }
    // The caller reports the error itself, so a failed query costs only this note.
    let Ok(detail) = ctx.client.volumes().info(id, query).await else { return };
    for claim in detail.value.claims.iter().filter(|claim| claim.phase.holds()) {
        ctx.out.note(&format!(
            "Allocation {} of job \"{}\" uses the volume (claim {})",
            claim.alloc_id.short(),
            claim.job_id,
            claim.phase.as_str()
        ));
    }
}

/// Runs `volume delete`.
pub(crate) async fn delete(ctx: &Ctx, args: &DeleteArgs) -> Outcome {
    let id = one(&args.args, "This command takes one argument: <vol id>")?;
    if kind(args.kind.as_deref())? == Some(Kind::Host) {
        return host::delete(ctx, id, args.force).await;
    }
    let done = ctx.client.volumes().delete(id, &pairs(&args.secrets)?, &ctx.query()).await;
    users(ctx, id, &ctx.query(), done.as_ref().err()).await;
    done.doing("Error deleting volume")?;
    ctx.out.line(&format!("Successfully deleted volume \"{id}\"!"));
    Ok(0)
}

/// Runs `volume detach`. A removed node is found through the volume's claims.
pub(crate) async fn detach(ctx: &Ctx, args: &DetachArgs) -> Outcome {
    let [volume, node] = args.args.as_slice() else {
        return Err(wrong_count(&args.args, 2, "This command takes two arguments: <vol id> <node id>"));
    };
    let node = match node.len() {
        36 => node.clone(),
        _ => holder(ctx, volume, node).await?,
    };
    ctx.client.volumes().detach(volume, &node, &ctx.query()).await.doing("Error detaching volume")?;
    waits(ctx, volume, &node).await;
    Ok(0)
}

/// Prints how long the servers still wait for a node that is not in contact.
async fn waits(ctx: &Ctx, volume: &str, node: &str) {
    // The detach itself succeeded, so a failed query costs only this note.
    let Ok(reported) = ctx.client.volumes().explain(volume, &ctx.query()).await else { return };
    let of_node = reported.value.claims.iter().filter(|claim| claim.node_id == *node);
    if let Some(left) = of_node.map(|claim| claim.fence_left).max().filter(|left| left.0 > 0) {
        ctx.out.note(&format!(
            "Node {} is not in contact: the volume is handed on in {}, when the tasks of the node have certainly ended. \
             If its machine is certainly off, end the wait with: caravan node fence -confirm-off {node}",
            crate::format::id(node, false),
            coarse(Nanos(left.0.saturating_add(999_999_999))),
        ));
    }
}

/// Returns the node that has a claim on the volume and whose id has this prefix, or else any node with the prefix.
async fn holder(ctx: &Ctx, volume: &str, prefix: &str) -> Result<String, CliError> {
    let held = ctx.client.volumes().info(volume, &ctx.query()).await;
    let mut nodes: Vec<String> = match &held {
        Ok(detail) => detail.value.claims.iter().map(|claim| claim.node_id.to_string()).collect(),
        // The detach request itself reports any error about the volume.
        Err(_) => Vec::new(),
    };
    nodes.retain(|node| node.starts_with(prefix));
    nodes.sort_unstable();
    nodes.dedup();
    match nodes.as_slice() {
        [one] => Ok(one.clone()),
        _ => Ok(resolve::node(ctx, prefix).await?.id.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_never_shown() {
        let args = DeleteArgs { secrets: vec!["hunter2".to_owned().into()], ..Default::default() };
        let error = pairs(&args.secrets).unwrap_err().to_string();
        assert!(!format!("{args:?}{error}").contains("hunter2"));
        let args = DeleteArgs { secrets: vec!["k=a=b".to_owned().into()], ..Default::default() };
        assert_eq!(pairs(&args.secrets).unwrap().expose()["k"], "a=b");
    }
}
