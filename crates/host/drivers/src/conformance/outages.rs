//! One story for all drivers: a program on which the tasks of the driver depend dies and starts again. A task that
//! cannot outlive the program ends with a reason, and every other task continues. No line of a task's output is
//! missing or doubled, and the driver works afterwards.

use super::output::{counts, file};
use super::{Behaviour, Check, Fixture, Violation, end, expect, read, soon, until};
use crate::task::{TaskHandle, TaskState};

/// A program on which the tasks of a driver depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The process that supervises the task.
    Shim,
    /// The process that copies the task's output.
    Collector,
    /// The program of an external driver.
    Plugin,
    /// The engine of containers.
    Engine,
}

/// A fixture that kills the parts of a driver.
pub trait Outages: Fixture {
    /// Returns the parts, and for each of them whether the driver's tasks survive its death.
    fn parts(&self) -> Vec<(Part, bool)>;

    /// Kills a part by SIGKILL.
    ///
    /// # Errors
    /// If the part is not found, in one sentence.
    fn kill(&mut self, part: Part, handle: &TaskHandle) -> Result<(), String>;

    /// Starts a part that no other program starts again.
    ///
    /// # Errors
    /// If the part does not start, in one sentence.
    fn restore(&mut self, _part: Part) -> Result<(), String> {
        Ok(())
    }
}

/// Runs the story for each part.
pub async fn check_outages(fixture: &mut dyn Outages) -> Result<(), Violation> {
    for (part, survives) in fixture.parts() {
        let told = outage(fixture, part, survives).await;
        told.map_err(|seen| Violation { check: "outages", seen: format!("{part:?}: {seen}") })?;
    }
    Ok(())
}

async fn outage(fixture: &mut dyn Outages, part: Part, survives: bool) -> Check {
    let driver = fixture.driver();
    // A driver becomes healthy by its first fingerprint.
    driver.fingerprint().await;
    let name = format!("outage-{part:?}").to_lowercase();
    // Drivers whose tasks cannot count have tasks that only run.
    let counting = fixture.task(&name, Behaviour::Count);
    let logs = counting.as_ref().and_then(|config| config.logs.clone());
    let Some(config) = counting.or_else(|| fixture.task(&name, Behaviour::RunForever)) else { return Ok(()) };
    let id = config.id.clone();
    let handle = soon("start", driver.start(config)).await?;
    let path = logs.map(|logs| file(&logs, 0));
    if let Some(path) = &path {
        soon("some output", until(path, |text| text.lines().count() > 10)).await?;
    }
    fixture.kill(part, &handle)?;
    fixture.restore(part)?;
    if survives {
        if let Some(path) = &path {
            let before = read(path).await.lines().count();
            soon("more output", until(path, |text| text.lines().count() > before + 10)).await?;
            counts(&read(path).await)?;
        }
        let status = soon("inspect", driver.inspect(&id)).await?;
        expect(status.state == TaskState::Running, || format!("the task did not survive: {status:?}"))?;
        expect(status.handle == handle, || format!("it is another run: {status:?}"))?;
        soon("stop", driver.stop(&id, super::TIMEOUT, None)).await?;
        soon("wait", driver.wait(&id)).await?;
    } else {
        let result = soon("wait", driver.wait(&id)).await?;
        // An engine that starts again may end its containers by their stop signal.
        let may_succeed = part == Part::Engine;
        expect(may_succeed || !result.is_success(), || format!("the task ended well: {result:?}"))?;
    }
    if let Some(path) = &path {
        counts(&read(path).await)?;
    }
    end(&driver, &id).await?;
    let Some(config) = fixture.task(&format!("{name}-next"), Behaviour::Exit(0)) else { return Ok(()) };
    let next = config.id.clone();
    soon("start after the outage", driver.start(config)).await?;
    let result = soon("wait", driver.wait(&next)).await?;
    expect(result.is_success(), || format!("the next task: {result:?}"))?;
    end(&driver, &next).await?;
    super::leave(driver).await;
    Ok(())
}
