//! `node identity get|renew`, `node intro create`.

use crate::cmd::operator::keyring::{IntroductionArgs, introduce};
use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{Doing as _, Outcome};
use crate::table::Pairs;
use clap::Subcommand;
use serde_json::Value;

/// Subcommands of `node identity`.
#[derive(Debug, Subcommand)]
pub(crate) enum IdentityVerb {
    /// Show the claims of a node's identity
    Get(GetArgs),
    /// Make a node request a new identity
    Renew(RenewArgs),
}

/// Flags of `node identity get`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Node id or prefix
    #[arg(value_name = "NODE", num_args = 0..)]
    args: Vec<String>,
}

/// Arguments of `node identity renew`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RenewArgs {
    /// Node id or prefix
    #[arg(value_name = "NODE", num_args = 0..)]
    args: Vec<String>,
}

/// Subcommands of `node intro`.
#[derive(Debug, Subcommand)]
pub(crate) enum IntroVerb {
    /// Create an introduction token, with which a node can join
    Create(IntroductionArgs),
}

/// Runs a subcommand of `node identity`.
pub(crate) async fn run(ctx: &Ctx, verb: &IdentityVerb) -> Outcome {
    let usage = "This command takes one argument: <node_id>";
    match verb {
        IdentityVerb::Get(args) => {
            let node = crate::resolve::node(ctx, crate::cmd::one(&args.args, usage)?).await?.id.to_string();
            let query = ctx.query().param("node_id", &node);
            let answer: caravan_sdk::Response<Value> =
                ctx.client.get("/v1/client/identity", &query).await.doing("Error querying node identity")?;
            let claims = match &answer.value["Claims"] {
                Value::Null => &answer.value,
                claims => claims,
            };
            if let Some(shown) = args.data.show(ctx, claims) {
                return shown;
            }
            let reported = |value: &Value| match value {
                Value::String(text) => text.clone(),
                // Times are whole seconds, but JSON may encode them as integers or floats.
                Value::Number(n) => n.as_f64().map_or_else(|| n.to_string(), |n| format!("{n:.0}")),
                other => other.to_string(),
            };
            let claims = claims.as_object().into_iter().flatten();
            let pairs = claims.fold(Pairs::new(), |pairs, (name, value)| pairs.pair(name, reported(value)));
            ctx.out.line(&pairs.render());
            Ok(0)
        }
        IdentityVerb::Renew(args) => {
            let node = crate::resolve::node(ctx, crate::cmd::one(&args.args, usage)?).await?.id.to_string();
            let query = ctx.query().param("node_id", &node);
            let done: Result<caravan_sdk::Response<Value>, _> =
                ctx.client.put("/v1/client/identity/renew", &query, &()).await;
            done.doing("Error requesting node identity renewal")?;
            Ok(0)
        }
    }
}

/// Runs a subcommand of `node intro`.
pub(crate) async fn intro(ctx: &Ctx, verb: &IntroVerb) -> Outcome {
    let IntroVerb::Create(args) = verb;
    introduce(ctx, args).await
}
