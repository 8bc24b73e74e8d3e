//! `job tag …`

use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::resolve;
use clap::Subcommand;

/// Verbs of names of versions.
#[derive(Debug, Subcommand)]
pub(crate) enum TagVerb {
    /// Name a version of a job, which keeps it from being forgotten
    Apply(ApplyArgs),
    /// Take the name of a version away
    Unset(UnsetArgs),
}

/// Flags of `job tag apply`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ApplyArgs {
    /// The name
    #[arg(long, value_name = "NAME", default_value_t, hide_default_value = true)]
    name: String,
    /// The version; the newest if none is named
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// Words about it
    #[arg(long, value_name = "TEXT", default_value_t, hide_default_value = true)]
    description: String,
    /// Job
    #[arg(value_name = "JOB", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `job tag unset`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct UnsetArgs {
    /// The name
    #[arg(long, value_name = "NAME", default_value_t, hide_default_value = true)]
    name: String,
    /// Job
    #[arg(value_name = "JOB", num_args = 0..)]
    args: Vec<String>,
}

const USAGE: &str = "This command takes one argument: <job>";
const DOING: &str = "Error tagging job version";

fn named(name: &str) -> Result<(), CliError> {
    match name {
        "" => Err(CliError::Usage("A version tag name must be specified using the -name flag".into())),
        _ => Ok(()),
    }
}

/// Runs them.
pub(crate) async fn run(ctx: &Ctx, verb: &TagVerb) -> Outcome {
    match verb {
        TagVerb::Apply(args) => apply(ctx, args).await,
        TagVerb::Unset(args) => unset(ctx, args).await,
    }
}

async fn apply(ctx: &Ctx, args: &ApplyArgs) -> Outcome {
    let given = one(&args.args, USAGE)?;
    named(&args.name)?;
    let job = resolve::job(ctx, given).await?;
    let query = ctx.query().namespace(job.namespace.as_str());
    // The newest is named by its number as well, so that what is said is what was done.
    let version = match args.version {
        Some(version) => version,
        None => ctx.client.jobs().info(job.id.as_str(), &query).await.doing(DOING)?.value.version,
    };
    let scaling = ctx.client.scaling();
    let tagging = scaling.tag_version(job.id.as_str(), &args.name, Some(version), &args.description, &query);
    tagging.await.doing(DOING)?;
    ctx.out.line(&format!("Job version {version} tagged with name \"{}\"", args.name));
    Ok(0)
}

async fn unset(ctx: &Ctx, args: &UnsetArgs) -> Outcome {
    let given = one(&args.args, USAGE)?;
    named(&args.name)?;
    let job = resolve::job(ctx, given).await?;
    let query = ctx.query().namespace(job.namespace.as_str());
    ctx.client.scaling().untag_version(job.id.as_str(), &args.name, &query).await.doing(DOING)?;
    ctx.out.line(&format!("Tag \"{}\" removed from job \"{}\"", args.name, job.id));
    Ok(0)
}
