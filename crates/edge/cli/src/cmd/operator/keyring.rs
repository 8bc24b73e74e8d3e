//! `operator root keyring ...`, `operator gossip keyring ...`, `operator client-introduction ...`

use crate::cmd::{duration_of, one};
use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format;
use crate::table::Table;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use caravan_types::operator::RootKeyMeta;
use clap::Subcommand;
use rand::TryRngCore as _;
use serde_json::json;
use std::collections::BTreeMap;

/// Subcommands of `operator root`.
#[derive(Debug, Subcommand)]
pub(crate) enum RootVerb {
    /// Root keys, which seal variables and sign identities: list, remove, rotate
    #[command(subcommand)]
    Keyring(KeyringVerb),
}

/// Subcommands of `operator root keyring`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyringVerb {
    /// List the keys
    List(ListArgs),
    /// Remove a key
    Remove(RemoveArgs),
    /// Create a new key
    Rotate(RotateArgs),
}

/// Flags of `operator root keyring list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    data: DataArgs,
}

/// Flags of `operator root keyring remove`.
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    /// Remove the key even if variables are sealed with it
    #[arg(long)]
    force: bool,
    /// Id of the key to remove
    #[arg(value_name = "KEY", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `operator root keyring rotate`.
#[derive(Debug, clap::Args)]
pub(crate) struct RotateArgs {
    /// Re-encrypt all variables with the new key
    #[arg(long)]
    full: bool,
    /// Use the new key at once
    #[arg(long)]
    now: bool,
    /// Publish the new key now and use it after this duration
    #[arg(long, value_name = "DURATION")]
    prepublish: Option<String>,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    data: DataArgs,
}

/// Subcommands of `operator gossip`.
#[derive(Debug, Subcommand)]
pub(crate) enum GossipVerb {
    /// Keys that encrypt traffic between servers: generate, install, list, remove, use
    #[command(subcommand)]
    Keyring(GossipKeyringVerb),
}

/// Subcommands of `operator gossip keyring`.
#[derive(Debug, Subcommand)]
pub(crate) enum GossipKeyringVerb {
    /// Generate a key
    Generate,
    /// Install a key on all servers
    Install(KeyArgs),
    /// List the keys
    List,
    /// Remove a key from all servers
    Remove(KeyArgs),
    /// Make all servers encrypt with a key
    Use(KeyArgs),
}

/// Arguments of the subcommands that take one gossip key.
#[derive(clap::Args)]
pub(crate) struct KeyArgs {
    /// Gossip key
    #[arg(value_name = "KEY", num_args = 0..)]
    args: Vec<String>,
}

// Written by hand, so that `Debug` hides the key.
impl std::fmt::Debug for KeyArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyArgs").field("given", &self.args.len()).finish_non_exhaustive()
    }
}

/// Subcommands of `operator client-introduction`.
#[derive(Debug, Subcommand)]
pub(crate) enum IntroductionVerb {
    /// Introduction tokens, with which nodes join: create
    #[command(subcommand)]
    Token(IntroductionTokenVerb),
}

/// Subcommands of `operator client-introduction token`.
#[derive(Debug, Subcommand)]
pub(crate) enum IntroductionTokenVerb {
    /// Create an introduction token
    Create(IntroductionArgs),
}

/// Flags of `node intro create`.
#[derive(Debug, clap::Args)]
pub(crate) struct IntroductionArgs {
    /// Name of the node that may use the token
    #[arg(long, default_value = "", hide_default_value = true)]
    node_name: String,
    /// Node pool of the node that may use the token
    #[arg(long, default_value = "", hide_default_value = true)]
    node_pool: String,
    /// Time to live of the token
    #[arg(long, default_value = "", hide_default_value = true)]
    ttl: String,
    #[command(flatten)]
    data: DataArgs,
}

/// Runs a subcommand of `operator root keyring`.
pub(crate) async fn run(ctx: &Ctx, verb: &KeyringVerb) -> Outcome {
    let operator = ctx.client.operator();
    match verb {
        KeyringVerb::List(args) => {
            let keys = operator.keys(&ctx.query()).await.doing("error")?;
            if let Some(shown) = args.data.show(ctx, &keys) {
                return shown;
            }
            ctx.out.line(&table(ctx, &keys, args.verbose));
            Ok(0)
        }
        KeyringVerb::Remove(args) => {
            let id = one(&args.args, "This command requires one argument: <key ID>")?;
            let mut query = ctx.query();
            if args.force {
                query = query.param("force", "true");
            }
            operator.delete_key(id, &query).await.doing("error")?;
            ctx.out.line(&format!("Removed encryption key {id}"));
            Ok(0)
        }
        KeyringVerb::Rotate(args) => rotate(ctx, args).await,
    }
}

