//! The control connection of QEMU (QEMU Machine Protocol).

use crate::wait::eventually;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The timeout of a command of QEMU; a loaded machine is slow.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A connection that can execute commands.
#[derive(Debug)]
pub(super) struct Qmp(BufReader<UnixStream>);

impl Qmp {
    /// Connects to a socket as soon as QEMU has created it.
    pub(super) fn connect(path: &Path) -> Result<Self> {
        let stream = eventually("the control socket of QEMU", || Ok(UnixStream::connect(path)?))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut qmp = Self(BufReader::new(stream));
        qmp.line()?;
        qmp.execute("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Executes a command and returns its result. Skips events.
    pub(super) fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments }).to_string();
        self.0.get_mut().write_all(request.as_bytes()).with_context(|| format!("send {command} to QEMU"))?;
        loop {
            let mut answer = self.line().with_context(|| format!("QEMU's answer to {command}"))?;
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
            if let Some(error) = answer.get("error") {
                bail!("QEMU refused {command}: {}", error["desc"]);
            }
        }
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            bail!("QEMU has ended");
        }
        Ok(serde_json::from_str(&line)?)
    }
}
