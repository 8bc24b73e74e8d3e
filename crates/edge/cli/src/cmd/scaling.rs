//! `scaling policy …`

use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::{id, json};
use crate::resolve::{Found, pick, uuid_prefix};
use crate::table::{Pairs, Table};
use caravan_sdk::{ScalingPolicy, ScalingPolicyStub};
use clap::Subcommand;
use std::collections::BTreeMap;

/// Subcommands of `scaling`.
#[derive(Debug, Subcommand)]
pub(crate) enum ScalingVerb {
    /// Scaling policies: list, info
    #[command(subcommand)]
    Policy(PolicyVerb),
}

/// Subcommands of `scaling policy`.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// List scaling policies
    List(ListArgs),
    /// Show a scaling policy
    Info(InfoArgs),
}

/// Flags of `scaling policy list`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ListArgs {
    /// Show only policies of this job
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Show only policies of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Flags of `scaling policy info`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct InfoArgs {
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Policy id or prefix
    #[arg(value_name = "POLICY", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, verb: &ScalingVerb) -> Outcome {
    let ScalingVerb::Policy(verb) = verb;
    match verb {
        PolicyVerb::List(args) => list(ctx, args).await,
        PolicyVerb::Info(args) => info(ctx, args).await,
    }
}

async fn list(ctx: &Ctx, args: &ListArgs) -> Outcome {
    let mut query = ctx.query();
    for (name, value) in [("job", &args.job), ("type", &args.kind)] {
        if let Some(value) = value {
            query = query.param(name, value);
        }
    }
    let list = ctx.client.scaling().policies(&query).await.doing("Error listing scaling policies")?.value;
    if args.json {
        ctx.out.line(&json(&list)?);
    } else if list.is_empty() {
        ctx.out.line("No policies found");
    } else {
        ctx.out.line(&table(&list, args.verbose));
    }
    Ok(0)
}

fn table(list: &[ScalingPolicyStub], verbose: bool) -> String {
    let row = |policy: &ScalingPolicyStub| {
        let target = target(&policy.target);
        vec![id(&policy.id, verbose), policy.enabled.to_string(), policy.kind.clone(), target]
    };
    Table::new(&["ID", "Enabled", "Type", "Target"]).rows(list.iter().map(row)).render()
}

/// Renders the target from its largest part to its smallest.
fn target(parts: &BTreeMap<String, String>) -> String {
    let known = ["Namespace", "Job", "Group", "Task"];
    let texts = known.iter().filter_map(|name| Some(format!("{name}:{}", parts.get(*name)?)));
    texts.collect::<Vec<_>>().join(",")
}

async fn info(ctx: &Ctx, args: &InfoArgs) -> Outcome {
    let supplied = one(&args.args, "This command takes one argument: <policy_id>")?;
    let doing = "Error querying scaling policy";
    let query = ctx.query().prefix(uuid_prefix(supplied)?);
    let list = ctx.client.scaling().policies(&query).await.doing(doing)?.value;
    let list = list.into_iter().filter(|policy| policy.id.starts_with(supplied)).collect();
    let stub = match pick(supplied, list, |policy: &ScalingPolicyStub| policy.id.as_str()) {
        Found::One(stub) => stub,
        Found::None => {
            return Err(CliError::failed(format!(
                "{doing}: no scaling policies with prefix or ID \"{supplied}\" found"
            )));
        }
        Found::Many(list) => {
            return Err(CliError::failed(format!(
                "Prefix matched multiple scaling policies\n\n{}",
                table(&list, true)
            )));
        }
    };
    let policy = ctx.client.scaling().policy(&stub.id, &ctx.query()).await.doing(doing)?.value;
    ctx.out.line(&if args.json { json(&policy)? } else { shown(&policy, args.verbose)? });
    Ok(0)
}

fn shown(policy: &ScalingPolicy, verbose: bool) -> Result<String, CliError> {
    let pairs = Pairs::new()
        .pair("ID", id(&policy.stub.id, verbose))
        .pair("Enabled", policy.stub.enabled.to_string())
        .pair("Target", target(&policy.stub.target))
        .pair("Min", policy.min.to_string())
        .pair("Max", policy.max.to_string())
        .render();
    let free = match policy.policy.as_object() {
        Some(map) if !map.is_empty() => json(&policy.policy)?,
        _ => "<empty>".to_owned(),
    };
    Ok(format!("{pairs}\n\nPolicy:\n{free}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> ScalingPolicy {
        let text = r#"{"ID":"a6822023-af29-23f1-ec63-c23b623795f1","Enabled":true,"Type":"horizontal","Min":1,"Max":4,
            "Target":{"Group":"web","Namespace":"default","Job":"web"},"Policy":null,"CreateIndex":1,"ModifyIndex":1}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn policies_look_as_recorded() {
        let want = "ID        Enabled  Type        Target\na6822023  true     horizontal  Namespace:default,Job:web,Group:web";
        assert_eq!(table(&[policy().stub], false), want);
        let want = "ID      = a6822023\nEnabled = true\nTarget  = Namespace:default,Job:web,Group:web\nMin     = 1\nMax     = 4\n\nPolicy:\n<empty>";
        assert_eq!(shown(&policy(), false).unwrap(), want);
    }
}
