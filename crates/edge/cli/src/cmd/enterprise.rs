//! Commands for features of Nomad Enterprise: each sends the request and shows the agent's refusal.

use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{CliError, Doing as _, Outcome};
use clap::Subcommand;

/// Flags and arguments that these commands accept. None of them has an effect.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct AnyArgs {
    /// Show or read JSON
    #[arg(long)]
    json: bool,
    /// Format the answer with a Go template
    #[arg(short = 't', value_name = "TEMPLATE")]
    template: Option<String>,
    /// Show all details
    #[arg(long)]
    verbose: bool,
    /// Arguments, which have no effect
    #[arg(value_name = "ARG", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `license get`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct LicenseArgs {
    /// Let any server answer, possibly with stale data
    #[arg(long)]
    stale: bool,
    #[command(flatten)]
    any: AnyArgs,
}

/// Subcommands of `license`.
#[derive(Debug, Subcommand)]
pub(crate) enum LicenseVerb {
    /// Show the license
    Get(LicenseArgs),
    /// Show the license in a file
    Inspect(AnyArgs),
}

/// Subcommands of `quota`.
#[derive(Debug, Subcommand)]
pub(crate) enum QuotaVerb {
    /// Create or update a quota
    Apply(AnyArgs),
    /// Delete a quota
    Delete(AnyArgs),
    /// Write an example quota file
    Init(AnyArgs),
    /// Show a quota with its usage
    Inspect(AnyArgs),
    /// List quotas
    List(DataArgs),
    /// Show a quota's status
    Status(AnyArgs),
}

/// Flags of `recommendation list`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RecommendationListArgs {
    /// Show only recommendations for this job
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Show only recommendations for this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Show only recommendations for this task
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    #[command(flatten)]
    data: DataArgs,
}

/// Flags of `recommendation apply`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RecommendationApplyArgs {
    /// Return at once instead of following the evaluations
    #[arg(long)]
    detach: bool,
    /// Override soft-mandatory policies
    #[arg(long)]
    policy_override: bool,
    #[command(flatten)]
    any: AnyArgs,
}

/// Subcommands of `recommendation`.
#[derive(Debug, Subcommand)]
pub(crate) enum RecommendationVerb {
    /// Apply recommendations
    Apply(RecommendationApplyArgs),
    /// Dismiss recommendations
    Dismiss(AnyArgs),
    /// Show a recommendation
    Info(AnyArgs),
    /// List recommendations
    List(RecommendationListArgs),
}

/// Flags of `sentinel apply`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SentinelApplyArgs {
    /// Description of the policy
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Scope of the policy
    #[arg(long, value_name = "SCOPE")]
    scope: Option<String>,
    /// Enforcement level of the policy
    #[arg(long, value_name = "LEVEL")]
    level: Option<String>,
    #[command(flatten)]
    any: AnyArgs,
}

/// Flags of `sentinel read`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SentinelReadArgs {
    /// Show only the policy's text
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    any: AnyArgs,
}

/// Subcommands of `sentinel`.
#[derive(Debug, Subcommand)]
pub(crate) enum SentinelVerb {
    /// Create or update a policy
    Apply(SentinelApplyArgs),
    /// Delete a policy
    Delete(AnyArgs),
    /// List policies
    List(DataArgs),
    /// Show a policy
    Read(SentinelReadArgs),
}

/// Runs a subcommand of `license`. The program is free and has no license to show.
pub(crate) async fn license(ctx: &Ctx, verb: &LicenseVerb) -> Outcome {
    let doing = match verb {
        LicenseVerb::Get(_) => "Error getting license",
        LicenseVerb::Inspect(_) => "Error inspecting license",
    };
    // Send a request all the same, so that a wrong address or token is reported.
    let answer: Result<caravan_sdk::Response<Option<serde_json::Value>>, _> =
        ctx.client.get("/v1/operator/license", &ctx.query()).await;
    answer.doing(doing)?;
    Err(CliError::failed(format!("{doing}: Nomad Enterprise only endpoint")))
}

/// Runs a subcommand of `quota`.
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

/// Runs a subcommand of `recommendation`.
pub(crate) async fn recommendation(ctx: &Ctx, verb: &RecommendationVerb) -> Outcome {
    let doing = match verb {
        RecommendationVerb::Apply(_) => "Error applying recommendations",
        RecommendationVerb::Dismiss(_) => "Error dismissing recommendations",
        RecommendationVerb::Info(_) => "Error reading recommendation",
        RecommendationVerb::List(_) => "Error listing recommendations",
    };
    ask(ctx, "/v1/recommendations", doing).await
}

/// Runs a subcommand of `sentinel`.
pub(crate) async fn sentinel(ctx: &Ctx, verb: &SentinelVerb) -> Outcome {
    let doing = match verb {
        SentinelVerb::Apply(_) => "Error writing Sentinel policy",
        SentinelVerb::Delete(_) => "Error deleting Sentinel policy",
        SentinelVerb::List(_) => "Error listing Sentinel policies",
        SentinelVerb::Read(_) => "Error reading Sentinel policy",
    };
    ask(ctx, "/v1/sentinel/policies", doing).await
}

/// Sends the request and shows the agent's answer.
async fn ask(ctx: &Ctx, path: &str, doing: &str) -> Outcome {
    let answer: Result<caravan_sdk::Response<serde_json::Value>, _> =
        ctx.client.get(path, &ctx.query()).await;
    let answer = answer.doing(doing)?;
    ctx.out.line(&crate::format::json(&answer.value)?);
    Ok(0)
}
