//! TLS: the HTTP API and its users, files from web servers, calls between agents. All certificates are made by the
//! program itself.

use crate::id_of;
use anyhow::{Context, Result, bail, ensure};
use caravan_rpc::{
    Channel, Code, ConnectOptions, PeerIdentity, RetryPolicy, Secret, TcpConnector, TlsConnector, methods,
};
use caravan_testkit::{Agent, AgentOptions, Output, eventually, program};
use caravan_tls::{Acceptor, Checked, ClientSettings, Connector, Protocol, ServerSettings};
use caravan_types::node::NodeSecret;
use caravan_types::wire::NodeHeartbeat;
use nix::sys::signal::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// An authority with a certificate for each kind of agent and user.
struct Certificates(TempDir);

impl Certificates {
    fn make() -> Result<Self> {
        let made = Self(tempfile::Builder::new().prefix("caravan-test-").tempdir()?);
        made.run(&[], &["tls", "ca", "create"])?.ok()?;
        for kind in ["-server", "-client", "-cli"] {
            made.run(&[], &["tls", "cert", "create", kind])?.ok()?;
        }
        Ok(made)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn ca(&self) -> String {
        self.path("nomad-agent-ca.pem").display().to_string()
    }

    /// Runs a verb in the directory of the certificates.
    fn run(&self, env: &[(&str, &str)], args: &[&str]) -> Result<Output> {
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

    /// A `tls` block for an agent of a kind.
    fn block(&self, kind: &str, more: &str) -> String {
        format!(
            "tls {{\n ca_file = \"{}\"\n cert_file = \"{}\"\n key_file = \"{}\"\n {more}\n}}\n",
            self.ca(),
            self.path(&format!("global-{kind}-nomad.pem")).display(),
            self.path(&format!("global-{kind}-nomad-key.pem")).display(),
        )
    }

    /// A web server on a thread of its own that answers everything with a text; its port.
    fn serve(&self, text: String) -> Result<u16> {
        let acceptor = Acceptor::new(&ServerSettings {
            cert_file: self.path("global-server-nomad.pem"),
            key_file: self.path("global-server-nomad-key.pem"),
            client_ca: None,
            protocol: Protocol::default(),
        })?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                loop {
                    let (stream, _) = listener.accept().await?;
                    // Who does not trust us is part of the story.
                    let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                    let mut head = Vec::new();
                    let mut piece = [0; 1024];
                    while !head.ends_with(b"\r\n\r\n") {
                        match stream.read(&mut piece).await {
                            Ok(n) if n > 0 => head.extend_from_slice(&piece[..n]),
                            _ => break,
                        }
                    }
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
                        text.len()
                    );
                    if stream.write_all(answer.as_bytes()).await.is_ok() {
                        // The other side may have gone with what it wanted.
                        let _ = stream.shutdown().await;
                    }
                }
                #[expect(unreachable_code, reason = "names the type of the errors above")]
                std::io::Result::Ok(())
            })
        });
        Ok(port)
    }
}

const JOB: &str = r#"
job "sleeper" {
  type = "service"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo awake; exec sleep 1000"]
      }
      kill_timeout = "1s"
      resources {
        cpu    = 20
        memory = 16
      }
    }
  }
}
"#;

fn https(agent: &Agent) -> String {
    format!("https://{}", agent.address())
}

/// Waits until an agent answers a user with these variables.
fn answers(certificates: &Certificates, agent: &Agent, env: &[(&str, &str)]) -> Result<()> {
    eventually("the agent to answer over TLS", || {
        let out = certificates.run(env, &["node", "status"])?.ok()?;
        if out.stdout.contains("ready") { Ok(()) } else { bail!("{out:?}") }
    })
    .with_context(|| format!("--- log of the agent\n{}", agent.log_tail()))
}

