//! What only the reference's paying users have: the agent is asked, and its refusal is shown.

use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{CliError, Doing as _, Outcome};
use clap::Subcommand;

/// Flags and arguments that such verbs take; none of them has an effect.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct AnyArgs {
    /// Show or read JSON
    #[arg(long)]
    json: bool,
    /// Show the answer through a template, as of Go's text/template
    #[arg(short = 't', value_name = "TEMPLATE")]
    template: Option<String>,
    /// Show everything
    #[arg(long)]
    verbose: bool,
    /// What is meant
    #[arg(value_name = "ARG", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `license get`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct LicenseArgs {
    /// Any server may answer
    #[arg(long)]
    stale: bool,
    #[command(flatten)]
    any: AnyArgs,
}

/// Verbs of the licence.
#[derive(Debug, Subcommand)]
pub(crate) enum LicenseVerb {
    /// Show the licence
    Get(LicenseArgs),
    /// Show the licence in a file
    Inspect(AnyArgs),
}

/// Verbs of quotas.
#[derive(Debug, Subcommand)]
pub(crate) enum QuotaVerb {
    /// Make or change a quota
    Apply(AnyArgs),
    /// Remove a quota
    Delete(AnyArgs),
    /// Write an example of a quota
    Init(AnyArgs),
    /// Show a quota with its use
    Inspect(AnyArgs),
    /// List the quotas
    List(DataArgs),
    /// Show a quota's state
    Status(AnyArgs),
}

/// Flags of `recommendation list`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RecommendationListArgs {
    /// Of this job
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Of this task
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    #[command(flatten)]
    data: DataArgs,
}

/// Flags of `recommendation apply`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RecommendationApplyArgs {
    /// Do not follow the evaluations
    #[arg(long)]
    detach: bool,
    /// Override soft policies
    #[arg(long)]
    policy_override: bool,
    #[command(flatten)]
    any: AnyArgs,
}

/// Verbs of recommendations.
#[derive(Debug, Subcommand)]
pub(crate) enum RecommendationVerb {
    /// Follow recommendations
    Apply(RecommendationApplyArgs),
    /// Dismiss recommendations
    Dismiss(AnyArgs),
    /// Show a recommendation
    Info(AnyArgs),
    /// List the recommendations
    List(RecommendationListArgs),
}

/// Flags of `sentinel apply`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SentinelApplyArgs {
    /// What the policy is for
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// What it is about
    #[arg(long, value_name = "SCOPE")]
    scope: Option<String>,
    /// How strictly it holds
    #[arg(long, value_name = "LEVEL")]
    level: Option<String>,
    #[command(flatten)]
    any: AnyArgs,
}

/// Flags of `sentinel read`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SentinelReadArgs {
    /// Only the policy's text
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    any: AnyArgs,
}

/// Verbs of Sentinel policies.
#[derive(Debug, Subcommand)]
pub(crate) enum SentinelVerb {
    /// Make or change a policy
    Apply(SentinelApplyArgs),
    /// Remove a policy
    Delete(AnyArgs),
    /// List the policies
    List(DataArgs),
    /// Show a policy
    Read(SentinelReadArgs),
}

/// There is no licence to be had: the program is free.
pub(crate) async fn license(ctx: &Ctx, verb: &LicenseVerb) -> Outcome {
    let doing = match verb {
        LicenseVerb::Get(_) => "Error getting license",
        LicenseVerb::Inspect(_) => "Error inspecting license",
    };
    // The agent is asked all the same, so that a wrong address or token is told.
    let answer: Result<caravan_sdk::Response<Option<serde_json::Value>>, _> =
        ctx.client.get("/v1/operator/license", &ctx.query()).await;
    answer.doing(doing)?;
    Err(CliError::failed(format!("{doing}: Nomad Enterprise only endpoint")))
}

/// Quotas.
pub(crate) async fn quota(ctx: &Ctx, verb: &QuotaVerb) -> Outcome {
    let doing = match verb {
        QuotaVerb::Apply(_) => "Error applying quota specification",
        QuotaVerb::Delete(_) => "Error deleting quota",
        QuotaVerb::Init(_) => "Error making an example of a quota",
        QuotaVerb::Inspect(_) | QuotaVerb::Status(_) => "Error retrieving quota",
        QuotaVerb::List(_) => "Error retrieving quotas",
    };
    ask(ctx, "/v1/quotas", doing).await
}

/// Recommendations.
pub(crate) async fn recommendation(ctx: &Ctx, verb: &RecommendationVerb) -> Outcome {
    let doing = match verb {
        RecommendationVerb::Apply(_) => "Error applying recommendations",
        RecommendationVerb::Dismiss(_) => "Error dismissing recommendations",
        RecommendationVerb::Info(_) => "Error reading recommendation",
        RecommendationVerb::List(_) => "Error listing recommendations",
    };
    ask(ctx, "/v1/recommendations", doing).await
}

/// Sentinel policies.
pub(crate) async fn sentinel(ctx: &Ctx, verb: &SentinelVerb) -> Outcome {
    let doing = match verb {
        SentinelVerb::Apply(_) => "Error writing Sentinel policy",
        SentinelVerb::Delete(_) => "Error deleting Sentinel policy",
        SentinelVerb::List(_) => "Error listing Sentinel policies",
        SentinelVerb::Read(_) => "Error reading Sentinel policy",
    };
    ask(ctx, "/v1/sentinel/policies", doing).await
}

/// Asks for it, and shows what the agent says.
async fn ask(ctx: &Ctx, path: &str, doing: &str) -> Outcome {
    let answer: Result<caravan_sdk::Response<serde_json::Value>, _> =
        ctx.client.get(path, &ctx.query()).await;
    let answer = answer.doing(doing)?;
    ctx.out.line(&crate::format::json(&answer.value)?);
    Ok(0)
}
