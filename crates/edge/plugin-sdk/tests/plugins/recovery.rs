//! Tasks outlive the plugin.

use crate::host::{Alloc, Plugin, destroy, driver, process, wait, within};
use caravan_proto::plugins::driver::{
    InspectTaskRequest, RecoverTaskRequest, SignalTaskRequest, TaskHandle, TaskState,
};
use caravan_sys::process::PidFd;
use caravan_testkit::eventually;
use tonic::Status;

const SCRIPT: &str = "trap 'exit 9' USR1; echo ready; while :; do sleep 0.05; done";

async fn recover(plugin: &Plugin, handle: &TaskHandle) -> Result<(), Status> {
    // Agents leave the id empty: the handle contains it.
    let request = RecoverTaskRequest { task_id: String::new(), handle: Some(handle.clone()) };
    within(plugin.driver().recover_task(request)).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_plugin_finds_a_running_task() {
    let alloc = Alloc::new();
    let mut plugin = driver(alloc.dir.path()).await;
    let task = alloc.script("web", SCRIPT);
    let id = task.config.id.as_str();
    let handle = alloc.start(&plugin, &task.config).await.unwrap();
    task.stdout.wait_for("ready");
    plugin.kill();
    let plugin = driver(alloc.dir.path()).await;
    assert_eq!(wait(&plugin, id).await.unwrap_err().message(), "task not found for given id");
    for _ in 0..2 {
        recover(&plugin, &handle).await.unwrap();
    }
    let request = InspectTaskRequest { task_id: id.into() };
    let found = within(plugin.driver().inspect_task(request)).await.unwrap().into_inner();
    assert_eq!(found.task.unwrap().state(), TaskState::Running);
    assert_eq!(found.driver.unwrap().attributes["pid"], process(&handle, "task").pid.to_string());
    let request = SignalTaskRequest { task_id: id.into(), signal: "SIGUSR1".into() };
    within(plugin.driver().signal_task(request)).await.unwrap();
    assert_eq!(wait(&plugin, id).await.unwrap().exit_code, 9);
    destroy(&plugin, id, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_plugin_reads_the_result_of_a_task_that_ended_meanwhile() {
    let alloc = Alloc::new();
    let mut plugin = driver(alloc.dir.path()).await;
    let task = alloc.script("web", SCRIPT);
    let id = task.config.id.as_str();
    let handle = alloc.start(&plugin, &task.config).await.unwrap();
    task.stdout.wait_for("ready");
    plugin.kill();
    let process_of_task = PidFd::open_identity(process(&handle, "task")).unwrap().unwrap();
    process_of_task.send_signal(nix::libc::SIGUSR1).unwrap();
    eventually("the supervisor ends", || {
        let supervisor = PidFd::open_identity(process(&handle, "supervisor"))?;
        anyhow::ensure!(supervisor.is_none(), "it runs");
        Ok(())
    })
    .unwrap();
    let plugin = driver(alloc.dir.path()).await;
    recover(&plugin, &handle).await.unwrap();
    assert_eq!(wait(&plugin, id).await.unwrap().exit_code, 9);
    destroy(&plugin, id, false).await.unwrap();
    // The record was removed with the task.
    let error = recover(&plugin, &handle).await.unwrap_err();
    assert!(error.message().contains("the supervisor of the task has ended"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_does_not_run_without_its_supervisor() {
    let alloc = Alloc::new();
    let plugin = driver(alloc.dir.path()).await;
    let task = alloc.script("web", SCRIPT);
    let handle = alloc.start(&plugin, &task.config).await.unwrap();
    task.stdout.wait_for("ready");
    let supervisor = PidFd::open_identity(process(&handle, "supervisor")).unwrap().unwrap();
    supervisor.send_signal(nix::libc::SIGKILL).unwrap();
    let request = caravan_proto::plugins::driver::WaitTaskRequest { task_id: task.config.id.clone() };
    let ended = within(plugin.driver().wait_task(request)).await.unwrap().into_inner();
    assert!(ended.err.contains("the supervisor of the task was killed"), "{}", ended.err);
    eventually("the task ends", || {
        anyhow::ensure!(PidFd::open_identity(process(&handle, "task"))?.is_none(), "it runs");
        Ok(())
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_handle_is_refused() {
    let alloc = Alloc::new();
    let plugin = driver(alloc.dir.path()).await;
    let task = alloc.script("web", "sleep 600");
    let handle = alloc.start(&plugin, &task.config).await.unwrap();
    destroy(&plugin, &task.config.id, true).await.unwrap();
    let damaged = TaskHandle { driver_state: vec![0xc1], ..handle.clone() };
    assert!(recover(&plugin, &damaged).await.is_err());
    let empty = TaskHandle { config: None, ..handle };
    assert!(recover(&plugin, &empty).await.is_err());
}
