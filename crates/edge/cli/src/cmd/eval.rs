//! `eval …`

use crate::cmd::eval_delete::{self, DeleteArgs};
use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::{Clock, id, json};
use crate::table::{Pairs, Table};
use crate::{metrics, resolve};
use caravan_sdk::QueryOptions;
use caravan_types::eval::{EvalStatus, Evaluation};
use clap::Subcommand;

/// Subcommands of `eval`.
#[derive(Debug, Subcommand)]
pub(crate) enum EvalVerb {
    /// List evaluations, newest first
    List(ListArgs),
    /// Show an evaluation
    Status(StatusArgs),
    /// Delete evaluations while scheduling is paused
    Delete(DeleteArgs),
}

/// Flags of `eval list`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ListArgs {
    /// Show only evaluations of this job
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Show only evaluations with this status
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Show only evaluations that match the filter expression
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Number of evaluations on a page
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    per_page: u32,
    /// Token of the page, printed at the end of the previous one
    #[arg(long, value_name = "TOKEN")]
    page_token: Option<String>,
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Flags of `eval status`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct StatusArgs {
    /// Follow the evaluation until it ends
    #[arg(long)]
    monitor: bool,
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Show full ids and timestamps
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    browser: crate::cmd::page::BrowserArgs,
    /// Evaluation id or prefix
    #[arg(value_name = "EVALUATION", num_args = 0..)]
    args: Vec<String>,
}

impl StatusArgs {
    /// Creates the arguments for an evaluation that `status` found.
    pub(crate) fn new(id: &str, verbose: bool) -> Self {
        Self { verbose, args: vec![id.to_owned()], ..Self::default() }
    }
}

/// Runs `eval list`.
pub(crate) async fn list(ctx: &Ctx, args: &ListArgs) -> Outcome {
    let mut query = QueryOptions { per_page: args.per_page, reverse: true, ..ctx.query() };
    query.filter = args.filter.clone().unwrap_or_default();
    query.next_token = args.page_token.clone().unwrap_or_default();
    for (name, value) in [("job", &args.job), ("status", &args.status)] {
        if let Some(value) = value {
            query = query.param(name, value);
        }
    }
    let answer = ctx.client.evaluations().list(&query).await.doing("Error querying evaluations")?;
    let mut evals = answer.value;
    if args.json {
        ctx.out.line(&json(&evals)?);
        return Ok(0);
    }
    if evals.is_empty() {
        ctx.out.line("No evals found");
        return Ok(0);
    }
    evals.sort_by_key(|eval| std::cmp::Reverse(eval.create_index));
    ctx.out.line(&list_table(&evals, args.verbose));
    crate::cmd::page::more(ctx, &answer.meta);
    Ok(0)
}

/// Runs `eval status`.
pub(crate) async fn status(ctx: &Ctx, args: &StatusArgs) -> Outcome {
    let supplied = one(&args.args, "This command takes one argument")?;
    let eval = resolve::eval(ctx, supplied).await?;
    crate::cmd::page::open(ctx, args.browser.ui, &format!("evaluations?currentEval={}", eval.id));
    if args.monitor {
        let options = crate::monitor::Options { verbose: args.verbose, start: None };
        return crate::monitor::run(ctx, &eval.id, options).await;
    }
    let query = ctx.query().param("related", "true");
    let evaluations = ctx.client.evaluations();
    let eval = evaluations.info(eval.id.as_str(), &query).await.doing("Error querying evaluation")?.value;
    if args.json {
        ctx.out.line(&json(&eval)?);
        return Ok(0);
    }
    ctx.out.line(&render(&ctx.clock(), &eval, args.verbose));
    if eval.status == EvalStatus::Blocked || !eval.failed_tg_allocs.is_empty() {
        // Only Caravan servers explain evaluations; the sections above need no explanation.
        if let Ok(answer) = evaluations.explain(eval.id.as_str(), &ctx.query()).await
            && !answer.value.reasons.is_empty()
        {
            ctx.out.line(&format!("\nExplanation, as of now\n  * {}", answer.value.reasons.join("\n  * ")));
        }
    }
    Ok(0)
}

