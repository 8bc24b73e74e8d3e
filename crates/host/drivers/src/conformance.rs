//! The rules that every driver must follow, as checks that run against any driver.
//!
//! A driver's tests implement [`Fixture`] and call [`check_all`]. A failed check returns a [`Violation`] that names
//! the broken rule and what the check observed.

mod outages;
mod output;
mod sample;
mod sessions;

pub use outages::{Outages, Part, check_outages};
pub use sample::{sample, sample_with_dirs};

use crate::driver::{Driver, Health};
use crate::task::{ExitResult, TaskConfig, TaskHandle, TaskId, TaskState};
use crate::{Error, Result};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest time that a check waits for one step.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The time between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The behaviour of a task of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Exits immediately with this code.
    Exit(i32),
    /// Writes `hello` and a newline to its output, and exits with 0.
    Hello,
    /// Runs until it is stopped; `SIGINT` or `SIGTERM` is enough.
    RunForever,
    /// Runs until it is killed: it ignores `SIGINT` and `SIGTERM` once it has written `deaf` and a newline to its output.
    Stubborn,
    /// Fails to start.
    CannotStart,
    /// Writes the value of the variable `CONFORMANCE` and a newline to its standard output, `error` and a newline to
    /// its standard error, and exits with 0.
    Variable,
    /// Writes `line 0`, `line 1` and so on to its output, a line each 10 ms, until it is stopped.
    Count,
    /// Writes [`FLOOD`] lines of 100 characters without a pause, which begin with `line 0 `, `line 1 ` and so on.
    Flood,
    /// Writes `ready` and a newline, then `usr1` and a newline at each SIGUSR1, until it is stopped.
    Counted,
    /// Copies the file `/srv/in` to `/srv/out`, then writes `denied` and a newline if `/srv2` cannot be written to.
    Copy,
    /// Runs until it is stopped, and has `sh` and `stty` in its root.
    Shell,
}

/// Returns a script of `sh` with a behaviour; `None` if the behaviour depends on the driver.
pub fn script(behaviour: Behaviour) -> Option<String> {
    Some(match behaviour {
        Behaviour::Variable => "printf '%s\\n' \"$CONFORMANCE\"; echo error >&2".into(),
        Behaviour::Count => {
            "trap 'exit 0' INT TERM; i=0; while true; do echo line $i; i=$((i+1)); sleep 0.01; done".into()
        }
        Behaviour::Flood => {
            let filler = "x".repeat(100 - "line 00000 ".len());
            let last = FLOOD - 1;
            format!("i=0; while [ $i -le {last} ]; do echo line $i {filler}; i=$((i+1)); done")
        }
        Behaviour::Counted => {
            "trap 'echo usr1' USR1; trap 'exit 0' INT TERM; echo ready; while true; do sleep 0.05; done"
                .into()
        }
        Behaviour::Copy => "cat /srv/in > /srv/out; echo x 2>/dev/null > /srv2/out || echo denied".into(),
        Behaviour::Shell => "trap 'exit 0' INT TERM; sleep 100000 & wait".into(),
        _ => return None,
    })
}

/// The lines of [`Behaviour::Flood`]: more than the log files of a task of the suite may hold.
pub const FLOOD: usize = 40_000;

/// A fixture that creates the drivers and tasks for the suite's checks.
pub trait Fixture: Send + Sync {
    /// Returns a driver as a new process of the agent creates it: without tasks.
    fn driver(&self) -> Arc<dyn Driver>;

    /// Returns a task with its own directories, or `None` if the driver has no tasks with this behaviour. A task has at
    /// most 3 log files of 1 MiB for each output.
    fn task(&self, name: &str, behaviour: Behaviour) -> Option<TaskConfig>;
}

/// A rule that a driver broke.
#[derive(Debug, thiserror::Error)]
#[error("{check}: {seen}")]
pub struct Violation {
    check: &'static str,
    seen: String,
}

type Check = std::result::Result<(), String>;

