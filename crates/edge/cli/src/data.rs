//! Output as data: JSON, or rendered by the user's Go template.

use crate::ctx::Ctx;
use crate::error::{CliError, Outcome};
use crate::format;
use clap::{Arg, ArgMatches, Command};
use gotmpl::{MissingKey, Template};
use serde::Serialize;

/// Flags of the commands that can show their answer as data.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DataArgs {
    /// Show JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Format the answer with a Go template
    #[arg(short = 't', value_name = "TEMPLATE")]
    pub(crate) template: Option<String>,
}

impl DataArgs {
    /// Returns whether the flags ask for data.
    pub(crate) fn is_requested(&self) -> bool {
        self.json || self.template.is_some()
    }

    /// Prints the answer as data. Returns `None` if the flags ask for tables.
    pub(crate) fn show<T: Serialize + ?Sized>(&self, ctx: &Ctx, value: &T) -> Option<Outcome> {
        self.is_requested().then(|| self.always(ctx, value))
    }

    /// Prints the answer as data: JSON without a flag.
    pub(crate) fn always<T: Serialize + ?Sized>(&self, ctx: &Ctx, value: &T) -> Outcome {
        if self.json && self.template.is_some() {
            return Err(CliError::failed("Both json and template formatting are not allowed"));
        }
        let text = match &self.template {
            Some(text) => template(text, value)?,
            None => format::json(&value)?,
        };
        ctx.out.line(&text);
        Ok(0)
    }
}

/// The clap id of the `-t` flag of a command that itself knows only `-json`.
pub(crate) const TEMPLATE: &str = "data-template";

/// Commands whose `-json` flag describes their input.
const READERS: [&str; 6] = ["run", "plan", "validate", "init", "apply", "monitor"];

/// Returns the command tree with `-t` beside each `-json`. The template renders the JSON that the command printed, so
/// that commands need no support for it.
pub(crate) fn with_templates(command: Command) -> Command {
    let verbs: Vec<String> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let command =
        verbs.into_iter().fold(command, |command, verb| command.mut_subcommand(verb, with_templates));
    let has = |name: &str| command.get_arguments().any(|arg| arg.get_long() == Some(name));
    let free = !command.get_arguments().any(|arg| arg.get_short() == Some('t'));
    if !has("json") || !free || READERS.contains(&command.get_name()) {
        return command;
    }
    command.arg(
        Arg::new(TEMPLATE)
            .short('t')
            .value_name("TEMPLATE")
            .help("Show the answer through a template, as of Go's text/template"),
    )
}

/// Returns the template for a command that itself knows only `-json`.
pub(crate) fn template_of(matches: &ArgMatches) -> Option<&str> {
    match matches.subcommand() {
        Some((_, inner)) => template_of(inner),
        None => matches.try_get_one::<String>(TEMPLATE).ok().flatten().map(String::as_str),
    }
}

/// Renders the JSON that a command printed with a template.
pub(crate) fn printed(text: &str, printed: &[u8]) -> Result<String, CliError> {
    let value: serde_json::Value = serde_json::from_slice(printed)?;
    template(text, &value)
}

/// Renders a value with a template. A missing key is an error.
pub(crate) fn template<T: Serialize + ?Sized>(text: &str, value: &T) -> Result<String, CliError> {
    let reported =
        |error: &dyn std::fmt::Display| CliError::failed(format!("Error formatting the data: {error}"));
    if text.is_empty() {
        return Err(CliError::failed(
            "Error formatting the data: template needs to be specified in golang's text/template format.",
        ));
    }
    // Convert to JSON first, so that keys are those of the API.
    let value = gotmpl::to_value(&serde_json::to_value(value)?).map_err(|e| reported(&e))?;
    let template = Template::new("").missing_key(MissingKey::Error).parse(text).map_err(|e| reported(&e))?;
    template.execute_to_string(&value).map_err(|e| reported(&e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn templates_see_the_keys_of_the_api() {
        let jobs =
            json!([{"ID": "web", "Count": 3, "Meta": {"a": "b"}}, {"ID": "db", "Count": 1, "Meta": null}]);
        let shown = |text: &str| template(text, &jobs).map_err(|e| e.to_string());
        assert_eq!(shown("{{range .}}{{.ID}}={{.Count}} {{end}}").unwrap(), "web=3 db=1 ");
        assert_eq!(shown("{{(index . 0).Meta.a}}{{\"\\n\"}}").unwrap(), "b\n");
        assert_eq!(shown("{{len .}} {{with index . 1}}{{printf \"%q\" .ID}}{{end}}").unwrap(), "2 \"db\"");
        assert!(shown("{{.ID}}").unwrap_err().starts_with("Error formatting the data: "));
        assert!(shown("{{(index . 0).Nope}}").is_err());
        assert!(shown("{{").is_err());
        assert!(shown("").is_err());
    }
}
