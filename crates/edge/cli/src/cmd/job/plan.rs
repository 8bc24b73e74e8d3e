//! `job plan`

use super::{FileArgs, NamespaceArgs, diff};
use crate::cmd::one;
use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::Outcome;
use crate::jobfile;
use crate::metrics;
use caravan_sdk::{PlanRequest, PlanResponse, WhatIf};

/// Flags of `job plan`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    namespaces: NamespaceArgs,
    /// Show the difference to the registered job
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    diff: bool,
    /// Show the full answer as JSON
    #[arg(long)]
    json_output: bool,
    /// Format the answer with a Go template
    #[arg(short = 't', value_name = "TEMPLATE")]
    template: Option<String>,
    /// Override soft-mandatory policies
    #[arg(long)]
    policy_override: bool,
    /// Keep the registered counts of groups
    #[arg(long)]
    preserve_counts: bool,
    /// Keep the registered resources of tasks
    #[arg(long)]
    preserve_resources: bool,
    /// Show added, removed and unchanged parts in full too
    #[arg(long)]
    verbose: bool,
    /// Also show which allocations would move if a node changed: node=<id>:down, drain, ineligible or up; may be
    /// repeated
    #[arg(long, value_name = "EVENT")]
    what_if: Vec<String>,
    /// Job file, http:// URL, or - for standard input
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

/// The exit status when the plan could not be computed.
pub(crate) const FAILED: u8 = 255;

/// Runs `job plan`. Returns 0 if no allocation would start or stop, otherwise 1.
pub(crate) async fn run(ctx: &Ctx, args: &PlanArgs) -> Outcome {
    let path = one(&args.args, "This command takes one argument: <path>")?;
    let mut file = jobfile::load(ctx, path, &args.file.input()).await?;
    args.namespaces.apply(&mut file.job);
    for warning in &file.warnings {
        ctx.out.note(warning);
    }
    let id = file.id()?.to_owned();
    let request = PlanRequest {
        diff: args.diff,
        preserve_counts: args.preserve_counts,
        preserve_resources: args.preserve_resources,
        policy_override: args.policy_override,
    };
    let data = DataArgs { json: args.json_output, template: args.template.clone() };
    let mut query = ctx.query();
    if !args.json_output && args.template.is_none() {
        query = query.param("explain", "true");
    }
    for event in &args.what_if {
        query = query.param("what-if", event);
    }
    let jobs = ctx.client.jobs();
    let answer = jobs
        .plan_raw(&id, &file.job, request, &query)
        .await
        .map_err(|error| file.failed(ctx, &args.file.input(), "Error during plan", error))?
        .value;
    let plan: PlanResponse = serde_json::from_value(answer.clone())?;
    if let Some(shown) = data.show(ctx, &answer) {
        return shown.map(|_| status(&plan));
    }
    ctx.out.line(&render(&plan, &args.file.typed(), path, args.verbose));
    Ok(status(&plan))
}

/// Renders the full answer.
fn render(plan: &PlanResponse, flags: &str, path: &str, verbose: bool) -> String {
    let mut out = String::new();
    if let Some(diff) = &plan.diff {
        out.push_str(&diff::job(diff, verbose));
        out.push_str("\n\n");
    }
    out.push_str("Scheduler dry-run:\n");
    if plan.failed_tg_allocs.is_empty() {
        out.push_str("- All tasks successfully allocated.\n");
    } else {
        out.push_str("- WARNING: Failed to place all allocations.\n");
        out.push_str(&metrics::failures(&plan.failed_tg_allocs, "  ").join("\n"));
        out.push('\n');
    }
    let placements = plan.caravan_placements.iter().filter(|_| verbose);
    for reason in plan.caravan_reasons.iter().chain(placements) {
        out.push_str(&format!("  {reason}\n"));
    }
    out.push('\n');
    if let Some(found) = &plan.caravan_what_if {
        out.push_str(&what_if(found));
    }
    if let Some(warnings) = super::warnings(&plan.warnings) {
        out.push_str(&warnings);
        out.push('\n');
    }
    let index = plan.job_modify_index;
    out.push_str(&format!(
        "Job Modify Index: {index}\n\
         To submit the job with version verification run:\n\n\
         caravan job run -check-index {index} {flags}{path}\n\n\
         When running the job with the check-index flag, the job will only be run if the\n\
         job modify index given matches the server-side version. If the index has\n\
         changed, another user has modified the job and the plan's results are\n\
         potentially invalid."
    ));
    out
}