/// Runs all checks and stops at the first failure.
pub async fn check_all(fixture: &dyn Fixture) -> std::result::Result<(), Violation> {
    let named = |check: &'static str, result: Check| result.map_err(|seen| Violation { check, seen });
    named("fingerprint", fingerprint(fixture).await)?;
    named("unknown tasks", unknown(fixture).await)?;
    named("bad configuration", bad_config(fixture).await)?;
    named("exit codes", exit_codes(fixture).await)?;
    named("failing starts", failing_start(fixture).await)?;
    named("output", output(fixture).await)?;
    named("stop", stop(fixture).await)?;
    named("stubborn tasks", stubborn(fixture).await)?;
    named("two of a kind", twice(fixture).await)?;
    named("destroy", destroy(fixture).await)?;
    named("signals", signals(fixture).await)?;
    named("exec", exec(fixture).await)?;
    named("exec with streams", sessions::streams(fixture).await)?;
    named("exec with a terminal", sessions::terminals(fixture).await)?;
    named("environment", output::environment(fixture).await)?;
    named("rotation of output", output::rotation(fixture).await)?;
    named("delivery of signals", output::delivery(fixture).await)?;
    named("mounts", output::mounts(fixture).await)?;
    named("usage", usage(fixture).await)?;
    named("recovery", recovery(fixture).await)?;
    named("recovery of an ended task", recovery_of_ended(fixture).await)?;
    named("output over a recovery", output::recovery(fixture).await)?;
    named("foreign handles", foreign_handle(fixture).await)
}

fn ok<T>(what: &str, result: Result<T>) -> std::result::Result<T, String> {
    result.map_err(|error| format!("{what} failed: {}", caravan_sys::describe(&error)))
}

fn expect(condition: bool, seen: impl FnOnce() -> String) -> Check {
    if condition { Ok(()) } else { Err(seen()) }
}

async fn soon<T>(
    what: &str,
    future: impl Future<Output = Result<T>> + Send,
) -> std::result::Result<T, String> {
    match tokio::time::timeout(TIMEOUT, future).await {
        Ok(result) => ok(what, result),
        Err(_) => Err(format!("{what} took longer than {TIMEOUT:?}")),
    }
}

/// Starts a task, if the driver has tasks with this behaviour.
async fn begin(
    fixture: &dyn Fixture,
    driver: &Arc<dyn Driver>,
    name: &str,
    behaviour: Behaviour,
) -> std::result::Result<Option<TaskHandle>, String> {
    let Some(config) = fixture.task(name, behaviour) else { return Ok(None) };
    let id = config.id.clone();
    let handle = soon("start", driver.start(config)).await?;
    expect(handle.task_id == id, || format!("the handle is of {}, not {id}", handle.task_id))?;
    expect(handle.driver == driver.name(), || format!("the handle is from {}", handle.driver))?;
    Ok(Some(handle))
}

/// Ends a driver as the end of its agent does. Its tasks continue.
async fn leave(driver: Arc<dyn Driver>) {
    driver.shutdown().await;
}

async fn end(driver: &Arc<dyn Driver>, id: &TaskId) -> Check {
    soon("forced destroy", driver.destroy(id, true)).await
}

async fn fingerprint(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    // An agent repeats the request too: on a busy machine, an engine may be slow to answer.
    let deadline = Instant::now() + TIMEOUT;
    let mut found = driver.fingerprint().await;
    while found.state != Health::Healthy && Instant::now() < deadline {
        tokio::time::sleep(POLL_INTERVAL).await;
        found = driver.fingerprint().await;
    }
    expect(found.state == Health::Healthy, || format!("{found:?}"))?;
    let key = format!("driver.{}", driver.name());
    expect(found.attributes.contains_key(&key), || format!("no attribute {key} in {found:?}"))
}

async fn unknown(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    let id = TaskId("no/such/task".into());
    let answers = [
        driver.wait(&id).await.err(),
        driver.stop(&id, TIMEOUT, None).await.err(),
        driver.destroy(&id, true).await.err(),
        driver.inspect(&id).await.err(),
        driver.usage(&id).await.err(),
        driver.signal(&id, "SIGTERM").await.err(),
        driver.exec(&id, &["true".to_owned()], TIMEOUT).await.err(),
    ];
    for answer in answers {
        expect(matches!(answer, Some(Error::UnknownTask(_))), || format!("{answer:?}"))?;
    }
    Ok(())
}

async fn bad_config(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    let Some(mut config) = fixture.task("bad-config", Behaviour::Exit(0)) else { return Ok(()) };
    if let Some(map) = config.driver_config.as_object_mut() {
        map.insert("surely_no_such_key".into(), true.into());
    }
    let error = match driver.validate(&config.driver_config) {
        Ok(()) => return Err("an unknown key passes validation".into()),
        Err(error) => error.to_string(),
    };
    expect(error.contains("surely_no_such_key"), || format!("the key is not named: {error}"))?;
    let id = config.id.clone();
    expect(driver.start(config).await.is_err(), || "an unknown key passes at start".into())?;
    expect(driver.inspect(&id).await.is_err(), || "a task that was refused is known".into())
}

