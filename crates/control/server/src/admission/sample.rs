//! A job for tests.

use caravan_api as api;
use caravan_types::job::Job;

/// Returns a service job with one group of one task, all defaults filled in.
pub(crate) fn minimal() -> Job {
    let mut job: api::Job = api::decode(
        br#"{"ID": "web", "Datacenters": ["*"], "NodePool": "default",
            "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "raw_exec"}]}]}"#,
    )
    .unwrap();
    api::canonicalize(&mut job);
    api::convert(&job).unwrap()
}