/// Renders which allocations a simulated node event would move.
fn what_if(found: &WhatIf) -> String {
    let mut out = "What if:\n".to_owned();
    for step in &found.moves {
        let goal = if step.to.is_empty() { "waits".to_owned() } else { format!("-> {}", step.to) };
        let volumes = if step.volumes.is_empty() {
            String::new()
        } else {
            format!(", with volumes {}", step.volumes.join(", "))
        };
        out.push_str(&format!("- {}: {} {goal}{volumes}\n", step.name, step.from));
    }
    for (name, node) in &found.placed {
        out.push_str(&format!("- {name}: new on {node}\n"));
    }
    if found.moves.is_empty() && found.placed.is_empty() && found.hidden == 0 {
        out.push_str("- Nothing would move.\n");
    }
    for reason in &found.reasons {
        out.push_str(&format!("  {reason}\n"));
    }
    if found.hidden > 0 {
        let hidden = found.hidden;
        out.push_str(&format!("  {hidden} lines are left out: they are about jobs that you may not read.\n"));
    }
    if found.skipped > 0 {
        out.push_str(&format!("  {} jobs were not looked at: there are too many.\n", found.skipped));
    }
    out + "\n"
}

/// Returns 1 if the job changes and allocations would start or stop. A group that cannot be placed is no change.
fn status(plan: &PlanResponse) -> u8 {
    if plan.diff.as_ref().is_some_and(|diff| diff.kind == "None") {
        return 0;
    }
    let moves = plan.annotations.iter().flat_map(|a| a.desired_tg_updates.values()).any(|updates| {
        updates.place + updates.stop + updates.migrate + updates.destructive_update + updates.canary > 0
    });
    u8::from(moves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::eval::{AllocMetric, Counts};
    use caravan_types::plan::{DesiredUpdates, PlanAnnotations};
    use caravan_types::small::Map;
    use std::collections::BTreeMap;

    fn recorded(text: &str) -> String {
        text.trim_end().replace("nomad job run", "caravan job run")
    }

    #[test]
    fn a_plan_that_cannot_be_placed_reads_like_the_recorded_one() {
        let metric = AllocMetric::from(Counts {
            nodes_evaluated: 1,
            nodes_exhausted: 1,
            class_exhausted: Map::from([("fixture".into(), 1)]),
            dimension_exhausted: Map::from([("cpu".into(), 1)]),
            ..Default::default()
        });
        let updates = DesiredUpdates { place: 1, ..Default::default() };
        let plan: PlanResponse = PlanResponse {
            annotations: Some(PlanAnnotations {
                desired_tg_updates: BTreeMap::from([("g".into(), updates)]),
                ..Default::default()
            }),
            failed_tg_allocs: BTreeMap::from([("g".into(), metric)]),
            job_modify_index: 44,
            diff: serde_json::from_str(
                r#"{"Type":"None","ID":"huge","TaskGroups":[{"Type":"None","Name":"g","Updates":{"create":1},
                    "Tasks":[{"Type":"None","Name":"t"}]}]}"#,
            )
            .unwrap(),
            ..Default::default()
        };
        assert_eq!(
            render(&plan, "", "huge.nomad.hcl", false),
            recorded(include_str!("../../../fixtures/plan-huge.txt"))
        );
        assert_eq!(status(&plan), 0);
    }

    #[test]
    fn what_would_move_is_told() {
        let step = |name: &str, to: &str, volumes: &[&str]| caravan_sdk::WhatIfMove {
            name: name.into(),
            from: "n1".into(),
            to: to.into(),
            volumes: volumes.iter().map(|v| (*v).to_owned()).collect(),
            ..Default::default()
        };
        let found = WhatIf {
            moves: vec![step("db.g[0]", "n2", &["data"]), step("web.g[1]", "", &[])],
            reasons: vec!["Job \"web\": Task group \"g\": 1 node has not enough cpu left.".into()],
            ..Default::default()
        };
        assert_eq!(
            what_if(&found),
            "What if:\n- db.g[0]: n1 -> n2, with volumes data\n- web.g[1]: n1 waits\n  Job \"web\": Task group \
             \"g\": 1 node has not enough cpu left.\n\n"
        );
    }

    #[test]
    fn a_new_job_reads_like_the_recorded_one() {
        let updates = DesiredUpdates { place: 2, ..Default::default() };
        let plan = PlanResponse {
            annotations: Some(PlanAnnotations {
                desired_tg_updates: BTreeMap::from([("web".into(), updates)]),
                ..Default::default()
            }),
            warnings: "1 warning:\n\n* group \"web\" defines services, but neither the group nor any of its \
                       tasks have shutdown_delay set"
                .into(),
            diff: serde_json::from_str(
                r#"{"Type":"Added","ID":"web","Fields":[{"Type":"Added","Name":"Priority","New":"50"}],
                    "TaskGroups":[{"Type":"Added","Name":"web","Updates":{"create":2},
                    "Tasks":[{"Type":"Added","Name":"server","Annotations":["forces create"]}]}]}"#,
            )
            .unwrap(),
            ..Default::default()
        };
        assert_eq!(
            render(&plan, "", "web.nomad.hcl", false),
            recorded(include_str!("../../../fixtures/plan-new.txt"))
        );
        assert_eq!(status(&plan), 1);
    }
}
