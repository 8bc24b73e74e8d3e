//! `eval delete`

use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::resolve;
use caravan_sdk::EvalsToDelete;

/// Flags of `eval delete`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DeleteArgs {
    /// Delete all evaluations that match the filter expression
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Skip the confirmation prompt
    #[arg(long)]
    yes: bool,
    /// Evaluation ids or prefixes
    #[arg(value_name = "EVALUATION", num_args = 0..)]
    args: Vec<String>,
}

const HINT: &str = concat!(
    "To delete evaluations you must first pause the eval broker by running ",
    "\"caravan operator scheduler set-config -pause-eval-broker=true\"\n",
    "After the deletion is complete, unpause the eval broker by running ",
    "\"caravan operator scheduler set-config -pause-eval-broker=false\""
);

/// Runs `eval delete`.
pub(crate) async fn run(ctx: &Ctx, args: &DeleteArgs) -> Outcome {
    let chosen = match (args.args.as_slice(), &args.filter) {
        ([], None) => {
            return Err(CliError::Usage("Please specify at least one eval or a filter".into()));
        }
        ([_, ..], Some(_)) => {
            return Err(CliError::Usage(
                "This command takes either evaluations or a filter, not both".into(),
            ));
        }
        chosen => chosen,
    };
    let settings = ctx.client.operator().scheduler(&ctx.query()).await;
    let settings = settings.doing("Error querying scheduler configuration")?;
    if !settings.scheduler_config.pause_eval_broker {
        ctx.out.line(HINT);
        return Err(CliError::failed("Eval broker is not paused"));
    }
    let (which, question) = match chosen {
        (_, Some(filter)) => {
            let query = ctx.query().param("filter", filter);
            let found =
                ctx.client.evaluations().list(&query).await.doing("Error querying evaluations")?.value;
            if found.is_empty() {
                return Err(CliError::failed("No evaluation fits the filter"));
            }
            let question = format!(
                "Are you sure you want to delete the evaluations that fit the filter ({} now)? [y/N]",
                found.len()
            );
            (EvalsToDelete { filter: filter.clone(), ..EvalsToDelete::default() }, Some(question))
        }
        (supplied, None) => {
            let mut which = EvalsToDelete::default();
            let mut guessed = false;
            for supplied in supplied {
                let id = resolve::eval(ctx, supplied).await?.id.to_string();
                guessed |= id != *supplied;
                which.eval_ids.push(id);
            }
            let question = format!("Are you sure you want to delete {}? [y/N]", which.eval_ids.join(", "));
            (which, guessed.then_some(question))
        }
    };
    if let Some(question) = question.filter(|_| !args.yes)
        && !ctx.out.ask(&question, &["y", "Y"])
    {
        return Err(CliError::failed("Cancelling eval deletion"));
    }
    let deleted = ctx.client.evaluations().delete(&which, &ctx.query()).await;
    let count = deleted.doing("Error deleting evaluations")?.value.count;
    ctx.out.line(&format!("Successfully deleted {count} evaluation{}", crate::format::plural(count)));
    Ok(0)
}
