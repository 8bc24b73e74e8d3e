//! `config validate`: checks an agent's configuration without a running agent.

use crate::ctx::Ctx;
use crate::error::{CliError, Outcome};
use clap::Subcommand;

/// Subcommands of `config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Check an agent's configuration files and directories
    Validate(ValidateArgs),
}

/// Arguments of `config validate`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ValidateArgs {
    /// Files, and directories of *.hcl and *.json files; all are merged into one configuration
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) fn run(ctx: &Ctx, verb: &ConfigVerb) -> Outcome {
    let ConfigVerb::Validate(args) = verb;
    if args.args.is_empty() {
        return Err(CliError::Usage("Must specify at least one config file or directory".into()));
    }
    match (ctx.local.validate_config)(&args.args) {
        Ok(remarks) => {
            remarks.iter().for_each(|remark| ctx.out.note(&format!("WARNING: {remark}")));
            ctx.out.line("Configuration is valid!");
            Ok(0)
        }
        Err(wrong) => {
            let count = wrong.len() as u64;
            ctx.out.note(&format!("{count} error{} occurred:", crate::format::plural(count)));
            for text in wrong {
                ctx.out.note(&format!("\t* {}", text.replace('\n', "\n\t  ")));
            }
            Ok(1)
        }
    }
}