async fn exit_codes(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    for code in [0, 1, 42] {
        let name = format!("exit-{code}");
        let Some(handle) = begin(fixture, &driver, &name, Behaviour::Exit(code)).await? else {
            return Ok(());
        };
        let id = handle.task_id;
        let result = soon("wait", driver.wait(&id)).await?;
        // A driver may add words to a code that is not 0.
        expect(result.exit_code == code && result.signal == 0 && (code != 0 || result.is_success()), || {
            format!("{result:?}")
        })?;
        expect(result.finished_unix_ns >= handle.started_unix_ns, || {
            format!("it ended before it began: {result:?}")
        })?;
        let again = soon("second wait", driver.wait(&id)).await?;
        expect(again == result, || format!("the second answer differs: {again:?}"))?;
        let status = soon("inspect", driver.inspect(&id)).await?;
        expect(status.state == TaskState::Exited(result), || format!("{status:?}"))?;
        soon("stop of an ended task", driver.stop(&id, TIMEOUT, None)).await?;
        soon("destroy", driver.destroy(&id, false)).await?;
        expect(matches!(driver.wait(&id).await, Err(Error::UnknownTask(_))), || {
            "a destroyed task is known".into()
        })?;
    }
    Ok(())
}

async fn failing_start(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    let Some(config) = fixture.task("cannot-start", Behaviour::CannotStart) else { return Ok(()) };
    let id = config.id.clone();
    let answer = driver.start(config).await;
    expect(matches!(answer, Err(Error::Start { .. })), || format!("{answer:?}"))?;
    expect(driver.inspect(&id).await.is_err(), || "a task that did not start is known".into())
}

async fn output(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    let Some(config) = fixture.task("hello", Behaviour::Hello) else { return Ok(()) };
    let Some(logs) = config.logs.clone() else { return Ok(()) };
    let id = config.id.clone();
    soon("start", driver.start(config)).await?;
    soon("wait", driver.wait(&id)).await?;
    let path = logs.dir.join(format!("{}.0", logs.stdout));
    let text = read(&path).await;
    expect(text == "hello\n", || format!("{} holds {text:?} when the end is told", path.display()))?;
    end(&driver, &id).await
}

async fn read(path: &Path) -> String {
    tokio::fs::read_to_string(path).await.unwrap_or_default()
}