#[test]
fn the_api_is_spoken_over_tls() -> Result<()> {
    let certificates = Certificates::make()?;
    let agent = Agent::launch(AgentOptions {
        dev: true,
        extra: certificates.block("server", "http = true"),
        ..AgentOptions::default()
    })?;
    let (address, ca) = (https(&agent), certificates.ca());
    let env = [("CARAVAN_ADDR", address.as_str()), ("NOMAD_CACERT", ca.as_str())];
    answers(&certificates, &agent, &env)?;

    // Everything else that users do: writing, streams, programs in tasks.
    fs::write(certificates.path("sleeper.nomad.hcl"), JOB)?;
    certificates.run(&env, &["job", "run", "sleeper.nomad.hcl"])?.ok()?;
    let allocs = certificates.run(&env, &["operator", "api", "/v1/job/sleeper/allocations"])?.ok()?;
    let allocs: serde_json::Value = serde_json::from_str(&allocs.stdout)?;
    let alloc = id_of(&allocs[0])?;
    eventually("its output", || {
        let out = certificates.run(&env, &["alloc", "logs", &alloc])?.ok()?;
        if out.stdout == "awake\n" { Ok(()) } else { bail!("{out:?}") }
    })?;
    let out = certificates.run(&env, &["alloc", "exec", &alloc, "/bin/echo", "inside"])?.ok()?;
    ensure!(out.stdout == "inside\n", "{out:?}");

    let own = certificates.run(&env, &["operator", "api", "/v1/agent/self"])?.ok()?;
    let own: serde_json::Value = serde_json::from_str(&own.stdout)?;
    ensure!(own["config"]["TLSConfig"]["EnableHTTP"] == true, "{}", own["config"]["TLSConfig"]);
    let node = own["stats"]["client"]["node_id"].as_str().context("a node")?;
    let node = certificates.run(&env, &["operator", "api", &format!("/v1/node/{node}")])?.ok()?;
    ensure!(
        node.stdout.contains("\"TLSEnabled\":true") || node.stdout.contains("\"TLSEnabled\": true"),
        "{node:?}"
    );

    // Who does not know the authority is told what to do, and may do without at their own risk.
    let run = |args: &[&str]| certificates.run(&[], &[&["node", "status"], args].concat());
    let at = ["-address", address.as_str()];
    let told = run(&at)?.failed()?.stderr;
    ensure!(told.contains("authority that is not trusted") && told.contains("-ca-cert"), "{told}");
    run(&[&at[..], &["-tls-skip-verify"]].concat())?.ok()?;
    let with_ca = [&at[..], &["-ca-cert", ca.as_str()]].concat();
    run(&[&with_ca[..], &["-tls-server-name", "server.global.nomad"]].concat())?.ok()?;
    let told = run(&[&with_ca[..], &["-tls-server-name", "example.com"]].concat())?.failed()?.stderr;
    ensure!(told.contains("not for example.com"), "{told}");
    let told = run(&[&at[..], &["-ca-cert", "/nowhere.pem"]].concat())?.failed()?.stderr;
    ensure!(told.contains("CA certificate /nowhere.pem cannot be read"), "{told}");

    let plain = agent.request("GET", "/v1/agent/self", None)?;
    ensure!(plain.status == 400, "{}", plain.status);
    ensure!(plain.text() == "Client sent an HTTP request to an HTTPS server.\n", "{}", plain.text());

    // New certificates, of another authority.
    let others = Certificates::make()?;
    for file in ["global-server-nomad.pem", "global-server-nomad-key.pem"] {
        fs::copy(others.path(file), certificates.path(file))?;
    }
    agent.signal(Signal::SIGHUP)?;
    agent.wait_log("the certificates were read again")?;
    let theirs = others.ca();
    let new = [("CARAVAN_ADDR", address.as_str()), ("CARAVAN_CACERT", theirs.as_str())];
    answers(&others, &agent, &new)?;
    let told = certificates.run(&env, &["node", "status"])?.failed()?.stderr;
    ensure!(told.contains("authority that is not trusted"), "{told}");
    Ok(())
}

