//! `job dispatch`

use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::id;
use crate::table::Pairs;
use crate::{monitor, resolve};
use caravan_sdk::DispatchOptions;
use std::collections::BTreeMap;
use std::io::Read as _;

/// Flags of `job dispatch`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DispatchArgs {
    /// Return at once instead of following the evaluation
    #[arg(long)]
    detach: bool,
    /// Prefix for the id of the child job
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    id_prefix_template: String,
    /// Idempotency token: of all dispatches with the same token, only the first creates a child job
    #[arg(long, value_name = "TOKEN", default_value = "", hide_default_value = true)]
    idempotency_token: String,
    /// Metadata for the child job, KEY=VALUE; may be repeated
    #[arg(long = "meta", value_name = "KEY=VALUE")]
    meta: Vec<String>,
    /// Priority of the child job
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    priority: i64,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    browser: crate::cmd::page::BrowserArgs,
    /// Parameterized job
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// File with the payload, or - for standard input
    #[arg(value_name = "FILE")]
    file: Option<String>,
}

pub(crate) async fn run(ctx: &Ctx, args: &DispatchArgs) -> Outcome {
    let Some(supplied) = &args.job else {
        return Err(CliError::Usage(
            "This command takes one or two argument: <parameterized job> [input source]".into(),
        ));
    };
    let options = DispatchOptions {
        payload: payload(args.file.as_deref())?,
        meta: pairs(&args.meta)?,
        id_prefix: args.id_prefix_template.clone(),
        priority: args.priority,
        idempotency_token: args.idempotency_token.clone(),
    };
    let job = resolve::job_of_kind(ctx, supplied, "parameterized ", |job| job.parameterized_job).await?;
    crate::cmd::page::open_job(ctx, args.browser.ui, job.id.as_str(), job.namespace.as_str());
    let query = ctx.query().namespace(job.namespace.as_str());
    let jobs = ctx.client.jobs();
    let answer =
        jobs.dispatch(job.id.as_str(), &options, &query).await.doing("Failed to dispatch job")?.value;
    // A parameterized job that is also periodic, or a repeated idempotency token, creates no evaluation to follow.
    let follow = !answer.eval_id.is_empty();
    let mut shown = Pairs::new().pair("Dispatched Job ID", answer.dispatched_job_id.as_str());
    if follow {
        shown = shown.pair("Evaluation ID", id(answer.eval_id.as_str(), args.verbose));
    }
    ctx.out.line(&shown.render());
    if args.detach || !follow {
        return Ok(0);
    }
    ctx.out.line("");
    monitor::run(ctx, &answer.eval_id, monitor::Options { verbose: args.verbose, start: None }).await
}

fn payload(file: Option<&str>) -> Result<Vec<u8>, CliError> {
    let failed = |error: std::io::Error| CliError::failed(format!("Error reading input data: {error}"));
    match file {
        None => Ok(Vec::new()),
        Some("-") => {
            let mut bytes = Vec::new();
            std::io::stdin().lock().read_to_end(&mut bytes).map_err(failed)?;
            Ok(bytes)
        }
        Some(path) => std::fs::read(path).map_err(failed),
    }
}

fn pairs(supplied: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    let split = |pair: &String| match pair.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(CliError::failed(format!("Error parsing meta value: {pair}"))),
    };
    supplied.iter().map(split).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_split_at_the_first_sign() {
        let supplied = ["a=b=c".to_owned(), "d=".to_owned()];
        let expected = [("a", "b=c"), ("d", "")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(pairs(&supplied).unwrap(), expected.into());
        assert!(pairs(&["a".to_owned()]).is_err());
    }
}