/// Returns whether placements failed, or that this is unknown while the scheduler works.
fn failures(eval: &Evaluation) -> String {
    match eval.status {
        EvalStatus::Blocked | EvalStatus::Pending => "N/A - In Progress".into(),
        _ => (!eval.failed_tg_allocs.is_empty()).to_string(),
    }
}

/// Returns the table of evaluations of all jobs.
pub(crate) fn list_table(evals: &[Evaluation], verbose: bool) -> String {
    let heading =
        ["ID", "Priority", "Triggered By", "Job ID", "Namespace", "Node ID", "Status", "Placement Failures"];
    let rows = evals.iter().map(|eval| {
        vec![
            id(eval.id.as_str(), verbose),
            eval.priority.to_string(),
            eval.triggered_by.as_str().to_owned(),
            eval.job_id.to_string(),
            eval.namespace.to_string(),
            id(eval.node_id.as_str(), verbose),
            eval.status.as_str().to_owned(),
            failures(eval),
        ]
    });
    Table::new(&heading).rows(rows).render()
}

/// Returns the table of evaluations of one job, newest first.
pub(crate) fn job_table(evals: &[Evaluation], verbose: bool) -> String {
    let mut evals: Vec<&Evaluation> = evals.iter().collect();
    evals.sort_by_key(|eval| std::cmp::Reverse(eval.create_index));
    let rows = evals.into_iter().map(|eval| {
        vec![
            id(eval.id.as_str(), verbose),
            eval.priority.to_string(),
            eval.triggered_by.as_str().to_owned(),
            eval.status.as_str().to_owned(),
            failures(eval),
        ]
    });
    Table::new(&["ID", "Priority", "Triggered By", "Status", "Placement Failures"]).rows(rows).render()
}

fn render(clock: &Clock, eval: &Evaluation, verbose: bool) -> String {
    let description = match eval.status_description.as_str() {
        "" => eval.status.as_str(),
        text => text,
    };
    let mut pairs = Pairs::new()
        .pair("ID", id(eval.id.as_str(), verbose))
        .pair("Create Time", clock.when(eval.create_time, verbose))
        .pair("Modify Time", clock.when(eval.modify_time, verbose))
        .pair("Status", eval.status.as_str())
        .pair("Status Description", description)
        .pair("Type", eval.kind.as_str())
        .pair("TriggeredBy", eval.triggered_by.as_str())
        .pair("Job ID", eval.job_id.as_str())
        .pair("Namespace", eval.namespace.as_str());
    if !eval.node_id.is_empty() {
        pairs.push("Node ID", id(eval.node_id.as_str(), verbose));
    }
    let text = pairs
        .pair("Priority", eval.priority.to_string())
        .pair("Placement Failures", failures(eval))
        .pair("Previous Eval", id(eval.previous_eval.as_str(), verbose))
        .pair("Next Eval", id(eval.next_eval.as_str(), verbose))
        .pair("Blocked Eval", id(eval.blocked_eval.as_str(), verbose))
        .render();
    let mut sections = vec![text];
    if !eval.related_evals.is_empty() {
        let rows = eval.related_evals.iter().map(|stub| {
            vec![
                id(stub.id.as_str(), verbose),
                stub.priority.to_string(),
                stub.triggered_by.as_str().to_owned(),
                id(stub.node_id.as_str(), verbose),
                stub.status.as_str().to_owned(),
                stub.status_description.clone(),
            ]
        });
        let heading = ["ID", "Priority", "Triggered By", "Node ID", "Status", "Description"];
        sections.push(format!("Related Evaluations\n{}", Table::new(&heading).rows(rows).render()));
    }
    if let Some(annotations) = eval.plan_annotations.as_ref().filter(|a| !a.desired_tg_updates.is_empty()) {
        let rows = annotations.desired_tg_updates.iter().map(|(group, n)| {
            let counts = [n.ignore, n.place, n.stop, n.in_place_update, n.destructive_update];
            std::iter::once(group.clone()).chain(counts.iter().map(u64::to_string)).collect()
        });
        let heading = ["Task Group", "Ignore", "Place", "Stop", "InPlace", "Destructive"];
        sections.push(format!("Plan Annotations\n{}", Table::new(&heading).rows(rows).render()));
    }
    if !eval.failed_tg_allocs.is_empty() {
        let lines = metrics::failures(&eval.failed_tg_allocs, "");
        sections.push(format!("Failed Placements\n{}", lines.join("\n")));
    }
    let waits = metrics::waits(eval);
    if !waits.is_empty() {
        sections.push(format!("Waits For\n  * {}", waits.join("\n  * ")));
    }
    sections.join("\n\n")
}

