//! `job history`

use super::diff;
use crate::cmd::one;
use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::{Clock, json};
use crate::resolve;
use crate::table::Pairs;
use caravan_sdk::JobDiff;
use caravan_types::time::UnixNanos;
use serde_json::Value;

/// Flags of `job history`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    data: DataArgs,
    /// With -p: show the difference to the version with this tag
    #[arg(long, value_name = "TAG")]
    diff_tag: Option<String>,
    /// With -p: show the difference to this version
    #[arg(long, value_name = "N")]
    diff_version: Option<u64>,
    /// Show the full job of each version
    #[arg(long)]
    full: bool,
    /// Show the difference of each version to the previous one
    #[arg(short = 'p')]
    differences: bool,
    /// Show only this version
    #[arg(long = "version", value_name = "N")]
    number: Option<u64>,
    /// Show added and removed parts in full too
    #[arg(long)]
    verbose: bool,
    /// Job id or prefix
    #[arg(value_name = "JOB", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, args: &HistoryArgs) -> Outcome {
    let supplied = one(&args.args, "This command takes one argument: <job>")?;
    if args.data.is_requested() && (args.full || args.number.is_some() && args.differences) {
        return Err(CliError::failed(
            "-json and -t cannot be used with -full, nor with -version and -p together",
        ));
    }
    if (args.diff_tag.is_some() || args.diff_version.is_some()) && !args.differences {
        return Err(CliError::failed("-diff-tag and -diff-version can only be used with -p"));
    }
    if args.diff_tag.is_some() && args.diff_version.is_some() {
        return Err(CliError::failed("-diff-tag and -diff-version are mutually exclusive"));
    }
    let job = resolve::job(ctx, supplied).await?;
    let mut query = ctx.query().namespace(job.namespace.as_str());
    if args.differences {
        query = query.param("diffs", "true");
    }
    if let Some(tag) = &args.diff_tag {
        query = query.param("diff_tag", tag.clone());
    }
    if let Some(number) = args.diff_version {
        query = query.param("diff_version", number.to_string());
    }
    let found = ctx
        .client
        .jobs()
        .history(job.id.as_str(), &query)
        .await
        .doing("Error retrieving job versions")?
        .value;
    let shown: Vec<(&Value, Option<&JobDiff>)> = found
        .versions
        .iter()
        .enumerate()
        .filter(|(_, version)| args.number.is_none_or(|number| self::number(version) == Some(number)))
        .map(|(at, version)| (version, found.diffs.get(at)))
        .collect();
    if let Some(number) = args.number
        && shown.is_empty()
    {
        return Err(CliError::failed(format!("version {number} for job \"{}\" not found", job.id)));
    }
    if args.data.is_requested() {
        let versions: Vec<&Value> = shown.iter().map(|(version, _)| *version).collect();
        return match (args.number, versions.as_slice()) {
            (Some(_), [version]) => args.data.always(ctx, version),
            _ => args.data.always(ctx, &versions),
        };
    }
    let clock = ctx.clock();
    let texts: Result<Vec<String>, CliError> =
        shown.iter().map(|(version, diff)| render(&clock, version, *diff, args)).collect();
    ctx.out.line(&texts?.join("\n\n"));
    Ok(0)
}

fn number(version: &Value) -> Option<u64> {
    version.get("Version")?.as_u64()
}

/// Renders one version.
fn render(
    clock: &Clock,
    version: &Value,
    diff: Option<&JobDiff>,
    args: &HistoryArgs,
) -> Result<String, CliError> {
    let submitted = version.get("SubmitTime").and_then(Value::as_i64).unwrap_or_default();
    let mut pairs = Pairs::new()
        .pair("Version", number(version).unwrap_or_default().to_string())
        .pair("Stable", version.get("Stable").and_then(Value::as_bool).unwrap_or_default().to_string())
        .pair("Submit Date", clock.time(UnixNanos(submitted)));
    if let Some(tag) = version.get("VersionTag").filter(|tag| tag.is_object()) {
        let text = |key: &str| tag.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        pairs.push("Tag Name", text("Name"));
        pairs.push("Tag Description", text("Description"));
    }
    let changed = diff.filter(|diff| diff.kind != "None");
    if let Some(diff) = changed {
        pairs.push("Diff", format!("\n{}", diff::job(diff, args.verbose)));
    }
    if args.full {
        pairs.push("Full", format!("\n{}", json(version)?));
    }
    Ok(pairs.render())
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_sdk::VersionsOf;

    #[test]
    fn versions_read_like_the_recorded_ones() {
        let found: VersionsOf = serde_json::from_str(
            r#"{"Versions":[
                {"Version":1,"Stable":false,"SubmitTime":1795252957000000000},
                {"Version":0,"Stable":true,"SubmitTime":1795252940000000000,
                 "VersionTag":{"Name":"golden","Description":"keep"}}],
              "Diffs":[{"Type":"Edited","ID":"web","TaskGroups":[{"Type":"Edited","Name":"web","Tasks":[
                {"Type":"Edited","Name":"server","Fields":[
                  {"Type":"Edited","Name":"Env[RELEASE]","Old":"one","New":"two"}]}]}]}]}"#,
        )
        .unwrap();
        let clock = crate::format::tests::clock("2026-11-21T09:22:41Z");
        let args = HistoryArgs { differences: true, ..HistoryArgs::default() };
        let one = |(at, version)| render(&clock, version, found.diffs.get(at), &args).unwrap();
        let text = found.versions.iter().enumerate().map(one).collect::<Vec<_>>().join("\n\n");
        let expected = "Version     = 1\nStable      = false\nSubmit Date = 2026-11-21T09:22:37Z\nDiff        = \n\
                      +/- Job: \"web\"\n+/- Task Group: \"web\"\n  +/- Task: \"server\"\n    \
                      +/- Env[RELEASE]: \"one\" => \"two\"\n\n\
                      Version         = 0\nStable          = true\nSubmit Date     = 2026-11-21T09:22:20Z\n\
                      Tag Name        = golden\nTag Description = keep";
        assert_eq!(text, expected);
    }
}
