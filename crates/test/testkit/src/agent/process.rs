//! The process of an agent: its log, signals, and its end.

use super::Agent;
use crate::wait::eventually;
use anyhow::{Context, Result, anyhow, bail};
use caravan_sys::process::{PidFd, ProcessIdentity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

impl Agent {
    /// Returns whether the process was started and not ended through this value.
    pub fn is_started(&self) -> bool {
        self.child.is_some()
    }

    /// Returns whether the process has ended without a request, or by a signal.
    ///
    /// # Errors
    /// Fails if the state of the process cannot be read.
    pub fn has_ended(&mut self) -> Result<bool> {
        match &mut self.child {
            None => Ok(true),
            Some(child) => Ok(child.try_wait()?.is_some()),
        }
    }

    /// Sends a signal without waiting for its effect.
    ///
    /// # Errors
    /// Fails if the process does not run.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().context("the agent was not started")?;
        Ok(kill(Pid::from_raw(i32::try_from(child.id())?), signal)?)
    }

    /// Waits until the agent's log contains a text.
    ///
    /// # Errors
    /// Fails if the text is absent after the timeout.
    pub fn wait_log(&self, text: &str) -> Result<()> {
        eventually(&format!("{text:?} in the agent's log"), || {
            if self.log().contains(text) { Ok(()) } else { bail!("--- log\n{}", self.log_tail()) }
        })
    }

    /// Waits until the agent ends without a request. Returns its exit code.
    ///
    /// # Errors
    /// Fails after the timeout, or if a signal ended the agent.
    pub fn wait_end(&mut self) -> Result<i32> {
        let mut child = self.child.take().context("the agent was not started")?;
        let ended = eventually("the agent to end", || {
            child.try_wait()?.ok_or_else(|| anyhow!("still running"))?.code().context("ended by a signal")
        });
        if ended.is_err() {
            // The process may have ended meanwhile.
            let _ = child.kill();
            child.wait()?;
        }
        ended.with_context(|| format!("--- log of the agent\n{}", self.log_tail()))
    }

    /// Returns the process id.
    ///
    /// # Panics
    /// Panics if the agent is not running.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the agent runs").id()
    }

    /// Returns the path of the agent's log.
    pub fn log_path(&self) -> PathBuf {
        self.dir.path().join("agent.log")
    }

    /// Returns the agent's whole log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Returns the end of the agent's log.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        // Tests poll, and the lines of their reads would hide the relevant lines.
        let lines: Vec<&str> =
            log.lines().filter(|line| !line.contains("DEBUG request complete method=GET")).collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// Kills the agent with SIGKILL.
    ///
    /// # Errors
    /// Fails if the end of the process cannot be read.
    pub fn kill_9(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Kills the processes of the agent's tasks, in the control groups `ALLOC.TASK` of the allocations below the data
    /// directory. The shims end with their tasks.
    pub(super) fn kill_tasks(&self) -> Result<()> {
        let allocs: Vec<String> = match fs::read_dir(self.data_dir().join("alloc")) {
            Ok(entries) => entries.flatten().map(|e| format!("/{}.", e.file_name().display())).collect(),
            Err(_) => return Ok(()),
        };
        for entry in fs::read_dir("/proc")?.flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
            let groups = fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
            if allocs.iter().any(|alloc| groups.contains(alloc)) {
                // The process may have ended meanwhile.
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        Ok(())
    }

    /// Kills the processes of the agent's external plugins, which outlive a killed agent.
    pub(super) fn kill_plugins(&self) -> Result<()> {
        let Ok(entries) = fs::read_dir(self.data_dir().join("client/plugins")) else { return Ok(()) };
        for entry in entries.flatten() {
            let Ok(record) = fs::read(entry.path().join("process.json")) else { continue };
            let record: Value = serde_json::from_slice(&record)?;
            let number = |key: &str| record[key].as_u64().context("a number in the record of a plugin");
            let identity =
                ProcessIdentity { pid: number("pid")?.try_into()?, start_time: number("start_time")? };
            if let Some(process) = PidFd::open_identity(identity)? {
                process.send_signal(Signal::SIGKILL as i32)?;
            }
        }
        Ok(())
    }

    /// Requests the end of the agent, and waits for it.
    ///
    /// # Errors
    /// Fails if the agent still runs after the timeout.
    pub fn stop(&mut self) -> Result<()> {
        self.stop_by(Signal::SIGINT)
    }

    /// Returns whether the process has written to its log since its start. From the first line on, it
    /// handles signals.
    ///
    /// # Errors
    /// Fails if the log does not exist.
    pub fn has_spoken(&self) -> Result<bool> {
        Ok(fs::metadata(self.log_path())?.len() > self.log_before)
    }

    /// Sends a signal and waits for the end. Before the process has written to its log, the signal may end
    /// it directly.
    ///
    /// # Errors
    /// Fails if the process does not end, or ends with an error.
    pub fn stop_by(&mut self, signal: Signal) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        kill(Pid::from_raw(i32::try_from(child.id())?), signal)?;
        let ended =
            eventually("the agent to end", || child.try_wait()?.ok_or_else(|| anyhow!("still running")));
        if ended.is_err() {
            child.kill()?;
            child.wait()?;
        }
        let status = ended?;
        let too_early = status.signal() == Some(signal as i32) && !self.has_spoken()?;
        if status.success() || too_early {
            return Ok(());
        }
        bail!("the agent ended with {status}\n{}", self.log_tail())
    }
}
