//! `node meta …`

use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::json;
use crate::resolve;
use crate::table::Pairs;
use clap::Subcommand;
use std::collections::BTreeMap;

/// Subcommands of `node meta`.
#[derive(Debug, Subcommand)]
pub(crate) enum MetaVerb {
    /// Set or remove metadata
    Apply(ApplyArgs),
    /// Show metadata
    Read(ReadArgs),
}

/// Flags of `node meta apply`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ApplyArgs {
    /// Node to change [default: the node of the agent that answers]
    #[arg(long, value_name = "NODE")]
    node_id: Option<String>,
    /// Keys to remove, separated by commas
    #[arg(long, value_name = "KEYS")]
    unset: Option<String>,
    /// Metadata to set, KEY=VALUE
    #[arg(value_name = "KEY=VALUE", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `node meta read`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ReadArgs {
    /// Node to show [default: the node of the agent that answers]
    #[arg(long, value_name = "NODE")]
    node_id: Option<String>,
    /// Show JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(ctx: &Ctx, verb: &MetaVerb) -> Outcome {
    match verb {
        MetaVerb::Apply(args) => apply(ctx, args).await,
        MetaVerb::Read(args) => read(ctx, args).await,
    }
}

async fn meant(ctx: &Ctx, supplied: Option<&str>) -> Result<String, CliError> {
    match supplied {
        Some(supplied) => Ok(resolve::node(ctx, supplied).await?.id.to_string()),
        None => Ok(String::new()),
    }
}

async fn apply(ctx: &Ctx, args: &ApplyArgs) -> Outcome {
    let changes = changes(&args.args, args.unset.as_deref())?;
    let node = meant(ctx, args.node_id.as_deref()).await?;
    let done = ctx.client.on_node().change_metadata(&node, &changes, &ctx.query()).await;
    done.doing("Error applying dynamic node metadata")?;
    Ok(0)
}

fn changes(pairs: &[String], unset: Option<&str>) -> Result<BTreeMap<String, Option<String>>, CliError> {
    let mut changes = BTreeMap::new();
    for pair in pairs {
        let (key, value) = pair.split_once('=').ok_or_else(|| {
            CliError::failed(format!("Unable to parse \"{pair}\": metadata must be of the form key=value"))
        })?;
        changes.insert(key.to_owned(), Some(value.to_owned()));
    }
    for key in unset.unwrap_or_default().split(',').map(str::trim).filter(|key| !key.is_empty()) {
        changes.insert(key.to_owned(), None);
    }
    if changes.is_empty() {
        return Err(CliError::Usage("Must specify key-value pairs to set or keys to unset".into()));
    }
    Ok(changes)
}

async fn read(ctx: &Ctx, args: &ReadArgs) -> Outcome {
    let node = meant(ctx, args.node_id.as_deref()).await?;
    let answer = ctx.client.on_node().metadata(&node, &ctx.query()).await;
    let found = answer.doing("Error reading dynamic node metadata")?.value;
    if args.json {
        ctx.out.line(&json(&found)?);
        return Ok(0);
    }
    let shown = |title: &str, pairs: Vec<(&String, &str)>| {
        let pairs = pairs.into_iter().fold(Pairs::new(), |all, (key, value)| all.pair(key.as_str(), value));
        format!("{title}\n{}", pairs.render())
    };
    let all = found.meta.iter().map(|(key, value)| (key, value.as_str())).collect();
    let dynamic =
        found.dynamic.iter().map(|(key, value)| (key, value.as_deref().unwrap_or("<unset>"))).collect();
    let fixed = found.fixed.iter().map(|(key, value)| (key, value.as_str())).collect();
    ctx.out.line(&format!("{}\n", shown("All Meta", all)));
    ctx.out.line(&format!("{}\n", shown("Dynamic Meta", dynamic)));
    ctx.out.line(&shown("Static Meta", fixed));
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_set_and_taken_away() {
        let got = changes(&["a=b=c".to_owned()], Some("x, y")).unwrap();
        let want = [("a", Some("b=c")), ("x", None), ("y", None)];
        assert_eq!(got, want.map(|(k, v)| (k.to_owned(), v.map(str::to_owned))).into());
        assert!(changes(&["a".to_owned()], None).is_err() && changes(&[], None).is_err());
    }
}
