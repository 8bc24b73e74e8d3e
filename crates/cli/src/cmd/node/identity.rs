//! `node identity get|renew`, `node intro create`.

use crate::cmd::operator::keyring::{IntroductionArgs, introduce};
use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{Doing as _, Outcome};
use crate::table::Pairs;
use clap::Subcommand;
use serde_json::Value;

/// Verbs of the identities of nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum IdentityVerb {
    /// Show what a node's identity says
    Get(GetArgs),
    /// Have a node ask for a new identity
    Renew(RenewArgs),
}

/// Flags of `node identity get`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Node
    #[arg(value_name = "NODE", num_args = 0..)]
    args: Vec<String>,
}

/// Arguments of `node identity renew`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RenewArgs {
    /// Node
    #[arg(value_name = "NODE", num_args = 0..)]
    args: Vec<String>,
}

/// Verbs of letting nodes in.
#[derive(Debug, Subcommand)]
pub(crate) enum IntroVerb {
    /// Make a token that lets a node in
    Create(IntroductionArgs),
}

/// Runs a verb of identities.
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
            let told = |value: &Value| match value {
                Value::String(text) => text.clone(),
                // Times are whole seconds, told as numbers of any kind.
                Value::Number(n) => n.as_f64().map_or_else(|| n.to_string(), |n| format!("{n:.0}")),
                other => other.to_string(),
            };
            let claims = claims.as_object().into_iter().flatten();
            let pairs = claims.fold(Pairs::new(), |pairs, (name, value)| pairs.pair(name, told(value)));
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

/// Runs a verb of letting nodes in.
pub(crate) async fn intro(ctx: &Ctx, verb: &IntroVerb) -> Outcome {
    let IntroVerb::Create(args) = verb;
    introduce(ctx, args).await
}
