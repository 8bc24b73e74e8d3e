//! Tasks under real drivers: run, stop, restart policy, lifecycle order.

use crate::support::{Agent, alloc, kinds, poll, shell, task};
use caravan_client::fs::{LogKind, LogStart, Origin};
use caravan_types::alloc::{ClientStatus, TaskRunState};
use caravan_types::job::{JobType, Lifecycle};
use futures::StreamExt;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_task_runs_is_stopped_and_leaves_nothing() {
    let agent = Agent::start();
    let node = agent.servers.node("the node registers", |n| n.drivers.len() == 3).await;
    assert!(node.drivers["raw_exec"].healthy && node.attributes["driver.raw_exec"] == "1");
    let script = "echo $NOMAD_TASK_NAME in $NOMAD_ALLOC_ID; exec sleep 1000";
    agent.servers.run(alloc("a1", JobType::Service, vec![shell("web", "raw_exec", script)]));
    let update = agent.servers.status("a1", ClientStatus::Running).await;
    assert_eq!(kinds(&update.task_states["web"]), ["Received", "Task Setup", "Started"]);
    let fs = agent.handle.fs(&"a1".into()).unwrap();
    let mut log = fs.logs("web", LogKind::Stdout, LogStart::Offset(0, Origin::Start), true).unwrap();
    let frame = log.next().await.unwrap().unwrap();
    assert!(String::from_utf8(frame.data).unwrap().starts_with("web in a1"));
    assert!(agent.handle.stats(&"a1".into(), "web").await.unwrap().pids >= 1);
    assert!(agent.handle.stats(&"a1".into(), "nope").await.is_err());

    agent.servers.stop("a1");
    let update = agent.servers.status("a1", ClientStatus::Complete).await;
    let web = &update.task_states["web"];
    assert_eq!(kinds(web)[3..], ["Killing", "Terminated", "Killed"]);
    assert_eq!((web.events[4].exit_code(), web.events[4].signal()), (130, 2), "SIGINT is the default");
    assert!(!web.failed && !web.finished_at.is_zero());
    let dir = agent.handle.alloc_dir(&"a1".into()).unwrap();
    assert!(dir.exists());
    agent.servers.remove("a1");
    poll("the directory is removed", || !dir.exists()).await;
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_task_is_restarted_and_fails_in_the_end() {
    let agent = Agent::start();
    agent.servers.run(alloc("a1", JobType::Service, vec![shell("web", "raw_exec", "exit 3")]));
    let update = agent.servers.status("a1", ClientStatus::Failed).await;
    let web = &update.task_states["web"];
    assert_eq!((web.restarts, web.failed), (1, true));
    let over = web.events.last().unwrap();
    assert_eq!(over.display(), "Exceeded allowed attempts 1 in interval 10m0s and mode is \"fail\"");
    assert!(web.events.iter().any(|e| e.kind == "Terminated" && e.exit_code() == 3));
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_configuration_is_reported_and_not_retried() {
    let agent = Agent::start();
    let wrong = task("web", "raw_exec", json!({"comand": "x"}));
    agent.servers.run(alloc("a1", JobType::Batch, vec![wrong]));
    let update = agent.servers.status("a1", ClientStatus::Failed).await;
    let web = &update.task_states["web"];
    let failure = web.events.iter().find(|e| e.kind == "Driver Failure").unwrap();
    assert!(failure.display().contains("command"), "{}", failure.display());
    assert_eq!(web.events.last().unwrap().display(), "Error was unrecoverable");
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_a_group_live_in_their_order() {
    let agent = Agent::start();
    let with = |mut task: caravan_types::job::Task, hook: &str, sidecar| {
        task.lifecycle = Some(Lifecycle { hook: hook.into(), sidecar });
        task
    };
    let mark = |name: &str| format!("echo {name} >> $NOMAD_ALLOC_DIR/data/order");
    let tasks = vec![
        with(shell("init", "raw_exec", &mark("init")), "prestart", false),
        with(task("proxy", "mock_driver", json!({"run_for": "1h"})), "prestart", true),
        shell("main", "raw_exec", &mark("main")),
        with(shell("clean", "raw_exec", &mark("clean")), "poststop", false),
    ];
    agent.servers.run(alloc("a1", JobType::Batch, tasks));
    let update = agent.servers.status("a1", ClientStatus::Complete).await;
    let order = agent.handle.fs(&"a1".into()).unwrap().read_at("alloc/data/order", 0, None).unwrap();
    assert_eq!(String::from_utf8(order).unwrap(), "init\nmain\nclean\n");
    assert!(kinds(&update.task_states["proxy"]).contains(&"Main Tasks Dead"));
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_restart_and_signal_tasks() {
    let agent = Agent::start();
    let script = "trap 'echo got >> $NOMAD_TASK_DIR/signals' USR1; touch $NOMAD_TASK_DIR/ready; \
        while :; do sleep 0.05; done";
    agent.servers.run(alloc("a1", JobType::Service, vec![shell("web", "raw_exec", script)]));
    agent.servers.status("a1", ClientStatus::Running).await;
    let id = "a1".into();
    let fs = agent.handle.fs(&id).unwrap();
    poll("the task is ready", || fs.stat("web/local/ready").is_ok()).await;
    agent.handle.signal(&id, Some("web"), "SIGUSR1").await.unwrap();
    poll("the signal arrives", || fs.stat("web/local/signals").is_ok()).await;
    let first = agent.servers.task("a1", "started", |t| !t.started_at.is_zero()).await.started_at;
    agent.handle.restart(&id, Some("web"), false).unwrap();
    let web =
        agent.servers.task("a1", "restarted", |t| t.restarts == 1 && t.state == TaskRunState::Running).await;
    assert!(web.last_restart > first && web.started_at >= web.last_restart, "{web:?}");
    assert!(web.events.iter().any(|e| e.display() == "User requested task to restart"));
    // The next agent does not start the task.
    let agent = agent.restart().await;
    agent.servers.stop("a1");
    let ended = agent.servers.status("a1", ClientStatus::Complete).await;
    assert_eq!(ended.task_states["web"].started_at, web.started_at);
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_wait_while_the_servers_are_away() {
    let agent = Agent::start();
    agent.servers.run(alloc("a1", JobType::Batch, vec![shell("web", "raw_exec", "exec sleep 1000")]));
    agent.servers.status("a1", ClientStatus::Running).await;
    agent.servers.set_down(true);
    agent.servers.stop("a1");
    let done = |agent: &Agent| agent.handle.status(&"a1".into()).unwrap().0 == ClientStatus::Complete;
    poll("it is stopped", || done(&agent)).await;
    agent.servers.set_down(false);
    agent.servers.status("a1", ClientStatus::Complete).await;
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_development_agent_takes_everything_with_it() {
    let agent = Agent::start_dev();
    let script = "echo $$ > $NOMAD_TASK_DIR/pid; exec sleep 1000";
    agent.servers.run(alloc("a1", JobType::Service, vec![shell("web", "raw_exec", script)]));
    agent.servers.status("a1", ClientStatus::Running).await;
    let (_, dir) = agent.end().await;
    crate::support::remove_cgroups(dir.path());
    assert!(!dir.path().join("alloc/a1").exists());
    let table = caravan_sys::mountinfo::MountTable::read().unwrap();
    assert_eq!(table.under(dir.path()).count(), 0);
}