#[test]
fn users_show_certificates_where_they_must() -> Result<()> {
    let certificates = Certificates::make()?;
    let agent = Agent::launch(AgentOptions {
        dev: true,
        extra: certificates.block("server", "http = true\n verify_https_client = true"),
        ..AgentOptions::default()
    })?;
    let (address, ca) = (https(&agent), certificates.ca());
    let env = [
        ("NOMAD_ADDR", address.as_str()),
        ("NOMAD_CACERT", ca.as_str()),
        ("NOMAD_CLIENT_CERT", "global-cli-nomad.pem"),
        ("NOMAD_CLIENT_KEY", "global-cli-nomad-key.pem"),
    ];
    answers(&certificates, &agent, &env)?;
    let told = certificates.run(&env[..2], &["node", "status"])?.failed()?.stderr;
    ensure!(told.contains("wants a certificate") && told.contains("-client-cert"), "{told}");
    let told = certificates.run(&env[..3], &["node", "status"])?.failed()?.stderr;
    ensure!(told.contains("without a client key"), "{told}");
    // A stranger's certificate does not open either.
    let others = Certificates::make()?;
    let told = others.run(&env, &["node", "status"])?.failed()?.stderr;
    ensure!(told.contains("does not take this one's certificate"), "{told}");
    Ok(())
}

fn with_artifact(name: &str, artifact: &str) -> String {
    format!(
        r#"
job "{name}" {{
  type = "batch"
  group "g" {{
    restart {{
      attempts = 0
      mode     = "fail"
    }}
    reschedule {{
      attempts  = 0
      unlimited = false
    }}
    task "t" {{
      driver = "raw_exec"
      artifact {{
        {artifact}
      }}
      config {{
        command = "/bin/cat"
        args    = ["local/greeting"]
      }}
      resources {{
        cpu    = 20
        memory = 16
      }}
    }}
  }}
}}
"#
    )
}

#[test]
fn files_come_over_tls() -> Result<()> {
    let (certificates, others) = (Certificates::make()?, Certificates::make()?);
    let agent = Agent::with(AgentOptions {
        dev: true,
        env: vec![("SSL_CERT_FILE".to_owned(), certificates.ca())],
        ..AgentOptions::default()
    })?;
    let known = certificates.serve("good morning\n".to_owned())?;
    let stranger = others.serve("good evening\n".to_owned())?;
    let address = format!("http://{}", agent.address());
    let ca = certificates.ca();
    let env = [("CARAVAN_ADDR", address.as_str()), ("SSL_CERT_FILE", ca.as_str())];
    for (name, artifact, said) in [
        ("trusted", format!("source = \"https://127.0.0.1:{known}/greeting\""), "good morning\n"),
        (
            "believed",
            format!("source = \"https://localhost:{stranger}/greeting\"\n insecure = true"),
            "good evening\n",
        ),
    ] {
        // The job files come the same way.
        let port = certificates.serve(with_artifact(name, &artifact))?;
        let url = format!("https://127.0.0.1:{port}/job.nomad.hcl");
        certificates.run(&env, &["job", "run", "-detach", &url])?.ok()?;
        let alloc = id_of(&agent.wait_alloc(name, "complete")?)?;
        let found = agent.logs(&alloc, "t", "stdout")?;
        ensure!(found == said, "{found:?}");
    }
    let doubtful = with_artifact("doubtful", &format!("source = \"https://127.0.0.1:{stranger}/greeting\""));
    crate::run_job(&agent, "doubtful", &doubtful)?;
    let alloc = agent.wait_alloc("doubtful", "failed")?;
    let events = alloc["TaskStates"]["t"]["Events"].to_string();
    ensure!(events.contains("signed by an authority that is not trusted here"), "{events}");
    let url = format!("https://127.0.0.1:{stranger}/job.nomad.hcl");
    let told = certificates.run(&env, &["job", "run", "-detach", &url])?.failed()?.stderr;
    ensure!(told.contains("Error getting jobfile") && told.contains("not trusted here"), "{told}");
    Ok(())
}

const BOTH: &str = "rpc = true\n verify_server_hostname = true";

fn server(certificates: &Certificates, kind: &str) -> AgentOptions {
    AgentOptions { client: false, extra: certificates.block(kind, BOTH), ..AgentOptions::default() }
}

fn client(server: &Agent, extra: String) -> AgentOptions {
    AgentOptions { server: false, servers: vec![server.rpc_address()], extra, ..AgentOptions::default() }
}

