//! `explain`: prints the page of an error code.

use super::one;
use crate::ctx::Ctx;
use crate::error::{CliError, Outcome};
use caravan_hcl::explain;

/// Arguments of `explain`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ExplainArgs {
    /// List all codes
    #[arg(long)]
    list: bool,
    /// Error code, such as E0401
    #[arg(value_name = "CODE", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) fn run(ctx: &Ctx, args: &ExplainArgs) -> Outcome {
    if args.list {
        for (code, title) in explain::titles() {
            ctx.out.line(&format!("{code}  {title}"));
        }
        return Ok(0);
    }
    let code = one(&args.args, "This command takes one argument: <code>")?;
    match explain::page(code) {
        Some(page) => {
            ctx.out.line(page.trim_end());
            Ok(0)
        }
        None => {
            let near = caravan_types::words::suggestion(
                &code.to_ascii_uppercase(),
                explain::titles().map(|(known, _)| known),
            );
            Err(CliError::failed(format!(
                "There is no error with the code {code:?}.{near} `caravan explain -list` shows all of them."
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use caravan_hcl::explain;

    #[test]
    fn codes_have_pages() {
        assert!(explain::page("E0401").is_some_and(|page| page.contains("priority = 50")));
        assert!(explain::titles().count() > 50);
    }
}
