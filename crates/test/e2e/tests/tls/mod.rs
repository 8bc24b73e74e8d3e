//! TLS: the HTTP API and its clients, files from web servers, checks, calls between agents. The program itself
//! creates all certificates.

mod api;
mod calls;
mod checks;
mod files;
mod regions;

use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, Answer, Output, Pair, WebServer, eventually, program};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// An authority with a certificate for each kind of agent and user.
pub(crate) struct Certificates(TempDir);

impl Certificates {
    pub(crate) fn make() -> Result<Self> {
        let made = Self(tempfile::Builder::new().prefix("caravan-test-").tempdir()?);
        made.run(&[], &["tls", "ca", "create"])?.ok()?;
        for kind in ["-server", "-client", "-cli"] {
            made.run(&[], &["tls", "cert", "create", kind])?.ok()?;
        }
        Ok(made)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn ca(&self) -> String {
        self.path("nomad-agent-ca.pem").display().to_string()
    }

    /// Runs a command in the directory of the certificates.
    pub(crate) fn run(&self, env: &[(&str, &str)], args: &[&str]) -> Result<Output> {
        let mut command = Command::new(program());
        command.args(args).current_dir(self.0.path()).stdin(Stdio::null());
        command.env_remove("NOMAD_ADDR").env_remove("CARAVAN_ADDR").envs(env.iter().copied());
        let output = command.output().with_context(|| format!("run caravan {args:?}"))?;
        Ok(Output {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Returns a `tls` block for an agent of a kind.
    pub(crate) fn block(&self, kind: &str, more: &str) -> String {
        format!(
            "tls {{\n ca_file = \"{}\"\n cert_file = \"{}\"\n key_file = \"{}\"\n {more}\n}}\n",
            self.ca(),
            self.path(&format!("global-{kind}-nomad.pem")).display(),
            self.path(&format!("global-{kind}-nomad-key.pem")).display(),
        )
    }

    /// Starts an agent on a host that trusts this authority.
    fn trusting_agent(&self) -> Result<Agent> {
        let env = vec![("SSL_CERT_FILE".to_owned(), self.ca())];
        Agent::with(AgentOptions { dev: true, env, ..AgentOptions::default() })
    }

    /// Returns the files of the server's certificate.
    fn pair(&self) -> (PathBuf, PathBuf) {
        (self.path("global-server-nomad.pem"), self.path("global-server-nomad-key.pem"))
    }

    /// Starts a web server that answers every request with a text.
    fn serve(&self, text: impl Into<String>) -> Result<WebServer> {
        let ((cert, key), text) = (self.pair(), text.into());
        WebServer::start(Some(Pair { cert: &cert, key: &key }), move |_| Answer::good(text.clone()))
    }
}

/// Returns a task that prints a word and keeps running.
fn sleeper() -> String {
    crate::script_job("sleeper", "echo awake; exec sleep 1000")
}

/// Waits until an agent answers a user with these variables.
pub(crate) fn answers(certificates: &Certificates, agent: &Agent, env: &[(&str, &str)]) -> Result<()> {
    eventually("the agent to answer over TLS", || {
        let out = certificates.run(env, &["node", "status"])?.ok()?;
        if out.stdout.contains("ready") { Ok(()) } else { bail!("{out:?}") }
    })
    .with_context(|| format!("--- log of the agent\n{}", agent.log_tail()))
}

#[test]
fn certificates_that_cannot_be_used_keep_an_agent_from_starting() -> Result<()> {
    let certificates = Certificates::make()?;
    let run = |extra: String, words: &str| -> Result<()> {
        let mut agent = Agent::launch(AgentOptions { dev: true, extra, ..AgentOptions::default() })?;
        ensure!(agent.wait_end()? == 78);
        ensure!(agent.log().contains(words), "{}", agent.log_tail());
        Ok(())
    };
    run("tls {\n http = true\n}\n".to_owned(), "cert_file and key_file must be set")?;
    run(certificates.block("nobody", "http = true"), "global-nobody-nomad.pem cannot be read")?;
    let suite = "http = true\n tls_cipher_suites = \"TLS_RSA_WITH_RC4_128_SHA\"";
    run(certificates.block("server", suite), "\"TLS_RSA_WITH_RC4_128_SHA\" is not supported")?;
    let info = certificates.run(&[], &["tls", "cert", "info", "global-server-nomad.pem"])?.ok()?;
    ensure!(info.stdout.contains("server.global.nomad, localhost"), "{info:?}");
    ensure!(Path::new(&certificates.ca()).exists());
    Ok(())
}