/// Says hello as somebody, with a certificate or without; answers the refusal.
fn refusal(
    agent: &Agent,
    identity: PeerIdentity,
    certificate: Option<(&Certificates, &str)>,
) -> Result<String> {
    let mut options = ConnectOptions::new(vec![agent.rpc_address()], identity, "global");
    options.retry = RetryPolicy { patience: Duration::ZERO, ..RetryPolicy::default() };
    if let Some((certificates, kind)) = certificate {
        let pem = |end: &str| certificates.path(&format!("global-{kind}-nomad{end}.pem"));
        let tls = Connector::new(&ClientSettings {
            ca_file: Some(PathBuf::from(certificates.ca())),
            cert_file: Some(pem("")),
            key_file: Some(pem("-key")),
            checked: Checked::Authority,
            ..ClientSettings::default()
        })?;
        options.connector = Arc::new(TlsConnector { tcp: TcpConnector::default(), tls });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let beat = NodeHeartbeat { node_id: NODE.into(), secret: NodeSecret::new("s") };
    let answer = runtime.block_on(async {
        Channel::connect(options).call::<methods::NodeHeartbeat>(beat, Some(Duration::from_secs(10))).await
    });
    let error = answer.err().context("the call was answered")?;
    ensure!(error.code == Code::Permission, "{error:?}");
    Ok(error.message)
}

const NODE: &str = "11111111-2222-3333-4444-555555555555";

fn somebody() -> PeerIdentity {
    PeerIdentity::Client { node_id: NODE.to_owned(), secret: Secret::new("s") }
}

#[test]
fn calls_between_agents_are_encrypted() -> Result<()> {
    let (certificates, others) = (Certificates::make()?, Certificates::make()?);
    let server = Agent::with(server(&certificates, "server"))?;
    let node = Agent::with(client(&server, certificates.block("client", BOTH)))?;
    // Calls go both ways over what the client opened.
    crate::run_job(&server, "sleeper", JOB)?;
    let alloc = id_of(&server.wait_alloc("sleeper", "running")?)?;
    eventually("its output, by way of the server", || {
        let found = server.logs(&alloc, "t", "stdout")?;
        if found == "awake\n" { Ok(()) } else { bail!("{found:?}") }
    })?;
    let out = node.caravan(&["alloc", "exec", &alloc, "/bin/echo", "inside"])?.ok()?;
    ensure!(out.stdout == "inside\n", "{out:?}");

    let told = refusal(&server, somebody(), None)?;
    ensure!(told.contains("encrypted calls only"), "{told}");
    let told = refusal(&server, PeerIdentity::Server { name: "x".into() }, Some((&certificates, "client")))?;
    ensure!(told.contains("only a certificate for server.global.nomad makes a server"), "{told}");
    let told = refusal(&server, somebody(), Some((&certificates, "cli")))?;
    ensure!(told.contains("neither for client.global.nomad nor for server.global.nomad"), "{told}");

    // Agents without a certificate, with a stranger's, and a server that shows a client's.
    let bare = Agent::launch(client(&server, String::new()))?;
    bare.wait_log("encrypted calls only")?;
    let foreign = Agent::launch(client(&server, others.block("client", BOTH)))?;
    foreign.wait_log("signed by an authority that is not trusted here")?;
    let disguised = Agent::with(self::server(&certificates, "client"))?;
    let careful = Agent::launch(client(&disguised, certificates.block("client", BOTH)))?;
    careful.wait_log("not for server.global.nomad")?;
    let nodes = server.get("/v1/nodes")?;
    ensure!(nodes.as_array().map(Vec::len) == Some(1), "{nodes}");
    Ok(())
}

#[test]
fn certificates_that_cannot_be_used_keep_an_agent_from_starting() -> Result<()> {
    let certificates = Certificates::make()?;
    let run = |extra: String, words: &str| -> Result<()> {
        let mut agent = Agent::launch(AgentOptions { dev: true, extra, ..AgentOptions::default() })?;
        ensure!(agent.wait_end()? == 1);
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
