//! `job scaling-events`

use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{Doing as _, Outcome};
use crate::format::Clock;
use crate::resolve;
use crate::table::Table;
use caravan_sdk::{ScalingEvent, ScalingEvents};

/// Flags of `job scaling-events`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ScalingEventsArgs {
    /// Show messages and evaluations
    #[arg(long)]
    verbose: bool,
    /// Job id or prefix
    #[arg(value_name = "JOB", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, args: &ScalingEventsArgs) -> Outcome {
    let supplied = one(&args.args, "This command takes one argument: <job>")?;
    let job = resolve::job(ctx, supplied).await?;
    let query = ctx.query().namespace(job.namespace.as_str());
    let found = ctx
        .client
        .jobs()
        .scaling_events(job.id.as_str(), &query)
        .await
        .doing("Error listing scaling events")?
        .value;
    ctx.out.line(&table(&ctx.clock(), &found, args.verbose));
    Ok(0)
}

/// Returns the table of events, newest first.
fn table(clock: &Clock, found: &ScalingEvents, verbose: bool) -> String {
    let mut events: Vec<(&String, &ScalingEvent)> = found
        .task_groups
        .iter()
        .flat_map(|(group, own)| own.events.iter().map(move |event| (group, event)))
        .collect();
    if events.is_empty() {
        return "No events found".to_owned();
    }
    events.sort_by_key(|(_, event)| std::cmp::Reverse(event.time));
    let heading: &[&str] = if verbose {
        &["Task Group", "Count", "PrevCount", "Error", "Message", "Eval ID", "Date"]
    } else {
        &["Task Group", "Count", "PrevCount", "Date"]
    };
    let rows = events.into_iter().map(|(group, event)| {
        let count = event.count.map_or_else(|| "<nil>".to_owned(), |n| n.to_string());
        let mut row = vec![group.clone(), count, event.previous_count.to_string()];
        if verbose {
            row.push(event.error.to_string());
            row.push(event.message.clone());
            row.push(event.eval_id.clone().unwrap_or_else(|| "<nil>".to_owned()));
        }
        row.push(clock.time(event.time));
        row
    });
    Table::new(heading).keep_empty().rows(rows).render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_read_like_the_recorded_ones() {
        let clock = crate::format::tests::clock("2026-11-21T09:22:53Z");
        let found: ScalingEvents = serde_json::from_str(
            r#"{"TaskGroups":{"web":{"Events":[{"Time":1795252973000000000,"Count":3,"PreviousCount":2,"Error":false,
              "Message":"submitted using the Nomad CLI","EvalID":"f4f350f5-4bf5-9ba2-cfe7-58314eb75095"}]},
              "quiet":{"Events":null}}}"#,
        )
        .unwrap();
        assert_eq!(
            table(&clock, &found, false),
            "Task Group  Count  PrevCount  Date\nweb         3      2          2026-11-21T09:22:53Z"
        );
        assert_eq!(
            table(&clock, &found, true),
            "Task Group  Count  PrevCount  Error  Message                        Eval ID                               Date\n\
             web         3      2          false  submitted using the Nomad CLI  f4f350f5-4bf5-9ba2-cfe7-58314eb75095  2026-11-21T09:22:53Z"
        );
        assert_eq!(table(&clock, &ScalingEvents::default(), true), "No events found");
    }
}
