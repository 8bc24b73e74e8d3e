//! `job tag …`

use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::resolve;
use clap::Subcommand;

/// Subcommands of `job tag`.
#[derive(Debug, Subcommand)]
pub(crate) enum TagVerb {
    /// Tag a version of a job, which protects the version from garbage collection
    Apply(ApplyArgs),
    /// Remove the tag of a version
    Unset(UnsetArgs),
}

/// Flags of `job tag apply`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ApplyArgs {
    /// Name of the tag
    #[arg(long, value_name = "NAME", default_value_t, hide_default_value = true)]
    name: String,
    /// Version to tag [default: the newest]
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// Description of the tag
    #[arg(long, value_name = "TEXT", default_value_t, hide_default_value = true)]
    description: String,
    /// Job id or prefix
    #[arg(value_name = "JOB", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `job tag unset`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct UnsetArgs {
    /// Name of the tag
    #[arg(long, value_name = "NAME", default_value_t, hide_default_value = true)]
    name: String,
    /// Job id or prefix
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

pub(crate) async fn run(ctx: &Ctx, verb: &TagVerb) -> Outcome {
    match verb {
        TagVerb::Apply(args) => apply(ctx, args).await,
        TagVerb::Unset(args) => unset(ctx, args).await,
    }
}

async fn apply(ctx: &Ctx, args: &ApplyArgs) -> Outcome {
    let supplied = one(&args.args, USAGE)?;
    named(&args.name)?;
    let job = resolve::job(ctx, supplied).await?;
    let query = ctx.query().namespace(job.namespace.as_str());
    // Send the number of the newest version too, so that the printed version is the tagged one.
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
    let supplied = one(&args.args, USAGE)?;
    named(&args.name)?;
    let job = resolve::job(ctx, supplied).await?;
    let query = ctx.query().namespace(job.namespace.as_str());
    ctx.client.scaling().untag_version(job.id.as_str(), &args.name, &query).await.doing(DOING)?;
    ctx.out.line(&format!("Tag \"{}\" removed from job \"{}\"", args.name, job.id));
    Ok(0)
}
