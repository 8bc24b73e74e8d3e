//! Services and checks, as reported to the servers.

use crate::support::{Agent, alloc, shell};
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::job::{Job, JobType, Task};
use serde_json::json;
use std::sync::Arc;

/// Returns a task with a service and a script check that tests for a file.
fn serving(script: &str) -> Task {
    let second = 1_000_000_000_i64;
    Task {
        services: vec![serde_json::from_value(json!({
            "Name": "web", "Provider": "nomad", "PortLabel": "8080", "AddressMode": "auto", "Tags": ["${NOMAD_TASK_NAME}"],
            "Checks": [{"Name": "file", "Type": "script", "Command": "/bin/sh", "Interval": second, "Timeout": 5 * second,
                        "Args": ["-c", "test ! -e $NOMAD_TASK_DIR/bad"], "OnUpdate": "require_healthy",
                        "CheckRestart": {"Limit": 2, "Grace": 0}}],
        }))
        .expect("a service")],
        ..shell("web", "raw_exec", script)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_hear_of_services_while_their_task_runs() {
    let agent = Agent::start();
    agent.servers.run(alloc("a1", JobType::Service, vec![serving("exec sleep 1000")]));
    let reported = agent.servers.services("a1", "the registration", |rows| rows.len() == 1).await;
    assert_eq!(reported[0].id, "_nomad-task-a1-web-web-8080");
    assert_eq!((reported[0].tags.as_slice(), reported[0].port), (&["web".to_owned()][..], 8080));
    let (mut summary, expected) = agent.handle.checks_summary(&"a1".into()).unwrap();
    assert_eq!(expected, 1);
    let healthy = summary.wait_for(|s| s.passing == 1).await.unwrap();
    assert!(healthy.all_passing());
    drop(healthy);
    assert_eq!(agent.handle.checks(&"a1".into()).unwrap().len(), 1);
    agent.servers.stop("a1");
    agent.servers.services("a1", "the end of the registration", <[_]>::is_empty).await;
    agent.servers.status("a1", ClientStatus::Complete).await;
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_check_restarts_its_task_by_the_policy() {
    let agent = Agent::start();
    let script = "if test -e $NOMAD_ALLOC_DIR/again; then rm -f $NOMAD_TASK_DIR/bad; else touch $NOMAD_ALLOC_DIR/again $NOMAD_TASK_DIR/bad; fi; exec sleep 1000";
    agent.servers.run(alloc("a1", JobType::Service, vec![serving(script)]));
    let restarted = agent.servers.task("a1", "a restart", |t| t.restarts == 1).await;
    let why = restarted.events.iter().find(|e| e.kind == "Restart Signaled").unwrap();
    assert_eq!(why.display(), "healthcheck: check \"file\" unhealthy");
    let (mut summary, _) = agent.handle.checks_summary(&"a1".into()).unwrap();
    // The returned guard must be dropped: it blocks all writers.
    drop(summary.wait_for(|s| s.passing == 1).await.unwrap());
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_job_changes_its_services_in_place() {
    let agent = Agent::start();
    let first = alloc("a1", JobType::Service, vec![serving("exec sleep 1000")]);
    agent.servers.run(first.clone());
    agent.servers.services("a1", "the registration", |rows| rows.len() == 1).await;
    let mut job: Job = (**first.job.as_ref().unwrap()).clone();
    job.task_groups[0].tasks[0].services[0].tags = Some(vec!["other".into()]);
    let changed =
        Allocation { job: Some(Arc::new(job)), alloc_modify_index: first.alloc_modify_index + 1, ..first };
    agent.servers.run(changed);
    agent.servers.services("a1", "the new tags", |rows| rows.iter().any(|r| r.tags == ["other"])).await;
    agent.clean().await;
}