/// Waits until a condition holds for the text of a file.
async fn until(path: &Path, mut condition: impl FnMut(&str) -> bool + Send) -> Result<()> {
    while !condition(&read(path).await) {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

async fn stop(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    let Some(handle) = begin(fixture, &driver, "stop", Behaviour::RunForever).await? else { return Ok(()) };
    let id = handle.task_id;
    let status = soon("inspect", driver.inspect(&id)).await?;
    expect(status.state == TaskState::Running, || format!("{status:?}"))?;
    // With so long a timeout, the next step fails if the signal alone does not end the task.
    soon("stop", driver.stop(&id, TIMEOUT * 100, Some("SIGTERM"))).await?;
    let result = soon("wait", driver.wait(&id)).await?;
    // A driver whose tasks get no signals ends them in another way.
    let signalled = result.signal == 15 || result.exit_code != 0;
    expect(signalled || !driver.capabilities().send_signals, || format!("{result:?}"))?;
    end(&driver, &id).await
}

async fn stubborn(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    let Some(config) = fixture.task("stubborn", Behaviour::Stubborn) else { return Ok(()) };
    let Some(logs) = config.logs.clone() else { return Ok(()) };
    let id = config.id.clone();
    soon("start", driver.start(config)).await?;
    let path = logs.dir.join(format!("{}.0", logs.stdout));
    soon("its first output", until(&path, |text| text == "deaf\n")).await?;
    soon("stop", driver.stop(&id, Duration::from_millis(50), None)).await?;
    let result = soon("wait", driver.wait(&id)).await?;
    // Engines of containers report a signal as 128 plus its number.
    expect(result.signal == 9 || result.exit_code == 137, || format!("{result:?}"))?;
    end(&driver, &id).await
}

async fn twice(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    let Some(handle) = begin(fixture, &driver, "twice", Behaviour::RunForever).await? else { return Ok(()) };
    let Some(config) = fixture.task("twice", Behaviour::RunForever) else { return Ok(()) };
    let answer = driver.start(config).await;
    expect(matches!(answer, Err(Error::TaskExists(_))), || format!("{answer:?}"))?;
    end(&driver, &handle.task_id).await
}

async fn destroy(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    let Some(handle) = begin(fixture, &driver, "destroy", Behaviour::RunForever).await? else {
        return Ok(());
    };
    let id = handle.task_id;
    let answer = driver.destroy(&id, false).await;
    expect(matches!(answer, Err(Error::StillRunning(_))), || format!("{answer:?}"))?;
    end(&driver, &id).await?;
    expect(driver.inspect(&id).await.is_err(), || "a destroyed task is known".into())
}

async fn signals(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    if !driver.capabilities().send_signals {
        return Ok(());
    }
    let Some(handle) = begin(fixture, &driver, "signals", Behaviour::RunForever).await? else {
        return Ok(());
    };
    let id = handle.task_id;
    let answer = driver.signal(&id, "SIGNONSENSE").await;
    expect(answer.is_err(), || "a signal that does not exist is sent".into())?;
    soon("signal", driver.signal(&id, "SIGCONT")).await?;
    soon("stop", driver.stop(&id, TIMEOUT, Some("SIGKILL"))).await?;
    let answer = driver.signal(&id, "SIGCONT").await;
    expect(matches!(answer, Err(Error::Ended(_))), || format!("{answer:?}"))?;
    end(&driver, &id).await
}

async fn exec(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    if !driver.capabilities().exec {
        return Ok(());
    }
    let Some(handle) = begin(fixture, &driver, "exec", Behaviour::RunForever).await? else { return Ok(()) };
    let id = handle.task_id;
    let command = ["echo", "one", "two"].map(str::to_owned);
    let output = soon("exec", driver.exec(&id, &command, TIMEOUT)).await?;
    expect(output.stdout == b"one two\n" && output.exit_code == 0, || format!("{output:?}"))?;
    end(&driver, &id).await
}

async fn usage(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    let Some(handle) = begin(fixture, &driver, "usage", Behaviour::RunForever).await? else { return Ok(()) };
    let first = soon("usage", driver.usage(&handle.task_id)).await?;
    let second = soon("usage", driver.usage(&handle.task_id)).await?;
    expect(second.boot_time_ns >= first.boot_time_ns && second.cpu_total_ns >= first.cpu_total_ns, || {
        format!("{first:?} then {second:?}")
    })?;
    end(&driver, &handle.task_id).await
}

/// Returns a handle as the client's store returns it.
fn stored(handle: &TaskHandle) -> std::result::Result<TaskHandle, String> {
    let text = serde_json::to_string(handle).map_err(|e| e.to_string())?;
    serde_json::from_str(&text).map_err(|e| e.to_string())
}

async fn recovery(fixture: &dyn Fixture) -> Check {
    let first = fixture.driver();
    let Some(handle) = begin(fixture, &first, "recovery", Behaviour::RunForever).await? else {
        return Ok(());
    };
    let handle = stored(&handle)?;
    let id = handle.task_id.clone();
    leave(first).await;
    let second = fixture.driver();
    soon("recover", second.recover(handle.clone())).await?;
    let status = soon("inspect", second.inspect(&id)).await?;
    expect(status.state == TaskState::Running && status.handle == handle, || format!("{status:?}"))?;
    expect(second.recover(handle).await.is_err(), || "a task is taken back twice".into())?;
    if second.capabilities().send_signals {
        soon("signal", second.signal(&id, "SIGCONT")).await?;
    }
    soon("stop", second.stop(&id, TIMEOUT, None)).await?;
    end(&second, &id).await
}

async fn recovery_of_ended(fixture: &dyn Fixture) -> Check {
    let first = fixture.driver();
    let Some(handle) = begin(fixture, &first, "recovery-ended", Behaviour::Exit(42)).await? else {
        return Ok(());
    };
    let id = handle.task_id.clone();
    let seen: ExitResult = soon("wait", first.wait(&id)).await?;
    leave(first).await;
    let second = fixture.driver();
    soon("recover", second.recover(stored(&handle)?)).await?;
    let result = soon("wait", second.wait(&id)).await?;
    expect(result.exit_code == seen.exit_code && result.err == seen.err, || {
        format!("after recovery {result:?}, before {seen:?}")
    })?;
    end(&second, &id).await
}

async fn foreign_handle(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    let handle = TaskHandle {
        version: 1,
        driver: "another".into(),
        task_id: TaskId("foreign".into()),
        started_unix_ns: 0,
        pid: None,
        degraded: Vec::new(),
        network: None,
        state: serde_json::Value::Null,
    };
    let answer = driver.recover(handle).await;
    expect(matches!(answer, Err(Error::Handle { .. })), || format!("{answer:?}"))
}
