//! The conversion of a client's job to the servers' representation.

use caravan_api as api;
use caravan_server::JobDraft;

/// Fills the defaults of a job and converts the job. The servers report conversion errors among the other problems of
/// the job.
pub(crate) fn draft(mut job: api::Job) -> JobDraft {
    api::canonicalize(&mut job);
    let (job, misfits) = api::fit(&job);
    JobDraft { job, misfits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::job::JobType;

    #[test]
    fn a_minimal_job_gets_its_defaults() {
        let job: api::Job = api::decode(
            br#"{"ID":"a","Datacenters":["dc1"],"TaskGroups":[{"Name":"g","Count":2,"Tasks":[
                {"Name":"t","Driver":"raw_exec","Config":{"command":"/bin/true","x":null},"KillTimeout":7}]}]}"#,
        )
        .unwrap();
        let JobDraft { job, misfits } = draft(job);
        assert!(misfits.is_empty());
        assert_eq!((job.kind, job.priority, job.namespace.as_str()), (JobType::Service, 50, "default"));
        let group = &job.task_groups[0];
        assert_eq!((group.count, group.disk_mb()), (2, 300));
        assert_eq!(group.tasks[0].kill_timeout.0, 7);
        assert!(group.tasks[0].config["x"].is_null());
        assert!(group.restart_policy.is_some() && group.update.is_some());
    }
}
