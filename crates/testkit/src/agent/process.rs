//! The process of an agent: its log, signals, and its end.

use super::Agent;
use crate::wait::eventually;
use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

impl Agent {
    /// Whether its process was started and not ended by this value.
    pub fn is_started(&self) -> bool {
        self.child.is_some()
    }

    /// Sends a signal and does not wait for anything.
    ///
    /// # Errors
    /// If it does not run.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().context("the agent was not started")?;
        Ok(kill(Pid::from_raw(i32::try_from(child.id())?), signal)?)
    }

    /// Waits until the agent's log holds a text.
    ///
    /// # Errors
    /// If it does not.
    pub fn wait_log(&self, text: &str) -> Result<()> {
        eventually(&format!("{text:?} in the agent's log"), || {
            if self.log().contains(text) { Ok(()) } else { bail!("--- log\n{}", self.log_tail()) }
        })
    }

    /// Waits until the agent ended by itself; answers its exit code.
    ///
    /// # Errors
    /// If it does not, or by a signal.
    pub fn wait_end(&mut self) -> Result<i32> {
        let mut child = self.child.take().context("the agent was not started")?;
        let ended = eventually("the agent to end", || {
            child.try_wait()?.ok_or_else(|| anyhow!("still running"))?.code().context("ended by a signal")
        });
        if ended.is_err() {
            // It may have ended meanwhile.
            let _ = child.kill();
            child.wait()?;
        }
        ended.with_context(|| format!("--- log of the agent\n{}", self.log_tail()))
    }

    /// Process id.
    ///
    /// # Panics
    /// If the agent is not running.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the agent runs").id()
    }

    /// Where its log is.
    pub fn log_path(&self) -> PathBuf {
        self.dir.path().join("agent.log")
    }

    /// The agent's whole log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// The end of the agent's log.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// Kills the agent outright.
    ///
    /// # Errors
    /// If the process cannot be waited for.
    pub fn kill_9(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Asks the agent to end and waits for it.
    ///
    /// # Errors
    /// If it does not.
    pub fn stop(&mut self) -> Result<()> {
        self.stop_by(Signal::SIGINT)
    }

    /// Whether the process has written to its log. From then on it listens to signals.
    ///
    /// # Errors
    /// If there is no log.
    pub fn has_spoken(&self) -> Result<bool> {
        Ok(fs::metadata(self.log_path())?.len() > self.log_before)
    }

    /// Sends a signal and waits for the end. Before the process has said anything, it may end by the signal itself.
    ///
    /// # Errors
    /// If it does not end, or not in order.
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
