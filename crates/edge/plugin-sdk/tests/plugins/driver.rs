//! The life of a task.

use crate::host::{Alloc, Plugin, destroy, driver, process, wait, within};
use caravan_proto::plugins::driver::fingerprint_response::HealthState;
use caravan_proto::plugins::driver::{
    CapabilitiesRequest, ExitResult, FingerprintRequest, InitRequest, InspectTaskRequest, SignalTaskRequest,
    StopTaskRequest, TaskConfigSchemaRequest, TaskEventsRequest, TaskState, TaskStatsRequest,
};
use caravan_sys::process::{PidFd, ProcessIdentity};
use caravan_testkit::eventually;
use serde_json::json;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use tonic::{Code, Status};

fn exited(exit_code: i32, signal: i32) -> ExitResult {
    ExitResult { exit_code, signal, oom_killed: false }
}

async fn stop(plugin: &Plugin, id: &str, millis: i32, signal: &str) -> Result<(), Status> {
    let timeout =
        Some(prost_types::Duration { seconds: i64::from(millis / 1000), nanos: millis % 1000 * 1_000_000 });
    let request = StopTaskRequest { task_id: id.into(), timeout, signal: signal.into() };
    within(plugin.driver().stop_task(request)).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_describes_itself() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = Plugin::start("exampledriver", dir.path()).await.unwrap();
    let mut driver = plugin.driver();
    plugin.configure(&json!({ "enabled": false })).await.unwrap();
    let mut stream = within(driver.fingerprint(FingerprintRequest {})).await.unwrap().into_inner();
    assert_eq!(within(stream.message()).await.unwrap().unwrap().health(), HealthState::Undetected);
    plugin.configure(&json!({ "enabled": true })).await.unwrap();
    within(driver.init(InitRequest {})).await.unwrap();
    let mut stream = within(driver.fingerprint(FingerprintRequest {})).await.unwrap().into_inner();
    let found = within(stream.message()).await.unwrap().unwrap();
    assert_eq!((found.health(), found.health_description.as_str()), (HealthState::Healthy, "Healthy"));
    assert!(found.attributes.contains_key("driver.example.version"));
    let capabilities = within(driver.capabilities(CapabilitiesRequest {})).await.unwrap().into_inner();
    let capabilities = capabilities.capabilities.unwrap();
    assert!(capabilities.exec && capabilities.send_signals);
    let schema = within(driver.task_config_schema(TaskConfigSchemaRequest {})).await.unwrap();
    assert!(schema.into_inner().spec.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_runs_in_its_environment_and_its_result_stays() {
    let alloc = Alloc::new();
    let plugin = driver(alloc.dir.path()).await;
    let task = alloc.script("web", "echo $GREETING; pwd; echo problem >&2; exit 7");
    let id = task.config.id.as_str();
    let handle = alloc.start(&plugin, &task.config).await.unwrap();
    assert_eq!(handle.config.as_ref(), Some(&task.config));
    assert_eq!(handle.state(), TaskState::Running);
    for _ in 0..2 {
        assert_eq!(wait(&plugin, id).await.unwrap(), exited(7, 0));
    }
    let place = fs::canonicalize(alloc.dir.path().join("web")).unwrap();
    task.stdout.wait_for(&format!("hello\n{}\n", place.display()));
    task.stderr.wait_for("problem\n");

    let request = InspectTaskRequest { task_id: id.into() };
    let found = within(plugin.driver().inspect_task(request)).await.unwrap().into_inner();
    let status = found.task.unwrap();
    assert_eq!((status.state(), status.result), (TaskState::Exited, Some(exited(7, 0))));
    assert!(status.completed_at.unwrap().seconds >= status.started_at.unwrap().seconds);
    assert_eq!(found.driver.unwrap().attributes["pid"], process(&handle, "task").pid.to_string());

    stop(&plugin, id, 1000, "").await.unwrap();
    destroy(&plugin, id, false).await.unwrap();
    let names: Vec<_> = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["local"]);
    for error in [destroy(&plugin, id, true).await.unwrap_err(), wait(&plugin, id).await.unwrap_err()] {
        assert_eq!(error.message(), "task not found for given id");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_reach_a_task() {
    let alloc = Alloc::new();
    let plugin = driver(alloc.dir.path()).await;
    // A shell that inherits an ignored SIGHUP, as below nohup(1), cannot catch that one.
    let task = alloc.script("web", "trap 'echo reload' USR2; echo ready; while :; do sleep 0.05; done");
    let id = task.config.id.as_str();
    alloc.start(&plugin, &task.config).await.unwrap();
    task.stdout.wait_for("ready");
    let send = |signal: &str| SignalTaskRequest { task_id: id.into(), signal: signal.into() };
    within(plugin.driver().signal_task(send("SIGUSR2"))).await.unwrap();
    task.stdout.wait_for("reload");
    let unknown = within(plugin.driver().signal_task(send("SIGNONE"))).await.unwrap_err();
    assert!(unknown.message().contains("SIGNONE"), "{unknown}");
    // A background command of a shell script inherits an ignored SIGQUIT.
    stop(&plugin, id, 60_000, "SIGUSR1").await.unwrap();
    assert_eq!(wait(&plugin, id).await.unwrap(), exited(138, 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_ignores_the_signal_is_killed_with_its_children() {
    let alloc = Alloc::new();
    let plugin = driver(alloc.dir.path()).await;
    let script =
        "trap '' TERM; sleep 600 & echo group $! end; setsid sleep 600 & echo session $! end; wait; wait";
    let task = alloc.script("web", script);
    let id = task.config.id.as_str();
    let handle = alloc.start(&plugin, &task.config).await.unwrap();
    task.stdout.wait_for("session");
    task.stdout.wait_for("end\nsession");
    let text = eventually("both children", || {
        let text = task.stdout.text();
        anyhow::ensure!(text.matches("end").count() == 2, "{text}");
        Ok(text)
    })
    .unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    let children =
        [words[1], words[4]].map(|pid| ProcessIdentity::read(pid.parse().unwrap()).unwrap().unwrap());
    assert!(destroy(&plugin, id, false).await.unwrap_err().message().contains("the task runs"));
    stop(&plugin, id, 50, "").await.unwrap();
    assert_eq!(wait(&plugin, id).await.unwrap(), exited(137, 9));
    for process in children.into_iter().chain([process(&handle, "supervisor")]) {
        eventually("a process ends", || {
            anyhow::ensure!(PidFd::open_identity(process)?.is_none(), "{process:?} runs");
            Ok(())
        })
        .unwrap();
    }
    destroy(&plugin, id, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn force_ends_a_running_task() {
    let alloc = Alloc::new();
    let plugin = driver(alloc.dir.path()).await;
    let task = alloc.script("web", "sleep 600");
    let handle = alloc.start(&plugin, &task.config).await.unwrap();
    destroy(&plugin, &task.config.id, true).await.unwrap();
    assert!(PidFd::open_identity(process(&handle, "task")).unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn only_some_failures_to_start_may_pass() {
    let alloc = Alloc::new();
    let plugin = driver(alloc.dir.path()).await;
    let missing = alloc.task("missing", &json!({ "command": "/nonexistent", "args": null }));
    let error = alloc.start(&plugin, &missing.config).await.unwrap_err();
    assert_eq!(error.code(), Code::Unknown);
    assert!(error.message().contains("cannot start /nonexistent"), "{error}");

    let invalid = alloc.task("invalid", &json!({ "command": null }));
    let error = alloc.start(&plugin, &invalid.config).await.unwrap_err();
    assert!(error.message().contains("command"), "{error}");

    let program = alloc.dir.path().join("program");
    fs::copy("/bin/true", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let writer = File::options().append(true).open(&program).unwrap();
    let busy = alloc.task("busy", &json!({ "command": program }));
    let error = alloc.start(&plugin, &busy.config).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
    let detail = b"hashicorp.nomad.plugins.shared.structs.RecoverableError";
    assert!(error.details().windows(detail.len()).any(|window| window == detail));

    drop(writer);
    eventually("the program is no longer open", || {
        let started = std::process::Command::new(&program).status();
        anyhow::ensure!(started?.success());
        Ok(())
    })
    .unwrap();
    alloc.start(&plugin, &busy.config).await.unwrap();
    assert_eq!(wait(&plugin, &busy.config.id).await.unwrap(), exited(0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_measured_until_they_end_and_events_are_sent() {
    let alloc = Alloc::new();
    let plugin = driver(alloc.dir.path()).await;
    let task = alloc.script("web", "while :; do :; done");
    let id = task.config.id.clone();
    let handle = alloc.start(&plugin, &task.config).await.unwrap();
    let mut events = within(plugin.driver().task_events(TaskEventsRequest {})).await.unwrap().into_inner();
    let event = within(events.message()).await.unwrap().unwrap();
    assert_eq!((event.task_id.as_str(), event.alloc_id.as_str()), (id.as_str(), "7c2b"));
    assert_eq!(event.message, "Process started");
    assert!(event.timestamp.is_some());

    let collection_interval = Some(prost_types::Duration { seconds: 0, nanos: 20_000_000 });
    let request = TaskStatsRequest { task_id: id.clone(), collection_interval };
    let mut stream = within(plugin.driver().task_stats(request)).await.unwrap().into_inner();
    let pid = process(&handle, "task").pid.to_string();
    loop {
        let stats = within(stream.message()).await.unwrap().unwrap().stats.unwrap();
        let total = stats.agg_resource_usage.unwrap();
        assert_eq!(stats.id, id);
        assert!(stats.resource_usage_by_pid.contains_key(&pid));
        assert!(total.memory.unwrap().rss > 0);
        if total.cpu.unwrap().percent > 0.0 {
            break;
        }
    }
    destroy(&plugin, &id, true).await.unwrap();
    let end = loop {
        match within(stream.message()).await {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    // The last measurement may come before or after the task is destroyed.
    assert!(end.is_ok() || end.unwrap_err().message() == "task not found for given id");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_end_with_the_plugin() {
    use caravan_proto::plugins::host::{Empty, grpc_controller_client::GrpcControllerClient};
    let alloc = Alloc::new();
    let mut plugin = driver(alloc.dir.path()).await;
    let task = alloc.script("web", "sleep 600");
    let handle = alloc.start(&plugin, &task.config).await.unwrap();
    let mut controller = GrpcControllerClient::new(plugin.channel.clone());
    let id = task.config.id.as_str();
    let (waited, ended) = tokio::join!(wait(&plugin, id), within(controller.shutdown(Empty {})));
    assert_eq!(waited.unwrap_err().code(), Code::Unavailable);
    ended.unwrap();
    assert_eq!(plugin.ended(), Some(0));
    assert!(PidFd::open_identity(process(&handle, "task")).unwrap().is_some());
}
