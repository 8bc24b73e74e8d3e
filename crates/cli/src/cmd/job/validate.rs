//! `job validate`

use super::{FileArgs, NamespaceArgs};
use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::jobfile;
use caravan_types::api;

/// Flags of `job validate`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ValidateArgs {
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    namespaces: NamespaceArgs,
    /// Job file, - for standard input
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

/// Runs it. Without an agent only the file itself is checked.
pub(crate) async fn run(ctx: &Ctx, args: &ValidateArgs) -> Outcome {
    let path = one(&args.args, "This command takes one argument: <path>")?;
    let mut file = jobfile::load(ctx, path, &args.file.input())?;
    args.namespaces.apply(&mut file.job);
    for warning in &file.warnings {
        ctx.out.note(warning);
    }
    match ctx.client.jobs().validate(&file.job, &ctx.query()).await {
        Ok(answer) => {
            let answer = answer.value;
            if !answer.error.is_empty() || !answer.validation_errors.is_empty() {
                let text =
                    if answer.error.is_empty() { answer.validation_errors.join("\n") } else { answer.error };
                return Err(CliError::failed(format!("Job validation errors:\n{text}")));
            }
            if let Some(text) = super::warnings(&answer.warnings) {
                ctx.out.line(&text);
            }
        }
        Err(error) if error.is_unreachable() => {
            let mut job = file.job.clone();
            api::canonicalize(&mut job);
            if let Err(errors) = api::convert(&job) {
                return Err(CliError::failed(format!(
                    "Job validation errors:\n{}",
                    errors.problems.join("\n")
                )));
            }
            ctx.out.note(&format!("Only the file was checked: {error}"));
        }
        Err(error) => return Err(error).doing("Error validating job"),
    }
    ctx.out.line("Job validation successful");
    Ok(0)
}