pub(crate) async fn run(ctx: &Ctx, verb: &EvalVerb) -> Result<u8, CliError> {
    match verb {
        EvalVerb::List(args) => list(ctx, args).await,
        EvalVerb::Status(args) => status(ctx, args).await,
        EvalVerb::Delete(args) => eval_delete::run(ctx, args).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::clock;
    use caravan_types::eval::{AllocMetric, Counts, EvalStub, Trigger};
    use caravan_types::plan::{DesiredUpdates, PlanAnnotations};
    use caravan_types::small::Map;
    use std::collections::BTreeMap;

    fn blocked() -> Evaluation {
        let metric = AllocMetric::from(Counts {
            nodes_evaluated: 1,
            nodes_exhausted: 1,
            class_exhausted: Map::from([("fixture".into(), 1)]),
            dimension_exhausted: Map::from([("cpu".into(), 1)]),
            ..Default::default()
        });
        Evaluation {
            id: "7502bada-818b-d0b0-3f62-ec230fcdace5".into(),
            namespace: "default".into(),
            priority: 50,
            kind: "service".into(),
            triggered_by: Trigger::QueuedAllocs,
            job_id: "huge".into(),
            status: EvalStatus::Blocked,
            status_description: "created to place remaining allocations".into(),
            previous_eval: "93f6a121-6a3a-acad-b020-87d8b42910d8".into(),
            related_evals: vec![EvalStub {
                id: "93f6a121-6a3a-acad-b020-87d8b42910d8".into(),
                priority: 50,
                status: EvalStatus::Complete,
                ..Default::default()
            }],
            failed_tg_allocs: BTreeMap::from([("g".into(), metric)]),
            create_time: clock("2026-11-21T09:22:36Z").now,
            modify_time: clock("2026-11-21T09:22:36Z").now,
            ..Default::default()
        }
    }

    #[test]
    fn a_blocked_evaluation_reads_like_the_recorded_one() {
        let text = render(&clock("2026-11-21T09:23:10Z"), &blocked(), false);
        assert_eq!(text + "\n", include_str!("../../fixtures/eval-blocked.txt"));
    }

    #[test]
    fn a_complete_evaluation_reads_like_the_recorded_one() {
        let updates = DesiredUpdates { ignore: 2, ..Default::default() };
        let eval = Evaluation {
            id: "0586de18-8a68-d367-c2fa-5dade15c0b4e".into(),
            namespace: "default".into(),
            priority: 50,
            kind: "service".into(),
            triggered_by: Trigger::DeploymentWatcher,
            job_id: "web".into(),
            status: EvalStatus::Complete,
            plan_annotations: Some(PlanAnnotations {
                desired_tg_updates: BTreeMap::from([("web".into(), updates)]),
                ..Default::default()
            }),
            create_time: clock("2026-11-21T09:22:50Z").now,
            modify_time: clock("2026-11-21T09:22:50Z").now,
            ..Default::default()
        };
        let text = render(&clock("2026-11-21T09:23:10Z"), &eval, false);
        assert_eq!(text + "\n", include_str!("../../fixtures/eval-complete.txt"));
    }

    #[test]
    fn the_list_reads_like_the_recorded_one() {
        let text = list_table(&[blocked()], false);
        assert_eq!(text + "\n", include_str!("../../fixtures/eval-list.txt"));
    }
}
