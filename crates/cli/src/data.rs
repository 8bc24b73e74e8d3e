//! Answers as data: JSON, or through a template of the user's.

use crate::ctx::Ctx;
use crate::error::{CliError, Outcome};
use crate::format;
use gotmpl::{MissingKey, Template};
use serde::Serialize;

/// Flags of verbs that can show their answer as data.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DataArgs {
    /// Show JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Show the answer through a template, as of Go's text/template
    #[arg(short = 't', value_name = "TEMPLATE")]
    pub(crate) template: Option<String>,
}

impl DataArgs {
    /// Whether data is wanted.
    pub(crate) fn wanted(&self) -> bool {
        self.json || self.template.is_some()
    }

    /// Shows the answer as data; nothing when tables are wanted.
    pub(crate) fn show<T: Serialize + ?Sized>(&self, ctx: &Ctx, value: &T) -> Option<Outcome> {
        self.wanted().then(|| self.always(ctx, value))
    }

    /// Shows the answer as data, JSON if no flag says anything.
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

/// The answer through a template. A name that is not there is an error.
fn template<T: Serialize + ?Sized>(text: &str, value: &T) -> Result<String, CliError> {
    let told =
        |error: &dyn std::fmt::Display| CliError::failed(format!("Error formatting the data: {error}"));
    if text.is_empty() {
        return Err(CliError::failed(
            "Error formatting the data: template needs to be specified in golang's text/template format.",
        ));
    }
    // By way of JSON, so that keys are those of the API.
    let value = gotmpl::to_value(&serde_json::to_value(value)?).map_err(|e| told(&e))?;
    let template = Template::new("").missing_key(MissingKey::Error).parse(text).map_err(|e| told(&e))?;
    template.execute_to_string(&value).map_err(|e| told(&e))
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
