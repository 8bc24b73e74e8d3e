//! Tasks with reserved cores, and tasks that share the other processors.

use crate::support::{Agent, alloc, poll, shell};
use caravan_sys::cgroup::{Hierarchy, SharedCpus};
use caravan_types::alloc::{AllocatedResources, AllocatedTaskResources, Allocation, ClientStatus};
use caravan_types::cores::{format, parse};
use caravan_types::job::JobType;
use std::path::Path;
use std::sync::Arc;

/// A script that repeatedly writes the processors on which the task may run.
const TELLS: &str = "echo \"[$NOMAD_CPU_CORES]\" > $NOMAD_TASK_DIR/given; while :; do \
     grep Cpus_allowed_list /proc/self/status | cut -f2 > $NOMAD_TASK_DIR/now; \
     mv $NOMAD_TASK_DIR/now $NOMAD_TASK_DIR/cpus; sleep 0.02; done";

fn work(id: &str, driver: &str, assigned: &[u16]) -> Allocation {
    let mut task = AllocatedTaskResources::default();
    task.cpu.reserved_cores = assigned.to_vec();
    let mut all = AllocatedResources::default();
    all.tasks.insert("t".into(), task);
    let mut work = alloc(id, JobType::Service, vec![shell("t", driver, TELLS)]);
    work.allocated_resources = Some(Arc::new(all));
    work
}

/// Returns the processors of the machine; a machine with fewer than two is skipped.
fn available() -> Option<Vec<u16>> {
    let list = SharedCpus::available(&Hierarchy::detect().unwrap()?, Path::new(""))?;
    Some(parse(&list).unwrap().into_iter().collect()).filter(|all: &Vec<u16>| all.len() > 1)
}

async fn runs_on(agent: &Agent, alloc: &str, cpus: &str) {
    let seen = || {
        let Ok(fs) = agent.handle.fs(&alloc.into()) else { return false };
        fs.read_at("t/local/cpus", 0, None).is_ok_and(|text| text.trim_ascii() == cpus.as_bytes())
    };
    poll(&format!("{alloc} runs on {cpus}"), seen).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reserved_processors_are_a_tasks_own_and_the_others_share_the_rest() {
    let Some(all) = available() else { return };
    let agent = Agent::start();
    let node = agent.servers.node("it registers", |_| true).await;
    assert_eq!(node.node_resources.cpu.reservable_cpu_cores, all);
    assert_eq!(node.attributes["cpu.reservablecores"], all.len().to_string());
    let (everything, rest) = (format(all.iter().copied()), format(all[1..].iter().copied()));
    let first = format([all[0]]);
    for (id, driver) in [("shared", "raw_exec"), ("confined", "exec")] {
        agent.servers.run(work(id, driver, &[]));
    }
    runs_on(&agent, "shared", &everything).await;
    runs_on(&agent, "confined", &everything).await;
    for (id, driver) in [("own", "raw_exec"), ("own-exec", "exec")] {
        agent.servers.run(work(id, driver, &all[..1]));
        runs_on(&agent, id, &first).await;
        for id in ["shared", "confined"] {
            runs_on(&agent, id, &rest).await;
        }
        let assigned = agent.handle.fs(&id.into()).unwrap().read_at("t/local/given", 0, None).unwrap();
        assert_eq!(assigned, format!("[{first}]\n").as_bytes());
        agent.servers.stop(id);
        agent.servers.status(id, ClientStatus::Complete).await;
        runs_on(&agent, "shared", &everything).await;
    }
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_reserved_outlives_the_agent() {
    let Some(all) = available() else { return };
    let agent = Agent::start();
    agent.servers.run(work("own", "raw_exec", &all[..1]));
    agent.servers.status("own", ClientStatus::Running).await;
    let agent = agent.restart().await;
    agent.servers.run(work("shared", "raw_exec", &[]));
    runs_on(&agent, "shared", &format(all[1..].iter().copied())).await;
    runs_on(&agent, "own", &format([all[0]])).await;
    agent.servers.stop("own");
    runs_on(&agent, "shared", &format(all)).await;
    agent.clean().await;
}
