//! `volume create` and `volume register`

use super::host;
use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::volumefile;
use caravan_hcl::volume::{HostVolumeSpec, VolumeSpec};
use caravan_sdk::{QueryOptions, VolumeDetail, VolumesResponse};
use caravan_types::volume::VolumeRequestBody;
use std::future::Future;
use std::time::Duration;

/// Flags of `volume create`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct CreateArgs {
    /// Return at once instead of waiting until a host volume is ready
    #[arg(long)]
    detach: bool,
    /// Id of the host volume to update
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Accepted for compatibility; has no effect
    #[arg(long, hide = true)]
    policy_override: bool,
    /// Volume file, - for standard input
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `volume register`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RegisterArgs {
    /// Id of the host volume to update
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Accepted for compatibility; has no effect
    #[arg(long, hide = true)]
    policy_override: bool,
    /// Volume file, - for standard input
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

/// The time after which the wait of a call is explained, and the interval between explanations.
const EXPLAIN_INTERVAL: Duration = Duration::from_secs(2);

const USAGE: &str = "This command takes one argument: <input>";

/// Runs `volume create`.
pub(crate) async fn create(ctx: &Ctx, args: &CreateArgs) -> Outcome {
    let volume = match volumefile::load(&ctx.out, one(&args.args, USAGE)?)? {
        VolumeSpec::Csi(volume) => *volume,
        VolumeSpec::Host(spec) => {
            let spec = identified(*spec, args.id.as_deref());
            return host::create(ctx, &spec, args.detach, args.verbose).await;
        }
    };
    let query = namespace(ctx, &volume);
    let volumes = ctx.client.volumes();
    let call = volumes.create(&volume, &query);
    let answer = explained(ctx, &volume, &query, call).await.doing("Error creating volume")?.value;
    warn(ctx, &answer);
    if answer.volumes.is_empty() {
        return Err(CliError::failed("Error creating volume: the agent answered without a volume"));
    }
    for made in &answer.volumes {
        ctx.out.line(&format!("Created external volume {} with ID {}", made.external_id, made.id));
    }
    Ok(0)
}

/// Runs `volume register`.
pub(crate) async fn register(ctx: &Ctx, args: &RegisterArgs) -> Outcome {
    let volume = match volumefile::load(&ctx.out, one(&args.args, USAGE)?)? {
        VolumeSpec::Csi(volume) => *volume,
        VolumeSpec::Host(spec) => return host::register(ctx, &identified(*spec, args.id.as_deref())).await,
    };
    let query = namespace(ctx, &volume);
    let volumes = ctx.client.volumes();
    let call = volumes.register(&volume, &query);
    let answer = explained(ctx, &volume, &query, call).await.doing("Error registering volume")?.value;
    warn(ctx, &answer);
    ctx.out.line(&format!("Volume \"{}\" registered", volume.id));
    Ok(0)
}

/// Returns the specification with the id of the flag, which overrides the id in the file.
fn identified(spec: HostVolumeSpec, id: Option<&str>) -> HostVolumeSpec {
    match id {
        Some(id) => HostVolumeSpec { id: id.to_owned(), ..spec },
        None => spec,
    }
}

/// Returns a query for the file's namespace, unless a flag or the environment names another.
fn namespace(ctx: &Ctx, volume: &VolumeRequestBody) -> QueryOptions {
    match ctx.client.config().namespace {
        None if !volume.namespace.is_empty() => ctx.query().namespace(volume.namespace.as_str()),
        _ => ctx.query(),
    }
}

fn warn(ctx: &Ctx, answer: &VolumesResponse) {
    if !answer.warnings.is_empty() {
        ctx.out.note(&format!("Volume Warnings:\n{}\n", answer.warnings));
    }
}

/// Waits for a call. Prints wait reasons if the call takes long.
async fn explained<T>(
    ctx: &Ctx,
    volume: &VolumeRequestBody,
    query: &QueryOptions,
    call: impl Future<Output = T>,
) -> T {
    let mut call = Box::pin(call);
    let mut reported = String::new();
    loop {
        tokio::select! {
            done = &mut call => return done,
            () = tokio::time::sleep(EXPLAIN_INTERVAL) => {}
        }
        // The explanation is optional: without an answer from the agent, a generic text is printed.
        let volumes = ctx.client.volumes();
        let detail = tokio::select! {
            done = &mut call => return done,
            detail = volumes.info(volume.id.as_str(), query) => detail.ok().map(|answer| answer.value),
        };
        let now = progress(volume, detail.as_ref());
        if now != reported {
            ctx.out.note(&format!("==> {}: {now}", ctx.clock().stamp()));
            reported = now;
        }
    }
}

fn progress(volume: &VolumeRequestBody, detail: Option<&VolumeDetail>) -> String {
    let what = format!("Waiting for plugin \"{}\" to answer for volume \"{}\"", volume.plugin_id, volume.id);
    match detail.map(|detail| detail.last_error.as_str()) {
        Some(error) if !error.is_empty() => format!("{what}: {error}"),
        _ => what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_names_the_plugin_and_its_trouble() {
        let volume =
            VolumeRequestBody { id: "data".into(), plugin_id: "hostpath".into(), ..Default::default() };
        let what = "Waiting for plugin \"hostpath\" to answer for volume \"data\"";
        assert_eq!(progress(&volume, None), what);
        let detail = VolumeDetail { last_error: "no space".into(), ..Default::default() };
        assert_eq!(progress(&volume, Some(&detail)), format!("{what}: no space"));
    }
}
