//! Tasks outlive the agent, and the next agent recovers them.

use crate::support::{Agent, alloc, kinds, poll, shell, usage};
use caravan_types::alloc::ClientStatus;
use caravan_types::job::JobType;

#[tokio::test(flavor = "multi_thread")]
async fn a_running_task_is_taken_back_as_it_is() {
    let agent = Agent::start();
    let script = "echo $$ > $NOMAD_TASK_DIR/pid; exec sleep 1000";
    agent.servers.run(alloc("a1", JobType::Service, vec![shell("web", "raw_exec", script)]));
    agent.servers.status("a1", ClientStatus::Running).await;
    let node_id = agent.handle.node_id();
    let pid = |agent: &Agent| {
        let fs = agent.handle.fs(&"a1".into()).unwrap();
        fs.read_at("web/local/pid", 0, None).ok().filter(|p| !p.is_empty())
    };
    poll("the task tells its pid", || pid(&agent).is_some()).await;
    let before = pid(&agent).unwrap();

    let agent = agent.restart().await;
    assert_eq!(agent.handle.node_id(), node_id);
    assert!(usage(&agent, "a1", "web").await.pids >= 1);
    assert_eq!(pid(&agent).unwrap(), before);
    let (status, tasks) = agent.handle.status(&"a1".into()).unwrap();
    assert_eq!((status, tasks["web"].restarts), (ClientStatus::Running, 0));
    assert_eq!(kinds(&tasks["web"]), ["Received", "Task Setup", "Started"]);
    agent.servers.stop("a1");
    agent.servers.status("a1", ClientStatus::Complete).await;
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ended_meanwhile_is_seen_with_its_code_and_its_log() {
    let agent = Agent::start();
    let script = "while [ ! -e $NOMAD_TASK_DIR/go ]; do sleep 0.01; done; echo last words; exit 7";
    let mut work = alloc("a1", JobType::Batch, vec![shell("web", "raw_exec", script)]);
    let mut job = (*work.job.clone().unwrap()).clone();
    job.task_groups[0].restart_policy.as_mut().unwrap().attempts = 0;
    work.job = Some(std::sync::Arc::new(job));
    agent.servers.run(work);
    agent.servers.status("a1", ClientStatus::Running).await;
    let dir = agent.handle.alloc_dir(&"a1".into()).unwrap();
    let (servers, data) = agent.end().await;
    std::fs::write(dir.join("web/local/go"), "").unwrap();
    let log = dir.join("alloc/logs/web.stdout.0");
    poll("the task ends", || std::fs::read_to_string(&log).is_ok_and(|t| t.contains("last words"))).await;
    let agent = Agent::resume(servers, data);
    let update = agent.servers.status("a1", ClientStatus::Failed).await;
    let ended = update.task_states["web"].events.iter().find(|e| e.kind == "Terminated").unwrap();
    assert_eq!(ended.exit_code(), 7);
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_stopped_while_the_agent_was_away_is_stopped() {
    let agent = Agent::start();
    agent.servers.run(alloc("a1", JobType::Service, vec![shell("web", "raw_exec", "exec sleep 1000")]));
    agent.servers.status("a1", ClientStatus::Running).await;
    let (servers, dir) = agent.end().await;
    servers.stop("a1");
    let agent = Agent::resume(servers, dir);
    agent.servers.status("a1", ClientStatus::Complete).await;
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_after_a_stop_runs_under_the_next_agent_too() {
    let agent = Agent::start();
    let mut clean = shell("clean", "raw_exec", "echo clean > $NOMAD_ALLOC_DIR/data/clean");
    clean.lifecycle = Some(caravan_types::job::Lifecycle { hook: "poststop".into(), sidecar: false });
    let tasks = vec![shell("web", "raw_exec", "exec sleep 1000"), clean];
    agent.servers.run(alloc("a1", JobType::Service, tasks));
    agent.servers.task("a1", "it runs", |t| kinds(t).contains(&"Started")).await;
    let (servers, dir) = agent.end().await;
    servers.stop("a1");
    let agent = Agent::resume(servers, dir).restart().await;
    agent.servers.status("a1", ClientStatus::Complete).await;
    let seen = agent.handle.fs(&"a1".into()).unwrap().read_at("alloc/data/clean", 0, None).unwrap();
    assert_eq!(seen, b"clean\n");
    agent.clean().await;
}
