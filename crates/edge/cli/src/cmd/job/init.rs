//! `job init`

mod examples;

use crate::cmd::at_most_one;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

/// The prefix of the variables that hold job templates.
const TEMPLATES: &str = "nomad/job-templates/";

/// The item of such a variable that holds the job file's text.
const ITEM: &str = "template";

/// Flags of `job init`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct InitArgs {
    /// Write an example of services that communicate over a service mesh
    #[arg(long)]
    connect: bool,
    /// Write an example of a task that uses a volume of the bundled CSI plugin
    #[arg(long)]
    csi: bool,
    /// List the job templates that are stored as variables
    #[arg(long)]
    list_templates: bool,
    /// Write the example without comments
    #[arg(long)]
    short: bool,
    /// Write the job template that is stored as a variable under this name
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// File to write [default: example.nomad.hcl]
    #[arg(value_name = "FILE", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, args: &InitArgs) -> Outcome {
    let file = at_most_one(&args.args, "This command takes no arguments or one: <filename>")?;
    let file = file.unwrap_or("example.nomad.hcl");
    if [args.connect, args.csi, args.list_templates, args.template.is_some()].iter().filter(|f| **f).count()
        > 1
    {
        return Err(CliError::Usage(
            "Only one of -connect, -csi, -list-templates and -template can be given".into(),
        ));
    }
    if args.list_templates {
        return list(ctx).await;
    }
    let text = match &args.template {
        Some(name) => template(ctx, name).await?,
        None => example(args.csi, args.connect, args.short),
    };
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o644).open(file);
    let mut out = match opened {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(CliError::failed(format!("Job '{file}' already exists")));
        }
        opened => opened.doing(format!("Failed to write '{file}'"))?,
    };
    out.write_all(text.as_bytes()).doing(format!("Failed to write '{file}'"))?;
    ctx.out.line(&match &args.template {
        Some(name) => format!("Initializing a job template from {name}\nExample job file written to {file}"),
        None => format!("Example job file written to {file}"),
    });
    Ok(0)
}

fn example(csi: bool, connect: bool, short: bool) -> String {
    let text = match (csi, connect) {
        (true, _) => examples::CSI,
        (_, true) => examples::CONNECT,
        _ => examples::SERVICE,
    };
    if short { without_comments(text) } else { text.to_owned() }
}

/// Removes comment lines, and the blank lines that their removal leaves.
fn without_comments(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
        let opens = out.ends_with("{\n") || out.ends_with("\n\n") || out.is_empty();
        if !(line.trim().is_empty() && opens) {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

async fn list(ctx: &Ctx) -> Outcome {
    let query = ctx.query().prefix(TEMPLATES);
    let found = ctx.client.variables().list(&query).await.doing("Error retrieving job templates")?.value;
    if found.is_empty() {
        return Err(CliError::failed(format!(
            "No variables in \"{TEMPLATES}\". Use `caravan var put {TEMPLATES}<name> {ITEM}=@<file>` to keep one"
        )));
    }
    ctx.out.line("Use caravan job init -template=<template> with any of the following:\n");
    for variable in &found {
        ctx.out.line(&format!("  {}", variable.path.trim_start_matches(TEMPLATES)));
    }
    Ok(0)
}

async fn template(ctx: &Ctx, name: &str) -> Result<String, CliError> {
    let path = format!("{TEMPLATES}{name}");
    let found =
        ctx.client.variables().read(&path, &ctx.query()).await.doing("Error retrieving job template")?.value;
    let text = found.items.expose().get(ITEM).cloned();
    text.ok_or_else(|| CliError::failed(format!("The variable \"{path}\" has no item \"{ITEM}\"")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_hcl::Source;
    use caravan_hcl::job::{ParseOptions, parse};

    #[test]
    fn examples_are_jobs_in_their_canonical_layout() {
        for (csi, connect) in [(false, false), (true, false), (false, true)] {
            for short in [false, true] {
                let text = example(csi, connect, short);
                let source = Source::new("example.nomad.hcl", text.as_str());
                let (job, warnings) =
                    parse(&source, &ParseOptions::default()).unwrap_or_else(|e| panic!("{e}"));
                assert!(warnings.items.is_empty() && job.id.is_some());
                assert_eq!(caravan_hcl::fmt::text(&text), text);
                assert_eq!(text.contains('#'), !short, "{text}");
                assert!(!text.contains("\n\n\n") && !text.contains("{\n\n"), "{text}");
                let mut canonical = job;
                caravan_api::canonicalize(&mut canonical);
                caravan_api::convert(&canonical).unwrap_or_else(|e| panic!("{e}"));
            }
        }
    }
}