async fn rotate(ctx: &Ctx, args: &RotateArgs) -> Outcome {
    let mut query = ctx.query();
    match (args.now, &args.prepublish) {
        (true, None) => {}
        (false, Some(text)) => {
            let ahead = duration_of("prepublish", text)?;
            query = query.param("publish_time", ctx.clock().now.plus(ahead).0.to_string());
        }
        (true, Some(_)) => {
            return Err(CliError::failed("Only one of \"-now\" or \"-prepublish\" can be used."));
        }
        (false, None) => {
            return Err(CliError::failed(
                "\nOne of \"-now\" or \"-prepublish\" must be used.\n\n\
                 If a key has been leaked use \"-now\" to force immediate rotation.\n\n\
                 Otherwise please use \"-prepublish <duration>\" to ensure the new key is not used\n\
                 to sign workload identities before JWKS endpoints are updated.\n",
            ));
        }
    }
    if args.full {
        query = query.param("full", "true");
    }
    let key = ctx.client.operator().rotate_key(&query).await.doing("error")?;
    if let Some(shown) = args.data.show(ctx, &key) {
        return shown;
    }
    ctx.out.line(&table(ctx, &[key], args.verbose));
    Ok(0)
}

fn table(ctx: &Ctx, keys: &[RootKeyMeta], verbose: bool) -> String {
    let rows = keys.iter().map(|key| {
        vec![
            format::id(&key.key_id, verbose),
            key.state.as_str().to_owned(),
            ctx.clock().time(key.create_time),
            match key.publish_time.is_zero() {
                true => String::new(),
                false => ctx.clock().time(key.publish_time),
            },
        ]
    });
    Table::new(&["Key", "State", "Create Time", "Publish Time"]).rows(rows).render()
}

/// The gossip keys of the servers, with the number of servers that have each.
#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct GossipKeys {
    #[serde(deserialize_with = "caravan_types::ser::null_default")]
    keys: BTreeMap<String, u64>,
}

/// Runs a subcommand of `operator gossip keyring`.
pub(crate) async fn gossip(ctx: &Ctx, verb: &GossipKeyringVerb) -> Outcome {
    match verb {
        GossipKeyringVerb::Generate => {
            let mut key = [0; 32];
            let drawn = rand::rngs::OsRng.try_fill_bytes(&mut key);
            drawn.map_err(|error| CliError::failed(format!("Error generating key: {error}")))?;
            ctx.out.line(&BASE64.encode(key));
            Ok(0)
        }
        GossipKeyringVerb::Install(args) => change_key(ctx, "install", "Installing new", args).await,
        GossipKeyringVerb::Remove(args) => change_key(ctx, "remove", "Removing", args).await,
        GossipKeyringVerb::Use(args) => change_key(ctx, "use", "Changing primary", args).await,
        GossipKeyringVerb::List => {
            ctx.out.line("Gathering installed encryption keys...");
            let answer: Result<caravan_sdk::Response<GossipKeys>, _> =
                ctx.client.get("/v1/agent/keyring/list", &ctx.query()).await;
            let keys = answer.doing("error")?.value.keys;
            ctx.out.line(&Table::new(&["Key"]).rows(keys.into_keys().map(|key| vec![key])).render());
            Ok(0)
        }
    }
}

/// Requests a change of the gossip keys and shows the agent's answer.
async fn change_key(ctx: &Ctx, verb: &str, doing: &str, args: &KeyArgs) -> Outcome {
    let key = one(&args.args, "This command requires one argument: <key>")?;
    ctx.out.line(&format!("{doing} gossip encryption key..."));
    let done: Result<caravan_sdk::Response<serde_json::Value>, _> =
        ctx.client.put(&format!("/v1/agent/keyring/{verb}"), &ctx.query(), &json!({"Key": key})).await;
    done.doing("error")?;
    Ok(0)
}

/// Creates an introduction token.
pub(crate) async fn introduce(ctx: &Ctx, args: &IntroductionArgs) -> Outcome {
    let request = json!({"NodeName": args.node_name, "NodePool": args.node_pool, "TTL": args.ttl});
    let token = ctx.client.acl().introduce_client(&request, &ctx.query()).await;
    let token = token.doing("Error generating introduction token")?;
    if let Some(shown) = args.data.show(ctx, &json!({"JWT": token})) {
        return shown;
    }
    ctx.out.line(&format!("Successfully generated client introduction token:\n\n{token}"));
    Ok(0)
}
