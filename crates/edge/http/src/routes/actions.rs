//! The actions of a job: commands that its tasks offer to run (docs/reference/http-api.md, section 3.1).

use super::jobs;
use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::{Meta, Next, Reply};
use caravan_types::job::Job;
use serde_json::{Value, json};

pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    let key = jobs::named(call);
    let (_, actions) = blocking::read(call, |reads| {
        let job = reads.job(&key);
        let job = job.ok_or_else(|| ApiError::internal(format!("Unknown job \"{}\"", key.id)))?;
        Ok((job.modify_index, of_job(job)))
    })
    .await?;
    // Nomad sends no index with this list.
    let meta = Meta { index: 0, known_leader: false, next: Next::default() };
    Ok(Reply::value(Value::Array(actions)).meta(meta))
}

fn of_job(job: &Job) -> Vec<Value> {
    let tasks = job.task_groups.iter().flat_map(|group| group.tasks.iter().map(move |task| (group, task)));
    tasks
        .flat_map(|(group, task)| {
            task.actions.iter().map(move |action| {
                json!({
                    "Name": action.name,
                    "Command": action.command,
                    "Args": action.args,
                    "TaskName": task.name,
                    "TaskGroupName": group.name,
                })
            })
        })
        .collect()
}
