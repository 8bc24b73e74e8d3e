//! From the job that a client sends to the one that the servers keep.

use crate::error::ApiError;
use caravan_server::joined;
use caravan_types::api;
use caravan_types::job::{Job, JobType};

/// Fills the defaults and converts. The inner error lists what is wrong with the job.
pub(crate) fn internal(mut job: api::Job) -> Result<Job, Vec<String>> {
    api::canonicalize(&mut job);
    let problems = problems(&job);
    if !problems.is_empty() {
        return Err(problems);
    }
    api::convert(&job).map_err(|error| error.problems)
}

/// The same with the list as the text of one error.
pub(crate) fn accepted(job: api::Job) -> Result<Job, ApiError> {
    internal(job).map_err(|problems| ApiError::internal(joined(&problems)))
}

/// What the servers' types cannot even hold, in the reference's words.
fn problems(job: &api::Job) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(error) = job.kind.as_deref().and_then(|kind| kind.parse::<JobType>().err()) {
        problems.push(error);
        if let Some(priority) = job.priority
            && !(1..=100).contains(&priority)
        {
            problems.push("job priority must be between [1, 100]".into());
        }
    }
    for group in job.task_groups.iter().flatten() {
        if group.count.is_some_and(|count| count < 0) {
            let inner = joined(&["Task group count can't be negative".to_owned()]);
            let name = group.name.as_deref().unwrap_or_default();
            problems.push(format!("Task group {name} validation failed: {inner}"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minimal_job_gets_its_defaults() {
        let job: api::Job = api::decode(
            br#"{"ID":"a","Datacenters":["dc1"],"TaskGroups":[{"Name":"g","Count":2,"Tasks":[
                {"Name":"t","Driver":"raw_exec","Config":{"command":"/bin/true","x":null},"KillTimeout":7}]}]}"#,
        )
        .unwrap();
        let job = internal(job).unwrap();
        assert_eq!((job.kind, job.priority, job.namespace.as_str()), (JobType::Service, 50, "default"));
        let group = &job.task_groups[0];
        assert_eq!((group.count, group.disk_mb()), (2, 300));
        assert_eq!(group.tasks[0].kill_timeout.0, 7);
        assert!(group.tasks[0].config["x"].is_null());
        assert!(group.restart_policy.is_some() && group.update.is_some());
    }

    #[test]
    fn impossible_values_are_told_in_words() {
        let job: api::Job = api::decode(br#"{"ID":"v2","Type":"weird","Priority":500}"#).unwrap();
        assert_eq!(
            internal(job).unwrap_err(),
            ["Invalid job type: \"weird\"", "job priority must be between [1, 100]"]
        );
        let job: api::Job = api::decode(br#"{"ID":"neg","TaskGroups":[{"Name":"a","Count":-1}]}"#).unwrap();
        assert_eq!(
            accepted(job).unwrap_err().message,
            "1 error occurred:\n\t* Task group a validation failed: 1 error occurred:\n\t* Task group count can't be negative\n\n\n\n"
        );
    }
}
